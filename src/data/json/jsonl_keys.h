/* Decides what happens to keys of JSON lines that are not used. A key is refused if ignoring it
 * would change what is learned. The other unused keys are listed in one note about the file. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"

enum {
    FSDP_MAX_UNUSED_KEYS = 8
};

typedef struct fsdp_unused_keys {
    struct {
        char *name;
        int64_t line; /* first line that has the key */
    } items[FSDP_MAX_UNUSED_KEYS];
    size_t len;
    bool more; /* some unused keys did not fit into `items` */
} fsdp_unused_keys;

/* Handle a key of `row` that is not used. `value` has the name and the value of the key. If the key
 * is an argument of a model or a weight of the loss, and its value would have an effect, the key is
 * refused: the result is FSDP_ERR_FORMAT, with a message that contains the key. Any other key is
 * added to *unused, with its line. */
FSDP_MUST_CHECK fsdp_status fsdp_unused_key(fsdp_json_node row, fsdp_json_node value, int64_t line,
                                            fsdp_unused_keys *unused);
/* Add an unused key to *unused. Unlike fsdp_unused_key(), this function does not look at the value
 * of the key. So call it only for a key that may be ignored with any value. `line` is the first
 * line with this key; 0 for a column in the header of a CSV file, for which the note names no line.
 */
FSDP_MUST_CHECK fsdp_status fsdp_collect_unused_key(const char *key, int64_t line,
                                                    fsdp_unused_keys *unused);
/* Like fsdp_collect_unused_key(), for a key [bytes] that does not end in a NUL. */
FSDP_MUST_CHECK fsdp_status fsdp_collect_unused_name(const char *name, size_t bytes, int64_t line,
                                                     fsdp_unused_keys *unused);
/* Return true if fsdp_unused_key() looks at the value of the key `name` [bytes]. */
bool fsdp_key_may_be_refused(const char *name, size_t bytes);
/* Check T5's decoder_input_ids and decoder_attention_mask, if the row has them. They must agree
 * with what T5 derives from `labels`, the labels of the row before truncation. `start_id` is the
 * first id of the decoder's input. */
FSDP_MUST_CHECK fsdp_status fsdp_check_decoder_keys(fsdp_json_node row,
                                                    const fsdp_token_list *labels,
                                                    int32_t start_id);

/* Make a note such as "rows.jsonl: not used: 'url' (line 1), 'id' (line 3)". The caller owns *note,
 * which is NULL if all keys are used. */
FSDP_MUST_CHECK fsdp_status fsdp_unused_keys_note(const fsdp_unused_keys *unused, const char *path,
                                                  char **note);
/* Make a note about columns, such as "rows: not used: 'url', 'when' (timestamp)". `left_out` lists
 * columns that are not in `unused`, in the form of the note; NULL: none. */
FSDP_MUST_CHECK fsdp_status fsdp_unused_columns_note(const fsdp_unused_keys *unused,
                                                     const char *left_out, const char *path,
                                                     char **note);
void fsdp_unused_keys_fini(fsdp_unused_keys *unused);
