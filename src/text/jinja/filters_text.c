/* The filters of Jinja2 that work on texts: upper, trim, replace, indent, tojson and others. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/text/jinja/attribute.h"
#include "src/text/jinja/chars.h"
#include "src/text/jinja/filters.h"
#include "src/text/jinja/iterate.h"
#include "src/text/jinja/machine.h"
#include "src/text/jinja/print.h"
#include "src/text/jinja/strings.h"

static jinja_string empty = {.data = "", .bytes = 0, .chars = 0};
static jinja_string space = {.data = " ", .bytes = 1, .chars = 1};

/* Set *out to str(value). Most filters of texts accept a value of any type and convert it in this
 * way. */
static fsdp_status text_of(jinja_machine *machine, jinja_value value, jinja_string **out)
{
    FSDP_TRY(fsdp_jinja_str(machine, value, &value));
    *out = value.as.string;
    return FSDP_OK;
}

static fsdp_status change_case(jinja_machine *machine, jinja_value value, const jinja_args *args,
                               const char *name, jinja_case how, jinja_value *out)
{
    jinja_string *text;
    FSDP_TRY(fsdp_jinja_bind(name, "", 0, args, NULL));
    FSDP_TRY(text_of(machine, value, &text));
    return fsdp_jinja_change_case(machine, text, how, out);
}

fsdp_status fsdp_jinja_filter_upper(jinja_machine *machine, jinja_value value,
                                    const jinja_args *args, jinja_value *out)
{
    return change_case(machine, value, args, "upper", JINJA_CASE_UPPER, out);
}

fsdp_status fsdp_jinja_filter_lower(jinja_machine *machine, jinja_value value,
                                    const jinja_args *args, jinja_value *out)
{
    return change_case(machine, value, args, "lower", JINJA_CASE_LOWER, out);
}

fsdp_status fsdp_jinja_filter_capitalize(jinja_machine *machine, jinja_value value,
                                         const jinja_args *args, jinja_value *out)
{
    return change_case(machine, value, args, "capitalize", JINJA_CASE_CAPITALIZE, out);
}

static bool begins_word(uint32_t c)
{
    return fsdp_jinja_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

/* Apply the filter `title`. For this filter, a word begins only after white space and a few other
 * characters, unlike for Python's str.title(). */
fsdp_status fsdp_jinja_filter_title(jinja_machine *machine, jinja_value value,
                                    const jinja_args *args, jinja_value *out)
{
    jinja_string *text;
    FSDP_TRY(fsdp_jinja_bind("title", "", 0, args, NULL));
    FSDP_TRY(text_of(machine, value, &text));
    jinja_value all;
    FSDP_TRY(fsdp_jinja_substring(machine, "", 0, &all));
    for (size_t at = 0; at < text->bytes;) {
        size_t end = at, first = at;
        const bool sign = begins_word(fsdp_jinja_next_char(text->data, text->bytes, &first));
        for (size_t next = at; next < text->bytes; end = next)
            if (begins_word(fsdp_jinja_next_char(text->data, text->bytes, &next)) != sign)
                break;
        const jinja_string head = {.data = text->data + at, .bytes = first - at},
                           rest = {.data = text->data + first, .bytes = end - first};
        jinja_value upper, lower;
        FSDP_TRY(fsdp_jinja_change_case(machine, &head, JINJA_CASE_UPPER, &upper));
        FSDP_TRY(fsdp_jinja_change_case(machine, &rest, JINJA_CASE_LOWER, &lower));
        FSDP_TRY(fsdp_jinja_concat(machine, all.as.string, upper.as.string, &all));
        FSDP_TRY(fsdp_jinja_concat(machine, all.as.string, lower.as.string, &all));
        at = end;
    }
    *out = all;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_trim(jinja_machine *machine, jinja_value value,
                                   const jinja_args *args, jinja_value *out)
{
    jinja_value chars;
    jinja_string *text, *set;
    FSDP_TRY(fsdp_jinja_bind("trim", "chars", 0, args, &chars));
    FSDP_TRY(fsdp_jinja_arg_text("trim", chars, NULL, &set));
    FSDP_TRY(text_of(machine, value, &text));
    return fsdp_jinja_strip(machine, text, set, JINJA_LEFT | JINJA_RIGHT, out);
}

fsdp_status fsdp_jinja_filter_string(jinja_machine *machine, jinja_value value,
                                     const jinja_args *args, jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_bind("string", "", 0, args, NULL));
    FSDP_TRY(fsdp_jinja_str(machine, value, out));
    out->safe = value.kind == JINJA_STRING && value.safe;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_safe(jinja_machine *machine, jinja_value value,
                                   const jinja_args *args, jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_bind("safe", "", 0, args, NULL));
    FSDP_TRY(fsdp_jinja_str(machine, value, out));
    out->safe = true;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_escape(jinja_machine *machine, jinja_value value,
                                     const jinja_args *args, jinja_value *out)
{
    static const char signs[] = "&<>'\"";
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    jinja_string *text;
    fsdp_str escaped = {0};
    FSDP_TRY(fsdp_jinja_bind("escape", "", 0, args, NULL));
    if (value.kind == JINJA_STRING && value.safe) {
        *out = value;
        return FSDP_OK;
    }
    FSDP_TRY(text_of(machine, value, &text));
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes));
    for (size_t i = 0; i < text->bytes; i++) {
        const char *sign = text->data[i] ? strchr(signs, text->data[i]) : NULL;
        if (sign)
            fsdp_str_printf(&escaped, "%s", entities[sign - signs]);
        else
            fsdp_str_append(&escaped, text->data + i, 1);
    }
    fsdp_status status = escaped.failed
                             ? fsdp_error_nomem()
                             : fsdp_jinja_string(machine, escaped.data, escaped.len, out);
    out->safe = true;
    fsdp_str_fini(&escaped);
    return status;
}

fsdp_status fsdp_jinja_filter_replace(jinja_machine *machine, jinja_value value,
                                      const jinja_args *args, jinja_value *out)
{
    jinja_value values[3];
    jinja_string *text, *old, *new_text;
    int64_t count;
    FSDP_TRY(fsdp_jinja_bind("replace", "old,new,count", 2, args, values));
    FSDP_TRY(text_of(machine, value, &text));
    FSDP_TRY(text_of(machine, values[0], &old));
    FSDP_TRY(text_of(machine, values[1], &new_text));
    if (values[2].kind == JINJA_NONE)
        values[2].kind = JINJA_MISSING;
    FSDP_TRY(fsdp_jinja_arg_int("replace", values[2], -1, &count));
    return fsdp_jinja_replace(machine, text, old, new_text, count, out);
}

fsdp_status fsdp_jinja_filter_center(jinja_machine *machine, jinja_value value,
                                     const jinja_args *args, jinja_value *out)
{
    jinja_value width;
    jinja_string *text;
    int64_t chars;
    FSDP_TRY(fsdp_jinja_bind("center", "width", 0, args, &width));
    FSDP_TRY(fsdp_jinja_arg_int("center", width, 80, &chars));
    FSDP_TRY(text_of(machine, value, &text));
    return fsdp_jinja_center(machine, text, chars, &space, out);
}

fsdp_status fsdp_jinja_filter_join(jinja_machine *machine, jinja_value value,
                                   const jinja_args *args, jinja_value *out)
{
    jinja_value values[2], list;
    jinja_string *separator = &empty;
    FSDP_TRY(fsdp_jinja_bind("join", "d,attribute", 0, args, values));
    if (values[0].kind != JINJA_MISSING)
        FSDP_TRY(text_of(machine, values[0], &separator));
    if (values[1].kind == JINJA_MISSING || values[1].kind == JINJA_NONE)
        return fsdp_jinja_join(machine, value, separator, false, out);
    FSDP_TRY(fsdp_jinja_to_list(machine, value, &list));
    for (size_t i = 0; i < list.as.list->n; i++)
        FSDP_TRY(fsdp_jinja_get_path(machine, list.as.list->items[i], values[1],
                                     &list.as.list->items[i]));
    return fsdp_jinja_join(machine, list, separator, false, out);
}

/* ---- lines and lengths ----------------------------------------------------------------------- */

static fsdp_status need_text(const char *name, jinja_value value, jinja_string **out)
{
    if (value.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(value);
    if (value.kind != JINJA_STRING)
        return fsdp_error(FSDP_ERR_INVALID, "%s: expected a text, found %s", name,
                          fsdp_jinja_type_name(value));
    *out = value.as.string;
    return FSDP_OK;
}

/* Set *out to the text that the filter `indent` puts before a line. The argument `width` is this
 * text itself, or a number of spaces. */
static fsdp_status indentation_of(jinja_machine *machine, jinja_value width, jinja_string **out)
{
    int64_t spaces;
    jinja_value text;
    if (width.kind == JINJA_STRING) {
        *out = width.as.string;
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_jinja_arg_int("indent", width, 4, &spaces));
    FSDP_TRY(fsdp_jinja_pad(machine, &empty, spaces > 0 ? (size_t)spaces : 0, 0, &space, &text));
    *out = text.as.string;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_indent(jinja_machine *machine, jinja_value value,
                                     const jinja_args *args, jinja_value *out)
{
    static const jinja_string newline = {.data = "\n", .bytes = 1, .chars = 1};
    jinja_value values[3], text, lines, all;
    jinja_string *self = NULL, *indentation;
    FSDP_TRY(fsdp_jinja_bind("indent", "width,first,blank", 0, args, values));
    FSDP_TRY(need_text("indent", value, &self));
    FSDP_TRY(indentation_of(machine, values[0], &indentation));
    const bool first = fsdp_jinja_truth(values[1]), blank = fsdp_jinja_truth(values[2]);
    FSDP_TRY(fsdp_jinja_concat(machine, self, &newline, &text));
    FSDP_TRY(fsdp_jinja_split_lines(machine, text.as.string, false, &lines));
    FSDP_TRY(fsdp_jinja_substring(machine, "", 0, &all));
    for (size_t i = 0; i < lines.as.list->n; i++) {
        const jinja_string *line = lines.as.list->items[i].as.string;
        if (i)
            FSDP_TRY(fsdp_jinja_concat(machine, all.as.string, &newline, &all));
        if (i ? blank || line->bytes : first)
            FSDP_TRY(fsdp_jinja_concat(machine, all.as.string, indentation, &all));
        FSDP_TRY(fsdp_jinja_concat(machine, all.as.string, line, &all));
    }
    *out = all;
    return FSDP_OK;
}

/* Return the offset of the last space before offset `end`. A text that is cut there ends with a
 * whole word. If there is no space, return `end`. */
static size_t end_of_words(const jinja_string *text, size_t end)
{
    for (size_t at = end; at-- > 0;)
        if (text->data[at] == ' ')
            return at;
    return end;
}

fsdp_status fsdp_jinja_filter_truncate(jinja_machine *machine, jinja_value value,
                                       const jinja_args *args, jinja_value *out)
{
    static jinja_string dots = {.data = "...", .bytes = 3, .chars = 3};
    jinja_value values[4];
    jinja_string *text = NULL, *end;
    int64_t length, leeway;
    size_t chars;
    FSDP_TRY(fsdp_jinja_bind("truncate", "length,killwords,end,leeway", 0, args, values));
    FSDP_TRY(fsdp_jinja_arg_int("truncate", values[0], 255, &length));
    FSDP_TRY(fsdp_jinja_arg_text("truncate", values[2], &dots, &end));
    if (values[3].kind == JINJA_NONE)
        values[3].kind = JINJA_MISSING;
    FSDP_TRY(fsdp_jinja_arg_int("truncate", values[3], 5, &leeway));
    const int64_t end_chars = (int64_t)fsdp_jinja_chars(end);
    if (length < end_chars || leeway < 0)
        return fsdp_error(FSDP_ERR_INVALID, "truncate: the length is shorter than the end, or the "
                                            "leeway is negative");
    *out = value;
    FSDP_TRY(fsdp_jinja_length(value, &chars)); /* like Jinja2, accept a short list as well */
    if ((int64_t)chars <= length || (int64_t)chars - length <= leeway)
        return FSDP_OK;
    FSDP_TRY(need_text("truncate", value, &text));
    size_t cut = fsdp_jinja_offset(text, (size_t)(length - end_chars));
    if (!fsdp_jinja_truth(values[1]))
        cut = end_of_words(text, cut);
    const jinja_string head = {.data = text->data, .bytes = cut, .chars = SIZE_MAX};
    return fsdp_jinja_concat(machine, &head, end, out);
}

fsdp_status fsdp_jinja_filter_wordcount(jinja_machine *machine, jinja_value value,
                                        const jinja_args *args, jinja_value *out)
{
    jinja_string *text;
    int64_t n = 0;
    bool in_word = false;
    FSDP_TRY(fsdp_jinja_bind("wordcount", "", 0, args, NULL));
    FSDP_TRY(text_of(machine, value, &text));
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 4));
    for (size_t at = 0; at < text->bytes;) {
        bool alpha, number;
        const uint32_t c = fsdp_jinja_next_char(text->data, text->bytes, &at);
        FSDP_TRY(fsdp_jinja_char_is(c, JINJA_CHAR_ALPHA, &alpha));
        FSDP_TRY(fsdp_jinja_char_is(c, JINJA_CHAR_NUMBER, &number));
        const bool is_word = alpha || number || c == '_';
        n += is_word && !in_word;
        in_word = is_word;
    }
    *out = jinja_int(n);
    return FSDP_OK;
}

/* ---- encodings ------------------------------------------------------------------------------- */

fsdp_status fsdp_jinja_filter_urlencode(jinja_machine *machine, jinja_value value,
                                        const jinja_args *args, jinja_value *out)
{
    jinja_string *text;
    fsdp_str encoded = {0};
    FSDP_TRY(fsdp_jinja_bind("urlencode", "", 0, args, NULL));
    if (value.kind != JINJA_STRING && fsdp_jinja_is_iterable(value))
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "urlencode of a %s is not supported; a text is",
                          fsdp_jinja_type_name(value));
    FSDP_TRY(text_of(machine, value, &text));
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes));
    for (size_t i = 0; i < text->bytes; i++) {
        const unsigned char c = (unsigned char)text->data[i];
        const bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                           (c && strchr("_.-~/", c));
        fsdp_str_printf(&encoded, plain ? "%c" : "%%%02X", c);
    }
    fsdp_status status = encoded.failed
                             ? fsdp_error_nomem()
                             : fsdp_jinja_string(machine, encoded.data, encoded.len, out);
    fsdp_str_fini(&encoded);
    return status;
}

/* Read the arguments `indent` and `separators` of tojson. */
static fsdp_status json_layout(jinja_machine *machine, jinja_value indent, jinja_value separators,
                               jinja_json_style *style)
{
    int64_t spaces;
    jinja_value text;
    if (indent.kind == JINJA_STRING) {
        style->indent = indent.as.string;
    } else if (indent.kind != JINJA_MISSING && indent.kind != JINJA_NONE) {
        FSDP_TRY(fsdp_jinja_arg_int("tojson", indent, 0, &spaces));
        FSDP_TRY(
            fsdp_jinja_pad(machine, &empty, spaces > 0 ? (size_t)spaces : 0, 0, &space, &text));
        style->indent = text.as.string;
    }
    if (separators.kind == JINJA_MISSING || separators.kind == JINJA_NONE)
        return FSDP_OK;
    if ((separators.kind != JINJA_TUPLE && separators.kind != JINJA_LIST) ||
        separators.as.list->n != 2 || separators.as.list->items[0].kind != JINJA_STRING ||
        separators.as.list->items[1].kind != JINJA_STRING)
        return fsdp_error(FSDP_ERR_INVALID, "tojson: separators must be two texts");
    style->between_items = separators.as.list->items[0].as.string;
    style->after_key = separators.as.list->items[1].as.string;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_tojson(jinja_machine *machine, jinja_value value,
                                     const jinja_args *args, jinja_value *out)
{
    jinja_value values[4];
    jinja_json_style style = {0};
    FSDP_TRY(
        fsdp_jinja_bind("tojson", "ensure_ascii,indent,separators,sort_keys", 0, args, values));
    FSDP_TRY(json_layout(machine, values[1], values[2], &style));
    style.ascii = fsdp_jinja_truth(values[0]);
    style.sort_keys = fsdp_jinja_truth(values[3]);
    return fsdp_jinja_to_json(machine, value, &style, out);
}
