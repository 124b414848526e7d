/* Stores float32 parameters as halves. Operations read the upper halves: Note [Halved masters] in
 * param_storage.h. */
#include "src/fsdp/storage_master.h"
#include "src/tensor/halved.h"

/* Halves are used if parameters are sharded, or if there is only one rank and NO_SHARD is not set.
 * Under NO_SHARD, or if all peers are replicas, halves are not used: every rank has its own whole
 * parameters, and a gather casts them. */
static bool fits(const fsdp_param *p, fsdp_dtype dtype)
{
    const fsdp_param_context *c = p->context;
    const bool is_alone = !fsdp_param_context_any_group(c) && !c->options.no_shard;
    return (c->shard_group || is_alone) && dtype == FSDP_DTYPE_F32 &&
           c->options.mp_policy.param_dtype == FSDP_DTYPE_BF16 && fsdp_fits_in_master(p);
}

static fsdp_status create_local(const fsdp_param_memories *memories, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local)
{
    fsdp_param_memory *m = memories->items[FSDP_MEMORY_MASTER];
    uint16_t *hi = fsdp_own_rows_in_master(m, p, sizeof *hi);
    FSDP_TRY(fsdp_halved_tensor(p->context->device, hi, m, p->parameter->ndim, shape,
                                FSDP_TAG_PARAM, local));
    (*local)->storage->guards = &m->write_guard;
    return FSDP_OK;
}

static void leave_local(fsdp_tensor *local)
{
    fsdp_halved_detach(local->storage);
}

/* Return how many bytes the pools may keep between steps for a shard of `numel` elements: see Note
 * [Idle memory] in buffer.h. A halved shard has marks (src/base/halves.h) in addition to its
 * float32 values. The pools may keep the bytes of the values minus the bytes of the marks. So
 * values, marks and pools together have at most twice the bytes of the values. */
static int64_t shard_bytes(int64_t numel)
{
    return numel * (int64_t)sizeof(float) - fsdp_halves_words(numel) * (int64_t)sizeof(uint16_t);
}

const fsdp_param_storage fsdp_storage_halved = {.name = "halved master",
                                                .fits = fits,
                                                .unsharded = FSDP_MEMORY_MASTER,
                                                .sharded = FSDP_MEMORY_MASTER,
                                                .create_local = create_local,
                                                .leave_local = leave_local,
                                                .shard_bytes = shard_bytes};
