/* An activation by its name: what config.json calls it, its module's class, its operation. */
#pragma once
#include <fsdp/hidden_act.h>

#include "src/autograd/autograd.h"
#include "src/base/json.h"

/* `key` of a config.json, `absent` without it; FSDP_ERR_UNSUPPORTED for other names. */
FSDP_MUST_CHECK fsdp_status fsdp_config_hidden_act(fsdp_json_node root, const char *key,
                                                   fsdp_hidden_act absent, fsdp_hidden_act *value);
void fsdp_config_set_hidden_act(fsdp_json_node root, const char *key, fsdp_hidden_act value);

/* "GELUActivation": of the module that transformers puts there. */
const char *fsdp_hidden_act_class(fsdp_hidden_act act);
/* The activation of x, which is dropped. */
fsdp_tensor *fsdp_apply_hidden_act(fsdp_scope *s, fsdp_hidden_act act, fsdp_tensor *x);
