/* The part of `fsdp verify` that loads a checkpoint of torch.distributed.checkpoint into a model
 * and an optimizer. */
#include <string.h>

#include <fsdp/state_dict.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/verify/verify_training.h"

/* Set *all to {"model": ..., "optim": ...}, with the current state of the model and the optimizer.
 * The caller owns *all. */
static fsdp_status get_all(const fsdp_verify_training *t, fsdp_state_dict **all)
{
    fsdp_state_dict *model, *optim, *both = NULL;
    FSDP_TRY(fsdp_get_state_dict(t->model->module, t->optimizer, NULL, &model, &optim));
    fsdp_status status = fsdp_state_dict_create(&both);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(both, "model", model);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(both, "optim", optim);
    if (status == FSDP_OK)
        *all = both;
    else
        fsdp_state_dict_destroy(both);
    fsdp_state_dict_destroy(model);
    fsdp_state_dict_destroy(optim);
    return status;
}

static fsdp_status take_part(const fsdp_verify_training *t, const fsdp_state_dict *all,
                             const char *key)
{
    const fsdp_state_dict_options options = {.group = t->c->group};
    fsdp_state_dict *part;
    FSDP_TRY(fsdp_state_dict_part(all, key, &part));
    fsdp_status status =
        strcmp(key, "model") == 0
            ? fsdp_set_model_state_dict(t->model->module, part, &options, NULL)
            : fsdp_set_optimizer_state_dict(t->model->module, t->optimizer, part, &options);
    fsdp_state_dict_destroy(part);
    return status;
}

fsdp_status fsdp_verify_load(const fsdp_verify_training *t, const char *dir, fsdp_state_dict **all)
{
    fsdp_state_dict *dict = NULL;
    char *path = fsdp_verify_path(t->c, dir);
    fsdp_status status = path ? get_all(t, &dict) : FSDP_ERR_NOMEM;
    status = fsdp_agree(t->c->group, status);
    if (status == FSDP_OK)
        status = fsdp_dcp_load(dict, path, t->c->group, NULL);
    if (status == FSDP_OK)
        status = take_part(t, dict, "model");
    if (status == FSDP_OK)
        status = take_part(t, dict, "optim");
    fsdp_free(path);
    if (status == FSDP_OK && all)
        *all = dict;
    else
        fsdp_state_dict_destroy(dict);
    return status;
}
