/* Activation checkpointing (Chen et al. 2016, arXiv 1604.06174; torch.utils.checkpoint): forward
 * keeps only the inputs of a part, not its intermediate results, and backward runs the part a
 * second time.
 *
 * Note [Recomputation]. In forward, the part runs while the tape is hidden. Then a single node is
 * recorded for the whole part. In backward, this node runs the part again, on an inner tape, and
 * then runs the backward of the inner tape. The second run begins with the same options and the
 * same count of earlier dropout calls as the first run, so it computes the same bits.
 *
 * Each input that needs a gradient is a leaf of the inner tape. The part reads the leaf through a
 * node. When the inner backward begins, this node already has a gradient: the sum of the gradients
 * that later readers of the input, on the outer tape, have given it. So all gradients are added one
 * by one in the input's dtype, in the same order as without checkpointing.
 *
 * The regions of the part's modules exist only on the inner tape. The hooks of these modules find
 * in fsdp_run.recomputing that the run is the second one. The backward of the outer tape calls
 * their end_backward functions. After the second run, the part's results are on the inner tape, but
 * without values, because nothing reads the values.
 *
 * With selection by operation (keeps_results; torchtitan's "op"), the first run also keeps the
 * results of attention and of every second product, in the order in which they are computed. The
 * second run reuses them in that order and computes the rest. Keeping all products would need more
 * memory than no checkpointing at all. The reason is that without checkpointing, a product that is
 * only added to something is not kept (Note [Derived results] in derived.h). Attention and products
 * call fsdp_selective_reuse() before their kernel and fsdp_selective_save() after it.
 *
 * A part may contain another checkpointed call. This inner call runs three times. The first time is
 * in the first run of the enclosing part, where the inner call is not checkpointed. The second time
 * is in the second run of the enclosing part. There, the inner call reuses the results that the
 * enclosing part has kept, and keeps results of its own. The third time is in the backward of the
 * inner call, which reuses the inner call's own results. */
#pragma once
#include "src/autograd/autograd.h"
#include "src/autograd/stash.h"

/* The function that runs a part of a forward. It reads its inputs from `in` and sets `out` to
 * results that s owns. It must give the same results each time it runs. */
typedef void fsdp_segment_fn(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out);

enum {
    FSDP_SEGMENT_SELF_BYTES = 32
};

/* Zero means default. */
typedef struct fsdp_checkpoint_options {
    bool keeps_results; /* keep the results of attention and of every second product */
    bool no_early_stop; /* compute the whole second run (Note [Early stop] in early_stop.h) */
    fsdp_activation_offload *offload; /* writes tensors to a file; NULL: they stay in memory */
} fsdp_checkpoint_options;

/* Call run(s, self, in, out) now, and again in backward. Without a tape, call it only now.
 * @param self    [self_bytes] copied, at most FSDP_SEGMENT_SELF_BYTES
 * @param options NULL: all defaults */
void fsdp_checkpoint(fsdp_scope *s, const fsdp_checkpoint_options *options, fsdp_segment_fn *run,
                     const void *self, size_t self_bytes, const fsdp_args *in, fsdp_args *out);

enum {
    FSDP_MAX_RECALLED = 2 /* largest number of results of an operation */
};

/* If a checkpointed part runs for the second time and the first run has kept the `n` results of
 * `op`, set `out` to the results, owned by s, and return true. Otherwise return false, and the
 * caller computes the results. The scope fails if the two runs do not match. */
bool fsdp_selective_reuse(fsdp_scope *s, const fsdp_op *op, fsdp_tensor **out, int n);
/* If a checkpointed part runs for the first time, keep the results `out` [n] of `op`. If `op` is a
 * matrix product, its results are kept only if it is the first, third, fifth, ... product of the
 * part. The elements of kept results must not change afterwards. In other runs, this function has
 * no effect. */
void fsdp_selective_save(fsdp_scope *s, const fsdp_op *op, fsdp_tensor *const *out, int n);

/* Run the backward of `tape`, the inner tape of a checkpointed part, during the backward of the
 * tape `outer`. There are two differences from fsdp_backward(). First, end_backward() of the inner
 * tape's hooks is not called at the end of this function, but at the end of the backward of
 * `outer`. Second, n may be 0. If `outer` is NULL, this function is the same as fsdp_backward(). */
FSDP_MUST_CHECK fsdp_status fsdp_backward_inside(fsdp_tape *tape, fsdp_tensor *const *roots,
                                                 fsdp_tensor *const *grads, int n,
                                                 fsdp_tape *outer);
