/* Finds options by name or alias, and makes the error for an unknown name. A dash and an underscore
 * count as the same character. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

fsdp_status fsdp_options_env_name(const fsdp_options_spec *spec, const fsdp_option *option,
                                  size_t number, char **name)
{
    const char *at = option->env;
    *name = NULL;
    if (!at && number > 0)
        return FSDP_OK;
    for (; at && number > 0; number--) {
        at += strcspn(at, ",");
        if (!*at)
            return FSDP_OK;
        at++;
    }
    *name = at ? fsdp_strndup(at, strcspn(at, ","))
               : fsdp_strdup_printf("%s%s", spec->env_prefix ? spec->env_prefix : "FSDP_",
                                    option->name);
    for (char *c = *name; !at && c && *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return *name ? FSDP_OK : fsdp_error_nomem();
}

/* Return true if an option reads the variable `name` [length]. */
static bool is_read(const fsdp_options_spec *spec, const char *name, size_t length)
{
    bool found = false, ended;
    for (size_t i = 0; i < spec->count && !found; i++) {
        ended = false;
        for (size_t k = 0; !ended && !found; k++) {
            char *known;
            ended = fsdp_options_env_name(spec, &spec->table[i], k, &known) != FSDP_OK || !known;
            found = !ended && strlen(known) == length && strncmp(known, name, length) == 0;
            fsdp_free(known);
        }
    }
    return found;
}

void fsdp_options_unread_variables(const fsdp_options_spec *spec, const char *before, fsdp_str *out)
{
    for (char **entry = environ; spec->env_named && *entry; entry++) {
        const size_t length = strcspn(*entry, "=");
        bool named = false;
        for (const char *prefix = spec->env_named; *prefix && !named;) {
            const size_t n = strcspn(prefix, ",");
            named = strncmp(*entry, prefix, n) == 0;
            prefix += n + (prefix[n] == ',');
        }
        if (named && (*entry)[length] && (*entry)[length + 1] && !is_read(spec, *entry, length))
            fsdp_str_printf(out, "%s%.*s: no option here reads this variable\n", before,
                            (int)length, *entry);
    }
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
    const char *refused = spec->refused_name ? spec->refused_name(name) : NULL;
    if (refused)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s%.100s: not supported: %s", prefix, name,
                          refused);
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
