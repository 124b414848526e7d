/* Converts one JSON line to an example of a task. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"
#include "src/base/str.h"
#include "src/data/json/json_rows.h"
#include "src/data/json/json_text.h"
#include "src/data/json/jsonl_keys.h"

/* What fsdp_jsonl_row() finds out about the rows of a file. It is {0} before the first row. Fields
 * whose comment says "the last row" are about the row that was converted last. */
typedef struct fsdp_jsonl_rows {
    fsdp_unused_keys unused;
    bool any_texts;       /* some rows have texts instead of ids */
    bool any_chat;        /* some rows are conversations */
    bool any_completions; /* some rows have a prompt and a completion that are texts */
    /* Set by the caller; NULL: the text is not wanted. *whole is set to the text of the last row,
     * as it is tokenized: with its prefix and its prompt, or, for a conversation, as the chat
     * template writes it. It is empty if the row has ids. */
    fsdp_str *whole;
    bool is_chat; /* the last row is a conversation */
    int64_t cut;  /* number of ids of the last row that are beyond max_length, and were removed. 0
                     for SEQ2SEQ */
} fsdp_jsonl_rows;

/* Return the flags FSDP_USES_* (rows_form.h) of the options that have an effect on the rows that
 * were converted with *rows. */
unsigned fsdp_jsonl_rows_uses(const fsdp_jsonl_rows *rows);
/* Convert `object`, the row on line `line`, to an example for options->task. `example` must be
 * empty. Keys that are not used are added to *rows. Returns FSDP_ERR_FORMAT or FSDP_ERR_NOT_FOUND
 * if the row is not valid, with a message that contains the key. Returns FSDP_ERR_INVALID if the
 * row has a text but options->tokenizer is NULL or does not fit the model. */
FSDP_MUST_CHECK fsdp_status fsdp_jsonl_row(fsdp_json_node object,
                                           const fsdp_dataset_options *options, int64_t line,
                                           fsdp_example *example, fsdp_jsonl_rows *rows);
/* Convert a row that is a text, such as {"id": 7, "text": "..."}, without parsing it as a document.
 * Add keys that are not used to *rows. Return false for any other row, and after a failure. The
 * caller then parses the row and calls fsdp_jsonl_row(), which gives the example or the error.
 * `found` is scratch memory. */
bool fsdp_jsonl_text_row(const fsdp_json_row *row, const fsdp_dataset_options *options,
                         fsdp_json_text *found, fsdp_example *example, fsdp_jsonl_rows *rows);
