/* Functions that apply the layers of modules (fsdp_layer in builder.h). */
#pragma once
#include "src/kernels/kernels.h"
#include "src/models/builder.h"

/* Return true if the layer must be applied by one of the functions below, because it has an
 * adapter, or because its product is computed in float8, which scales whole tensors. Such a layer
 * cannot be part of an operation that computes more than the layer. */
bool fsdp_layer_is_applied_by_itself(const fsdp_layer *layer);
/* Apply a Linear to x [T, in]; the result is [T, out]. The weight is [out, in]. The bias is
 * optional. */
fsdp_tensor *fsdp_apply_linear(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layer);
/* Apply a Conv1D to x [T, in]; the result is [T, out]. The weight is [in, out]. */
fsdp_tensor *fsdp_apply_conv1d(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layer);
/* Apply a Linear to a(x) or, if `up` is not NULL, to a(x) * up, where `a` is an activation
 * function. */
fsdp_tensor *fsdp_apply_activated_linear(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                         fsdp_tensor *up, const fsdp_layer *layer);
fsdp_tensor *fsdp_apply_activated_conv1d(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                         const fsdp_layer *layer);
fsdp_tensor *fsdp_apply_layer_norm(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layer,
                                   double eps);
/* Apply n Linears to the same input x [T, in]; out[i] is [T, out]. The results may be passed only
 * to fsdp_attention() (Note [Joined products] in src/autograd/joined_linear.h). */
void fsdp_apply_joined(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layers, int n,
                       fsdp_tensor **out);
/* Return dropout(x), and drop x if the result is another tensor. */
fsdp_tensor *fsdp_apply_dropout(fsdp_scope *s, fsdp_tensor *x, double p);
