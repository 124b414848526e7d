/* The transport "threads": ranks are threads of one process, for tests. Memory is on the heap, and
 * rank 0 passes its address to the others. Everything else is the same code as for ranks that are
 * processes, so sharding can be tested under ASan and TSan. */
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/comm/heap.h"

/* A block of memory that several ranks share. Each rank that has attached the block has a reference
 * to it. `agreed` is set when all ranks have agreed that they have attached the block. When the
 * last reference to a block is released and `agreed` is set, the block is freed. If `agreed` is not
 * set, the block is not freed, and `kept` is set. A slow rank may be about to attach such a block:
 * after an abort, fast ranks release the block before the slow rank has seen the abort. The world's
 * own block is the control block. All ranks release it when they end. When it is freed, all kept
 * blocks are freed, too. */
typedef struct shared_block {
    _Atomic int refs;
    void *heap;
    struct shared_block *world; /* NULL in the world's own block */
    _Atomic bool agreed, kept;
    /* The first of all kept blocks. Only the world's own block uses this field. */
    _Atomic(struct shared_block *) first_kept;
    struct shared_block *next_kept;
} shared_block;

static fsdp_status block_create(size_t bytes, int refs, shared_block **block, void **data)
{
    shared_block *made = fsdp_calloc(1, sizeof *made);
    if (!made)
        return fsdp_error_nomem();
    made->heap = fsdp_heap_alloc_pages(bytes, data);
    if (!made->heap) {
        fsdp_free(made);
        return fsdp_error_nomem();
    }
    atomic_store(&made->refs, refs);
    *block = made;
    return FSDP_OK;
}

static void block_free(shared_block *block)
{
    fsdp_free(block->heap);
    fsdp_free(block);
}

static void keep_until_world_ends(shared_block *block)
{
    if (atomic_exchange(&block->kept, true))
        return;
    block->next_kept = atomic_load(&block->world->first_kept);
    while (!atomic_compare_exchange_weak(&block->world->first_kept, &block->next_kept, block))
        continue;
}

static void block_release(shared_block *block)
{
    if (atomic_fetch_sub(&block->refs, 1) > 1)
        return;
    if (block->world && !atomic_load(&block->agreed)) {
        keep_until_world_ends(block);
        return;
    }
    for (shared_block *k = atomic_load(&block->first_kept), *next; k; k = next) {
        next = k->next_kept;
        block_free(k);
    }
    block_free(block);
}

/* Return the world's own block. It is the `impl` of the world's group. A group that was split off
 * has no `impl`, but its `home` is a buffer of its parent. So follow `home` from each group to its
 * parent, up to the world's group. */
static shared_block *world_of(const fsdp_group *group)
{
    while (group->members)
        group = group->home->group;
    return group->impl;
}

static fsdp_status memory_create(fsdp_group *group, size_t bytes, size_t least,
                                 fsdp_comm_memory *memory, fsdp_comm_offer *offer)
{
    shared_block *block;
    (void)least;
    FSDP_TRY(block_create(bytes, 1, &block, &memory->data));
    block->world = world_of(group);
    memory->bytes = bytes;
    memory->handle = block;
    offer->pointer = memory->data;
    offer->handle = block;
    return FSDP_OK;
}

static fsdp_status memory_attach(fsdp_group *group, size_t bytes, const fsdp_comm_offer *offer,
                                 fsdp_comm_memory *memory)
{
    (void)group;
    shared_block *block = offer->handle;
    atomic_fetch_add(&block->refs, 1);
    *memory = (fsdp_comm_memory){.data = offer->pointer, .bytes = bytes, .handle = block};
    return FSDP_OK;
}

static void memory_agreed(fsdp_comm_memory *memory)
{
    shared_block *block = memory->handle;
    atomic_store(&block->agreed, true);
}

static void memory_release(fsdp_comm_memory *memory)
{
    block_release(memory->handle);
}

/* Release the group's reference to the control block if it has one. The world's group has one: its
 * `impl` is the control block. A group that was split off has none: it uses the control block, too,
 * but its `impl` is NULL. */
static void close_group(fsdp_group *group)
{
    if (group->impl)
        block_release(group->impl);
}

const fsdp_comm_ops fsdp_comm_threads = {
    .name = "threads",
    .memory_create = memory_create,
    .memory_attach = memory_attach,
    .memory_agreed = memory_agreed,
    .memory_release = memory_release,
    .close = close_group,
};

/* ---- ranks as threads ---- */

typedef struct rank_thread {
    pthread_t thread;
    bool started;
    fsdp_rank_fn *body;
    void *arg;
    fsdp_group *group;      /* the rank's group; the thread destroys it */
    fsdp_saved_error error; /* the status that `body` returned, and its message */
} rank_thread;

static fsdp_status threads_open(fsdp_comm_control *control, shared_block *block, int rank,
                                int world_size, fsdp_group **out)
{
    fsdp_group *group = fsdp_calloc(1, sizeof *group);
    if (!group)
        return fsdp_error_nomem();
    group->control = control;
    group->impl = block;
    group->rank = group->local_rank = rank;
    group->world_size = group->local_world_size = world_size;
    group->futex_private = FUTEX_PRIVATE_FLAG;
    fsdp_status status = fsdp_group_init(group, &fsdp_comm_threads);
    if (status != FSDP_OK) {
        fsdp_free(group);
        return status;
    }
    atomic_fetch_add(&block->refs, 1);
    *out = group;
    return FSDP_OK;
}

static void *rank_main(void *arg)
{
    rank_thread *rank = arg;
    fsdp_error_save(rank->body(rank->group, rank->arg), &rank->error);
    if (rank->error.status != FSDP_OK)
        fsdp_group_abort(rank->group, rank->error.status);
    fsdp_destroy_process_group(rank->group);
    return NULL;
}

static fsdp_status start_threads(rank_thread *ranks, int world_size)
{
    for (int r = 0; r < world_size; r++) {
        int error = pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]);
        if (error)
            return fsdp_error(FSDP_ERR_NOMEM, "rank %d: cannot start a thread: %s", r,
                              strerror(error));
        ranks[r].started = true;
    }
    return FSDP_OK;
}

/* Return the rank whose error fsdp_run_ranks() returns: the rank that failed first. The errors of
 * the other ranks are consequences of that error. Return NULL if no rank has failed. */
static const rank_thread *first_failed_rank(const rank_thread *ranks, int world_size,
                                            const fsdp_comm_control *control)
{
    fsdp_comm_failure first;
    if (control && fsdp_comm_control_failure(control, &first) && first.rank < world_size &&
        ranks[first.rank].error.status != FSDP_OK)
        return &ranks[first.rank];
    for (int r = 0; r < world_size; r++)
        if (ranks[r].error.status != FSDP_OK)
            return &ranks[r];
    return NULL;
}

static fsdp_status run_threads(rank_thread *ranks, int world_size, fsdp_comm_control *control,
                               fsdp_status *statuses)
{
    fsdp_status status = start_threads(ranks, world_size);
    for (int r = 0; status != FSDP_OK && r < world_size; r++)
        if (!ranks[r].started) {
            /* This rank never started. The ranks that already run must not wait for it. */
            fsdp_group_abort(ranks[r].group, status);
            fsdp_destroy_process_group(ranks[r].group);
            fsdp_error_save(status, &ranks[r].error);
        }
    for (int r = 0; r < world_size; r++) {
        if (ranks[r].started)
            pthread_join(ranks[r].thread, NULL);
        if (statuses)
            statuses[r] = ranks[r].error.status;
    }
    const rank_thread *failed = first_failed_rank(ranks, world_size, control);
    return failed ? fsdp_error_restore(&failed->error) : FSDP_OK;
}

static fsdp_status create_world_control(int world_size, shared_block **block,
                                        fsdp_comm_control **control)
{
    void *data;
    FSDP_TRY(block_create(fsdp_comm_control_bytes(world_size), 1, block, &data));
    *control = data;
    fsdp_comm_control_init(*control, world_size);
    return FSDP_OK;
}

/* Open the group of each rank. After a failure, no group is open. */
static fsdp_status open_groups(rank_thread *ranks, int world_size, fsdp_comm_control *control,
                               shared_block *block)
{
    for (int r = 0; r < world_size; r++) {
        fsdp_status status = world_size == 1
                                 ? fsdp_comm_local.open(NULL, &ranks[r].group)
                                 : threads_open(control, block, r, world_size, &ranks[r].group);
        if (status != FSDP_OK) {
            while (r-- > 0)
                fsdp_destroy_process_group(ranks[r].group);
            return status;
        }
    }
    return FSDP_OK;
}

fsdp_status fsdp_run_ranks(int world_size, fsdp_rank_fn *body, void *arg, fsdp_status *statuses)
{
    if (world_size < 1 || world_size > FSDP_COMM_MAX_RANKS)
        return fsdp_error(FSDP_ERR_INVALID, "world_size is %d, not between 1 and %d", world_size,
                          FSDP_COMM_MAX_RANKS);
    if (!body)
        return fsdp_error(FSDP_ERR_INVALID, "run_ranks: body is NULL");
    fsdp_comm_control *control = NULL;
    shared_block *block = NULL;
    fsdp_status status = FSDP_OK;
    rank_thread *ranks = fsdp_calloc((size_t)world_size, sizeof *ranks);
    if (!ranks)
        return fsdp_error_nomem();
    for (int r = 0; r < world_size; r++) {
        ranks[r].body = body;
        ranks[r].arg = arg;
    }
    if (world_size > 1)
        status = create_world_control(world_size, &block, &control);
    if (status == FSDP_OK)
        status = open_groups(ranks, world_size, control, block);
    if (status == FSDP_OK)
        status = run_threads(ranks, world_size, control, statuses);
    if (block)
        block_release(block);
    fsdp_free(ranks);
    return status;
}
