/* Modules that are only their parameters: the operations read them where the model is written. */
#include "src/base/alloc.h"
#include "src/nn/module.h"

static fsdp_status with_weight(const char *class_name, int ndim, const int64_t *shape,
                               fsdp_init init, fsdp_module **module)
{
    fsdp_module *m;
    FSDP_TRY(fsdp_module_create(class_name, &m));
    fsdp_status status = fsdp_module_add_parameter(m, "weight", ndim, shape, init, NULL);
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
    fsdp_module *m;
    FSDP_TRY(with_weight("Linear", 2, (int64_t[]){out, in}, init, &m));
    fsdp_status status =
        bias ? fsdp_module_add_parameter(m, "bias", 1, &out, (fsdp_init){0}, NULL) : FSDP_OK;
    if (status != FSDP_OK) {
        fsdp_module_destroy(m);
        return status;
    }
    *module = m;
    return FSDP_OK;
}

fsdp_status fsdp_embedding_create(int64_t rows, int64_t width, fsdp_init init, fsdp_module **module)
{
    return with_weight("Embedding", 2, (int64_t[]){rows, width}, init, module);
}

fsdp_status fsdp_norm_create(const char *class_name, int64_t width, fsdp_init init,
                             fsdp_module **module)
{
    return with_weight(class_name, 1, &width, init, module);
}
