/* The pre-tokenizer of a tokenizer.json: splits a text into pieces, each of which the model then
 * splits into tokens. A pre-tokenizer is a chain of steps. A step passes each piece to the next
 * step as soon as it has found the piece, so no list of pieces is ever stored. */
#pragma once
#include "src/base/json.h"
#include "src/text/chars/aligned_text.h"
#include "src/text/chars/char_class.h"

typedef struct fsdp_pre_tokenizer fsdp_pre_tokenizer;

/* Create a pre-tokenizer from JSON. If `node` is absent or null, *out is set to NULL. `classes`
 * must exist until the pre-tokenizer is destroyed. Error messages contain the file and the path of
 * the key. */
FSDP_MUST_CHECK fsdp_status fsdp_pre_tokenizer_from_json(fsdp_json_node node,
                                                         const fsdp_char_classes *classes,
                                                         fsdp_pre_tokenizer **out);
void fsdp_pre_tokenizer_destroy(fsdp_pre_tokenizer *pre); /* accepts NULL */

/* Return true if the last step is ByteLevel, which spells each byte of a piece in GPT-2's alphabet.
 * If the model works on bytes (fsdp_bpe_options.raw_bytes), call fsdp_pre_tokenizer_keep_bytes(),
 * so that the pieces are raw bytes, without this spelling. */
bool fsdp_pre_tokenizer_ends_with_bytes(const fsdp_pre_tokenizer *pre);
void fsdp_pre_tokenizer_keep_bytes(fsdp_pre_tokenizer *pre);

/* Return true if the pieces depend on the position of the text in the original text. This is so for
 * Metaspace with the prepend_scheme "first". */
bool fsdp_pre_tokenizer_needs_origin(const fsdp_pre_tokenizer *pre);

/* Memory that one thread needs to pre-tokenize. */
typedef struct fsdp_pre_tokenizer_work fsdp_pre_tokenizer_work;
FSDP_MUST_CHECK fsdp_status fsdp_pre_tokenizer_work_create(fsdp_pre_tokenizer_work **out);
void fsdp_pre_tokenizer_work_destroy(fsdp_pre_tokenizer_work *work); /* accepts NULL */

/* A callback that gets a piece, which is not empty. It may set *done to true to end the
 * splitting. */
typedef fsdp_status fsdp_piece_fn(void *arg, const fsdp_text_view *piece, bool *done);

/* Split a text, and call `each` for every piece, in order. If `each` fails, stop and return its
 * error. If `tracked` is true, pieces that differ from the text have alignments. If `pre` is NULL,
 * the whole text is one piece. */
FSDP_MUST_CHECK fsdp_status fsdp_pre_tokenizer_split(const fsdp_pre_tokenizer *pre,
                                                     fsdp_pre_tokenizer_work *work,
                                                     const fsdp_text_view *text, bool tracked,
                                                     fsdp_piece_fn *each, void *arg);
