/* See sharegpt.h. */
#include "src/data/rows/sharegpt.h"

#include <string.h>

#include "src/base/assert.h"

static const char *role_of(const char *speaker)
{
    static const struct {
        const char *speaker, *role;
    } known[] = {{"human", "user"},     {"gpt", "assistant"},  {"chatgpt", "assistant"},
                 {"bing", "assistant"}, {"bard", "assistant"}, {"model", "assistant"}};
    for (size_t i = 0; i < FSDP_LENGTH(known); i++)
        if (strcmp(speaker, known[i].speaker) == 0)
            return known[i].role;
    return speaker;
}

bool fsdp_is_sharegpt_row(fsdp_json_node row)
{
    const fsdp_json_node list = fsdp_json_find(row, "conversations");
    return !fsdp_json_has(row, "messages") && fsdp_json_kind_of(list) == FSDP_JSON_ARRAY &&
           (fsdp_json_len(list) == 0 ||
            fsdp_json_kind_of(fsdp_json_at(list, 0)) == FSDP_JSON_OBJECT);
}

static fsdp_status add_message(fsdp_json_node from, fsdp_json_node messages)
{
    const char *speaker;
    const char *speaker_key = fsdp_json_has(from, "from") ? "from" : "role";
    FSDP_TRY(fsdp_json_get_str(from, speaker_key, &speaker));
    const fsdp_json_node message = fsdp_json_append_object(messages);
    fsdp_json_set_str(message, "role", role_of(speaker));
    for (fsdp_json_node v = fsdp_json_first(from); v.value; v = fsdp_json_next(v))
        if (strcmp(v.key, speaker_key) != 0)
            fsdp_json_set_shared(message, strcmp(v.key, "value") == 0 ? "content" : v.key, v);
    return FSDP_OK;
}

static fsdp_status add_messages(fsdp_json_node row, fsdp_json_node messages)
{
    const fsdp_json_node list = fsdp_json_find(row, "conversations");
    if (fsdp_json_has(row, "system")) {
        const char *text;
        size_t length;
        FSDP_TRY(fsdp_json_get_strn(row, "system", &text, &length));
        const fsdp_json_node message = fsdp_json_append_object(messages);
        fsdp_json_set_str(message, "role", "system");
        fsdp_json_set_strn(message, "content", text, length);
    }
    for (size_t i = 0; i < fsdp_json_len(list); i++)
        FSDP_TRY(add_message(fsdp_json_at(list, i), messages));
    return FSDP_OK;
}

fsdp_status fsdp_sharegpt_convert(fsdp_json_node row, fsdp_json **out)
{
    static const char *const others[] = {"tools", "documents", "chat_template_kwargs"};
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create(fsdp_json_name(row.doc), &doc));
    const fsdp_json_node root = fsdp_json_root(doc);
    fsdp_status status = add_messages(row, fsdp_json_set_array(root, "messages"));
    for (size_t i = 0; i < FSDP_LENGTH(others); i++)
        if (fsdp_json_has(row, others[i]))
            fsdp_json_set_shared(root, others[i], fsdp_json_find(row, others[i]));
    if (status == FSDP_OK)
        status = fsdp_json_check_built(doc);
    if (status != FSDP_OK) {
        fsdp_json_destroy(doc);
        return status;
    }
    *out = doc;
    return FSDP_OK;
}
