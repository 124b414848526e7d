/**
 * @file
 * Data: datasets of rows of ids, the order in which ranks see them, batches made ahead.
 *
 * A dataset is map-style (length and get by index), a sampler is a pure function from (epoch, step,
 * micro-step) to indices, and a loader prepares the batches of one rank in order, in the background
 * if asked. Nothing here communicates: every rank computes its own part and knows, without asking,
 * that all ranks have the same number of steps.
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

/** One example; start with {0}, reuse it, end it with fsdp_example_fini(). */
typedef struct fsdp_example {
    fsdp_token_list source; /**< input_ids without padding */
    /** FSDP_IGNORE_INDEX where there is no loss. CAUSAL_LM: not shifted; empty: the source itself;
     * one more than the source has: what follows its last token. CLASSIFICATION: the class. */
    fsdp_token_list labels;
    fsdp_token_list position_ids;   /**< a document begins at each 0; empty: one document */
    fsdp_token_list token_type_ids; /**< empty: all 0 */
} fsdp_example;

/** Free what the example holds and empty it. */
FSDP_API void fsdp_example_fini(fsdp_example *example);

/** What an example's random part is a function of, beside its index. {0} is a draw like any. */
typedef struct fsdp_draw {
    uint64_t seed; /**< the run's */
    int64_t epoch;
} fsdp_draw;

/**
 * How a kind of dataset works; a program with data of its own fills one (torch's Dataset). get,
 * draw and texts are called by several threads at a time.
 */
typedef struct fsdp_dataset_ops {
    int64_t (*len)(void *self);
    /** Fill the lists, which are empty, with example `index`, 0 <= index < len
     * (fsdp_token_list_set). Not called if there is a draw. */
    fsdp_status (*get)(void *self, int64_t index, fsdp_example *example);
    /** The same of examples that are different from epoch to epoch: a function of index and draw
     * alone. NULL: they are not. */
    fsdp_status (*draw)(void *self, int64_t index, const fsdp_draw *draw, fsdp_example *example);
    /** Source and target as texts, freed with fsdp_text_free(). NULL: there are none. */
    fsdp_status (*texts)(void *self, int64_t index, char **source, char **target);
    /** NULL: nothing to end. */
    void (*close)(void *self);
} fsdp_dataset_ops;

typedef struct fsdp_dataset fsdp_dataset;

/** What is done to the texts of a CSV file before they are tokenised. */
typedef enum fsdp_cleaning {
    FSDP_CLEANING_NONE, /**< nothing: the fields as they are */
    /**
     * What Hugging Face's WikiHow script and then the tutorial's summarization_dataset.py do, in
     * their order: white space at the ends is cut; in summaries ".," becomes
     * ".", in articles dots, line ends and a comma ("..\n\n,") become ".\n"; then
     * "Example of text:", "Example of Summary:", line ends, "``" and quotes are taken out of both,
     * which joins the last word of a line and the first of the next.
     */
    FSDP_CLEANING_WIKIHOW,
} fsdp_cleaning;

/**
 * Which rows of a file: datasets.load_dataset(..., split=...).
 *
 * Of a CSV file those whose `title`, without spaces, is a line of all_train.txt or all_val.txt
 * beside it: the lists that WikiHow's authors gave out, and that Hugging Face's dataset script
 * downloads. Where there is no such list, and of other files, the last sixth of the rows, rounded
 * up, is for validation and the rest for training.
 */
typedef enum fsdp_split {
    FSDP_SPLIT_ALL,
    FSDP_SPLIT_TRAIN,
    FSDP_SPLIT_VALIDATION,
} fsdp_split;

/**
 * T5's objective on plain text: spans of a piece are replaced by a sentinel each, and the target
 * holds the sentinels with what they stand for (Raffel et al. 2020, section 3.1.4). Zero means
 * default.
 */
typedef struct fsdp_span_corruption {
    double noise_density;          /**< share of the tokens that is replaced; 0: 0.15 */
    double mean_noise_span_length; /**< tokens, at least 1; 0: 3 */
} fsdp_span_corruption;

/**
 * How long pieces and targets are, so that inputs are as long as a model takes: T5's
 * random_spans_helper, compute_input_and_target_lengths of run_t5_mlm_flax.py.
 *
 * A piece of n tokens has n * noise_density noise tokens and a span for each
 * mean_noise_span_length of them (of the other tokens, where these are fewer), both rounded half to
 * even and at least 1, which is where small lengths differ from the reference's. Inputs are the
 * other tokens, a sentinel for each span and </s>; targets the noise tokens, the sentinels and
 * </s>.
 *
 * @param noise          NULL: defaults
 * @param inputs_length  wanted tokens of the input, </s> included
 * @param tokens_length  out: tokens of a piece, the most with such inputs (at density 0.5 one less
 *                       where targets would be longer than inputs)
 * @param targets_length out: tokens of its target, </s> included; NULL: not wanted
 * @param spans          out: sentinels of each; NULL: not wanted
 * @return FSDP_ERR_INVALID naming the number if density is not in (0, 1), the mean below 1, or no
 *         piece has exactly such inputs
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_span_corruption_lengths(const fsdp_span_corruption *noise,
                                                                  int64_t inputs_length,
                                                                  int64_t *tokens_length,
                                                                  int64_t *targets_length,
                                                                  int64_t *spans);

/** Zero means default everywhere. */
typedef struct fsdp_dataset_options {
    fsdp_task task;                  /**< what the rows are for, which says how they look */
    const fsdp_tokenizer *tokenizer; /**< for texts; borrowed until the dataset is closed */
    /** Put before each source text (after its cleaning), e.g. "summarize: ", or each prompt of
     * CAUSAL_LM. */
    const char *source_prefix;
    /** SEQ2SEQ: tokens of a source, </s> included; the rest is cut off. 0: 512, the tutorial's, for
     * texts; rows of ids are taken whole. */
    int max_source_length;
    int max_target_length; /**< the same of a target; 0: 150, rows of ids whole */
    /** SEQ2SEQ, rows of ids: the model's </s>. A list that ends with it and is cut ends with it
     * still, as a text that is cut does. 0: the tokenizer's, if any. */
    int32_t eos_id;
    int32_t decoder_start_id; /**< SEQ2SEQ, rows of ids: with which decoder_input_ids begin */
    /** CAUSAL_LM, CLASSIFICATION: tokens of a row; longer ones lose their end. 0: max_positions.
     * Token files are cut into rows of so many; 0: 1024, or max_positions if that is less. */
    int64_t max_length;
    int64_t max_positions; /**< the model's, of a row; 0: any number. max_length is not above it */
    fsdp_split split;
    int64_t max_samples; /**< take the first so many rows (of the split); 0: all */
    /** CSV, SEQ2SEQ: targets are padded to max_target_length with the tokenizer's pad id, and the
     * padding has a loss like any token: what scripts do that take the ids of
     * tokenizer(padding='max_length') for labels as they are. */
    bool pad_targets;
    fsdp_cleaning cleaning; /**< CSV, SEQ2SEQ; refused for other tasks and JSON lines */
    /** CSV, SEQ2SEQ: leave out rows whose summary is not shorter than 0.75 of the article (in
     * characters), and empty ones, as the WikiHow script does. They do not count for max_samples.
     * Refused for other tasks and JSON lines. */
    bool skip_long_summaries;
    /** Columns of CSV, keys of texts in JSON lines. SEQ2SEQ, NULL: "text" and "headline".
     * CAUSAL_LM: with both, prompt and completion; with source_column alone, whole texts; both
     * NULL: "prompt" and "completion" if both are there, else "text". */
    const char *source_column, *target_column;
    int64_t vocab_size; /**< the model's: ids are below it; 0: the tokenizer's, if any */
    /** CLASSIFICATION: token_type_ids and classes are below these; 0: not checked. */
    int64_t type_vocab_size, num_classes;
    /** CLASSIFICATION: [num_classes] names that rows may have as labels, NULL where a class has
     * none; NULL: rows have numbers. Borrowed while the dataset is opened. */
    const char *const *class_names;
    /** What an error about a label that is no class ends with: how there can be more. NULL:
     * nothing. */
    const char *class_hint;
    bool validation; /**< of a folder of token files take those for validation */
    /** Token files: a document begins at each document_token; none sees another. Refused for other
     * files unless they are for validation, which may be of another kind than what is trained on.
     */
    bool split_documents;
    int32_t document_token;
    /** SEQ2SEQ: the file has texts rather than pairs, and this is what is learned of them, with
     * inputs of max_source_length. NULL: pairs. */
    const fsdp_span_corruption *span_corruption;
} fsdp_dataset_options;

/**
 * Open a file of examples. Every row up to max_samples is checked now, so that a bad one is an
 * error before training; rows of CSV are read again and tokenised when asked for.
 *
 * CSV (.csv), SEQ2SEQ and CAUSAL_LM: RFC 4180, UTF-8 with or without byte order mark, lines ended
 * by LF, CRLF or CR, blank lines skipped; a header names the columns, in any order, others are
 * ignored. wikihowAll.csv (headline,title,text) and wikihowSep.csv
 * (overview,headline,text,sectionLabel,title) are of this form: the source is `text`, the target
 * `headline`.
 *
 * JSON lines (.jsonl, .json, .ndjson), an object each. Other keys are not used:
 * fsdp_dataset_note() names them. Arguments of models and weights of losses are refused, unless
 * their values say what is done anyway (a mask of ones). All tasks:
 * "input_ids": [...], and optionally "attention_mask" (only tokens with 1 are kept; padding on
 * either side, no holes).
 * - SEQ2SEQ: "labels": [...], optionally "position_ids" (must count up by one), and
 *   "decoder_input_ids" and "decoder_attention_mask" where they say what the labels say. Rows of
 * ids get no prefix, and are cut to the given lengths alone.
 * - CAUSAL_LM: optionally "labels" (as many as ids and not shifted, FSDP_IGNORE_INDEX where there
 *   is no loss), "position_ids" (0 where a document of a packed row begins, counting up by one from
 *   there), "prompt_length": n (the first n entries of input_ids, padding before them included,
 *   have no loss). Or "prompt_ids": [...] and "completion_ids": [...]. Or texts: "prompt" and
 *   "completion", or "text"; they are tokenised now.
 * - CLASSIFICATION: "label" or "labels": the class; optionally "token_type_ids": [...].
 *
 * Texts of CAUSAL_LM become bos, their ids, eos, as Llama's fine-tuning does it; prompt and
 * completion are tokenised as one text, and the ids that the prompt alone has too have no loss.
 *
 * Token files (.bin), CAUSAL_LM: llm.c's (a header of 256 int32: magic 20240520, version 1, number
 * of tokens, then uint16; or magic 20240801, version 7, then uint32) and nanoGPT's (uint16 alone).
 * Row i of a file has max_length tokens from token i * max_length on, and as labels what follows
 * each, the last one's too; the rest of a file, shorter than a row and one token, is left out. A
 * pattern ("data/fineweb_train_*.bin") or a folder stands for all its files, in the order of their
 * names' bytes: of a folder those with the word "val" (or "validation") in their name if
 * `validation`, else the others. Files are mapped; ids of files above 64 MiB are checked when read.
 *
 * A folder otherwise: wikihowAll.csv in it, else wikihowSep.csv. Any other name: what the first
 * byte says.
 *
 * span_corruption: token files; CSV and JSON lines as for CAUSAL_LM with whole texts, of
 * source_column ("text"); or plain text of any other name, a document a line, blank lines skipped.
 * Texts are tokenised now, each ended by eos, and kept as ids, one after the other. They are cut
 * into pieces of the length that gives inputs of exactly max_source_length tokens
 * (fsdp_span_corruption_lengths()); the rest of a file, shorter than a piece, is left out. The
 * tokenizer's last ids are the sentinels, the first of a piece its very last. Which spans are
 * replaced is drawn anew in each epoch: random_spans_noise_mask of T5, from counters in place of a
 * generator's state.
 *
 * @param options NULL: defaults, which suffice for JSON lines only
 * @param out     new dataset, ended by fsdp_dataset_close(); the file must stay as it is until then
 * @return FSDP_ERR_NOT_FOUND if there is no such file, or one of the two lists of titles alone;
 *         FSDP_ERR_FORMAT naming file and line (that
 *         where a row of several lines starts), column that is missing, or token; FSDP_ERR_INVALID
 *         if texts come without tokenizer, the tokenizer has more ids than vocab_size or fewer
 *         sentinels than a piece has spans, or the form is none of the task
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_open(const char *path,
                                                       const fsdp_dataset_options *options,
                                                       fsdp_dataset **out);

/** A dataset of the caller's own. On failure `self` is not closed. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_create(const fsdp_dataset_ops *ops, void *self,
                                                         fsdp_dataset **out);

/** Accepts NULL. No loader may still use it. */
FSDP_API void fsdp_dataset_close(fsdp_dataset *dataset);

/** What a file has that is not used, for people: keys of JSON lines with their first lines. NULL:
 * all is used. The dataset's own. */
FSDP_API const char *fsdp_dataset_note(const fsdp_dataset *dataset);

/** Number of examples. */
FSDP_API int64_t fsdp_dataset_len(const fsdp_dataset *dataset);

/**
 * Example `index`, tokenised; what `example` held is replaced. Any thread.
 *
 * @return FSDP_ERR_INVALID if index is not in [0, len); FSDP_ERR_FORMAT or FSDP_ERR_IO if the file
 *         is no longer what it was
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_get(const fsdp_dataset *dataset, int64_t index,
                                                      fsdp_example *example);

/**
 * The same as drawn for an epoch; fsdp_dataset_get() is that of draw {0}. Most datasets have the
 * same examples in every epoch.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_draw(const fsdp_dataset *dataset, int64_t index,
                                                       const fsdp_draw *draw,
                                                       fsdp_example *example);

/**
 * Example `index` as text: the source with its prefix and the reference for ROUGE, both after
 * options.cleaning, neither cut. CAUSAL_LM: the prompt (empty without one) and what follows. JSON
 * lines: decoded, if there is a tokenizer.
 *
 * @param source out: freed with fsdp_text_free(); NULL: not wanted
 * @param target out: the same
 * @return FSDP_ERR_UNSUPPORTED if the dataset has no texts
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_texts(const fsdp_dataset *dataset, int64_t index,
                                                        char **source, char **target);

/** One of the datasets of a mixture. */
typedef struct fsdp_mixture_part {
    fsdp_dataset *dataset; /**< for the task of all others */
    /** Its share of the examples over the sum of all parts'; 0 in all: as many as it has. */
    double weight;
} fsdp_mixture_part;

/**
 * Several datasets as one, each with its rate (seqio's Mixture).
 *
 * An epoch has as many examples as all parts together have, of each the share that its weight says,
 * rounded to whole examples and spread evenly over the indices. A part goes through its own epochs,
 * of a new order each: none of its examples comes again before all others have come. Which example
 * an index stands for is a function of the index and the draw.
 *
 * @param parts      [count]; on success the datasets belong to the mixture
 * @param no_shuffle parts keep their order
 * @param out        new dataset, ended by fsdp_dataset_close()
 * @return FSDP_ERR_INVALID naming the part if a weight is negative or not finite, or so small that
 *         its part has no example; or if there are more than 2^31 - 1 examples
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_mixture_create(const fsdp_mixture_part *parts,
                                                         size_t count, bool no_shuffle,
                                                         fsdp_dataset **out);

/* ---- samplers -------------------------------------------------------------------------------- */

typedef enum fsdp_sampler_kind {
    /**
     * Micro-step a on rank r takes positions (a W + r) B .. (a W + r) B + B - 1 of the step's block
     * of A W B positions (A micro-steps, W ranks, batch B): what leaf m = a W + r holds does not
     * depend on how m is split into a and r. The last block of an epoch may be short: its leaves
     * then have fewer rows or none, nothing is repeated, and every rank still does A micro-steps.
     */
    FSDP_SAMPLER_DEFAULT,
    /**
     * torch's DistributedSampler and a DataLoader over it: rank r takes positions r, r + W, ... in
     * batches of B; the order is continued from its beginning until W divides it, or cut there with
     * drop_last. The permutation is this library's, not torch.randperm's.
     */
    FSDP_SAMPLER_DISTRIBUTED,
} fsdp_sampler_kind;

/**
 * Which examples a rank takes when. It has no state: everything below is a function of these
 * fields, and seeking costs nothing. The order of an epoch is a keyed permutation of [0, samples)
 * that is computed point by point (a Feistel network over the next power of four, walked until it
 * falls into range: Black & Rogaway 2002), keyed by (seed, epoch).
 */
typedef struct fsdp_sampler {
    fsdp_sampler_kind kind;
    int64_t samples;      /**< of the dataset, > 0 */
    int32_t batch_size;   /**< B: rows of a micro-batch on one rank, > 0 */
    int rank, world_size; /**< 0 <= rank < world_size */
    int32_t accumulation; /**< A: micro-steps of a step; 0: 1 */
    bool no_shuffle;      /**< file order in every epoch */
    bool drop_last;       /**< leave out what does not fill a whole step (DISTRIBUTED: batch) */
    uint64_t seed;
} fsdp_sampler;

/** @return FSDP_ERR_INVALID naming a field out of range, or that drop_last leaves no step. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_sampler_check(const fsdp_sampler *sampler);

/** Optimizer steps of an epoch, the same on every rank. Each has exactly A micro-steps. */
FSDP_API int64_t fsdp_sampler_steps(const fsdp_sampler *sampler);

/** The example at `position` of an epoch's order, 0 <= position < samples. */
FSDP_API int64_t fsdp_sampler_order(const fsdp_sampler *sampler, int64_t epoch, int64_t position);

/**
 * This rank's examples of a micro-step.
 *
 * @param step       in [0, steps)
 * @param micro_step in [0, A)
 * @param indices    out: [batch_size]
 * @return how many there are, 0 to batch_size
 */
FSDP_API int32_t fsdp_sampler_batch(const fsdp_sampler *sampler, int64_t epoch, int64_t step,
                                    int32_t micro_step, int64_t *indices);

/* ---- batches --------------------------------------------------------------------------------- */

/**
 * Gather examples into a packed batch; seed, epoch, step and leaf are left 0.
 *
 * @param indices [count] into the dataset
 * @param format  what the model wants; NULL: SEQ2SEQ with ids 0
 * @param out     new reference, ended by fsdp_batch_release()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_collate(const fsdp_dataset *dataset,
                                                  const int64_t *indices, int32_t count,
                                                  const fsdp_batch_format *format,
                                                  fsdp_batch **out);

/** Zero means default, except for the sampler. */
typedef struct fsdp_loader_options {
    fsdp_sampler sampler;     /**< samples 0: the dataset's length */
    fsdp_batch_format format; /**< the model's: fsdp_model_info */
    int num_workers;          /**< threads that prepare batches; 0: next() does it */
    int prefetch_factor;      /**< batches ahead for each worker; 0: 2, as torch's DataLoader */
} fsdp_loader_options;

/** One rank's batches in order. The batches are the same for any number of workers. */
typedef struct fsdp_loader fsdp_loader;

/**
 * @param dataset borrowed until the loader is destroyed
 * @param out     new loader at step 0 of epoch 0; its workers start at once
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_loader_create(const fsdp_dataset *dataset,
                                                        const fsdp_loader_options *options,
                                                        fsdp_loader **out);
/** Ends the workers; a batch being made is finished first. Accepts NULL. */
FSDP_API void fsdp_loader_destroy(fsdp_loader *loader);

/** Optimizer steps of an epoch; next() gives A batches for each. */
FSDP_API int64_t fsdp_loader_steps(const fsdp_loader *loader);

/** Go to the beginning of an epoch (DistributedSampler.set_epoch). */
FSDP_API void fsdp_loader_set_epoch(fsdp_loader *loader, int64_t epoch);

/** Go to a step of an epoch, 0 <= step <= steps: what a resumed run does. Costs nothing. */
FSDP_API void fsdp_loader_seek(fsdp_loader *loader, int64_t epoch, int64_t step);

/**
 * The next micro-batch, with seed, epoch, step (over all epochs) and leaf filled in.
 *
 * @param out new reference, ended by fsdp_batch_release(); NULL at the end of the epoch, and until
 *            the next set_epoch or seek. Its rows may be 0.
 * @return what went wrong while the batch was made (naming file and line), again at each call until
 *         the next set_epoch or seek
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_loader_next(fsdp_loader *loader, fsdp_batch **out);

#ifdef __cplusplus
}
#endif
