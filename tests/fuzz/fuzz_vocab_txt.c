/* libFuzzer over the vocabulary of a WordPiece model, vocab.txt: `make fuzz FUZZ_S=60`. */
#include <stdint.h>

#include "src/text/models/wordpiece.h"
#include "tests/fuzz/token_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_token_model *model = NULL;
    if (fsdp_wordpiece_parse("vocab.txt", (const char *)data, bytes, &FSDP_WORDPIECE_BERT,
                             &model) == FSDP_OK)
        fuzz_model(model);
    return 0;
}
