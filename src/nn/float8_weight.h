/* Marks a weight whose products are computed in float8.
 *
 * Note [Float8 weights]. Like an adapter (Note [Adapters] in adapter.h), the choice belongs to the
 * parameter, not to the module that contains it. So the forwards of models do not change: the
 * functions that apply a weight to an input call fsdp_float8_apply() if fsdp_parameter.float8 is
 * set.
 *
 * If `gathers` is true, the ranks of a unit exchange the weight in float8 (Note [Float8 all-gather]
 * in src/fsdp/storage_float8.c). Operations then read codes of one byte, and divide the values of
 * the codes by `scale`. If `gathers` is false, operations read the weight in param_dtype, and cast
 * it in each call. */
#pragma once
#include "src/nn/module.h"

struct fsdp_float8_weight {
    fsdp_float8_recipe recipe;
    bool gathers; /* only with FSDP_FLOAT8_TENSORWISE */
    /* [1] float32 on the device of the weight: the factor by which the weight was multiplied before
     * it was cast to codes. This struct owns the tensor; the owner of the parameter's memory sets
     * it. NULL: the weight is not gathered in float8. */
    fsdp_tensor *scale;
};

/* Compute the products of `weight` in float8 from now on. Call this before the parameter has
 * memory. */
FSDP_MUST_CHECK fsdp_status fsdp_parameter_set_float8(fsdp_parameter *weight,
                                                      fsdp_float8_recipe recipe, bool gathers);
void fsdp_parameter_clear_float8(fsdp_parameter *weight);
/* Return x [T, in] times the transpose of `weight` [out, in], plus the bias (NULL: none). The
 * weight must have fsdp_parameter.float8. */
fsdp_tensor *fsdp_float8_apply(fsdp_scope *s, const fsdp_parameter *weight, fsdp_tensor *x,
                               fsdp_tensor *bias);
