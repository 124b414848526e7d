/* Reads a vocabulary that is a JSON object whose keys are texts and whose values are ids: a
 * vocab.json, or the "vocab" of most models in a tokenizer.json. */
#pragma once
#include "src/base/json.h"
#include "src/text/models/vocabulary.h"

/* Create a vocabulary from `object`. Error messages contain the file and `what`, the path of the
 * object in the file, such as "model.vocab". */
FSDP_MUST_CHECK fsdp_status fsdp_vocabulary_from_json(fsdp_json_node object, const char *what,
                                                      fsdp_vocabulary **out);
