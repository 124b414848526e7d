/* Finds the differences between two checkpoints, A and B. Their formats may differ. */
#pragma once
#include "src/source/selection.h"

typedef enum fsdp_difference_kind {
    FSDP_DIFFERENCE_ONLY_IN_A,
    FSDP_DIFFERENCE_ONLY_IN_B,
    FSDP_DIFFERENCE_KIND,  /* the item is a tensor in one checkpoint and a plain value in the
                              other */
    FSDP_DIFFERENCE_SHAPE, /* the shapes differ; the elements were not compared */
    FSDP_DIFFERENCE_DTYPE, /* the dtypes differ; the elements were compared, too, and may be
                              equal */
    FSDP_DIFFERENCE_ELEMENTS,
    FSDP_DIFFERENCE_VALUE, /* the plain values differ */
} fsdp_difference_kind;

typedef struct fsdp_difference {
    fsdp_difference_kind kind;
    const char *name;
    const fsdp_source_item *a, *b; /* the item in A and in B; NULL: it is missing there */
    int64_t n_different;           /* number of elements that differ */
    /* Largest |a - b|, where a and b are the elements of A and B at the same index. The difference
     * is infinite if either a or b is NaN, but not both. `largest` is NAN if the elements cannot be
     * read as numbers. */
    double largest;
    const char *value_a, *value_b; /* the plain values in A and in B, as Python's repr() shows
                                      them */
} fsdp_difference;

typedef fsdp_status fsdp_difference_fn(const fsdp_difference *difference, void *context);

/* {0}: all fields have their defaults. */
typedef struct fsdp_diff_options {
    /* true: two elements are equal if |a - b| <= tolerance, or if both are NaN. false: two elements
     * of the same dtype are equal if their bits are equal; two elements of different dtypes are
     * equal if their values are equal. */
    bool has_tolerance;
    double tolerance;
    bool ignore_dtype; /* true: different dtypes alone are not a difference */
    /* true: compare only the models' tensors. false: compare all items, with one exception: if the
     * models in A and B are below different keys, only the models' tensors are compared. */
    bool model_only;
    fsdp_source_progress_fn *progress; /* may be NULL */
} fsdp_diff_options;

typedef struct fsdp_diff_result {
    size_t compared; /* number of items that are in both checkpoints and were compared */
    size_t differences;
    /* Number of values that are in both checkpoints but were not compared completely. These
     * values are objects of classes, or contain such objects. The classes are the same in both
     * checkpoints, but the contents of the objects are not read. */
    size_t unread;
    bool model_only; /* true: only the models' tensors were compared */
    /* If all names in A begin with a prefix that the names in B lack, of_a has this prefix, and it
     * was removed from the names in A. of_b has the prefix that was removed from the names in B. A
     * prefix is "" if nothing was removed. */
    fsdp_name_change of_a, of_b;
} fsdp_diff_result;

/* Compare the checkpoints `a` and `b`. Calls on_difference() for each difference, in the byte order
 * of the names, and options->progress() after each item. Both functions get `context`. Returns
 * FSDP_ERR_FORMAT if damage is found while elements are read. If on_difference() fails, its error
 * is returned. */
FSDP_MUST_CHECK fsdp_status fsdp_diff(fsdp_source *a, fsdp_source *b,
                                      const fsdp_diff_options *options,
                                      fsdp_difference_fn *on_difference, void *context,
                                      fsdp_diff_result *result);
