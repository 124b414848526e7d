/* The pre-tokenizer of a tokenizer.json: splits a text into pieces, each of which the model splits
 * into tokens. Its steps are a chain: each step gives its pieces to the next one as it finds them,
 * so no list of pieces is ever made. */
#pragma once
#include "src/base/json.h"
#include "src/text/chars/aligned_text.h"
#include "src/text/chars/char_class.h"

typedef struct fsdp_pre_tokenizer fsdp_pre_tokenizer;

/* Make a pre-tokenizer from JSON. If `node` is absent or null, *out is NULL. `classes` must exist
 * until it is destroyed. Errors contain the file and the key path. */
FSDP_MUST_CHECK fsdp_status fsdp_pre_tokenizer_from_json(fsdp_json_node node,
                                                         const fsdp_char_classes *classes,
                                                         fsdp_pre_tokenizer **out);
void fsdp_pre_tokenizer_destroy(fsdp_pre_tokenizer *pre); /* accepts NULL */

/* Return true if the last step is ByteLevel, which spells bytes in GPT-2's alphabet. For a model
 * that works on bytes (fsdp_bpe_options.raw_bytes), fsdp_pre_tokenizer_keep_bytes() switches the
 * spelling off, so that pieces are raw bytes. */
bool fsdp_pre_tokenizer_ends_with_bytes(const fsdp_pre_tokenizer *pre);
void fsdp_pre_tokenizer_keep_bytes(fsdp_pre_tokenizer *pre);

/* Return true if the result depends on where a piece begins in the original text (Metaspace with
 * the prepend_scheme "first"). */
bool fsdp_pre_tokenizer_needs_origin(const fsdp_pre_tokenizer *pre);

/* Memory that one thread needs to pre-tokenize. */
typedef struct fsdp_pre_tokenizer_work fsdp_pre_tokenizer_work;
FSDP_MUST_CHECK fsdp_status fsdp_pre_tokenizer_work_create(fsdp_pre_tokenizer_work **out);
void fsdp_pre_tokenizer_work_destroy(fsdp_pre_tokenizer_work *work); /* accepts NULL */

/* Called for each piece, which is not empty. May set *done to true, so that the splitting ends. */
typedef fsdp_status fsdp_piece_fn(void *arg, const fsdp_text_view *piece, bool *done);

/* Split a text and call `each` for every piece, in order. If `each` fails, stop and return its
 * error. If `tracked`, pieces that differ from the text have alignments. If `pre` is NULL, the text
 * is one piece. */
FSDP_MUST_CHECK fsdp_status fsdp_pre_tokenizer_split(const fsdp_pre_tokenizer *pre,
                                                     fsdp_pre_tokenizer_work *work,
                                                     const fsdp_text_view *text, bool tracked,
                                                     fsdp_piece_fn *each, void *arg);
