/* See layers.h. */
#include "src/models/layers.h"

#include "src/autograd/activated_linear.h"

fsdp_tensor *fsdp_apply_linear(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layer)
{
    return fsdp_linear(s, x, fsdp_read(s, layer->weight),
                       layer->bias ? fsdp_read(s, layer->bias) : NULL);
}

fsdp_tensor *fsdp_apply_conv1d(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layer)
{
    return fsdp_conv1d(s, x, fsdp_read(s, layer->weight), fsdp_read(s, layer->bias));
}

static fsdp_tensor *activated(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x, fsdp_tensor *up,
                              const fsdp_layer *layer, bool transposed)
{
    fsdp_tensor *bias = layer->bias ? fsdp_read(s, layer->bias) : NULL;
    return fsdp_activated_linear(s, a, x, up, fsdp_read(s, layer->weight), bias, transposed);
}

fsdp_tensor *fsdp_apply_activated_linear(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                         fsdp_tensor *up, const fsdp_layer *layer)
{
    return activated(s, a, x, up, layer, false);
}

fsdp_tensor *fsdp_apply_activated_conv1d(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                         const fsdp_layer *layer)
{
    return activated(s, a, x, NULL, layer, true);
}

fsdp_tensor *fsdp_apply_layer_norm(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layer,
                                   double eps)
{
    return fsdp_layer_norm(s, x, fsdp_read(s, layer->weight), fsdp_read(s, layer->bias),
                           (float)eps);
}

fsdp_tensor *fsdp_apply_dropout(fsdp_scope *s, fsdp_tensor *x, double p)
{
    fsdp_tensor *y = fsdp_dropout(s, x, (float)p);
    if (y != x)
        fsdp_drop(s, x);
    return y;
}
