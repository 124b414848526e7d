/* Makes a model from the object "model" of a tokenizer.json. */
#pragma once
#include "src/base/json.h"
#include "src/text/models/token_model.h"

/* Create a model from the object `model`. Its "type" is "BPE", "WordPiece", "WordLevel" or
 * "Unigram". Files of old versions of the tokenizers library lack "type"; for such files, the other
 * fields decide the type. If raw_bytes is true, the model works on bytes (fsdp_bpe_options in
 * bpe.h), which is an error for all types except BPE. Error messages contain the file and the path
 * of the key. Unknown fields are an error. */
FSDP_MUST_CHECK fsdp_status fsdp_token_model_from_json(fsdp_json_node model, bool raw_bytes,
                                                       fsdp_token_model **out);
