/* fsdp_param: one sharded parameter (PyTorch's FSDPParam). It chooses the part of the parameter
 * that is this rank's shard, and the way in which the parameter is stored (param_storage.h). src/nn
 * reads the shard through fsdp_parameter.owner.
 *
 * sharded parameter    this rank's rows in the master dtype: the tensor `local`, which the
 *                      optimizer updates
 * unsharded parameter  all rows in param_dtype: the tensor `data`, which operations read. It has
 *                      memory only between unshard and reshard. Reading it at other times is an
 *                      error, and never returns old data. */
#pragma once
#include "src/fsdp/param_context.h"
#include "src/nn/module.h"

struct fsdp_param_group;
struct fsdp_grad_buffer;
struct fsdp_param_storage;
struct fsdp_param_memories;

enum {
    /* Offsets in buffers are multiples of this number of elements, so they are multiples of 64
     * bytes in every floating dtype. */
    FSDP_ALIGN_ELEMENTS = 32,
    FSDP_MOST_SUMS = 3 /* Note [Same bits at any world size] in grad_sums.h */
};

/* The gradient of a parameter as a table of rows: Note [Gradients by row] in grad_rows.h. */
typedef struct fsdp_row_table {
    int64_t most;      /* Capacity of the table in rows, not counting row 0. 0: no table. */
    int64_t lookups;   /* Number of lookups of the forward, on the rank with the most lookups. A row
                          that is looked up twice counts twice. */
    int64_t n;         /* Number of touched rows, not counting row 0. */
    int32_t *ids;      /* [most] Item i is the id of row i + 1. */
    fsdp_tensor *rows; /* [1 + most, D] float32, a view of the gradient buffer. In a group of one
                          rank, it has its own memory. */
    int32_t *place;    /* [V] The table row of each id; 0: none. Kept from step to step. */
    bool is_over;      /* The table was sized for one backward sweep, and this sweep has ended. */
} fsdp_row_table;

/* The stages of a parameter's gradient. First it is in the open buffer, where backward writes it.
 * Then it is in the posted buffer. Then it is a sum over ranks, until the sums of all micro-steps
 * are complete and it is assigned to the parameter. */
typedef struct fsdp_param_grad {
    /* The whole gradient, float32, in the memory of the open buffer. The tensor's offset is the
     * parameter's place in this buffer. In a group of one rank, the tensor has its own memory, and
     * is NULL if there is no gradient: Note [Gradients of one rank] in grad_own.h. */
    fsdp_tensor *whole;
    fsdp_row_table table;
    int64_t peer_offset; /* Place in the parts of ranks on other cards: Note [Parts on other cards]
                            in grad_parts.h. In elements. */
    bool in_buffer;      /* The gradient has, or will get, a place in the open buffer. */
    bool placed; /* The gradient has its place now. In a group of one rank: memory was allocated
                    for the gradient after the last post. */
    /* For a matrix in a section: number of matrices that were placed before it. Otherwise 0. */
    int order;
    bool touched;       /* The open buffer has a gradient of this parameter. */
    bool posted;        /* The posted buffer has a gradient of this parameter. */
    bool posted_rows;   /* The posted buffer has a table for this parameter. */
    size_t lane_offset; /* Place of this rank's rows in a lane (grad_lanes.c), in elements. */
    bool in_lanes; /* The lanes that this rank has written have a gradient of this parameter. */
    /* Gradient of this rank's rows, summed over the shard group but not yet over the replicas.
     * NULL: there is none. */
    fsdp_tensor *partial;
    /* Partial sums of the gradients of this rank's rows from earlier micro-steps, a stack: Note
     * [Same bits at any world size] in grad_sums.h. */
    fsdp_tensor *sums[FSDP_MOST_SUMS];
    /* Number of micro-batches of each sum. It is FSDP_SUM_BLOCK for the running sum of all complete
     * blocks. */
    int sum_leaves[FSDP_MOST_SUMS];
    int n_sums;
    bool is_complete; /* The last micro-step has been added to the sums. */
    bool is_scaled;   /* There is one sum, and it has been divided already. */
} fsdp_param_grad;

typedef struct fsdp_param {
    /* This rank's shard, and the functions that src/nn calls. Must come first. */
    fsdp_parameter_owner owner;
    fsdp_parameter *parameter; /* Borrowed; may be destroyed before the fsdp_param. */
    /* The parameter's path within the group's module. If the group has several modules, the name of
     * the module and "." are put in front of the path (add_param() in fully_shard.c). */
    char *name;
    const fsdp_param_context *context;
    /* src/nn and src/autograd call functions with only the parameter. These functions find the
     * group and its gradient buffer here. */
    struct fsdp_param_group *group;
    struct fsdp_grad_buffer *grads;
    fsdp_slice slice;   /* Where the shard's elements are in the whole parameter. */
    bool requires_grad; /* The parameter's requires_grad when its storage was chosen. */

    /* How the parameter is stored. */
    const struct fsdp_param_storage *storage;
    struct fsdp_param_memory *memory; /* The memory that operations read. */
    size_t offset;      /* Where the parameter begins in `memory`, in elements of param_dtype. */
    fsdp_dtype dtype;   /* The dtype of `local`. */
    fsdp_tensor *local; /* The sharded parameter. */
    fsdp_tensor *data;  /* The unsharded parameter. */

    fsdp_param_grad grad;
} fsdp_param;

static inline fsdp_param *fsdp_param_of(const fsdp_parameter *parameter)
{
    return (fsdp_param *)(void *)parameter->owner;
}

/* Return the number of elements that a tensor of `numel` elements occupies in a buffer, with
 * padding. */
static inline int64_t fsdp_aligned_numel(int64_t numel)
{
    return (numel + FSDP_ALIGN_ELEMENTS - 1) / FSDP_ALIGN_ELEMENTS * FSDP_ALIGN_ELEMENTS;
}

/* Return true if p has fewer than two dimensions. Gradient buffers place such vectors apart from
 * matrices. On devices that join products (fsdp_device_traits), the memory of parameters does so,
 * too. */
static inline bool fsdp_param_is_vector(const fsdp_param *p)
{
    return p->parameter->ndim < 2;
}

static inline int64_t fsdp_param_numel(const fsdp_param *p)
{
    return fsdp_parameter_numel(p->parameter);
}

/* Choose this rank's shard of p. It is a range along the dimension that shard_placement_fn returns,
 * or along dimension 0 if shard_placement_fn is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_param_choose_shard(fsdp_param *p);
/* Return the number of elements of the largest shard of p, which is that of the first rank. */
int64_t fsdp_param_most_numel(const fsdp_param *p);
/* Return how many bytes the pools may keep between steps because of p: see Note [Idle memory] in
 * buffer.h. This is 0 if p is frozen. Otherwise it is what fsdp_param_storage.shard_bytes returns
 * for the largest shard of p. If shard_bytes is NULL, it is the size of the largest shard. */
int64_t fsdp_param_trained_bytes(const fsdp_param *p);
/* Turn `rows`, which has the shape of `local`, into a DTensor over the mesh, or over the shard
 * group if there is no mesh. No effect if p is not sharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_set_spec(const fsdp_param *p, fsdp_tensor *rows);
/* Create `local` and `data` in `memories`, whose buffers are already allocated. */
FSDP_MUST_CHECK fsdp_status fsdp_param_create_tensors(fsdp_param *p,
                                                      const struct fsdp_param_memories *memories);
/* Release `local` and `data`. A state dict may still hold the tensor `local`. If this tensor was a
 * view of a shared buffer, it is empty afterwards. */
void fsdp_param_release_tensors(fsdp_param *p);
/* Copy the values in `slice` of `old` to `local`. The tensors may differ in dtype and device. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_take_values(const fsdp_tensor *old, const fsdp_slice *slice,
                                                    fsdp_tensor *local);
/* Return the address of this rank's rows in the group's kept copy, and set *dtype. Return NULL if
 * there is no such copy to write: see fsdp_parameter_own_rows_of_copy(). */
void *fsdp_param_own_rows_of_copy(const fsdp_param *p, fsdp_dtype *dtype);
/* Make the module's parameter refer to `local` and `data`. */
void fsdp_param_show_tensors(fsdp_param *p);
/* Do what fsdp_param_show_tensors() does. Also make p the owner of the module's parameter, and drop
 * that parameter's gradient. `ops` must be static. */
void fsdp_param_adopt(fsdp_param *p, const fsdp_parameter_owner_ops *ops);
/* Undo fsdp_param_adopt() for a module's parameter that outlives its group. Afterwards this
 * parameter has no memory. */
void fsdp_param_disown(fsdp_param *p);

/* For sync_module_states (param_sync.c): copy rank 0's values to p, if rank 0 has any.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_param_sync_values(const fsdp_param *p);
/* Copy the fields `loaded` and `loaded_dtype` of the module's parameter from rank 0. Call this
 * before the storage is chosen. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_param_sync_loaded_dtype(const fsdp_param *p);
