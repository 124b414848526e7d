/**
 * @file
 * Data: datasets of token ids, the order in which ranks read them, and batches prepared ahead.
 *
 * A dataset is map-style (length and access by index). A sampler is a pure function from (epoch,
 * step, micro-step) to indices. A loader prepares the batches of one rank in order, in background
 * threads if requested. Nothing here communicates: every rank computes its own part, and all ranks
 * have the same number of steps by construction.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>
#include <fsdp/batch.h>
#include <fsdp/text.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- datasets -------------------------------------------------------------------------------- */

/** One example. Initialise with {0}, reuse it, and free it with fsdp_example_fini(). */
typedef struct fsdp_example {
    fsdp_token_list source; /**< input_ids, without padding */
    /** Token ids, with FSDP_IGNORE_INDEX where there is no loss. CAUSAL_LM: labels are not shifted.
     * An empty list means the source itself. If there is one label more than source tokens, the
     * last label is the token that follows the source. CLASSIFICATION: the class. */
    fsdp_token_list labels;
    fsdp_token_list position_ids;   /**< a document begins at each 0; empty: one document */
    fsdp_token_list token_type_ids; /**< empty: all 0 */
} fsdp_example;

/** Free the lists of the example and empty it. */
FSDP_API void fsdp_example_fini(fsdp_example *example);

/** The random part of an example is a function of these values and the index of the example. {0} is
 * a valid draw. */
typedef struct fsdp_draw {
    uint64_t seed; /**< seed of the run */
    int64_t epoch;
} fsdp_draw;

/**
 * The functions of a dataset, like the methods of torch's Dataset. A program with its own data
 * provides them. Several threads call get, draw and texts at the same time.
 */
typedef struct fsdp_dataset_ops {
    int64_t (*len)(void *self);
    /** Set the lists of `example`, which are empty, to example `index`, 0 <= index < len. Use
     * fsdp_token_list_set(). Not called if `draw` is set. */
    fsdp_status (*get)(void *self, int64_t index, fsdp_example *example);
    /** Replaces `get` for examples that differ between epochs. The result must be a function of
     * index and draw alone. NULL: examples are the same in every epoch. */
    fsdp_status (*draw)(void *self, int64_t index, const fsdp_draw *draw, fsdp_example *example);
    /** Get source and target as text, freed with fsdp_text_free(). NULL: the dataset has no
     * texts. */
    fsdp_status (*texts)(void *self, int64_t index, char **source, char **target);
    /** Free `self`. NULL: nothing to free. */
    void (*close)(void *self);
} fsdp_dataset_ops;

typedef struct fsdp_dataset fsdp_dataset;

/** How the texts of a CSV file are cleaned before they are tokenised. */
typedef enum fsdp_cleaning {
    FSDP_CLEANING_NONE, /**< the fields are used as they are */
    /**
     * The cleaning of Hugging Face's WikiHow script followed by that of the tutorial's
     * summarization_dataset.py. White space at both ends is removed. In summaries ".," becomes ".";
     * in articles dots, line ends and a comma ("..\n\n,") become ".\n". Then "Example of text:",
     * "Example of Summary:", line ends, "``" and quotes are removed from summaries and articles,
     * which joins the last word of a line with the first of the next.
     */
    FSDP_CLEANING_WIKIHOW,
} fsdp_cleaning;

/**
 * The rows of a file that are used: datasets.load_dataset(..., split=...).
 *
 * In a CSV file, a row belongs to a split if its `title`, without spaces, is a line of
 * all_train.txt or all_val.txt in the same folder. These are the lists published by WikiHow's
 * authors, which Hugging Face's dataset script downloads. Without these lists, and in files of
 * other formats, the last sixth of the rows, rounded up, is for validation, and the rest is for
 * training.
 */
typedef enum fsdp_split {
    FSDP_SPLIT_ALL,
    FSDP_SPLIT_TRAIN,
    FSDP_SPLIT_VALIDATION,
} fsdp_split;

/**
 * T5's objective on plain text (Raffel et al. 2020, section 3.1.4). The text is cut into pieces. In
 * each piece, some spans are replaced by one sentinel each. In the target, each sentinel is
 * followed by the tokens that it replaces. Zero means default.
 */
typedef struct fsdp_span_corruption {
    double noise_density;          /**< fraction of the tokens that is replaced; 0 means 0.15 */
    double mean_noise_span_length; /**< in tokens, at least 1; 0 means 3 */
} fsdp_span_corruption;

/**
 * Compute how many tokens a piece of text must have so that the input made from it has exactly
 * `inputs_length` tokens, and how many tokens its target has. See T5's random_spans_helper, and
 * compute_input_and_target_lengths of run_t5_mlm_flax.py.
 *
 * A piece of n tokens has n * noise_density noise tokens. The number of spans is the number of
 * noise tokens (or of the other tokens, if there are fewer of them) divided by
 * mean_noise_span_length. Both numbers are rounded half to even and are at least 1, so results for
 * small lengths differ from the reference. The input has the tokens that are not noise, a sentinel
 * for each span, and </s>. The target has the noise tokens, the sentinels, and </s>.
 *
 * @param noise          NULL: defaults
 * @param inputs_length  wanted tokens of the input, including </s>
 * @param tokens_length  out: tokens of a piece: the largest number that gives such an input. At
 *                       density 0.5, it is one less if the target would otherwise be longer than
 *                       the input
 * @param targets_length out: tokens of a piece's target, including </s>; may be NULL
 * @param spans          out: number of sentinels in the input, and in the target; may be NULL
 * @return FSDP_ERR_INVALID, naming the value, if the density is not in (0, 1), if the mean is below
 *         1, or if no piece gives an input of exactly this length
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_span_corruption_lengths(const fsdp_span_corruption *noise,
                                                                  int64_t inputs_length,
                                                                  int64_t *tokens_length,
                                                                  int64_t *targets_length,
                                                                  int64_t *spans);

/** Zero means default for every field. */
typedef struct fsdp_dataset_options {
    fsdp_task task;                  /**< what the rows are for; determines their form */
    const fsdp_tokenizer *tokenizer; /**< for texts; borrowed until the dataset is closed */
    /** Prepended to each source text after cleaning, e.g. "summarize: ", or to each prompt of
     * CAUSAL_LM. */
    const char *source_prefix;
    /** SEQ2SEQ: the largest number of tokens of a source, including </s>; longer sources are cut. 0
     * means 512 for texts, as in the tutorial, and no limit for rows of ids. */
    int max_source_length;
    int max_target_length; /**< SEQ2SEQ: the largest number of tokens of a target, including </s>;
                                longer targets are cut. 0 means 150 for texts, and no limit for rows
                                of ids */
    /** SEQ2SEQ, rows of ids: the model's </s>. If a list that ends with </s> is cut, the rest ends
     * with </s>, too, as when a text is cut. 0: the tokenizer's </s>, if there is a tokenizer. */
    int32_t eos_id;
    int32_t decoder_start_id; /**< SEQ2SEQ, rows of ids: first token of decoder_input_ids */
    /** CAUSAL_LM, CLASSIFICATION: the largest number of tokens of a row; longer rows lose their
     * end. 0 means max_positions. Token files are cut into rows of exactly this length, and 0 means
     * 1024, or max_positions if that is less. */
    int64_t max_length;
    int64_t max_positions; /**< longest row that the model accepts; max_length must not be larger.
                                0: unlimited */
    fsdp_split split;
    int64_t max_samples; /**< use only the first rows (of the split); 0: all */
    /** CSV, SEQ2SEQ: pad targets to max_target_length with the tokenizer's pad id, and count the
     * padding in the loss like any token. Scripts that use the ids of
     * tokenizer(padding='max_length') as labels do this. */
    bool pad_targets;
    fsdp_cleaning cleaning; /**< CSV, SEQ2SEQ; setting this is an error for other tasks and for JSON
                                 lines */
    /** CSV, SEQ2SEQ: leave out empty rows, and rows whose summary has at least 0.75 times as many
     * characters as the article, as the WikiHow script does. Rows that are left out do not count
     * towards max_samples. Setting this is an error for other tasks and for JSON lines. */
    bool skip_long_summaries;
    /** Columns of CSV, or keys of texts in JSON lines. SEQ2SEQ: NULL means "text" and "headline".
     * CAUSAL_LM: if both are set, they are prompt and completion. If only source_column is set, it
     * has texts without a prompt. If both are NULL, "prompt" and "completion" are used if the file
     * has both, else "text". */
    const char *source_column, *target_column;
    int64_t vocab_size; /**< ids must be less than this, which should be the model's vocab_size; 0:
                             use the tokenizer's, if there is a tokenizer */
    /** CLASSIFICATION: token_type_ids and class numbers must be less than these; 0: not checked. */
    int64_t type_vocab_size, num_classes;
    /** CLASSIFICATION: [num_classes] names of the classes, which rows may use as labels. The entry
     * of a class without a name is NULL. If the whole array is NULL, labels are numbers. Borrowed
     * while the dataset is opened. */
    const char *const *class_names;
    /** If a label is not a class, this text is appended to the error. It should say how to get more
     * classes. NULL: none. */
    const char *class_hint;
    bool validation; /**< if the path is a folder of token files, use its validation files */
    /** Token files: a document begins at each document_token, and documents do not attend to each
     * other. For other files this is an error, unless `validation` is set: validation files may be
     * of another kind than the training files. */
    bool split_documents;
    int32_t document_token;
    /** SEQ2SEQ: the file has texts, not pairs of source and target. Train on span corruption with
     * inputs of max_source_length tokens. NULL: the file has pairs. */
    const fsdp_span_corruption *span_corruption;
} fsdp_dataset_options;

/**
 * Open a file of examples. Every row up to max_samples is checked at this time, so bad rows are
 * reported before training. Rows of CSV files are read again and tokenised on access.
 *
 * CSV (.csv), SEQ2SEQ and CAUSAL_LM: RFC 4180, UTF-8 with or without byte order mark, lines ended
 * by LF, CRLF or CR; blank lines are skipped. A header names the columns, in any order; other
 * columns are ignored. wikihowAll.csv (headline,title,text) and wikihowSep.csv
 * (overview,headline,text,sectionLabel,title) have this form: the source is `text`, and the target
 * is `headline`.
 *
 * JSON lines (.jsonl, .json, .ndjson): one object per line. Unknown keys are ignored, and
 * fsdp_dataset_note() names them. Keys that would change the loss (other inputs of a model, weights
 * of the loss) are an error, unless their values have no effect (e.g. a mask of ones). All tasks:
 * "input_ids": [...], and optionally "attention_mask" (only tokens with 1 are kept; padding on
 * either side, no holes).
 * - SEQ2SEQ: "labels": [...]; optionally "position_ids" (must count up by one), and
 *   "decoder_input_ids" and "decoder_attention_mask" if these agree with the labels. Rows of ids
 *   get no prefix, and are cut only if a length is set in the options.
 * - CAUSAL_LM: optionally "labels" (as many as ids and not shifted, FSDP_IGNORE_INDEX where there
 *   is no loss), "position_ids" (0 where a document of a packed row begins, counting up by one from
 *   there), "prompt_length": n (the first n entries of input_ids, including padding before them,
 *   have no loss). Or "prompt_ids": [...] and "completion_ids": [...]. Or texts: "prompt" and
 *   "completion", or "text"; texts are tokenised when the file is opened.
 * - CLASSIFICATION: "label" or "labels": the class; optionally "token_type_ids": [...].
 *
 * A text of CAUSAL_LM becomes bos, the ids of the text, and eos, as in Llama's fine-tuning. Prompt
 * and completion are tokenised together, as one text. The prompt is also tokenised alone. The ids
 * at the beginning that both results share get no loss.
 *
 * Token files (.bin), CAUSAL_LM: llm.c's (a header of 256 int32: magic 20240520, version 1, number
 * of tokens, then uint16; or magic 20240801, version 7, then uint32) and nanoGPT's (uint16 only).
 * Row i of a file has max_length tokens, beginning at token i * max_length. The label of each token
 * is the token after it, so a row also needs the token after its last one; a remainder that is too
 * short is left out. A pattern ("data/fineweb_train_*.bin") or a folder selects several files,
 * ordered by the bytes of their names. In a folder, files with the word "val", "valid" or
 * "validation" in their name are for validation. They are used if `validation` is set, and the
 * other files if it is not. Files are mapped. Ids of files above 64 MiB are checked only when they
 * are read.
 *
 * If a folder has no token files, its wikihowAll.csv is used, or else its wikihowSep.csv. If the
 * name of a file does not show the format, the beginning of the file does.
 *
 * With span_corruption, the file is a token file, or has texts in source_column (default "text") of
 * CSV or JSON lines. Any other file is plain text with one document per line; blank lines are
 * skipped. Texts are tokenised when the file is opened, eos is added to each, and all ids are
 * concatenated and cut into pieces of the length that gives inputs of exactly max_source_length
 * tokens (fsdp_span_corruption_lengths()). A remainder of a file that is shorter than a piece is
 * left out. The tokenizer's last ids are the sentinels; a piece uses them in descending order. The
 * replaced spans are drawn as in T5's random_spans_noise_mask, again in each epoch. They depend
 * only on seed, epoch and index, because there is no generator with a state.
 *
 * @param options NULL: defaults, which are enough for JSON lines only
 * @param out     new dataset, ended by fsdp_dataset_close(); the file must not change until then
 * @return FSDP_ERR_NOT_FOUND if the file does not exist, or if the list of titles for
 *         options->split (see fsdp_split) is missing but the other list exists; FSDP_ERR_FORMAT
 *         naming the file, the line (the first line of a row), and the missing column or bad token;
 *         FSDP_ERR_INVALID for texts without a tokenizer, if the tokenizer has more ids than
 *         vocab_size or fewer sentinels than a piece has spans, or if the format does not fit the
 *         task
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_open(const char *path,
                                                       const fsdp_dataset_options *options,
                                                       fsdp_dataset **out);

/** Create a dataset from the caller's functions `ops`. On failure `self` is not closed. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_create(const fsdp_dataset_ops *ops, void *self,
                                                         fsdp_dataset **out);

/** Accepts NULL. Destroy all loaders that use the dataset first. */
FSDP_API void fsdp_dataset_close(fsdp_dataset *dataset);

/** Get a human-readable note that lists the unused keys of JSON lines, each with the first line
 * that has it. NULL if all keys are used. Owned by the dataset. */
FSDP_API const char *fsdp_dataset_note(const fsdp_dataset *dataset);

/** Return the number of examples. */
FSDP_API int64_t fsdp_dataset_len(const fsdp_dataset *dataset);

/**
 * Get example `index`, tokenised, and replace the contents of `example`. Any thread.
 *
 * @return FSDP_ERR_INVALID if index is not in [0, len); FSDP_ERR_FORMAT or FSDP_ERR_IO if the file
 *         has changed
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_get(const fsdp_dataset *dataset, int64_t index,
                                                      fsdp_example *example);

/**
 * Get example `index` for a given draw; fsdp_dataset_get() uses draw {0}. Most datasets have the
 * same examples in every epoch.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_draw(const fsdp_dataset *dataset, int64_t index,
                                                       const fsdp_draw *draw,
                                                       fsdp_example *example);

/**
 * Get example `index` as text: the source with its prefix, and the target (the reference for
 * ROUGE). options.cleaning has been applied, and neither text is cut. CAUSAL_LM: the prompt (empty
 * if there is none) and the text after the prompt. JSON lines with ids: the decoded ids, if there
 * is a tokenizer.
 *
 * @param source out: freed with fsdp_text_free(); may be NULL
 * @param target out: freed with fsdp_text_free(); may be NULL
 * @return FSDP_ERR_UNSUPPORTED if the dataset has no texts
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_texts(const fsdp_dataset *dataset, int64_t index,
                                                        char **source, char **target);

/** One of the datasets of a mixture. */
typedef struct fsdp_mixture_part {
    fsdp_dataset *dataset; /**< must be for the same task as those of the other parts */
    /** The part's share of the examples is its weight divided by the sum of all weights. If all
     * weights are 0, each part's weight is its number of examples. */
    double weight;
} fsdp_mixture_part;

/**
 * Create one dataset from several, each with its own rate (seqio's Mixture).
 *
 * An epoch has as many examples as all parts together. Each part supplies the share given by its
 * weight, rounded to whole examples and spread evenly over the indices. Each part has epochs of its
 * own, each in a new order: an example is used again only once all other examples of its part have
 * been used. The example at an index is a function of the index and the draw.
 *
 * @param parts      [count]; on success the mixture owns the datasets
 * @param no_shuffle examples of a part keep their order in every epoch
 * @param out        new dataset, ended by fsdp_dataset_close()
 * @return FSDP_ERR_INVALID naming the part if a weight is negative or not finite, or so small that
 *         its part would supply no example; or if there are more than 2^31 - 1 examples
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_mixture_create(const fsdp_mixture_part *parts,
                                                         size_t count, bool no_shuffle,
                                                         fsdp_dataset **out);

/* ---- samplers -------------------------------------------------------------------------------- */

typedef enum fsdp_sampler_kind {
    /**
     * A step uses a block of A W B positions (A micro-steps, W ranks, batch B). Micro-step a on
     * rank r uses the positions from (a W + r) B to (a W + r) B + B - 1 of this block. So the
     * examples of micro-batch m = a W + r do not depend on how m is split into a and r. The last
     * block of an epoch may be shorter. Then some leaves have fewer rows or none; no example is
     * repeated, and every rank still does A micro-steps.
     */
    FSDP_SAMPLER_DEFAULT,
    /**
     * torch's DistributedSampler and a DataLoader over it: rank r uses positions r, r + W, ... in
     * batches of B. The order is extended by its first examples until W divides its length; with
     * drop_last it is cut instead. The permutation is this library's, not torch.randperm's.
     */
    FSDP_SAMPLER_DISTRIBUTED,
} fsdp_sampler_kind;

/**
 * Decides which examples a rank uses at each step. It has no state: the functions below depend only
 * on these fields, so going to any step costs nothing. The order of an epoch is a permutation of
 * [0, samples), keyed by (seed, epoch) and computed point by point: a Feistel network over the next
 * power of four, repeated until the result is in range (Black & Rogaway 2002).
 */
typedef struct fsdp_sampler {
    fsdp_sampler_kind kind;
    int64_t samples;      /**< length of the dataset, > 0 */
    int32_t batch_size;   /**< B: rows of a micro-batch on one rank, > 0 */
    int rank, world_size; /**< 0 <= rank < world_size */
    int32_t accumulation; /**< A: micro-steps of a step; 0 means 1 */
    bool no_shuffle;      /**< use the order of the file in every epoch */
    bool drop_last;       /**< leave out an incomplete last step (DISTRIBUTED: last batch) */
    uint64_t seed;
} fsdp_sampler;

/** @return FSDP_ERR_INVALID naming a field out of range, or if drop_last leaves no step. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_sampler_check(const fsdp_sampler *sampler);

/** Return the number of optimizer steps of an epoch. It is the same on every rank. Each step has
 * exactly A micro-steps. */
FSDP_API int64_t fsdp_sampler_steps(const fsdp_sampler *sampler);

/** Return the example at `position` of an epoch's order, 0 <= position < samples. */
FSDP_API int64_t fsdp_sampler_order(const fsdp_sampler *sampler, int64_t epoch, int64_t position);

/**
 * Get this rank's examples of a micro-step.
 *
 * @param step       in [0, steps)
 * @param micro_step in [0, A)
 * @param indices    out: [batch_size]
 * @return the number of examples, 0 to batch_size
 */
FSDP_API int32_t fsdp_sampler_batch(const fsdp_sampler *sampler, int64_t epoch, int64_t step,
                                    int32_t micro_step, int64_t *indices);

/* ---- batches --------------------------------------------------------------------------------- */

/**
 * Pack examples into a batch; seed, epoch, step and micro_batch are left 0.
 *
 * @param indices [count] into the dataset
 * @param format  the form that the model needs; NULL: SEQ2SEQ with ids 0
 * @param out     new reference; release with fsdp_batch_release()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_collate(const fsdp_dataset *dataset,
                                                  const int64_t *indices, int32_t count,
                                                  const fsdp_batch_format *format,
                                                  fsdp_batch **out);

/** Zero means default, except for the sampler. */
typedef struct fsdp_loader_options {
    fsdp_sampler sampler;     /**< samples 0: use the dataset's length */
    fsdp_batch_format format; /**< fsdp_model_info.format of the model */
    int num_workers;          /**< background threads; 0: fsdp_loader_next() prepares batches */
    int prefetch_factor;      /**< batches prepared ahead by each worker; 0 means 2, as in torch's
                                   DataLoader */
} fsdp_loader_options;

/** One rank's batches in order. They do not depend on the number of workers. */
typedef struct fsdp_loader fsdp_loader;

/**
 * @param dataset borrowed until fsdp_loader_destroy()
 * @param out     new loader at step 0 of epoch 0; its workers start immediately
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_loader_create(const fsdp_dataset *dataset,
                                                        const fsdp_loader_options *options,
                                                        fsdp_loader **out);
/** Stops the workers after the batches they are preparing. Accepts NULL. */
FSDP_API void fsdp_loader_destroy(fsdp_loader *loader);

/** Return the number of optimizer steps of an epoch; fsdp_loader_next() returns A batches for each
 * step. */
FSDP_API int64_t fsdp_loader_steps(const fsdp_loader *loader);

/** Go to the beginning of an epoch (DistributedSampler.set_epoch). */
FSDP_API void fsdp_loader_set_epoch(fsdp_loader *loader, int64_t epoch);

/** Go to a step of an epoch, 0 <= step <= steps, to resume a run. Costs nothing. */
FSDP_API void fsdp_loader_seek(fsdp_loader *loader, int64_t epoch, int64_t step);

/**
 * Get the next micro-batch. Its seed, epoch, step (over all epochs) and micro_batch are set.
 *
 * @param out new reference, released with fsdp_batch_release(). It may have 0 rows. NULL at the end
 *            of the epoch, and until the next set_epoch or seek.
 * @return the error that occurred while the batch was prepared (naming file and line). Every call
 *         returns it again until the next set_epoch or seek
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_loader_next(fsdp_loader *loader, fsdp_batch **out);

#ifdef __cplusplus
}
#endif
