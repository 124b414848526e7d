/* Internals of scopes, the tape and backward, for use by operations and module hooks.
 *
 * Note [Regions]. A module call is an interval of the tape, a region, with hooks at both ends.
 * Backward marks the nodes and regions that its roots reach, and then sweeps from the newest node
 * to the oldest. pre_backward is called when the sweep comes to the first marked node of a region
 * (outermost region first). post_backward is called when the sweep has left the region (innermost
 * first); `last` is set if no marked region of the same hooks object remains. These rules cover
 * modules that are used twice, two forwards before one backward, unused outputs, forwards of
 * modules other than the root, and nested units. end_backward is called at the end of the sweep,
 * not at the end of a region, because there may be no region that encloses all others. */
#pragma once
#include <fsdp/autograd.h>

#include "src/tensor/tensor.h"
#include "src/trace/trace.h"

enum {
    FSDP_MAX_IN = FSDP_MAX_ARGS,
    FSDP_MAX_OUT = FSDP_MAX_CHUNKS,
    FSDP_MAX_SAVED = 8,
    FSDP_MAX_HOOKS = 4,
    FSDP_OPTION_BYTES = 96
};

/* A table for the gradients of some rows of a leaf. */
typedef struct fsdp_grad_rows {
    fsdp_tensor *table; /* [rows, D] float32, borrowed; gradients are added to it */
    int32_t *index;     /* [n] row of the table for each requested row of the leaf; owned by the
                           caller, for fsdp_free() */
    int32_t unused_row; /* the value in `index` for rows that get no gradient */
} fsdp_grad_rows;

/* The destination of a leaf's gradient. */
typedef struct fsdp_grad_sink fsdp_grad_sink;
struct fsdp_grad_sink {
    bool requires_grad;
    /* How recorded operations have read the leaf since the owner of `target` last reset these
     * fields. looked_up: some operation has read only some of the rows; `lookups` is the number of
     * rows read by all operations of this kind. read_whole: some operation has read the whole leaf.
     * Operations of a checkpointed part are counted here in the first run, although only the second
     * run records their nodes. */
    bool looked_up, read_whole;
    int64_t lookups;
    /* Number of nodes that read the leaf and whose backward has not run, including nodes that the
     * second run of a checkpointed part will record. If it is 0, no node will add to the gradient,
     * unless another forward reads the leaf. */
    int n_readers;
    /* Get the tensor that the gradient is written to. *beta is 0 for the first contribution, which
     * overwrites the tensor, and 1 for later ones, which are added. FSDP returns a place in the
     * unit's gradient buffer. */
    fsdp_status (*target)(fsdp_grad_sink *self, fsdp_tensor *leaf, fsdp_tensor **dst, float *beta);
    /* Get a table for the gradients of only the rows in `ids` [n]. Row padding_idx gets no
     * gradient. If `out->table` is then NULL, the caller must use `target`. If this function is
     * itself NULL, callers always use `target`. */
    fsdp_status (*rows)(fsdp_grad_sink *self, const int32_t *ids, int64_t n, int32_t padding_idx,
                        fsdp_grad_rows *out);
    fsdp_tensor *grad;  /* the tensor to which the default target writes; owned */
    uint64_t n_dropped; /* number of times that the owner of `target` has dropped a gradient of this
                           leaf; 0 for the default target */
};
/* The default target: write to self->grad, which is float32 and created on first use. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_sink_default_target(fsdp_grad_sink *self, fsdp_tensor *leaf,
                                                          fsdp_tensor **dst, float *beta);
FSDP_MUST_CHECK fsdp_status fsdp_grad_target(fsdp_tensor *leaf, fsdp_tensor **dst, float *beta);
/* Get the leaf's target already in forward, for the node that the calling operation will record.
 * During the call, this node counts as a reader of the leaf. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_target_of_next_node(const struct fsdp_scope *s,
                                                          fsdp_tensor *leaf, fsdp_tensor **dst,
                                                          float *beta);
/* Make `grad` itself the leaf's gradient, so that nothing is copied. `grad` must have the dtype and
 * shape of the default target's tensor. Returns false, and does nothing, if the leaf has another
 * target or already has a gradient, or if `grad` has other holders. */
bool fsdp_grad_steal(fsdp_tensor *leaf, fsdp_tensor *grad);

/* Leaves that future nodes will read. A leaf is listed once for each of these nodes. */
typedef struct fsdp_leaf_list {
    fsdp_tensor **items;
    size_t n, cap;
} fsdp_leaf_list;
FSDP_MUST_CHECK fsdp_status fsdp_leaf_list_add(fsdp_leaf_list *list, fsdp_tensor *leaf);
/* Drop the remaining leaves, which no node will read any more. */
void fsdp_leaf_list_clear(fsdp_leaf_list *list);

typedef struct fsdp_node fsdp_node;
typedef struct fsdp_derived fsdp_derived;

/* The kind of work that an operation does. It selects the operation's category in traces, and the
 * results that checkpointing with keeps_results keeps (checkpoint.h). */
typedef enum fsdp_op_kind {
    FSDP_OP_OTHER,
    FSDP_OP_MATMUL,
    FSDP_OP_ATTENTION
} fsdp_op_kind;

typedef struct fsdp_op {
    const char *name;
    fsdp_op_kind kind;
    /* Compute the gradients of the inputs. `s` has no tape and owns the tensors that are created
     * in it. grad_out[i] is NULL if output i got no gradient. Sets grad_in[i] (owned by s) for
     * each needed input i, unless the function has written the gradient to the input's target. */
    void (*backward)(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                     fsdp_tensor **grad_in);
    /* Compute the part of backward that reads saved[0]. This runs before `backward`, and saved[0]
     * is released in between, so the results of `backward` may reuse its memory. NULL: all of
     * backward is in `backward`. */
    void (*backward_first)(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                           fsdp_tensor **grad_in);
    /* If true, `backward` itself adds to the gradients of its inputs. When it is called, grad_in[i]
     * is the sum of the gradients that other readers of input i have given so far (owned by s;
     * NULL: none). `backward` adds its own contributions in an order that it chooses, and stores
     * the sum in grad_in[i]. */
    bool continues;
    void (*host_destroy)(void *host); /* destroys fsdp_record_args.host; NULL: fsdp_free() */
    bool has_gradients; /* forward already computes the gradients that backward passes on, so the
                           second run of a checkpointed part must run this operation */
    bool reads_rows;    /* the operation reads only fsdp_record_args.rows rows of its leaves */
    /* Recompute the only result of a recorded node and write it to `result`, which has the right
     * shape and dtype. See Note [Derived results] in derived.h. Called only on devices with
     * kernels. NULL: the result cannot be recomputed, so it is kept for operations that read it in
     * backward. */
    void (*derive)(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *result);
} fsdp_op;

static inline fsdp_trace_category fsdp_op_category(const fsdp_op *op)
{
    return op->kind == FSDP_OP_MATMUL      ? FSDP_TRACE_MATMUL
           : op->kind == FSDP_OP_ATTENTION ? FSDP_TRACE_ATTENTION
                                           : FSDP_TRACE_OPERATION;
}

struct fsdp_node {
    const fsdp_op *op;
    uint32_t region; /* innermost region + 1; 0: none */
    uint32_t need;   /* bit i: input i needs a gradient */
    int n_in, n_out, n_saved;
    struct {
        uint32_t node; /* index + 1 of the node that made the input; 0: none */
        uint16_t output;
        fsdp_tensor *leaf; /* the input, if it is a leaf that needs a gradient; retained */
    } in[FSDP_MAX_IN];
    fsdp_tensor *saved[FSDP_MAX_SAVED]; /* released during or directly after this node's backward */
    uint32_t from[FSDP_MAX_SAVED]; /* index + 1 of the node that recomputes saved[i], which is NULL
                                      until then; 0: saved[i] is kept */
    fsdp_derived *derived;    /* state of the recomputation of this node's result; NULL: the result
                                 cannot be recomputed */
    const fsdp_tensor *wrote; /* fsdp_record_args.wrote: one of the leaves in `in`; NULL: none */
    uint64_t n_dropped;       /* value of n_dropped in wrote's sink when the node was recorded */
    void *host;               /* host memory that the operation keeps */
    _Alignas(16) unsigned char options[FSDP_OPTION_BYTES];
};

/* Does the scope have a tape, and does `t` need a gradient on it? */
bool fsdp_needs_grad(const fsdp_scope *s, const fsdp_tensor *t);
/* Must an operation with input `t` call fsdp_record()? This is also true if operations of a
 * checkpointed part are being counted (Note [Early stop] in early_stop.h). */
bool fsdp_is_recorded(const fsdp_scope *s, const fsdp_tensor *t);

/* The arguments of fsdp_record(). n_in, n_saved and n_out are the numbers of elements in use. An
 * absent input (a bias) is NULL in `in`. fsdp_record() takes ownership of `host`, even if no node
 * is recorded. */
typedef struct fsdp_record_args {
    const fsdp_op *op;
    fsdp_tensor *in[FSDP_MAX_IN];
    int n_in;
    fsdp_tensor *saved[FSDP_MAX_SAVED];
    int n_saved;
    fsdp_tensor *out[FSDP_MAX_OUT];
    int n_out;
    const void *options;
    size_t options_bytes;
    void *host;
    /* A leaf in `in` whose gradient forward has already added to the leaf's target; NULL: none.
     * This is correct only if backward reaches the node; if it does not, backward fails. */
    fsdp_tensor *wrote;
    bool reads_leaves; /* the operation reads leaves other than its inputs, so it is recorded even
                          if no input needs a gradient */
    int64_t rows;      /* see fsdp_op.reads_rows */
} fsdp_record_args;
/* Add a node to the tape. Every operation calls this after its kernel; no other function adds
 * nodes. It adds none without a tape, or if no input needs a gradient and reads_leaves is false. */
void fsdp_record(fsdp_scope *s, const fsdp_record_args *args);

/* --- scopes --- */

/* State shared by all scopes of one forward. */
typedef struct fsdp_run {
    fsdp_device *device;
    fsdp_tape *tape; /* NULL: no gradients */
    /* The tape while it is hidden, in the first run of a checkpointed part (Note [Recomputation] in
     * checkpoint.h). */
    fsdp_tape *hidden_tape;
    /* hidden_leaves: leaves that operations have read while the tape is hidden. expected_leaves: in
     * the second run of a part, the hidden leaves of its first run that have not been read again
     * yet. */
    struct fsdp_leaf_list *hidden_leaves, *expected_leaves;
    bool recomputing;
    /* keeping: where the first run of a part stores the results that it keeps. recalling: where the
     * second run finds these results. NULL: none. */
    struct fsdp_kept *keeping, *recalling;
    /* See Note [Early stop] in early_stop.h. counting, stopping: the state of a checkpointed part,
     * in its first and in its second run. without_values: the second run has passed its stopping
     * point. Backward reads nothing that comes later, so no values are computed. */
    struct fsdp_early_stop *counting, *stopping;
    bool without_values;
    fsdp_scope_options options;
    uint64_t rng_calls; /* number of dropout calls so far; a part of the key of random numbers */
    fsdp_dtype buffer_dtype; /* values of buffers are rounded to this dtype; their memory is
                                float32 */
    float loss_factor;       /* factor of the loss that is being computed, for the head */
    fsdp_status status;
    char message[512];
} fsdp_run;

struct fsdp_scope {
    fsdp_scope *parent; /* NULL: this is the root, which owns run */
    fsdp_run *run;
    fsdp_tensor **owned;
    size_t n_owned, cap_owned;
};

FSDP_MUST_CHECK fsdp_status fsdp_scope_open_child(fsdp_scope *parent, fsdp_scope **child);
/* Move the caller's reference to `t` into the scope. Returns t, or NULL if `t` is NULL or the scope
 * fails. */
fsdp_tensor *fsdp_scope_own(fsdp_scope *s, fsdp_tensor *t);
/* Create an activation [shape], owned by s. Returns NULL if the scope has failed, or fails in this
 * call. The tensor has no memory if values are not needed (Note [Early stop] in early_stop.h). */
fsdp_tensor *fsdp_new(fsdp_scope *s, fsdp_dtype dtype, int ndim, const int64_t *shape);
/* Let an outer scope own one more reference to `t`, so that `t` outlives the scope in which it was
 * made. */
fsdp_tensor *fsdp_scope_keep(fsdp_scope *outer, fsdp_tensor *t);
/* Record a failure in the scope; returns true if `status` is FSDP_OK. */
bool fsdp_scope_check(fsdp_scope *s, fsdp_status status);
/* Set a float32 scalar. The device must have kernels. */
static inline void fsdp_set_scalar(const fsdp_tensor *t, float value)
{
    fsdp_device_from_host(t->storage->device, fsdp_tensor_ptr(t), &value, sizeof value);
}
/* Fail with a message that begins with the operation's name. */
FSDP_PRINTF(3, 4) void fsdp_scope_error(fsdp_scope *s, const char *op, const char *format, ...);
static inline bool fsdp_scope_ok(const fsdp_scope *s)
{
    return s->run->status == FSDP_OK;
}
/* Will the operations in this scope have a backward? */
static inline bool fsdp_scope_has_backward(const fsdp_scope *s)
{
    return s->run->tape || s->run->hidden_tape;
}
/* Return the kernels, or NULL if nothing must be computed: the scope has failed, the device is
 * meta, or values are not needed (Note [Early stop] in early_stop.h). */
const fsdp_kernels *fsdp_scope_kernels(const fsdp_scope *s);
static inline fsdp_kernel_context *fsdp_scope_context(const fsdp_scope *s)
{
    return s->run->device->context;
}
/* Check that each tensor in `t` [n] is on the scope's device, is contiguous and has data (on meta:
 * is not resharded). NULL is an error, so do not pass absent inputs. If a check fails, returns
 * false, and the scope fails with a message that names `op`. */
bool fsdp_check_inputs(fsdp_scope *s, const char *op, fsdp_tensor *const *t, int n);
/* Make a new key for random numbers from (seed, step, leaf, call number). */
uint64_t fsdp_scope_next_key(fsdp_scope *s);

/* --- regions --- */

typedef struct fsdp_region fsdp_region;

/* Hooks that fsdp, offload or a profiler attaches to modules. One object may be attached to
 * several modules, which are then one unit. Any function may be NULL. */
typedef struct fsdp_region_hooks {
    fsdp_status (*pre_forward)(void *self, fsdp_scope *s, fsdp_args *in);
    /* Cast tensors that the module's forward creates itself, in the same way as pre_forward casts
     * inputs. */
    fsdp_status (*cast_inputs)(void *self, fsdp_scope *s, fsdp_args *in);
    fsdp_status (*post_forward)(void *self, fsdp_scope *s, fsdp_args *out);
    fsdp_status (*pre_backward)(void *self);
    fsdp_status (*post_backward)(void *self, bool last);
    /* Called when the sweep has ended, once for each hooks object on the tape, whether or not
     * backward reached its regions. The order is that of the regions on the tape. */
    fsdp_status (*end_backward)(void *self);
    /* Called if a forward or backward failed: drop unsharded data, and, if has_backward, also the
     * step's gradients. */
    void (*cancel)(void *self, bool has_backward);
    void *self;
    uint32_t reached; /* used by backward: number of marked regions of this object that the sweep
                         has not left yet */
    bool ended;       /* used by backward: end_backward has been called */
} fsdp_region_hooks;

struct fsdp_region {
    uint32_t first, end; /* nodes [first, end) of the tape */
    uint32_t parent;     /* index of the parent region + 1; 0: none */
    fsdp_region_hooks *hooks[FSDP_MAX_HOOKS];
    int n_hooks;
    bool reached, entered, left;
    const char *class_name, *name; /* the module's class and name for traces, borrowed; NULL:
                                      none */
};

/* Open and close a region on the scope's tape. begin returns the index of the region + 1. Without
 * a tape, begin returns 0 and end does nothing. */
uint32_t fsdp_region_begin(fsdp_scope *s, fsdp_region_hooks *const *hooks, int n_hooks);
void fsdp_region_end(fsdp_scope *s, uint32_t region);
/* Set the class and name of the region's module, for traces of backward. No effect on region 0. */
void fsdp_region_set_name(fsdp_scope *s, uint32_t region, const char *class_name, const char *name);

struct fsdp_tape {
    /* Generation of the nodes that are now on the tape. It changes when the tape is cleared.
     * Tensors that still have an old generation have no node any more. */
    uint64_t generation;
    fsdp_node *nodes;
    size_t n_nodes, cap_nodes;
    fsdp_region *regions;
    size_t n_regions, cap_regions;
    uint32_t open_region; /* index of the innermost open region + 1; 0: none */
};
/* fsdp_node_release_saved() releases saved[i] of a node of the tape. fsdp_node_clear() releases
 * everything that the node holds. */
void fsdp_node_release_saved(const fsdp_tape *tape, fsdp_node *n, int i);
void fsdp_node_clear(const fsdp_tape *tape, fsdp_node *n);
/* Empty the tape without cancelling anything. */
void fsdp_tape_clear(fsdp_tape *tape);
/* Call cancel() of every region's hooks, newest region first. */
void fsdp_tape_cancel(fsdp_tape *tape);
