/* In what two checkpoints differ, whatever their formats. */
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
    const fsdp_source_item *a, *b; /* NULL: not there */
    int64_t n_different;           /* elements */
    double largest;                /* |a - b|; infinite if one of them is NaN; NAN if the elements
                                      are no numbers that this library knows */
    const char *value_a, *value_b; /* plain values, as Python shows them */
} fsdp_difference;

typedef fsdp_status fsdp_difference_fn(const fsdp_difference *difference, void *context);

/* Zero means default. */
typedef struct fsdp_diff_options {
    bool has_tolerance; /* elements count as equal if |a - b| <= tolerance or both are NaN;
                           default: if they have the same bits */
    double tolerance;
    bool ignore_dtype; /* another dtype is no difference: values are compared */
    bool model_only;   /* the model's tensors alone; default: everything, unless one of the two
                          has them below other keys than the other */
    fsdp_source_progress_fn *progress; /* NULL: nobody asks */
} fsdp_diff_options;

typedef struct fsdp_diff_result {
    size_t compared; /* items that both have */
    size_t differences;
    size_t unread;   /* values that are, or hold, objects of one class, which are not compared */
    bool model_only; /* that the models alone were compared */
    fsdp_name_change of_a, of_b; /* what all names of one lost to be those of the other */
} fsdp_diff_result;

/* Call `told` with every difference, by name, and `progress`, both with `context`. FSDP_ERR_FORMAT
 * for damage that shows while elements are read; what `told` returns. */
FSDP_MUST_CHECK fsdp_status fsdp_diff(fsdp_source *a, fsdp_source *b,
                                      const fsdp_diff_options *options, fsdp_difference_fn *told,
                                      void *context, fsdp_diff_result *result);
