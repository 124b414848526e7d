/* See iterate.h. */
#include "src/text/jinja/iterate.h"

#include <string.h>

#include "src/text/jinja/chars.h"
#include "src/text/jinja/machine.h"

static const jinja_value end_of_items = {.kind = JINJA_MISSING};

/* ---- next(): one function for each kind of value --------------------------------------------- */

static fsdp_status next_of_list(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    (void)machine;
    const jinja_list *list = it->source.as.list;
    *item = it->at < list->n ? list->items[it->at++] : end_of_items;
    return FSDP_OK;
}

static fsdp_status next_of_reversed_list(jinja_machine *machine, jinja_iterator *it,
                                         jinja_value *item)
{
    (void)machine;
    const jinja_list *list = it->source.as.list;
    *item = it->at < list->n ? list->items[list->n - 1 - it->at++] : end_of_items;
    return FSDP_OK;
}

static fsdp_status next_of_string(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    const jinja_string *string = it->source.as.string;
    const size_t begin = it->at;
    *item = end_of_items;
    if (begin == string->bytes)
        return FSDP_OK;
    (void)fsdp_jinja_next_char(string->data, string->bytes, &it->at);
    return fsdp_jinja_substring(machine, string->data + begin, it->at - begin, item);
}

static fsdp_status next_of_reversed_string(jinja_machine *machine, jinja_iterator *it,
                                           jinja_value *item)
{
    const jinja_string *string = it->source.as.string;
    const size_t end = string->bytes - it->at;
    *item = end_of_items;
    if (end == 0)
        return FSDP_OK;
    const size_t begin = fsdp_jinja_char_before(string->data, end);
    it->at = string->bytes - begin;
    return fsdp_jinja_substring(machine, string->data + begin, end - begin, item);
}

static fsdp_status item_of_view(jinja_machine *machine, const jinja_view *view, size_t index,
                                jinja_value *item)
{
    const jinja_entry *entry = &view->dict->entries[index];
    if (view->kind == JINJA_VIEW_ITEMS)
        return fsdp_jinja_pair(machine, entry->key, entry->value, item);
    *item = view->kind == JINJA_VIEW_KEYS ? entry->key : entry->value;
    return FSDP_OK;
}

static fsdp_status next_of_view(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    *item = end_of_items;
    if (it->at >= it->source.as.view->dict->n)
        return FSDP_OK;
    return item_of_view(machine, it->source.as.view, it->at++, item);
}

static fsdp_status next_of_reversed_view(jinja_machine *machine, jinja_iterator *it,
                                         jinja_value *item)
{
    const size_t n = it->source.as.view->dict->n;
    *item = end_of_items;
    if (it->at >= n)
        return FSDP_OK;
    it->at++;
    return item_of_view(machine, it->source.as.view, n - it->at, item);
}

static fsdp_status next_of_range(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    (void)machine;
    const jinja_range *range = it->source.as.range;
    *item = end_of_items;
    if ((int64_t)it->at < range->n)
        *item = jinja_int(range->start + (int64_t)it->at++ * range->step);
    return FSDP_OK;
}

static fsdp_status next_of_reversed_range(jinja_machine *machine, jinja_iterator *it,
                                          jinja_value *item)
{
    (void)machine;
    const jinja_range *range = it->source.as.range;
    *item = end_of_items;
    if ((int64_t)it->at < range->n)
        *item = jinja_int(range->start + (range->n - 1 - (int64_t)it->at++) * range->step);
    return FSDP_OK;
}

static fsdp_status next_of_nothing(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    (void)machine;
    (void)it;
    *item = end_of_items;
    return FSDP_OK;
}

/* ---- iterators ------------------------------------------------------------------------------- */

fsdp_status fsdp_jinja_iterator(jinja_machine *machine, jinja_value source, jinja_next_fn *next,
                                jinja_iterator **out)
{
    jinja_iterator *it;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *it, &it));
    it->source = source;
    it->next = next;
    *out = it;
    return FSDP_OK;
}

/* Set *view to the view of the dict's keys, because iterating over a dict yields its keys. */
static fsdp_status keys_of(jinja_machine *machine, jinja_value dict, jinja_value *view)
{
    jinja_view *keys;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *keys, &keys));
    *keys = (jinja_view){.dict = dict.as.dict, .kind = JINJA_VIEW_KEYS};
    *view = (jinja_value){.kind = JINJA_VIEW, .as.view = keys};
    return FSDP_OK;
}

fsdp_status fsdp_jinja_iterate(jinja_machine *machine, jinja_value value, jinja_iterator **out)
{
    switch (value.kind) {
    case JINJA_ITERATOR:
        *out = value.as.iterator;
        return FSDP_OK;
    case JINJA_UNDEFINED:
        return fsdp_jinja_iterator(machine, value, next_of_nothing, out);
    case JINJA_STRING:
        return fsdp_jinja_iterator(machine, value, next_of_string, out);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return fsdp_jinja_iterator(machine, value, next_of_list, out);
    case JINJA_DICT:
        FSDP_TRY(keys_of(machine, value, &value));
        return fsdp_jinja_iterator(machine, value, next_of_view, out);
    case JINJA_VIEW:
        return fsdp_jinja_iterator(machine, value, next_of_view, out);
    case JINJA_RANGE:
        return fsdp_jinja_iterator(machine, value, next_of_range, out);
    case JINJA_LOOP:
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "iterating over 'loop' is not supported");
    default:
        return fsdp_error(FSDP_ERR_INVALID, "'%s' object is not iterable",
                          fsdp_jinja_type_name(value));
    }
}

static fsdp_status next_of_other(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    (void)item;
    return fsdp_jinja_iterate(machine, it->source, &it->inner);
}

fsdp_status fsdp_jinja_iterate_later(jinja_machine *machine, jinja_value value,
                                     jinja_iterator **out)
{
    if (fsdp_jinja_is_iterable(value))
        return fsdp_jinja_iterate(machine, value, out);
    return fsdp_jinja_iterator(machine, value, next_of_other, out);
}

fsdp_status fsdp_jinja_reversed(jinja_machine *machine, jinja_value value, jinja_iterator **out)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
        return fsdp_jinja_iterator(machine, value, next_of_nothing, out);
    case JINJA_STRING:
        return fsdp_jinja_iterator(machine, value, next_of_reversed_string, out);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return fsdp_jinja_iterator(machine, value, next_of_reversed_list, out);
    case JINJA_DICT:
        FSDP_TRY(keys_of(machine, value, &value));
        return fsdp_jinja_iterator(machine, value, next_of_reversed_view, out);
    case JINJA_VIEW:
        return fsdp_jinja_iterator(machine, value, next_of_reversed_view, out);
    case JINJA_RANGE:
        return fsdp_jinja_iterator(machine, value, next_of_reversed_range, out);
    default:
        return fsdp_error(FSDP_ERR_INVALID, "'%s' object is not reversible",
                          fsdp_jinja_type_name(value));
    }
}

fsdp_status fsdp_jinja_next(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    *item = end_of_items;
    if (it->ended)
        return FSDP_OK;
    FSDP_TRY(fsdp_jinja_charge(machine, 1));
    const fsdp_status status = it->next(machine, it, item);
    it->ended = status != FSDP_OK || item->kind == JINJA_MISSING;
    return status;
}

bool fsdp_jinja_is_iterable(jinja_value value)
{
    return value.kind == JINJA_UNDEFINED || value.kind == JINJA_ITERATOR ||
           value.kind == JINJA_LOOP || fsdp_jinja_has_length(value);
}

bool fsdp_jinja_has_length(jinja_value value)
{
    return (value.kind >= JINJA_STRING && value.kind <= JINJA_VIEW) ||
           value.kind == JINJA_UNDEFINED || value.kind == JINJA_LOOP;
}

fsdp_status fsdp_jinja_length(jinja_value value, size_t *n)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
        *n = 0;
        return FSDP_OK;
    case JINJA_STRING:
        *n = fsdp_jinja_chars(value.as.string);
        return FSDP_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
        *n = value.as.list->n;
        return FSDP_OK;
    case JINJA_DICT:
        *n = value.as.dict->n;
        return FSDP_OK;
    case JINJA_VIEW:
        *n = value.as.view->dict->n;
        return FSDP_OK;
    case JINJA_RANGE:
        *n = (size_t)value.as.range->n;
        return FSDP_OK;
    case JINJA_LOOP:
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "the length of 'loop' is not supported; "
                                                "loop.length is");
    default:
        return fsdp_error(FSDP_ERR_INVALID, "object of type '%s' has no len()",
                          fsdp_jinja_type_name(value));
    }
}

fsdp_status fsdp_jinja_to_list(jinja_machine *machine, jinja_value value, jinja_value *out)
{
    jinja_iterator *it;
    jinja_value list, item;
    FSDP_TRY(fsdp_jinja_iterate(machine, value, &it));
    FSDP_TRY(fsdp_jinja_list(machine, 0, &list));
    for (;;) {
        FSDP_TRY(fsdp_jinja_next(machine, it, &item));
        if (item.kind == JINJA_MISSING)
            break;
        FSDP_TRY(fsdp_jinja_list_add(machine, list.as.list, item));
    }
    *out = list;
    return FSDP_OK;
}

static fsdp_status string_contains(jinja_machine *machine, const jinja_string *text,
                                   jinja_value item, bool *contains)
{
    if (item.kind == JINJA_UNDEFINED)
        return fsdp_error(FSDP_ERR_INVALID,
                          "'in <string>' requires string as left operand, not Undefined");
    if (item.kind != JINJA_STRING)
        return fsdp_error(FSDP_ERR_INVALID, "'in <string>' requires string as left operand, not %s",
                          fsdp_jinja_type_name(item));
    const jinja_string *part = item.as.string;
    *contains = memmem(text->data, text->bytes, part->data, part->bytes) != NULL;
    return fsdp_jinja_charge(machine, text->bytes / 16);
}

fsdp_status fsdp_jinja_contains(jinja_machine *machine, jinja_value container, jinja_value item,
                                bool *contains)
{
    jinja_value found;
    if (container.kind == JINJA_STRING)
        return string_contains(machine, container.as.string, item, contains);
    if (container.kind == JINJA_DICT ||
        (container.kind == JINJA_VIEW && container.as.view->kind == JINJA_VIEW_KEYS)) {
        const jinja_dict *dict =
            container.kind == JINJA_DICT ? container.as.dict : container.as.view->dict;
        FSDP_TRY(fsdp_jinja_dict_get(machine, dict, item, &found));
        *contains = found.kind != JINJA_MISSING;
        return FSDP_OK;
    }
    if (!fsdp_jinja_is_iterable(container))
        return fsdp_error(FSDP_ERR_INVALID, "argument of type '%s' is not iterable",
                          fsdp_jinja_type_name(container));
    jinja_iterator *it;
    FSDP_TRY(fsdp_jinja_iterate(machine, container, &it));
    for (*contains = false; !*contains;) {
        FSDP_TRY(fsdp_jinja_next(machine, it, &found));
        if (found.kind == JINJA_MISSING)
            break;
        FSDP_TRY(fsdp_jinja_equal(machine, found, item, contains));
    }
    return FSDP_OK;
}
