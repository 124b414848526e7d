/* The ways in which parameters are stored.
 *
 * Note [Param storages]. A param storage, here called a storage, is a const table that describes
 * one way to store a parameter. It says where this rank's rows are, and which memory operations
 * read. A memory belongs to a param group. It contains all parameters of the group that are
 * gathered in the same way. It implements the steps of a gather: write this rank's rows, wait for
 * the peers' rows, reshard. The group calls its memories through their tables and never asks how a
 * parameter is stored.
 *
 * A parameter gets the first storage in this list that can store it (fsdp_param_storage.fits).
 * QUANTIZED, COPY, PACKED, FLOAT8, HOST, ROWS and MASTER are the memories of the same names in
 * fsdp_memory_kind.
 *
 *   storage                this rank's rows              operations read  file
 *   quantized              4 bits, in QUANTIZED          QUANTIZED        storage_quantized.c
 *   extension              private, or staged            PACKED           storage_extension.c
 *   float8                 private, or staged            FLOAT8           storage_float8.c
 *   offloaded              staged in a file              COPY             storage_offloaded.c
 *   once per host          whole, in HOST                HOST             storage_host.c
 *   once per host, cast    whole, in HOST                COPY             storage_host.c
 *   rows of a table        in ROWS                       ROWS             storage_rows.c
 *   in the master          in MASTER                     MASTER           storage_master.c
 *   halved master          halves; the upper in MASTER   MASTER           storage_halved.c
 *   cast copy              private                       COPY             storage_copy.c
 *
 * To store parameters in another way, add a file with a new storage. If no existing memory is
 * suitable, add a new memory to the file, too. List both in param_storage.c. Ranks on several hosts
 * or on several cards need no storage of their own: src/comm brings the bytes of a shared buffer to
 * the memory that each host (comm/mpi) or each card (comm/cards) has for this buffer. But a storage
 * whose ranks must share one memory tests this in `fits` (fsdp_ranks_share_memory()).
 *
 * Note [Master buffer]. Parameters with the storage "in the master" are stored in param_dtype, in
 * one buffer that all ranks share. Operations read them in this buffer. Each parameter is whole and
 * contiguous in this buffer. The `local` of a rank is a view of the rows that the rank owns.
 * Unshard begins a READ phase and moves no data.
 *
 * Note [Halved masters]. A float32 parameter whose param_dtype is bfloat16 is in the master buffer,
 * too. The buffer contains the rounded upper halves of its values, which equal the values cast to
 * bfloat16. Each rank has the lower halves of its rows in private memory (Note [Halved storages] in
 * src/tensor/halved.h). The optimizer stores the upper halves in the master buffer. This store is
 * the all-gather; no other data moves.
 *
 * Note [Cast copies]. Operations read the parameters in COPY from a copy in param_dtype. In a WRITE
 * phase, each rank casts its rows to param_dtype and writes them to a buffer from a pool. In the
 * READ phase that follows, all ranks read this buffer.
 *
 * Note [Kept copies]. A group that keeps its copy from forward to backward also keeps it from step
 * to step, because this needs no more memory. While a copy is kept, a write of a local tensor
 * begins a WRITE phase of the copy. The next gather ends this phase. While an optimizer writes a
 * local tensor, it also stores the new rows in the copy (fsdp_parameter_own_rows_of_copy()). This
 * store is the all-gather. If the rows are written without this store, the next gather casts all
 * rows of this rank. If nothing was written, the gather casts nothing. */
#pragma once
#include "src/fsdp/param.h"

typedef struct fsdp_param_memory fsdp_param_memory;

/* The kinds of memory, in the order in which a gather visits them. */
typedef enum fsdp_memory_kind {
    FSDP_MEMORY_MASTER,
    FSDP_MEMORY_COPY,
    FSDP_MEMORY_PACKED,
    FSDP_MEMORY_FLOAT8,
    FSDP_MEMORY_HOST,
    FSDP_MEMORY_QUANTIZED,
    FSDP_MEMORY_ROWS,
    FSDP_N_MEMORIES
} fsdp_memory_kind;

/* A function may be NULL if its comment says what NULL means. */
typedef struct fsdp_param_memory_ops {
    size_t bytes; /* Size of this kind of memory's struct, which begins with fsdp_param_memory. */
    /* Reserve space for p, which is the last item of m->params. Set *offset to the beginning of p,
     * in elements of param_dtype. If the function is NULL, p is placed directly after the previous
     * parameter. */
    fsdp_status (*reserve)(fsdp_param_memory *m, const fsdp_param *p, size_t *offset);
    /* Create `view`, and the buffers that last until `release`. Call this after space was reserved
     * for all parameters. Collective. */
    fsdp_status (*allocate)(fsdp_param_memory *m);
    /* Begin a gather: write this rank's rows to where peers read them. No effect if a gather has
     * already written them. After a failure, the memory has returned its buffers to their pools.
     * The function is NULL if this rank's rows are always stored where peers read them. */
    fsdp_status (*gather)(fsdp_param_memory *m);
    /* Begin a gather ahead of time. If this rank's rows are in a file, only start to read them;
     * otherwise do what `gather` does. After a failure, the memory has returned its buffers to
     * their pools. The function is NULL if there is nothing to do ahead of time. */
    fsdp_status (*prefetch)(fsdp_param_memory *m);
    /* Wait for the peers' rows. Then give `view` the data of all rows. */
    fsdp_status (*unshard)(fsdp_param_memory *m);
    /* fsdp_param_group_reshard_to_smaller() has made `view` empty. Make the gathered data the data
     * of `view` again. The function is NULL if this memory cannot be hidden. */
    void (*show)(fsdp_param_memory *m);
    /* Keep this rank's part of the gathered data in private memory, make `view` empty, and return
     * the buffer of the gathered data to its pool. The next gather reads the parts (Note [Secondary
     * shards] in storage_copy.h). After a failure, the memory is still unsharded. The function is
     * NULL if this memory cannot keep parts. */
    fsdp_status (*keep_part)(fsdp_param_memory *m);
    /* Undo `unshard`: make `view` empty, and allow this rank to write its rows again, even if they
     * are stored where peers read them. */
    void (*reshard)(fsdp_param_memory *m);
    /* Return two kinds of buffers to their pools: the buffers that stay in use after a reshard, and
     * the buffers of a gather that has only begun. The function is NULL if the memory has no such
     * buffers. */
    void (*drop)(fsdp_param_memory *m);
    /* Free what `allocate` has created. */
    void (*release)(fsdp_param_memory *m);
} fsdp_param_memory_ops;

/* The guards that a param group gives to its memories. */
typedef struct fsdp_param_guards {
    fsdp_storage_guard write; /* Allows or refuses a write of this rank's rows. Each memory has a
                                 copy of this guard. */
    fsdp_storage_guard *read; /* The guard of `view`. Borrowed. */
} fsdp_param_guards;

struct fsdp_param_memory {
    const fsdp_param_memory_ops *ops;
    const fsdp_param_context *context;
    fsdp_param **params; /* [n_params] Parameters in this memory. */
    size_t n_params, cap_params;
    int64_t numel;         /* Size in elements of param_dtype, with padding. */
    int64_t logical_numel; /* Size in elements, without padding. */
    fsdp_storage *view;    /* The storage that operations read. */
    fsdp_storage_guard *read_guard;
    /* A write of this rank's rows must first pass `write_guard`, a copy of the group's guard. Then
     * it must pass `own_guard`, which this memory sets. */
    fsdp_storage_guard write_guard, own_guard;
};

/* The memories of a param group, by kind. An item is NULL if no parameter needs that memory. */
typedef struct fsdp_param_memories {
    fsdp_param_memory *items[FSDP_N_MEMORIES];
} fsdp_param_memories;

typedef struct fsdp_param_storage {
    const char *name;
    /* true: operations read codes of one byte, in uint8, instead of values in param_dtype */
    bool reads_codes;
    /* Return true if p can be stored in this way and in `dtype`. */
    bool (*fits)(const fsdp_param *p, fsdp_dtype dtype);
    /* `unsharded` is the kind of memory that operations read. `sharded` is the kind of memory that
     * contains this rank's rows. */
    fsdp_memory_kind unsharded, sharded;
    /* Create the tensor of this rank's rows, with the given shape, and set its write guards. */
    fsdp_status (*create_local)(const fsdp_param_memories *m, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local);
    /* Make the tensor empty. Called before the memory of this rank's rows is freed. The function is
     * NULL if the tensor owns that memory, or if fsdp_param_memory_ops.release makes the tensor
     * empty. */
    void (*leave_local)(fsdp_tensor *local);
    /* If a kept copy is open for writing, return the address of this rank's rows in it, and set
     * *dtype. Otherwise return NULL. The function pointer is NULL if parameters with this storage
     * have no copy that an optimizer may write. */
    void *(*own_rows_of_copy)(const fsdp_param *p, fsdp_dtype *dtype);
    /* Return the number of bytes that an all-gather of p moves in total. If the function is NULL,
     * the all-gather moves all elements in param_dtype. */
    uint64_t (*gathered_bytes)(const fsdp_param *p);
    /* Return how many bytes the pools may keep between steps for a trained shard of `numel`
     * elements: see Note [Idle memory] in buffer.h. If the function is NULL, they may keep `numel`
     * times the size of fsdp_param.dtype. */
    int64_t (*shard_bytes)(int64_t numel);
    /* Count the bytes of n rows that an operation has looked up. The function is NULL if a gather
     * has already made all rows readable. */
    void (*note_lookups)(const fsdp_param *p, int64_t n);
} fsdp_param_storage;

extern const fsdp_param_storage fsdp_storage_quantized, fsdp_storage_extension, fsdp_storage_float8,
    fsdp_storage_offloaded, fsdp_storage_host, fsdp_storage_host_cast, fsdp_storage_rows,
    fsdp_storage_master, fsdp_storage_halved, fsdp_storage_copy;
extern const fsdp_param_memory_ops fsdp_memory_master, fsdp_memory_copy, fsdp_memory_packed,
    fsdp_memory_float8, fsdp_memory_host, fsdp_memory_quantized, fsdp_memory_rows;

/* Return the storage for p in `dtype`. The choice also depends on the group's options and on the
 * parameter's current requires_grad. */
const fsdp_param_storage *fsdp_param_storage_for(const fsdp_param *p, fsdp_dtype dtype);
/* Choose the storage of each parameter in params [n] by its `dtype`, and allocate the memories. The
 * caller must then create the tensors. Collective. After a failure, nothing is allocated. */
FSDP_MUST_CHECK fsdp_status fsdp_param_memories_create(const fsdp_param_guards *guards,
                                                       fsdp_param *params, size_t n,
                                                       fsdp_param_memories *memories);
void fsdp_param_memories_destroy(fsdp_param_memories *memories);

/* --- param_memory.c: functions that storage_*.c share --- */

/* Create m->view. Its size is that of all parameters of m, but it has no data yet. */
FSDP_MUST_CHECK fsdp_status fsdp_param_memory_create_view(fsdp_param_memory *m);
void fsdp_param_memory_release_view(fsdp_param_memory *m);
/* Call this where FSDP2 would perform an all-gather, but where no data has to move, because the
 * buffer of m still has the rows of all ranks. The function only adds an all-gather to the
 * statistics. */
void fsdp_param_memory_count_gather(const fsdp_param_memory *m);
/* Implements fsdp_param_memory_ops.unshard for memories whose view is a whole buffer. Wait until
 * all ranks have written `buffer`, then make it the data of m->view. */
FSDP_MUST_CHECK fsdp_status fsdp_param_memory_unshard_buffer(fsdp_param_memory *m,
                                                             fsdp_buffer *buffer);
/* Implements fsdp_param_memory_ops.show for memories whose view is a whole buffer. `buffer`, which
 * is still in its READ phase, becomes the data of m->view again. */
void fsdp_param_memory_show_buffer(fsdp_param_memory *m, fsdp_buffer *buffer);
/* Implements fsdp_param_memory_ops.prefetch for memories whose gather reads local tensors. If the
 * tensors are in a file, start reading them. Otherwise gather. */
FSDP_MUST_CHECK fsdp_status fsdp_param_memory_prefetch(fsdp_param_memory *m);
/* Create a tensor of this rank's rows in private memory, with the write guards of m. If the group
 * is offloaded, the tensor's memory is staged in a file between uses. */
FSDP_MUST_CHECK fsdp_status fsdp_create_private_local(fsdp_param_memory *m, const fsdp_param *p,
                                                      const int64_t *shape, fsdp_tensor **local);
/* For n groups, compute the scales of float8 weights whose rows were written since the last
 * computation. Use one reduction over the ranks for all groups: Note [Float8 all-gather] in
 * storage_float8.c. Collective. Items of `memories` [n] may be NULL. Skip groups whose weights are
 * gathered. */
FSDP_MUST_CHECK fsdp_status fsdp_float8_memories_update(fsdp_param_memory *const *memories,
                                                        size_t n);
static inline size_t fsdp_param_memory_bytes(const fsdp_param_memory *m)
{
    return (size_t)m->numel * fsdp_dtype_size(m->context->options.mp_policy.param_dtype);
}
/* Return the phase info of a collective over all parameters of the memory. */
static inline fsdp_phase_info fsdp_param_memory_phase(const fsdp_param_memory *m,
                                                      fsdp_phase_kind kind)
{
    const fsdp_dtype dtype = m->context->options.mp_policy.param_dtype;
    return fsdp_param_context_phase(m->context, kind, dtype,
                                    (uint64_t)m->logical_numel * fsdp_dtype_size(dtype));
}
/* Begin and end a write of this rank's rows or parts, which are in a shared buffer. *writers is the
 * number of open writes. All open writes share one WRITE phase, which `info` describes. @{ */
FSDP_MUST_CHECK fsdp_status fsdp_param_memory_begin_write(fsdp_buffer *buffer,
                                                          const fsdp_phase_info *info,
                                                          int *writers);
void fsdp_param_memory_end_write(fsdp_buffer *buffer, int *writers);
/* @} */
