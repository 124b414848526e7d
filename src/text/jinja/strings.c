/* See strings.h. */
#include "src/text/jinja/strings.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/text/jinja/chars.h"
#include "src/text/jinja/iterate.h"
#include "src/text/jinja/machine.h"
#include "src/text/jinja/print.h"

bool fsdp_jinja_has_at(const jinja_string *text, size_t at, const jinja_string *part)
{
    return at <= text->bytes && part->bytes <= text->bytes - at &&
           memcmp(text->data + at, part->data, part->bytes) == 0;
}

/* If `status` is FSDP_OK, set *out to a string with the contents of `text`, in the memory of the
 * machine. In any case, free `text`. Return `status` or, if the string cannot be made, the
 * error. */
static fsdp_status take(jinja_machine *machine, fsdp_str *text, fsdp_status status,
                        jinja_value *out)
{
    if (status == FSDP_OK && text->failed)
        status = fsdp_error_nomem();
    if (status == FSDP_OK && text->len > JINJA_MAX_TEXT)
        status = fsdp_error(FSDP_ERR_INVALID, "a text of more than %d MiB", JINJA_MAX_TEXT >> 20);
    if (status == FSDP_OK)
        status = fsdp_jinja_string(machine, text->data, text->len, out);
    fsdp_str_fini(text);
    return status;
}

/* ---- strip ----------------------------------------------------------------------------------- */

static bool is_stripped(uint32_t c, const jinja_string *chars)
{
    if (!chars)
        return fsdp_jinja_is_space(c);
    for (size_t at = 0; at < chars->bytes;)
        if (fsdp_jinja_next_char(chars->data, chars->bytes, &at) == c)
            return true;
    return false;
}

fsdp_status fsdp_jinja_strip(jinja_machine *machine, const jinja_string *text,
                             const jinja_string *chars, int ends, jinja_value *out)
{
    size_t begin = 0, end = text->bytes;
    const uint64_t cost = 1 + (chars ? chars->bytes / 16 : 0);
    while (ends & JINJA_LEFT && begin < end) {
        size_t next = begin;
        if (!is_stripped(fsdp_jinja_next_char(text->data, text->bytes, &next), chars))
            break;
        FSDP_TRY(fsdp_jinja_charge(machine, cost));
        begin = next;
    }
    while (ends & JINJA_RIGHT && end > begin) {
        const size_t last = fsdp_jinja_char_before(text->data, end);
        size_t next = last;
        if (!is_stripped(fsdp_jinja_next_char(text->data, end, &next), chars))
            break;
        FSDP_TRY(fsdp_jinja_charge(machine, cost));
        end = last;
    }
    return fsdp_jinja_substring(machine, text->data + begin, end - begin, out);
}

/* ---- replace --------------------------------------------------------------------------------- */

/* replace() for an empty `old`: the empty text occurs before each character and at the end, so
 * new_text is inserted there. */
static void replace_nothing(fsdp_str *out, const jinja_string *text, const jinja_string *new_text,
                            int64_t count)
{
    size_t at = 0;
    while (count != 0 && out->len <= JINJA_MAX_TEXT) {
        const size_t begin = at;
        fsdp_str_append(out, new_text->data, new_text->bytes);
        count -= count > 0;
        if (at == text->bytes)
            return;
        (void)fsdp_jinja_next_char(text->data, text->bytes, &at);
        fsdp_str_append(out, text->data + begin, at - begin);
    }
    fsdp_str_append(out, text->data + at, text->bytes - at);
}

fsdp_status fsdp_jinja_replace(jinja_machine *machine, const jinja_string *text,
                               const jinja_string *old, const jinja_string *new_text, int64_t count,
                               jinja_value *out)
{
    fsdp_str result = {0};
    size_t at = 0;
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 8));
    if (!old->bytes) {
        replace_nothing(&result, text, new_text, count);
        return take(machine, &result, FSDP_OK, out);
    }
    while (count != 0 && result.len <= JINJA_MAX_TEXT) {
        const char *found = memmem(text->data + at, text->bytes - at, old->data, old->bytes);
        if (!found)
            break;
        const size_t begin = (size_t)(found - text->data);
        fsdp_str_append(&result, text->data + at, begin - at);
        fsdp_str_append(&result, new_text->data, new_text->bytes);
        at = begin + old->bytes;
        count -= count > 0;
    }
    fsdp_str_append(&result, text->data + at, text->bytes - at);
    return take(machine, &result, FSDP_OK, out);
}

/* ---- split ----------------------------------------------------------------------------------- */

static fsdp_status add_part(jinja_machine *machine, jinja_value list, const jinja_string *text,
                            size_t begin, size_t end)
{
    jinja_value part;
    FSDP_TRY(fsdp_jinja_substring(machine, text->data + begin, end - begin, &part));
    return fsdp_jinja_list_add(machine, list.as.list, part);
}

static size_t skip_spaces(const jinja_string *text, size_t at, bool spaces)
{
    while (at < text->bytes) {
        size_t next = at;
        if (fsdp_jinja_is_space(fsdp_jinja_next_char(text->data, text->bytes, &next)) != spaces)
            break;
        at = next;
    }
    return at;
}

static size_t skip_spaces_left(const jinja_string *text, size_t end, bool spaces)
{
    while (end > 0) {
        const size_t last = fsdp_jinja_char_before(text->data, end);
        size_t next = last;
        if (fsdp_jinja_is_space(fsdp_jinja_next_char(text->data, end, &next)) != spaces)
            break;
        end = last;
    }
    return end;
}

static fsdp_status split_words(jinja_machine *machine, const jinja_string *text, int64_t most,
                               jinja_value list)
{
    size_t at = skip_spaces(text, 0, true);
    for (; at < text->bytes && most != 0; most -= most > 0) {
        const size_t end = skip_spaces(text, at, false);
        FSDP_TRY(add_part(machine, list, text, at, end));
        at = skip_spaces(text, end, true);
    }
    if (at == text->bytes)
        return FSDP_OK;
    return add_part(machine, list, text, at, text->bytes);
}

static fsdp_status check_separator(const jinja_string *separator)
{
    if (separator && !separator->bytes)
        return fsdp_error(FSDP_ERR_INVALID, "split: empty separator");
    return FSDP_OK;
}

fsdp_status fsdp_jinja_split(jinja_machine *machine, const jinja_string *text,
                             const jinja_string *separator, int64_t most, jinja_value *out)
{
    size_t at = 0;
    FSDP_TRY(check_separator(separator));
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 8));
    FSDP_TRY(fsdp_jinja_list(machine, 0, out));
    if (!separator)
        return split_words(machine, text, most, *out);
    for (; most != 0; most -= most > 0) {
        const char *found =
            memmem(text->data + at, text->bytes - at, separator->data, separator->bytes);
        if (!found)
            break;
        const size_t end = (size_t)(found - text->data);
        FSDP_TRY(add_part(machine, *out, text, at, end));
        at = end + separator->bytes;
    }
    return add_part(machine, *out, text, at, text->bytes);
}

static void reverse_items(jinja_list *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        const jinja_value item = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = item;
    }
}

static fsdp_status split_words_right(jinja_machine *machine, const jinja_string *text, int64_t most,
                                     jinja_value list)
{
    size_t end = skip_spaces_left(text, text->bytes, true);
    for (; end > 0 && most != 0; most -= most > 0) {
        const size_t begin = skip_spaces_left(text, end, false);
        FSDP_TRY(add_part(machine, list, text, begin, end));
        end = skip_spaces_left(text, begin, true);
    }
    if (end == 0)
        return FSDP_OK;
    return add_part(machine, list, text, 0, end);
}

/* Return the offset of the last occurrence of `part` that ends at or before offset `end`. If there
 * is none, return SIZE_MAX. */
static size_t find_last(const jinja_string *text, size_t end, const jinja_string *part)
{
    const jinja_string head = {.data = text->data, .bytes = end};
    for (size_t at = end >= part->bytes ? end - part->bytes + 1 : 0; at-- > 0;)
        if (fsdp_jinja_has_at(&head, at, part))
            return at;
    return SIZE_MAX;
}

fsdp_status fsdp_jinja_split_right(jinja_machine *machine, const jinja_string *text,
                                   const jinja_string *separator, int64_t most, jinja_value *out)
{
    size_t end = text->bytes;
    FSDP_TRY(check_separator(separator));
    FSDP_TRY(
        fsdp_jinja_charge(machine, text->bytes * (1 + (separator ? separator->bytes / 16 : 0))));
    FSDP_TRY(fsdp_jinja_list(machine, 0, out));
    if (!separator)
        FSDP_TRY(split_words_right(machine, text, most, *out));
    for (; separator && most != 0; most -= most > 0) {
        const size_t found = find_last(text, end, separator);
        if (found == SIZE_MAX)
            break;
        FSDP_TRY(add_part(machine, *out, text, found + separator->bytes, end));
        end = found;
    }
    if (separator)
        FSDP_TRY(add_part(machine, *out, text, 0, end));
    reverse_items(out->as.list);
    return FSDP_OK;
}

fsdp_status fsdp_jinja_split_lines(jinja_machine *machine, const jinja_string *text, bool keep_ends,
                                   jinja_value *out)
{
    size_t begin = 0;
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 4));
    FSDP_TRY(fsdp_jinja_list(machine, 0, out));
    for (size_t at = 0; at < text->bytes;) {
        const size_t end = at;
        const uint32_t c = fsdp_jinja_next_char(text->data, text->bytes, &at);
        if (!fsdp_jinja_is_line_end(c))
            continue;
        if (c == '\r' && at < text->bytes && text->data[at] == '\n')
            at++;
        FSDP_TRY(add_part(machine, *out, text, begin, keep_ends ? at : end));
        begin = at;
    }
    return begin < text->bytes ? add_part(machine, *out, text, begin, text->bytes) : FSDP_OK;
}

/* ---- padding and joining --------------------------------------------------------------------- */

fsdp_status fsdp_jinja_pad(jinja_machine *machine, const jinja_string *text, size_t left,
                           size_t right, const jinja_string *fill, jinja_value *out)
{
    fsdp_str padded = {0};
    if (left > JINJA_MAX_TEXT || right > JINJA_MAX_TEXT)
        return fsdp_error(FSDP_ERR_INVALID, "a text of more than %d MiB", JINJA_MAX_TEXT >> 20);
    FSDP_TRY(fsdp_jinja_charge(machine, left + right));
    for (size_t i = 0; i < left; i++)
        fsdp_str_append(&padded, fill->data, fill->bytes);
    fsdp_str_append(&padded, text->data, text->bytes);
    for (size_t i = 0; i < right; i++)
        fsdp_str_append(&padded, fill->data, fill->bytes);
    return take(machine, &padded, FSDP_OK, out);
}

fsdp_status fsdp_jinja_center(jinja_machine *machine, jinja_string *text, int64_t width,
                              const jinja_string *fill, jinja_value *out)
{
    const int64_t chars = (int64_t)fsdp_jinja_chars(text);
    const int64_t marg = width > chars ? width - chars : 0;
    const int64_t left = marg / 2 + (marg & width & 1);
    return fsdp_jinja_pad(machine, text, (size_t)left, (size_t)(marg - left), fill, out);
}

static fsdp_status append_item(jinja_machine *machine, fsdp_str *text, jinja_value item,
                               bool strict, size_t index)
{
    if (strict && item.kind != JINJA_STRING)
        return fsdp_error(FSDP_ERR_INVALID,
                          "join: sequence item %zu: expected str instance, %s found", index,
                          fsdp_jinja_type_name(item));
    FSDP_TRY(fsdp_jinja_str(machine, item, &item));
    FSDP_TRY(fsdp_jinja_charge(machine, item.as.string->bytes / 16));
    fsdp_str_append(text, item.as.string->data, item.as.string->bytes);
    if (text->len > JINJA_MAX_TEXT)
        return fsdp_error(FSDP_ERR_INVALID, "a text of more than %d MiB", JINJA_MAX_TEXT >> 20);
    return FSDP_OK;
}

fsdp_status fsdp_jinja_join(jinja_machine *machine, jinja_value items,
                            const jinja_string *separator, bool strict, jinja_value *out)
{
    jinja_iterator *it;
    fsdp_str text = {0};
    fsdp_status status = fsdp_jinja_iterate(machine, items, &it);
    for (size_t i = 0; status == FSDP_OK; i++) {
        jinja_value item;
        status = fsdp_jinja_next(machine, it, &item);
        if (status != FSDP_OK || item.kind == JINJA_MISSING)
            break;
        if (i)
            fsdp_str_append(&text, separator->data, separator->bytes);
        status = append_item(machine, &text, item, strict, i);
    }
    return take(machine, &text, status, out);
}
