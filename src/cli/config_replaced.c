/* Decides whether `fsdp config` may replace an existing file. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "src/accelerate/questions.h"
#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/cli/config.h"

fsdp_status fsdp_config_read_replaced(const char *path, fsdp_yaml *old)
{
    struct stat st;
    *old = (fsdp_yaml){.kind = FSDP_YAML_MAP};
    if (!fsdp_path_exists(path))
        return FSDP_OK;
    if (stat(path, &st) != 0 && errno == ENOENT)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: a symbolic link to a file that does not exist, which would be "
                          "replaced; name the file itself, or remove the link",
                          path);
    if (fsdp_yaml_read(path, old) == FSDP_OK &&
        (fsdp_yaml_find(old, "distributed_type") || fsdp_yaml_find(old, "fsdp_config")))
        return FSDP_OK;
    fsdp_yaml_fini(old);
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: the existing file is no configuration of Accelerate and would be "
                      "overwritten; name another file",
                      path);
}

/* Return true if both values are the same scalar, lists with the same items in the same order, or
 * maps with the same entries in any order. */
static bool is_same(const fsdp_yaml *a, const fsdp_yaml *b)
{
    if (a->kind != b->kind || a->n != b->n)
        return false;
    if (a->kind == FSDP_YAML_SCALAR)
        return strcmp(a->text, b->text) == 0;
    for (size_t i = 0; i < a->n; i++) {
        const fsdp_yaml *other =
            a->items[i].key ? fsdp_yaml_find(b, a->items[i].key) : &b->items[i];
        if (!other || !is_same(&a->items[i], other))
            return false;
    }
    return true;
}

/* Return true if the value says nothing: it is null, or an empty list, map or text. */
static bool is_empty(const fsdp_yaml *value)
{
    if (value->kind != FSDP_YAML_SCALAR)
        return value->n == 0;
    return !*value->text ||
           (!value->quoted && (strcmp(value->text, "null") == 0 || strcmp(value->text, "~") == 0));
}

/* Return FSDP_ERR_INVALID if the value `old` would be lost. It would be lost if the map `new_map`
 * has no value or another value for its key, unless the user has given a value for this key. If
 * `old` is a map, check each of its entries instead. `new_map` is NULL if the new file has no such
 * map. */
static fsdp_status check_entry(const fsdp_yaml *old, const fsdp_yaml *new_map, const char *path,
                               const char *const *given, size_t n)
{
    const fsdp_yaml *value = new_map ? fsdp_yaml_find(new_map, old->key) : NULL;
    if (old->kind == FSDP_YAML_MAP) {
        for (size_t i = 0; i < old->n; i++)
            FSDP_TRY(check_entry(&old->items[i], value, path, given, n));
        return FSDP_OK;
    }
    if (is_empty(old) || (value && is_same(old, value)) ||
        fsdp_accelerate_is_given(given, n, old->key))
        return FSDP_OK;
    const char *text = old->kind == FSDP_YAML_SCALAR ? old->text : "a list";
    const bool becomes = value && value->kind == FSDP_YAML_SCALAR;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s:%d: %s: %.100s would be lost%s%.100s; give %s=VALUE, too, or "
                      "--overwrite, which replaces the file",
                      path, old->line, old->key, text, becomes ? ", and become " : "",
                      becomes ? value->text : "", old->key);
}

fsdp_status fsdp_config_check_replaced(const fsdp_yaml *old, const fsdp_yaml *config,
                                       const char *path, const char *const *given, size_t n)
{
    for (size_t i = 0; i < old->n; i++)
        FSDP_TRY(check_entry(&old->items[i], config, path, given, n));
    return FSDP_OK;
}
