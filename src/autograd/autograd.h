/* Internals of scopes, the tape and backward, which operations and module hooks use.
 *
 * Note [Regions]. A module call is an interval of the tape, a region, with hooks at both ends.
 * Backward marks what its roots reach and then sweeps from the newest node down. pre_backward is
 * called before the first node of a region that has a gradient (outermost region first).
 * post_backward is called when the sweep has left the region (innermost first), with `last` set if
 * no reached region of the same hooks object remains. This one rule covers modules that are used
 * twice, two forwards before one backward, unused outputs, forwards of modules other than the root,
 * and nested units. end_backward is called at the very end, because no region needs to enclose the
 * others. */
#pragma once
#include <fsdp/autograd.h>

#include "src/trace/trace.h"
#include "src/tensor/tensor.h"

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
    int32_t unused_row; /* the index of rows that get no gradient */
} fsdp_grad_rows;

/* The destination of a leaf's gradient. */
typedef struct fsdp_grad_sink fsdp_grad_sink;
struct fsdp_grad_sink {
    bool requires_grad;
    /* What tapes have recorded since the owner of the target last looked: an operation that reads
     * only some rows of the leaf (`lookups` rows in total), and one that reads all of it. This
     * includes operations of checkpointed parts, which are recorded in their second run. */
    bool looked_up, read_whole;
    int64_t lookups;
    /* Number of nodes that read the leaf and have not run backward, including those that the second
     * run of a checkpointed part will record. If it is 0, nothing known will add to the
     * gradient. */
    int n_readers;
    /* Get the tensor to write the gradient to, and whether to add: *beta is 0 for the first
     * contribution and 1 for later ones. FSDP returns a place in the unit's gradient buffer. */
    fsdp_status (*target)(fsdp_grad_sink *self, fsdp_tensor *leaf, fsdp_tensor **dst, float *beta);
    /* The same for rows ids [n] only; rows of padding_idx get no gradient. If out->table is NULL,
     * use `target`. A NULL function means that `target` is always used. */
    fsdp_status (*rows)(fsdp_grad_sink *self, const int32_t *ids, int64_t n, int32_t padding_idx,
                        fsdp_grad_rows *out);
    fsdp_tensor *grad;  /* the tensor of the default target; owned */
    uint64_t n_dropped; /* number of times that another target dropped its gradient, which is
                           then incomplete */
};
/* The default target: sink->grad, float32, created on first use. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_sink_default_target(fsdp_grad_sink *self, fsdp_tensor *leaf,
                                                          fsdp_tensor **dst, float *beta);
FSDP_MUST_CHECK fsdp_status fsdp_grad_target(fsdp_tensor *leaf, fsdp_tensor **dst, float *beta);
/* The same for a node that will be recorded later. It already counts as a reader of the leaf. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_target_ahead(const struct fsdp_scope *s, fsdp_tensor *leaf,
                                                   fsdp_tensor **dst, float *beta);
/* `grad` has the form of the default target's tensor. Returns true if the leaf has that target and
 * no gradient yet, and takes `grad` as it is; `grad` must not be shared. */
bool fsdp_grad_take(fsdp_tensor *leaf, fsdp_tensor *grad);

/* Leaves that future nodes will read. A leaf is listed once for each of these nodes. */
typedef struct fsdp_leaf_list {
    fsdp_tensor **items;
    size_t n, cap;
} fsdp_leaf_list;
FSDP_MUST_CHECK fsdp_status fsdp_leaf_list_add(fsdp_leaf_list *list, fsdp_tensor *leaf);
/* Drops the remaining leaves: no node will read them. */
void fsdp_leaf_list_clear(fsdp_leaf_list *list);

typedef struct fsdp_node fsdp_node;
typedef struct fsdp_derived fsdp_derived;

/* The kind of work, for time by category and for the results that recomputation keeps. */
typedef enum fsdp_op_kind {
    FSDP_OP_OTHER,
    FSDP_OP_MATMUL,
    FSDP_OP_ATTENTION
} fsdp_op_kind;

typedef struct fsdp_op {
    const char *name;
    fsdp_op_kind kind;
    /* s has no tape and owns the tensors created in it. grad_out[i] is NULL if output i got no
     * gradient. Sets grad_in[i] (owned by s) for each needed input i whose gradient is not written
     * to its target. */
    void (*backward)(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                     fsdp_tensor **grad_in);
    /* The part of backward that reads saved[0]; no other part reads it. It runs first, and saved[0]
     * is released before `backward`, whose results may reuse its memory. NULL: no such part. */
    void (*backward_first)(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                           fsdp_tensor **grad_in);
    /* grad_in[i] initially is the sum of the gradients that other readers of input i have given so
     * far (owned by s; NULL: none). Backward replaces it by that sum plus its own contributions, in
     * its own order. */
    bool continues;
    void (*host_destroy)(void *host); /* destroys fsdp_record_args.host; NULL: fsdp_free() */
    bool has_gradients;               /* forward computes the gradients, so backward needs that
                                         run */
    bool reads_rows;                  /* reads only fsdp_record_args.rows rows of its leaves */
    /* Compute the only result of a recorded node again, into `result`, which has its shape and
     * dtype: Note [Derived results] in derived.h. Called only on devices with kernels. NULL: the
     * result is kept. */
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
        uint32_t node; /* index + 1 of the node that made it; 0: none */
        uint16_t output;
        fsdp_tensor *leaf; /* retained; the input, if it is a leaf that needs a gradient */
    } in[FSDP_MAX_IN];
    fsdp_tensor *saved[FSDP_MAX_SAVED]; /* released during or directly after this node's backward */
    uint32_t from[FSDP_MAX_SAVED]; /* index + 1 of the node that can recompute saved[i], which is
                                      NULL until backward needs it; 0: saved[i] is kept */
    fsdp_derived *derived;         /* for its own result; NULL: the result cannot be recomputed */
    const fsdp_tensor *wrote;      /* fsdp_record_args.wrote: one of in[].leaf */
    uint64_t n_dropped;            /* value in the leaf's sink when the node was recorded */
    void *host;                    /* host memory that the operation keeps */
    _Alignas(16) unsigned char options[FSDP_OPTION_BYTES];
};

/* Does the scope have a tape, and does `t` need a gradient on it? */
bool fsdp_needs_grad(const fsdp_scope *s, const fsdp_tensor *t);
/* The same, for an operation that is not recorded if this is false. True also while the tape is
 * hidden, because those operations are counted (Note [Early stop] in early_stop.h). */
bool fsdp_is_recorded(const fsdp_scope *s, const fsdp_tensor *t);

/* The arguments of fsdp_record(). Arrays end at the given counts. NULL inputs are allowed (an
 * absent bias) and keep their index. The tape owns host from here on, even if no node is
 * recorded. */
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
    /* One of `in`: a leaf to whose target forward has added, which is correct only if the node gets
     * a gradient. NULL: none. */
    fsdp_tensor *wrote;
    bool reads_leaves; /* it reads leaves other than its inputs, so it is recorded even if no
                          input needs a gradient */
    int64_t rows;      /* see fsdp_op.reads_rows */
} fsdp_record_args;
/* Every operation calls this after its kernel; it is the only place that adds nodes to the tape. No
 * effect without a tape or if no input needs a gradient. */
void fsdp_record(fsdp_scope *s, const fsdp_record_args *args);

/* --- scopes --- */

/* State shared by all scopes of one forward. */
typedef struct fsdp_run {
    fsdp_device *device;
    fsdp_tape *tape; /* NULL: no gradients */
    /* Note [Recomputation] in checkpoint.h: the tape while it is hidden, and whether this is the
     * second run. */
    fsdp_tape *hidden_tape;
    /* Leaves read while the tape is hidden, and those of them that the second run has not read
     * yet. */
    struct fsdp_leaf_list *hidden_leaves, *expected_leaves;
    bool recomputing;
    struct fsdp_kept *keeping, *recalling; /* see checkpoint.h; NULL: nothing */
    /* Note [Early stop] in early_stop.h: the state of a checkpointed part in its first and in its
     * second run, and whether the second run is past everything that backward reads. */
    struct fsdp_early_stop *counting, *stopping;
    bool without_values;
    fsdp_scope_options options;
    uint64_t rng_calls;      /* number of dropout calls so far, a part of the key */
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
/* Take ownership of a reference. NULL (if the scope has failed) is returned as it is. */
fsdp_tensor *fsdp_own(fsdp_scope *s, fsdp_tensor *t);
/* A new activation [shape], owned by s; NULL if the scope has failed or fails now. It has no memory
 * if values are not needed (Note [Early stop] in early_stop.h). */
fsdp_tensor *fsdp_new(fsdp_scope *s, fsdp_dtype dtype, int ndim, const int64_t *shape);
/* Move a result to an outer scope. */
fsdp_tensor *fsdp_keep(fsdp_scope *outer, fsdp_tensor *t);
/* Record a failure in the scope; returns true if `status` is FSDP_OK. */
bool fsdp_scope_check(fsdp_scope *s, fsdp_status status);
/* Set a float32 scalar on a device with kernels. */
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
/* Will a backward follow the operations in this scope? */
static inline bool fsdp_scope_has_backward(const fsdp_scope *s)
{
    return s->run->tape || s->run->hidden_tape;
}
/* The kernels, or NULL if nothing must be computed: the scope has failed, the device is meta, or
 * values are not needed (Note [Early stop] in early_stop.h). */
const fsdp_kernels *fsdp_scope_kernels(const fsdp_scope *s);
static inline fsdp_kernel_context *fsdp_scope_context(const fsdp_scope *s)
{
    return s->run->device->context;
}
/* Are all t[0, n) non-NULL (no earlier failure), on one device, contiguous, and with data (on meta:
 * not resharded)? Otherwise the scope fails with a message that names `op`. Leave absent inputs
 * out. */
bool fsdp_check_inputs(fsdp_scope *s, const char *op, fsdp_tensor *const *t, int n);
/* A new key for random numbers: (seed, step, leaf, call number). */
uint64_t fsdp_scope_next_key(fsdp_scope *s);

/* --- regions --- */

typedef struct fsdp_region fsdp_region;

/* Hooks of fsdp, offload or a profiler. One object may be attached to several modules (one unit).
 * Any function may be NULL. */
typedef struct fsdp_region_hooks {
    fsdp_status (*pre_forward)(void *self, fsdp_scope *s, fsdp_args *in);
    /* Cast tensors that the forward creates itself, as pre_forward casts inputs. */
    fsdp_status (*cast_inputs)(void *self, fsdp_scope *s, fsdp_args *in);
    fsdp_status (*post_forward)(void *self, fsdp_scope *s, fsdp_args *out);
    fsdp_status (*pre_backward)(void *self);
    fsdp_status (*post_backward)(void *self, bool last);
    /* The sweep has ended. Called once for each object on the tape, reached or not, in the tape's
     * order. */
    fsdp_status (*end_backward)(void *self);
    /* A forward or backward failed: drop unsharded data, and also the step's gradients unless it
     * was a forward without a backward. */
    void (*cancel)(void *self, bool has_backward);
    void *self;
    uint32_t reached; /* used by backward: regions of this object that it has not left yet */
    bool ended;       /* used by backward: end_backward has been called */
} fsdp_region_hooks;

struct fsdp_region {
    uint32_t first, end; /* nodes [first, end) of the tape */
    uint32_t parent;     /* region + 1; 0: none */
    fsdp_region_hooks *hooks[FSDP_MAX_HOOKS];
    int n_hooks;
    bool reached, entered, left;
    const char *class_name, *name; /* the module's class and name for traces, borrowed; NULL:
                                      none */
};

/* Open and close a region on the scope's tape. Returns region + 1. Without a tape, begin returns 0
 * and end does nothing. */
uint32_t fsdp_region_begin(fsdp_scope *s, fsdp_region_hooks *const *hooks, int n_hooks);
void fsdp_region_end(fsdp_scope *s, uint32_t region);
/* Set the module names for traces of backward. No effect on region 0. */
void fsdp_region_set_name(fsdp_scope *s, uint32_t region, const char *class_name, const char *name);

struct fsdp_tape {
    uint64_t generation; /* generation of the nodes now on the tape; tensors of earlier nodes
                            have an older one */
    fsdp_node *nodes;
    size_t n_nodes, cap_nodes;
    fsdp_region *regions;
    size_t n_regions, cap_regions;
    uint32_t open_region; /* region + 1 */
};
/* Release what node `n` of the tape saved: saved[i], or everything. */
void fsdp_node_release_saved(const fsdp_tape *tape, fsdp_node *n, int i);
void fsdp_node_clear(const fsdp_tape *tape, fsdp_node *n);
/* Empty the tape without cancelling anything. */
void fsdp_tape_clear(fsdp_tape *tape);
/* Call cancel of every region's hooks, newest first. */
void fsdp_tape_cancel(fsdp_tape *tape);
