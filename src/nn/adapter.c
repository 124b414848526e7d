/* See adapter.h. */
#include "src/nn/adapter.h"

#include "src/base/alloc.h"

fsdp_status fsdp_parameter_set_adapter(fsdp_parameter *weight, const fsdp_adapter *adapter)
{
    fsdp_adapter *copy = NULL;
    if (adapter) {
        copy = fsdp_calloc(1, sizeof *copy);
        if (!copy)
            return FSDP_ERR_NOMEM;
        *copy = *adapter;
    }
    fsdp_free(weight->adapter);
    weight->adapter = copy;
    return FSDP_OK;
}

/* Scale dropout(x) A^T, which has r columns, instead of the update [T, out], because that is less
 * work. */
fsdp_tensor *fsdp_adapter_add(fsdp_scope *s, const fsdp_parameter *weight, fsdp_tensor *x,
                              fsdp_tensor *y)
{
    const fsdp_adapter *adapter = weight->adapter;
    if (!adapter)
        return y;
    fsdp_tensor *input = fsdp_dropout(s, x, adapter->dropout_p);
    fsdp_tensor *narrow = fsdp_linear(s, input, fsdp_read(s, adapter->a), NULL);
    if (input != x)
        fsdp_drop(s, input);
    fsdp_tensor *scaled = fsdp_scale(s, narrow, adapter->scaling);
    fsdp_drop(s, narrow);
    fsdp_tensor *update = fsdp_linear(s, scaled, fsdp_read(s, adapter->b), NULL);
    fsdp_drop(s, scaled);
    fsdp_tensor *sum = fsdp_add_(s, y, update);
    fsdp_drop(s, y);
    fsdp_drop(s, update);
    return sum;
}
