/* libFuzzer over the object "model" of a tokenizer.json: `make fuzz FUZZ_S=60`. The model is read
 * both as it is and as one that works on bytes. */
#include <stdint.h>

#include "src/text/models/model_json.h"
#include "tests/fuzz/token_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_json *doc = NULL;
    if (fsdp_json_parse("model", 1, (const char *)data, bytes, &doc) != FSDP_OK)
        return 0;
    for (int raw = 0; raw < 2; raw++) {
        fsdp_token_model *model = NULL;
        if (fsdp_token_model_from_json(fsdp_json_root(doc), raw, &model) == FSDP_OK)
            fuzz_model(model);
    }
    fsdp_json_destroy(doc);
    return 0;
}
