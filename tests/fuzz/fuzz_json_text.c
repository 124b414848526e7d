/* libFuzzer over rows of JSON that have a text: fsdp_json_find_text() accepts only what the JSON
 * parser accepts, and gives the same text and the same keys. */
#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"
#include "src/data/json/json_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void compare_others(const fsdp_json_text *found, fsdp_json_node root)
{
    size_t i = 0;
    for (fsdp_json_node v = fsdp_json_first(root); v.value; v = fsdp_json_next(v)) {
        if (strcmp(v.key, "text") == 0)
            continue;
        const fsdp_json_text_key *other = &found->others[i++];
        if (strlen(v.key) != other->bytes || memcmp(v.key, other->name, other->bytes) != 0 ||
            (fsdp_json_kind_of(v) == FSDP_JSON_NULL) != other->is_null)
            abort();
    }
}

static void compare(const fsdp_json_text *found, const char *row, size_t bytes)
{
    fsdp_json *doc;
    const char *parsed;
    size_t length;
    if (fsdp_json_parse("row", 1, row, bytes, &doc) != FSDP_OK)
        abort();
    const fsdp_json_node root = fsdp_json_root(doc);
    if (fsdp_json_len(root) != found->n_others + 1 ||
        fsdp_json_get_strn(root, "text", &parsed, &length) != FSDP_OK ||
        length != found->text.len || memcmp(parsed, found->text.data, length + 1) != 0)
        abort();
    compare_others(found, root);
    fsdp_json_destroy(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_json_text found = {0};
    char *row = malloc(bytes ? bytes : 1); /* ASan sees a read beyond its end */
    memcpy(row, data, bytes);
    if (fsdp_json_find_text(row, bytes, "text", &found))
        compare(&found, row, bytes);
    fsdp_json_text_fini(&found);
    free(row);
    return 0;
}
