/* See adapter.h. */
#include "src/nn/adapter.h"

#include <stdint.h>

#include "src/autograd/magnitude.h"
#include "src/tensor/tensor.h"

fsdp_status fsdp_parameter_set_adapter(fsdp_parameter *weight, const fsdp_adapter *adapter)
{
    fsdp_adapter *copy = NULL;
    if (adapter) {
        copy = fsdp_calloc(1, sizeof *copy);
        if (!copy)
            return FSDP_ERR_NOMEM;
        *copy = *adapter;
        copy->norms = NULL;
    }
    fsdp_parameter_free_adapter(weight);
    weight->adapter = copy;
    return FSDP_OK;
}

void fsdp_adapter_set_norms(const fsdp_parameter *weight, fsdp_tensor *norms)
{
    if (norms)
        fsdp_tensor_retain(norms);
    fsdp_tensor_release(weight->adapter->norms);
    weight->adapter->norms = norms;
}

/* Return true if the module of a matrix, lora_A or lora_B, is a unit of its own. */
static bool is_own_unit(const fsdp_parameter *matrix)
{
    return matrix->home && matrix->home->n_hooks;
}

/* The norms need both matrices together with the weight, so all three must be in one unit. */
static bool check_units(fsdp_scope *s, const fsdp_adapter *adapter)
{
    const fsdp_parameter *own = is_own_unit(adapter->a)   ? adapter->a
                                : is_own_unit(adapter->b) ? adapter->b
                                                          : NULL;
    char path[256];
    if (!own)
        return true;
    fsdp_scope_check(
        s, fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "'%s' is a unit of its own, but DoRA (use_dora) computes norms, which need "
                      "lora_A, lora_B and the weight together; call fsdp_fully_shard() for the "
                      "block that contains the layer, not for the matrices of its adapter",
                      fsdp_module_path(own->home, path, sizeof path)));
    return false;
}

fsdp_tensor *fsdp_adapter_norms(fsdp_scope *s, const fsdp_parameter *weight)
{
    const fsdp_adapter *adapter = weight->adapter;
    if (!check_units(s, adapter))
        return NULL;
    return fsdp_weight_norm(s, &(fsdp_adapted_weight){.w = fsdp_read(s, weight),
                                                      .a = fsdp_read(s, adapter->a),
                                                      .b = fsdp_read(s, adapter->b),
                                                      .scaling = adapter->scaling,
                                                      .transposed = adapter->transposed});
}

static void matrix_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    *out = (fsdp_args){.t = {fsdp_linear_forward(s, self, in->t[0])}, .n = 1};
}

/* Return x times the transpose of a matrix of an adapter. If the module of the matrix, lora_A or
 * lora_B, is a unit of its own, call the module, so that its unit is gathered. */
static fsdp_tensor *multiply(fsdp_scope *s, fsdp_tensor *x, const fsdp_parameter *matrix)
{
    fsdp_module *home = (fsdp_module *)(uintptr_t)matrix->home;
    if (!is_own_unit(matrix))
        return fsdp_linear(s, x, fsdp_read(s, matrix), NULL);
    return fsdp_module_call(s, home, matrix_forward, (fsdp_args){.t = {x}, .n = 1}).t[0];
}

/* Return scaling * (input A^T) B^T. Scale input A^T, which has r columns, instead of the update [T,
 * out], because that is less work. */
static fsdp_tensor *update_of(fsdp_scope *s, const fsdp_adapter *adapter, fsdp_tensor *input)
{
    fsdp_tensor *narrow = multiply(s, input, adapter->a);
    fsdp_tensor *scaled = fsdp_scale(s, narrow, adapter->scaling);
    fsdp_drop(s, narrow);
    fsdp_tensor *update = multiply(s, scaled, adapter->b);
    fsdp_drop(s, scaled);
    return update;
}

/* Return x plus y, and drop both. */
static fsdp_tensor *add_and_drop(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y)
{
    fsdp_tensor *sum = fsdp_add_(s, x, y);
    fsdp_drop(s, x);
    fsdp_drop(s, y);
    return sum;
}

fsdp_tensor *fsdp_adapter_add(fsdp_scope *s, const fsdp_parameter *weight, fsdp_tensor *x,
                              fsdp_tensor *y)
{
    const fsdp_adapter *adapter = weight->adapter;
    if (!adapter)
        return y;
    fsdp_tensor *input = fsdp_dropout(s, x, adapter->dropout_p);
    fsdp_tensor *update = update_of(s, adapter, input);
    if (input != x)
        fsdp_drop(s, input);
    return add_and_drop(s, y, update);
}

static fsdp_tensor *product(fsdp_scope *s, const fsdp_parameter *weight, fsdp_tensor *x,
                            fsdp_tensor *bias)
{
    return weight->adapter->transposed ? fsdp_conv1d(s, x, fsdp_read(s, weight), bias)
                                       : fsdp_linear(s, x, fsdp_read(s, weight), bias);
}

/* Return f (input W^T + update) + bias, where f is magnitudes / norms. If `minus` is not NULL, set
 * *minus to -(input W^T). */
static fsdp_tensor *apply_magnitudes(fsdp_scope *s, const fsdp_parameter *weight,
                                     fsdp_tensor *input, fsdp_tensor *bias, fsdp_tensor **minus)
{
    const fsdp_adapter *adapter = weight->adapter;
    fsdp_tensor *base = product(s, weight, input, NULL);
    if (minus)
        *minus = fsdp_scale(s, base, -1.0f);
    fsdp_tensor *sum = add_and_drop(s, base, update_of(s, adapter, input));
    fsdp_tensor *norms = adapter->norms ? adapter->norms : fsdp_adapter_norms(s, weight);
    fsdp_tensor *y =
        fsdp_scale_to_magnitudes(s, sum, fsdp_read(s, adapter->magnitude), norms, bias);
    fsdp_drop(s, sum);
    if (norms != adapter->norms)
        fsdp_drop(s, norms);
    return y;
}

fsdp_tensor *fsdp_adapter_apply(fsdp_scope *s, const fsdp_parameter *weight, fsdp_tensor *x,
                                fsdp_tensor *bias)
{
    fsdp_tensor *input = fsdp_dropout(s, x, weight->adapter->dropout_p);
    if (input == x)
        return apply_magnitudes(s, weight, x, bias, NULL);
    fsdp_tensor *minus = NULL;
    fsdp_tensor *scaled = apply_magnitudes(s, weight, input, NULL, &minus);
    fsdp_drop(s, input);
    return add_and_drop(s, add_and_drop(s, product(s, weight, x, bias), minus), scaled);
}
