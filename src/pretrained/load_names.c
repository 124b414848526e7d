/* See load_names.h. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/pretrained/load_names.h"

typedef struct names {
    fsdp_load_lookup_fn *lookup;
    const void *file;
} names;

/* Look up the name that consists of `prefix`, a dot, the first `length` bytes of `name`, and
 * `ending`. If `prefix` is NULL, leave out both the prefix and the dot. */
static fsdp_status find_joined_name(const names *in, const char *prefix, const char *name,
                                    size_t length, const char *ending, const void **found)
{
    char *full = fsdp_strdup_printf("%s%s%.*s%s", prefix ? prefix : "", prefix ? "." : "",
                                    (int)length, name, ending);
    if (!full)
        return FSDP_ERR_NOMEM;
    *found = in->lookup(in->file, full);
    fsdp_free(full);
    return FSDP_OK;
}

/* Look up `name`. If it is not found, look up the name that old versions of transformers gave to
 * the same tensor. If `prefix` is not NULL, put `prefix` and a dot before both names. */
static fsdp_status find_new_or_old(const names *in, const char *prefix, const char *name,
                                   const void **found)
{
    static const struct {
        const char *now, *then;
    } renamed[] = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};
    size_t length = strlen(name);
    FSDP_TRY(find_joined_name(in, prefix, name, length, "", found));
    for (size_t i = 0; i < FSDP_LENGTH(renamed) && !*found; i++) {
        size_t n = strlen(renamed[i].now);
        if (length >= n && strcmp(name + length - n, renamed[i].now) == 0)
            FSDP_TRY(find_joined_name(in, prefix, name, length - n, renamed[i].then, found));
    }
    return FSDP_OK;
}

fsdp_status fsdp_load_lookup(fsdp_load_lookup_fn *lookup, const void *file, const char *base_prefix,
                             const char *name, const void **found)
{
    const names in = {lookup, file};
    size_t n = base_prefix ? strlen(base_prefix) : 0;
    FSDP_TRY(find_new_or_old(&in, NULL, name, found));
    if (*found || !n)
        return FSDP_OK;
    if (strncmp(name, base_prefix, n) == 0 && name[n] == '.')
        return find_new_or_old(&in, NULL, name + n + 1, found);
    return find_new_or_old(&in, base_prefix, name, found);
}

static const void *in_reader(const void *file, const char *name)
{
    return fsdp_checkpoint_find(file, name);
}

fsdp_status fsdp_load_find(const fsdp_checkpoint_reader *reader, const char *base_prefix,
                           const char *name, const fsdp_checkpoint_entry **entry)
{
    const void *found;
    FSDP_TRY(fsdp_load_lookup(in_reader, reader, base_prefix, name, &found));
    *entry = found;
    return FSDP_OK;
}

bool fsdp_load_is_old_buffer(const char *name)
{
    static const char *const endings[] = {
        ".rotary_emb.inv_freq",      ".attn.bias",
        ".attn.masked_bias",         "embeddings.position_ids",
        "embeddings.token_type_ids", "EncDecAttention.relative_attention_bias.weight",
    };
    size_t length = strlen(name);
    for (size_t i = 0; i < FSDP_LENGTH(endings); i++) {
        size_t n = strlen(endings[i]);
        if (length >= n && strcmp(name + length - n, endings[i]) == 0)
            return true;
    }
    return false;
}
