/* Finds the differences between two checkpoints, whose formats may differ. */
#pragma once
#include "src/source/selection.h"

typedef enum fsdp_difference_kind {
    FSDP_DIFFERENCE_ONLY_IN_A,
    FSDP_DIFFERENCE_ONLY_IN_B,
    FSDP_DIFFERENCE_KIND,  /* a tensor in one checkpoint, a plain value in the other */
    FSDP_DIFFERENCE_SHAPE, /* the shapes differ; elements were not compared */
    FSDP_DIFFERENCE_DTYPE, /* the dtypes differ; elements were also compared */
    FSDP_DIFFERENCE_ELEMENTS,
    FSDP_DIFFERENCE_VALUE, /* the plain values differ */
} fsdp_difference_kind;

typedef struct fsdp_difference {
    fsdp_difference_kind kind;
    const char *name;
    const fsdp_source_item *a, *b; /* NULL if the item is missing in that checkpoint */
    int64_t n_different;           /* number of different elements */
    double largest; /* largest |a - b| of two corresponding elements; infinite if only one of them
                       is NaN; NAN if this library cannot read the elements as numbers */
    const char *value_a, *value_b; /* the plain values as Python shows them */
} fsdp_difference;

typedef fsdp_status fsdp_difference_fn(const fsdp_difference *difference, void *context);

/* A field that is zero has its default value. */
typedef struct fsdp_diff_options {
    bool has_tolerance; /* elements are equal if |a - b| <= tolerance or both are NaN. By default,
                           elements of the same dtype are equal if their bits are equal, and
                           elements of different dtypes if their values are equal */
    double tolerance;
    bool ignore_dtype; /* do not report that dtypes differ */
    bool model_only; /* compare only the models' tensors; by default everything is compared, unless
                        the models are below different keys */
    fsdp_source_progress_fn *progress; /* may be NULL */
} fsdp_diff_options;

typedef struct fsdp_diff_result {
    size_t compared; /* number of items that are in both checkpoints and were compared */
    size_t differences;
    size_t unread; /* number of values that were not compared, because they are or contain instances
                      of classes, whose contents are not read; the classes are the same in both
                      checkpoints */
    bool model_only;             /* only the models were compared */
    fsdp_name_change of_a, of_b; /* the prefix that was removed from all names in A or in B to make
                                    the names equal */
} fsdp_diff_result;

/* Compare two checkpoints. Calls `on_difference` with every difference, in the order of names, and
 * options->progress. `context` is an argument of both functions. Returns FSDP_ERR_FORMAT for damage
 * that is found while elements are read, and any error of `on_difference`. */
FSDP_MUST_CHECK fsdp_status fsdp_diff(fsdp_source *a, fsdp_source *b,
                                      const fsdp_diff_options *options,
                                      fsdp_difference_fn *on_difference, void *context,
                                      fsdp_diff_result *result);
