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
 * belong to the unit of the block around them, and are sharded, gathered and reduced with it. */
#pragma once
#include "src/nn/module.h"

struct fsdp_adapter {
    const fsdp_parameter *a; /* lora_A.weight [r, in] */
    const fsdp_parameter *b; /* lora_B.weight [out, r] */
    float scaling;           /* lora_alpha / r, or lora_alpha / sqrt(r) with rank-stabilised LoRA */
    bool transposed;         /* W is [in, out], the weight of a Conv1D */
    float dropout_p;         /* probability with which an element of x is dropped, in [0, 1) */
};

/* Attach a copy of *adapter to the parameter `weight`, which owns the copy. The old adapter of
 * `weight` is freed. If `adapter` is NULL, `weight` has no adapter afterwards. The parameters a and
 * b are borrowed: they must exist as long as `weight` is read. */
FSDP_MUST_CHECK fsdp_status fsdp_parameter_set_adapter(fsdp_parameter *weight,
                                                       const fsdp_adapter *adapter);
/* Return y plus the update that the adapter of `weight` computes from x, and drop y. If `weight`
 * has no adapter, return y. x [T, in] and y [T, out] have the same dtype. */
fsdp_tensor *fsdp_adapter_add(fsdp_scope *s, const fsdp_parameter *weight, fsdp_tensor *x,
                              fsdp_tensor *y);
