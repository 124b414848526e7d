#include "src/text/parts/token_json.h"

#include <string.h>

#include "src/text/chars/utf8.h"

/* Return true if `name` is one of the words in `names`, a list that is separated by spaces. */
static bool is_word_of(const char *names, const char *name)
{
    const size_t length = strlen(name);
    for (const char *p = names; *p; p += strcspn(p, " "), p += strspn(p, " "))
        if (strncmp(p, name, length) == 0 && (p[length] == ' ' || !p[length]))
            return true;
    return false;
}

fsdp_status fsdp_token_json_fields(fsdp_json_node node, const char *names)
{
    if (fsdp_json_kind_of(node) != FSDP_JSON_OBJECT)
        return fsdp_json_mismatch(node, NULL, "an object");
    for (fsdp_json_node v = fsdp_json_first(node); v.value; v = fsdp_json_next(v))
        if (strcmp(v.key, "type") != 0 && !is_word_of(names, v.key))
            return fsdp_json_mismatch(node, v.key, "no such field (known are: %s)",
                                      *names ? names : "none but type");
    return FSDP_OK;
}

fsdp_status fsdp_token_json_type(fsdp_json_node node, const char **type)
{
    if (fsdp_json_kind_of(node) != FSDP_JSON_OBJECT)
        return fsdp_json_mismatch(node, NULL, "an object with a type");
    return fsdp_json_get_str(node, "type", type);
}

fsdp_status fsdp_token_json_char(fsdp_json_node node, const char *key, uint32_t *c)
{
    const char *text;
    size_t length;
    FSDP_TRY(fsdp_json_get_str(node, key, &text));
    const uint32_t first = fsdp_utf8_decode(text, &length);
    if (!*text || text[length])
        return fsdp_json_mismatch(node, key, "one character");
    *c = first;
    return FSDP_OK;
}

fsdp_status fsdp_token_json_unknown(fsdp_json_node node, const char *what, const char *known)
{
    fsdp_status status = fsdp_json_mismatch(node, "type", "a %s (%s)", what, known);
    return status == FSDP_ERR_FORMAT ? fsdp_error(FSDP_ERR_UNSUPPORTED, "%s", fsdp_last_error())
                                     : status;
}

fsdp_status fsdp_token_json_pattern(fsdp_json_node node, const char *key, const char **text,
                                    bool *is_regex)
{
    fsdp_json_node pattern = fsdp_json_find(node, key);
    if (fsdp_json_kind_of(pattern) != FSDP_JSON_OBJECT || fsdp_json_len(pattern) != 1)
        return fsdp_json_mismatch(node, key, "{\"String\": ...} or {\"Regex\": ...}");
    fsdp_json_node only = fsdp_json_first(pattern);
    const bool regex = strcmp(only.key, "Regex") == 0;
    if (!regex && strcmp(only.key, "String") != 0)
        return fsdp_json_mismatch(node, key, "{\"String\": ...} or {\"Regex\": ...}");
    FSDP_TRY(fsdp_json_get_str(only, NULL, text));
    *is_regex = regex;
    return FSDP_OK;
}
