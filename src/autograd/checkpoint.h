/* Activation checkpointing (Chen et al. 2016, arXiv 1604.06174; torch.utils.checkpoint): a part of
 * a forward keeps only its inputs, and runs a second time in backward.
 *
 * Note [Recomputation]. In forward, the part runs while the tape is hidden, and then a single node
 * is recorded for it. The node's backward runs the part again on an inner tape. This run begins
 * with the same options and the same number of dropout calls so far, so that every bit is the same.
 * Then the backward of the inner tape runs. Each input that needs a gradient is a leaf of the inner
 * tape, but the part reads it through a node. The gradient of this node is not zero at first: it is
 * the sum that later readers on the outer tape have given the input. So all gradients are added one
 * by one in the input's dtype, in the same order as without checkpointing. Regions of the part
 * exist only on the inner tape. The part's results are on the inner tape, but without values,
 * because nothing reads them. The hooks of the part's modules recognise the second run by
 * fsdp_run.recomputing. The backward of the outer tape calls their end_backward.
 *
 * With selection by operation (torchtitan's "op"), the first run also keeps the results of
 * attention and of every second product, in the order in which they are computed. The second run
 * reuses them in that order and computes the rest. Keeping all products would need more memory than
 * no checkpointing at all: a plain forward does not keep a product that is only added to something
 * (Note [Derived results] in derived.h). Operations of these two kinds call fsdp_selective_reuse()
 * before their kernel and fsdp_selective_save() after it. A part may contain another checkpointed
 * call, which then runs three times. Its second run belongs to the second run of the enclosing
 * part. It reuses the results that the enclosing part has kept, and keeps results of its own for
 * its third run. */
#pragma once
#include "src/autograd/autograd.h"
#include "src/autograd/stash.h"

/* A part of a forward. It reads its inputs from `in` and sets `out` to results that s owns. It must
 * give the same results each time it runs. */
typedef void fsdp_segment_fn(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out);

enum {
    FSDP_SEGMENT_SELF_BYTES = 32
};

/* Zero means default. */
typedef struct fsdp_checkpoint_options {
    bool keeps_results; /* keep results of attention and every second product */
    bool no_early_stop; /* compute the whole second run (Note [Early stop] in early_stop.h) */
    fsdp_activation_offload *offload; /* writes tensors to a file; NULL: they stay in memory */
} fsdp_checkpoint_options;

/* Run `run` now, and again in backward. Without a tape, run it only now.
 * @param self    [self_bytes] copied, at most FSDP_SEGMENT_SELF_BYTES
 * @param options NULL: all defaults */
void fsdp_checkpoint(fsdp_scope *s, const fsdp_checkpoint_options *options, fsdp_segment_fn *run,
                     const void *self, size_t self_bytes, const fsdp_args *in, fsdp_args *out);

enum {
    FSDP_MAX_RECALLED = 2 /* largest number of results of an operation */
};

/* In the second run: get the `n` results that the first run kept for `op`, owned by s, and return
 * true. In other runs, and for results that were not kept, return false, and the caller computes
 * the results. The scope fails if the two runs do not match. */
bool fsdp_selective_reuse(fsdp_scope *s, const fsdp_op *op, fsdp_tensor **out, int n);
/* In the first run: keep the results `out` [n] of `op`. Their elements must not change afterwards.
 * Only every second product is kept. No effect in other runs. */
void fsdp_selective_save(fsdp_scope *s, const fsdp_op *op, fsdp_tensor *const *out, int n);

/* Run the backward of an inner tape as a part of the backward of `outer`. This is like
 * fsdp_backward(), but end_backward of the inner tape's hooks is called at the end of the outer
 * backward, and n may be 0. If `outer` is NULL, do the same as fsdp_backward(). */
FSDP_MUST_CHECK fsdp_status fsdp_backward_inside(fsdp_tape *tape, fsdp_tensor *const *roots,
                                                 fsdp_tensor *const *grads, int n,
                                                 fsdp_tape *outer);
