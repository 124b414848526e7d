/* libFuzzer over tiktoken's files: `make fuzz FUZZ_S=60`. The input is what follows the lines of
 * the 256 bytes, which have the ranks 0 to 255. If the input begins with a line feed, it is the
 * whole file. */
#include <stdint.h>
#include <stdio.h>

#include "src/text/models/tiktoken.h"
#include "tests/fuzz/token_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Write the lines of the 256 bytes, and return their number of bytes. */
static size_t put_byte_lines(char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;
    for (unsigned i = 0; i < 256; i++)
        n += (size_t)sprintf(out + n, "%c%c== %u\n", digits[i >> 2], digits[(i & 3) << 4], i);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_token_model *model = NULL;
    bool whole = bytes && data[0] == '\n';
    char *text = malloc(256 * 10 + bytes + 1);
    if (!text)
        return 0;
    size_t n = whole ? 0 : put_byte_lines(text);
    memcpy(text + n, data, bytes);
    text = realloc(text, n + bytes + 1); /* exact, so that ASan finds reads beyond the text */
    (void)fsdp_tiktoken_matches(text, n + bytes);
    if (text && fsdp_tiktoken_parse("tokenizer.model", text, n + bytes, &model) == FSDP_OK)
        fuzz_model(model);
    free(text);
    return 0;
}
