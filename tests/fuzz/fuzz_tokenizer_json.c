/* libFuzzer over tokenizer.json: `make fuzz FUZZ_S=60`. The input is a tokenizer.json. If it opens,
 * a text with all kinds of characters is encoded with offsets and without, which must give the same
 * ids, and decoded. */
#include <stdlib.h>
#include <string.h>

#include <fsdp/text.h>

#include "tests/fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char sample[] =
    "The 1st caf\u00e9, e\u0301 <s>[CLS]</s>  x\r\n\t\u4e2d\u0130\u200d\ufb01'LL "
    "\u1100\u1161aab--\u00a0<|x|> \U0001F600\u2581";

static void use_tokenizer(const fsdp_tokenizer *tokenizer)
{
    const fsdp_encode_options options = {.offsets = FSDP_OFFSETS_CHARACTERS, .max_length = 40};
    const size_t length = sizeof sample - 1;
    fsdp_encoding e = {0};
    fsdp_token_list ids = {0};
    char *decoded = NULL;
    fsdp_status tracked =
        fsdp_tokenizer_encode_pair(tokenizer, sample, length, NULL, 0, &options, &e);
    fsdp_status fast = fsdp_tokenizer_encode(tokenizer, sample, length, 40, &ids);
    if (tracked == FSDP_OK && fast == FSDP_OK) {
        if (ids.len != e.ids.len ||
            (ids.len && memcmp(ids.ids, e.ids.ids, ids.len * sizeof *ids.ids) != 0))
            abort();
        for (size_t i = 0; i < ids.len; i++)
            if (ids.ids[i] < 0 || ids.ids[i] >= fsdp_tokenizer_vocab_size(tokenizer))
                abort();
        if (fsdp_tokenizer_decode(tokenizer, ids.ids, ids.len, FSDP_DECODE_CLEAN_UP, &decoded) ==
            FSDP_OK)
            fsdp_text_free(decoded);
    }
    if (fsdp_tokenizer_encode_pair(tokenizer, sample, length, "b", 1, NULL, &e) != FSDP_OK)
        e.ids.len = 0;
    fsdp_token_list_fini(&ids);
    fsdp_encoding_fini(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    fsdp_tokenizer *tokenizer;
    fuzz_put("tokenizer.json", data, bytes);
    snprintf(path, sizeof path, "%s/tokenizer.json", fuzz_folder());
    if (fsdp_tokenizer_open(path, &tokenizer) == FSDP_OK) {
        use_tokenizer(tokenizer);
        fsdp_tokenizer_close(tokenizer);
    }
    return 0;
}
