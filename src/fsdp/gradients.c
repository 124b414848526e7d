/* A unit's gradients: from the slot that backward writes, over the ranks, to the shards.
 *
 * Note [Same bits at any world size]. Leaf m = a * W + r is the gradient of micro-step a on rank r.
 * Leaves are added in float32 as the aligned binary tree over m: across ranks by the reduce of each
 * micro-step, across micro-steps in a stack of partial sums, of which two of one level become one
 * of the next. The division comes last, once. 1 x 4, 2 x 2 and 4 x 1 (ranks x micro-steps) then
 * agree in every bit. */
#include <stddef.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/fsdp/param_group.h"

enum {
    SLOT_ALIGN = 128
};

/* One rank's slot: gradients, then a byte for each parameter that has one. */
static size_t slot_bytes(const fsdp_param_group *u)
{
    return (size_t)u->numel * sizeof(float) +
           (u->n_params + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

/* NULL on meta. */
static unsigned char *slot_flags(const fsdp_param_group *u, int rank)
{
    unsigned char *base = fsdp_buffer_data(u->slot);
    return base ? base + slot_bytes(u) * (size_t)rank + (size_t)u->numel * sizeof(float) : NULL;
}

static int world_of(const fsdp_group *group)
{
    return group ? fsdp_group_world_size(group) : 1;
}

/* Bytes of the gradients that this micro-step touched: ranks that ran different code differ here,
 * and the phase check says so. */
static fsdp_phase_info info_of(const fsdp_param_group *u, fsdp_phase_kind kind)
{
    fsdp_dtype dtype = u->options.mp_policy.reduce_dtype;
    size_t bytes = 0;
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].touched)
            bytes += (size_t)fsdp_parameter_numel(u->params[i].parameter) * fsdp_dtype_size(dtype);
    return (fsdp_phase_info){.unit = u->number,
                             .step = u->step,
                             .kind = (uint16_t)kind,
                             .dtype = (uint16_t)dtype,
                             .bytes = bytes};
}

/* --- backward writes --- */

static fsdp_status open_slot(fsdp_param_group *u)
{
    size_t bytes = slot_bytes(u) * (size_t)world_of(u->group);
    FSDP_TRY(fsdp_pool_take(&u->pools->slots, bytes, &u->slot));
    fsdp_phase_info info = info_of(u, FSDP_KIND_GRADIENT);
    fsdp_status status = fsdp_buffer_begin(u->slot, FSDP_PHASE_WRITE, &info);
    if (status != FSDP_OK) {
        fsdp_pool_give_back(&u->pools->slots, u->slot);
        u->slot = NULL;
        return status;
    }
    char *base = fsdp_buffer_data(u->slot);
    int rank = u->group ? fsdp_group_rank(u->group) : 0;
    char *own = base ? base + slot_bytes(u) * (size_t)rank : NULL;
#ifdef FSDP_DEBUG
    if (own)
        memset(own, 0xff, slot_bytes(u)); /* NaN: the first contribution overwrites */
#endif
    fsdp_storage_set_data(u->slot_storage, own);
    return FSDP_OK;
}

fsdp_status fsdp_param_group_target(fsdp_grad_sink *sink, fsdp_tensor *leaf, fsdp_tensor **dst,
                                    float *beta)
{
    (void)leaf;
    fsdp_parameter *parameter =
        (fsdp_parameter *)(void *)((char *)sink - offsetof(fsdp_parameter, sink));
    fsdp_param_group *u = parameter->owner;
    if (!u->pools)
        return fsdp_error(FSDP_ERR_STATE, "unit '%s' has not run a forward", u->name);
    if (!u->slot)
        FSDP_TRY(open_slot(u));
    for (size_t i = 0; i < u->n_params; i++) {
        if (u->params[i].parameter != parameter)
            continue;
        *beta = u->params[i].touched ? 1.0f : 0.0f;
        u->params[i].touched = true;
        *dst = u->params[i].grad_slot;
        return FSDP_OK;
    }
    fsdp_assert_failed("the parameter is one of its unit's", __FILE__, __LINE__);
    return FSDP_ERR_STATE;
}

/* reduce_dtype bf16: each gradient is rounded once, here, and still summed in float32. */
static fsdp_status round_slot(fsdp_param_group *u)
{
    fsdp_dtype dtype = u->options.mp_policy.reduce_dtype;
    if (dtype == FSDP_DTYPE_F32)
        return FSDP_OK;
    const fsdp_kernels *k = u->device->kernels;
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_tensor *g = u->params[i].grad_slot, *rounded;
        if (!u->params[i].touched)
            continue;
        FSDP_TRY(fsdp_tensor_to(g, dtype, FSDP_TAG_COMM, &rounded));
        if (k)
            k->cast(u->device->context, fsdp_tensor_ptr(g), FSDP_DTYPE_F32,
                    fsdp_tensor_ptr(rounded), dtype, fsdp_tensor_numel(g));
        fsdp_tensor_release(rounded);
    }
    return FSDP_OK;
}

fsdp_status fsdp_param_group_publish(fsdp_param_group *u, bool *pending)
{
    *pending = u->slot != NULL;
    if (!u->slot)
        return FSDP_OK;
    fsdp_status status = round_slot(u);
    unsigned char *flags = slot_flags(u, u->group ? fsdp_group_rank(u->group) : 0);
    for (size_t i = 0; i < u->n_params && flags; i++)
        flags[i] = u->params[i].touched;
    fsdp_storage_set_data(u->slot_storage, NULL);
    fsdp_buffer_end(u->slot);
    return status;
}

/* --- own rows over all ranks --- */

static fsdp_status compare_flags(const fsdp_param_group *u)
{
    for (int r = 0; r < world_of(u->group); r++) {
        const unsigned char *flags = slot_flags(u, r);
        for (size_t i = 0; i < u->n_params && flags; i++)
            if (flags[i] != u->params[i].touched)
                return fsdp_error(FSDP_ERR_COMM,
                                  "ranks diverged: rank %d has %s gradient of '%s' in unit '%s', "
                                  "rank %d has %s",
                                  r, flags[i] ? "a" : "no", u->params[i].name, u->name,
                                  fsdp_group_rank(u->group), flags[i] ? "none" : "one");
    }
    return FSDP_OK;
}

static void sum_slots(const fsdp_param_group *u, const fsdp_param *p, fsdp_tensor *rows,
                      float scale)
{
    const fsdp_kernels *k = u->device->kernels;
    int64_t n = fsdp_tensor_numel(rows);
    if (!k || !n)
        return;
    const char *base = fsdp_buffer_data(u->slot);
    int world_size = world_of(u->group);
    size_t first = p->offset + (size_t)(p->parameter->row_begin * fsdp_tensor_row_numel(rows));
    for (int r = 0; r < world_size; r++)
        u->sources[r] = base + slot_bytes(u) * (size_t)r + first * sizeof(float);
    k->tree_sum(u->device->context, fsdp_tensor_ptr(rows), u->sources, world_size, FSDP_DTYPE_F32,
                n, scale);
}

/* a = (a + b) * scale */
static void fold(const fsdp_param_group *u, fsdp_tensor *a, const fsdp_tensor *b, float scale)
{
    const void *src[2] = {fsdp_tensor_ptr(a), fsdp_tensor_ptr(b)};
    if (u->device->kernels && fsdp_tensor_numel(a))
        u->device->kernels->tree_sum(u->device->context, fsdp_tensor_ptr(a), src, 2, FSDP_DTYPE_F32,
                                     fsdp_tensor_numel(a), scale);
}

static void pop(fsdp_param *p)
{
    fsdp_tensor_release(p->tree[--p->n_tree]);
    p->tree[p->n_tree] = NULL;
}

/* Push one micro-step's sum; two of a level become one of the next. */
static void push(const fsdp_param_group *u, fsdp_param *p, fsdp_tensor *rows)
{
    FSDP_ASSERT(p->n_tree < FSDP_MAX_TREE);
    p->tree[p->n_tree] = rows;
    p->tree_level[p->n_tree++] = 0;
    while (p->n_tree > 1 && p->tree_level[p->n_tree - 1] == p->tree_level[p->n_tree - 2]) {
        fold(u, p->tree[p->n_tree - 2], p->tree[p->n_tree - 1], 1.0f);
        p->tree_level[p->n_tree - 2]++;
        pop(p);
    }
}

/* Fold what is left, smallest first, scale, and hand it to the parameter: it adds to a gradient
 * that nobody zeroed, as in PyTorch. */
static void finish(const fsdp_param_group *u, fsdp_param *p, float scale)
{
    while (p->n_tree > 2) {
        fold(u, p->tree[p->n_tree - 2], p->tree[p->n_tree - 1], 1.0f);
        pop(p);
    }
    if (p->n_tree == 2) {
        fold(u, p->tree[0], p->tree[1], scale);
        pop(p);
    } else if (scale != 1.0f && u->device->kernels) {
        u->device->kernels->scale(u->device->context, fsdp_tensor_ptr(p->tree[0]),
                                  fsdp_tensor_ptr(p->tree[0]), scale, FSDP_DTYPE_F32,
                                  fsdp_tensor_numel(p->tree[0]));
    }
    fsdp_grad_sink *sink = &p->parameter->sink;
    if (sink->grad) {
        fold(u, sink->grad, p->tree[0], 1.0f);
        pop(p);
    } else {
        sink->grad = p->tree[0];
        p->tree[--p->n_tree] = NULL;
    }
}

static fsdp_status reduce_param(fsdp_param_group *u, fsdp_param *p, bool last, float scale)
{
    const fsdp_tensor *local = p->parameter->local;
    fsdp_tensor *rows;
    FSDP_TRY(fsdp_tensor_create(u->device, FSDP_DTYPE_F32, local->ndim, local->shape, FSDP_TAG_GRAD,
                                &rows));
    fsdp_status status = FSDP_OK;
    if (u->shard_group)
        status = fsdp_dtensor_from_local(rows, u->shard_group, (fsdp_placement){FSDP_SHARD, 0},
                                         p->parameter->shape);
    if (status != FSDP_OK) {
        fsdp_tensor_release(rows);
        return status;
    }
    bool only = last && p->n_tree == 0;
    sum_slots(u, p, rows, only ? scale : 1.0f);
    push(u, p, rows);
    if (last)
        finish(u, p, only ? 1.0f : scale);
    return FSDP_OK;
}

static float scale_of(const fsdp_param_group *u)
{
    return (float)(1.0 / (u->divide_factor > 0.0 ? u->divide_factor : (double)world_of(u->group)));
}

void fsdp_param_group_finish(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].n_tree)
            finish(u, &u->params[i], scale_of(u));
}

fsdp_status fsdp_param_group_reduce(fsdp_param_group *u, bool last)
{
    fsdp_phase_info info = info_of(u, FSDP_KIND_REDUCE_SCATTER);
    FSDP_TRY(fsdp_buffer_begin(u->slot, FSDP_PHASE_READ, &info));
    fsdp_status status = compare_flags(u);
    for (size_t i = 0; i < u->n_params && status == FSDP_OK; i++) {
        if (u->params[i].touched)
            status = reduce_param(u, &u->params[i], last, scale_of(u));
        u->params[i].touched = false;
    }
    fsdp_buffer_end(u->slot);
    fsdp_pool_give_back(&u->pools->slots, u->slot);
    u->slot = NULL;
    return status;
}

void fsdp_param_group_drop_sums(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        while (u->params[i].n_tree)
            pop(&u->params[i]);
}

void fsdp_param_group_drop_gradients(fsdp_param_group *u)
{
    fsdp_param_group_drop_sums(u);
    for (size_t i = 0; i < u->n_params; i++)
        u->params[i].touched = false;
    if (!u->slot)
        return;
    fsdp_storage_set_data(u->slot_storage, NULL);
    fsdp_buffer_end(u->slot);
    fsdp_pool_give_back(&u->pools->slots, u->slot);
    u->slot = NULL;
}
