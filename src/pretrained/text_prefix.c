/* See text_prefix.h. */
#include "src/pretrained/text_prefix.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/json.h"
#include "src/text/chars/utf8.h"

fsdp_status fsdp_text_prefix_read(const char *path, char **prefix)
{
    fsdp_json *doc;
    const char *text = NULL;
    *prefix = NULL;
    FSDP_TRY(fsdp_json_read(path, &doc));
    const fsdp_json_node value = fsdp_json_find(fsdp_json_root(doc), "prefix");
    fsdp_status status = FSDP_OK;
    if (value.value && fsdp_json_kind_of(value) != FSDP_JSON_NULL)
        status = fsdp_json_get_str(value, NULL, &text);
    if (text && !(*prefix = fsdp_strdup(text)))
        status = FSDP_ERR_NOMEM;
    fsdp_json_destroy(doc);
    return status;
}

fsdp_status fsdp_text_prefix_write(const char *path, const char *prefix)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_read(path, &doc));
    fsdp_json_set_str(fsdp_json_root(doc), "prefix", prefix);
    const fsdp_status status = fsdp_json_write(doc, FSDP_JSON_PRETTY, path);
    fsdp_json_destroy(doc);
    return status;
}

fsdp_status fsdp_text_prefix_check(const char *prefix)
{
    const size_t length = strlen(prefix), valid = fsdp_utf8_valid_length(prefix, length);
    if (valid == length)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--task-prefix: byte %zu is not UTF-8, so config.json cannot store the text; "
                      "write it in UTF-8",
                      valid + 1);
}
