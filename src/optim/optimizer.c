/* The code that all optimizers share: parameter groups, getters and setters. optimizer_step.c has
 * the steps. */
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/nn/module.h"
#include "src/optim/optimizer_internal.h"

fsdp_tensor *fsdp_optimizer_gradient(const fsdp_parameter *p)
{
    return fsdp_parameter_requires_grad(p) ? fsdp_parameter_grad(p) : NULL;
}

/* --- groups --- */

fsdp_status fsdp_optimizer_check_range(const char *optimizer, const char *name, double value,
                                       double below)
{
    if (!isfinite(value) || value < 0.0 || value >= below)
        return fsdp_error(FSDP_ERR_INVALID, "%s: %s is %g, not in [0, %g)", optimizer, name, value,
                          below);
    return FSDP_OK;
}

static int64_t find_parameter(const fsdp_optimizer *o, const fsdp_parameter *p)
{
    for (size_t i = 0; i < o->list.n; i++)
        if (o->list.items[i].parameter == p)
            return (int64_t)i;
    return -1;
}

static bool needs_rows(const fsdp_optimizer_class *class, const fsdp_optimizer_options *options)
{
    return class->whole || (class->needs_rows && class->needs_rows(options));
}

fsdp_status fsdp_optimizer_check_placement(const fsdp_optimizer_class *class,
                                           const fsdp_optimizer_options *options,
                                           const fsdp_named_parameter *p)
{
    const int dim = fsdp_parameter_shard_dim(p->parameter);
    if (!needs_rows(class, options) || !dim || !fsdp_parameter_requires_grad(p->parameter))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "parameter %s: %s needs whole rows, it is sharded as Shard(%d)", p->name,
                      class->name(options), dim);
}

static fsdp_status add_parameter(fsdp_optimizer *o, const fsdp_named_parameter *p, int group)
{
    if (find_parameter(o, p->parameter) >= 0)
        return fsdp_error(FSDP_ERR_INVALID, "parameter %s is in two parameter groups", p->name);
    if (!FSDP_GROW(o->list.items, o->cap_list, o->list.n + 1) ||
        !FSDP_GROW(o->entries, o->cap_entries, o->list.n + 1) ||
        !FSDP_GROW(o->items, o->cap_items, o->list.n + 1))
        return FSDP_ERR_NOMEM;
    char *name = fsdp_strdup(p->name);
    if (!name)
        return FSDP_ERR_NOMEM;
    o->list.items[o->list.n] = (fsdp_named_parameter){.name = name, .parameter = p->parameter};
    o->entries[o->list.n++] = (fsdp_optimizer_entry){.group = group};
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
    if (!FSDP_GROW(o->groups, o->cap_groups, o->n_groups + 1) ||
        !FSDP_GROW(o->before, o->cap_before, o->n_groups + 1))
        return FSDP_ERR_NOMEM;
    size_t before = o->list.n;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < parameters->n && status == FSDP_OK; i++) {
        status = fsdp_optimizer_check_placement(class, options, &parameters->items[i]);
        if (status == FSDP_OK && class->check_parameter)
            status = class->check_parameter(options, &parameters->items[i]);
        if (status == FSDP_OK)
            status = add_parameter(o, &parameters->items[i], (int)o->n_groups);
    }
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
    for (size_t i = 0; i < o->list.n; i++) {
        fsdp_tensor_release(o->entries[i].kept);
        for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++)
            fsdp_tensor_release(o->entries[i].state[k]);
    }
    for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++)
        fsdp_tensor_release(o->maps[k]);
    fsdp_parameter_list_free(&o->list);
    fsdp_free(o->items);
    fsdp_free(o->entries);
    fsdp_free(o->groups);
    fsdp_free(o->before);
    fsdp_free(o);
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
        fsdp_optimizer_set_group_lr(o, (int)g, lr);
}

void fsdp_optimizer_set_group_lr(fsdp_optimizer *o, int group, double lr)
{
    double *to = group >= 0 && (size_t)group < o->n_groups ? o->class->lr(&o->groups[group]) : NULL;
    if (to)
        *to = lr;
}

/* Returns a learning rate of a group, for an optimizer that computes its own learning rate
 * separately for each parameter and step. This function chooses the first parameter of the group
 * that has taken a step, and returns the learning rate of that parameter's latest step. If no
 * parameter of the group has taken a step, it returns 0. */
static double own_lr(const fsdp_optimizer *o, int group)
{
    for (size_t i = 0; i < o->list.n; i++)
        if (o->entries[i].group == group && o->entries[i].steps)
            return o->class->own_lr(&o->groups[group], o->entries[i].steps, o->entries[i].state);
    return 0.0;
}

double fsdp_optimizer_lr(const fsdp_optimizer *o, int group)
{
    if (group < 0 || (size_t)group >= o->n_groups)
        return 0.0;
    const double *lr = o->class->lr(&o->groups[group]);
    return lr ? *lr : own_lr(o, group);
}

double fsdp_optimizer_scheduled_lr(const fsdp_optimizer *o, int group)
{
    const bool schedules = o->class->begin_group && group >= 0 && (size_t)group < o->n_groups;
    return schedules ? own_lr(o, group) : fsdp_optimizer_lr(o, group);
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
    int64_t i = find_parameter(o, p);
    return i < 0 ? 0 : o->entries[i].steps;
}

fsdp_tensor *fsdp_optimizer_state(const fsdp_optimizer *o, const fsdp_parameter *p,
                                  const char *name)
{
    int64_t i = find_parameter(o, p);
    for (int k = 0; i >= 0 && k < FSDP_MAX_OPTIMIZER_STATE && o->class->state_names[k]; k++)
        if (strcmp(o->class->state_names[k], name) == 0)
            return o->entries[i].state[k];
    return NULL;
}

const char *fsdp_optimizer_state_name(const fsdp_optimizer *o, int k)
{
    return k >= 0 && k < FSDP_MAX_OPTIMIZER_STATE ? o->class->state_names[k] : NULL;
}

fsdp_status fsdp_optimizer_init_state(fsdp_optimizer *o)
{
    for (size_t i = 0; i < o->list.n; i++) {
        const fsdp_parameter *p = o->list.items[i].parameter;
        if (!fsdp_parameter_requires_grad(p))
            continue;
        FSDP_TRY(fsdp_optimizer_check_memory(o, i));
        FSDP_TRY(fsdp_optimizer_prepare_state(o, i, fsdp_parameter_local(p)));
    }
    return FSDP_OK;
}

fsdp_status fsdp_optimizer_clear_state(const fsdp_optimizer *o, const fsdp_parameter *p)
{
    const int64_t i = find_parameter(o, p);
    const fsdp_tensor *local = fsdp_parameter_local(p);
    for (int k = 0; i >= 0 && k < FSDP_MAX_OPTIMIZER_STATE && o->class->state_names[k]; k++) {
        const fsdp_optimizer_entry *e = &o->entries[i];
        if (e->state[k] && !fsdp_optimizer_constant_state(o, k))
            FSDP_TRY(fsdp_optimizer_fill_state(
                local, o->class->state_shape(&o->groups[e->group], local, k), e->state[k]));
    }
    return FSDP_OK;
}

fsdp_status fsdp_optimizer_set_steps(fsdp_optimizer *o, const fsdp_parameter *p, int64_t steps)
{
    int64_t i = find_parameter(o, p);
    if (i < 0 || steps < 0)
        return fsdp_error(FSDP_ERR_INVALID, "%lld steps of %s", (long long)steps,
                          i < 0 ? "a parameter that is not the optimizer's"
                                : o->list.items[i].name);
    o->entries[i].steps = steps;
    /* A state dict has been loaded, and the parameter's values of training are no longer valid. */
    fsdp_optimizer_release_kept(o, (size_t)i);
    return FSDP_OK;
}

const float *fsdp_optimizer_constant_state(const fsdp_optimizer *o, int k)
{
    return o->class->map ? o->class->map(k) : NULL;
}

int fsdp_optimizer_group_of(const fsdp_optimizer *o, const fsdp_parameter *p)
{
    int64_t i = find_parameter(o, p);
    return i < 0 ? -1 : o->entries[i].group;
}

fsdp_optimizer_options *fsdp_optimizer_group_options(fsdp_optimizer *o, int group)
{
    return group >= 0 && (size_t)group < o->n_groups ? &o->groups[group] : NULL;
}

fsdp_status fsdp_optimizer_check_options(const fsdp_optimizer *o,
                                         const fsdp_optimizer_options *options)
{
    return o->class->check(options);
}
