/* The ways in which parameters are stored.
 *
 * Note [Param storages]. A storage is a const table for one parameter: where this rank's rows are,
 * and in which memory operations read the whole parameter. A memory belongs to a param group and
 * holds all of its parameters that are gathered alike; it knows how a gather writes own rows, waits
 * for the peers' and lets go. The group walks its memories and calls their tables; it asks no
 * parameter how it is stored. The first storage that fits, in this order, is used:
 *
 *   storage                own rows                      operations read  file
 *   extension              private, or staged            PACKED           storage_extension.c
 *   offloaded              staged in a file              COPY             storage_offloaded.c
 *   once per host          whole, in HOST                HOST             storage_host.c
 *   once per host, cast    whole, in HOST                COPY             storage_host.c
 *   in the master          in MASTER                     MASTER           storage_master.c
 *   halved master          halves, upper ones in MASTER  MASTER           storage_halved.c
 *   cast copy              private                       COPY             storage_copy.c
 *
 * To store parameters in another way, add a file with a storage, and with a memory if none of these
 * will do, and name both in param_storage.c. Hosts that hold only their own rows get a memory whose
 * unshard fills a buffer from the network; device memory behind NCCL, one whose buffer is the
 * device's; 4-bit rows of frozen parameters, one whose unshard unpacks.
 *
 * Note [Master buffer]. Parameters that are stored as operations read them are stored whole in one
 * buffer that all ranks see, each contiguous, and a rank's `local` is a view of its own rows:
 * unshard is a READ phase and moves nothing.
 *
 * Note [Halved masters]. A float32 parameter that is computed with in bfloat16 is stored in the
 * master buffer, too: it holds the upper halves of the values, rounded, which is what a cast would
 * make of them. Each rank has the lower halves of its own rows (Note [Halved storages] in
 * src/tensor/halved.h). The optimizer's store is the all-gather, and nothing else moves.
 *
 * Note [Cast copies]. All other parameters are cast: each rank writes its rows, in param_dtype, to
 * a buffer of a pool (WRITE), which all ranks then read (READ).
 *
 * Note [Kept copies]. A group that keeps its copy from forward to backward keeps it for good: that
 * is the same memory. Then a write of a `local` opens a WRITE phase of the copy, which ends at the
 * next gather. An optimizer in such a write stores its rows in the copy, too
 * (fsdp_parameter_own_rows_of_copy()), and its store is the all-gather. After a write that did not,
 * the gather casts all own rows; without any write it casts nothing. */
#pragma once
#include "src/fsdp/param.h"

typedef struct fsdp_param_memory fsdp_param_memory;

/* Which memory; in the order in which a gather goes through them. */
typedef enum fsdp_memory_kind {
    FSDP_MEMORY_MASTER,
    FSDP_MEMORY_COPY,
    FSDP_MEMORY_PACKED,
    FSDP_MEMORY_HOST,
    FSDP_N_MEMORIES
} fsdp_memory_kind;

/* Slots that may be NULL say what that means. */
typedef struct fsdp_param_memory_ops {
    size_t bytes; /* sizeof the struct that begins with fsdp_param_memory. */
    /* Take room for p, which is the last of `params`, at *offset elements of param_dtype. NULL: it
     * is behind the parameter before. */
    fsdp_status (*reserve)(fsdp_param_memory *m, const fsdp_param *p, size_t *offset);
    /* All parameters have room: create `view`, and buffers that last. Collective. */
    fsdp_status (*allocate)(fsdp_param_memory *m);
    /* Begin a gather: write own rows where peers read them. No effect if that was done. NULL: what
     * peers read is written already. Both take nothing if they fail. */
    fsdp_status (*gather)(fsdp_param_memory *m);
    /* The same ahead of time: own rows that are in a file only begin to come in. */
    fsdp_status (*prefetch)(fsdp_param_memory *m);
    /* Wait for the peers' rows and show them in `view`. */
    fsdp_status (*unshard)(fsdp_param_memory *m);
    /* Show again what was hidden. NULL: this memory cannot be hidden. */
    void (*show)(fsdp_param_memory *m);
    /* The opposite of unshard: `view` is empty, and what peers read may be written again. */
    void (*reshard)(fsdp_param_memory *m);
    /* Give back what outlasts a reshard, and what a gather has begun. NULL: nothing does. */
    void (*drop)(fsdp_param_memory *m);
    /* Free what allocate has made. */
    void (*release)(fsdp_param_memory *m);
} fsdp_param_memory_ops;

/* What the param group lends its memories. */
typedef struct fsdp_param_guards {
    fsdp_storage_guard write; /* Of own rows: may they be written now? */
    fsdp_storage_guard *read; /* Of `view`. */
} fsdp_param_guards;

struct fsdp_param_memory {
    const fsdp_param_memory_ops *ops;
    const fsdp_param_context *context;
    fsdp_param **params; /* [n_params] Those that have room in it. */
    size_t n_params, cap_params;
    int64_t numel;         /* Elements of param_dtype, with alignment. */
    int64_t logical_numel; /* The same without it. */
    fsdp_storage *view;    /* What operations read. */
    fsdp_storage_guard *read_guard;
    /* Own rows get `write_guard`; `own_guard` follows it and is the memory's. */
    fsdp_storage_guard write_guard, own_guard;
};

/* The memories of a param group. NULL: no parameter needs it. */
typedef struct fsdp_param_memories {
    fsdp_param_memory *items[FSDP_N_MEMORIES];
} fsdp_param_memories;

typedef struct fsdp_param_storage {
    const char *name;
    /* Can p be stored so, in `dtype`? */
    bool (*fits)(const fsdp_param *p, fsdp_dtype dtype);
    /* Where operations read it, and where own rows are if that is another memory. */
    fsdp_memory_kind unsharded, sharded;
    /* Create the tensor of this rank's rows, of `shape`, with its write guards. */
    fsdp_status (*create_local)(const fsdp_param_memories *m, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local);
    /* The memory that own rows are in goes. NULL: it is the tensor's own. */
    void (*leave_local)(fsdp_tensor *local);
    /* This rank's rows in a copy that is open for writing, or NULL. NULL: there is never one. */
    void *(*own_rows_of_copy)(const fsdp_param *p, fsdp_dtype *dtype);
    /* Bytes of numel own elements that count as a shard. NULL: numel of p's dtype. */
    int64_t (*shard_bytes)(int64_t numel);
} fsdp_param_storage;

extern const fsdp_param_storage fsdp_storage_extension, fsdp_storage_offloaded, fsdp_storage_host,
    fsdp_storage_host_cast, fsdp_storage_master, fsdp_storage_halved, fsdp_storage_copy;
extern const fsdp_param_memory_ops fsdp_memory_master, fsdp_memory_copy, fsdp_memory_packed,
    fsdp_memory_host;

/* The storage of p in `dtype`, as its group and requires_grad are now. */
const fsdp_param_storage *fsdp_param_storage_for(const fsdp_param *p, fsdp_dtype dtype);
/* Choose the storage of all parameters [n] by their dtypes, and allocate memory for them; their
 * tensors come next. Collective. What fails leaves nothing. */
FSDP_MUST_CHECK fsdp_status fsdp_param_memories_create(const fsdp_param_guards *guards,
                                                       fsdp_param *params, size_t n,
                                                       fsdp_param_memories *memories);
void fsdp_param_memories_destroy(fsdp_param_memories *memories);

/* --- for storages (param_memory.c) --- */

/* An empty `view` of as many bytes as the memory's parameters take. */
FSDP_MUST_CHECK fsdp_status fsdp_param_memory_create_view(fsdp_param_memory *m);
void fsdp_param_memory_release_view(fsdp_param_memory *m);
/* Count the all-gather that FSDP2 makes where this memory only shows what it holds. */
void fsdp_param_memory_count_gather(const fsdp_param_memory *m);
/* Own rows in memory of their own, staged in a file between uses if the group is offloaded; with
 * the write guards of m. */
FSDP_MUST_CHECK fsdp_status fsdp_private_local(fsdp_param_memory *m, const fsdp_param *p,
                                               const int64_t *shape, fsdp_tensor **local);
static inline size_t fsdp_param_memory_bytes(const fsdp_param_memory *m)
{
    return (size_t)m->numel * fsdp_dtype_size(m->context->options.mp_policy.param_dtype);
}
/* The phase info of a collective over all of the memory's parameters. */
static inline fsdp_phase_info fsdp_param_memory_phase(const fsdp_param_memory *m,
                                                      fsdp_phase_kind kind)
{
    const fsdp_dtype dtype = m->context->options.mp_policy.param_dtype;
    return fsdp_param_context_phase(m->context, kind, dtype,
                                    (uint64_t)m->logical_numel * fsdp_dtype_size(dtype));
}
