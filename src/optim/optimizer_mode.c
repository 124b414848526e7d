/* Switches optimizers between training and evaluation, if their parameters have other values during
 * an evaluation than during training (fsdp_optimizer_class.train_mode, see schedule_free.c). The
 * values of training are kept during the evaluation, because they cannot be computed exactly from
 * those of the evaluation. */
#include "src/nn/module.h"
#include "src/optim/optimizer_internal.h"

/* Creates the memory for the values of training of parameter i. */
static fsdp_status create_kept(fsdp_optimizer *o, size_t i)
{
    const fsdp_tensor *local = fsdp_parameter_local(o->list.items[i].parameter);
    fsdp_optimizer_release_kept(o, i);
    return fsdp_tensor_create(local->storage->device, FSDP_DTYPE_F32, local->ndim, local->shape,
                              FSDP_TAG_OPTIM, &o->entries[i].kept);
}

/* Fills o->items with the parameters that have taken a step, for an update without gradients. */
static fsdp_status prepare_switch(fsdp_optimizer *o, bool to_train)
{
    o->n_items = 0;
    for (size_t i = 0; i < o->list.n; i++) {
        fsdp_optimizer_entry *e = &o->entries[i];
        if (!e->steps || !e->state[0])
            continue;
        if (!to_train)
            FSDP_TRY(create_kept(o, i));
        FSDP_TRY(fsdp_optimizer_prepare_parameter(
            o, i, fsdp_parameter_local(o->list.items[i].parameter)));
        fsdp_step_item *item = &o->items[o->n_items - 1];
        item->grad = NULL;
        item->kept = e->kept;
        item->step = e->steps;
    }
    return FSDP_OK;
}

static fsdp_status switch_mode(fsdp_optimizer *o, bool to_train)
{
    if (!o->class->train_mode || !o->n_groups || *o->class->train_mode(&o->groups[0]) == to_train)
        return FSDP_OK;
    FSDP_TRY(prepare_switch(o, to_train));
    FSDP_TRY(fsdp_optimizer_update_items(o, 1.0f, NULL, false));
    for (size_t g = 0; g < o->n_groups; g++)
        *o->class->train_mode(&o->groups[g]) = to_train;
    for (size_t i = 0; to_train && i < o->list.n; i++)
        fsdp_optimizer_release_kept(o, i);
    return FSDP_OK;
}

fsdp_status fsdp_optimizer_eval(fsdp_optimizer *o)
{
    return switch_mode(o, false);
}

fsdp_status fsdp_optimizer_train(fsdp_optimizer *o)
{
    return switch_mode(o, true);
}
