/* fsdp_param: one sharded parameter (PyTorch's FSDPParam). It alone owns the shard's geometry,
 * which src/nn reads through fsdp_parameter.owner, and decides how the parameter is stored
 * (param_storage.h).
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
    /* Offsets in buffers are multiples of this: 64 bytes in every floating dtype. */
    FSDP_ALIGN_ELEMENTS = 32,
    FSDP_MAX_TREE = 32
};

/* A parameter whose gradient is a table of rows: Note [Gradients by row] in grad_rows.h. */
typedef struct fsdp_row_table {
    int64_t most;      /* Rows that the table has room for, without row 0; 0: there is no table. */
    int64_t n;         /* Rows touched so far. */
    int32_t *ids;      /* [most] The id of rows 1 to n. */
    fsdp_tensor *rows; /* [1 + most, D] float32, over the gradient buffer. */
    int32_t *place;    /* [V] The row of each id, 0: not touched. Kept from step to step. */
    bool is_over;      /* The backward sweep that the table was sized for has ended. */
} fsdp_row_table;

/* The stages of a parameter's gradient: in the open buffer that backward writes, in the posted
 * buffer, and summed over the ranks but not yet assigned to the parameter. */
typedef struct fsdp_param_grad {
    /* Whole, float32, over the open buffer; its offset is the parameter's place there. */
    fsdp_tensor *whole;
    fsdp_row_table table;
    bool in_buffer;       /* The gradient has, or will get, a place in the open buffer. */
    bool placed;          /* It has its place now. */
    int order;            /* In a section, the number of places assigned before this one; else 0. */
    bool touched;         /* The open buffer has a gradient of this micro-step. */
    bool posted;          /* The posted buffer has one. */
    bool posted_rows;     /* The posted one is a table of rows. */
    size_t lane_offset;   /* Elements; where own rows are in a lane of replicas. */
    fsdp_tensor *partial; /* Own rows summed over the shard group, not over replicas yet. */
    /* Sharded partial sums of earlier micro-steps: the stack of an aligned binary tree. */
    fsdp_tensor *tree[FSDP_MAX_TREE];
    int tree_level[FSDP_MAX_TREE];
    int n_tree;
} fsdp_param_grad;

typedef struct fsdp_param {
    fsdp_parameter_owner owner; /* The shard and the functions for src/nn. Must come first. */
    fsdp_parameter *parameter;  /* Borrowed from its module. It may be destroyed before this. */
    char *name;                 /* Within the group's module. */
    const fsdp_param_context *context;
    /* For callbacks of src/nn and src/autograd, which pass only the parameter. */
    struct fsdp_param_group *group;
    struct fsdp_grad_buffer *grads;
    fsdp_slice slice;   /* Where the shard's entries are in the whole parameter. */
    bool requires_grad; /* The parameter's requires_grad when its storage was chosen. */

    /* How the parameter is stored. */
    const struct fsdp_param_storage *storage;
    struct fsdp_param_memory *memory; /* The memory that operations read. */
    size_t offset;                    /* Elements of param_dtype in that memory. */
    fsdp_dtype dtype;                 /* Of `local`. */
    fsdp_tensor *local;               /* The sharded parameter. */
    fsdp_tensor *data;                /* The unsharded parameter. */

    fsdp_param_grad grad;
} fsdp_param;

static inline fsdp_param *fsdp_param_of(const fsdp_parameter *parameter)
{
    return (fsdp_param *)(void *)parameter->owner;
}

/* Elements that a tensor of `numel` elements takes in a buffer. */
static inline int64_t fsdp_aligned_numel(int64_t numel)
{
    return (numel + FSDP_ALIGN_ELEMENTS - 1) / FSDP_ALIGN_ELEMENTS * FSDP_ALIGN_ELEMENTS;
}

static inline int64_t fsdp_param_numel(const fsdp_param *p)
{
    return fsdp_parameter_numel(p->parameter);
}

/* Choose this rank's shard of p: Shard(0), or by shard_placement_fn. */
FSDP_MUST_CHECK fsdp_status fsdp_param_choose_shard(fsdp_param *p);
/* Elements of the largest shard, which is that of the first rank. The same on all ranks. */
int64_t fsdp_param_most_numel(const fsdp_param *p);
/* Bytes of the largest shard that count for Note [Idle memory] in buffer.h; 0 if p is frozen. */
int64_t fsdp_param_trained_bytes(const fsdp_param *p);
/* Make a tensor of this rank's rows a DTensor over the group's mesh. No effect if p is whole. */
FSDP_MUST_CHECK fsdp_status fsdp_param_set_spec(const fsdp_param *p, fsdp_tensor *rows);
/* Create `local` and `data` in memory that has been allocated for them. */
FSDP_MUST_CHECK fsdp_status fsdp_param_create_tensors(fsdp_param *p,
                                                      const struct fsdp_param_memories *memories);
/* Release both. `local` may live on in a state dict: it is empty if its memory was shared. */
void fsdp_param_release_tensors(fsdp_param *p);
/* local = `slice` of `old`, which may have another dtype or device. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_take_values(const fsdp_tensor *old, const fsdp_slice *slice,
                                                    fsdp_tensor *local);
/* This rank's rows in a kept copy: see fsdp_parameter_own_rows_of_copy(). */
void *fsdp_param_own_rows_of_copy(const fsdp_param *p, fsdp_dtype *dtype);
/* Make the parameter refer to p's tensors. */
void fsdp_param_show_tensors(fsdp_param *p);
/* The same, and make p the parameter's owner. Drops its gradients. `ops` must be static. */
void fsdp_param_adopt(fsdp_param *p, const fsdp_parameter_owner_ops *ops);
/* Undo fsdp_param_adopt() for a parameter that outlives its group. It has no memory afterwards. */
void fsdp_param_leave(fsdp_param *p);

/* sync_module_states (param_sync.c): copy rank 0's values to p, if rank 0 has any. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_param_sync_values(const fsdp_param *p);
/* Copy from rank 0 the dtype in which it loaded the parameter. Call it before the storage is
 * chosen. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_param_sync_loaded_dtype(const fsdp_param *p);
