/* Activation checkpointing (Chen et al. 2016, arXiv 1604.06174; torch.utils.checkpoint): a part of
 * a forward that keeps its inputs alone, and runs a second time in backward.
 *
 * Note [Recomputation]. In forward the part runs with the tape hidden and leaves a single node. Its
 * backward runs the part again on a tape of its own, with the same options and the same count of
 * random numbers, so that every bit is as it was, and then that tape backward. The inputs enter the
 * inner tape through nodes, not as leaves, and with the gradients that later readers gave: all are
 * then added one by one in the input's dtype, in the order of the outer tape. Regions of the part
 * exist on the inner tape only; its results are on it without their values, which nobody reads; the
 * hooks of its modules learn of the second forward by fsdp_run.recomputing, and end_backward is
 * left to the outer tape.
 *
 * Selective by operation (torchtitan's "op"), the first run also keeps the results of attention and
 * of every second product, in the order of computing; the second run takes them from there one by
 * one and computes the rest. All products would be more than a forward without checkpointing keeps
 * (Note [Derived results] in derived.h), which needs no results that are only added. Such
 * operations call fsdp_recall() before their kernel and fsdp_remember() after it. A call within the
 * call reads the same list when it is run the second time, and keeps a list of its own for the
 * third. */
#pragma once
#include "src/autograd/autograd.h"
#include "src/autograd/stash.h"

/* A part of a forward: reads its inputs from `in` and puts results that s owns into `out`. It must
 * give the same results each time it runs. */
typedef void fsdp_segment_fn(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out);

enum {
    FSDP_SEGMENT_SELF_BYTES = 32
};

/* Zero means default. */
typedef struct fsdp_checkpoint_options {
    bool keeps_results;               /* of attention and every second product */
    bool no_early_stop;               /* Note [Early stop] in early_stop.h */
    fsdp_activation_offload *offload; /* where to keep what is kept; NULL: in memory */
} fsdp_checkpoint_options;

/* Run `run` now and again in backward; without a tape, now alone.
 * @param self [self_bytes] copied, at most FSDP_SEGMENT_SELF_BYTES
 * @param options NULL: all defaults */
void fsdp_checkpoint(fsdp_scope *s, const fsdp_checkpoint_options *options, fsdp_segment_fn *run,
                     const void *self, size_t self_bytes, const fsdp_args *in, fsdp_args *out);

enum {
    FSDP_MAX_RECALLED = 2 /* results of an operation */
};

/* In the second run: the results [n] that `op` remembered in the first, owned by s, and true. Else,
 * and for the products that are not kept, false: compute them. The scope fails if the runs do not
 * match. */
bool fsdp_recall(fsdp_scope *s, const fsdp_op *op, fsdp_tensor **out, int n);
/* In the first run: keep results [n] of `op`, which nobody changes any more; not of every second
 * product. */
void fsdp_remember(fsdp_scope *s, const fsdp_op *op, fsdp_tensor *const *out, int n);

/* fsdp_backward() of an inner tape, in the course of `outer`'s: end_backward of the hooks that it
 * met is called at the end of outer's. With outer, n may be 0. outer NULL: it is fsdp_backward().
 */
FSDP_MUST_CHECK fsdp_status fsdp_backward_inside(fsdp_tape *tape, fsdp_tensor *const *roots,
                                                 fsdp_tensor *const *grads, int n,
                                                 fsdp_tape *outer);
