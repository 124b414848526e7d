/* Makes a model from the object "model" of a tokenizer.json. */
#pragma once
#include "src/base/json.h"
#include "src/text/models/token_model.h"

/* Create a model from the object `model`, whose "type" is "BPE", "WordPiece", "WordLevel" or
 * "Unigram". Files of old versions of the tokenizers library lack "type"; the type then follows
 * from the other fields. `raw_bytes`: see fsdp_bpe_options in bpe.h; it is an error for all types
 * but BPE. Errors contain the file and the key path. Unknown fields are an error. */
FSDP_MUST_CHECK fsdp_status fsdp_token_model_from_json(fsdp_json_node model, bool raw_bytes,
                                                       fsdp_token_model **out);
