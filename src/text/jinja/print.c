/* Python's str(), repr() and bool() for template values (jinja_value). */
#include "src/text/jinja/print.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/repr.h"
#include "src/base/str.h"
#include "src/text/jinja/chars.h"
#include "src/text/jinja/machine.h"

bool fsdp_jinja_truth(jinja_value value)
{
    switch (value.kind) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return value.as.boolean;
    case JINJA_INT:
        return value.as.integer != 0;
    case JINJA_FLOAT:
        return value.as.real != 0.0;
    case JINJA_STRING:
        return value.as.string->bytes > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return value.as.list->n > 0;
    case JINJA_DICT:
        return value.as.dict->n > 0;
    case JINJA_RANGE:
        return value.as.range->n > 0;
    case JINJA_VIEW:
        return value.as.view->dict->n > 0;
    default:
        return true;
    }
}

static void put(fsdp_str *out, const char *text)
{
    fsdp_str_append(out, text, strlen(text));
}

/* Append the text in quotes, as Python's repr() does: in double quotes if the text contains single
 * quotes but no double quotes, otherwise in single quotes. */
static fsdp_status put_quoted(fsdp_str *out, const jinja_string *text)
{
    const bool single = memchr(text->data, '\'', text->bytes) != NULL;
    const char quote = single && !memchr(text->data, '"', text->bytes) ? '"' : '\'';
    fsdp_str_append(out, &quote, 1);
    for (size_t at = 0; at < text->bytes;) {
        const size_t begin = at;
        const uint32_t c = fsdp_jinja_next_char(text->data, text->bytes, &at);
        bool printable;
        FSDP_TRY(fsdp_jinja_char_is(c, JINJA_CHAR_PRINTABLE, &printable));
        if (c == (uint32_t)quote || c == '\\')
            fsdp_str_printf(out, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            put(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (printable)
            fsdp_str_append(out, text->data + begin, at - begin);
        else
            fsdp_str_printf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
    fsdp_str_append(out, &quote, 1);
    return FSDP_OK;
}

static fsdp_status put_repr(jinja_machine *machine, fsdp_str *out, jinja_value value);

static fsdp_status put_list(jinja_machine *machine, fsdp_str *out, const jinja_list *list,
                            const char *open, const char *close)
{
    put(out, open);
    for (size_t i = 0; i < list->n; i++) {
        put(out, i ? ", " : "");
        FSDP_TRY(put_repr(machine, out, list->items[i]));
    }
    put(out, close);
    return FSDP_OK;
}

static fsdp_status put_dict(jinja_machine *machine, fsdp_str *out, const jinja_dict *dict)
{
    put(out, "{");
    for (size_t i = 0; i < dict->n; i++) {
        put(out, i ? ", " : "");
        FSDP_TRY(put_repr(machine, out, dict->entries[i].key));
        put(out, ": ");
        FSDP_TRY(put_repr(machine, out, dict->entries[i].value));
    }
    put(out, "}");
    return FSDP_OK;
}

static fsdp_status put_view(jinja_machine *machine, fsdp_str *out, const jinja_view *view)
{
    static const char *const names[] = {"dict_items([", "dict_keys([", "dict_values(["};
    put(out, names[view->kind]);
    for (size_t i = 0; i < view->dict->n; i++) {
        const jinja_entry *entry = &view->dict->entries[i];
        put(out, i ? ", " : "");
        put(out, view->kind == JINJA_VIEW_ITEMS ? "(" : "");
        if (view->kind != JINJA_VIEW_VALUES)
            FSDP_TRY(put_repr(machine, out, entry->key));
        put(out, view->kind == JINJA_VIEW_ITEMS ? ", " : "");
        if (view->kind != JINJA_VIEW_KEYS)
            FSDP_TRY(put_repr(machine, out, entry->value));
        put(out, view->kind == JINJA_VIEW_ITEMS ? ")" : "");
    }
    put(out, "])");
    return FSDP_OK;
}

static void put_range(fsdp_str *out, const jinja_range *range)
{
    fsdp_str_printf(out, "range(%" PRId64 ", ", range->start);
    fsdp_str_printf(out, "%" PRId64, range->stop);
    if (range->step != 1)
        fsdp_str_printf(out, ", %" PRId64, range->step);
    put(out, ")");
}

/* Print a value that contains other values, such as a list. */
static fsdp_status put_container(jinja_machine *machine, fsdp_str *out, jinja_value value)
{
    fsdp_status status = FSDP_OK;
    FSDP_TRY(fsdp_jinja_descend(machine));
    if (value.kind == JINJA_LIST)
        status = put_list(machine, out, value.as.list, "[", "]");
    else if (value.kind == JINJA_TUPLE)
        status = put_list(machine, out, value.as.list, "(", value.as.list->n == 1 ? ",)" : ")");
    else if (value.kind == JINJA_VIEW)
        status = put_view(machine, out, value.as.view);
    else if (value.kind == JINJA_DICT)
        status = put_dict(machine, out, value.as.dict);
    else {
        put(out, "<Namespace ");
        status = put_dict(machine, out, value.as.dict);
        put(out, ">");
    }
    machine->depth--;
    return status;
}

static fsdp_status put_repr(jinja_machine *machine, fsdp_str *out, jinja_value value)
{
    char number[FSDP_REPR_BYTES];
    FSDP_TRY(fsdp_jinja_charge(machine, 1));
    if (out->len > JINJA_MAX_TEXT)
        return fsdp_error(FSDP_ERR_INVALID, "a text of more than %d MiB", JINJA_MAX_TEXT >> 20);
    switch (value.kind) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
        put(out, "Undefined");
        return FSDP_OK;
    case JINJA_NONE:
        put(out, "None");
        return FSDP_OK;
    case JINJA_BOOL:
        put(out, value.as.boolean ? "True" : "False");
        return FSDP_OK;
    case JINJA_INT:
        fsdp_str_printf(out, "%" PRId64, value.as.integer);
        return FSDP_OK;
    case JINJA_BIG_INT:
        fsdp_str_append(out, value.as.string->data, value.as.string->bytes);
        return FSDP_OK;
    case JINJA_FLOAT:
        fsdp_str_append(out, number, fsdp_f64_repr(value.as.real, number));
        return FSDP_OK;
    case JINJA_STRING:
        if (value.safe)
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "printing a list that contains the result of "
                                                    "the filter 'safe' is not supported");
        FSDP_TRY(fsdp_jinja_charge(machine, value.as.string->bytes / 4));
        return put_quoted(out, value.as.string);
    case JINJA_RANGE:
        put_range(out, value.as.range);
        return FSDP_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_VIEW:
    case JINJA_NAMESPACE:
        return put_container(machine, out, value);
    default:
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "printing a %s is not supported, because Python prints its address",
                          fsdp_jinja_type_name(value));
    }
}

fsdp_status fsdp_jinja_repr(jinja_machine *machine, jinja_value value, jinja_value *out)
{
    fsdp_str text = {0};
    fsdp_status status = put_repr(machine, &text, value);
    if (status == FSDP_OK && text.failed)
        status = fsdp_error_nomem();
    if (status == FSDP_OK)
        status = fsdp_jinja_string(machine, text.data, text.len, out);
    fsdp_str_fini(&text);
    return status;
}

fsdp_status fsdp_jinja_str(jinja_machine *machine, jinja_value value, jinja_value *out)
{
    if (jinja_is_absent(value))
        return fsdp_jinja_substring(machine, "", 0, out);
    if (value.kind == JINJA_STRING) {
        *out = value;
        out->safe = false;
        return FSDP_OK;
    }
    return fsdp_jinja_repr(machine, value, out);
}
