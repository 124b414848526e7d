/* The normalizer of a tokenizer.json: changes a text before it is split into words. */
#pragma once
#include "src/base/json.h"
#include "src/text/chars/aligned_text.h"
#include "src/text/chars/char_class.h"

typedef struct fsdp_normalizer fsdp_normalizer;

/* Create a normalizer from JSON. If `node` is absent or null, *out is set to NULL. `classes` must
 * exist until the normalizer is destroyed. Error messages contain the file and the path of the
 * key. */
FSDP_MUST_CHECK fsdp_status fsdp_normalizer_from_json(fsdp_json_node node,
                                                      const fsdp_char_classes *classes,
                                                      fsdp_normalizer **out);
void fsdp_normalizer_destroy(fsdp_normalizer *normalizer); /* accepts NULL */

/* Return true if the resulting text can depend on alignments. If so, alignments must be kept even
 * if only ids are wanted. */
bool fsdp_normalizer_needs_alignment(const fsdp_normalizer *normalizer);

/* Memory that one thread needs to normalize. */
typedef struct fsdp_normalizer_work fsdp_normalizer_work;
FSDP_MUST_CHECK fsdp_status fsdp_normalizer_work_create(fsdp_normalizer_work **out);
void fsdp_normalizer_work_destroy(fsdp_normalizer_work *work); /* accepts NULL */

/* Normalize the text `in`. *out is valid until the next call with the same `work`. If nothing
 * changes or `normalizer` is NULL, *out is equal to *in. Otherwise, *out has alignments if
 * `tracked` is true. */
FSDP_MUST_CHECK fsdp_status fsdp_normalizer_apply(const fsdp_normalizer *normalizer,
                                                  fsdp_normalizer_work *work,
                                                  const fsdp_text_view *in, bool tracked,
                                                  fsdp_text_view *out);
