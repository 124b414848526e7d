/* The journal: a file next to the unfinished output of `fsdp tokenize`. The journal says how many
 * records have been read and how much has been written. With --resume, a later run continues
 * there. */
#pragma once
#include "src/base/json.h"
#include "src/tokenize/encode.h"

typedef struct fsdp_tokenize_state {
    int64_t records; /* number of records that have been read, in all files together */
    int64_t text_bytes, cut_rows, cut_tokens, special_rows, unknown_rows, masked_rows, empty_rows;
    char special[FSDP_SPECIAL_PLACE]; /* fsdp_encoded.special of the first row that has one */
    char unknown[FSDP_SPECIAL_PLACE]; /* fsdp_encoded.unknown of the first row that has one */
    fsdp_unknown_examples unknown_examples;
    unsigned uses; /* FSDP_USES_* flags of the rows that have been read */
    bool lists[FSDP_SPOOLED_LISTS];
    bool is_complete; /* all records were read */
    /* the run was started with --overwrite, so it may replace an existing output */
    bool overwrites;
    struct {
        int64_t rows, tokens;
        int64_t bytes; /* size of the file of this part in OUTPUT.partial, without its header */
    } parts[FSDP_TOKENIZE_PARTS];
} fsdp_tokenize_state;

/* Write the state and the settings of the run to `path` atomically. `settings` is an object whose
 * values are texts. */
FSDP_MUST_CHECK fsdp_status fsdp_journal_write(const char *path, fsdp_json_node settings,
                                               const fsdp_tokenize_state *state);
/* Read the state. Return FSDP_ERR_INVALID if a setting of the run that wrote the journal differs
 * from `settings`, unless the setting had no effect on any row; the message names the first such
 * setting. Return FSDP_ERR_FORMAT if the file is damaged. */
FSDP_MUST_CHECK fsdp_status fsdp_journal_read(const char *path, fsdp_json_node settings,
                                              fsdp_tokenize_state *state);
