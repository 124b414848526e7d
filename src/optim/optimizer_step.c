/* A step of an optimizer: the loop over the parameters.
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
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/nn/module.h"
#include "src/optim/optimizer_internal.h"
#include "src/tensor/halved.h"
#include "src/tensor/offload.h"
#include "src/trace/trace.h"

/* --- checks before a step --- */

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

static unsigned constants_of(const fsdp_optimizer *o)
{
    unsigned mask = 0;
    for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE; k++)
        if (fsdp_optimizer_constant_state(o, k))
            mask |= 1u << k;
    return mask;
}

fsdp_status fsdp_optimizer_prepare_parameter(fsdp_optimizer *o, size_t i, fsdp_tensor *grad)
{
    const char *name = o->list.items[i].name;
    fsdp_parameter *p = o->list.items[i].parameter;
    fsdp_tensor *local = fsdp_parameter_local(p);
    fsdp_optimizer_entry *e = &o->entries[i];
    FSDP_TRY(fsdp_optimizer_check_memory(o, i));
    if (local->dtype != FSDP_DTYPE_F32 && local->dtype != FSDP_DTYPE_BF16)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "parameter %s: master weights of %s cannot be updated", name,
                          fsdp_dtype_name(local->dtype));
    FSDP_TRY(fsdp_optimizer_check_placement(o->class, &o->groups[e->group], &o->list.items[i]));
    FSDP_TRY(check_shapes(name, local, grad));
    FSDP_TRY(fsdp_optimizer_prepare_state(o, i, local));
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

/* Fails if the parameters of a group have their values for evaluation. */
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
            FSDP_TRY(fsdp_optimizer_prepare_parameter(o, i, grad));
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

/* Lets the step change the options of the groups, and keeps the earlier options in o->before. */
static void begin_groups(fsdp_optimizer *o)
{
    for (size_t g = 0; o->class->begin_group && g < o->n_groups; g++) {
        o->before[g] = o->groups[g];
        o->class->begin_group(&o->groups[g]);
    }
}

fsdp_status fsdp_optimizer_update_items(fsdp_optimizer *o, float grad_scale,
                                        const fsdp_clip_result *clip, bool is_step)
{
    step s = {.grad_scale = grad_scale, .clip = clip};
    group_items(o);
    fsdp_status status = begin_step(o, &s);
    if (status == FSDP_OK) {
        if (is_step)
            begin_groups(o);
        status = update_all(o, &s);
    }
    end_step(o, &s);
    return status;
}

static fsdp_status run_step(fsdp_optimizer *o, float grad_scale, const fsdp_clip_result *clip)
{
    FSDP_TRY(check_mode(o));
    FSDP_TRY(prepare_all(o));
    return fsdp_optimizer_update_items(o, grad_scale, clip, true);
}

fsdp_status fsdp_optimizer_step_scaled(fsdp_optimizer *o, float grad_scale,
                                       const fsdp_clip_result *clip)
{
    FSDP_ASSERT(!clip || !o->class->whole);
    fsdp_trace_begin(FSDP_TRACE_OPTIMIZER, "optimizer step", NULL);
    fsdp_status status = run_step(o, grad_scale, clip);
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
