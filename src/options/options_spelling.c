/* Adds to an error message how the user spelled the options that it names. Checks of values name an
 * option as the table does, but the user may know it by an alias, or have given it in a file or in
 * an environment variable. */
#include <ctype.h>
#include <string.h>

#include "src/base/error.h"
#include "src/options/options_parse.h"

/* Return true if `text` contains "--" followed by `name` as a whole word. */
static bool names_option(const char *text, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(text, "--"); at; at = strstr(at + 2, "--")) {
        const char *end = at + 2 + length;
        if ((at == text || at[-1] != '-') && strncmp(at + 2, name, length) == 0 &&
            !isalnum((unsigned char)*end) && *end != '-' && *end != '_')
            return true;
    }
    return false;
}

/* Return true if the option was given as --NAME or --no-NAME, with dashes or underscores. */
static bool is_spelled_as_named(const struct option_source *source, const char *name)
{
    const char *word = source->where + strspn(source->where, "-");
    if (source->origin != FSDP_ORIGIN_FLAG)
        return false;
    if (strncmp(word, "no-", 3) == 0 || strncmp(word, "no_", 3) == 0)
        word += 3;
    return fsdp_option_same_name(word, name, strlen(name));
}

/* Return true if the message already has the user's spelling. */
static bool has_spelling(const char *message, const struct option_source *source)
{
    return source->origin == FSDP_ORIGIN_FLAG
               ? names_option(message, source->where + strspn(source->where, "-"))
               : strstr(message, source->where) != NULL;
}

static void append_spelling(const struct option_source *source, const char *name, fsdp_str *out)
{
    fsdp_str_printf(out, "%s", out->len ? ", " : "");
    if (source->key)
        fsdp_str_printf(out, "%s in ", source->key);
    fsdp_str_printf(out, "%s gives --%s", source->where, name);
}

fsdp_status fsdp_options_add_spellings(const fsdp_options *options, fsdp_status status)
{
    fsdp_saved_error error;
    fsdp_str spellings = {0};
    if (status == FSDP_OK)
        return status;
    fsdp_error_save(status, &error);
    for (size_t i = 0; i < options->spec->count; i++) {
        const struct option_source *source = &options->sources[i];
        const char *name = options->spec->table[i].name;
        if (source->origin != FSDP_ORIGIN_DEFAULT && names_option(error.message, name) &&
            !is_spelled_as_named(source, name) && !has_spelling(error.message, source))
            append_spelling(source, name, &spellings);
    }
    if (spellings.len && !spellings.failed)
        fsdp_error(status, "%s (%s)", error.message, spellings.data);
    else
        fsdp_error_restore(&error);
    fsdp_str_fini(&spellings);
    return status;
}
