/* Activations: their names in config.json, the classes of their modules, their kernels. */
#pragma once
#include <fsdp/hidden_act.h>

#include "src/base/json.h"
#include "src/kernels/kernels.h"

/* Find the function that transformers calls `name` (any of its names). Returns false if it is not
 * supported. */
bool fsdp_hidden_act_find(const char *name, fsdp_hidden_act *act);
/* Read `key` of a config.json; the value is `absent` if the key is missing. Returns
 * FSDP_ERR_UNSUPPORTED for an unknown name. */
FSDP_MUST_CHECK fsdp_status fsdp_config_hidden_act(fsdp_json_node root, const char *key,
                                                   fsdp_hidden_act absent, fsdp_hidden_act *value);
void fsdp_config_set_hidden_act(fsdp_json_node root, const char *key, fsdp_hidden_act value);

/* Return the class of the function's module in transformers, e.g. "GELUActivation". */
const char *fsdp_hidden_act_class(fsdp_hidden_act act);
/* Return the function's value in the enum that kernels use. */
fsdp_activation fsdp_hidden_act_activation(fsdp_hidden_act act);
