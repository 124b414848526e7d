/* The code that all optimizers share: for parameter groups, for state, and for the loop over
 * parameters in a step.
 *
 * A step first checks everything that can fail, so that a rank fails before it communicates. If the
 * algorithm needs statistics of whole tensors, the step computes them next. It then updates the
 * parameters one after another.
 *
 * The master weights of a unit may be in one storage that all ranks map. All ranks must begin a
 * write to such a storage together (a phase), so they wait for each other. Consecutive parameters
 * that share a storage are therefore written in one phase, so that a unit costs one wait instead of
 * one wait for each parameter. The order of writes is the same on all ranks. A rank takes part in
 * each phase even if it has no rows of these parameters. */
#include <math.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/dynamic_map.h"
#include "src/dtensor/mesh.h"
#include "src/nn/module.h"
#include "src/optim/optimizer.h"
#include "src/tensor/halved.h"
#include "src/tensor/offload.h"
#include "src/trace/trace.h"

typedef struct entry {
    int group;
    int64_t steps; /* steps taken so far */
    fsdp_tensor *state[FSDP_MAX_OPTIMIZER_STATE];
    fsdp_tensor *kept; /* during evaluation: the values of training, float32; or NULL */
} entry;

struct fsdp_optimizer {
    const fsdp_optimizer_class *class;
    fsdp_optimizer_options *groups;
    fsdp_optimizer_options *before; /* [n_groups] options of the groups before the latest step */
    size_t n_groups, cap_groups, cap_before;
    fsdp_parameter_list list; /* the names are owned, the parameters borrowed */
    size_t cap_list;
    entry *entries; /* [list.n] */
    size_t cap_entries;
    fsdp_step_item *items; /* the parameters that have a gradient in the current step */
    size_t n_items, cap_items;
    fsdp_tensor *maps[FSDP_MAX_OPTIMIZER_STATE]; /* the constant states (FSDP_STATE_MAP); NULL:
                                                    state k is not constant or not created yet */
};

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

/* Fails if `class` needs whole rows, and p is a trainable parameter that is sharded along a
 * dimension other than 0. */
static fsdp_status check_placement(const fsdp_optimizer_class *class,
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
    if (!FSDP_GROW(o->groups, o->cap_groups, o->n_groups + 1) ||
        !FSDP_GROW(o->before, o->cap_before, o->n_groups + 1))
        return FSDP_ERR_NOMEM;
    size_t before = o->list.n;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < parameters->n && status == FSDP_OK; i++) {
        status = check_placement(class, options, &parameters->items[i]);
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

/* --- state --- */

/* Computes the shape of a state tensor from the shape `of` [ndim] of its parameter. Stores the
 * result in `shape`, and returns the number of its dimensions. */
static int state_shape(fsdp_state_shape kind, int ndim, const int64_t *of,
                       int64_t shape[FSDP_MAX_DIMS])
{
    int64_t inner = 1;
    memcpy(shape, of, (size_t)ndim * sizeof *shape);
    if (kind == FSDP_STATE_MAP)
        shape[0] = FSDP_MAP_VALUES;
    if (kind == FSDP_STATE_BLOCKS) {
        for (int d = 1; d < ndim; d++)
            inner *= of[d];
        shape[1] = (inner + FSDP_MAP_BLOCK - 1) / FSDP_MAP_BLOCK;
        return 2;
    }
    if (kind == FSDP_STATE_COLUMNS)
        shape[ndim - 2] = of[ndim - 1];
    return kind == FSDP_STATE_SAME || kind == FSDP_STATE_COPY ? ndim
           : kind == FSDP_STATE_MAP                           ? 1
           : kind == FSDP_STATE_SCALAR                        ? 0
                                                              : ndim - 1;
}

static fsdp_status check_shapes(const char *name, const fsdp_tensor *local, const fsdp_tensor *grad)
{
    char have[FSDP_SHAPE_TEXT], want[FSDP_SHAPE_TEXT];
    if (grad->ndim != local->ndim ||
        memcmp(grad->shape, local->shape, (size_t)local->ndim * sizeof *local->shape) != 0)
        return fsdp_error(FSDP_ERR_STATE, "parameter %s: the gradient is %s, this rank's rows %s",
                          name, fsdp_shape_text(grad->ndim, grad->shape, have),
                          fsdp_shape_text(local->ndim, local->shape, want));
    return FSDP_OK;
}

static fsdp_status check_state(const char *name, const fsdp_tensor *local, const fsdp_tensor *state,
                               fsdp_state_shape kind)
{
    char have[FSDP_SHAPE_TEXT], now[FSDP_SHAPE_TEXT];
    int64_t want[FSDP_MAX_DIMS];
    int ndim = state_shape(kind, local->ndim, local->shape, want);
    if (state->ndim != ndim || memcmp(state->shape, want, (size_t)ndim * sizeof *want) != 0)
        return fsdp_error(FSDP_ERR_STATE,
                          "parameter %s: the optimizer's state is %s, this rank's rows are now %s: "
                          "call fully_shard before the first step",
                          name, fsdp_shape_text(state->ndim, state->shape, have),
                          fsdp_shape_text(local->ndim, local->shape, now));
    if (state->storage->device != local->storage->device)
        return fsdp_error(FSDP_ERR_STATE,
                          "parameter %s: the optimizer's state is on device %s, the parameter now "
                          "on %s: call fsdp_module_to_empty() before the first step",
                          name, fsdp_device_name(state->storage->device),
                          fsdp_device_name(local->storage->device));
    return FSDP_OK;
}

/* Gives `state` the placements of `local`. There are two exceptions: for a matrix, a state of kind
 * FSDP_STATE_COLUMNS is replicated; a state that does not depend on the rows gets no placements. */
static fsdp_status place_state(const fsdp_tensor *local, fsdp_state_shape kind, fsdp_tensor *state)
{
    if (!fsdp_is_dtensor(local) || kind == FSDP_STATE_SCALAR || kind == FSDP_STATE_MAP)
        return FSDP_OK;
    fsdp_tensor_spec spec = *local->spec;
    state_shape(kind, local->ndim, fsdp_dtensor_shape(local), spec.shape);
    for (int d = 0; d < spec.mesh_ndim; d++)
        if (kind == FSDP_STATE_COLUMNS && local->ndim == 2)
            spec.placements[d] = (fsdp_placement){.kind = FSDP_REPLICATE};
    return fsdp_spec_attach(state, &spec);
}

/* Creates a state tensor of zeros. If the parameter is offloaded, its states are also offloaded,
 * with one exception: if the optimizer needs statistics of whole tensors
 * (fsdp_optimizer_class.whole), each step reads the small states of all parameters at one time, so
 * these states stay in memory. A state is large if it has the shape of its parameter and the
 * parameter has two or more dimensions. All other states are small. */
static fsdp_status new_state(const fsdp_optimizer *o, const fsdp_tensor *local, fsdp_dtype dtype,
                             fsdp_state_shape kind, int ndim, const int64_t *shape,
                             fsdp_tensor **state)
{
    if (o->class->whole && (kind != FSDP_STATE_SAME || local->ndim < 2))
        return fsdp_tensor_zeros(local->storage->device, dtype, ndim, shape, FSDP_TAG_OPTIM, state);
    return fsdp_tensor_zeros_placed_like(local, dtype, ndim, shape, FSDP_TAG_OPTIM, state);
}

/* Sets *state to the tensor of the constant state k, which all parameters share. */
static fsdp_status retain_map(fsdp_optimizer *o, fsdp_device *device, int k, fsdp_tensor **state)
{
    if (!o->maps[k])
        FSDP_TRY(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 1, (int64_t[]){FSDP_MAP_VALUES},
                                       o->class->map(k), FSDP_TAG_OPTIM, &o->maps[k]));
    *state = fsdp_tensor_retain(o->maps[k]);
    return FSDP_OK;
}

/* Sets the elements of `state` to zero or, if its kind is FSDP_STATE_COPY, to those of `local`. */
static fsdp_status fill_state(const fsdp_tensor *local, fsdp_state_shape kind, fsdp_tensor *state)
{
    const fsdp_device *device = state->storage->device;
    const int64_t n = fsdp_tensor_numel(state);
    const bool copies = kind == FSDP_STATE_COPY;
    if (!device->kernels || !n)
        return FSDP_OK;
    FSDP_TRY(copies ? fsdp_tensor_begin_read(local) : FSDP_OK);
    const fsdp_status status = fsdp_tensor_begin_write(state);
    if (status == FSDP_OK && copies)
        device->kernels->cast(device->context, fsdp_tensor_ptr(state), state->dtype,
                              fsdp_tensor_ptr(local), local->dtype, n);
    else if (status == FSDP_OK)
        device->kernels->fill(device->context, fsdp_tensor_ptr(state), state->dtype, 0.0, n);
    if (status == FSDP_OK)
        fsdp_tensor_end_write(state);
    if (copies)
        fsdp_tensor_end_read(local);
    return status;
}

static fsdp_status create_state(const fsdp_optimizer *o, const fsdp_tensor *local, fsdp_dtype dtype,
                                fsdp_state_shape kind, fsdp_tensor **state)
{
    int64_t shape[FSDP_MAX_DIMS];
    int ndim = state_shape(kind, local->ndim, local->shape, shape);
    fsdp_tensor *t;
    FSDP_TRY(new_state(o, local, dtype, kind, ndim, shape, &t));
    fsdp_status status = place_state(local, kind, t);
    if (status == FSDP_OK && kind == FSDP_STATE_COPY)
        status = fill_state(local, kind, t);
    if (status != FSDP_OK) {
        fsdp_tensor_release(t);
        return status;
    }
    *state = t;
    return FSDP_OK;
}

/* --- checks before a step --- */

static fsdp_status prepare_state(fsdp_optimizer *o, size_t i, const fsdp_tensor *local)
{
    entry *e = &o->entries[i];
    const fsdp_optimizer_options *options = &o->groups[e->group];
    for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE && o->class->state_names[k]; k++) {
        const fsdp_state_shape kind = o->class->state_shape(options, local, k);
        const fsdp_dtype dtype =
            o->class->state_dtype ? o->class->state_dtype(options, local, k) : FSDP_DTYPE_F32;
        if (kind == FSDP_STATE_NONE)
            continue;
        if (e->state[k])
            FSDP_TRY(check_state(o->list.items[i].name, local, e->state[k], kind));
        else if (kind == FSDP_STATE_MAP)
            FSDP_TRY(retain_map(o, local->storage->device, k, &e->state[k]));
        else
            FSDP_TRY(create_state(o, local, dtype, kind, &e->state[k]));
    }
    return FSDP_OK;
}

static fsdp_status check_memory(const fsdp_optimizer *o, size_t i)
{
    if (fsdp_parameter_local(o->list.items[i].parameter))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_STATE, "parameter %s has no memory", o->list.items[i].name);
}

static unsigned constants_of(const fsdp_optimizer *o)
{
    unsigned mask = 0;
    for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++)
        if (fsdp_optimizer_constant_state(o, k))
            mask |= 1u << k;
    return mask;
}

/* Checks one parameter that has a gradient, creates its state if it has none, and adds it to the
 * items of the step. */
static fsdp_status prepare_parameter(fsdp_optimizer *o, size_t i, fsdp_tensor *grad)
{
    const char *name = o->list.items[i].name;
    fsdp_parameter *p = o->list.items[i].parameter;
    fsdp_tensor *local = fsdp_parameter_local(p);
    entry *e = &o->entries[i];
    FSDP_TRY(check_memory(o, i));
    if (local->dtype != FSDP_DTYPE_F32 && local->dtype != FSDP_DTYPE_BF16)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "parameter %s: master weights of %s cannot be updated", name,
                          fsdp_dtype_name(local->dtype));
    FSDP_TRY(check_placement(o->class, &o->groups[e->group], &o->list.items[i]));
    FSDP_TRY(check_shapes(name, local, grad));
    FSDP_TRY(prepare_state(o, i, local));
    o->items[o->n_items++] = (fsdp_step_item){.index = i,
                                              .parameter = p,
                                              .options = &o->groups[e->group],
                                              .local = local,
                                              .grad = grad,
                                              .state = e->state,
                                              .constants = constants_of(o),
                                              .step = e->steps + 1};
    return FSDP_OK;
}

/* Fails if a group has its values for evaluation. */
static fsdp_status check_mode(fsdp_optimizer *o)
{
    for (size_t g = 0; o->class->train_mode && g < o->n_groups; g++)
        if (!*o->class->train_mode(&o->groups[g]))
            return fsdp_error(FSDP_ERR_STATE,
                              "%s: the parameters have their values for evaluation: call "
                              "fsdp_optimizer_train() before a step",
                              o->class->name(&o->groups[g]));
    return FSDP_OK;
}

static fsdp_status prepare_all(fsdp_optimizer *o)
{
    o->n_items = 0;
    for (size_t i = 0; i < o->list.n; i++) {
        fsdp_tensor *grad = fsdp_optimizer_gradient(o->list.items[i].parameter);
        if (grad)
            FSDP_TRY(prepare_parameter(o, i, grad));
    }
    return FSDP_OK;
}

/* --- element-wise updates --- */

/* The state of one step. For an optimizer with fsdp_optimizer_class.whole, only grad_scale and
 * `work` are used, and whole->begin() has set `work`. */
typedef struct step {
    float grad_scale;
    const fsdp_clip_result *clip; /* NULL: the kernels use grad_scale */
    void *work;
    /* The kernel arguments of n_args updates that have been described but not started yet. `args`
     * is large enough for the arguments of all items. */
    char *args;
    size_t n_args;
    fsdp_writing *writings; /* [n_items] */
} step;

/* Appends the kernel arguments for the update of `item` to s->args. The item must be open for
 * writing. */
static void describe_update(const fsdp_optimizer *o, const fsdp_step_item *item, step *s)
{
    fsdp_update u = {.n = fsdp_tensor_numel(item->local),
                     .grad = item->grad ? fsdp_tensor_ptr(item->grad) : NULL,
                     .kept = item->kept ? fsdp_tensor_ptr(item->kept) : NULL,
                     .step = item->step,
                     .grad_scale = s->grad_scale,
                     .index = item->index};
    int64_t begin, end;
    fsdp_parameter_rows(item->parameter, &begin, &end);
    u.inner = fsdp_tensor_row_numel(item->local);
    u.first = begin * u.inner;
    if (fsdp_tensor_is_halved(item->local)) {
        u.halves = fsdp_tensor_halves(item->local);
    } else if (item->local->dtype == FSDP_DTYPE_F32) {
        u.param = fsdp_tensor_ptr(item->local);
        u.copy = fsdp_parameter_own_rows_of_copy(item->parameter, &u.copy_dtype);
    } else {
        u.copy = fsdp_tensor_ptr(item->local);
        u.copy_dtype = item->local->dtype;
    }
    if (!item->local->storage->device->kernels || !u.n)
        return;
    for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++)
        u.state[k] = item->state[k] ? fsdp_tensor_ptr(item->state[k]) : NULL;
    u.state_dtype = item->state[0] ? item->state[0]->dtype : FSDP_DTYPE_F32;
    o->class->describe_update(item->options, &u, s->args + s->n_args++ * o->class->update_bytes);
}

/* Starts all updates that are described in s->args, by one call of the optimizer, and empties
 * s->args. */
static void start_updates(const fsdp_optimizer *o, const fsdp_device *device, step *s)
{
    if (s->n_args)
        o->class->start_updates(device, s->args, s->n_args, s->clip);
    s->n_args = 0;
}

/* --- a step --- */

static fsdp_status begin_step(fsdp_optimizer *o, step *s)
{
    if (o->class->whole)
        return o->n_items ? o->class->whole->begin(o->items, o->n_items, s->grad_scale, &s->work)
                          : FSDP_OK;
    s->args = fsdp_calloc(o->n_items, o->class->update_bytes);
    s->writings = fsdp_calloc(o->n_items, sizeof *s->writings);
    return s->args && s->writings ? FSDP_OK : FSDP_ERR_NOMEM;
}

static void end_step(const fsdp_optimizer *o, step *s)
{
    if (o->class->whole)
        o->class->whole->end(s->work);
    fsdp_free(s->writings);
    fsdp_free(s->args);
}

static void count_step(fsdp_optimizer *o, size_t i)
{
    o->entries[o->items[i].index].steps = o->items[i].step;
}

static fsdp_status update_item(fsdp_optimizer *o, size_t i, step *s)
{
    const fsdp_step_item *item = &o->items[i];
    if (o->class->whole) {
        FSDP_TRY(o->class->whole->apply(s->work, i));
    } else {
        describe_update(o, item, s);
        start_updates(o, item->local->storage->device, s);
    }
    count_step(o, i);
    return FSDP_OK;
}

/* Consecutive items with the same fsdp_tensor_key() form a run. A run contains all items of a unit,
 * or a single item. Returns the end of the run that begins at item `begin`. */
static size_t run_end(const fsdp_optimizer *o, size_t begin)
{
    const void *key = fsdp_tensor_key(o->items[begin].local);
    size_t end = begin + 1;
    while (end < o->n_items && fsdp_tensor_key(o->items[end].local) == key)
        end++;
    return end;
}

/* Moves each item to the place directly after the earlier items with the same fsdp_tensor_key().
 * Afterwards the items of a unit are next to each other, even if the unit has parameters in two
 * parameter groups, such as one with and one without weight decay. Otherwise a step would go
 * through all units once for each parameter group. Items that share their key with no other item
 * keep their order. */
static void group_items(fsdp_optimizer *o)
{
    for (size_t i = 1; i < o->n_items; i++) {
        const fsdp_step_item item = o->items[i];
        const void *key = fsdp_tensor_key(item.local);
        size_t to = i;
        if (fsdp_tensor_has_own_key(item.local))
            continue;
        while (to > 0 && fsdp_tensor_key(o->items[to - 1].local) != key)
            to--;
        if (to == 0)
            continue; /* no earlier item has the key of item i */
        memmove(&o->items[to + 1], &o->items[to], (i - to) * sizeof item);
        o->items[to] = item;
    }
}

void fsdp_step_item_end_state(const fsdp_step_item *item, unsigned which)
{
    for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++)
        if (item->state[k] && ((which & ~item->constants) >> k & 1))
            fsdp_tensor_end_write(item->state[k]);
}

fsdp_status fsdp_step_item_begin_state(const fsdp_step_item *item, unsigned which)
{
    for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++) {
        const bool writes = item->state[k] && ((which & ~item->constants) >> k & 1);
        fsdp_status status = writes ? fsdp_tensor_begin_write(item->state[k]) : FSDP_OK;
        if (status != FSDP_OK) {
            fsdp_step_item_end_state(item, which & ((1u << k) - 1));
            return status;
        }
    }
    return FSDP_OK;
}

static fsdp_status prefetch(const fsdp_step_item *item)
{
    FSDP_TRY(fsdp_tensor_prefetch(item->local));
    for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++)
        if (item->state[k])
            FSDP_TRY(fsdp_tensor_prefetch(item->state[k]));
    return FSDP_OK;
}

static fsdp_status begin_item(fsdp_writing *writing, const fsdp_step_item *item)
{
    FSDP_TRY(fsdp_writing_next(writing, item->local));
    return fsdp_step_item_begin_state(item, FSDP_ALL_STATES);
}

/* Updates items [begin, end), which all have the same fsdp_tensor_key(). Before the first update,
 * starts to prefetch item `end`, the first item with the next key. */
static fsdp_status update_run(fsdp_optimizer *o, size_t begin, size_t end, fsdp_writing *writing,
                              step *s)
{
    FSDP_TRY(begin_item(writing, &o->items[begin]));
    fsdp_status status = end < o->n_items ? prefetch(&o->items[end]) : FSDP_OK;
    if (status == FSDP_OK)
        status = update_item(o, begin, s);
    for (size_t i = begin + 1; i < end && status == FSDP_OK; i++) {
        status = begin_item(writing, &o->items[i]);
        if (status != FSDP_OK)
            break;
        status = update_item(o, i, s);
        fsdp_step_item_end_state(&o->items[i], FSDP_ALL_STATES);
    }
    fsdp_step_item_end_state(&o->items[begin], FSDP_ALL_STATES);
    return status;
}

/* --- one kernel for many items --- */

/* Returns true if one kernel may update item i together with other items. In that case, all of
 * these items are open for writing at the same time. */
static bool can_join(const fsdp_optimizer *o, size_t i)
{
    const fsdp_step_item *item = &o->items[i];
    bool takes_memory = fsdp_tensor_write_takes_memory(item->local, true);
    for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++)
        takes_memory |= item->state[k] && !(item->constants >> k & 1) &&
                        fsdp_tensor_write_takes_memory(item->state[k], false);
    return !o->class->whole && item->local->storage->device->traits->joins_kernels && !takes_memory;
}

static bool all_can_join(const fsdp_optimizer *o, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (!can_join(o, i) ||
            o->items[i].local->storage->device != o->items[begin].local->storage->device)
            return false;
    return true;
}

/* A run consists of consecutive items with the same fsdp_tensor_key(), and a span is a sequence of
 * runs that one kernel updates. Returns the end of the span that begins at item `begin`. Returns
 * `begin` if the run that begins there must be updated by separate kernels. */
static size_t span_end(const fsdp_optimizer *o, size_t begin)
{
    size_t end = begin;
    while (end < o->n_items && all_can_join(o, begin, run_end(o, end)))
        end = run_end(o, end);
    return end;
}

/* Opens items [begin, end) for writing. The items of each run share one fsdp_writing. Sets *opened
 * so that items [begin, *opened) are open, even if opening an item fails. */
static fsdp_status open_span(const fsdp_optimizer *o, size_t begin, size_t end, const step *s,
                             size_t *opened)
{
    for (size_t i = begin, run = begin; i < end; *opened = ++i) {
        if (i == run_end(o, run))
            run = i;
        s->writings[run].in_halves = true;
        FSDP_TRY(begin_item(&s->writings[run], &o->items[i]));
    }
    return FSDP_OK;
}

static fsdp_status update_span(fsdp_optimizer *o, size_t begin, size_t end, step *s)
{
    size_t opened = begin;
    fsdp_status status = open_span(o, begin, end, s, &opened);
    for (size_t i = begin; i < end && status == FSDP_OK; i++)
        describe_update(o, &o->items[i], s);
    if (status == FSDP_OK)
        start_updates(o, o->items[begin].local->storage->device, s);
    for (size_t i = begin; i < end && status == FSDP_OK; i++)
        count_step(o, i);
    for (size_t i = begin; i < opened; i++)
        fsdp_step_item_end_state(&o->items[i], FSDP_ALL_STATES);
    for (size_t i = begin; i < end; i++)
        fsdp_writing_end(&s->writings[i]);
    return status;
}

/* --- all items --- */

static fsdp_status update_all(fsdp_optimizer *o, step *s)
{
    fsdp_writing writing = {.in_halves = !o->class->whole};
    fsdp_status status = FSDP_OK;
    for (size_t i = 0, end; i < o->n_items && status == FSDP_OK; i = end) {
        end = span_end(o, i);
        if (end > i) {
            fsdp_writing_end(&writing);
            status = update_span(o, i, end, s);
        } else {
            end = run_end(o, i);
            status = update_run(o, i, end, &writing, s);
        }
    }
    fsdp_writing_end(&writing);
    return status;
}

/* Lets the step change the options of the groups, and keeps the earlier ones. */
static void begin_groups(fsdp_optimizer *o)
{
    for (size_t g = 0; o->class->begin_group && g < o->n_groups; g++) {
        o->before[g] = o->groups[g];
        o->class->begin_group(&o->groups[g]);
    }
}

static fsdp_status run_step(fsdp_optimizer *o, step *s)
{
    FSDP_TRY(check_mode(o));
    FSDP_TRY(prepare_all(o));
    group_items(o);
    fsdp_status status = begin_step(o, s);
    if (status == FSDP_OK) {
        begin_groups(o);
        status = update_all(o, s);
    }
    end_step(o, s);
    return status;
}

fsdp_status fsdp_optimizer_step_scaled(fsdp_optimizer *o, float grad_scale,
                                       const fsdp_clip_result *clip)
{
    step s = {.grad_scale = grad_scale, .clip = clip};
    FSDP_ASSERT(!clip || !o->class->whole);
    fsdp_trace_begin(FSDP_TRACE_OPTIMIZER, "optimizer step", NULL);
    fsdp_status status = run_step(o, &s);
    fsdp_trace_end();
    return status;
}

fsdp_status fsdp_optimizer_step(fsdp_optimizer *o, float grad_scale)
{
    return fsdp_optimizer_step_scaled(o, grad_scale, NULL);
}

bool fsdp_optimizer_is_elementwise(const fsdp_optimizer *o)
{
    return !o->class->whole;
}

void fsdp_optimizer_uncount_step(fsdp_optimizer *o)
{
    for (size_t i = 0; i < o->n_items; i++)
        o->entries[o->items[i].index].steps = o->items[i].step - 1;
    for (size_t g = 0; o->class->begin_group && g < o->n_groups; g++)
        o->groups[g] = o->before[g];
}

/* --- training and evaluation --- */

/* Creates the memory for the values of training of parameter i, or releases it. */
static fsdp_status keep_values(fsdp_optimizer *o, size_t i, bool keeps)
{
    entry *e = &o->entries[i];
    const fsdp_tensor *local = fsdp_parameter_local(o->list.items[i].parameter);
    fsdp_tensor_release(e->kept);
    e->kept = NULL;
    return keeps ? fsdp_tensor_create(local->storage->device, FSDP_DTYPE_F32, local->ndim,
                                      local->shape, FSDP_TAG_OPTIM, &e->kept)
                 : FSDP_OK;
}

/* Makes the parameters that have taken a step the items of a step without gradients. */
static fsdp_status prepare_switch(fsdp_optimizer *o, bool to_train)
{
    o->n_items = 0;
    for (size_t i = 0; i < o->list.n; i++) {
        entry *e = &o->entries[i];
        if (!e->steps || !e->state[0])
            continue;
        if (!to_train)
            FSDP_TRY(keep_values(o, i, true));
        FSDP_TRY(prepare_parameter(o, i, fsdp_parameter_local(o->list.items[i].parameter)));
        fsdp_step_item *item = &o->items[o->n_items - 1];
        item->grad = NULL;
        item->kept = e->kept;
        item->step = e->steps;
    }
    return FSDP_OK;
}

static fsdp_status update_without_step(fsdp_optimizer *o)
{
    step s = {.grad_scale = 1.0f};
    group_items(o);
    fsdp_status status = begin_step(o, &s);
    if (status == FSDP_OK)
        status = update_all(o, &s);
    end_step(o, &s);
    return status;
}

static fsdp_status switch_mode(fsdp_optimizer *o, bool to_train)
{
    if (!o->class->train_mode || !o->n_groups || *o->class->train_mode(&o->groups[0]) == to_train)
        return FSDP_OK;
    FSDP_TRY(prepare_switch(o, to_train));
    FSDP_TRY(update_without_step(o));
    for (size_t g = 0; g < o->n_groups; g++)
        *o->class->train_mode(&o->groups[g]) = to_train;
    for (size_t i = 0; to_train && i < o->list.n; i++)
        FSDP_TRY(keep_values(o, i, false));
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
    return lr && !o->class->begin_group ? *lr : own_lr(o, group);
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
        FSDP_TRY(check_memory(o, i));
        FSDP_TRY(prepare_state(o, i, fsdp_parameter_local(p)));
    }
    return FSDP_OK;
}

fsdp_status fsdp_optimizer_clear_state(const fsdp_optimizer *o, const fsdp_parameter *p)
{
    const int64_t i = find_parameter(o, p);
    const fsdp_tensor *local = fsdp_parameter_local(p);
    for (int k = 0; i >= 0 && k < FSDP_MAX_OPTIMIZER_STATE && o->class->state_names[k]; k++) {
        const entry *e = &o->entries[i];
        if (e->state[k] && !fsdp_optimizer_constant_state(o, k))
            FSDP_TRY(fill_state(local, o->class->state_shape(&o->groups[e->group], local, k),
                                e->state[k]));
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
    return keep_values(o, (size_t)i, false);
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
