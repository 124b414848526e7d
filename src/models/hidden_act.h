/* An activation by its name: what config.json calls it, its module's class, its kernel. */
#pragma once
#include <fsdp/hidden_act.h>

#include "src/base/json.h"
#include "src/kernels/kernels.h"

/* `key` of a config.json, `absent` without it; FSDP_ERR_UNSUPPORTED for other names. */
/* The function that transformers calls `name`, by any of its names; false if it is not here. */
bool fsdp_hidden_act_find(const char *name, fsdp_hidden_act *act);
FSDP_MUST_CHECK fsdp_status fsdp_config_hidden_act(fsdp_json_node root, const char *key,
                                                   fsdp_hidden_act absent, fsdp_hidden_act *value);
void fsdp_config_set_hidden_act(fsdp_json_node root, const char *key, fsdp_hidden_act value);

/* "GELUActivation": of the module that transformers puts there. */
const char *fsdp_hidden_act_class(fsdp_hidden_act act);
/* What kernels call it. */
fsdp_activation fsdp_hidden_act_activation(fsdp_hidden_act act);
