/* Finds the differences between two checkpoints, whose formats may differ. */
#pragma once
#include "src/source/selection.h"

typedef enum fsdp_difference_kind {
    FSDP_DIFFERENCE_ONLY_IN_A,
    FSDP_DIFFERENCE_ONLY_IN_B,
    FSDP_DIFFERENCE_KIND,  /* a tensor in one checkpoint, a plain value in the other */
    FSDP_DIFFERENCE_SHAPE, /* the shapes differ; elements were not compared */
    FSDP_DIFFERENCE_DTYPE, /* the dtypes differ; elements were compared, too */
    FSDP_DIFFERENCE_ELEMENTS,
    FSDP_DIFFERENCE_VALUE, /* plain values */
} fsdp_difference_kind;

typedef struct fsdp_difference {
    fsdp_difference_kind kind;
    const char *name;
    const fsdp_source_item *a, *b; /* NULL if the item is missing in that checkpoint */
    int64_t n_different;           /* number of different elements */
    double largest; /* largest |a - b| of two elements; infinite if only one of them is NaN; NAN if
                       this library cannot read the elements as numbers */
    const char *value_a, *value_b; /* plain values, as Python shows them */
} fsdp_difference;

typedef fsdp_status fsdp_difference_fn(const fsdp_difference *difference, void *context);

/* Zero means default. */
typedef struct fsdp_diff_options {
    bool has_tolerance; /* elements count as equal if |a - b| <= tolerance or both are NaN; by
                           default, if they have the same bits */
    double tolerance;
    bool ignore_dtype; /* a different dtype is not a difference: only values are compared */
    bool model_only; /* compare only the model's tensors; by default everything is compared, unless
                        the models are below different keys */
    fsdp_source_progress_fn *progress; /* may be NULL */
} fsdp_diff_options;

typedef struct fsdp_diff_result {
    size_t compared; /* items that are in both checkpoints and were compared */
    size_t differences;
    size_t unread; /* values that were not compared, because they are or contain objects of classes,
                      whose contents are not read; the classes are the same in both checkpoints */
    bool model_only;             /* only the models were compared */
    fsdp_name_change of_a, of_b; /* the prefix that was removed from all names of A or of B, so that
                                    the names are the same */
} fsdp_diff_result;

/* Compare two checkpoints. Calls `on_difference` with every difference, in the order of names, and
 * options->progress; `context` is an argument of both functions. Returns FSDP_ERR_FORMAT for damage
 * that is found while elements are read. Errors of `on_difference` are passed on. */
FSDP_MUST_CHECK fsdp_status fsdp_diff(fsdp_source *a, fsdp_source *b,
                                      const fsdp_diff_options *options,
                                      fsdp_difference_fn *on_difference, void *context,
                                      fsdp_diff_result *result);
