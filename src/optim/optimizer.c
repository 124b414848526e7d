/* What all optimizers share: groups of parameters, state, and the walk over them in a step.
 *
 * A step first looks at everything that can fail, so that a rank fails before it communicates; then
 * it updates parameter by parameter. Each master is written between begin_write and end_write. A
 * unit's masters may lie in one storage that all ranks see, where this is one phase: parameters in
 * a row that share a storage are written in one, so that a unit costs one wait and not one for each
 * parameter. The order is the same on all ranks, and a rank without rows takes part. */
#include <math.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/nn/module.h"
#include "src/optim/optimizer.h"
#include "src/tensor/tensor.h"

enum {
    /* Elements of a bfloat16 master that are updated through float32 scratch at a time. */
    SCRATCH_ELEMENTS = 1 << 18
};

typedef struct entry {
    int group;
    int64_t steps; /* taken */
    fsdp_tensor *state[FSDP_MAX_OPTIMIZER_STATE];
} entry;

struct fsdp_optimizer {
    const fsdp_optimizer_class *class;
    fsdp_optimizer_options *groups;
    size_t n_groups, cap_groups;
    fsdp_parameter_list list; /* names owned, parameters borrowed */
    size_t cap_list;
    entry *entries; /* [list.n] */
    size_t cap_entries;
};

/* --- groups --- */

fsdp_status fsdp_optimizer_check_range(const char *optimizer, const char *name, double value,
                                       double below)
{
    if (!isfinite(value) || value < 0.0 || value >= below)
        return fsdp_error(FSDP_ERR_INVALID, "%s: %s is %g, not in [0, %g)", optimizer, name, value,
                          below);
    return FSDP_OK;
}

static int64_t find(const fsdp_optimizer *o, const fsdp_parameter *p)
{
    for (size_t i = 0; i < o->list.n; i++)
        if (o->list.items[i].parameter == p)
            return (int64_t)i;
    return -1;
}

static fsdp_status add_parameter(fsdp_optimizer *o, const fsdp_named_parameter *p, int group)
{
    if (find(o, p->parameter) >= 0)
        return fsdp_error(FSDP_ERR_INVALID, "parameter %s is in two parameter groups", p->name);
    if (!FSDP_GROW(o->list.items, o->cap_list, o->list.n + 1) ||
        !FSDP_GROW(o->entries, o->cap_entries, o->list.n + 1))
        return FSDP_ERR_NOMEM;
    char *name = fsdp_strdup(p->name);
    if (!name)
        return FSDP_ERR_NOMEM;
    o->list.items[o->list.n] = (fsdp_named_parameter){.name = name, .parameter = p->parameter};
    o->entries[o->list.n++] = (entry){.group = group};
    return FSDP_OK;
}

fsdp_status fsdp_optimizer_add_group(const fsdp_optimizer_class *class, fsdp_optimizer *o,
                                     const fsdp_parameter_list *parameters,
                                     const fsdp_optimizer_options *options)
{
    FSDP_TRY(class->check(options));
    if (o->class != class)
        return fsdp_error(FSDP_ERR_INVALID, "a group of %s does not fit an optimizer of kind %s",
                          class->name(options), fsdp_optimizer_name(o));
    if (!parameters->n)
        return fsdp_error(FSDP_ERR_INVALID, "%s got an empty parameter list", class->name(options));
    if (!FSDP_GROW(o->groups, o->cap_groups, o->n_groups + 1))
        return FSDP_ERR_NOMEM;
    size_t before = o->list.n;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < parameters->n && status == FSDP_OK; i++)
        status = add_parameter(o, &parameters->items[i], (int)o->n_groups);
    if (status != FSDP_OK) {
        fsdp_parameter_list added = {o->list.items + before, o->list.n - before};
        for (size_t i = 0; i < added.n; i++) {
            char *name;
            memcpy(&name, &added.items[i].name, sizeof name);
            fsdp_free(name);
        }
        o->list.n = before;
        return status;
    }
    o->groups[o->n_groups++] = *options;
    return FSDP_OK;
}

fsdp_status fsdp_optimizer_create(const fsdp_optimizer_class *class, fsdp_module *module,
                                  const fsdp_optimizer_options *options, fsdp_optimizer **optimizer)
{
    fsdp_parameter_list list = {0};
    FSDP_TRY(class->check(options));
    if (module)
        FSDP_TRY(fsdp_module_parameters(module, false, &list));
    fsdp_optimizer *o = fsdp_calloc(1, sizeof *o);
    fsdp_status status = o ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        o->class = class;
        if (module)
            status = fsdp_optimizer_add_group(class, o, &list, options);
    }
    fsdp_parameter_list_free(&list);
    if (status != FSDP_OK) {
        fsdp_optimizer_destroy(o);
        return status;
    }
    *optimizer = o;
    return FSDP_OK;
}

void fsdp_optimizer_destroy(fsdp_optimizer *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->list.n; i++)
        for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++)
            fsdp_tensor_release(o->entries[i].state[k]);
    fsdp_parameter_list_free(&o->list);
    fsdp_free(o->entries);
    fsdp_free(o->groups);
    fsdp_free(o);
}

/* --- what a step needs --- */

static fsdp_status check_shapes(const char *name, const fsdp_tensor *local, const fsdp_tensor *grad,
                                const fsdp_tensor *state)
{
    char have[FSDP_SHAPE_TEXT], want[FSDP_SHAPE_TEXT];
    size_t bytes = (size_t)local->ndim * sizeof *local->shape;
    if (grad->ndim != local->ndim || memcmp(grad->shape, local->shape, bytes) != 0)
        return fsdp_error(FSDP_ERR_STATE, "parameter %s: the gradient is %s, this rank's rows %s",
                          name, fsdp_shape_text(grad->ndim, grad->shape, have),
                          fsdp_shape_text(local->ndim, local->shape, want));
    if (state && (state->ndim != local->ndim || memcmp(state->shape, local->shape, bytes) != 0))
        return fsdp_error(FSDP_ERR_STATE,
                          "parameter %s: the optimizer's state is %s, this rank's rows are now %s: "
                          "fully_shard comes before the first step",
                          name, fsdp_shape_text(state->ndim, state->shape, have),
                          fsdp_shape_text(local->ndim, local->shape, want));
    return FSDP_OK;
}

static fsdp_status create_state(const fsdp_tensor *local, fsdp_tensor **state)
{
    fsdp_device *device = local->storage->device;
    fsdp_tensor *t;
    FSDP_TRY(
        fsdp_tensor_create(device, FSDP_DTYPE_F32, local->ndim, local->shape, FSDP_TAG_OPTIM, &t));
    fsdp_status status = FSDP_OK;
    if (fsdp_is_dtensor(local))
        status = fsdp_dtensor_from_local(t, fsdp_dtensor_group(local),
                                         fsdp_dtensor_placement(local), fsdp_dtensor_shape(local));
    if (status != FSDP_OK) {
        fsdp_tensor_release(t);
        return status;
    }
    if (device->kernels && fsdp_tensor_numel(t))
        device->kernels->fill(device->context, fsdp_tensor_ptr(t), FSDP_DTYPE_F32, 0.0,
                              fsdp_tensor_numel(t));
    *state = t;
    return FSDP_OK;
}

/* Checks one parameter that has a gradient, and makes its state. *scratch: it is no float32. */
static fsdp_status prepare(fsdp_optimizer *o, size_t i, bool *scratch)
{
    const char *name = o->list.items[i].name;
    const fsdp_tensor *local = fsdp_parameter_local(o->list.items[i].parameter);
    const fsdp_tensor *grad = fsdp_parameter_grad(o->list.items[i].parameter);
    entry *e = &o->entries[i];
    if (!local)
        return fsdp_error(FSDP_ERR_STATE, "parameter %s has no memory", name);
    if (local->dtype != FSDP_DTYPE_F32 && local->dtype != FSDP_DTYPE_BF16)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "parameter %s: a master of %s cannot be updated",
                          name, fsdp_dtype_name(local->dtype));
    FSDP_TRY(check_shapes(name, local, grad, e->state[0]));
    int n = o->class->n_state(&o->groups[e->group]);
    for (int k = 0; k < n; k++)
        if (!e->state[k])
            FSDP_TRY(create_state(local, &e->state[k]));
    *scratch = *scratch || local->dtype != FSDP_DTYPE_F32;
    return FSDP_OK;
}

/* --- update --- */

/* Elements [begin, begin + n) through `scratch`: widened, updated, rounded. */
static void update_widened(const fsdp_optimizer *o, const entry *e, fsdp_update u,
                           fsdp_tensor *local, float *scratch)
{
    const fsdp_device *device = u.device;
    char *master = fsdp_tensor_ptr(local);
    fsdp_update part = u;
    part.param = scratch;
    part.copy_dtype = local->dtype;
    for (int64_t at = 0; at < u.n; at += SCRATCH_ELEMENTS) {
        part.n = u.n - at < SCRATCH_ELEMENTS ? u.n - at : SCRATCH_ELEMENTS;
        part.grad = u.grad + at;
        part.copy = master + (size_t)at * fsdp_dtype_size(local->dtype);
        for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++)
            part.state[k] = u.state[k] ? u.state[k] + at : NULL;
        device->kernels->cast(device->context, scratch, FSDP_DTYPE_F32, part.copy, local->dtype,
                              part.n);
        o->class->update(&o->groups[e->group], &part);
    }
}

static void update(fsdp_optimizer *o, size_t i, float grad_scale, float *scratch)
{
    entry *e = &o->entries[i];
    fsdp_tensor *local = fsdp_parameter_local(o->list.items[i].parameter);
    fsdp_update u = {.device = local->storage->device,
                     .n = fsdp_tensor_numel(local),
                     .param = fsdp_tensor_ptr(local),
                     .grad = fsdp_tensor_ptr(fsdp_parameter_grad(o->list.items[i].parameter)),
                     .step = ++e->steps,
                     .grad_scale = grad_scale};
    if (!u.device->kernels || !u.n)
        return;
    for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++)
        u.state[k] = e->state[k] ? fsdp_tensor_ptr(e->state[k]) : NULL;
    if (local->dtype == FSDP_DTYPE_F32)
        o->class->update(&o->groups[e->group], &u);
    else
        update_widened(o, e, u, local, scratch);
}

static fsdp_status update_all(fsdp_optimizer *o, float grad_scale, float *scratch)
{
    fsdp_tensor *open = NULL; /* one of the parameters whose storage is being written */
    for (size_t i = 0; i < o->list.n; i++) {
        if (!fsdp_parameter_grad(o->list.items[i].parameter))
            continue;
        fsdp_tensor *local = fsdp_parameter_local(o->list.items[i].parameter);
        if (!open || open->storage != local->storage) {
            if (open)
                fsdp_tensor_end_write(open);
            open = NULL;
            FSDP_TRY(fsdp_tensor_begin_write(local));
            open = local;
        }
        update(o, i, grad_scale, scratch);
    }
    if (open)
        fsdp_tensor_end_write(open);
    return FSDP_OK;
}

fsdp_status fsdp_optimizer_step(fsdp_optimizer *o, float grad_scale)
{
    fsdp_tensor *scratch = NULL;
    bool need_scratch = false;
    fsdp_device *device = NULL;
    for (size_t i = 0; i < o->list.n; i++) {
        if (!fsdp_parameter_grad(o->list.items[i].parameter))
            continue;
        FSDP_TRY(prepare(o, i, &need_scratch));
        device = fsdp_tensor_device(fsdp_parameter_local(o->list.items[i].parameter));
    }
    if (need_scratch)
        FSDP_TRY(fsdp_tensor_create(device, FSDP_DTYPE_F32, 1, (int64_t[]){SCRATCH_ELEMENTS},
                                    FSDP_TAG_OPTIM, &scratch));
    fsdp_status status = update_all(o, grad_scale, scratch ? fsdp_tensor_ptr(scratch) : NULL);
    fsdp_tensor_release(scratch);
    return status;
}

void fsdp_optimizer_zero_grad(fsdp_optimizer *o)
{
    for (size_t i = 0; i < o->list.n; i++) {
        fsdp_grad_sink *sink = &o->list.items[i].parameter->sink;
        fsdp_tensor_release(sink->grad);
        sink->grad = NULL;
    }
}

/* --- getters, setters --- */

void fsdp_optimizer_set_lr(fsdp_optimizer *o, double lr)
{
    for (size_t g = 0; g < o->n_groups; g++)
        *o->class->lr(&o->groups[g]) = lr;
}

void fsdp_optimizer_set_group_lr(fsdp_optimizer *o, int group, double lr)
{
    if (group >= 0 && (size_t)group < o->n_groups)
        *o->class->lr(&o->groups[group]) = lr;
}

double fsdp_optimizer_lr(const fsdp_optimizer *o, int group)
{
    return group >= 0 && (size_t)group < o->n_groups ? *o->class->lr(&o->groups[group]) : 0.0;
}

int fsdp_optimizer_n_groups(const fsdp_optimizer *o)
{
    return (int)o->n_groups;
}

const char *fsdp_optimizer_name(const fsdp_optimizer *o)
{
    fsdp_optimizer_options none = {0};
    return o->class->name(o->n_groups ? &o->groups[0] : &none);
}

const fsdp_parameter_list *fsdp_optimizer_parameters(const fsdp_optimizer *o)
{
    return &o->list;
}

int64_t fsdp_optimizer_steps(const fsdp_optimizer *o, const fsdp_parameter *p)
{
    int64_t i = find(o, p);
    return i < 0 ? 0 : o->entries[i].steps;
}

fsdp_tensor *fsdp_optimizer_state(const fsdp_optimizer *o, const fsdp_parameter *p,
                                  const char *name)
{
    int64_t i = find(o, p);
    for (int k = 0; i >= 0 && k < FSDP_MAX_OPTIMIZER_STATE && o->class->state_names[k]; k++)
        if (strcmp(o->class->state_names[k], name) == 0)
            return o->entries[i].state[k];
    return NULL;
}
