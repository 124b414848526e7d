/* See default_policy.h. */
#include "src/fsdp/default_policy.h"

#include <string.h>

#include "src/fsdp/state.h"

static bool is_among(const fsdp_module *m, const char *const *classes)
{
    while (*classes && strcmp(m->class_name, *classes) != 0)
        classes++;
    return *classes != NULL;
}

/* Return true if the module is an embedding or a head, and no other module uses its parameters. A
 * head is a Linear that has a forward of its own: the Linears inside of blocks have none. A weight
 * that several modules use belongs to the unit around all of them. */
static bool has_vocabulary(const fsdp_module *m)
{
    static const char *const classes[] = {"Embedding", "Linear", "BertEmbeddings", NULL};
    bool is_own = m->forward != NULL && is_among(m, classes);
    for (size_t i = 0; i < m->n_params; i++)
        is_own &= fsdp_parameter_is_inside(m->params[i].parameter, m);
    return is_own;
}

/* Return true if the default policy makes the module a unit. If the module is a head, also set
 * reshard_after_forward to FSDP_RESHARD_FALSE, unless the user has set it. A head is the last unit
 * in forward and the first one in backward, so it keeps its parameters in between, as the root
 * does. */
static bool is_unit_by_default(const char *path, const fsdp_module *m, void *arg,
                               fsdp_fully_shard_options *options)
{
    const char *const *const *block_classes = arg;
    const bool is_vocabulary = has_vocabulary(m);
    (void)path;
    if (is_vocabulary && strcmp(m->class_name, "Linear") == 0 &&
        options->reshard_after_forward == FSDP_RESHARD_DEFAULT)
        options->reshard_after_forward = FSDP_RESHARD_FALSE;
    return is_vocabulary || is_among(m, *block_classes);
}

fsdp_wrap_policy fsdp_default_wrap_policy(const char *const **block_classes)
{
    return (fsdp_wrap_policy){
        .kind = FSDP_WRAP_CUSTOM, .custom = is_unit_by_default, .custom_arg = block_classes};
}

static bool is_unit_of_embeddings(const fsdp_module *m)
{
    const fsdp_state *state = m->fsdp_state;
    for (size_t i = 0; state && i < state->n_members; i++)
        if (strcmp(state->members[i].module->class_name, "Embedding") != 0)
            return false;
    return state != NULL;
}

/* If the unit consists of embeddings, do not gather it in backward: the backward of an embedding
 * does not read the weight. */
static fsdp_status finish_unit(const char *path, fsdp_module *m, void *arg)
{
    (void)path, (void)arg;
    return is_unit_of_embeddings(m) ? fsdp_set_unshard_in_backward(m, false) : FSDP_OK;
}

fsdp_status fsdp_default_units_finish(fsdp_module *root)
{
    return fsdp_module_visit(root, finish_unit, NULL);
}

fsdp_status fsdp_model_shard(fsdp_module *module, const char *const *block_classes,
                             fsdp_group *group, fsdp_device *device,
                             const fsdp_fully_shard_options *options)
{
    const fsdp_wrap_policy policy = fsdp_default_wrap_policy(&block_classes);
    FSDP_TRY(fsdp_auto_wrap(module, &policy, group, device, options));
    return fsdp_default_units_finish(module);
}
