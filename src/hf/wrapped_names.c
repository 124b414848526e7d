/* See wrapped_names.h. */
#include "src/hf/wrapped_names.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

/* ---- one name -------------------------------------------------------------------------------- */

/* Remove `part` from `name` wherever it begins after a dot or at the beginning of `name`. `part`
 * ends with a dot. */
static void cut_out(char *name, const char *part)
{
    const size_t n = strlen(part);
    for (char *at = name; (at = strstr(at, part));) {
        if (at > name && at[-1] != '.') {
            at++;
            continue;
        }
        memmove(at, at + n, strlen(at + n) + 1);
    }
}

void fsdp_name_unwrap(char *name)
{
    static const char *const wrappers[] = {"_fsdp_wrapped_module.", "_checkpoint_wrapped_module.",
                                           "_orig_mod.", "_forward_module.", "_fpw_module."};
    for (size_t i = 0; i < FSDP_LENGTH(wrappers); i++)
        cut_out(name, wrappers[i]);
}

void fsdp_name_drop_modules(char *name)
{
    cut_out(name, "module.");
}

/* ---- prefixes of all names ------------------------------------------------------------------- */

static const char counter[] = "n_averaged";

static bool all_begin(const char *const *names, size_t n, size_t skip, const char *prefix)
{
    size_t having = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], counter) == 0)
            continue;
        const size_t length = strlen(prefix);
        if (strncmp(names[i] + skip, prefix, length) != 0 || !names[i][skip + length])
            return false;
        having++;
    }
    return having > 0;
}

/* Return true if names [n] are those of a PEFT adapter. PEFT expects "base_model.model." in the
 * names of an adapter, so this prefix must not be removed from them. */
static bool has_adapter(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(names[i], ".lora_"))
            return true;
    return false;
}

size_t fsdp_names_wrapper_length(const char *const *names, size_t n)
{
    static const char *const wrappers[] = {"module.", "base_model.model."};
    const size_t n_wrappers = has_adapter(names, n) ? 1 : FSDP_LENGTH(wrappers);
    size_t length = 0;
    for (size_t i = 0; i < n_wrappers;) {
        if (all_begin(names, n, length, wrappers[i])) {
            length += strlen(wrappers[i]);
            i = 0;
        } else {
            i++;
        }
    }
    return length;
}

const char *fsdp_name_without(const char *name, size_t length)
{
    return strcmp(name, counter) == 0 ? name : name + length;
}

/* ---- all names ------------------------------------------------------------------------------- */

typedef struct renamed {
    const char *from, *to;
} renamed;

static int compare_renamed(const void *a, const void *b)
{
    return strcmp(((const renamed *)a)->to, ((const renamed *)b)->to);
}

static fsdp_status check_distinct(const char *label, renamed *pairs, size_t n)
{
    if (n)
        qsort(pairs, n, sizeof *pairs, compare_renamed);
    for (size_t i = 1; i < n; i++)
        if (strcmp(pairs[i - 1].to, pairs[i].to) == 0 &&
            strcmp(pairs[i - 1].from, pairs[i].from) != 0)
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: '%s' and '%s' are the same tensor, '%s', without what wrappers "
                              "of modules put into names; save the one that is meant alone",
                              label, pairs[i - 1].from, pairs[i].from, pairs[i].to);
    return FSDP_OK;
}

static fsdp_status unwrap_each(const fsdp_name_change *change, fsdp_arena *arena,
                               const char **names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *copy = fsdp_arena_alloc(arena, strlen(names[i]) + 1);
        if (!copy)
            return FSDP_ERR_NOMEM;
        memcpy(copy, names[i], strlen(names[i]) + 1);
        fsdp_name_unwrap(copy);
        if (change && change->every_module)
            fsdp_name_drop_modules(copy);
        if (change && change->base_layer)
            cut_out(copy, "base_layer.");
        names[i] = copy;
    }
    return FSDP_OK;
}

static void take_off(const fsdp_name_change *change, const char **names, size_t n)
{
    const size_t wrapper = fsdp_names_wrapper_length(names, n);
    const size_t length = change ? strlen(change->prefix) : 0;
    for (size_t i = 0; i < n; i++) {
        names[i] = fsdp_name_without(names[i], wrapper);
        if (length && strncmp(names[i], change->prefix, length) == 0)
            names[i] += length;
    }
}

fsdp_status fsdp_names_unwrap(const char *label, const fsdp_name_change *change, fsdp_arena *arena,
                              const char **names, size_t n)
{
    renamed *pairs = fsdp_calloc(n, sizeof *pairs);
    if (!pairs)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        pairs[i].from = names[i];
    fsdp_status status = unwrap_each(change, arena, names, n);
    if (status == FSDP_OK) {
        take_off(change, names, n);
        for (size_t i = 0; i < n; i++)
            pairs[i].to = names[i];
        status = check_distinct(label, pairs, n);
    }
    fsdp_free(pairs);
    return status;
}
