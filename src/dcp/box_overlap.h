/* Finds boxes of a tensor that overlap. */
#pragma once
#include <fsdp/base.h>

/* A box of a tensor. It must not be empty. */
typedef struct fsdp_dcp_extent {
    const int64_t *offsets, *sizes; /* [ndim] */
    size_t owner;                   /* the caller's number for the box */
} fsdp_dcp_extent;

/* Search `extents` [n] for two boxes that overlap. The function may change the order of `extents`.
 * If two boxes overlap, set *a and *b to their owners, with *a < *b, and return true.
 *
 * The boxes are sorted along the first dimension in which their offsets differ, and each box is
 * compared only with the following boxes that begin before it ends. So N boxes that are blocks of
 * rows of a tensor need about N comparisons. N boxes in a square grid need about N times the square
 * root of N. */
bool fsdp_dcp_find_overlap(fsdp_dcp_extent *extents, size_t n, int ndim, size_t *a, size_t *b);
