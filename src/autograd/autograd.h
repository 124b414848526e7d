/* Internals of scopes, the tape and backward, for use by operations and module hooks.
 *
 * Note [Regions]. The nodes that one module call records are an interval of the tape, called a
 * region. Each region has the hooks of its module. Backward first marks the nodes and regions on
 * which its roots depend. Then it sweeps the tape from the newest node to the oldest. pre_backward
 * is called when the sweep reaches the first marked node of a region, for outer regions before
 * inner ones. post_backward is called when the sweep has passed all nodes of the region, for inner
 * regions before outer ones. The argument `last` of post_backward is true if no other marked region
 * with the same hooks object remains. These rules also cover modules that are used twice, two
 * forwards before one backward, unused outputs, forwards of modules other than the root, and nested
 * units. end_backward is called at the end of the sweep, not at the end of a region, because there
 * may be no region that encloses all others. */
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

/* A table to which the caller adds the gradients of some rows of a leaf. */
typedef struct fsdp_grad_rows {
    fsdp_tensor *table; /* [rows, D] float32, borrowed */
    /* [n] The gradient of the i-th row that the caller has requested is added to row index[i] of
     * the table. The caller must free the array with fsdp_free(). */
    int32_t *index;
    int32_t unused_row; /* value in `index` for requested rows that get no gradient */
} fsdp_grad_rows;

/* The destination of a leaf's gradient. */
typedef struct fsdp_grad_sink fsdp_grad_sink;
struct fsdp_grad_sink {
    bool requires_grad;
    /* looked_up, lookups and read_whole describe how operations have read the leaf since these
     * three fields were last reset. The code that supplies the function `target` resets them.
     * looked_up: some operation has read only some of the rows (fsdp_op.reads_rows). lookups: the
     * total number of rows that such operations have read. read_whole: some operation has read the
     * whole leaf. With activation checkpointing, the forward of a checkpointed part already sets
     * these fields, although nodes are recorded only when backward runs the part a second time. */
    bool looked_up, read_whole;
    int64_t lookups;
    /* Number of nodes that read the leaf and whose backward has not run yet. This number includes
     * the nodes that will be recorded when backward runs a checkpointed part a second time. Once
     * the number is 0, the gradient is complete, unless another forward reads the leaf later. */
    int n_readers;
    /* One product can compute the gradients of several leaves (Note [Joined products] in
     * joined_linear.h) if these gradients are adjacent in memory. In the first of these leaves,
     * n_joined is the number of these leaves; in all other leaves, n_joined is 0. The operation
     * sets n_joined, then calls `target` of the leaves in order. */
    int n_joined;
    /* Set *dst to the tensor to which the caller must write a gradient of the leaf, and set *beta.
     * If *beta is 0, the caller overwrites the tensor with this first gradient. If *beta is 1, the
     * caller adds the gradient to the tensor. For a parameter of a unit, the tensor is a place in
     * the unit's gradient buffer. */
    fsdp_status (*target)(fsdp_grad_sink *self, fsdp_tensor *leaf, fsdp_tensor **dst, float *beta);
    /* Get a table to which the caller adds gradients of only the rows `ids` [n] of the leaf. Row
     * padding_idx gets no gradient. If there is no such table, the function sets out->table to
     * NULL, and the caller must use `target`. The caller must also use `target` if the pointer
     * `rows` is NULL. */
    fsdp_status (*rows)(fsdp_grad_sink *self, const int32_t *ids, int64_t n, int32_t padding_idx,
                        fsdp_grad_rows *out);
    /* An operation calls this function after it has looked up n rows of the leaf in forward. The
     * leaf need not require a gradient. NULL: nothing counts the rows. */
    void (*note_lookups)(fsdp_grad_sink *self, int64_t n);
    fsdp_tensor *grad; /* the tensor to which the default target writes; owned */
    /* How often the owner of `target` has dropped a gradient of this leaf that was not used yet.
     * Always 0 if `target` is the default target. */
    uint64_t n_dropped;
};
/* The default `target`: *dst is self->grad, which is float32 and is created by the first call. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_sink_default_target(fsdp_grad_sink *self, fsdp_tensor *leaf,
                                                          fsdp_tensor **dst, float *beta);
/* Call `target` of the leaf's sink. Return FSDP_ERR_STATE if the leaf no longer has a sink, because
 * its parameter was sharded or destroyed. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_target(fsdp_tensor *leaf, fsdp_tensor **dst, float *beta);
/* Do what fsdp_grad_target() does, but in forward. An operation calls this if it writes the leaf's
 * gradient before it calls fsdp_record(). During the call of target(), sink->n_readers already
 * counts the node that fsdp_record() will add for this operation. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_target_of_next_node(const struct fsdp_scope *s,
                                                          fsdp_tensor *leaf, fsdp_tensor **dst,
                                                          float *beta);
/* Make `grad` itself the leaf's gradient, so that nothing is copied. `grad` must have the dtype and
 * shape that the default target uses. Do nothing and return false if the leaf has another target or
 * already has a gradient, or if something else refers to `grad`. */
bool fsdp_grad_steal(fsdp_tensor *leaf, fsdp_tensor *grad);

/* A list of leaves. Nodes that are not recorded yet will read these leaves. A leaf is listed once
 * for each of these nodes. */
typedef struct fsdp_leaf_list {
    fsdp_tensor **items;
    size_t n, cap;
} fsdp_leaf_list;
FSDP_MUST_CHECK fsdp_status fsdp_leaf_list_add(fsdp_leaf_list *list, fsdp_tensor *leaf);
/* Empty the list. Call this when it is known that no node will read the leaves that are still in
 * the list. */
void fsdp_leaf_list_clear(fsdp_leaf_list *list);

typedef struct fsdp_node fsdp_node;
typedef struct fsdp_derived fsdp_derived;

/* The kind of work that an operation does. The kind decides the operation's category in traces. It
 * also decides whether activation checkpointing with keeps_results (checkpoint.h) may keep the
 * operation's results. */
typedef enum fsdp_op_kind {
    FSDP_OP_OTHER,
    FSDP_OP_MATMUL,
    FSDP_OP_ATTENTION
} fsdp_op_kind;

typedef struct fsdp_op {
    const char *name;
    fsdp_op_kind kind;
    /* Compute the gradients of the inputs. `s` has no tape and owns the tensors that are created in
     * it. grad_out[i] is NULL if output i got no gradient. For each input i that needs a gradient,
     * the function sets grad_in[i] (owned by s). If input i is a leaf, the function may instead
     * write the gradient to the leaf's target. */
    void (*backward)(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                     fsdp_tensor **grad_in);
    /* Compute the gradients for which saved[0] is needed. The sweep calls backward_first(), then
     * releases saved[0], then calls backward(). So the results of backward() may use the memory of
     * saved[0]. NULL: backward() computes all gradients. */
    void (*backward_first)(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                           fsdp_tensor **grad_in);
    /* True if backward() itself adds up the gradients of an input that several operations read. In
     * this case, grad_in[i] is already set when backward() is called. It is the sum of the
     * gradients that the other readers of input i have given so far (owned by s), or NULL if there
     * are none. backward() adds its own gradients to this sum in an order that it chooses, and
     * stores the new sum in grad_in[i]. If `continues` is false, the sweep adds up the
     * gradients. */
    bool continues;
    void (*host_destroy)(void *host); /* frees fsdp_record_args.host; NULL: fsdp_free() is used */
    /* True if forward already computes the gradients of the inputs, and backward only passes them
     * on. Backward always needs such an operation. So the second run of a checkpointed part does
     * not stop before it, even if backward reads no other value of it (early_stop.h). */
    bool has_gradients;
    bool reads_rows; /* the operation reads only fsdp_record_args.rows rows of its leaves */
    /* Compute the only result of a recorded node again, and write it to `result`, which has the
     * right shape and dtype. See Note [Derived results] in derived.h. Called only on devices with
     * kernels. NULL: the result cannot be recomputed, so it is kept in memory until backward has
     * run all operations that read it. */
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
    uint32_t region; /* index + 1 of the innermost region; 0: none */
    uint32_t need;   /* bit i: input i needs a gradient */
    int n_in, n_out, n_saved;
    struct {
        uint32_t node; /* index + 1 of the node that made the input; 0: none */
        uint16_t output;
        fsdp_tensor *leaf; /* the input, if it is a leaf that needs a gradient; retained */
    } in[FSDP_MAX_IN];
    fsdp_tensor *saved[FSDP_MAX_SAVED]; /* released during or directly after this node's backward */
    /* 0: saved[i] is kept. Otherwise, from[i] is the index + 1 of the node that recomputes saved[i]
     * in backward, and saved[i] is NULL until then. */
    uint32_t from[FSDP_MAX_SAVED];
    /* For a node whose result can be recomputed: the state of the recomputation; else NULL. */
    fsdp_derived *derived;
    const fsdp_tensor *wrote; /* fsdp_record_args.wrote: one of the leaves in `in`; NULL: none */
    uint64_t n_dropped;       /* value of wrote->sink->n_dropped when the node was recorded */
    void *host;               /* host memory of the operation; owned */
    _Alignas(16) unsigned char options[FSDP_OPTION_BYTES];
};

/* Return true if the scope has a tape and `t` needs a gradient on it. */
bool fsdp_needs_grad(const fsdp_scope *s, const fsdp_tensor *t);
/* Return true if an operation with input `t` must call fsdp_record(). This is so if `t` needs a
 * gradient, and also while operations of a checkpointed part are counted (Note [Early stop] in
 * early_stop.h). */
bool fsdp_is_recorded(const fsdp_scope *s, const fsdp_tensor *t);

/* The arguments of fsdp_record(). n_in, n_saved and n_out are the numbers of elements in use. An
 * optional input that the caller did not pass, such as a bias, is NULL in `in`. fsdp_record() takes
 * ownership of `host`, even if no node is recorded. */
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
    /* One of the leaves in `in`: during forward, the operation has already written a gradient to
     * the target of this leaf. NULL if there is no such leaf. The gradient is correct only if
     * backward later reaches the node. If it does not, backward fails. */
    fsdp_tensor *wrote;
    /* The operation reads leaves that are not its inputs, so it is recorded even if no input needs
     * a gradient. */
    bool reads_leaves;
    int64_t rows; /* see fsdp_op.reads_rows */
} fsdp_record_args;
/* Add a node to the tape, if the scope has one, and if an input needs a gradient or reads_leaves is
 * true. Every operation calls this after its kernel. No other function adds nodes. */
void fsdp_record(fsdp_scope *s, const fsdp_record_args *args);

/* --- scopes --- */

/* State shared by all scopes of one forward. */
typedef struct fsdp_run {
    fsdp_device *device;
    fsdp_tape *tape; /* NULL: no gradients */
    /* While a checkpointed part runs for the first time (Note [Recomputation] in checkpoint.h),
     * operations must not record nodes. So `tape` is NULL, and hidden_tape points to the tape. At
     * other times, hidden_tape is NULL. */
    fsdp_tape *hidden_tape;
    /* A checkpointed part runs first in forward and a second time in backward. During the first
     * run, hidden_leaves is the list of the leaves that operations of the part have read so far.
     * During the second run, expected_leaves is the list of the leaves that the first run has read
     * and the second run has not read yet. At other times, these pointers are NULL. */
    struct fsdp_leaf_list *hidden_leaves, *expected_leaves;
    bool recomputing;
    /* keeping: during the first run of a checkpointed part, the list to which its kept results are
     * added. recalling: during the second run, the list from which these results are taken. NULL:
     * none. */
    struct fsdp_kept *keeping, *recalling;
    /* Used for early stop (Note [Early stop] in early_stop.h). counting: the state of the
     * checkpointed part whose first run is in progress. stopping: the state of the part whose
     * second run is in progress. A pointer is NULL while no such run is in progress. */
    struct fsdp_early_stop *counting, *stopping;
    /* True after the second run of a checkpointed part has passed its stopping point. Operations
     * then compute no values, because backward reads nothing that they would compute. */
    bool without_values;
    fsdp_scope_options options;
    /* number of dropout calls so far; each call gets a key that depends on it */
    uint64_t rng_calls;
    /* Module buffers are stored as float32, but their values are rounded to this dtype. */
    fsdp_dtype buffer_dtype;
    float loss_factor; /* the head multiplies the sum of the label losses by this factor */
    fsdp_status status;
    char message[512];
    bool names_module; /* `message` begins with the path of the module that ran out of memory */
} fsdp_run;

struct fsdp_scope {
    fsdp_scope *parent; /* NULL: this is the root scope, which owns `run` */
    fsdp_run *run;
    fsdp_tensor **owned;
    size_t n_owned, cap_owned;
};

/* If the scope has failed because memory was missing (FSDP_ERR_NOMEM), prepend the module whose
 * forward failed to the message: "forward of decoder.block.3: ...". No effect if the message
 * already names a module. Each enclosing module calls this, the innermost first. */
void fsdp_scope_name_module(fsdp_scope *s, const char *path);
FSDP_MUST_CHECK fsdp_status fsdp_scope_open_child(fsdp_scope *parent, fsdp_scope **child);
/* Move the caller's reference to `t` into the scope. Returns t, or NULL if `t` is NULL or if the
 * scope fails. */
fsdp_tensor *fsdp_scope_own(fsdp_scope *s, fsdp_tensor *t);
/* Create an activation [shape], owned by s. Return NULL if the scope has already failed, or if this
 * call makes it fail. The tensor has no memory if values are not needed (Note [Early stop] in
 * early_stop.h). */
fsdp_tensor *fsdp_new(fsdp_scope *s, fsdp_dtype dtype, int ndim, const int64_t *shape);
/* Create a reference to `t`, owned by the scope `outer`. So `t` still exists after the scope that
 * made `t` is closed. */
fsdp_tensor *fsdp_scope_keep(fsdp_scope *outer, fsdp_tensor *t);
/* Return true if `status` is FSDP_OK. If not, record the failure in the scope and return false. */
bool fsdp_scope_check(fsdp_scope *s, fsdp_status status);
/* Like fsdp_check_inputs(), but a matrix may have any row stride if its rows are contiguous. */
bool fsdp_check_rows(fsdp_scope *s, const char *op, fsdp_tensor *const *t, int n);
/* Set *value to the only element of a gradient that has one element. If grad->is_one says that the
 * value is 1, the value is not read from the device, so the host does not wait for kernels. On
 * meta, the value is 1. Return false if the scope has failed. */
bool fsdp_grad_scalar(fsdp_scope *s, const fsdp_tensor *grad, double *value);
/* Let the scope fail with FSDP_ERR_INVALID. The message begins with `op`, the name of the
 * operation. */
FSDP_PRINTF(3, 4) void fsdp_scope_error(fsdp_scope *s, const char *op, const char *format, ...);
static inline bool fsdp_scope_ok(const fsdp_scope *s)
{
    return s->run->status == FSDP_OK;
}
/* Return true if backward may run for the operations in this scope. */
static inline bool fsdp_scope_has_backward(const fsdp_scope *s)
{
    return s->run->tape || s->run->hidden_tape;
}
/* Return the kernels. Return NULL if no values are to be computed: the scope has failed, the device
 * is meta, or the second run of a checkpointed part has passed its stopping point (Note [Early
 * stop] in early_stop.h). */
const fsdp_kernels *fsdp_scope_kernels(const fsdp_scope *s);
/* Operations call this before every matrix product [m, k] x [k, n]. On the meta device, add the
 * product's 2 m n k operations to fsdp_device.product_flops. On other devices, the call is used
 * only by tests (src/trace/pace_testing.h). No effect if a real run would compute no values at this
 * point (Note [Early stop] in early_stop.h). */
void fsdp_scope_count_product(const fsdp_scope *s, int64_t m, int64_t n, int64_t k);
static inline fsdp_kernel_context *fsdp_scope_context(const fsdp_scope *s)
{
    return s->run->device->context;
}
/* Check that each tensor in `t` [n] is on the scope's device, is contiguous and has data. On meta
 * no tensor has data, so check instead that the tensor is not resharded. A NULL pointer in `t` is
 * an error. So the caller must leave out optional inputs that were not passed. If a check fails,
 * return false, and let the scope fail with a message that names `op`. */
bool fsdp_check_inputs(fsdp_scope *s, const char *op, fsdp_tensor *const *t, int n);
/* Make a new key for random numbers from (seed, step, micro_batch, call number). */
uint64_t fsdp_scope_next_key(fsdp_scope *s);

/* --- regions --- */

typedef struct fsdp_region fsdp_region;

/* Hooks that fsdp, offload or a profiler attaches to modules. One object may be attached to
 * several modules, which are then one unit. Any function may be NULL. */
typedef struct fsdp_region_hooks {
    fsdp_status (*pre_forward)(void *self, fsdp_scope *s, fsdp_args *in);
    /* Cast tensors that the module's forward creates itself, in the same way as pre_forward casts
     * the module's inputs. */
    fsdp_status (*cast_inputs)(void *self, fsdp_scope *s, fsdp_args *in);
    fsdp_status (*post_forward)(void *self, fsdp_scope *s, fsdp_args *out);
    fsdp_status (*pre_backward)(void *self);
    fsdp_status (*post_backward)(void *self, bool last);
    /* Called at the end of the sweep, once for each hooks object on the tape, even if backward
     * reached no region with this object. If there are several objects, the order of the calls is
     * the order in which the objects' first regions are on the tape. */
    fsdp_status (*end_backward)(void *self);
    /* Called if a forward or backward has failed. Reshard the parameters. If has_backward is true
     * (the forward had a tape), also drop the gradients of the step. */
    void (*cancel)(void *self, bool has_backward);
    void *self;
    /* Used by backward: the number of marked regions (Note [Regions]) that have these hooks and
     * that the sweep has not passed yet. */
    uint32_t reached;
    bool ended; /* used by backward: end_backward has been called */
} fsdp_region_hooks;

struct fsdp_region {
    uint32_t first, end; /* nodes [first, end) of the tape */
    uint32_t parent;     /* index + 1 of the parent region; 0: none */
    fsdp_region_hooks *hooks[FSDP_MAX_HOOKS];
    int n_hooks;
    bool reached, entered, left;
    /* The module's class and name, for traces; borrowed; NULL: none. */
    const char *class_name, *name;
};

/* Open a region on the scope's tape, and return its index + 1. Without a tape, return 0. */
uint32_t fsdp_region_begin(fsdp_scope *s, fsdp_region_hooks *const *hooks, int n_hooks);
/* Close the region that fsdp_region_begin() returned. No effect on region 0. */
void fsdp_region_end(fsdp_scope *s, uint32_t region);
/* Set the class and name of the region's module, for traces of backward. No effect on region 0. */
void fsdp_region_set_name(fsdp_scope *s, uint32_t region, const char *class_name, const char *name);

struct fsdp_tape {
    /* The generation of the nodes that are on the tape now. Clearing the tape changes this value,
     * so a tensor with an older generation no longer has a node. */
    uint64_t generation;
    fsdp_node *nodes;
    size_t n_nodes, cap_nodes;
    fsdp_region *regions;
    size_t n_regions, cap_regions;
    uint32_t open_region; /* index + 1 of the innermost open region; 0: none */
};
/* Release saved[i] of a node of the tape. */
void fsdp_node_release_saved(const fsdp_tape *tape, fsdp_node *n, int i);
/* Release everything that a node of the tape holds. */
void fsdp_node_clear(const fsdp_tape *tape, fsdp_node *n);
/* Remove all nodes and regions, but do not call cancel() of any hooks. */
void fsdp_tape_clear(fsdp_tape *tape);
/* Call cancel() of every region's hooks, newest region first. */
void fsdp_tape_cancel(fsdp_tape *tape);
