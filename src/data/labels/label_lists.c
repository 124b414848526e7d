/* See label_lists.h. */
#include "src/data/labels/label_lists.h"

#include <inttypes.h>

enum {
    MOST_COMPARED = 64 /* entries of a list that are compared, to find equal ones */
};

/* If `entry` is a whole number, set *number to it and return true. */
static bool is_whole(fsdp_json_node entry, int64_t *number)
{
    return fsdp_json_kind_of(entry) == FSDP_JSON_INT &&
           fsdp_json_get_i64(entry, NULL, INT64_MIN, INT64_MAX, number) == FSDP_OK;
}

/* Return true if `number` is equal to one of the first `end` entries. Compare at most MOST_COMPARED
 * entries. */
static bool occurs_before(fsdp_json_node list, size_t end, int64_t number)
{
    int64_t other;
    for (size_t i = 0; i < end && i < MOST_COMPARED; i++)
        if (is_whole(fsdp_json_at(list, i), &other) && other == number)
            return true;
    return false;
}

typedef enum list_kind {
    MULTI_HOT,
    INDICES,
    UNCLEAR
} list_kind;

/* Return what a list of numbers can be. It is not a list of indices if it has a fraction, a truth
 * value, or a number twice. It is not multi-hot if it has a number other than 0 and 1, or if its
 * length is not the number of classes. */
static list_kind kind_of(fsdp_json_node list, int64_t num_classes, int64_t *largest)
{
    const size_t n = fsdp_json_len(list);
    bool only_bits = true, any_one = false;
    int64_t number;
    for (size_t i = 0; i < n; i++) {
        if (!is_whole(fsdp_json_at(list, i), &number) || occurs_before(list, i, number))
            return MULTI_HOT;
        only_bits = only_bits && (number == 0 || number == 1);
        any_one |= number == 1;
        *largest = number > *largest ? number : *largest;
    }
    if (!only_bits || (num_classes != INT32_MAX && (int64_t)n != num_classes))
        return INDICES;
    /* With one class, the only index is 0. */
    return num_classes == 1 && any_one ? MULTI_HOT : UNCLEAR;
}

static void note(int64_t *first, int64_t row)
{
    if (!*first)
        *first = row;
}

void fsdp_list_evidence_add(fsdp_list_evidence *e, fsdp_json_node list, int64_t row,
                            int64_t num_classes)
{
    const int64_t n = (int64_t)fsdp_json_len(list);
    int64_t largest = e->length ? e->largest : -1;
    if (n == 0) /* the row has no class */
        return;
    const list_kind kind = kind_of(list, num_classes, &largest);
    e->largest = largest;
    if (kind == MULTI_HOT)
        note(&e->multi_hot_row, row);
    else if (kind == INDICES || (e->length && n != e->length))
        note(&e->indices_row, row);
    else
        note(&e->unclear_row, row);
    if (!e->length)
        e->length = n;
}

fsdp_status fsdp_list_evidence_decide(const fsdp_list_evidence *e, const char *path,
                                      const char *place, fsdp_label_lists *lists)
{
    static const char advice[] = "--label-lists indices or multi-hot says what they are";
    *lists = e->indices_row ? FSDP_LABEL_LISTS_INDICES : FSDP_LABEL_LISTS_MULTI_HOT;
    if (e->indices_row && e->multi_hot_row)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: label: the list of %s %" PRId64 " has classes (its length differs, "
                          "or a number is above 1), but that of %s %" PRId64 " a number for each "
                          "class (a fraction, or a number twice): %s",
                          path, place, e->indices_row, place, e->multi_hot_row, advice);
    if (!e->indices_row && !e->multi_hot_row && e->unclear_row)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: label: lists such as that of %s %" PRId64 " may be the classes of a "
                          "row, or a 0 or 1 for each class: %s",
                          path, place, e->unclear_row, advice);
    return FSDP_OK;
}
