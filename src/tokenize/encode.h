/* Encodes a batch of records to the bytes that are appended to an output file. Several threads may
 * encode different batches at the same time. */
#pragma once
#include "src/data/datasets/jsonl_row.h"
#include "src/tokenize/source.h"

enum {
    FSDP_TOKENIZE_PARTS = 2,  /* part 0 is the training data, part 1 the validation data */
    FSDP_SPECIAL_PLACE = 600, /* size of fsdp_encoded.special and fsdp_encoded.unknown */
    FSDP_SPOOLED_LISTS = 4    /* the lists of a row: ids, labels, token_type_ids and position_ids */
};

/* How rows are written. */
typedef struct fsdp_encode_form {
    const fsdp_dataset_options *rows;
    fsdp_task task;
    /* bytes of a token in the output; 0: the output is an Arrow folder, for which rows are spooled;
     * see Note [Spooled rows] */
    int width;
    /* a row is put into the validation part if its fsdp_record_number() is below this */
    int64_t validation_below;
    uint64_t seed;
} fsdp_encode_form;

/* Note [Spooled rows]. If the output is an Arrow folder, rows are first written to a temporary
 * file. One reason is that the columns of the folder are known only after the last row. Another is
 * that a later run can append to this file if a run is interrupted. A spooled row begins with four
 * lengths (uint32): those of its ids, labels, token_type_ids and position_ids. Then come these four
 * lists, as int32. The labels of a row with several classes, and those of regression, are float32
 * (fsdp_example.targets). All numbers are in the byte order of the machine. */

/* The encoded rows of one part of the output: training data or validation data. */
typedef struct fsdp_encoded_part {
    unsigned char *bytes; /* [used] */
    size_t used, cap;
    int32_t *sizes; /* [rows]: number of tokens of each row */
    size_t sizes_cap;
    int64_t rows, tokens;
} fsdp_encoded_part;

/* The encoded rows of a batch. Initialize it with {0}. It can be used for several batches. */
typedef struct fsdp_encoded {
    fsdp_encoded_part parts[FSDP_TOKENIZE_PARTS];
    int64_t text_bytes; /* bytes of the batch's records that are texts */
    /* numbers of rows that were cut to a length limit, and of tokens that were cut off */
    int64_t cut_rows, cut_tokens;
    int64_t special_rows; /* number of rows whose texts contain special tokens */
    /* the first row with special tokens: one of these tokens and the place of the row; "" if there
     * is none */
    char special[FSDP_SPECIAL_PLACE];
    int64_t unknown_rows; /* rows with characters or words that the tokenizer does not know */
    /* the place of the first row with unknown characters or words; "" if there is none */
    char unknown[FSDP_SPECIAL_PLACE];
    fsdp_unknown_examples unknown_examples; /* some of the unknown characters and words */
    /* causal and masked language models: number of rows with labels of their own, in which some
     * tokens have no loss */
    int64_t masked_rows;
    int64_t empty_rows; /* rows without tokens */
    /* lists[i]: list i of at least one row is not empty; lists are numbered as in Note [Spooled
     * rows] */
    bool lists[FSDP_SPOOLED_LISTS];
    fsdp_jsonl_rows found;
    fsdp_example example; /* scratch memory */
    fsdp_json_text text;  /* scratch memory */
} fsdp_encoded;

void fsdp_encoded_fini(fsdp_encoded *encoded);
/* Replace the contents of *out by the encoded records of `batch`. Errors contain file and line. */
FSDP_MUST_CHECK fsdp_status fsdp_encode_batch(const fsdp_encode_form *form,
                                              const fsdp_record_batch *batch, fsdp_encoded *out);
/* Encode record `i` of the batch to out->example, where the caller reads the result. Set *cut to
 * the number of ids that were cut off by a length limit. */
FSDP_MUST_CHECK fsdp_status fsdp_encode_record(const fsdp_encode_form *form,
                                               const fsdp_record_batch *batch, size_t i,
                                               fsdp_encoded *out, int64_t *cut);
/* Return a pseudorandom number from 0 to 2^32 - 1, which depends only on seed and index. For
 * different indices, the numbers are uniformly distributed. */
int64_t fsdp_record_number(uint64_t seed, int64_t index);
