#include "src/text/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"

void fsdp_added_tokens_fini(fsdp_added_tokens *tokens)
{
    for (size_t i = 0; i < tokens->n; i++)
        fsdp_free(tokens->items[i].text);
    fsdp_free(tokens->items);
    *tokens = (fsdp_added_tokens){0};
}

static fsdp_status append_token(fsdp_added_tokens *tokens, const char *text, int32_t id)
{
    if (!FSDP_GROW(tokens->items, tokens->cap, tokens->n + 1))
        return FSDP_ERR_NOMEM;
    char *own = fsdp_strdup(text);
    if (!own)
        return FSDP_ERR_NOMEM;
    tokens->items[tokens->n++] = (fsdp_added_token){.text = own, .length = strlen(own), .id = id};
    tokens->first[(unsigned char)*own] = true;
    return FSDP_OK;
}

fsdp_status fsdp_added_tokens_decoder(fsdp_added_tokens *tokens, fsdp_json_node config,
                                      fsdp_added_token_fn *wanted, const void *arg)
{
    fsdp_json_node all;
    FSDP_TRY(fsdp_json_opt_object(config, "added_tokens_decoder", &all));
    for (fsdp_json_node token = fsdp_json_first(all); fsdp_json_kind_of(token) != FSDP_JSON_NONE;
         token = fsdp_json_next(token)) {
        const char *text;
        char *end;
        const long id = strtol(token.key, &end, 10);
        if (end == token.key || *end || id < 0 || id > INT32_MAX)
            return fsdp_json_mismatch(token, NULL, "an id as its key");
        FSDP_TRY(fsdp_json_get_str(token, "content", &text));
        if (*text && wanted(arg, text, (int32_t)id))
            FSDP_TRY(append_token(tokens, text, (int32_t)id));
    }
    return FSDP_OK;
}

fsdp_status fsdp_added_tokens_map(fsdp_added_tokens *tokens, fsdp_json_node root,
                                  fsdp_added_token_fn *wanted, const void *arg)
{
    for (fsdp_json_node entry = fsdp_json_first(root); fsdp_json_kind_of(entry) != FSDP_JSON_NONE;
         entry = fsdp_json_next(entry)) {
        int64_t id;
        FSDP_TRY(fsdp_json_get_i64(entry, NULL, 0, INT32_MAX, &id));
        if (*entry.key && wanted(arg, entry.key, (int32_t)id))
            FSDP_TRY(append_token(tokens, entry.key, (int32_t)id));
    }
    return FSDP_OK;
}

const fsdp_added_token *fsdp_added_tokens_at(const fsdp_added_tokens *tokens, const char *text,
                                             size_t left)
{
    if (!tokens->first[(unsigned char)*text])
        return NULL;
    for (size_t i = 0; i < tokens->n; i++)
        if (tokens->items[i].length <= left &&
            memcmp(tokens->items[i].text, text, tokens->items[i].length) == 0)
            return &tokens->items[i];
    return NULL;
}
