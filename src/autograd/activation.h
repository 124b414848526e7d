/* Activation functions that are chosen at run time. The functions in <fsdp/autograd.h>, such as
 * fsdp_gelu() and fsdp_geglu_dropout(), have one activation function each. Implemented in
 * ops_pointwise.c. */
#pragma once
#include "src/autograd/autograd.h"

/* Return a(x). For FSDP_ACTIVATION_NONE, return x itself. */
fsdp_tensor *fsdp_activate(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x);
/* Return dropout(a(gate) * up, p). The result is not kept for backward, which computes it again.
 * `gate` and `up` must have the same shape and dtype. p must be in [0, 1]. */
fsdp_tensor *fsdp_gated_dropout(fsdp_scope *s, fsdp_activation a, fsdp_tensor *gate,
                                fsdp_tensor *up, float p);
