/* Encodes a batch of records to the bytes of an output file. Any thread may do this. */
#pragma once
#include "src/data/datasets/jsonl_row.h"
#include "src/tokenize/source.h"

enum {
    FSDP_TOKENIZE_PARTS = 2, /* the data for training and those for validation */
    FSDP_SPOOLED_LISTS = 4   /* ids, labels, token_type_ids and position_ids */
};

/* How rows are written. */
typedef struct fsdp_encode_form {
    const fsdp_dataset_options *rows;
    fsdp_task task;
    int width;                /* bytes of a token; 0: rows are spooled, see Note [Spooled rows] */
    int64_t validation_below; /* a row is for validation if its number is below this: see
                                 fsdp_record_number() */
    uint64_t seed;
} fsdp_encode_form;

/* Note [Spooled rows]. If the output is an Arrow folder, rows first go to a temporary file, because
 * the columns of the folder are known only after the last row, and because a run that is
 * interrupted can go on from there. A row has four lengths (uint32), of its ids, labels,
 * token_type_ids and position_ids, and then these lists, as int32. All are in the byte order of the
 * machine. */

/* The rows of one part. */
typedef struct fsdp_encoded_part {
    unsigned char *bytes; /* [used] */
    size_t used, cap;
    int32_t *sizes; /* [rows], tokens of each row */
    size_t sizes_cap;
    int64_t rows, tokens;
} fsdp_encoded_part;

/* The result for a batch. Initialise it with {0}. It can be used for several batches. */
typedef struct fsdp_encoded {
    fsdp_encoded_part parts[FSDP_TOKENIZE_PARTS];
    int64_t text_bytes;             /* bytes of the records that are texts */
    int64_t cut_rows, cut_tokens;   /* rows that were longer than a limit, and by how many tokens */
    int64_t masked_rows;            /* rows of which a part has no loss */
    int64_t empty_rows;             /* rows without tokens */
    bool lists[FSDP_SPOOLED_LISTS]; /* lists[i]: a row has a list i that is not empty; the order is
                                       that of Note [Spooled rows] */
    fsdp_jsonl_rows found;
    fsdp_example example; /* scratch memory */
    fsdp_json_text text;  /* scratch memory */
} fsdp_encoded;

void fsdp_encoded_fini(fsdp_encoded *encoded);
/* Replace the contents of *out by the encoded records of `batch`. Errors contain file and line. */
FSDP_MUST_CHECK fsdp_status fsdp_encode_batch(const fsdp_encode_form *form,
                                              const fsdp_record_batch *batch, fsdp_encoded *out);
/* Encode record `i` of the batch to out->example, which the caller reads. *cut is set to the number
 * of ids beyond a limit. */
FSDP_MUST_CHECK fsdp_status fsdp_encode_record(const fsdp_encode_form *form,
                                               const fsdp_record_batch *batch, size_t i,
                                               fsdp_encoded *out, int64_t *cut);
/* Return a number from 0 to 2^32 - 1 that depends only on seed and index, and is spread evenly. */
int64_t fsdp_record_number(uint64_t seed, int64_t index);
