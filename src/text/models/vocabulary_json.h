/* Reads a vocabulary that is a JSON object from text to id: vocab.json, and the "vocab" of most
 * models in tokenizer.json. */
#pragma once
#include "src/base/json.h"
#include "src/text/models/vocabulary.h"

/* Create a vocabulary from `object`. Errors contain the file and `what`, such as "model.vocab". */
FSDP_MUST_CHECK fsdp_status fsdp_vocabulary_from_json(fsdp_json_node object, const char *what,
                                                      fsdp_vocabulary **out);
