/* Stores weights that are gathered in float8.
 *
 * Note [Float8 all-gather]. This is torchao's enable_fsdp_float8_all_gather. Each rank keeps its
 * rows of the master weights. A gather casts them to e4m3fn, with one scale for the whole weight
 * (Note [Float8 scales] in src/base/float8.h), and writes the codes to a buffer that all ranks of a
 * host read: one byte an element instead of two or four. Operations read the codes themselves, and
 * the scale in fsdp_parameter.float8.
 *
 * The scale needs the largest magnitude over all ranks. Each rank computes the scale of its own
 * rows. The scale of the whole weight is the smallest of the ranks' scales, because a scale is
 * smaller if the magnitude is larger. A minimum does not depend on the order or number of ranks,
 * and neither do the codes. fsdp_precompute_float8_dynamic_scale_for_fsdp() finds the scales of all
 * weights of a model by one reduction after the optimizer's step. If that function was not called
 * since the rows were written, each gather finds the scales of its unit, by one reduction. */
#include "src/base/alloc.h"
#include "src/fsdp/param_storage.h"
#include "src/nn/float8_weight.h"
#include "src/trace/trace.h"

typedef struct float8_memory {
    fsdp_param_memory base;
    fsdp_buffer *codes; /* the codes of all ranks; NULL: no gather is in progress */
    bool is_stale;      /* the rows were written since the scales were computed */
} float8_memory;

static float8_memory *float8_of(fsdp_param_memory *m)
{
    return (float8_memory *)(void *)m;
}

/* --- scales --- */

static fsdp_tensor *scale_of(const fsdp_param *p)
{
    return p->parameter->float8->scale;
}

/* Set *scale to the scale of this rank's rows of p. A rank without rows gets the largest scale. */
static fsdp_status scale_own_rows(const fsdp_param *p, float *scale)
{
    const fsdp_device *device = p->context->device;
    fsdp_tensor *own = scale_of(p);
    if (!device->kernels)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_begin_read(p->local));
    device->kernels->float8_scales(device->context,
                                   &(fsdp_float8_cast_args){.x = fsdp_tensor_ptr(p->local),
                                                            .dtype = p->local->dtype,
                                                            .rows = 1,
                                                            .columns = fsdp_tensor_numel(p->local),
                                                            .format = FSDP_FLOAT8_E4M3FN,
                                                            .axis = FSDP_FLOAT8_TENSOR,
                                                            .scales = fsdp_tensor_ptr(own)});
    const fsdp_status status =
        fsdp_device_to_host(device, scale, fsdp_tensor_ptr(own), sizeof *scale);
    fsdp_tensor_end_read(p->local);
    return status;
}

static void store_scale(const fsdp_param *p, float scale)
{
    const fsdp_device *device = p->context->device;
    if (device->kernels)
        fsdp_device_from_host(device, fsdp_tensor_ptr(scale_of(p)), &scale, sizeof scale);
}

/* Search the memories from index *at. Return the first memory whose scales must be computed, and
 * set *at to the index after that memory. Return NULL if there is none. */
static float8_memory *next_stale(fsdp_param_memory *const *memories, size_t n, size_t *at)
{
    while (*at < n) {
        fsdp_param_memory *base = memories[(*at)++];
        float8_memory *m = base ? float8_of(base) : NULL;
        if (m && m->is_stale && !m->codes)
            return m;
    }
    return NULL;
}

/* Replace each scale by its minimum over the ranks that have rows of the same weight. Consecutive
 * memories that have the same group share one all-reduce. */
static fsdp_status reduce_scales(fsdp_param_memory *const *memories, size_t n, float *scales)
{
    fsdp_group *group = NULL;
    size_t begin = 0, end = 0, at = 0;
    for (;;) {
        const float8_memory *m = next_stale(memories, n, &at);
        if (end > begin && group && (!m || m->base.context->shard_group != group))
            FSDP_TRY(fsdp_all_reduce(group, scales + begin, end - begin, FSDP_DTYPE_F32,
                                     FSDP_REDUCE_MIN));
        if (!m)
            return FSDP_OK;
        if (m->base.context->shard_group != group)
            begin = end;
        group = m->base.context->shard_group;
        end += m->base.n_params;
    }
}

static fsdp_status update(fsdp_param_memory *const *memories, size_t n, float *scales)
{
    float8_memory *m;
    fsdp_group *group = NULL;
    size_t used = 0;
    fsdp_status status = FSDP_OK;
    for (size_t at = 0; status == FSDP_OK && (m = next_stale(memories, n, &at));) {
        group = m->base.context->shard_group;
        for (size_t i = 0; i < m->base.n_params && status == FSDP_OK; i++)
            status = scale_own_rows(m->base.params[i], &scales[used++]);
    }
    if (status != FSDP_OK && group) /* peers would wait for this rank's scales */
        fsdp_group_abort(group, status);
    FSDP_TRY(status);
    FSDP_TRY(reduce_scales(memories, n, scales));
    used = 0;
    for (size_t at = 0; (m = next_stale(memories, n, &at));) {
        for (size_t i = 0; i < m->base.n_params; i++)
            store_scale(m->base.params[i], scales[used++]);
        m->is_stale = false;
    }
    return FSDP_OK;
}

fsdp_status fsdp_float8_memories_update(fsdp_param_memory *const *memories, size_t n)
{
    const float8_memory *m;
    size_t count = 0;
    for (size_t at = 0; (m = next_stale(memories, n, &at));)
        count += m->base.n_params;
    if (!count)
        return FSDP_OK;
    float *scales = fsdp_calloc(count, sizeof *scales);
    if (!scales) { /* abort, because the peers would wait for this rank's scales */
        size_t at = 0;
        const fsdp_status status = fsdp_error_nomem();
        fsdp_param_context_abort(next_stale(memories, n, &at)->base.context, status);
        return status;
    }
    const fsdp_status status = update(memories, n, scales);
    fsdp_free(scales);
    return status;
}

static fsdp_status begin_write(void *self)
{
    float8_memory *m = self;
    m->is_stale = true;
    return FSDP_OK;
}

/* --- gathering --- */

/* Return the phase info of a collective that moves the codes, one byte an element. */
static fsdp_phase_info phase_of(const fsdp_param_memory *m, fsdp_phase_kind kind)
{
    return fsdp_param_context_phase(m->context, kind, FSDP_DTYPE_U8, (uint64_t)m->logical_numel);
}

static void drop(fsdp_param_memory *base)
{
    float8_memory *m = float8_of(base);
    if (!m->codes)
        return;
    fsdp_buffer_end(m->codes);
    fsdp_pool_release(fsdp_param_context_pool(base->context), m->codes);
    m->codes = NULL;
}

/* Cast this rank's rows of p into `codes`, the buffer with the codes of all ranks, and declare
 * which bytes were written, so that the peers get them (fsdp_buffer_wrote()). */
static void cast_rows(const float8_memory *m, const fsdp_param *p, unsigned char *codes)
{
    const fsdp_device *device = p->context->device;
    const size_t size = fsdp_dtype_size(p->local->dtype);
    const char *rows = fsdp_tensor_ptr(p->local);
    for (int64_t run = 0; run < p->slice.runs; run++) {
        const size_t at = p->offset + (size_t)(p->slice.first + run * p->slice.stride);
        fsdp_buffer_wrote(m->codes, FSDP_ALL_READERS, at, (size_t)p->slice.length);
        if (!device->kernels || !p->slice.length)
            continue;
        const fsdp_float8_cast_args args = {.x = rows + (size_t)(run * p->slice.length) * size,
                                            .dtype = p->local->dtype,
                                            .rows = 1,
                                            .columns = p->slice.length,
                                            .format = FSDP_FLOAT8_E4M3FN,
                                            .axis = FSDP_FLOAT8_TENSOR,
                                            .scales = fsdp_tensor_ptr(scale_of(p)),
                                            .codes = codes + at,
                                            .codes_dtype = FSDP_DTYPE_U8};
        device->kernels->float8_cast(device->context, &args);
    }
}

static fsdp_status write_codes(float8_memory *m)
{
    const fsdp_param_context *c = m->base.context;
    fsdp_param_memory *const self[] = {&m->base};
    FSDP_TRY(fsdp_float8_memories_update(self, 1));
    FSDP_TRY(fsdp_pool_acquire(fsdp_param_context_pool(c), (size_t)m->base.numel, &m->codes));
    const fsdp_phase_info info = phase_of(&m->base, FSDP_KIND_WRITE_SHARD);
    const fsdp_status status = fsdp_buffer_begin(m->codes, FSDP_PHASE_WRITE, &info);
    if (status != FSDP_OK) {
        drop(&m->base);
        return status;
    }
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "cast own rows to float8", c->name);
    for (size_t i = 0; i < m->base.n_params; i++)
        cast_rows(m, m->base.params[i], fsdp_buffer_data(m->codes));
    fsdp_trace_end();
    fsdp_buffer_end(m->codes);
    fsdp_param_context_report(c, FSDP_UNIT_GATHER, c->shard_group, info.bytes);
    return FSDP_OK;
}

static fsdp_status gather(fsdp_param_memory *base)
{
    float8_memory *m = float8_of(base);
    /* If the local tensors are in a file, beginning a read of one of them loads all of them. So
     * begin a read of only the first one. */
    const fsdp_tensor *first = base->params[0]->local;
    if (m->codes)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_begin_read(first));
    const fsdp_status status = write_codes(m);
    fsdp_tensor_end_read(first);
    return status;
}

static fsdp_status unshard(fsdp_param_memory *base)
{
    const float8_memory *m = float8_of(base);
    const fsdp_phase_info info = phase_of(base, FSDP_KIND_ALL_GATHER);
    FSDP_TRY(fsdp_buffer_begin(m->codes, FSDP_PHASE_READ, &info));
    fsdp_storage_set_data(base->view, fsdp_buffer_data(m->codes));
    return FSDP_OK;
}

/* The codes are never kept: the optimizer's step would make them useless. */
static void reshard(fsdp_param_memory *base)
{
    fsdp_storage_set_data(base->view, NULL);
    drop(base);
}

/* --- the memory and the storage --- */

static fsdp_status create_scale(const fsdp_param *p)
{
    fsdp_float8_weight *float8 = p->parameter->float8;
    const int64_t one = 1;
    fsdp_tensor *scale;
    FSDP_TRY(
        fsdp_tensor_create(p->context->device, FSDP_DTYPE_F32, 1, &one, FSDP_TAG_PARAM, &scale));
    fsdp_tensor_release(float8->scale);
    float8->scale = scale;
    return FSDP_OK;
}

static fsdp_status allocate(fsdp_param_memory *base)
{
    float8_of(base)->is_stale = true;
    base->own_guard.begin_write = begin_write;
    for (size_t i = 0; i < base->n_params; i++)
        FSDP_TRY(create_scale(base->params[i]));
    FSDP_TRY(
        fsdp_storage_from_memory(base->context->device, NULL, (size_t)base->numel, &base->view));
    base->view->guards = base->read_guard;
    return FSDP_OK;
}

/* `show` is NULL because this memory cannot be hidden: a reshard returns the codes to their pool.
 */
const fsdp_param_memory_ops fsdp_memory_float8 = {.bytes = sizeof(float8_memory),
                                                  .allocate = allocate,
                                                  .gather = gather,
                                                  .prefetch = fsdp_param_memory_prefetch,
                                                  .unshard = unshard,
                                                  .reshard = reshard,
                                                  .drop = drop,
                                                  .release = fsdp_param_memory_release_view};

static bool fits(const fsdp_param *p, fsdp_dtype dtype)
{
    const fsdp_float8_weight *float8 = p->parameter->float8;
    (void)dtype;
    return float8 && float8->gathers;
}

static fsdp_status create_local(const fsdp_param_memories *memories, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local)
{
    return fsdp_create_private_local(memories->items[FSDP_MEMORY_FLOAT8], p, shape, local);
}

static uint64_t gathered_bytes(const fsdp_param *p)
{
    return (uint64_t)fsdp_param_numel(p);
}

const fsdp_param_storage fsdp_storage_float8 = {.name = "float8",
                                                .reads_codes = true,
                                                .fits = fits,
                                                .unsharded = FSDP_MEMORY_FLOAT8,
                                                .sharded = FSDP_MEMORY_FLOAT8,
                                                .create_local = create_local,
                                                .gathered_bytes = gathered_bytes};
