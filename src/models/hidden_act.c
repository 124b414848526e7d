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
    [FSDP_HIDDEN_ACT_SILU] = {"silu", "SiLUActivation", FSDP_ACTIVATION_SILU},
    [FSDP_HIDDEN_ACT_TANH] = {"tanh", "Tanh", FSDP_ACTIVATION_TANH},
};

/* Other names of transformers for the functions in acts[]. In transformers, each of these names has
 * its own implementation, so results may differ by an ulp or two in float32. gelu_10 is not in this
 * list, because it also clips its result. */
static const struct {
    const char *name;
    fsdp_hidden_act act;
} aliases[] = {
    {"gelu_python", FSDP_HIDDEN_ACT_GELU},          {"gelu_pytorch_tanh", FSDP_HIDDEN_ACT_GELU_NEW},
    {"gelu_python_tanh", FSDP_HIDDEN_ACT_GELU_NEW}, {"gelu_fast", FSDP_HIDDEN_ACT_GELU_NEW},
    {"gelu_accurate", FSDP_HIDDEN_ACT_GELU_NEW},    {"swish", FSDP_HIDDEN_ACT_SILU},
};

bool fsdp_hidden_act_find(const char *name, fsdp_hidden_act *act)
{
    for (size_t i = 0; i < FSDP_LENGTH(acts); i++)
        if (strcmp(acts[i].name, name) == 0) {
            *act = (fsdp_hidden_act)i;
            return true;
        }
    for (size_t i = 0; i < FSDP_LENGTH(aliases); i++)
        if (strcmp(aliases[i].name, name) == 0) {
            *act = aliases[i].act;
            return true;
        }
    return false;
}

fsdp_status fsdp_config_hidden_act(fsdp_json_node root, const char *key, fsdp_hidden_act absent,
                                   fsdp_hidden_act *value)
{
    const char *name;
    FSDP_TRY(fsdp_json_opt_str(root, key, acts[absent].name, &name));
    if (fsdp_hidden_act_find(name, value))
        return FSDP_OK;
    return fsdp_config_unsupported(root, key, FSDP_HIDDEN_ACT_NAMES);
}

/* Set `key` to the name of the function `value`. If the document already has another name of the
 * same function under `key`, that name is kept. */
void fsdp_config_set_hidden_act(fsdp_json_node root, const char *key, fsdp_hidden_act value)
{
    const char *name;
    fsdp_hidden_act found;
    if (fsdp_json_opt_str(root, key, "", &name) == FSDP_OK && fsdp_hidden_act_find(name, &found) &&
        found == value)
        return;
    fsdp_json_set_str(root, key, acts[value].name);
}

const char *fsdp_hidden_act_name(fsdp_hidden_act act)
{
    return acts[act].name;
}

const char *fsdp_hidden_act_class(fsdp_hidden_act act)
{
    return acts[act].class_name;
}

fsdp_activation fsdp_hidden_act_activation(fsdp_hidden_act act)
{
    return acts[act].activation;
}
