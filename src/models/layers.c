/* See layers.h. */
#include "src/models/layers.h"

#include "src/autograd/activated_linear.h"
#include "src/autograd/activation.h"
#include "src/autograd/joined_linear.h"
#include "src/nn/adapter.h"
#include "src/nn/float8_weight.h"

static fsdp_tensor *bias_of(fsdp_scope *s, const fsdp_layer *layer)
{
    return layer->bias ? fsdp_read(s, layer->bias) : NULL;
}

bool fsdp_layer_is_applied_by_itself(const fsdp_layer *layer)
{
    return layer->weight->adapter || layer->weight->float8;
}

fsdp_tensor *fsdp_apply_linear(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layer)
{
    fsdp_tensor *bias = bias_of(s, layer);
    if (fsdp_adapter_has_magnitudes(layer->weight))
        return fsdp_adapter_apply(s, layer->weight, x, bias);
    fsdp_tensor *y = layer->weight->float8 ? fsdp_float8_apply(s, layer->weight, x, bias)
                                           : fsdp_linear(s, x, fsdp_read(s, layer->weight), bias);
    return fsdp_adapter_add(s, layer->weight, x, y);
}

fsdp_tensor *fsdp_apply_conv1d(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layer)
{
    if (fsdp_adapter_has_magnitudes(layer->weight))
        return fsdp_adapter_apply(s, layer->weight, x, bias_of(s, layer));
    fsdp_tensor *y = fsdp_conv1d(s, x, fsdp_read(s, layer->weight), bias_of(s, layer));
    return fsdp_adapter_add(s, layer->weight, x, y);
}

void fsdp_apply_joined(fsdp_scope *s, fsdp_tensor *x, const fsdp_layer *layers, int n,
                       fsdp_tensor **out)
{
    fsdp_tensor *w[FSDP_MAX_JOINED], *bias[FSDP_MAX_JOINED];
    bool apart = false;
    for (int i = 0; i < n; i++)
        apart |= fsdp_layer_is_applied_by_itself(&layers[i]);
    for (int i = 0; i < n; i++) {
        if (apart)
            out[i] = fsdp_apply_linear(s, x, &layers[i]);
        w[i] = fsdp_read(s, layers[i].weight);
        bias[i] = bias_of(s, &layers[i]);
    }
    if (!apart)
        fsdp_joined_linear(s, x, w, layers[0].bias ? bias : NULL, n, out);
}

/* Compute the activation as a tensor, then apply the layer to it. An adapter or float8 needs this
 * tensor: an adapter reads the input of the layer, and float8 scales it. */
static fsdp_tensor *activated_before(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                     fsdp_tensor *up, const fsdp_layer *layer, bool transposed)
{
    fsdp_tensor *hidden = up ? fsdp_gated_dropout(s, a, x, up, 0.0f) : fsdp_activate(s, a, x);
    fsdp_tensor *y =
        transposed ? fsdp_apply_conv1d(s, hidden, layer) : fsdp_apply_linear(s, hidden, layer);
    if (hidden != x)
        fsdp_drop(s, hidden);
    return y;
}

static fsdp_tensor *activated(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x, fsdp_tensor *up,
                              const fsdp_layer *layer, bool transposed)
{
    if (fsdp_layer_is_applied_by_itself(layer))
        return activated_before(s, a, x, up, layer, transposed);
    return fsdp_activated_linear(s, a, x, up, fsdp_read(s, layer->weight), bias_of(s, layer),
                                 transposed);
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
