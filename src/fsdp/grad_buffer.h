/* The gradient buffer of a param group: what its backward writes, from the first gradient to the
 * reduced shards.
 *
 * Note [Gradient buffers]. Backward writes this rank's whole gradients, in float32, to its part of
 * a pool buffer that all ranks of the group share (WRITE). Only parameters that train have a place
 * there, and an embedding only for the rows that were looked up (Note [Gradients by row] in
 * grad_rows.h). When backward has left the group, the buffer is posted: the WRITE phase ends. To
 * reduce it, each rank sums its own rows over all parts (READ). A byte for each parameter and rank
 * says whether it has a gradient. These bytes differ between ranks only if the ranks ran different
 * code. Without this check, a rank would add up values that an earlier group left in the buffer.
 *
 * Note [Sections]. A buffer for all gradients of a group is as large as the group, in float32, on
 * every rank. But backward computes one gradient after another, and complete gradients can be
 * reduced before the next ones are computed. So the buffer has room for a section only: for the
 * largest of the group's matrices, or a quarter of all elements if that is more, and then for all
 * its vectors. Matrices get places as their gradients arrive. When there is no room left and all
 * gradients in the section are complete, it is posted, the section before it is reduced, and the
 * next section begins in the memory of the reduced one. A gradient is complete when no node is left
 * that reads its parameter, either on a tape or yet to be recorded by a checkpointed module
 * (fsdp_grad_sink.n_readers). If any gradient is incomplete, the buffer is exchanged for one with
 * places for all. So the bits of the result do not depend on sections: each gradient is summed over
 * the ranks once.
 *
 * A whole buffer, in the order of the parameters, is used where sections are impossible or gain
 * nothing: gradients accumulate without communication, or were reduced over the shard group alone
 * and must still be reduced over the replicas; some gradients are tables; several nodes, which may
 * be far apart, read one of the parameters; peers are on other hosts, where fewer messages are
 * better; or the group is so small that waiting costs more than memory.
 *
 * Where a section ends depends on the order in which gradients arrive, and on how often each
 * parameter is read on tapes that were not swept or reset. If ranks differ in this, they get an
 * error that says they diverged. With whole buffers, their gradients would have been summed. */
#pragma once
#include "src/fsdp/param.h"

/* The gradients that this rank has handed to its peers and not reduced yet. */
typedef struct fsdp_posted_gradients {
    fsdp_buffer *buffer; /* NULL: there are none. */
    int64_t numel;       /* Elements of a rank's part. */
    bool is_section;     /* It is a section, not a whole buffer. */
    bool is_last;        /* It belongs to the step's last micro-step. */
} fsdp_posted_gradients;

typedef struct fsdp_grad_buffer {
    const fsdp_param_context *context;
    fsdp_param *params; /* [n_params] The group's, borrowed. */
    size_t n_params;
    const void **sources; /* [largest group] Scratch of the reduce. */

    /* The open buffer, which backward writes. */
    fsdp_buffer *open;         /* NULL: none. */
    fsdp_storage *storage;     /* This rank's part; gradients are views of it. */
    int64_t numel;             /* Elements of a part, with alignment. */
    int64_t section_numel;     /* Elements for matrices, which come first. */
    int64_t used;              /* Elements for matrices that are assigned. */
    bool in_sections;          /* The open buffer is a section. */
    int n_placed;              /* Places assigned to matrices so far. */
    int64_t least_in_sections; /* A group of fewer elements has whole buffers. */

    fsdp_posted_gradients posted;

    /* Controls of fsdp.h. */
    bool no_gradient_sync; /* Gradients accumulate in the open buffer, which is not posted. */
    bool in_no_sync;       /* The same, set by no_sync(). */
    bool no_all_reduce;   /* Reduce over the shard group only; replicas follow in a later reduce. */
    double divide_factor; /* 0: the number of ranks. */
    fsdp_all_reduce_hook *all_reduce_hook;
    void *all_reduce_arg;
} fsdp_grad_buffer;

/* Will the buffer be posted at the end of the group's backward? */
static inline bool fsdp_grad_buffer_syncs(const fsdp_grad_buffer *b)
{
    return !b->no_gradient_sync && !b->in_no_sync;
}

/* `params` [n] are borrowed; their shards have been chosen. The targets of their gradient sinks are
 * set later, by fsdp_param_group_adopt(). */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_init(fsdp_grad_buffer *b,
                                                  const fsdp_param_context *context,
                                                  fsdp_param *params, size_t n);
/* Free all buffers, including posted ones. Does not access parameters, which may have been
 * destroyed. */
void fsdp_grad_buffer_fini(fsdp_grad_buffer *b);
/* fsdp_grad_sink.target and fsdp_grad_sink.rows (for parameters with a table). */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_target(fsdp_grad_sink *sink, fsdp_tensor *leaf,
                                                    fsdp_tensor **dst, float *beta);
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_target_rows(fsdp_grad_sink *sink, const int32_t *ids,
                                                         int64_t n, int32_t padding_idx,
                                                         fsdp_grad_rows *out);
/* Post the open buffer, when backward has left the group or completed a section. First reduces what
 * this group posted before, if that is still pending. No effect if no buffer is open. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_post(fsdp_grad_buffer *b);
/* Reduce the pending buffer, which was posted before this one. If this one is posted, it becomes
 * the pending buffer. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_reduce_previous(fsdp_grad_buffer *b);
/* Does the group hold gradients that were not yet assigned to the parameters? */
bool fsdp_grad_buffer_has_sums(const fsdp_grad_buffer *b);
/* Drop the partial sums of a step that did not end. */
void fsdp_grad_buffer_drop_sums(fsdp_grad_buffer *b);
/* Call this when a step failed: drop the buffers and partial sums. */
void fsdp_grad_buffer_drop(fsdp_grad_buffer *b);
