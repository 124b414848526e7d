/* Layers (Linear, Embedding, norms). A layer is a module that only holds parameters. The
 * ..._forward() functions pass the parameters to operations. */
#include "src/autograd/float8_linear.h"
#include "src/base/alloc.h"
#include "src/nn/float8_weight.h"
#include "src/nn/module.h"

/* Create a module with a "weight" of `shape`. If n_bias is not 0, the module also has a "bias" of
 * n_bias zeros. */
static fsdp_status create_layer(const char *class_name, int ndim, const int64_t *shape,
                                fsdp_init init, int64_t n_bias, fsdp_module **module)
{
    fsdp_module *m;
    FSDP_TRY(fsdp_module_create(class_name, &m));
    fsdp_status status = fsdp_module_add_parameter(m, "weight", ndim, shape, init, NULL);
    if (status == FSDP_OK && n_bias)
        status = fsdp_module_add_parameter(m, "bias", 1, &n_bias, (fsdp_init){0}, NULL);
    if (status != FSDP_OK) {
        fsdp_module_destroy(m);
        return status;
    }
    *module = m;
    return FSDP_OK;
}

fsdp_status fsdp_linear_create(int64_t in, int64_t out, bool bias, fsdp_init init,
                               fsdp_module **module)
{
    return create_layer("Linear", 2, (int64_t[]){out, in}, init, bias ? out : 0, module);
}

fsdp_status fsdp_embedding_create(int64_t rows, int64_t width, fsdp_init init, fsdp_module **module)
{
    FSDP_TRY(create_layer("Embedding", 2, (int64_t[]){rows, width}, init, 0, module));
    fsdp_module_parameter(*module, "weight")->only_looked_up = true;
    return FSDP_OK;
}

fsdp_status fsdp_norm_create(const char *class_name, int64_t width, fsdp_init init,
                             fsdp_module **module)
{
    return create_layer(class_name, 1, &width, init, 0, module);
}

fsdp_status fsdp_layer_norm_create(int64_t width, fsdp_module **module)
{
    return create_layer("LayerNorm", 1, &width, (fsdp_init){.mean = 1.0f}, width, module);
}

/* --- forwards --- */

/* Return the tensor of the layer's parameter `name`. If the layer has no such parameter, return
 * NULL and, unless `optional` is true, let the scope fail. */
static fsdp_tensor *read_parameter(fsdp_scope *s, const fsdp_module *layer, const char *name,
                                   bool optional)
{
    const fsdp_parameter *p = fsdp_module_parameter(layer, name);
    if (p)
        return fsdp_read(s, p);
    if (!optional)
        fsdp_scope_error(s, layer->class_name, "it has no parameter '%s'", name);
    return NULL;
}

fsdp_tensor *fsdp_float8_apply(fsdp_scope *s, const fsdp_parameter *weight, fsdp_tensor *x,
                               fsdp_tensor *bias)
{
    const fsdp_float8_weight *float8 = weight->float8;
    fsdp_tensor *w = fsdp_read(s, weight);
    fsdp_tensor *scale = w && fsdp_tensor_dtype(w) == FSDP_DTYPE_U8 ? float8->scale : NULL;
    return fsdp_float8_linear_of(s, x, w, scale, bias, float8->recipe);
}

fsdp_tensor *fsdp_linear_forward(fsdp_scope *s, const fsdp_module *linear, fsdp_tensor *x)
{
    const fsdp_parameter *p = fsdp_module_parameter(linear, "weight");
    fsdp_tensor *weight = read_parameter(s, linear, "weight", false);
    fsdp_tensor *bias = read_parameter(s, linear, "bias", true);
    return p && p->float8 ? fsdp_float8_apply(s, p, x, bias) : fsdp_linear(s, x, weight, bias);
}

fsdp_tensor *fsdp_embedding_forward(fsdp_scope *s, const fsdp_module *embedding, const int32_t *ids,
                                    int64_t n)
{
    return fsdp_embedding(s, ids, n, read_parameter(s, embedding, "weight", false), -1);
}

fsdp_tensor *fsdp_layer_norm_forward(fsdp_scope *s, const fsdp_module *norm, fsdp_tensor *x,
                                     float eps)
{
    fsdp_tensor *weight = read_parameter(s, norm, "weight", false);
    return fsdp_layer_norm(s, x, weight, read_parameter(s, norm, "bias", true), eps);
}
