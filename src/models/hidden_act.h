/* Activations by name: the name in config.json, the class of the module, the kernel. */
#pragma once
#include <fsdp/hidden_act.h>

#include "src/base/json.h"
#include "src/kernels/kernels.h"

/* Read `key` of a config.json, `absent` if it is missing. FSDP_ERR_UNSUPPORTED for unknown
 * names. */
/* Find the function that transformers calls `name` (any of its names). Returns false if it is not
 * supported. */
bool fsdp_hidden_act_find(const char *name, fsdp_hidden_act *act);
FSDP_MUST_CHECK fsdp_status fsdp_config_hidden_act(fsdp_json_node root, const char *key,
                                                   fsdp_hidden_act absent, fsdp_hidden_act *value);
void fsdp_config_set_hidden_act(fsdp_json_node root, const char *key, fsdp_hidden_act value);

/* The class of the module in transformers, e.g. "GELUActivation". */
const char *fsdp_hidden_act_class(fsdp_hidden_act act);
/* The kernels' name of the function. */
fsdp_activation fsdp_hidden_act_activation(fsdp_hidden_act act);
