/* libFuzzer over rows of JSON that have one text: fsdp_json_only_text() accepts only what the JSON
 * parser accepts, and gives the same text. */
#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"
#include "src/data/json_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_str text = {0};
    fsdp_json *doc;
    const char *parsed;
    char *row = malloc(bytes ? bytes : 1); /* ASan sees a read beyond its end */
    memcpy(row, data, bytes);
    if (fsdp_json_only_text(row, bytes, "text", &text)) {
        if (fsdp_json_parse("row", 1, row, bytes, &doc) != FSDP_OK)
            abort();
        const fsdp_json_node root = fsdp_json_root(doc);
        if (fsdp_json_len(root) != 1 || fsdp_json_get_str(root, "text", &parsed) != FSDP_OK ||
            strlen(parsed) != text.len || memcmp(parsed, text.data, text.len + 1) != 0)
            abort();
        fsdp_json_destroy(doc);
    }
    fsdp_str_fini(&text);
    free(row);
    return 0;
}
