/* The ways in which parameters are stored.
 *
 * Note [Param storages]. A storage is a const table that describes how one parameter is stored:
 * where this rank's rows are, and in which memory operations read the whole parameter. A memory
 * belongs to a param group and holds all of its parameters that are gathered in the same way. It
 * implements the steps of a gather: write own rows, wait for the peers' rows, release them. The
 * group calls its memories through their tables and never asks how a parameter is stored. The first
 * storage in this order that fits is used:
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
 * is suitable, and list both in param_storage.c. Hosts that hold only their own rows get a memory
 * whose unshard fills a buffer from the network; device memory behind NCCL, one whose buffer is the
 * device's; 4-bit rows of frozen parameters, one whose unshard unpacks.
 *
 * Note [Master buffer]. Parameters that are stored in the form that operations read are in one
 * buffer that all ranks share, each of them whole and contiguous. A rank's `local` is a view of its
 * own rows. Unshard is a READ phase and moves no data.
 *
 * Note [Halved masters]. A float32 parameter whose param_dtype is bfloat16 is in the master buffer,
 * too. The buffer holds the upper halves of its values, rounded, which equal the values cast to
 * bfloat16. Each rank has the lower halves of its own rows (Note [Halved storages] in
 * src/tensor/halved.h). The optimizer's store is the all-gather; no other data moves.
 *
 * Note [Cast copies]. All other parameters are cast: each rank writes its rows, in param_dtype, to
 * a buffer of a pool (WRITE), which all ranks then read (READ).
 *
 * Note [Kept copies]. A group that keeps its copy from forward to backward keeps it from step to
 * step as well, because this takes no more memory. Then a write of a `local` opens a WRITE phase of
 * the copy, which ends at the next gather. An optimizer stores its rows in the copy during that
 * write (fsdp_parameter_own_rows_of_copy()), and this store is the all-gather. After any other
 * write the gather casts all own rows. If nothing was written it casts nothing. */
#pragma once
#include "src/fsdp/param.h"

typedef struct fsdp_param_memory fsdp_param_memory;

/* The kinds of memory, in the order in which a gather visits them. */
typedef enum fsdp_memory_kind {
    FSDP_MEMORY_MASTER,
    FSDP_MEMORY_COPY,
    FSDP_MEMORY_PACKED,
    FSDP_MEMORY_HOST,
    FSDP_N_MEMORIES
} fsdp_memory_kind;

/* A function may be NULL where its comment says what this means. */
typedef struct fsdp_param_memory_ops {
    size_t bytes; /* sizeof the struct that begins with fsdp_param_memory. */
    /* Reserve room for p, the last of `params`, at *offset elements of param_dtype. NULL: directly
     * behind the parameter before. */
    fsdp_status (*reserve)(fsdp_param_memory *m, const fsdp_param *p, size_t *offset);
    /* Call this when all parameters have room: create `view` and lasting buffers. Collective. */
    fsdp_status (*allocate)(fsdp_param_memory *m);
    /* Begin a gather: write own rows where peers read them. No effect if already done. NULL: own
     * rows are always there. If it fails, no buffer is taken. */
    fsdp_status (*gather)(fsdp_param_memory *m);
    /* The same ahead of time. Own rows that are staged in a file only begin to be read. If it
     * fails, no buffer is taken. */
    fsdp_status (*prefetch)(fsdp_param_memory *m);
    /* Wait for the peers' rows and show them in `view`. */
    fsdp_status (*unshard)(fsdp_param_memory *m);
    /* Show again what fsdp_param_group_hide() has hidden. NULL: this memory cannot be hidden. */
    void (*show)(fsdp_param_memory *m);
    /* Undo unshard: `view` becomes empty, and own rows that peers read may be written again. */
    void (*reshard)(fsdp_param_memory *m);
    /* Give back buffers that outlive a reshard or belong to a gather that has begun. NULL: there
     * are none. */
    void (*drop)(fsdp_param_memory *m);
    /* Free what allocate has created. */
    void (*release)(fsdp_param_memory *m);
} fsdp_param_memory_ops;

/* The guards that a param group gives its memories. */
typedef struct fsdp_param_guards {
    fsdp_storage_guard write; /* For own rows: may they be written now? */
    fsdp_storage_guard *read; /* For `view`; borrowed. */
} fsdp_param_guards;

struct fsdp_param_memory {
    const fsdp_param_memory_ops *ops;
    const fsdp_param_context *context;
    fsdp_param **params; /* [n_params] Parameters in this memory. */
    size_t n_params, cap_params;
    int64_t numel;         /* Elements of param_dtype, with alignment. */
    int64_t logical_numel; /* Elements without alignment. */
    fsdp_storage *view;    /* The storage that operations read. */
    fsdp_storage_guard *read_guard;
    /* Own rows get `write_guard`, then `own_guard`, which is this memory's. */
    fsdp_storage_guard write_guard, own_guard;
};

/* The memories of a param group, by kind. NULL: no parameter needs it. */
typedef struct fsdp_param_memories {
    fsdp_param_memory *items[FSDP_N_MEMORIES];
} fsdp_param_memories;

typedef struct fsdp_param_storage {
    const char *name;
    /* Can p, in `dtype`, be stored in this way? */
    bool (*fits)(const fsdp_param *p, fsdp_dtype dtype);
    /* The memory that operations read, and the memory that own rows are in. */
    fsdp_memory_kind unsharded, sharded;
    /* Create the tensor of this rank's rows, of `shape`, with its write guards. */
    fsdp_status (*create_local)(const fsdp_param_memories *m, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local);
    /* Empty the tensor, before the memory of own rows is freed. NULL: the tensor owns that memory,
     * or the memory's `release` empties it. */
    void (*leave_local)(fsdp_tensor *local);
    /* This rank's rows in a copy that is open for writing; NULL if there is none now. A NULL
     * function: there is never one. */
    void *(*own_rows_of_copy)(const fsdp_param *p, fsdp_dtype *dtype);
    /* Bytes of a shard of `numel` elements. NULL: numel times the size of p's dtype. */
    int64_t (*shard_bytes)(int64_t numel);
} fsdp_param_storage;

extern const fsdp_param_storage fsdp_storage_extension, fsdp_storage_offloaded, fsdp_storage_host,
    fsdp_storage_host_cast, fsdp_storage_master, fsdp_storage_halved, fsdp_storage_copy;
extern const fsdp_param_memory_ops fsdp_memory_master, fsdp_memory_copy, fsdp_memory_packed,
    fsdp_memory_host;

/* The storage for p in `dtype`, by its group and its current requires_grad. */
const fsdp_param_storage *fsdp_param_storage_for(const fsdp_param *p, fsdp_dtype dtype);
/* Choose the storage of params [n] by `dtypes`, and allocate their memory. The caller then creates
 * the tensors. Collective. A failure frees everything. */
FSDP_MUST_CHECK fsdp_status fsdp_param_memories_create(const fsdp_param_guards *guards,
                                                       fsdp_param *params, size_t n,
                                                       fsdp_param_memories *memories);
void fsdp_param_memories_destroy(fsdp_param_memories *memories);

/* --- for storages (param_memory.c) --- */

/* Create an empty `view` of as many bytes as the memory's parameters take. */
FSDP_MUST_CHECK fsdp_status fsdp_param_memory_create_view(fsdp_param_memory *m);
void fsdp_param_memory_release_view(fsdp_param_memory *m);
/* Count the all-gather that FSDP2 would make, where this memory only shows what it holds. */
void fsdp_param_memory_count_gather(const fsdp_param_memory *m);
/* An unshard for memories whose view is a whole buffer: wait until all ranks have written `buffer`,
 * and show it. */
FSDP_MUST_CHECK fsdp_status fsdp_param_memory_unshard_buffer(fsdp_param_memory *m,
                                                             fsdp_buffer *buffer);
/* The corresponding show: the buffer is still in its READ phase. */
void fsdp_param_memory_show_buffer(fsdp_param_memory *m, fsdp_buffer *buffer);
/* A prefetch for memories that read `local`: start to stage it if it is in a file, else gather. */
FSDP_MUST_CHECK fsdp_status fsdp_param_memory_prefetch(fsdp_param_memory *m);
/* Create a tensor of own rows in private memory, with the write guards of m. If the group is
 * offloaded, the memory is staged in a file between uses. */
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
