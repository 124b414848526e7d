/* See attribute.h. */
#include "src/text/jinja/attribute.h"

#include <string.h>

#include "src/text/jinja/chars.h"
#include "src/text/jinja/loop.h"
#include "src/text/jinja/machine.h"
#include "src/text/jinja/methods.h"

static const jinja_value missing = {.kind = JINJA_MISSING};

static bool is_dunder(const jinja_string *name)
{
    return name->bytes > 4 && memcmp(name->data, "__", 2) == 0 &&
           memcmp(name->data + name->bytes - 2, "__", 2) == 0;
}

static fsdp_status unsafe(jinja_machine *machine, jinja_value *out)
{
    return fsdp_jinja_undefined_hint(
        machine,
        "the template calls a method that changes a value, or looks inside of it, which "
        "the sandbox of chat templates forbids",
        out);
}

/* Look up value.name as Python does. Set *out to JINJA_MISSING if there is no such attribute. */
static fsdp_status find_attribute(jinja_machine *machine, jinja_value value,
                                  const jinja_string *name, jinja_value *out)
{
    jinja_lookup lookup;
    *out = missing;
    if (is_dunder(name))
        return unsafe(machine, out);
    if (value.kind == JINJA_NAMESPACE) {
        *out = fsdp_jinja_dict_find(value.as.dict, name->data, name->bytes);
        return FSDP_OK;
    }
    if (value.kind == JINJA_LOOP)
        return fsdp_jinja_loop_attribute(machine, value.as.loop, name, out);
    if (value.kind == JINJA_MACRO || value.kind == JINJA_FUNCTION || value.kind == JINJA_METHOD)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "attributes of a %s ('%.*s') are not supported",
                          fsdp_jinja_type_name(value), fsdp_jinja_shown(name), name->data);
    FSDP_TRY(fsdp_jinja_find_method(machine, value, name, &lookup, out));
    if (lookup == JINJA_LOOKUP_UNSAFE)
        return unsafe(machine, out);
    return FSDP_OK;
}

/* ---- items ----------------------------------------------------------------------------------- */

/* If `key` is a valid Python index into a sequence of n items, set *index to the index of the item,
 * counted from 0, and return true. (A Python index may be negative.) */
static bool find_index(jinja_value key, size_t n, size_t *index)
{
    if (key.kind != JINJA_INT && key.kind != JINJA_BOOL)
        return false;
    const int64_t at = key.kind == JINJA_BOOL ? key.as.boolean : key.as.integer;
    const int64_t length = (int64_t)n;
    if (at >= length || at < -length)
        return false;
    *index = (size_t)(at < 0 ? at + length : at);
    return true;
}

static fsdp_status char_at(jinja_machine *machine, jinja_string *text, size_t index,
                           jinja_value *out)
{
    const size_t begin = fsdp_jinja_offset(text, index);
    size_t end = begin;
    FSDP_TRY(fsdp_jinja_charge(machine, begin / 16));
    (void)fsdp_jinja_next_char(text->data, text->bytes, &end);
    return fsdp_jinja_substring(machine, text->data + begin, end - begin, out);
}

/* Look up value[key] as Python does. Set *out to JINJA_MISSING if there is no such item. */
static fsdp_status find_item(jinja_machine *machine, jinja_value value, jinja_value key,
                             jinja_value *out)
{
    size_t index;
    *out = missing;
    switch (value.kind) {
    case JINJA_DICT:
        /* A list or a dict cannot be a key of a dict, which is an error in Python. Jinja2 handles
         * this error as if the key did not exist. */
        if (key.kind == JINJA_LIST || key.kind == JINJA_DICT)
            return FSDP_OK;
        return fsdp_jinja_dict_get(machine, value.as.dict, key, out);
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (find_index(key, value.as.list->n, &index))
            *out = value.as.list->items[index];
        return FSDP_OK;
    case JINJA_STRING:
        if (find_index(key, fsdp_jinja_chars(value.as.string), &index))
            return char_at(machine, value.as.string, index, out);
        return FSDP_OK;
    case JINJA_RANGE:
        if (find_index(key, (size_t)value.as.range->n, &index))
            *out = jinja_int(value.as.range->start + (int64_t)index * value.as.range->step);
        return FSDP_OK;
    default:
        return FSDP_OK;
    }
}

static fsdp_status check_not_safe(jinja_value value)
{
    if (value.kind == JINJA_STRING && value.safe)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "methods and parts of the result of the filter "
                                                "'safe' or 'escape' are not supported");
    return FSDP_OK;
}

fsdp_status fsdp_jinja_get_attribute(jinja_machine *machine, jinja_value value, jinja_string *name,
                                     jinja_value *out)
{
    if (value.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(value);
    FSDP_TRY(check_not_safe(value));
    FSDP_TRY(find_attribute(machine, value, name, out));
    if (out->kind == JINJA_MISSING)
        FSDP_TRY(find_item(machine, value, jinja_of_string(name), out));
    if (out->kind == JINJA_MISSING)
        return fsdp_jinja_undefined(machine, value.kind, name, out);
    return FSDP_OK;
}

fsdp_status fsdp_jinja_get_item(jinja_machine *machine, jinja_value value, jinja_value key,
                                jinja_value *out)
{
    static const jinja_string item_name = {.data = "[]", .bytes = 2, .chars = 2};
    if (value.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(value);
    FSDP_TRY(check_not_safe(value));
    FSDP_TRY(find_item(machine, value, key, out));
    if (out->kind == JINJA_MISSING && key.kind == JINJA_STRING)
        FSDP_TRY(find_attribute(machine, value, key.as.string, out));
    if (out->kind == JINJA_MISSING)
        return fsdp_jinja_undefined(machine, value.kind,
                                    key.kind == JINJA_STRING ? key.as.string : &item_name, out);
    return FSDP_OK;
}

static fsdp_status get_item_or(jinja_machine *machine, jinja_value value, jinja_value key,
                               jinja_value fallback, jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_get_item(machine, value, key, out));
    if (out->kind == JINJA_UNDEFINED && fallback.kind > JINJA_NONE)
        *out = fallback;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_get_path_or(jinja_machine *machine, jinja_value value, jinja_value path,
                                   jinja_value fallback, jinja_value *out)
{
    *out = value;
    if (path.kind != JINJA_STRING)
        return jinja_is_absent(path) || path.kind == JINJA_NONE
                   ? FSDP_OK
                   : get_item_or(machine, value, path, fallback, out);
    const jinja_string *text = path.as.string;
    for (size_t at = 0; at <= text->bytes;) {
        const char *dot = memchr(text->data + at, '.', text->bytes - at);
        const size_t end = dot ? (size_t)(dot - text->data) : text->bytes;
        jinja_value key;
        int64_t number = 0;
        bool digits = end > at && end - at < 18;
        for (size_t i = at; i < end; i++) {
            digits = digits && text->data[i] >= '0' && text->data[i] <= '9';
            number = digits ? number * 10 + (text->data[i] - '0') : 0;
        }
        FSDP_TRY(fsdp_jinja_substring(machine, text->data + at, end - at, &key));
        FSDP_TRY(get_item_or(machine, *out, digits ? jinja_int(number) : key, fallback, out));
        at = end + 1;
    }
    return FSDP_OK;
}

fsdp_status fsdp_jinja_get_path(jinja_machine *machine, jinja_value value, jinja_value path,
                                jinja_value *out)
{
    const jinja_value none = {.kind = JINJA_MISSING};
    return fsdp_jinja_get_path_or(machine, value, path, none, out);
}

/* ---- slices ---------------------------------------------------------------------------------- */

static fsdp_status slice_bound(jinja_value value, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (value.kind == JINJA_MISSING || value.kind == JINJA_NONE)
        return FSDP_OK;
    if (value.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(value);
    if (value.kind != JINJA_INT && value.kind != JINJA_BOOL)
        return fsdp_error(FSDP_ERR_INVALID, "slice indices must be integers or None, not %s",
                          fsdp_jinja_type_name(value));
    *out = value.kind == JINJA_BOOL ? value.as.boolean : value.as.integer;
    return FSDP_OK;
}

static int64_t clamp_bound(int64_t bound, int64_t n, int64_t step)
{
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (bound < 0)
        bound = bound < -n ? low : bound + n;
    return bound < low ? low : bound > high ? high : bound;
}

/* The indices of the items of a slice: `start`, start + step, and so on. There are `count` of
 * them. */
typedef struct slice {
    int64_t start, stop, step, count;
} slice;

static fsdp_status make_slice(jinja_value start, jinja_value stop, jinja_value step, size_t length,
                              slice *out)
{
    const int64_t n = (int64_t)length;
    int64_t begin, end, by;
    FSDP_TRY(slice_bound(step, 1, &by));
    if (by == 0)
        return fsdp_error(FSDP_ERR_INVALID, "slice step cannot be zero");
    by = by > n + 1 ? n + 1 : by < -n - 1 ? -n - 1 : by;
    FSDP_TRY(slice_bound(start, 0, &begin));
    FSDP_TRY(slice_bound(stop, 0, &end));
    const bool no_start = start.kind == JINJA_MISSING || start.kind == JINJA_NONE;
    const bool no_stop = stop.kind == JINJA_MISSING || stop.kind == JINJA_NONE;
    begin = no_start ? (by < 0 ? n - 1 : 0) : clamp_bound(begin, n, by);
    end = no_stop ? (by < 0 ? -1 : n) : clamp_bound(end, n, by);
    const int64_t distance = by < 0 ? begin - end : end - begin;
    const int64_t size = by < 0 ? -by : by;
    *out = (slice){begin, end, by, distance > 0 ? (distance + size - 1) / size : 0};
    return FSDP_OK;
}

static fsdp_status slice_of_list(jinja_machine *machine, jinja_value value, const slice *s,
                                 jinja_value *out)
{
    jinja_value part;
    FSDP_TRY(fsdp_jinja_list(machine, (size_t)s->count, &part));
    for (int64_t i = 0; i < s->count; i++)
        FSDP_TRY(fsdp_jinja_list_add(machine, part.as.list,
                                     value.as.list->items[s->start + i * s->step]));
    part.kind = value.kind;
    *out = part;
    return FSDP_OK;
}

/* Set *out to `start` + count * step. Return false if this does not fit in 64 bits. */
static bool advance(int64_t start, int64_t count, int64_t step, int64_t *out)
{
    int64_t distance;
    return !__builtin_mul_overflow(count, step, &distance) &&
           !__builtin_add_overflow(start, distance, out);
}

static fsdp_status slice_of_range(jinja_machine *machine, const jinja_range *range, const slice *s,
                                  jinja_value *out)
{
    jinja_range *part;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *part, &part));
    *part = (jinja_range){.n = s->count};
    if (!advance(range->start, s->start, range->step, &part->start) ||
        !advance(range->start, s->stop, range->step, &part->stop) ||
        __builtin_mul_overflow(range->step, s->step, &part->step))
        return fsdp_error(FSDP_ERR_INVALID,
                          "a bound or the step of a slice of a range is too large");
    *out = (jinja_value){.kind = JINJA_RANGE, .as.range = part};
    return FSDP_OK;
}

static fsdp_status slice_of_string(jinja_machine *machine, jinja_string *text, const slice *s,
                                   jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 16 + (uint64_t)s->count / 4));
    if (s->count == 0)
        return fsdp_jinja_substring(machine, "", 0, out);
    size_t at = fsdp_jinja_offset(text, (size_t)s->start);
    if (s->step == 1) {
        const size_t end = fsdp_jinja_offset(text, (size_t)(s->start + s->count));
        return fsdp_jinja_substring(machine, text->data + at, end - at, out);
    }
    char *chars;
    size_t used = 0;
    FSDP_TRY(fsdp_jinja_alloc(machine, text->bytes, &chars));
    for (int64_t i = 0; i < s->count; i++) {
        size_t next = at;
        (void)fsdp_jinja_next_char(text->data, text->bytes, &next);
        memcpy(chars + used, text->data + at, next - at);
        used += next - at;
        for (int64_t k = 0; k < s->step && i + 1 < s->count; k++)
            (void)fsdp_jinja_next_char(text->data, text->bytes, &at);
        for (int64_t k = 0; k > s->step && i + 1 < s->count; k--)
            at = fsdp_jinja_char_before(text->data, at);
    }
    return fsdp_jinja_substring(machine, chars, used, out);
}

fsdp_status fsdp_jinja_slice(jinja_machine *machine, jinja_value value, jinja_value start,
                             jinja_value stop, jinja_value step, jinja_value *out)
{
    slice s;
    FSDP_TRY(check_not_safe(value));
    if (value.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(value);
    if (value.kind == JINJA_LIST || value.kind == JINJA_TUPLE) {
        FSDP_TRY(make_slice(start, stop, step, value.as.list->n, &s));
        return slice_of_list(machine, value, &s, out);
    }
    if (value.kind == JINJA_STRING) {
        FSDP_TRY(make_slice(start, stop, step, fsdp_jinja_chars(value.as.string), &s));
        return slice_of_string(machine, value.as.string, &s, out);
    }
    if (value.kind == JINJA_RANGE) {
        FSDP_TRY(make_slice(start, stop, step, (size_t)value.as.range->n, &s));
        return slice_of_range(machine, value.as.range, &s, out);
    }
    return fsdp_error(FSDP_ERR_INVALID, "'%s' object cannot be sliced",
                      fsdp_jinja_type_name(value));
}
