/* Creates strings, lists and undefined values. */
#include "src/text/jinja/value.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/text/chars/utf8.h"
#include "src/text/jinja/machine.h"

enum {
    /* only the result of a concatenation with at least this many bytes gets spare memory for
     * appending */
    SHARED_MIN = 128,
    MAX_SHOWN_BYTES = 200 /* bytes of a name in an error message */
};

/* The memory of a string that was made by concatenation. If the string ends at `used`, more text
 * can be appended in place, without copying the string. */
typedef struct jinja_buffer {
    char *data;
    size_t used, cap;
} jinja_buffer;

const char *fsdp_jinja_type_name(jinja_value value)
{
    static const char *const names[] = {
        [JINJA_MISSING] = "missing",
        [JINJA_UNDEFINED] = "Undefined",
        [JINJA_NONE] = "NoneType",
        [JINJA_BOOL] = "bool",
        [JINJA_INT] = "int",
        [JINJA_BIG_INT] = "int",
        [JINJA_FLOAT] = "float",
        [JINJA_STRING] = "str",
        [JINJA_LIST] = "list",
        [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",
        [JINJA_RANGE] = "range",
        [JINJA_VIEW] = "view of a dict",
        [JINJA_ITERATOR] = "generator",
        [JINJA_NAMESPACE] = "Namespace",
        [JINJA_LOOP] = "LoopContext",
        [JINJA_MACRO] = "Macro",
        [JINJA_METHOD] = "method",
        [JINJA_FUNCTION] = "function",
    };
    return value.kind < FSDP_LENGTH(names) ? names[value.kind] : "object";
}

/* ---- strings --------------------------------------------------------------------------------- */

fsdp_status fsdp_jinja_substring(jinja_machine *machine, const char *data, size_t bytes,
                                 jinja_value *out)
{
    jinja_string *string;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *string, &string));
    *string = (jinja_string){.data = data, .bytes = bytes, .chars = SIZE_MAX};
    *out = jinja_of_string(string);
    return FSDP_OK;
}

fsdp_status fsdp_jinja_string(jinja_machine *machine, const char *data, size_t bytes,
                              jinja_value *out)
{
    char *copy;
    FSDP_TRY(fsdp_jinja_charge(machine, bytes / 16));
    FSDP_TRY(fsdp_jinja_alloc(machine, bytes, &copy));
    if (bytes)
        memcpy(copy, data, bytes);
    return fsdp_jinja_substring(machine, copy, bytes, out);
}

/* If `left` ends where the used part of its buffer ends, and the rest of the buffer is large
 * enough, append `right` to the buffer and return true. Otherwise, return false. */
static bool append_in_place(const jinja_string *left, const jinja_string *right)
{
    jinja_buffer *buffer = left->buffer;
    if (!buffer || left->data != buffer->data || left->bytes != buffer->used ||
        right->bytes > buffer->cap - buffer->used)
        return false;
    memcpy(buffer->data + buffer->used, right->data, right->bytes);
    buffer->used += right->bytes;
    return true;
}

/* Copy both strings to a new buffer. If they are long, the buffer is twice as large as needed, so
 * that more text can be appended. */
static fsdp_status copy_to_buffer(jinja_machine *machine, const jinja_string *left,
                                  const jinja_string *right, jinja_buffer **out)
{
    const size_t bytes = left->bytes + right->bytes;
    jinja_buffer *buffer;
    FSDP_TRY(fsdp_jinja_charge(machine, bytes / 16));
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *buffer, &buffer));
    buffer->cap = bytes < SHARED_MIN ? bytes : 2 * bytes;
    FSDP_TRY(fsdp_jinja_alloc(machine, buffer->cap, &buffer->data));
    if (left->bytes)
        memcpy(buffer->data, left->data, left->bytes);
    if (right->bytes)
        memcpy(buffer->data + left->bytes, right->data, right->bytes);
    buffer->used = bytes;
    *out = buffer;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_concat(jinja_machine *machine, const jinja_string *left,
                              const jinja_string *right, jinja_value *out)
{
    if (left->bytes + right->bytes > JINJA_MAX_TEXT)
        return fsdp_error(FSDP_ERR_INVALID, "a text of more than %d MiB", JINJA_MAX_TEXT >> 20);
    jinja_buffer *buffer = left->buffer;
    FSDP_TRY(fsdp_jinja_charge(machine, right->bytes / 16));
    if (!append_in_place(left, right))
        FSDP_TRY(copy_to_buffer(machine, left, right, &buffer));
    FSDP_TRY(fsdp_jinja_substring(machine, buffer->data, left->bytes + right->bytes, out));
    out->as.string->buffer = buffer;
    return FSDP_OK;
}

size_t fsdp_jinja_chars(jinja_string *string)
{
    if (string->chars == SIZE_MAX)
        string->chars = fsdp_utf8_count(string->data, string->bytes);
    return string->chars;
}

size_t fsdp_jinja_offset(jinja_string *string, size_t index)
{
    const size_t chars = fsdp_jinja_chars(string);
    if (index >= chars)
        return string->bytes;
    if (chars == string->bytes)
        return index;
    size_t at = 0;
    for (size_t i = 0; i < index; i++) {
        at++;
        while (at < string->bytes && ((unsigned char)string->data[at] & 0xC0) == 0x80)
            at++;
    }
    return at;
}

bool fsdp_jinja_string_is(const jinja_string *string, const char *text)
{
    return string->bytes == strlen(text) && memcmp(string->data, text, string->bytes) == 0;
}

int fsdp_jinja_shown(const jinja_string *name)
{
    int bytes = name->bytes < MAX_SHOWN_BYTES ? (int)name->bytes : MAX_SHOWN_BYTES;
    if ((size_t)bytes < name->bytes)
        while (bytes > 0 && ((unsigned char)name->data[bytes] & 0xC0) == 0x80)
            bytes--;
    return bytes;
}

/* ---- lists ----------------------------------------------------------------------------------- */

fsdp_status fsdp_jinja_list(jinja_machine *machine, size_t cap, jinja_value *out)
{
    jinja_list *list;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *list, &list));
    list->cap = cap;
    if (cap > SIZE_MAX / sizeof *list->items)
        return fsdp_error_nomem();
    FSDP_TRY(fsdp_jinja_alloc(machine, cap * sizeof *list->items, &list->items));
    *out = (jinja_value){.kind = JINJA_LIST, .as.list = list};
    return FSDP_OK;
}

fsdp_status fsdp_jinja_list_add(jinja_machine *machine, jinja_list *list, jinja_value item)
{
    if (list->n == list->cap) {
        const size_t cap = list->cap ? 2 * list->cap : 8;
        jinja_value *items;
        FSDP_TRY(fsdp_jinja_alloc(machine, cap * sizeof *items, &items));
        if (list->n)
            memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->cap = cap;
    }
    FSDP_TRY(fsdp_jinja_charge(machine, 1));
    list->items[list->n++] = item;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_pair(jinja_machine *machine, jinja_value first, jinja_value second,
                            jinja_value *out)
{
    jinja_value tuple;
    FSDP_TRY(fsdp_jinja_list(machine, 2, &tuple));
    tuple.kind = JINJA_TUPLE;
    tuple.as.list->items[0] = first;
    tuple.as.list->items[1] = second;
    tuple.as.list->n = 2;
    *out = tuple;
    return FSDP_OK;
}

/* ---- undefined ------------------------------------------------------------------------------- */

fsdp_status fsdp_jinja_undefined(jinja_machine *machine, jinja_kind owner, const jinja_string *name,
                                 jinja_value *out)
{
    jinja_undefined *undefined;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *undefined, &undefined));
    *undefined = (jinja_undefined){.name = name, .owner = owner};
    *out = (jinja_value){.kind = JINJA_UNDEFINED, .as.undefined = undefined};
    return FSDP_OK;
}

fsdp_status fsdp_jinja_undefined_hint(jinja_machine *machine, const char *hint, jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_undefined(machine, JINJA_MISSING, NULL, out));
    out->as.undefined->hint = hint;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_undefined_error(jinja_value value)
{
    const jinja_undefined *u = value.as.undefined;
    if (u->hint || !u->name)
        return fsdp_error(FSDP_ERR_INVALID, "%s", u->hint ? u->hint : "the value is undefined");
    const int bytes = fsdp_jinja_shown(u->name);
    if (u->owner == JINJA_MISSING)
        return fsdp_error(FSDP_ERR_INVALID, "'%.*s' is undefined", bytes, u->name->data);
    const jinja_value owner = {.kind = u->owner};
    return fsdp_error(FSDP_ERR_INVALID, "'%s object' has no attribute '%.*s'",
                      fsdp_jinja_type_name(owner), bytes, u->name->data);
}
