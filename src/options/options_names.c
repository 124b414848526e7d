/* Finds options by name or alias, and makes the error for an unknown name. A dash and an underscore
 * count as the same character. */
#include <ctype.h>
#include <limits.h>
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

/* Find the environment variable that an option reads and whose name is nearest to `name`. Set
 * *nearest to its name, which the caller owns. Set *distance to 0 if an option reads `name` itself,
 * and otherwise to the edit distance (fsdp_edit_distance()) plus 1. Set *nearest to NULL if memory
 * is short or no option reads a variable. */
static void find_nearest_variable(const fsdp_options_spec *spec, const char *name, int *distance,
                                  char **nearest)
{
    *nearest = NULL;
    *distance = INT_MAX;
    for (size_t i = 0; i < spec->count; i++) {
        char *known = NULL;
        for (size_t k = 0;
             fsdp_options_env_name(spec, &spec->table[i], k, &known) == FSDP_OK && known; k++) {
            const int d = strcmp(known, name) == 0 ? 0 : fsdp_edit_distance(known, name) + 1;
            if (d < *distance) {
                *distance = d;
                fsdp_free(*nearest);
                *nearest = known;
            } else {
                fsdp_free(known);
            }
        }
    }
}

/* Return true if `entry` begins with one of the prefixes, which are separated by commas. */
static bool has_prefix(const char *entry, const char *prefixes)
{
    while (*prefixes) {
        const size_t n = strcspn(prefixes, ",");
        if (strncmp(entry, prefixes, n) == 0)
            return true;
        prefixes += n + (prefixes[n] == ',');
    }
    return false;
}

/* If the name of `variable` consists of spec->env_prefix and a name or an alias of an option,
 * append a line that says which variable the option reads instead, and return true. */
static bool append_other_spelling(const fsdp_options_spec *spec, const char *before,
                                  const char *variable, fsdp_str *out)
{
    const char *prefix = spec->env_prefix ? spec->env_prefix : "FSDP_";
    char name[OPTION_NAME_BYTES], *known = NULL;
    bool negated;
    size_t n = 0;
    if (strncmp(variable, prefix, strlen(prefix)) != 0)
        return false;
    for (const char *c = variable + strlen(prefix); *c && n + 1 < sizeof name; c++)
        name[n++] = (char)tolower((unsigned char)*c);
    name[n] = 0;
    const int index = fsdp_options_find(spec, name, &negated);
    if (index < 0 || spec->table[index].offset == FSDP_OPTION_NOWHERE ||
        fsdp_options_env_name(spec, &spec->table[index], 0, &known) != FSDP_OK || !known)
        return false;
    fsdp_str_printf(out, "%s%s: no option here reads this variable; --%s reads %s\n", before,
                    variable, spec->table[index].name, known);
    fsdp_free(known);
    return true;
}

/* Append a line about the environment variable `name` if no option reads it, but the user probably
 * meant an option. This is so if append_other_spelling() finds an option, if `name` begins with a
 * prefix in spec->env_named, or if `name` is long and differs little from a variable that an option
 * reads. Short names are not compared in this way, because different variables may have similar
 * short names, such as FSDP_LR and FSDP_LOG. */
static void append_unread(const fsdp_options_spec *spec, const char *before, const char *name,
                          fsdp_str *out)
{
    enum {
        LONG_NAME = 14,
        /* Maximum distance of a near name: two edits, which cost 2 each, and the 1 that
         * find_nearest_variable() adds. */
        NEAR = 5
    };
    const bool named = has_prefix(name, spec->env_named);
    int distance;
    char *nearest;
    find_nearest_variable(spec, name, &distance, &nearest);
    if (distance > 0 && append_other_spelling(spec, before, name, out)) {
        fsdp_free(nearest);
        return;
    }
    const bool is_near = nearest && distance <= NEAR && strlen(name) >= LONG_NAME;
    if (distance > 0 && (named || is_near))
        fsdp_str_printf(out, "%s%s: no option here reads this variable%s%s%s\n", before, name,
                        is_near ? "; did you mean " : "", is_near ? nearest : "",
                        is_near ? "?" : "");
    fsdp_free(nearest);
}

void fsdp_options_unread_variables(const fsdp_options_spec *spec, const char *before, fsdp_str *out)
{
    for (char **entry = environ; spec->env_named && *entry; entry++) {
        const size_t length = strcspn(*entry, "=");
        char name[OPTION_NAME_BYTES];
        if (length >= sizeof name || !(*entry)[length] || !(*entry)[length + 1])
            continue; /* an empty variable counts as unset */
        snprintf(name, sizeof name, "%.*s", (int)length, *entry);
        if (has_prefix(name, spec->env_named) ||
            has_prefix(name, spec->env_prefix ? spec->env_prefix : "FSDP_"))
            append_unread(spec, before, name, out);
    }
}

fsdp_status fsdp_options_unknown(const fsdp_options_spec *spec, const char *prefix,
                                 const char *name)
{
    const char *refused = spec->refused_name ? spec->refused_name(name) : NULL;
    char near[OPTION_NAME_BYTES];
    if (refused)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s%.100s: not supported: %s", prefix, name,
                          refused);
    int index = fsdp_options_nearest(spec, name, near);
    bool no = strncmp(name, "no-", 3) == 0 || strncmp(name, "no_", 3) == 0;
    if (index < 0 && no)
        index = fsdp_options_nearest(spec, name + 3, near);
    else
        no = false;
    if (index < 0)
        return fsdp_error(FSDP_ERR_INVALID, "unknown option '%s%.100s'", prefix, name);
    const char *instead = index < (int)spec->count ? spec->table[index].instead : NULL;
    return fsdp_error(FSDP_ERR_INVALID, "unknown option '%s%.100s'; did you mean '%s%s%s'?%s%s",
                      prefix, name, prefix, no ? "no-" : "", near,
                      instead ? " It is not supported: " : "", instead ? instead : "");
}
