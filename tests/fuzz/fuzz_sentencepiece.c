/* libFuzzer over SentencePiece models: `make fuzz FUZZ_S=60`. */
#include <stdint.h>

#include "src/text/models/sentencepiece_model.h"
#include "tests/fuzz/token_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_sentencepiece_spec spec = {0};
    fsdp_token_model *model = NULL;
    if (fsdp_sentencepiece_parse("model", data, bytes, &spec) != FSDP_OK)
        return 0;
    if (fsdp_sentencepiece_model_create(&spec, &model) == FSDP_OK)
        fuzz_model(model);
    fsdp_sentencepiece_spec_fini(&spec);
    return 0;
}
