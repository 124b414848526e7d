/* See float8_weight.h. */
#include "src/nn/float8_weight.h"

#include "src/base/alloc.h"

fsdp_status fsdp_parameter_set_float8(fsdp_parameter *weight, fsdp_float8_recipe recipe,
                                      bool gathers)
{
    fsdp_float8_weight *float8 = fsdp_calloc(1, sizeof *float8);
    if (!float8)
        return FSDP_ERR_NOMEM;
    *float8 = (fsdp_float8_weight){.recipe = recipe, .gathers = gathers};
    fsdp_parameter_clear_float8(weight);
    weight->float8 = float8;
    return FSDP_OK;
}

void fsdp_parameter_clear_float8(fsdp_parameter *weight)
{
    if (weight->float8)
        fsdp_tensor_release(weight->float8->scale);
    fsdp_free(weight->float8);
    weight->float8 = NULL;
}
