/* Differences between two checkpoints of any formats. */
#pragma once
#include "src/source/selection.h"

typedef enum fsdp_difference_kind {
    FSDP_DIFFERENCE_ONLY_IN_A,
    FSDP_DIFFERENCE_ONLY_IN_B,
    FSDP_DIFFERENCE_KIND,  /* a tensor in one, a plain value in the other */
    FSDP_DIFFERENCE_SHAPE, /* elements were not compared */
    FSDP_DIFFERENCE_DTYPE, /* elements were compared too */
    FSDP_DIFFERENCE_ELEMENTS,
    FSDP_DIFFERENCE_VALUE, /* plain values */
} fsdp_difference_kind;

typedef struct fsdp_difference {
    fsdp_difference_kind kind;
    const char *name;
    const fsdp_source_item *a, *b; /* NULL: the item is missing */
    int64_t n_different;           /* number of different elements */
    double largest; /* largest |a - b|; infinite if one of the two is NaN; NAN if this library
                       cannot read the elements as numbers */
    const char *value_a, *value_b; /* plain values, as Python shows them */
} fsdp_difference;

typedef fsdp_status fsdp_difference_fn(const fsdp_difference *difference, void *context);

/* Zero means default. */
typedef struct fsdp_diff_options {
    bool has_tolerance; /* elements count as equal if |a - b| <= tolerance or both are NaN;
                           default: if they have the same bits */
    double tolerance;
    bool ignore_dtype; /* a different dtype is not a difference: only values are compared */
    bool model_only; /* only the model's tensors; default: everything, unless the two have the model
                        below different keys */
    fsdp_source_progress_fn *progress; /* may be NULL */
} fsdp_diff_options;

typedef struct fsdp_diff_result {
    size_t compared; /* items that both have */
    size_t differences;
    size_t unread; /* values that are, or hold, objects of the same class, which are not compared */
    bool model_only; /* only the models were compared */
    fsdp_name_change of_a,
        of_b; /* change of all names that makes those of one the names of the other */
} fsdp_diff_result;

/* Call `on_difference` with every difference, in order of names, and `progress`, both with
 * `context`. FSDP_ERR_FORMAT for damage that is found while elements are read; errors of
 * `on_difference` are passed on. */
FSDP_MUST_CHECK fsdp_status fsdp_diff(fsdp_source *a, fsdp_source *b,
                                      const fsdp_diff_options *options,
                                      fsdp_difference_fn *on_difference, void *context,
                                      fsdp_diff_result *result);
