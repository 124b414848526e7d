/* Adds a trainable low-rank update to the weight of a linear layer.
 *
 * Note [Adapters]. LoRA (Hu et al. 2021, arXiv 2106.09685) replaces y = x W^T by
 *
 *     y = x W^T + scaling * (dropout(x) A^T) B^T
 *
 * with A [r, in] and B [out, r], where r is small. An adapter belongs to the parameter W, not to
 * the module that contains it. So the forwards of models do not change: the functions that apply a
 * weight to an input call fsdp_adapter_add(). A weight may also be the table of an embedding (tied
 * weights). Lookups in this table do not use the adapter.
 *
 * A and B are ordinary parameters of two modules below the linear layer, lora_A and lora_B. They
 * belong to the unit of the block around them, and are sharded, gathered and reduced with it. A
 * program may make lora_A and lora_B units of their own (fsdp_fully_shard()); docs/decisions/40
 * says why this is not the default. An adapter with magnitudes cannot be divided in this way,
 * because the norms need all of its matrices and W at the same time.
 *
 * An adapter with magnitudes is DoRA's (Note [Magnitudes] in src/autograd/magnitude.h). It changes
 * the whole product, not only what is added to it, so layers call fsdp_adapter_apply() instead of
 * the product. The magnitudes are a parameter of the linear layer itself, lora_magnitude_vector. As
 * in peft, lora_dropout also applies to the input of x W^T here: with x' = dropout(x), the layer
 * returns x W^T + bias - x' W^T + f (x' W^T + scaling (x' A^T) B^T), where f is magnitudes / norms.
 */
#pragma once
#include "src/base/alloc.h"
#include "src/nn/module.h"

struct fsdp_adapter {
    const fsdp_parameter *a; /* lora_A.weight [r, in] */
    const fsdp_parameter *b; /* lora_B.weight [out, r] */
    float scaling;           /* lora_alpha / r, or lora_alpha / sqrt(r) with rank-stabilised LoRA */
    bool transposed;         /* W is [in, out], the weight of a Conv1D */
    float dropout_p;         /* probability with which an element of x is dropped, in [0, 1) */
    /* lora_magnitude_vector [out], the trained norms of the rows of W + scaling * B A; NULL: the
     * adapter is LoRA's */
    fsdp_parameter *magnitude;
    /* [out] float32: the norms that the rows have now. If it is NULL, each forward computes them.
     * Set only in a model whose parameters do not change any more. Owned. */
    fsdp_tensor *norms;
};

/* Attach a copy of *adapter to the parameter `weight`, which owns the copy. The old adapter of
 * `weight` is freed. If `adapter` is NULL, `weight` has no adapter afterwards. The parameters a and
 * b are borrowed: they must exist as long as `weight` is read. */
FSDP_MUST_CHECK fsdp_status fsdp_parameter_set_adapter(fsdp_parameter *weight,
                                                       const fsdp_adapter *adapter);
/* Set the norms of the adapter of `weight`, which has magnitudes. The adapter retains the tensor.
 * If `norms` is NULL, each forward computes the norms again. */
void fsdp_adapter_set_norms(const fsdp_parameter *weight, fsdp_tensor *norms);
/* Free the adapter of `weight`, if there is one. */
static inline void fsdp_parameter_free_adapter(fsdp_parameter *weight)
{
    if (weight->adapter)
        fsdp_tensor_release(weight->adapter->norms);
    fsdp_free(weight->adapter);
    weight->adapter = NULL;
}
/* Return true if `weight` has an adapter with magnitudes. Its layer must then call
 * fsdp_adapter_apply(). */
static inline bool fsdp_adapter_has_magnitudes(const fsdp_parameter *weight)
{
    return weight->adapter && weight->adapter->magnitude;
}
/* Return the result of a linear layer whose weight has an adapter with magnitudes. x is [T, in];
 * the bias [out] may be NULL. */
fsdp_tensor *fsdp_adapter_apply(fsdp_scope *s, const fsdp_parameter *weight, fsdp_tensor *x,
                                fsdp_tensor *bias);
/* Return the norms of the rows of W + scaling * B A: fsdp_weight_norm(). The unit of the parameters
 * must be gathered. */
fsdp_tensor *fsdp_adapter_norms(fsdp_scope *s, const fsdp_parameter *weight);
/* Return y plus the update that the adapter of `weight` computes from x, and drop y. If `weight`
 * has no adapter, return y. x [T, in] and y [T, out] have the same dtype. The adapter has no
 * magnitudes. */
fsdp_tensor *fsdp_adapter_add(fsdp_scope *s, const fsdp_parameter *weight, fsdp_tensor *x,
                              fsdp_tensor *y);
