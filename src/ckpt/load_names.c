/* See load_names.h. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/ckpt/load_names.h"

/* A name in up to three pieces; prefix may be NULL. */
static fsdp_status find(const fsdp_checkpoint_reader *reader, const char *prefix, const char *name,
                        size_t length, const char *ending, const fsdp_checkpoint_entry **entry)
{
    char *full = fsdp_strdup_printf("%s%s%.*s%s", prefix ? prefix : "", prefix ? "." : "",
                                    (int)length, name, ending);
    if (!full)
        return FSDP_ERR_NOMEM;
    *entry = fsdp_checkpoint_find(reader, full);
    fsdp_free(full);
    return FSDP_OK;
}

/* `name`, else what it was called in old files. */
static fsdp_status find_new_or_old(const fsdp_checkpoint_reader *reader, const char *prefix,
                                   const char *name, const fsdp_checkpoint_entry **entry)
{
    static const struct {
        const char *now, *then;
    } renamed[] = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};
    size_t length = strlen(name);
    FSDP_TRY(find(reader, prefix, name, length, "", entry));
    for (size_t i = 0; i < FSDP_LENGTH(renamed) && !*entry; i++) {
        size_t n = strlen(renamed[i].now);
        if (length >= n && strcmp(name + length - n, renamed[i].now) == 0)
            FSDP_TRY(find(reader, prefix, name, length - n, renamed[i].then, entry));
    }
    return FSDP_OK;
}

fsdp_status fsdp_load_find(const fsdp_checkpoint_reader *reader, const char *base_prefix,
                           const char *name, const fsdp_checkpoint_entry **entry)
{
    size_t n = base_prefix ? strlen(base_prefix) : 0;
    FSDP_TRY(find_new_or_old(reader, NULL, name, entry));
    if (*entry || !n)
        return FSDP_OK;
    if (strncmp(name, base_prefix, n) == 0 && name[n] == '.')
        return find_new_or_old(reader, NULL, name + n + 1, entry);
    return find_new_or_old(reader, base_prefix, name, entry);
}
