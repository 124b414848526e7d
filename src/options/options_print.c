/* Makes the text of --print-config, and the list of options that were given but have no effect. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/options/options_parse.h"

enum {
    COMMENT_COLUMN = 40
};

/* Append `text` as a double-quoted YAML scalar. */
static void append_quoted(fsdp_str *out, const char *text)
{
    fsdp_str_printf(out, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fsdp_str_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fsdp_str_printf(out, "\\x%02X", c);
        else
            fsdp_str_append(out, text, 1);
    }
    fsdp_str_printf(out, "\"");
}

static void append_value(fsdp_str *out, const fsdp_option *option, const void *target)
{
    const void *place = (const char *)target + option->offset;
    if (option->type == FSDP_OPTION_STRING) {
        const char *text = *(const char *const *)place;
        text ? append_quoted(out, text) : fsdp_str_printf(out, "null");
        return;
    }
    if (option->type == FSDP_OPTION_LIST) {
        fsdp_option_list list = *(const fsdp_option_list *)place;
        fsdp_str_printf(out, "[");
        for (size_t i = 0; i < list.count; i++) {
            fsdp_str_printf(out, i ? ", " : "");
            append_quoted(out, list.items[i]);
        }
        fsdp_str_printf(out, "]");
        return;
    }
    char *text = fsdp_option_text(option, target);
    out->failed |= !text;
    fsdp_str_printf(out, "%s", text ? text : "");
    fsdp_free(text);
}

/* Append a YAML line that sets the option to its current value, without the newline. The line is
 * "name: value". There is one exception: if option->false_is_silence is set and the value is false,
 * the line is "no-name: true". If `by_default` is true, append the line as a comment. In the
 * comment, the value of an option with `optional` is null. */
static void append_setting(fsdp_str *out, const fsdp_option *option, bool by_default,
                           const void *target)
{
    const char *place = (const char *)target + option->offset;
    if (option->false_is_silence && !by_default && !*(const bool *)place) {
        fsdp_str_printf(out, "no-%s: true", option->name);
        return;
    }
    fsdp_str_printf(out, "%s%s: ", by_default ? "# " : "", option->name);
    if (option->optional && by_default)
        fsdp_str_printf(out, "null");
    else
        append_value(out, option, target);
}

char *fsdp_options_print(const fsdp_options *options, const void *target)
{
    static const char *const kinds[] = {"default", "environment ", "", "flag "};
    const fsdp_options_spec *spec = options->spec;
    fsdp_str out = {0};
    bool any = false;
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_option *option = &spec->table[i];
        const struct option_source *source = &options->sources[i];
        if (option->offset == FSDP_OPTION_NOWHERE ||
            (option->no_effect && source->origin == FSDP_ORIGIN_DEFAULT))
            continue;
        const bool by_default = source->origin == FSDP_ORIGIN_DEFAULT;
        size_t begin = out.len;
        append_setting(&out, option, by_default, target);
        int pad = COMMENT_COLUMN - (int)(out.len - begin);
        fsdp_str_printf(&out, "%*s # %s%s\n", pad > 0 ? pad : 0, "", kinds[source->origin],
                        source->where ? source->where : "");
    }
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_option *option = &spec->table[i];
        const struct option_source *source = &options->sources[i];
        const char *without_effect = fsdp_options_without_effect(options, i);
        if (!without_effect || source->origin == FSDP_ORIGIN_DEFAULT)
            continue;
        if (!any)
            fsdp_str_printf(&out, "\n# accepted, without effect here:\n");
        any = true;
        fsdp_str_printf(&out, "#   %s", option->name);
        if (source->text) {
            fsdp_str_printf(&out, " ");
            append_quoted(&out, source->text);
        }
        fsdp_str_printf(&out, " (%s%s): %s\n", kinds[source->origin], source->where,
                        without_effect);
    }
    fsdp_str unread = {0};
    for (size_t i = 0; i < options->n_replaced; i++)
        fsdp_str_printf(&unread, "#   %s\n", options->replaced[i]);
    fsdp_options_unread_variables(spec, "#   ", &unread);
    if (unread.len && !any)
        fsdp_str_printf(&out, "\n# accepted, without effect here:\n");
    fsdp_str_printf(&out, "%s", unread.len ? unread.data : "");
    out.failed |= unread.failed;
    fsdp_str_fini(&unread);
    return fsdp_str_take(&out);
}

/* Return the reason why option `i` has no effect, if a flag or file gave the option. Return NULL if
 * the option has an effect, if no flag and no file gave it, or if a file gave its default. */
static const char *without_effect(const fsdp_options *options, size_t i)
{
    const struct option_source *source = &options->sources[i];
    const fsdp_option *option = &options->spec->table[i];
    const bool by_file = source->origin == FSDP_ORIGIN_FILE && source->says_nothing &&
                         (option->value || option->type == FSDP_OPTION_LIST);
    return source->origin > FSDP_ORIGIN_ENV && !by_file ? fsdp_options_without_effect(options, i)
                                                        : NULL;
}

static bool is_without_effect_for(const fsdp_options *options, size_t i, const char *reason)
{
    const char *own = without_effect(options, i);
    return own && strcmp(own, reason) == 0;
}

/* Return true if an option before option `i` has no effect for the same reason. The line for that
 * earlier option also lists option `i`. */
static bool is_noted(const fsdp_options *options, size_t i, const char *reason)
{
    for (size_t k = 0; k < i; k++)
        if (is_without_effect_for(options, k, reason))
            return true;
    return false;
}

char *fsdp_options_notes(const fsdp_options *options)
{
    const fsdp_option *table = options->spec->table;
    fsdp_str out = {0};
    fsdp_str_printf(&out, "%s", "");
    for (size_t i = 0; i < options->spec->count; i++) {
        const char *reason = without_effect(options, i);
        if (!reason || is_noted(options, i, reason))
            continue;
        for (size_t k = i; k < options->spec->count; k++)
            if (is_without_effect_for(options, k, reason))
                fsdp_str_printf(&out, "%s--%s", k == i ? "" : ", ", table[k].name);
        fsdp_str_printf(&out, ": %s\n", reason);
    }
    for (size_t i = 0; i < options->n_replaced; i++)
        fsdp_str_printf(&out, "%s\n", options->replaced[i]);
    fsdp_options_unread_variables(options->spec, "", &out);
    return fsdp_str_take(&out);
}
