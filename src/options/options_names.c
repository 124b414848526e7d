/* Finds options by name or alias, and makes the error for an unknown name. A dash and an underscore
 * count as the same character. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/nearest.h"
#include "src/options/options_parse.h"

bool fsdp_option_same_name(const char *name, const char *known, size_t known_length)
{
    for (size_t i = 0; i < known_length; i++) {
        char c = name[i] == '_' ? '-' : name[i];
        if (c != (known[i] == '_' ? '-' : known[i]))
            return false;
    }
    return name[known_length] == 0;
}

static bool is_called(const fsdp_option *option, const char *name)
{
    if (fsdp_option_same_name(name, option->name, strlen(option->name)))
        return true;
    for (const char *alias = option->aliases; alias && *alias;) {
        size_t length = strcspn(alias, ",");
        if (fsdp_option_same_name(name, alias, length))
            return true;
        alias += length + (alias[length] == ',');
    }
    return false;
}

int fsdp_options_find(const fsdp_options_spec *spec, const char *name, bool *negated)
{
    *negated = false;
    for (size_t i = 0; i < spec->count; i++)
        if (is_called(&spec->table[i], name))
            return (int)i;
    if (strncmp(name, "no-", 3) != 0 && strncmp(name, "no_", 3) != 0)
        return -1;
    for (size_t i = 0; i < spec->count; i++) {
        if (fsdp_option_is_switch(&spec->table[i]) && is_called(&spec->table[i], name + 3)) {
            *negated = true;
            return (int)i;
        }
    }
    return -1;
}

/* Collect in `names` the names and aliases that an error may suggest. Each name is truncated to
 * OPTION_NAME_BYTES. Unsupported options (fsdp_option.instead) are left out. Return the number of
 * names. */
static size_t collect_names(const fsdp_options_spec *spec, char (*names)[OPTION_NAME_BYTES],
                            size_t room)
{
    static const char *const built_in[] = {"help", "config", "print-config"};
    size_t count = 0;
    for (size_t i = 0; i < FSDP_LENGTH(built_in) && count < room; i++)
        snprintf(names[count++], OPTION_NAME_BYTES, "%s", built_in[i]);
    for (size_t i = 0; i < spec->count && count < room; i++) {
        const fsdp_option *option = &spec->table[i];
        if (option->instead)
            continue;
        snprintf(names[count++], OPTION_NAME_BYTES, "%s", option->name);
        for (const char *alias = option->aliases; alias && *alias && count < room;) {
            size_t length = strcspn(alias, ",");
            snprintf(names[count++], OPTION_NAME_BYTES, "%.*s", (int)length, alias);
            alias += length + (alias[length] == ',');
        }
    }
    return count;
}

fsdp_status fsdp_options_unknown(const fsdp_options_spec *spec, const char *prefix,
                                 const char *name)
{
    size_t room = 3 + spec->count * 8;
    char(*names)[OPTION_NAME_BYTES] = fsdp_calloc(room, OPTION_NAME_BYTES);
    const char **list = fsdp_calloc(room, sizeof *list);
    int near = -1;
    size_t count = 0;
    bool no = strncmp(name, "no-", 3) == 0 || strncmp(name, "no_", 3) == 0;
    if (names && list) {
        count = collect_names(spec, names, room);
        for (size_t i = 0; i < count; i++)
            list[i] = names[i];
        near = fsdp_nearest_name(name, list, count);
        if (near < 0 && no)
            near = fsdp_nearest_name(name + 3, list, count);
        else
            no = false;
    }
    fsdp_status status =
        fsdp_error(FSDP_ERR_INVALID, "unknown option '%s%.100s'%s%s%s%s%s", prefix, name,
                   near < 0 ? "" : "; did you mean '", near < 0 ? "" : prefix,
                   near >= 0 && no ? "no-" : "", near < 0 ? "" : list[near], near < 0 ? "" : "'?");
    fsdp_free(list);
    fsdp_free(names);
    return status;
}
