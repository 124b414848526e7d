/* Inside of scopes, the tape and backward: what operations and module hooks are written against.
 *
 * Note [Regions]. A module call is an interval of the tape, a region, with hooks at both ends.
 * Backward marks what its roots reach, then sweeps from the newest node down. pre_backward fires
 * before a region's first node that has a gradient (outermost region first), post_backward when
 * the sweep has left it (innermost first), with `last` set when no reached region of the same
 * hooks object remains. That one rule settles modules used twice, two forwards before one
 * backward, unused outputs, non-root forwards and nested units. end_backward fires when all is
 * done, since no region need enclose the others. */
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

/* Where the gradients of a leaf's rows go, some of them: a table. */
typedef struct fsdp_grad_rows {
    fsdp_tensor *table; /* [rows, D] float32, borrowed; it is there to be added to */
    int32_t *index;     /* [n]: the row of the table for each of the leaf's rows that was asked for;
                           owned by the caller, for fsdp_free() */
    int32_t unused_row; /* the index of what gives no gradient */
} fsdp_grad_rows;

/* Where a leaf's gradient goes. */
typedef struct fsdp_grad_sink fsdp_grad_sink;
struct fsdp_grad_sink {
    bool requires_grad;
    /* Since the owner of the target looked last, tapes have recorded an operation that reads rows
     * of the leaf alone, of so many rows; one that reads all of it. Or checkpointed parts have run
     * one, which will be recorded in their second run. */
    bool looked_up, read_whole;
    int64_t lookups;
    /* Nodes that read the leaf and have not run backward, with those that the second run of a
     * checkpointed part will record. While there are none, nothing that is known of adds to the
     * gradient. */
    int n_readers;
    /* The tensor to write the gradient to and whether it adds: *beta 0 on the first contribution,
     * 1 later. FSDP points it into the gradient buffer. */
    fsdp_status (*target)(fsdp_grad_sink *self, fsdp_tensor *leaf, fsdp_tensor **dst, float *beta);
    /* The same for rows ids [n] alone, of which those of padding_idx get none; out->table NULL:
     * `target` it is. NULL: always. */
    fsdp_status (*rows)(fsdp_grad_sink *self, const int32_t *ids, int64_t n, int32_t padding_idx,
                        fsdp_grad_rows *out);
    fsdp_tensor *grad;  /* what the default target fills; owned */
    uint64_t n_dropped; /* times that what another target held was dropped, and no longer adds up */
};
/* The default target: sink->grad, float32, made on first use. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_sink_default_target(fsdp_grad_sink *self, fsdp_tensor *leaf,
                                                          fsdp_tensor **dst, float *beta);
FSDP_MUST_CHECK fsdp_status fsdp_grad_target(fsdp_tensor *leaf, fsdp_tensor **dst, float *beta);
/* For a node that is going to be recorded: it is a reader of the leaf all the same. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_target_ahead(const struct fsdp_scope *s, fsdp_tensor *leaf,
                                                   fsdp_tensor **dst, float *beta);
/* `grad` is like the default target's tensor. True if the leaf has that target, and no gradient
 * yet: it takes `grad` as it is, if nobody else holds that. */
bool fsdp_grad_take(fsdp_tensor *leaf, fsdp_tensor *grad);

/* Leaves that nodes will read which are not on a tape yet, each as often as one will. */
typedef struct fsdp_leaf_list {
    fsdp_tensor **items;
    size_t n, cap;
} fsdp_leaf_list;
FSDP_MUST_CHECK fsdp_status fsdp_leaf_list_add(fsdp_leaf_list *list, fsdp_tensor *leaf);
/* What is left in it will not come. */
void fsdp_leaf_list_clear(fsdp_leaf_list *list);

typedef struct fsdp_node fsdp_node;
typedef struct fsdp_derived fsdp_derived;

/* What kind of work it is: for time by category, and for what recomputation keeps. */
typedef enum fsdp_op_kind {
    FSDP_OP_OTHER,
    FSDP_OP_MATMUL,
    FSDP_OP_ATTENTION
} fsdp_op_kind;

typedef struct fsdp_op {
    const char *name;
    fsdp_op_kind kind;
    /* s has no tape and owns what is made in it; grad_out[i] is NULL if output i got no gradient.
     * Sets grad_in[i] (owned by s) for each needed input i that is not written to its target. */
    void (*backward)(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                     fsdp_tensor **grad_in);
    /* The part of backward that reads saved[0], which no other part does. It comes first, and
     * saved[0] is let go of before `backward`, whose results may take its memory. NULL: there is no
     * such part. */
    void (*backward_first)(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                           fsdp_tensor **grad_in);
    /* grad_in[i] comes with what other readers of input i have given so far (owned by s; NULL:
     * nothing), and is to be that and what this node adds, in its own order. */
    bool continues;
    void (*host_destroy)(void *host); /* of fsdp_record_args.host; NULL: it is fsdp_free'd */
    bool has_gradients;               /* its forward computes them, so backward needs that run */
    bool reads_rows; /* of its leaves, fsdp_record_args.rows of them, and no more */
    /* Compute the only result of a recorded node again, into `result`, which has its shape and
     * dtype: Note [Derived results] in derived.h. The device has kernels. NULL: it is kept. */
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
    uint32_t need;   /* bit i: input i wants a gradient */
    int n_in, n_out, n_saved;
    struct {
        uint32_t node; /* index + 1 of the node that made it; 0: none */
        uint16_t output;
        fsdp_tensor *leaf; /* retained, if it is a leaf that wants a gradient */
    } in[FSDP_MAX_IN];
    fsdp_tensor *saved[FSDP_MAX_SAVED]; /* released right after this node's backward, or within */
    uint32_t from[FSDP_MAX_SAVED]; /* index + 1 of the node that makes saved[i] again, which is NULL
                                      until backward wants it; 0: it is kept */
    fsdp_derived *derived;         /* of its own result; NULL: it makes none again */
    const fsdp_tensor *wrote;      /* fsdp_record_args.wrote: one of in[].leaf */
    uint64_t n_dropped;            /* of its sink, when it was recorded */
    void *host;                    /* what the operation keeps in host memory */
    _Alignas(16) unsigned char options[FSDP_OPTION_BYTES];
};

/* Does the scope have a tape, and does `t` need a gradient on it? */
bool fsdp_needs_grad(const fsdp_scope *s, const fsdp_tensor *t);
/* The same for an operation that is not recorded where it is false: what runs with the tape hidden
 * is counted (Note [Early stop] in early_stop.h). */
bool fsdp_is_recorded(const fsdp_scope *s, const fsdp_tensor *t);

/* Everything an operation tells the tape. Arrays end at the given counts; NULL inputs are allowed
 * (an absent bias) and keep their index. host is owned by the tape from here on, also when no node
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
    /* Of `in`: a leaf to whose target forward has added, which is right only if a gradient comes to
     * the node. NULL: there is none. */
    fsdp_tensor *wrote;
    bool reads_leaves; /* others than its inputs: it is recorded though no input needs a gradient */
    int64_t rows;      /* see fsdp_op.reads_rows */
} fsdp_record_args;
/* Called by every operation after its kernel: the one choke point for taping. No effect without a
 * tape or where no input needs a gradient. */
void fsdp_record(fsdp_scope *s, const fsdp_record_args *args);

/* --- scopes --- */

/* What all scopes of one forward share. */
typedef struct fsdp_run {
    fsdp_device *device;
    fsdp_tape *tape; /* NULL: no gradients */
    /* Note [Recomputation] in checkpoint.h: the tape while it is hidden, and whether this is the
     * second time. */
    fsdp_tape *hidden_tape;
    /* What is read while it is hidden, and of that what the second run has not read yet. */
    struct fsdp_leaf_list *hidden_leaves, *expected_leaves;
    bool recomputing;
    struct fsdp_kept *keeping, *recalling; /* see checkpoint.h; NULL: nothing */
    /* Note [Early stop] in early_stop.h: of a checkpointed part in its first and in its second run;
     * and whether that is past what backward reads. */
    struct fsdp_early_stop *counting, *stopping;
    bool without_values;
    fsdp_scope_options options;
    uint64_t rng_calls;      /* dropout calls so far: part of the key */
    fsdp_dtype buffer_dtype; /* values of buffers are rounded to it; their memory is float32 */
    float loss_factor;       /* What the loss under way is multiplied by, for the head. */
    fsdp_status status;
    char message[512];
} fsdp_run;

struct fsdp_scope {
    fsdp_scope *parent; /* NULL: the root, which owns run */
    fsdp_run *run;
    fsdp_tensor **owned;
    size_t n_owned, cap_owned;
};

FSDP_MUST_CHECK fsdp_status fsdp_scope_open_child(fsdp_scope *parent, fsdp_scope **child);
/* Take a reference over; NULL (with the scope failed) is passed on. */
fsdp_tensor *fsdp_own(fsdp_scope *s, fsdp_tensor *t);
/* A fresh activation [shape] owned by s; NULL if the scope has failed or now fails. It has no
 * memory where values are not needed (Note [Early stop]). */
fsdp_tensor *fsdp_new(fsdp_scope *s, fsdp_dtype dtype, int ndim, const int64_t *shape);
/* Move a result to an outer scope. */
fsdp_tensor *fsdp_keep(fsdp_scope *outer, fsdp_tensor *t);
/* Put `call`'s failure into the scope; true if it was FSDP_OK. */
bool fsdp_scope_check(fsdp_scope *s, fsdp_status status);
/* A float32 scalar on a device with kernels. */
static inline void fsdp_set_scalar(const fsdp_tensor *t, float value)
{
    fsdp_device_from_host(t->storage->device, fsdp_tensor_ptr(t), &value, sizeof value);
}
/* Fail with a message that opens with the operation's name. */
FSDP_PRINTF(3, 4) void fsdp_scope_error(fsdp_scope *s, const char *op, const char *format, ...);
static inline bool fsdp_scope_ok(const fsdp_scope *s)
{
    return s->run->status == FSDP_OK;
}
/* Will there be a backward of what runs in it? */
static inline bool fsdp_scope_has_backward(const fsdp_scope *s)
{
    return s->run->tape || s->run->hidden_tape;
}
/* Kernels, or NULL when the scope has failed, the device is meta or values are not needed (Note
 * [Early stop]): then nothing is computed. */
const fsdp_kernels *fsdp_scope_kernels(const fsdp_scope *s);
static inline fsdp_kernel_context *fsdp_scope_context(const fsdp_scope *s)
{
    return s->run->device->context;
}
/* Are all of t[0, n) there (no earlier failure), on one device, contiguous, with data (on meta: not
 * resharded)? Else the scope fails naming `op`. NULL entries are errors: leave absent ones out. */
bool fsdp_check_inputs(fsdp_scope *s, const char *op, fsdp_tensor *const *t, int n);
/* A fresh key for random numbers: (seed, step, leaf, call number). */
uint64_t fsdp_scope_next_key(fsdp_scope *s);

/* --- regions --- */

typedef struct fsdp_region fsdp_region;

/* fsdp, offload, a profiler: one object may be hooked to several modules (one unit). Any slot may
 * be NULL. */
typedef struct fsdp_region_hooks {
    fsdp_status (*pre_forward)(void *self, fsdp_scope *s, fsdp_args *in);
    /* What pre_forward does to inputs, for those that the forward makes instead of getting them. */
    fsdp_status (*cast_inputs)(void *self, fsdp_scope *s, fsdp_args *in);
    fsdp_status (*post_forward)(void *self, fsdp_scope *s, fsdp_args *out);
    fsdp_status (*pre_backward)(void *self);
    fsdp_status (*post_backward)(void *self, bool last);
    /* The sweep is over. Once for each object on the tape, reached or not, in the tape's order. */
    fsdp_status (*end_backward)(void *self);
    /* A forward or backward failed: drop unsharded data; and the step's gradients with it, unless
     * it was a forward that no backward follows. */
    void (*cancel)(void *self, bool has_backward);
    void *self;
    uint32_t reached; /* the engine's: regions of this object that backward has still to leave */
    bool ended;       /* the engine's: end_backward has been called */
} fsdp_region_hooks;

struct fsdp_region {
    uint32_t first, end; /* nodes [first, end) of the tape */
    uint32_t parent;     /* region + 1; 0: none */
    fsdp_region_hooks *hooks[FSDP_MAX_HOOKS];
    int n_hooks;
    bool reached, entered, left;
    const char *class_name, *name; /* the module's, borrowed: for traces; NULL: none */
};

/* Open and close a region on the scope's tape; without a tape begin gives 0 and end does nothing.
 * The number is region + 1. */
uint32_t fsdp_region_begin(fsdp_scope *s, fsdp_region_hooks *const *hooks, int n_hooks);
void fsdp_region_end(fsdp_scope *s, uint32_t region);
/* Call it by a module's names in traces of backward; no effect on region 0. */
void fsdp_region_set_name(fsdp_scope *s, uint32_t region, const char *class_name, const char *name);

struct fsdp_tape {
    uint64_t generation; /* of the nodes now on it: stale tensors carry an older one */
    fsdp_node *nodes;
    size_t n_nodes, cap_nodes;
    fsdp_region *regions;
    size_t n_regions, cap_regions;
    uint32_t open_region; /* region + 1 */
};
/* Release what node `n` of the tape saved: saved[i], or all that it has. */
void fsdp_node_release_saved(const fsdp_tape *tape, fsdp_node *n, int i);
void fsdp_node_clear(const fsdp_tape *tape, fsdp_node *n);
/* Empty the tape without cancelling anything. */
void fsdp_tape_clear(fsdp_tape *tape);
/* Call cancel of every region's hooks, newest first. */
void fsdp_tape_cancel(fsdp_tape *tape);
