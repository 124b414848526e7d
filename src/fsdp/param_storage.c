/* See Note [Param storages] in param_storage.h. */
#include "src/fsdp/param_storage.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"

/* The storages, in order of preference. The last storage can store any parameter. */
static const fsdp_param_storage *const storages[] = {
    &fsdp_storage_quantized, &fsdp_storage_extension, &fsdp_storage_float8, &fsdp_storage_offloaded,
    &fsdp_storage_host,      &fsdp_storage_host_cast, &fsdp_storage_rows,   &fsdp_storage_master,
    &fsdp_storage_halved,    &fsdp_storage_copy};

static const fsdp_param_memory_ops *const memory_ops[FSDP_N_MEMORIES] = {
    [FSDP_MEMORY_MASTER] = &fsdp_memory_master, [FSDP_MEMORY_COPY] = &fsdp_memory_copy,
    [FSDP_MEMORY_PACKED] = &fsdp_memory_packed, [FSDP_MEMORY_FLOAT8] = &fsdp_memory_float8,
    [FSDP_MEMORY_HOST] = &fsdp_memory_host,     [FSDP_MEMORY_QUANTIZED] = &fsdp_memory_quantized,
    [FSDP_MEMORY_ROWS] = &fsdp_memory_rows};

const fsdp_param_storage *fsdp_param_storage_for(const fsdp_param *p, fsdp_dtype dtype)
{
    size_t i = 0;
    while (!storages[i]->fits(p, dtype))
        i++;
    FSDP_ASSERT(i < FSDP_LENGTH(storages));
    return storages[i];
}

/* --- the memories of a group --- */

static fsdp_status create_memory(const fsdp_param_context *c, const fsdp_param_guards *guards,
                                 const fsdp_param_memory_ops *ops, fsdp_param_memory **memory)
{
    fsdp_param_memory *m = fsdp_calloc(1, ops->bytes);
    if (!m)
        return FSDP_ERR_NOMEM;
    m->ops = ops;
    m->context = c;
    m->read_guard = guards->read;
    m->write_guard = guards->write;
    m->write_guard.next = &m->own_guard;
    m->own_guard.self = m;
    *memory = m;
    return FSDP_OK;
}

static fsdp_status reserve_next(fsdp_param_memory *m, const fsdp_param *p, size_t *offset)
{
    *offset = (size_t)m->numel;
    m->numel += fsdp_aligned_numel(fsdp_param_numel(p));
    m->logical_numel += fsdp_param_numel(p);
    return FSDP_OK;
}

/* Reserve space for p in the memory of `kind`. Create the memory if it does not exist yet. */
static fsdp_status reserve(fsdp_param_memories *memories, fsdp_memory_kind kind,
                           const fsdp_param_guards *guards, fsdp_param *p, size_t *offset)
{
    fsdp_param_memory **m = &memories->items[kind];
    if (!*m)
        FSDP_TRY(create_memory(p->context, guards, memory_ops[kind], m));
    if (!FSDP_GROW((*m)->params, (*m)->cap_params, (*m)->n_params + 1))
        return FSDP_ERR_NOMEM;
    (*m)->params[(*m)->n_params++] = p;
    return ((*m)->ops->reserve ? (*m)->ops->reserve : reserve_next)(*m, p, offset);
}

static fsdp_status place_param(fsdp_param_memories *memories, const fsdp_param_guards *guards,
                               fsdp_param *p)
{
    size_t unused;
    p->storage = fsdp_param_storage_for(p, p->dtype);
    if (p->storage->sharded != p->storage->unsharded)
        FSDP_TRY(reserve(memories, p->storage->sharded, guards, p, &unused));
    FSDP_TRY(reserve(memories, p->storage->unsharded, guards, p, &p->offset));
    p->memory = memories->items[p->storage->unsharded];
    return FSDP_OK;
}

/* Place the parameters in their order. But where products are joined (fsdp_device_traits), place
 * the matrices before the vectors: then the weights of layers that have the same input are
 * adjacent, and so are their biases. */
static fsdp_status place_params(const fsdp_param_guards *guards, fsdp_param *params, size_t n,
                                fsdp_param_memories *memories)
{
    const bool sorted = n && params[0].context->device->traits->joins_products;
    for (int pass = 0; pass < (sorted ? 2 : 1); pass++)
        for (size_t i = 0; i < n; i++)
            if (!sorted || fsdp_param_is_vector(&params[i]) == pass)
                FSDP_TRY(place_param(memories, guards, &params[i]));
    return FSDP_OK;
}

fsdp_status fsdp_param_memories_create(const fsdp_param_guards *guards, fsdp_param *params,
                                       size_t n, fsdp_param_memories *memories)
{
    fsdp_param_memories made = {0};
    fsdp_status status = place_params(guards, params, n, &made);
    for (size_t i = 0; i < FSDP_N_MEMORIES && status == FSDP_OK; i++)
        if (made.items[i])
            status = made.items[i]->ops->allocate(made.items[i]);
    if (status == FSDP_OK)
        *memories = made;
    else
        fsdp_param_memories_destroy(&made);
    return status;
}

void fsdp_param_memories_destroy(fsdp_param_memories *memories)
{
    for (size_t i = 0; i < FSDP_N_MEMORIES; i++) {
        fsdp_param_memory *m = memories->items[i];
        if (!m)
            continue;
        m->ops->release(m);
        fsdp_free(m->params);
        fsdp_free(m);
        memories->items[i] = NULL;
    }
}
