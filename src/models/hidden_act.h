/* Activation functions of models: their names in config.json, their module classes in transformers,
 * and their kernels. */
#pragma once
#include <fsdp/hidden_act.h>

#include "src/base/json.h"
#include "src/kernels/kernels.h"

/* Find a function by one of its names in transformers. Returns false if the function is not
 * supported. */
bool fsdp_hidden_act_find(const char *name, fsdp_hidden_act *act);
/* Read the function whose name is the value of `key` in a config.json. *value is set to `absent` if
 * the key is missing. Returns FSDP_ERR_UNSUPPORTED for a name that is not supported. */
FSDP_MUST_CHECK fsdp_status fsdp_config_hidden_act(fsdp_json_node root, const char *key,
                                                   fsdp_hidden_act absent, fsdp_hidden_act *value);
void fsdp_config_set_hidden_act(fsdp_json_node root, const char *key, fsdp_hidden_act value);

/* The names of the supported functions, without aliases, for error messages. */
#define FSDP_HIDDEN_ACT_NAMES "\"gelu\", \"gelu_new\", \"relu\", \"silu\" or \"tanh\""

/* Return the name that config.json has for the function. */
const char *fsdp_hidden_act_name(fsdp_hidden_act act);
/* Return the class of the module that transformers has for the function, e.g. "GELUActivation". */
const char *fsdp_hidden_act_class(fsdp_hidden_act act);
/* Return the fsdp_activation of the kernels that computes the function. */
fsdp_activation fsdp_hidden_act_activation(fsdp_hidden_act act);
