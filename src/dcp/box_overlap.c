/* See box_overlap.h. */
#include "src/dcp/box_overlap.h"

#include <stdlib.h>

/* Return the first dimension in which the offsets of the boxes differ; 0 if there is none. */
static int sweep_dimension(const fsdp_dcp_extent *extents, size_t n, int ndim)
{
    for (int d = 0; d < ndim; d++)
        for (size_t i = 1; i < n; i++)
            if (extents[i].offsets[d] != extents[0].offsets[d])
                return d;
    return 0;
}

/* The dimension along which compare_extents() sorts. It is a variable, because qsort() cannot pass
 * an argument to compare_extents(). */
static _Thread_local int sorted_dimension;

static int compare_extents(const void *a, const void *b)
{
    const fsdp_dcp_extent *x = a, *y = b;
    const int64_t first = x->offsets[sorted_dimension], second = y->offsets[sorted_dimension];
    if (first != second)
        return first < second ? -1 : 1;
    return x->owner < y->owner ? -1 : x->owner > y->owner;
}

static bool is_sorted(const fsdp_dcp_extent *extents, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (compare_extents(&extents[i - 1], &extents[i]) > 0)
            return false;
    return true;
}

static bool overlap(const fsdp_dcp_extent *a, const fsdp_dcp_extent *b, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (a->offsets[d] >= b->offsets[d] + b->sizes[d] ||
            b->offsets[d] >= a->offsets[d] + a->sizes[d])
            return false;
    return true;
}

bool fsdp_dcp_find_overlap(fsdp_dcp_extent *extents, size_t n, int ndim, size_t *a, size_t *b)
{
    const int d = sorted_dimension = sweep_dimension(extents, n, ndim);
    /* A box without dimensions has one element, and no offset by which it could be sorted. */
    if (ndim > 0 && !is_sorted(extents, n))
        qsort(extents, n, sizeof *extents, compare_extents);
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++) {
            if (ndim > 0 && extents[k].offsets[d] >= extents[i].offsets[d] + extents[i].sizes[d])
                break;
            if (!overlap(&extents[i], &extents[k], ndim))
                continue;
            const size_t x = extents[i].owner, y = extents[k].owner;
            *a = x < y ? x : y;
            *b = x < y ? y : x;
            return true;
        }
    return false;
}
