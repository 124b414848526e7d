/* The journal: a file next to the unfinished output of `fsdp tokenize` that says what has been
 * written so far. With --resume, a later run goes on from there. */
#pragma once
#include "src/base/json.h"
#include "src/tokenize/encode.h"

typedef struct fsdp_tokenize_state {
    int64_t records; /* number of records that were read from all files */
    int64_t text_bytes, cut_rows, cut_tokens, masked_rows, empty_rows;
    unsigned uses; /* FSDP_USES_* of the rows */
    bool lists[FSDP_SPOOLED_LISTS];
    bool is_complete; /* all records were read */
    bool overwrites;  /* the run may replace what is at the place of the output */
    struct {
        int64_t rows, tokens;
        int64_t bytes; /* size of the part's file, without a header */
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
