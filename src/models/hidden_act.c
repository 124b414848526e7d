/* See hidden_act.h. */
#include "src/models/hidden_act.h"

#include <string.h>

#include "src/base/assert.h"
#include "src/models/config_json.h"

static const struct {
    const char *name, *class_name;
    fsdp_activation activation;
} acts[] = {
    [FSDP_HIDDEN_ACT_GELU] = {"gelu", "GELUActivation", FSDP_ACTIVATION_GELU_ERF},
    [FSDP_HIDDEN_ACT_GELU_NEW] = {"gelu_new", "NewGELUActivation", FSDP_ACTIVATION_GELU_TANH},
    [FSDP_HIDDEN_ACT_RELU] = {"relu", "ReLU", FSDP_ACTIVATION_RELU},
};

fsdp_status fsdp_config_hidden_act(fsdp_json_node root, const char *key, fsdp_hidden_act absent,
                                   fsdp_hidden_act *value)
{
    const char *name;
    FSDP_TRY(fsdp_json_opt_str(root, key, acts[absent].name, &name));
    for (size_t i = 0; i < FSDP_LENGTH(acts); i++)
        if (strcmp(acts[i].name, name) == 0) {
            *value = (fsdp_hidden_act)i;
            return FSDP_OK;
        }
    return fsdp_config_unsupported(root, key, "\"gelu\", \"gelu_new\" or \"relu\"");
}

void fsdp_config_set_hidden_act(fsdp_json_node root, const char *key, fsdp_hidden_act value)
{
    fsdp_json_set_str(root, key, acts[value].name);
}

const char *fsdp_hidden_act_class(fsdp_hidden_act act)
{
    return acts[act].class_name;
}

fsdp_activation fsdp_hidden_act_activation(fsdp_hidden_act act)
{
    return acts[act].activation;
}
