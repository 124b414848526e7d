/* Finds prepared objects. See accelerator.h. */
#include "src/accelerator/accelerator.h"

int64_t fsdp_accelerator_find_model(const fsdp_accelerator *a, const fsdp_module *model)
{
    for (size_t i = 0; i < a->n_models; i++)
        if (a->models[i] == model)
            return (int64_t)i;
    return -1;
}

int64_t fsdp_accelerator_find_optimizer(const fsdp_accelerator *a, const fsdp_optimizer *optimizer)
{
    for (size_t i = 0; i < a->n_optimizers; i++)
        if (a->optimizers[i].optimizer == optimizer)
            return (int64_t)i;
    return -1;
}

fsdp_accelerated_loader *fsdp_accelerator_find_loader(const fsdp_accelerator *a,
                                                      const fsdp_loader *loader)
{
    for (size_t i = 0; i < a->n_loaders; i++)
        if (a->loaders[i].loader == loader)
            return &a->loaders[i];
    return NULL;
}

static fsdp_status not_prepared(const char *what, const char *call)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "accelerator: this %s was not prepared; call fsdp_accelerator_prepare_%s() "
                      "first",
                      what, call);
}

fsdp_status fsdp_accelerator_know_model(const fsdp_accelerator *a, const fsdp_module *model)
{
    return fsdp_accelerator_find_model(a, model) < 0 ? not_prepared("model", "model") : FSDP_OK;
}

fsdp_status fsdp_accelerator_know_optimizer(const fsdp_accelerator *a,
                                            const fsdp_optimizer *optimizer)
{
    return fsdp_accelerator_find_optimizer(a, optimizer) < 0
               ? not_prepared("optimizer", "optimizer")
               : FSDP_OK;
}

fsdp_status fsdp_accelerator_know_loader(const fsdp_accelerator *a, const fsdp_loader *loader)
{
    return fsdp_accelerator_find_loader(a, loader) ? FSDP_OK
                                                   : not_prepared("loader", "data_loader");
}
