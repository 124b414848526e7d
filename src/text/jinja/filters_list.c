/* The filters of Jinja2 that work on lists and dicts: length, first, sort, batch and others. */
#include <string.h>

#include "src/text/jinja/arithmetic.h"
#include "src/text/jinja/attribute.h"
#include "src/text/jinja/chars.h"
#include "src/text/jinja/filters.h"
#include "src/text/jinja/iterate.h"
#include "src/text/jinja/machine.h"
#include "src/text/jinja/print.h"

fsdp_status fsdp_jinja_filter_length(jinja_machine *machine, jinja_value value,
                                     const jinja_args *args, jinja_value *out)
{
    size_t n;
    (void)machine;
    FSDP_TRY(fsdp_jinja_bind("length", "", 0, args, NULL));
    FSDP_TRY(fsdp_jinja_length(value, &n));
    *out = jinja_int((int64_t)n);
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_list(jinja_machine *machine, jinja_value value,
                                   const jinja_args *args, jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_bind("list", "", 0, args, NULL));
    return fsdp_jinja_to_list(machine, value, out);
}

fsdp_status fsdp_jinja_filter_default(jinja_machine *machine, jinja_value value,
                                      const jinja_args *args, jinja_value *out)
{
    jinja_value values[2];
    FSDP_TRY(fsdp_jinja_bind("default", "default_value,boolean", 0, args, values));
    *out = value;
    if (!jinja_is_absent(value) && !(fsdp_jinja_truth(values[1]) && !fsdp_jinja_truth(value)))
        return FSDP_OK;
    *out = values[0];
    return values[0].kind == JINJA_MISSING ? fsdp_jinja_substring(machine, "", 0, out) : FSDP_OK;
}

static fsdp_status first_of(jinja_machine *machine, jinja_iterator *it, const char *hint,
                            jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_next(machine, it, out));
    return out->kind == JINJA_MISSING ? fsdp_jinja_undefined_hint(machine, hint, out) : FSDP_OK;
}

fsdp_status fsdp_jinja_filter_first(jinja_machine *machine, jinja_value value,
                                    const jinja_args *args, jinja_value *out)
{
    jinja_iterator *it;
    FSDP_TRY(fsdp_jinja_bind("first", "", 0, args, NULL));
    FSDP_TRY(fsdp_jinja_iterate(machine, value, &it));
    return first_of(machine, it, "No first item, sequence was empty.", out);
}

fsdp_status fsdp_jinja_filter_last(jinja_machine *machine, jinja_value value,
                                   const jinja_args *args, jinja_value *out)
{
    jinja_iterator *it;
    FSDP_TRY(fsdp_jinja_bind("last", "", 0, args, NULL));
    FSDP_TRY(fsdp_jinja_reversed(machine, value, &it));
    return first_of(machine, it, "No last item, sequence was empty.", out);
}

fsdp_status fsdp_jinja_filter_reverse(jinja_machine *machine, jinja_value value,
                                      const jinja_args *args, jinja_value *out)
{
    jinja_iterator *it;
    FSDP_TRY(fsdp_jinja_bind("reverse", "", 0, args, NULL));
    if (value.kind == JINJA_STRING)
        return fsdp_jinja_slice(machine, value, jinja_none(), jinja_none(), jinja_int(-1), out);
    if (value.kind == JINJA_ITERATOR) {
        FSDP_TRY(fsdp_jinja_to_list(machine, value, out));
        return fsdp_jinja_slice(machine, *out, jinja_none(), jinja_none(), jinja_int(-1), out);
    }
    FSDP_TRY(fsdp_jinja_reversed(machine, value, &it));
    *out = jinja_of_iterator(it);
    return FSDP_OK;
}

static fsdp_status as_iterator(jinja_machine *machine, jinja_value list, jinja_value *out)
{
    jinja_iterator *it;
    FSDP_TRY(fsdp_jinja_iterate_later(machine, list, &it));
    *out = jinja_of_iterator(it);
    return FSDP_OK;
}

static fsdp_status next_of_no_mapping(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    (void)machine;
    (void)item;
    return fsdp_error(FSDP_ERR_INVALID, "items: can only get item pairs from a mapping, not %s",
                      fsdp_jinja_type_name(it->source));
}

fsdp_status fsdp_jinja_filter_items(jinja_machine *machine, jinja_value value,
                                    const jinja_args *args, jinja_value *out)
{
    jinja_view *view;
    jinja_iterator *it;
    FSDP_TRY(fsdp_jinja_bind("items", "", 0, args, NULL));
    if (value.kind != JINJA_UNDEFINED && value.kind != JINJA_DICT) {
        FSDP_TRY(fsdp_jinja_iterator(machine, value, next_of_no_mapping, &it));
        *out = jinja_of_iterator(it);
        return FSDP_OK;
    }
    if (value.kind == JINJA_DICT) {
        FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *view, &view));
        *view = (jinja_view){.dict = value.as.dict, .kind = JINJA_VIEW_ITEMS};
        value = (jinja_value){.kind = JINJA_VIEW, .as.view = view};
    }
    return as_iterator(machine, value, out);
}

fsdp_status fsdp_jinja_filter_sum(jinja_machine *machine, jinja_value value, const jinja_args *args,
                                  jinja_value *out)
{
    jinja_value values[2], item;
    jinja_iterator *it;
    FSDP_TRY(fsdp_jinja_bind("sum", "attribute,start", 0, args, values));
    FSDP_TRY(fsdp_jinja_iterate(machine, value, &it));
    jinja_value sum = values[1].kind == JINJA_MISSING ? jinja_int(0) : values[1];
    if (sum.kind == JINJA_STRING)
        return fsdp_error(FSDP_ERR_INVALID, "sum: cannot sum texts; use the filter join");
    for (;;) {
        FSDP_TRY(fsdp_jinja_next(machine, it, &item));
        if (item.kind == JINJA_MISSING)
            break;
        FSDP_TRY(fsdp_jinja_get_path(machine, item, values[0], &item));
        FSDP_TRY(fsdp_jinja_operate(machine, JINJA_ADD, sum, item, &sum));
    }
    *out = sum;
    return FSDP_OK;
}

/* ---- parts of lists -------------------------------------------------------------------------- */

/* A filter that returns a generator in Jinja2. As in Jinja2, it does its work only when the first
 * item is requested. */
typedef struct deferred {
    /* Make a list of all items of the result. `values` [2] are the arguments of the filter. */
    fsdp_status (*make)(jinja_machine *machine, jinja_value value, const jinja_value *values,
                        jinja_value *out);
    jinja_value values[2];
} deferred;

static fsdp_status next_deferred(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    const deferred *d = it->state;
    jinja_value list;
    if (!it->inner) {
        FSDP_TRY(d->make(machine, it->source, d->values, &list));
        FSDP_TRY(fsdp_jinja_iterate(machine, list, &it->inner));
    }
    return fsdp_jinja_next(machine, it->inner, item);
}

static fsdp_status defer(jinja_machine *machine, jinja_value value, const deferred *d,
                         jinja_value *out)
{
    jinja_iterator *it;
    deferred *copy;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *copy, &copy));
    *copy = *d;
    FSDP_TRY(fsdp_jinja_iterator(machine, value, next_deferred, &it));
    it->state = copy;
    *out = jinja_of_iterator(it);
    return FSDP_OK;
}

static fsdp_status make_batches(jinja_machine *machine, jinja_value value,
                                const jinja_value *values, jinja_value *out)
{
    jinja_value items, batch = {.kind = JINJA_MISSING};
    int64_t count;
    FSDP_TRY(fsdp_jinja_arg_int("batch", values[0], 0, &count));
    FSDP_TRY(fsdp_jinja_to_list(machine, value, &items));
    FSDP_TRY(fsdp_jinja_list(machine, 0, out));
    if (count == 0 && items.as.list->n) { /* as Jinja does: one empty batch, then all items */
        FSDP_TRY(fsdp_jinja_list(machine, 0, &batch));
        FSDP_TRY(fsdp_jinja_list_add(machine, out->as.list, batch));
    }
    for (size_t i = 0; i < items.as.list->n; i++) {
        if (batch.kind == JINJA_MISSING || (int64_t)batch.as.list->n == count) {
            FSDP_TRY(fsdp_jinja_list(machine, 0, &batch));
            FSDP_TRY(fsdp_jinja_list_add(machine, out->as.list, batch));
        }
        FSDP_TRY(fsdp_jinja_list_add(machine, batch.as.list, items.as.list->items[i]));
    }
    while (batch.kind != JINJA_MISSING && values[1].kind > JINJA_NONE &&
           (int64_t)batch.as.list->n < count)
        FSDP_TRY(fsdp_jinja_list_add(machine, batch.as.list, values[1]));
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_batch(jinja_machine *machine, jinja_value value,
                                    const jinja_args *args, jinja_value *out)
{
    deferred d = {.make = make_batches};
    FSDP_TRY(fsdp_jinja_bind("batch", "linecount,fill_with", 1, args, d.values));
    return defer(machine, value, &d, out);
}

static fsdp_status make_slices(jinja_machine *machine, jinja_value value, const jinja_value *values,
                               jinja_value *out)
{
    jinja_value items;
    int64_t slices;
    FSDP_TRY(fsdp_jinja_arg_int("slice", values[0], 0, &slices));
    FSDP_TRY(fsdp_jinja_to_list(machine, value, &items));
    FSDP_TRY(fsdp_jinja_list(machine, 0, out));
    if (slices == 0)
        return fsdp_error(FSDP_ERR_INVALID, "slice: division by zero");
    const int64_t n = (int64_t)items.as.list->n;
    for (int64_t i = 0, at = 0; i < slices; i++) {
        const int64_t size = n / slices + (i < n % slices);
        jinja_value part;
        FSDP_TRY(fsdp_jinja_list(machine, 0, &part));
        for (int64_t k = 0; k < size; k++)
            FSDP_TRY(fsdp_jinja_list_add(machine, part.as.list, items.as.list->items[at++]));
        if (values[1].kind > JINJA_NONE && i >= n % slices)
            FSDP_TRY(fsdp_jinja_list_add(machine, part.as.list, values[1]));
        FSDP_TRY(fsdp_jinja_list_add(machine, out->as.list, part));
    }
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_slice(jinja_machine *machine, jinja_value value,
                                    const jinja_args *args, jinja_value *out)
{
    deferred d = {.make = make_slices};
    FSDP_TRY(fsdp_jinja_bind("slice", "slices,fill_with", 1, args, d.values));
    return defer(machine, value, &d, out);
}

/* ---- order ----------------------------------------------------------------------------------- */

static fsdp_status ignore_case(jinja_machine *machine, jinja_value *value)
{
    if (value->kind != JINJA_STRING)
        return FSDP_OK;
    return fsdp_jinja_change_case(machine, value->as.string, JINJA_CASE_LOWER, value);
}

/* Set *key to the value by which an item is compared with others: the item, or its `attribute` if
 * this is given. If case_sensitive is false, a text is changed to lower case. */
static fsdp_status key_of(jinja_machine *machine, jinja_value item, jinja_value attribute,
                          bool case_sensitive, jinja_value *key)
{
    FSDP_TRY(fsdp_jinja_get_path(machine, item, attribute, key));
    return case_sensitive ? FSDP_OK : ignore_case(machine, key);
}

typedef struct keyed {
    jinja_value key, item;
} keyed;

/* Set *right_first to true if `right`, which is after `left` in the list, must be before `left` in
 * the sorted list. */
static fsdp_status is_before(jinja_machine *machine, const keyed *left, const keyed *right,
                             bool reverse, bool *right_first)
{
    int order;
    FSDP_TRY(reverse ? fsdp_jinja_order(machine, left->key, right->key, &order)
                     : fsdp_jinja_order(machine, right->key, left->key, &order));
    *right_first = order < 0;
    return FSDP_OK;
}

/* Merge the sorted parts [0, half) and [half, n) of `items`. `scratch` is memory for n items. */
static fsdp_status merge(jinja_machine *machine, keyed *items, keyed *scratch, size_t half,
                         size_t n, bool reverse)
{
    size_t left = 0, right = half, used = 0;
    while (left < half || right < n) {
        bool take_right = left == half;
        if (left < half && right < n)
            FSDP_TRY(is_before(machine, &items[left], &items[right], reverse, &take_right));
        scratch[used++] = take_right ? items[right++] : items[left++];
    }
    memcpy(items, scratch, n * sizeof *items);
    return FSDP_OK;
}

/* Sort by a stable merge sort. qsort() cannot be used, because a comparison may fail. */
static fsdp_status sort_keyed(jinja_machine *machine, keyed *items, keyed *scratch, size_t n,
                              bool reverse)
{
    if (n < 2)
        return FSDP_OK;
    FSDP_TRY(sort_keyed(machine, items, scratch, n / 2, reverse));
    FSDP_TRY(sort_keyed(machine, items + n / 2, scratch, n - n / 2, reverse));
    return merge(machine, items, scratch, n / 2, n, reverse);
}

static fsdp_status keyed_list(jinja_machine *machine, size_t n, keyed **items, keyed **scratch)
{
    FSDP_TRY(fsdp_jinja_alloc(machine, n * sizeof **items, items));
    return fsdp_jinja_alloc(machine, n * sizeof **items, scratch);
}

static fsdp_status sorted_list(jinja_machine *machine, keyed *items, keyed *scratch, size_t n,
                               bool reverse, jinja_value *out)
{
    jinja_value sorted;
    FSDP_TRY(sort_keyed(machine, items, scratch, n, reverse));
    FSDP_TRY(fsdp_jinja_list(machine, n, &sorted));
    for (size_t i = 0; i < n; i++)
        sorted.as.list->items[i] = items[i].item;
    sorted.as.list->n = n;
    *out = sorted;
    return FSDP_OK;
}

/* Set *key to the list of the values by which an item is sorted. There are several if `attribute`
 * has several names, such as "age,name". The key is a list even if there is only one value. The
 * reason is that Python compares two lists by their first items that differ. So two undefined
 * values, which are equal, are not compared by <, which would be an error. */
static fsdp_status sort_key(jinja_machine *machine, jinja_value item, jinja_value attribute,
                            bool case_sensitive, jinja_value *key)
{
    jinja_value all, part, name;
    FSDP_TRY(fsdp_jinja_list(machine, 0, &all));
    *key = all;
    if (attribute.kind != JINJA_STRING) {
        FSDP_TRY(key_of(machine, item, attribute, case_sensitive, &part));
        return fsdp_jinja_list_add(machine, all.as.list, part);
    }
    const jinja_string *names = attribute.as.string;
    for (size_t at = 0; at <= names->bytes;) {
        const char *comma = memchr(names->data + at, ',', names->bytes - at);
        const size_t end = comma ? (size_t)(comma - names->data) : names->bytes;
        FSDP_TRY(fsdp_jinja_substring(machine, names->data + at, end - at, &name));
        FSDP_TRY(key_of(machine, item, name, case_sensitive, &part));
        FSDP_TRY(fsdp_jinja_list_add(machine, all.as.list, part));
        at = end + 1;
    }
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_sort(jinja_machine *machine, jinja_value value,
                                   const jinja_args *args, jinja_value *out)
{
    jinja_value values[3], list;
    keyed *items, *scratch;
    FSDP_TRY(fsdp_jinja_bind("sort", "reverse,case_sensitive,attribute", 0, args, values));
    FSDP_TRY(fsdp_jinja_to_list(machine, value, &list));
    const size_t n = list.as.list->n;
    FSDP_TRY(keyed_list(machine, n, &items, &scratch));
    for (size_t i = 0; i < n; i++) {
        items[i].item = list.as.list->items[i];
        FSDP_TRY(sort_key(machine, items[i].item, values[2], fsdp_jinja_truth(values[1]),
                          &items[i].key));
    }
    return sorted_list(machine, items, scratch, n, fsdp_jinja_truth(values[0]), out);
}

fsdp_status fsdp_jinja_filter_dictsort(jinja_machine *machine, jinja_value value,
                                       const jinja_args *args, jinja_value *out)
{
    static jinja_string by_key = {.data = "key", .bytes = 3, .chars = 3};
    jinja_value values[3];
    jinja_string *by;
    keyed *items, *scratch;
    FSDP_TRY(fsdp_jinja_bind("dictsort", "case_sensitive,by,reverse", 0, args, values));
    FSDP_TRY(fsdp_jinja_arg_text("dictsort", values[1], &by_key, &by));
    const bool by_value = fsdp_jinja_string_is(by, "value");
    if (!by_value && !fsdp_jinja_string_is(by, "key"))
        return fsdp_error(FSDP_ERR_INVALID, "dictsort: by must be 'key' or 'value'");
    if (value.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(value);
    if (value.kind != JINJA_DICT)
        return fsdp_error(FSDP_ERR_INVALID, "dictsort: expected a dict, found %s",
                          fsdp_jinja_type_name(value));
    const size_t n = value.as.dict->n;
    FSDP_TRY(keyed_list(machine, n, &items, &scratch));
    for (size_t i = 0; i < n; i++) {
        const jinja_entry *entry = &value.as.dict->entries[i];
        FSDP_TRY(fsdp_jinja_pair(machine, entry->key, entry->value, &items[i].item));
        items[i].key = by_value ? entry->value : entry->key;
        if (!fsdp_jinja_truth(values[0]))
            FSDP_TRY(ignore_case(machine, &items[i].key));
    }
    return sorted_list(machine, items, scratch, n, fsdp_jinja_truth(values[2]), out);
}

static fsdp_status best_of(jinja_machine *machine, const char *name, jinja_value value,
                           const jinja_args *args, bool largest, jinja_value *out)
{
    jinja_value values[2];
    jinja_iterator *it;
    keyed best = {.key.kind = JINJA_MISSING}, next;
    FSDP_TRY(fsdp_jinja_bind(name, "case_sensitive,attribute", 0, args, values));
    FSDP_TRY(fsdp_jinja_iterate(machine, value, &it));
    for (bool first = true;; first = false) {
        bool better = first;
        FSDP_TRY(fsdp_jinja_next(machine, it, &next.item));
        if (next.item.kind == JINJA_MISSING)
            break;
        FSDP_TRY(key_of(machine, next.item, values[1], fsdp_jinja_truth(values[0]), &next.key));
        if (!first)
            FSDP_TRY(is_before(machine, &best, &next, largest, &better));
        best = better ? next : best;
    }
    *out = best.item;
    if (best.key.kind == JINJA_MISSING)
        return fsdp_jinja_undefined_hint(machine, "No aggregated item, sequence was empty.", out);
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_min(jinja_machine *machine, jinja_value value, const jinja_args *args,
                                  jinja_value *out)
{
    return best_of(machine, "min", value, args, false, out);
}

fsdp_status fsdp_jinja_filter_max(jinja_machine *machine, jinja_value value, const jinja_args *args,
                                  jinja_value *out)
{
    return best_of(machine, "max", value, args, true, out);
}

static fsdp_status make_unique(jinja_machine *machine, jinja_value value, const jinja_value *values,
                               jinja_value *out)
{
    jinja_value seen, item, key, found;
    jinja_iterator *it;
    FSDP_TRY(fsdp_jinja_iterate(machine, value, &it));
    FSDP_TRY(fsdp_jinja_dict(machine, &seen));
    FSDP_TRY(fsdp_jinja_list(machine, 0, out));
    for (;;) {
        FSDP_TRY(fsdp_jinja_next(machine, it, &item));
        if (item.kind == JINJA_MISSING)
            return FSDP_OK;
        FSDP_TRY(key_of(machine, item, values[1], fsdp_jinja_truth(values[0]), &key));
        FSDP_TRY(fsdp_jinja_dict_get(machine, seen.as.dict, key, &found));
        if (found.kind != JINJA_MISSING)
            continue;
        FSDP_TRY(fsdp_jinja_dict_set(machine, seen.as.dict, key, jinja_none()));
        FSDP_TRY(fsdp_jinja_list_add(machine, out->as.list, item));
    }
}

fsdp_status fsdp_jinja_filter_unique(jinja_machine *machine, jinja_value value,
                                     const jinja_args *args, jinja_value *out)
{
    deferred d = {.make = make_unique};
    FSDP_TRY(fsdp_jinja_bind("unique", "case_sensitive,attribute", 0, args, d.values));
    return defer(machine, value, &d, out);
}
