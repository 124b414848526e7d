/* Applies fsdp_state_dict_options: checks them, and decides which parameters a state dict includes
 * and which names they have there. */
#include <string.h>

#include "src/nn/module.h"
#include "src/state_dict/state_dict.h"

const fsdp_state_dict_options *fsdp_state_options(const fsdp_state_dict_options *options)
{
    static const fsdp_state_dict_options defaults = {0};
    return options ? options : &defaults;
}

int fsdp_state_rank(const fsdp_state_dict_options *options)
{
    return fsdp_group_rank(options->group);
}

bool fsdp_state_name(const fsdp_state_dict_options *o, const char *name,
                     const fsdp_parameter *parameter, const char **shown)
{
    size_t n = o->submodule ? strlen(o->submodule) : 0;
    if (o->ignore_frozen_params && !fsdp_parameter_requires_grad(parameter))
        return false;
    if (n && (strncmp(name, o->submodule, n) != 0 || name[n] != '.'))
        return false;
    *shown = n && o->drop_submodule_prefixes ? name + n + 1 : name;
    return true;
}

fsdp_status fsdp_state_check_submodule(fsdp_module *module, const fsdp_state_dict_options *o)
{
    if (!o->submodule || fsdp_module_find(module, o->submodule))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_NOT_FOUND, "state dict: %s has no submodule '%s'",
                      fsdp_module_class(module), o->submodule);
}

fsdp_status fsdp_state_check_get(const fsdp_state_dict_options *o)
{
    if (o->rank0_only && !o->full_state_dict)
        return fsdp_error(FSDP_ERR_INVALID,
                          "state dict: rank0_only without full_state_dict: each rank has a part");
    return FSDP_OK;
}
