/* The filter tojson, with the result of Python's json.dumps(), as transformers defines this
 * filter. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/repr.h"
#include "src/base/str.h"
#include "src/text/jinja/chars.h"
#include "src/text/jinja/machine.h"
#include "src/text/jinja/print.h"

typedef struct writer {
    jinja_machine *machine;
    const jinja_json_style *style;
    fsdp_str text;
    size_t depth; /* number of lists and dicts that contain the value being written */
} writer;

static void put(writer *w, const char *text)
{
    fsdp_str_append(&w->text, text, strlen(text));
}

static void put_string(writer *w, const jinja_string *string)
{
    fsdp_str_append(&w->text, string->data, string->bytes);
}

static void put_escaped(writer *w, uint32_t c)
{
    if (c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f')
        put(w, c == '\n'   ? "\\n"
               : c == '\r' ? "\\r"
               : c == '\t' ? "\\t"
               : c == '\b' ? "\\b"
                           : "\\f");
    else if (c == '"' || c == '\\')
        fsdp_str_printf(&w->text, "\\%c", (char)c);
    else if (c >= 0x10000)
        fsdp_str_printf(&w->text, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                        0xDC00 + ((c - 0x10000) & 0x3FF));
    else
        fsdp_str_printf(&w->text, "\\u%04x", c);
}

static void put_text(writer *w, const jinja_string *string)
{
    put(w, "\"");
    for (size_t at = 0; at < string->bytes;) {
        const size_t begin = at;
        const uint32_t c = fsdp_jinja_next_char(string->data, string->bytes, &at);
        if (c < 0x20 || c == '"' || c == '\\' || (w->style->ascii && c > 0x7E))
            put_escaped(w, c);
        else
            fsdp_str_append(&w->text, string->data + begin, at - begin);
    }
    put(w, "\"");
}

static void put_number(writer *w, jinja_value value)
{
    char number[FSDP_REPR_BYTES];
    if (value.kind == JINJA_BIG_INT)
        put_string(w, value.as.string);
    else if (value.kind == JINJA_INT)
        fsdp_str_printf(&w->text, "%" PRId64, value.as.integer);
    else if (isnan(value.as.real))
        put(w, "NaN");
    else if (isinf(value.as.real))
        put(w, value.as.real < 0 ? "-Infinity" : "Infinity");
    else
        fsdp_str_append(&w->text, number, fsdp_f64_repr(value.as.real, number));
}

static void begin_line(writer *w)
{
    if (!w->style->indent)
        return;
    put(w, "\n");
    for (size_t i = 0; i < w->depth && w->text.len <= JINJA_MAX_TEXT; i++)
        put_string(w, w->style->indent);
}

static void put_comma(writer *w)
{
    if (w->style->between_items)
        put_string(w, w->style->between_items);
    else
        put(w, w->style->indent ? "," : ", ");
}

static fsdp_status put_value(writer *w, jinja_value value);

static fsdp_status put_list(writer *w, const jinja_list *list)
{
    put(w, "[");
    w->depth++;
    for (size_t i = 0; i < list->n; i++) {
        if (i)
            put_comma(w);
        begin_line(w);
        FSDP_TRY(put_value(w, list->items[i]));
    }
    w->depth--;
    if (list->n)
        begin_line(w);
    put(w, "]");
    return FSDP_OK;
}

static fsdp_status put_key(writer *w, jinja_value key)
{
    if (key.kind == JINJA_STRING) {
        put_text(w, key.as.string);
        return FSDP_OK;
    }
    if (key.kind != JINJA_INT && key.kind != JINJA_BIG_INT && key.kind != JINJA_FLOAT &&
        key.kind != JINJA_BOOL && key.kind != JINJA_NONE)
        return fsdp_error(FSDP_ERR_INVALID,
                          "tojson: keys must be str, int, float, bool or None, not %s",
                          fsdp_jinja_type_name(key));
    put(w, "\"");
    FSDP_TRY(put_value(w, key));
    put(w, "\"");
    return FSDP_OK;
}

static fsdp_status put_entries(writer *w, const jinja_entry *entries, size_t n)
{
    put(w, "{");
    w->depth++;
    for (size_t i = 0; i < n; i++) {
        if (i)
            put_comma(w);
        begin_line(w);
        FSDP_TRY(put_key(w, entries[i].key));
        if (w->style->after_key)
            put_string(w, w->style->after_key);
        else
            put(w, ": ");
        FSDP_TRY(put_value(w, entries[i].value));
    }
    w->depth--;
    if (n)
        begin_line(w);
    put(w, "}");
    return FSDP_OK;
}

static int compare_keys(const void *a, const void *b)
{
    const jinja_string *x = ((const jinja_entry *)a)->key.as.string;
    const jinja_string *y = ((const jinja_entry *)b)->key.as.string;
    const size_t common = x->bytes < y->bytes ? x->bytes : y->bytes;
    const int order = memcmp(x->data, y->data, common);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static fsdp_status put_dict(writer *w, const jinja_dict *dict)
{
    if (!w->style->sort_keys || dict->n < 2)
        return put_entries(w, dict->entries, dict->n);
    for (size_t i = 0; i < dict->n; i++)
        if (dict->entries[i].key.kind != JINJA_STRING)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "tojson(sort_keys=true) sorts keys that are texts, not %s",
                              fsdp_jinja_type_name(dict->entries[i].key));
    jinja_entry *sorted;
    FSDP_TRY(fsdp_jinja_alloc(w->machine, dict->n * sizeof *sorted, &sorted));
    memcpy(sorted, dict->entries, dict->n * sizeof *sorted);
    qsort(sorted, dict->n, sizeof *sorted, compare_keys);
    return put_entries(w, sorted, dict->n);
}

static fsdp_status put_value(writer *w, jinja_value value)
{
    FSDP_TRY(fsdp_jinja_charge(w->machine, 1));
    if (w->text.len > JINJA_MAX_TEXT)
        return fsdp_error(FSDP_ERR_INVALID, "a text of more than %d MiB", JINJA_MAX_TEXT >> 20);
    fsdp_status status = FSDP_OK;
    switch (value.kind) {
    case JINJA_NONE:
        put(w, "null");
        return FSDP_OK;
    case JINJA_BOOL:
        put(w, value.as.boolean ? "true" : "false");
        return FSDP_OK;
    case JINJA_INT:
    case JINJA_BIG_INT:
    case JINJA_FLOAT:
        put_number(w, value);
        return FSDP_OK;
    case JINJA_STRING:
        FSDP_TRY(fsdp_jinja_charge(w->machine, value.as.string->bytes / 4));
        put_text(w, value.as.string);
        return FSDP_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        FSDP_TRY(fsdp_jinja_descend(w->machine));
        status = value.kind == JINJA_DICT ? put_dict(w, value.as.dict) : put_list(w, value.as.list);
        w->machine->depth--;
        return status;
    case JINJA_UNDEFINED:
        status = fsdp_jinja_undefined_error(value);
        fsdp_error_context(status, "tojson");
        return status;
    default:
        break;
    }
    return fsdp_error(FSDP_ERR_INVALID, "tojson: an object of type %s is not JSON serializable",
                      fsdp_jinja_type_name(value));
}

fsdp_status fsdp_jinja_to_json(jinja_machine *machine, jinja_value value,
                               const jinja_json_style *style, jinja_value *out)
{
    writer w = {.machine = machine, .style = style};
    fsdp_status status = put_value(&w, value);
    if (status == FSDP_OK && w.text.failed)
        status = fsdp_error_nomem();
    if (status == FSDP_OK)
        status = fsdp_jinja_string(machine, w.text.data, w.text.len, out);
    fsdp_str_fini(&w.text);
    return status;
}
