/**
 * @file
 * Training data: datasets of token ids, samplers that decide which rank reads which examples, and
 * loaders that prepare batches ahead.
 *
 * A dataset has a length and gives examples by index, like torch's map-style datasets. A sampler is
 * a pure function from (epoch, step, micro-step) to indices. A loader prepares the batches of one
 * rank in order, in background threads if requested. The functions of this header do not
 * communicate. Each rank computes which examples it reads, and all ranks have the same number of
 * steps by construction.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>
#include <fsdp/batch.h>
#include <fsdp/chat.h>
#include <fsdp/text.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- datasets -------------------------------------------------------------------------------- */

/** One example. Initialize it with {0}, and free it with fsdp_example_fini(). It can be filled
 * again and again. */
typedef struct fsdp_example {
    fsdp_token_list source; /**< input_ids, without padding */
    /** SEQ2SEQ, CAUSAL_LM: token ids, with FSDP_IGNORE_INDEX where there is no loss. CAUSAL_LM:
     * labels are not shifted. An empty list means that the labels are the source itself. If there
     * is one label more than source tokens, the last label is the token after the source.
     * CLASSIFICATION: one label, the class. MASKED_LM: one label for each token. */
    fsdp_token_list labels;
    fsdp_token_list position_ids;   /**< a document begins at each 0; empty: one document */
    fsdp_token_list token_type_ids; /**< empty: all 0 */
    /** CLASSIFICATION whose problem type is not SINGLE_LABEL: [num_targets] the labels, set with
     * fsdp_example_set_targets(). Such an example has no `labels`: they are empty. */
    float *targets;
    size_t num_targets, targets_cap; /**< num_targets: length of `targets`; targets_cap: number of
                                          elements that its memory can hold */
} fsdp_example;

/** Replace the targets of an example by a copy of `targets` [count]. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_example_set_targets(fsdp_example *example,
                                                              const float *targets, size_t count);

/** Free the lists of the example and empty it. */
FSDP_API void fsdp_example_fini(fsdp_example *example);

/** The seed and the epoch for which an example is requested. If an example has a random part, that
 * part is a function of seed, epoch and the example's index. {0} is a valid fsdp_draw. */
typedef struct fsdp_draw {
    uint64_t seed; /**< seed of the run */
    int64_t epoch;
    /** As in fsdp_sampler: a mixture orders the rows of its parts by order_seed instead of seed. */
    bool has_order_seed;
    uint64_t order_seed;
} fsdp_draw;

/**
 * The functions of a dataset, like the methods of torch's Dataset. A program with its own data
 * provides them. Several threads may call `get`, `draw` and `texts` at the same time.
 */
typedef struct fsdp_dataset_ops {
    int64_t (*len)(void *self);
    /** Fill the lists of `example` with example `index`, 0 <= index < len. The lists are empty
     * before the call. Use fsdp_token_list_set() to fill them. If the field `draw` is set, `get` is
     * not called. */
    fsdp_status (*get)(void *self, int64_t index, fsdp_example *example);
    /** Fill `example` like `get`, for datasets whose examples differ between epochs. If this
     * function pointer is not NULL, it is called instead of `get`. The result may depend only on
     * the dataset, `index` and the argument `draw`. If the pointer is NULL, the dataset has the
     * same examples in every epoch. */
    fsdp_status (*draw)(void *self, int64_t index, const fsdp_draw *draw, fsdp_example *example);
    /** Get the text of the source and the text of the target of example `index`. The caller frees
     * both with fsdp_text_free(). *target may stay NULL for CLASSIFICATION. If the function
     * pointer itself is NULL, the dataset has no texts. */
    fsdp_status (*texts)(void *self, int64_t index, char **source, char **target);
    /** Free `self`. NULL: nothing to free. */
    void (*close)(void *self);
} fsdp_dataset_ops;

typedef struct fsdp_dataset fsdp_dataset;

/** How the texts of a CSV file are cleaned before they are tokenized. */
typedef enum fsdp_cleaning {
    FSDP_CLEANING_NONE, /**< the fields are used as they are */
    /**
     * The cleaning of Hugging Face's WikiHow script, followed by that of the tutorial's
     * summarization_dataset.py:
     * - White space at the start and the end of a text is removed.
     * - In summaries, ".," becomes ".".
     * - In articles, dots followed by line ends and a comma ("..\n\n,") become ".\n".
     * - "Example of text:", "Example of Summary:", line ends, "``" and quotes are removed. This
     *   joins the last word of a line with the first word of the next line.
     */
    FSDP_CLEANING_WIKIHOW,
} fsdp_cleaning;

/**
 * Which rows of a file the dataset has: datasets.load_dataset(..., split=...).
 *
 * If the folder of a CSV file has the lists all_train.txt and all_val.txt, the rows are split by
 * these lists. Take a row's `title` and remove its spaces. If the result is a line of
 * all_train.txt, the row is for training. If the result is a line of all_val.txt, the row is for
 * validation. (WikiHow's authors published these lists, and Hugging Face's dataset script downloads
 * them.) If there are no lists, or if the file is not CSV, the last sixth of the rows, rounded up,
 * is for validation, and all other rows are for training. The folder of a DatasetDict has splits of
 * its own, which are used.
 */
typedef enum fsdp_split {
    FSDP_SPLIT_ALL,
    FSDP_SPLIT_TRAIN,
    FSDP_SPLIT_VALIDATION,
} fsdp_split;

/**
 * T5's objective on plain text (Raffel et al. 2020, section 3.1.4). The text is cut into pieces. In
 * each piece, some spans of tokens are chosen at random, and one sentinel replaces each span. In
 * the target, the tokens of each span follow its sentinel. Zero means default.
 */
typedef struct fsdp_span_corruption {
    double noise_density;          /**< fraction of the tokens that is replaced; 0 means 0.15 */
    double mean_noise_span_length; /**< in tokens, at least 1; 0 means 3 */
} fsdp_span_corruption;

/**
 * BERT's objective (Devlin et al. 2019, section 3.1), as in transformers'
 * DataCollatorForLanguageModeling. Some tokens of each row are chosen at random. The model must
 * predict these tokens, so they are the labels. In the row, 80 % of the chosen tokens are replaced
 * by the mask token, 10 % by a token drawn from the whole vocabulary, and 10 % stay as they are.
 * The choice is a function of seed, epoch and the example's index.
 */
typedef struct fsdp_masking {
    double mlm_probability;     /**< share of the tokens that are chosen, at most 1; 0 means 0.15 */
    int32_t mask_token_id;      /**< [MASK]; -1: unknown, so every row must have labels */
    const int32_t *special_ids; /**< [n_special] tokens that are never chosen, such as [CLS] */
    size_t n_special;
    const char *why_no_mask; /**< text that is appended to the error message if a row needs the mask
                                  token but mask_token_id is -1; must live as long as the dataset;
                                  may be NULL */
} fsdp_masking;

/**
 * Compute how many tokens a piece of text must have to give an input of exactly `inputs_length`
 * tokens. Also compute how many tokens the piece's target has. The same is done by T5's
 * random_spans_helper and by compute_input_and_target_lengths in run_t5_mlm_flax.py.
 *
 * In a piece of n tokens, noise_density * n tokens are replaced. They are called noise tokens. Let
 * m be the number of noise tokens or the number of other tokens, whichever is smaller. Then the
 * number of spans is m / mean_noise_span_length. The numbers of noise tokens and of spans are
 * rounded half to even and are at least 1. The two Python functions do not have the minimum of 1,
 * so their results differ from this function's for small lengths. The input has the tokens that are
 * not noise, a sentinel for each span, and </s>. The target has the noise tokens, a sentinel for
 * each span, and </s>.
 *
 * @param noise          NULL: defaults
 * @param inputs_length  number of tokens that the input shall have, including </s>
 * @param tokens_length  out: number of tokens of the piece. If several numbers give an input of
 *                       inputs_length tokens, the result is the largest of these numbers. There is
 *                       one exception, at density 0.5: if a piece of that many tokens would have a
 *                       target longer than its input, the result is one less
 * @param targets_length out: number of tokens of the piece's target, including </s>; may be NULL
 * @param spans          out: number of spans, which is also the number of sentinels in the input
 *                       and in the target. May be NULL
 * @return FSDP_ERR_INVALID if the density is not in (0, 1), if the mean length is below 1, or if no
 *         piece gives an input of exactly inputs_length tokens
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_span_corruption_lengths(const fsdp_span_corruption *noise,
                                                                  int64_t inputs_length,
                                                                  int64_t *tokens_length,
                                                                  int64_t *targets_length,
                                                                  int64_t *spans);

/** Which part of a row with a prompt and a completion has a loss. */
typedef enum fsdp_completion_loss {
    FSDP_COMPLETION_LOSS_DEFAULT, /**< the completion if the row has a prompt, otherwise the whole
                                       row */
    /** The completion. In a conversation without prompt and completion: the last message. */
    FSDP_COMPLETION_LOSS_ONLY,
    FSDP_COMPLETION_LOSS_ALL, /**< prompt and completion */
} fsdp_completion_loss;

/** CAUSAL_LM: how conversations become examples. Pointers must live as long as the dataset. */
typedef struct fsdp_chat_rows {
    const fsdp_chat_template *chat_template; /**< NULL: conversations are an error */
    const char *why_no_template; /**< text that is appended to the error message if there is
                                      a conversation but no template; may be NULL */
    const char *kwargs;          /**< fsdp_chat_options.kwargs */
    bool assistant_only_loss;    /**< only the assistant's texts have a loss */
    fsdp_completion_loss completion_loss; /**< which part of a row has a loss; this applies to
                                               conversations and to texts with prompts */
} fsdp_chat_rows;
/** Where a document of plain text ends. */
typedef enum fsdp_documents {
    FSDP_DOCUMENTS_DEFAULT,    /**< span corruption: at each line end; else at blank lines */
    FSDP_DOCUMENTS_BLANK_LINE, /**< at one or more lines that are empty or white space */
    FSDP_DOCUMENTS_LINE,       /**< at each line end; blank lines are skipped */
    FSDP_DOCUMENTS_FILE,       /**< at the end of the file */
} fsdp_documents;

/** MULTI_LABEL: what the numbers mean if the label of a row is a list of numbers. */
typedef enum fsdp_label_lists {
    FSDP_LABEL_LISTS_AUTO,     /**< decided from the lists of all rows; an error if they contradict
                                    each other or fit both meanings */
    FSDP_LABEL_LISTS_INDICES,  /**< a list has the indices of the row's classes, e.g. [3, 14], as
                                    Sequence(ClassLabel) of datasets */
    FSDP_LABEL_LISTS_MULTI_HOT /**< a list has a number from 0 to 1 for each class */
} fsdp_label_lists;

/** Type of the numbers in a token file without a header. All are little endian. */
typedef enum fsdp_token_dtype {
    FSDP_TOKENS_DEFAULT, /**< uint16, as in nanoGPT */
    FSDP_TOKENS_U16,
    FSDP_TOKENS_U8,
    FSDP_TOKENS_I32, /**< int32 or uint32 */
    FSDP_TOKENS_I64, /**< int64 or uint64 */
} fsdp_token_dtype;

/** How rows of CAUSAL_LM that are shorter than max_length are joined. */
typedef enum fsdp_packing {
    FSDP_PACKING_NONE,
    /** Concatenate all rows and cut the result into rows of max_length tokens (transformers'
     * run_clm, TRL's "wrapped"). In a new row, tokens of one old row attend to tokens of other old
     * rows. The last new row may be shorter. A row with the position_ids of several documents is an
     * error. */
    FSDP_PACKING_WRAPPED,
    /** Put whole rows together, so that each new row is nearly full: best-fit decreasing, in
     * windows of 65,536 neighboring rows (Ding et al. 2024; TRL's "bfd"). Rows that are put
     * together do not attend to each other. */
    FSDP_PACKING_BFD,
    /** As FSDP_PACKING_BFD, but by first-fit: in the order of the rows, each row is added to the
     * first new row of the window that has sufficient room. */
    FSDP_PACKING_FIRST_FIT,
} fsdp_packing;

/** Zero means default for every field. */
typedef struct fsdp_dataset_options {
    fsdp_task task;                  /**< what the model is trained to do; the form of the rows
                                          depends on it */
    const fsdp_tokenizer *tokenizer; /**< for texts; borrowed until the dataset is closed */
    /** Text to prepend to each source after cleaning, e.g. "summarize: ". CAUSAL_LM: it is
     * prepended to each prompt. */
    const char *source_prefix;
    /** SEQ2SEQ: the largest number of tokens of a source, including </s>; longer sources are cut. 0
     * means 512 for texts, as in the tutorial, and no limit for rows of ids. */
    int max_source_length;
    int max_target_length; /**< SEQ2SEQ: the largest number of tokens of a target, including </s>;
                                longer targets are cut. 0 means 150 for texts, and no limit for rows
                                of ids */
    /** SEQ2SEQ, rows of ids: the model's id of </s>. If a list of ids is too long and ends with
     * this id, the list is cut, and this id replaces the last id that remains. So the cut list
     * still ends with </s>, as a cut text does. 0: the tokenizer's </s>, if there is a
     * tokenizer. */
    int32_t eos_id;
    int32_t decoder_start_id; /**< SEQ2SEQ, rows of ids: first token of decoder_input_ids */
    /** CAUSAL_LM, CLASSIFICATION: the largest number of tokens of a row; longer rows are cut. 0
     * means max_positions. For token files, max_length is the number of tokens of every row, and 0
     * means 1024, or max_positions if max_positions is less than 1024. */
    int64_t max_length;
    int64_t max_positions; /**< longest row that the model accepts; max_length must not be larger.
                                0: unlimited */
    fsdp_split split;
    /** 1 to 99: the first validation_percent percent of the rows are for validation, and all other
     * rows are for training, as in load_dataset(split="train[:N%]"). The number of rows is rounded,
     * and halves are rounded to even. Documents of plain text count as rows. The lists
     * all_train.txt and all_val.txt (see fsdp_split) are not used. Has an effect only if `split` is
     * not FSDP_SPLIT_ALL. 0: the split that fsdp_split describes. */
    int validation_percent;
    int64_t max_samples; /**< number of rows to use, from the beginning of the split; 0: all rows */
    /** CSV, SEQ2SEQ: pad targets to max_target_length with the tokenizer's pad id, and count the
     * padding in the loss like any token. Scripts that use the ids of
     * tokenizer(padding='max_length') as labels do this. */
    bool pad_targets;
    fsdp_cleaning cleaning; /**< CSV, SEQ2SEQ; setting this is an error for other tasks and for JSON
                                 lines */
    /** CSV, SEQ2SEQ: leave out rows without a summary, and rows whose summary is at least 0.75
     * times as long as the article, in characters. The WikiHow script does the same. Rows that are
     * left out do not count towards max_samples. Setting this is an error for other tasks and for
     * JSON lines. */
    bool skip_long_summaries;
    /** Columns of CSV, or keys of texts in JSON. A dot in the name of a key leads into an object:
     * "translation.en". SEQ2SEQ: if both are NULL, the first of these pairs that the file has is
     * used: text and headline, text and summary, article and highlights, document and summary,
     * dialogue and summary, source and target, input and output, prompt and completion, question
     * and answer. If the pair is not text and headline, fsdp_dataset_note() names it. CAUSAL_LM:
     * source_column has prompts, and target_column has completions. If target_column is NULL,
     * source_column has texts without prompts. If both columns are NULL, "prompt" and "completion"
     * are used if the file has both, else "text". */
    const char *source_column, *target_column;
    fsdp_chat_rows chat;    /**< CAUSAL_LM, JSON and Arrow: rows that are conversations */
    bool no_special_tokens; /**< CAUSAL_LM, texts: do not add the special tokens that the tokenizer
                                 adds to a text */
    bool no_eos;            /**< CAUSAL_LM, texts: do not end a text with eos */
    /** CLASSIFICATION, texts: columns or keys. label_column has the class. If rows are pairs of
     * texts, source_column has the first text and text_pair_column the second one. If source_column
     * is NULL, the texts are the first of these pairs that the file has: sentence1 and sentence2,
     * question1 and question2, premise and hypothesis, question and sentence, question and answer,
     * text1 and text2, text and text_pair. If the file has none of these pairs, each row has one
     * text, in "sentence" or, if that is missing, in "text". If label_column is NULL, the class is
     * in "label" or, if that is missing, in "labels". */
    const char *text_pair_column, *label_column;
    /** SEQ2SEQ: the languages of the source and the target, such as "en" and "de", as in
     * transformers' run_translation. In JSON, the texts are at the keys "en" and "de" of the object
     * "translation" of each row. In CSV, they are in the columns "en" and "de". Set both languages
     * or neither. If both are set, source_column and target_column must be NULL. */
    const char *source_lang, *target_lang;
    /** JSON, if the whole file is one object: the key under which this object has the array of
     * rows. NULL: "data", if the object has this key. Used only during fsdp_dataset_open(). */
    const char *json_field;
    /** CSV: the character between two fields. 0: the library tries four candidates in this order:
     * the usual delimiter (a tab for .tsv and .tab, otherwise a comma); the comma if the usual
     * delimiter is a tab, otherwise the tab; the semicolon; the vertical bar. If some candidates
     * give a header that has all needed columns, only these candidates are considered. For each
     * candidate, the library counts how many of the first rows have the same number of fields as
     * the header. It chooses the candidate with the largest count; if counts are equal, the earlier
     * candidate. fsdp_dataset_note() names the delimiter if it is not the usual one. */
    char delimiter;
    /** true: quotes in CSV are ordinary characters, so no field can contain a line end or the
     * delimiter (Python's csv.QUOTE_NONE). */
    bool no_csv_quotes;
    fsdp_documents documents;     /**< plain text, for CAUSAL_LM and span corruption */
    fsdp_token_dtype token_dtype; /**< token files without a header */
    fsdp_packing packing;         /**< CAUSAL_LM: rows of CSV and JSON */
    int64_t vocab_size; /**< the model's vocab_size; ids must be less than this. 0: the tokenizer's
                             vocab_size; without a tokenizer, ids are not checked */
    /** CLASSIFICATION: token_type_ids must be less than type_vocab_size, and classes less than
     * num_classes; 0: not checked. */
    int64_t type_vocab_size, num_classes;
    /** CLASSIFICATION: what labels are. REGRESSION: a number, or a list of num_classes numbers.
     * MULTI_LABEL: a list of num_classes numbers from 0 to 1, a list of classes from 0 to
     * num_classes - 1, or a list of names of classes. In CSV, a list is in brackets, as in JSON. A
     * list of numbers may also be without brackets: "3,14". num_classes must be given for
     * REGRESSION and MULTI_LABEL. */
    fsdp_problem_type problem_type;
    /** MULTI_LABEL: what the numbers in a list mean. */
    fsdp_label_lists label_lists;
    /** CLASSIFICATION: [num_classes] names of the classes, which rows may use as labels. The entry
     * of a class without a name is NULL. If class_names itself is NULL, labels are numbers. Used
     * only during fsdp_dataset_open(). */
    const char *const *class_names;
    /** If a label is not a class, this text is appended to the error. It should say how to get more
     * classes. NULL: no text is appended. */
    const char *class_hint;
    /** true: in a folder of token files, use only the files for validation, and in a DatasetDict,
     * the split for validation. false: use only the other files, and the split "train". */
    bool validation;
    /** Token files: a document begins at each document_token, and documents do not attend to each
     * other. If the file is not a token file and `validation` is false, setting this is an error.
     * If the file is not a token file and `validation` is true, this has no effect: a program may
     * train on token files, pass the same options for validation, and validate on a file of another
     * kind. */
    bool split_documents;
    int32_t document_token;
    /** SEQ2SEQ: make examples from plain texts by span corruption, with inputs of max_source_length
     * tokens. NULL: the file has pairs of source and target. */
    const fsdp_span_corruption *span_corruption;
    /** MASKED_LM: how rows without labels are masked. NULL: every row has labels. Used only during
     * fsdp_dataset_open(). Not read for other tasks. */
    const fsdp_masking *masking;
} fsdp_dataset_options;

/**
 * Open a file of examples. Every row up to max_samples is checked at this time, so bad rows are
 * reported before training. A row of a CSV file is read again, and tokenized, each time its example
 * is requested.
 *
 * CSV (.csv, .tsv, .tab): RFC 4180, UTF-8 with or without byte order mark. Lines end with LF, CRLF
 * or CR; blank lines are skipped, and line ends within a field stay as they are. A header names the
 * columns, in any order. Columns that are not needed are ignored, and fsdp_dataset_note() lists
 * them. wikihowAll.csv (headline,title,text) and wikihowSep.csv
 * (overview,headline,text,sectionLabel,title) have this form: the source is `text`, and the target
 * is `headline`.
 *
 * JSON (.jsonl, .json, .ndjson): one object per line, or an array of objects, or an object with
 * such an array (json_field), or objects one after the other. A file of CSV or JSON may be
 * compressed with gzip or zstd, which is recognized by its first bytes, not by its name. A key that
 * this library does not use is ignored, and fsdp_dataset_note() lists it. But such a key is an
 * error if it would change the loss (another input of a model, a weight of the loss), unless its
 * value has no effect (e.g. a mask of ones). A row of any task can have ids: "input_ids", and
 * optionally "attention_mask". The mask may have zeros only at its ends. Tokens whose mask is 0 are
 * left out. The other keys depend on the task:
 * - SEQ2SEQ: "labels": [...]. Optionally "position_ids", which must count up by one, and
 *   "decoder_input_ids" and "decoder_attention_mask", which must agree with the labels.
 *   source_prefix is not prepended to ids. Ids are cut only if the options set a length. If the
 *   first row has texts but no ids, all rows must be pairs of texts, as in CSV.
 * - CAUSAL_LM: optionally "labels" (one for each id, not shifted, with FSDP_IGNORE_INDEX where
 *   there is no loss); "position_ids" (0 where a document of a packed row begins, counting up by
 *   one from there); "prompt_length": n (the first n entries of input_ids, including padding before
 *   them, have no loss). Instead of input_ids, a row can have "prompt_ids": [...] and
 *   "completion_ids": [...], or texts: "prompt" and "completion", or "text". Texts are tokenized
 *   when the file is opened. A conversation has "messages", or "prompt" and "completion" that are
 *   lists of messages (fsdp_chat_render()). options->chat says how it becomes a text, and which
 *   part has a loss.
 * - MASKED_LM: optionally "token_type_ids", "position_ids" as for CAUSAL_LM, and "labels" (one for
 *   each id, with FSDP_IGNORE_INDEX where there is no loss). A row with labels is used as it is.
 *   All other rows are masked (fsdp_masking). Instead of input_ids, a row can have a text, under
 *   the key source_column or "text".
 * - CLASSIFICATION: "label" or "labels": the class. Optionally "token_type_ids": [...], and
 *   "position_ids", which must count up by one from 0. If the first row has texts but no ids, every
 *   row must have a text or a pair of texts, as in CSV (text_pair_column).
 *
 * A text of CAUSAL_LM becomes bos, the ids of the text, and eos, as in Llama's fine-tuning. If a
 * row has a prompt and a completion, both are joined and tokenized as one text. To find the ids of
 * the prompt in the result, the prompt is also tokenized alone. The ids with which both results
 * begin count as the prompt and get no loss.
 *
 * Arrow (.arrow, .feather, or a folder of datasets.save_to_disk()): a row is read like a line of
 * JSON lines with a key for each column. Columns may be numbers, bools, texts, and lists and
 * structs of these; other columns are left out, and fsdp_dataset_note() lists them. The folder of a
 * DatasetDict has several splits. If `validation` is true, or `split` is FSDP_SPLIT_VALIDATION, the
 * split "validation" is used (or "valid", "val", "dev", "eval", or else "test"). In all other
 * cases, the split "train" is used. The files are mapped. If they have more than 16 MiB, only the
 * first 64 rows are checked when the dataset is opened. Every other row is checked when it is read.
 *
 * Token files (.bin), CAUSAL_LM: the format of llm.c or that of nanoGPT. A file of llm.c has a
 * header of 256 int32: magic 20240520, version 1, number of tokens; the tokens are uint16. With
 * magic 20240801 and version 7, they are uint32. A file of nanoGPT has no header. Its tokens are
 * uint16, unless token_dtype says otherwise. A dataset of Megatron-LM is NAME.bin with NAME.idx
 * next to it. `path` may be NAME.bin, NAME.idx or NAME. The documents of such a dataset are joined
 * to one stream of tokens. Row i of a file has max_length tokens, beginning at token i *
 * max_length. The label of each token is the token after it, so a row also needs the token that
 * follows its last token. If the tokens at the end of a file are too few for a row, they are left
 * out. Files are mapped. If a file has more than 64 MiB, its ids are checked when they are read.
 * Otherwise they are checked when the file is opened.
 *
 * Plain text (.txt, .text, .raw, .md, .tokens), CAUSAL_LM: options->documents says where a document
 * ends. Each document becomes bos, its ids and eos. All documents are joined and cut into rows of
 * max_length tokens, like token files. The ids are kept in memory.
 *
 * A pattern ("data/fineweb_train_*.bin") or a folder selects several files of one kind, in byte
 * order of their names. In a folder, files with the word "validation", "valid", "val" or "dev" in
 * their name are for validation, and those with "test", "testing", "eval" or "evaluation" are not
 * used (the words of Hugging Face's datasets). If a folder has a subfolder "train", the files in
 * this subfolder are used. For validation, the files in the subfolder "validation", "valid", "val",
 * "dev" or "eval" are used instead.
 *
 * If a folder has no token files, its wikihowAll.csv is used, or else its wikihowSep.csv, or else
 * its files of texts. A file whose name has none of the endings above is read as JSON if it begins
 * like an object or an array of objects, else as CSV.
 *
 * With span_corruption, the file is one of three kinds: a token file; a CSV or JSON lines file
 * whose source_column (default "text") has texts; or plain text with one document per line, where
 * blank lines are skipped. Texts are tokenized when the file is opened. eos is appended to each
 * text, and the ids of all texts are joined and cut into pieces. fsdp_span_corruption_lengths()
 * gives the length of a piece. If the ids at the end of a file are too few for a piece, they are
 * left out. The tokenizer's last ids are the sentinels; a piece uses them in descending order. In
 * each epoch, different spans of a piece are replaced. The spans are drawn as in T5's
 * random_spans_noise_mask, but depend only on seed, epoch and index, because there is no generator
 * with a state.
 *
 * @param options NULL: defaults, which are enough for JSON lines only
 * @param out     new dataset, closed with fsdp_dataset_close(); the file must not change until then
 * @return FSDP_ERR_NOT_FOUND if the file does not exist, or if only one of the lists all_train.txt
 *         and all_val.txt exists and options->split needs the other one (see fsdp_split);
 *         FSDP_ERR_FORMAT if a column is missing or a row is malformed; FSDP_ERR_INVALID if there
 *         are texts but no tokenizer, if the tokenizer has more ids than vocab_size or fewer
 *         sentinels than a piece has spans, or if the format does not fit the task;
 *         FSDP_ERR_UNSUPPORTED if options->split is set for token files. The message names the file
 *         and, for a row, its first line
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_open(const char *path,
                                                       const fsdp_dataset_options *options,
                                                       fsdp_dataset **out);

/** Create a dataset from the caller's functions `ops`. `self` is passed to each of them. On
 * failure, ops->close() is not called. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_create(const fsdp_dataset_ops *ops, void *self,
                                                         fsdp_dataset **out);

/** Accepts NULL. Destroy all loaders that use the dataset first. */
FSDP_API void fsdp_dataset_close(fsdp_dataset *dataset);

/** Get a human-readable text about the file, or NULL if there is nothing to say. The text names the
 * columns that are not used, or the keys of JSON lines that are not used, each with the number of
 * the first line that has the key. It also names choices that this library has made, such as
 * columns, a delimiter, names of classes or a split. The dataset owns the text. */
FSDP_API const char *fsdp_dataset_note(const fsdp_dataset *dataset);

/** Counts of what the dataset does not use: rows that are left out, and tokens that are cut off.
 * Also counts of rows whose texts contain special tokens, or characters or words that the tokenizer
 * does not know. */
typedef struct fsdp_left_out {
    int64_t counted_rows;  /**< rows for which cut_rows, cut_tokens, special_rows and unknown_rows
                                were counted */
    int64_t cut_rows;      /**< rows whose source or target is longer than its limit, and is cut */
    int64_t cut_tokens;    /**< tokens that are cut off these rows */
    int64_t skipped_rows;  /**< rows of the file that are not in the dataset, although its split and
                                max_samples include them */
    int64_t unused_tokens; /**< tokens at the ends of files that do not fill a row */
    int64_t special_rows;  /**< rows whose texts contain special tokens, such as "</s>", which
                                become the tokens' ids */
    int64_t special_row;   /**< index of the first such row in its file */
    const char *special_token; /**< a special token in that row; NULL if special_rows is 0. Borrowed
                                    from the tokenizer */
    const char *special_file;  /**< the file of that row, if the dataset has several files; else
                                    NULL. Borrowed from the dataset */
    int64_t unknown_rows; /**< rows whose texts have characters or words that become the tokenizer's
                               unknown token */
    int64_t unknown_row;  /**< index of the first such row in its file */
    const char *unknown_place; /**< "the source", "the target" or "the source and the target" of
                                    that row; NULL if this is not known. Static */
    const char *unknown_file;  /**< like special_file */
    fsdp_unknown_examples unknown_examples; /**< some of these characters and words, of all rows */
} fsdp_left_out;

/**
 * Count what a dataset leaves out.
 *
 * @param most_rows count cut tokens only in the first most_rows rows; 0: in all rows. Counting
 *                  takes time if the rows are texts, because they must be tokenized
 * @param out       the counts; if the dataset is a mixture, the sums over its parts
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_left_out(const fsdp_dataset *dataset,
                                                           int64_t most_rows, fsdp_left_out *out);

/** Return the number of examples. */
FSDP_API int64_t fsdp_dataset_len(const fsdp_dataset *dataset);

/**
 * Get example `index`, tokenized, and replace the contents of `example`. Any thread.
 *
 * @return FSDP_ERR_INVALID if index is not in [0, len); FSDP_ERR_FORMAT or FSDP_ERR_IO if the file
 *         has changed
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_get(const fsdp_dataset *dataset, int64_t index,
                                                      fsdp_example *example);

/**
 * Get example `index` for a given seed and epoch. fsdp_dataset_get() uses draw {0}. Most datasets
 * have the same examples in every epoch and do not use `draw`.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_draw(const fsdp_dataset *dataset, int64_t index,
                                                       const fsdp_draw *draw,
                                                       fsdp_example *example);

/**
 * Get example `index` as text: the source with its prefix, and the target (the reference for
 * ROUGE). The texts are cleaned (fsdp_dataset_options.cleaning) but not cut. CAUSAL_LM: the source
 * is the prompt (empty if there is none), and the target is the text after it. CLASSIFICATION: the
 * source is the text, or the first text of a pair, and the target is the second text of a pair, or
 * NULL. If a row of JSON lines has ids instead of texts and there is a tokenizer, the ids are
 * decoded.
 *
 * @param source out: freed with fsdp_text_free(); may be NULL
 * @param target out: freed with fsdp_text_free(); may be NULL
 * @return FSDP_ERR_UNSUPPORTED if the dataset has no texts
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_dataset_texts(const fsdp_dataset *dataset, int64_t index,
                                                        char **source, char **target);

/** One of the datasets of a mixture. */
typedef struct fsdp_mixture_part {
    fsdp_dataset *dataset; /**< for the same task as the datasets of all other parts */
    /** The part's share of the examples is its weight divided by the sum of all weights. If all
     * weights are 0, each part's weight is its number of examples. */
    double weight;
} fsdp_mixture_part;

/**
 * Create one dataset from several, each with its own rate (seqio's Mixture).
 *
 * The number of examples in an epoch of the mixture is the sum of the numbers of examples of all
 * parts. Each part supplies a share of these examples, which its weight determines. The share is
 * rounded to whole examples, and these examples are spread evenly over the indices of the mixture.
 * A part supplies all of its own examples once before it supplies one of them again. Each time a
 * part begins again, its examples are in a new order. The example at an index of the mixture is a
 * function of the index, the seed and the epoch (fsdp_draw).
 *
 * @param parts      [count]; on success the mixture owns the datasets
 * @param no_shuffle true: each time a part begins again, its examples are in the same order
 * @param out        new dataset, closed with fsdp_dataset_close()
 * @return FSDP_ERR_INVALID if a part has no rows, if a weight is negative, not finite, or so small
 *         that its part would supply no example, or if there are more than 2^31 - 1 examples
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_mixture_create(const fsdp_mixture_part *parts,
                                                         size_t count, bool no_shuffle,
                                                         fsdp_dataset **out);

/* ---- samplers -------------------------------------------------------------------------------- */

typedef enum fsdp_sampler_kind {
    /**
     * Let A be the number of micro-steps of a step, W the number of ranks, and B the batch size. A
     * step uses a block of A W B neighboring positions in the order of the epoch. Micro-step a on
     * rank r uses B positions of this block, beginning at (a W + r) B. So the examples of
     * micro-batch m = a W + r do not depend on how m is split into a and r. The last block of an
     * epoch may be shorter. In its step, some micro-batches have fewer than B rows or none. No
     * example is repeated, and every rank still does A micro-steps.
     */
    FSDP_SAMPLER_DEFAULT,
    /**
     * torch's DistributedSampler with a DataLoader: rank r of W ranks uses the positions r, r + W,
     * r + 2 W, ... of the epoch's order, in batches of B. If W does not divide the number of
     * samples, the first examples of an epoch are used again at its end; with drop_last, the
     * remainder is left out. The permutation is this library's, not torch.randperm's.
     */
    FSDP_SAMPLER_DISTRIBUTED,
} fsdp_sampler_kind;

/**
 * Decides which examples a rank uses at each step. A sampler has no state: the functions below
 * depend only on the fields of this struct and on their arguments, so going to any step costs
 * nothing. The order of an epoch is a permutation of [0, samples) that depends on seed and epoch.
 * The example at a position is computed without a table. A Feistel network permutes [0, n), where n
 * is a power of four that is at least `samples`. The network is applied to the position, and then
 * to its own result, until the result is below `samples` (Black & Rogaway 2002).
 */
typedef struct fsdp_sampler {
    fsdp_sampler_kind kind;
    int64_t samples;      /**< length of the dataset, > 0 */
    int32_t batch_size;   /**< B: rows of a micro-batch on one rank, > 0 */
    int rank, world_size; /**< 0 <= rank < world_size */
    int32_t accumulation; /**< A: micro-steps of a step; 0 means 1 */
    bool no_shuffle;      /**< in every epoch, use the examples in the order of their indices */
    /** Leave out the last step of an epoch if it is incomplete. FSDP_SAMPLER_DISTRIBUTED: leave out
     * each rank's last batch of an epoch if it is incomplete. */
    bool drop_last;
    /** FSDP_SAMPLER_DEFAULT without drop_last: fill the micro-batches of the epoch's last round
     * (one micro-batch for each rank) with the first examples of the epoch, as Accelerate's
     * even_batches=True does. These micro-batches then have batch_size rows on every rank, and the
     * repeated examples are the last rows, in rank order. Default: no example is repeated. */
    bool even_batches;
    uint64_t seed;
    bool has_order_seed; /**< the order depends on order_seed instead of seed */
    uint64_t order_seed;
} fsdp_sampler;

/** Check the fields of a sampler. Returns FSDP_ERR_INVALID if one is out of range, or if drop_last
 * leaves no step. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_sampler_check(const fsdp_sampler *sampler);

/** Return the number of optimizer steps of an epoch. It is the same on every rank. Each step has
 * exactly `accumulation` micro-steps. */
FSDP_API int64_t fsdp_sampler_steps(const fsdp_sampler *sampler);

/** Return the index of the example at `position` in the order of an epoch, 0 <= position <
 * samples. */
FSDP_API int64_t fsdp_sampler_order(const fsdp_sampler *sampler, int64_t epoch, int64_t position);

/**
 * Get the indices of the examples that this rank uses in a micro-step.
 *
 * @param step       in [0, steps)
 * @param micro_step in [0, A); A is `accumulation` of the sampler
 * @param indices    out: [batch_size]
 * @return the number of examples, 0 to batch_size
 */
FSDP_API int32_t fsdp_sampler_batch(const fsdp_sampler *sampler, int64_t epoch, int64_t step,
                                    int32_t micro_step, int64_t *indices);

/* ---- batches --------------------------------------------------------------------------------- */

/**
 * Pack examples into a batch. Its seed, epoch, step and micro_batch are 0.
 *
 * @param indices [count] into the dataset
 * @param format  form of the batch, as the model needs it; NULL: SEQ2SEQ with
 *                decoder_start_token_id 0 and pad_token_id 0
 * @param out     new reference; release with fsdp_batch_release()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_collate(const fsdp_dataset *dataset,
                                                  const int64_t *indices, int32_t count,
                                                  const fsdp_batch_format *format,
                                                  fsdp_batch **out);

/** Zero means default, but the sampler must be filled in. */
typedef struct fsdp_loader_options {
    fsdp_sampler sampler;     /**< if its `samples` is 0, the dataset's length is used */
    fsdp_batch_format format; /**< fsdp_model_info.format of the model */
    int num_workers;          /**< number of background threads; 0: fsdp_loader_next() prepares the
                                   batch itself */
    int prefetch_factor;      /**< batches prepared ahead by each worker; 0 means 2, as in torch's
                                   DataLoader */
} fsdp_loader_options;

/** Gives the batches of one rank in order. The batches do not depend on the number of workers. */
typedef struct fsdp_loader fsdp_loader;

/**
 * Create a loader.
 * @param dataset borrowed until fsdp_loader_destroy()
 * @param out     new loader at step 0 of epoch 0; its workers start immediately
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_loader_create(const fsdp_dataset *dataset,
                                                        const fsdp_loader_options *options,
                                                        fsdp_loader **out);
/** Destroy the loader. The call waits until each worker has finished the batch that it is
 * preparing. Accepts NULL. */
FSDP_API void fsdp_loader_destroy(fsdp_loader *loader);

/** Get the options of the loader. Its sampler has `samples` and `accumulation` filled in.
 * Borrowed. */
FSDP_API const fsdp_loader_options *fsdp_loader_get_options(const fsdp_loader *loader);
/**
 * Replace the loader's sampler, e.g. to split the examples over ranks, and go to step 0 of epoch 0.
 * Batches that workers have prepared are dropped.
 * @param sampler copied; a field `samples` or `accumulation` that is 0 has its default
 * @return FSDP_ERR_INVALID if fsdp_sampler_check() fails, or if the sampler has more samples than
 *         the dataset; the loader has then not changed. FSDP_ERR_IO if a worker cannot be started
 *         again; the loader can then only be destroyed
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_loader_set_sampler(fsdp_loader *loader,
                                                             const fsdp_sampler *sampler);

/** Return the number of optimizer steps of an epoch. For each step, fsdp_loader_next() returns
 * `accumulation` micro-batches (a field of the sampler). */
FSDP_API int64_t fsdp_loader_steps(const fsdp_loader *loader);

/** Go to the beginning of an epoch (DistributedSampler.set_epoch). */
FSDP_API void fsdp_loader_set_epoch(fsdp_loader *loader, int64_t epoch);

/** Go to a step of an epoch, 0 <= step <= steps, to resume a run. Costs nothing. */
FSDP_API void fsdp_loader_seek(fsdp_loader *loader, int64_t epoch, int64_t step);

/**
 * Get the next micro-batch. Its seed, epoch, step (over all epochs) and micro_batch are set.
 *
 * @param out new reference, released with fsdp_batch_release(). It may have 0 rows. At the end of
 *            the epoch, *out is NULL, and it stays NULL in all calls until the next
 *            fsdp_loader_set_epoch() or fsdp_loader_seek().
 * @return the error that occurred while the batch was prepared, with file and line in its message.
 *         Further calls return the same error until the next fsdp_loader_set_epoch() or
 *         fsdp_loader_seek()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_loader_next(fsdp_loader *loader, fsdp_batch **out);

#ifdef __cplusplus
}
#endif
