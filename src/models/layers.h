/* Layers as modules keep them (fsdp_layer of builder.h), applied. */
#pragma once
#include "src/kernels/kernels.h"
#include "src/models/builder.h"

/* x [T, in] -> [T, out]: weight [out, in] of a Linear, whose bias may be absent, [in, out] of a
 * Conv1D. */
fsdp_tensor *fsdp_apply_linear(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layer);
fsdp_tensor *fsdp_apply_conv1d(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layer);
/* The same of a(x), or of a(x) * up where up is not NULL. */
fsdp_tensor *fsdp_apply_activated_linear(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                         fsdp_tensor *up, const fsdp_layer *layer);
fsdp_tensor *fsdp_apply_activated_conv1d(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                         const fsdp_layer *layer);
fsdp_tensor *fsdp_apply_layer_norm(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layer,
                                   double eps);
/* dropout; what it replaces is dropped. */
fsdp_tensor *fsdp_apply_dropout(fsdp_scope *s, fsdp_tensor *x, double p);
