/* fsdp_param: one sharded parameter (PyTorch's FSDPParam). Only fsdp_param decides which part of
 * the parameter is this rank's shard, and how the parameter is stored (param_storage.h). src/nn
 * reads the shard through fsdp_parameter.owner.
 *
 * sharded parameter    this rank's rows in the master dtype: the tensor `local`, which the
 *                      optimizer updates
 * unsharded parameter  all rows in param_dtype: the tensor `data`, which operations read. It has
 *                      memory only between unshard and reshard, so reading it at other times is an
 *                      error and never returns stale data. */
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
    FSDP_MAX_TREE = 32
};

/* The gradient of a parameter as a table of rows: Note [Gradients by row] in grad_rows.h. */
typedef struct fsdp_row_table {
    int64_t most;      /* Rows that the table has room for, not counting row 0; 0 means no table. */
    int64_t n;         /* Rows touched so far, not counting row 0. */
    int32_t *ids;      /* [most] Item i is the id of row i + 1. */
    fsdp_tensor *rows; /* [1 + most, D] float32, a view of the gradient buffer. */
    int32_t *place;    /* [V] The row of each id; 0: none. The array is kept from step to step. */
    bool is_over;      /* The backward sweep that the table was sized for has ended. */
} fsdp_row_table;

/* The stages of a parameter's gradient: first in the open buffer, which backward writes, then in
 * the posted buffer, then summed over the ranks but not yet assigned to the parameter. */
typedef struct fsdp_param_grad {
    /* The whole gradient, float32, in the memory of the open buffer. The tensor's offset is the
     * parameter's place in this buffer. */
    fsdp_tensor *whole;
    fsdp_row_table table;
    bool in_buffer; /* The gradient has, or will get, a place in the open buffer. */
    bool placed;    /* The gradient has its place now. */
    int order;      /* In a section: the number of places assigned before this one. Otherwise 0. */
    bool touched;   /* The open buffer has a gradient of this parameter from this micro-step. */
    bool posted;    /* The posted buffer has a gradient of this parameter. */
    bool posted_rows;     /* The gradient in the posted buffer is a table of rows. */
    size_t lane_offset;   /* Where this rank's rows are in a lane (grad_reduce.c), in elements. */
    fsdp_tensor *partial; /* The gradient of this rank's rows, summed over the shard group only. */
    /* Partial sums of the gradients of this rank's rows from earlier micro-steps. They form the
     * stack in Note [Same bits at any world size] in grad_reduce.h. */
    fsdp_tensor *tree[FSDP_MAX_TREE];
    int tree_level[FSDP_MAX_TREE];
    int n_tree;
} fsdp_param_grad;

typedef struct fsdp_param {
    fsdp_parameter_owner owner; /* The shard and the functions for src/nn. Must come first. */
    fsdp_parameter *parameter;  /* Borrowed; may be destroyed before the fsdp_param. */
    char *name;                 /* The parameter's path within the group's module. */
    const fsdp_param_context *context;
    /* For callbacks of src/nn and src/autograd, which pass only the parameter. */
    struct fsdp_param_group *group;
    struct fsdp_grad_buffer *grads;
    fsdp_slice slice;   /* Where the shard's elements are in the whole parameter. */
    bool requires_grad; /* The parameter's requires_grad when its storage was chosen. */

    /* How the parameter is stored. */
    const struct fsdp_param_storage *storage;
    struct fsdp_param_memory *memory; /* The memory that operations read. */
    size_t offset;      /* The parameter's place in `memory`, in elements of param_dtype. */
    fsdp_dtype dtype;   /* The dtype of `local`. */
    fsdp_tensor *local; /* The sharded parameter. */
    fsdp_tensor *data;  /* The unsharded parameter. */

    fsdp_param_grad grad;
} fsdp_param;

static inline fsdp_param *fsdp_param_of(const fsdp_parameter *parameter)
{
    return (fsdp_param *)(void *)parameter->owner;
}

/* Return the number of elements that a tensor of `numel` elements occupies in a buffer. */
static inline int64_t fsdp_aligned_numel(int64_t numel)
{
    return (numel + FSDP_ALIGN_ELEMENTS - 1) / FSDP_ALIGN_ELEMENTS * FSDP_ALIGN_ELEMENTS;
}

static inline int64_t fsdp_param_numel(const fsdp_param *p)
{
    return fsdp_parameter_numel(p->parameter);
}

/* Choose this rank's shard of p, by shard_placement_fn if that is set, else Shard(0). */
FSDP_MUST_CHECK fsdp_status fsdp_param_choose_shard(fsdp_param *p);
/* Return the number of elements of the largest shard, which is that of the first rank. */
int64_t fsdp_param_most_numel(const fsdp_param *p);
/* Return the bytes of the largest shard, as Note [Idle memory] in buffer.h counts them; 0 if p is
 * frozen. */
int64_t fsdp_param_trained_bytes(const fsdp_param *p);
/* Turn `rows`, which contains this rank's rows of p, into a DTensor over the mesh or shard group of
 * p. No effect if p is not sharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_set_spec(const fsdp_param *p, fsdp_tensor *rows);
/* Create `local` and `data` in `memories`, which are already allocated. */
FSDP_MUST_CHECK fsdp_status fsdp_param_create_tensors(fsdp_param *p,
                                                      const struct fsdp_param_memories *memories);
/* Release `local` and `data`. A state dict may still refer to `local`. If the memory of `local` was
 * shared, `local` is then empty. */
void fsdp_param_release_tensors(fsdp_param *p);
/* Copy the values in `slice` of `old` to `local`. The tensors may differ in dtype and device. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_take_values(const fsdp_tensor *old, const fsdp_slice *slice,
                                                    fsdp_tensor *local);
/* Return this rank's rows in a kept copy: see fsdp_parameter_own_rows_of_copy(). */
void *fsdp_param_own_rows_of_copy(const fsdp_param *p, fsdp_dtype *dtype);
/* Make the parameter refer to p's tensors. */
void fsdp_param_show_tensors(fsdp_param *p);
/* Do what fsdp_param_show_tensors() does, make p the parameter's owner, and drop the parameter's
 * gradients. `ops` must be static. */
void fsdp_param_adopt(fsdp_param *p, const fsdp_parameter_owner_ops *ops);
/* Undo fsdp_param_adopt() for a parameter that outlives its group. Afterwards the parameter has no
 * memory. */
void fsdp_param_disown(fsdp_param *p);

/* sync_module_states (param_sync.c): copy rank 0's values to p, if rank 0 has any. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_param_sync_values(const fsdp_param *p);
/* Set the parameter's loaded dtype to that of rank 0. Call this before the storage is chosen.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_param_sync_loaded_dtype(const fsdp_param *p);
