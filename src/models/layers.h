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

/* Note [Input of the first layer]. A checkpointed layer keeps its input, and runs again with it.
 * That of the first layer is made of ids, by lookups, a sum, a norm, dropout: less work than a
 * single product. So where the first layer is checkpointed, it calls the embeddings itself, with
 * nothing for its input, and both are made again from the ids: one tensor [T, D] less of as many as
 * there are layers. The unit that has the embeddings' weight is around the layers, and so is there
 * for the second run. Embeddings that are a unit of their own would have to be gathered for it, and
 * are not called within a layer; nor are those that are checkpointed themselves, nor those of a
 * model of one layer.
 *
 * Is it so in `layers`, a ModuleList, of which the last may have a forward of its own? `embeddings`
 * NULL: they are no module that is called. */
bool fsdp_first_layer_embeds(const fsdp_module *layers, const fsdp_module *embeddings);
