/* Makes an Arrow folder, which datasets.load_from_disk() can read, from the rows that `fsdp
 * tokenize` has written to temporary files (Note [Spooled rows] in encode.h). */
#pragma once
#include "src/tokenize/output.h"

typedef struct fsdp_arrow_output_options {
    const char *path;
    fsdp_task task;
    bool has_validation; /* the folder is a DatasetDict with the splits train and validation */
    /* Concatenate all rows and cut the result into rows of this many tokens, as run_clm's
     * group_texts() does; 0: rows stay as they are. */
    int64_t block_size;
    const char *const *class_names; /* CLASSIFICATION: [n_classes]; NULL: classes are numbers */
    size_t n_classes;
    fsdp_problem_type problem_type; /* CLASSIFICATION: what the labels of a row are */
    /* number of values in the label of a row, unless problem_type is SINGLE_LABEL */
    int64_t num_labels;
} fsdp_arrow_output_options;

typedef struct fsdp_arrow_output_counts {
    int64_t rows[FSDP_TOKENIZE_PARTS]; /* rows of each split */
    int64_t unused_tokens;             /* tokens at the ends of splits that do not fill a block */
} fsdp_arrow_output_counts;

/* Return an error if no Arrow folder can be written at `path`. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_output_check(const char *path);
/* Write the folder and set *counts. The folder gets its final name when it is complete. If writing
 * fails, no folder is left. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_output_write(const fsdp_arrow_output_options *options,
                                                    const fsdp_token_output *spool,
                                                    const fsdp_tokenize_state *state,
                                                    fsdp_arrow_output_counts *counts);
