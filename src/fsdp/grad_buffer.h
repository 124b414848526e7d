/* The gradient buffer of a param group. Backward writes whole gradients to it, and the ranks reduce
 * them to the gradients of the shards.
 *
 * Note [Gradient buffers]. In a WRITE phase, backward writes this rank's whole gradients, in
 * float32, to the rank's part of a pool buffer that all ranks of the group share. Only parameters
 * that train have a place in it. The place of an embedding has room only for the rows that were
 * looked up (Note [Gradients by row] in grad_rows.h). When backward has left the group, the buffer
 * is posted, which ends the WRITE phase. To reduce the buffer, each rank sums its own rows over all
 * parts in a READ phase. For each rank and parameter, the buffer has a flag that says whether the
 * rank has a gradient of the parameter. Ranks compare their flags, which differ only if the ranks
 * ran different code. Without this check, a rank would add values that another group left in the
 * buffer.
 *
 * Note [Sections]. A buffer for all gradients of a group is as large as the group, in float32, on
 * every rank. But backward computes one gradient after another, and complete gradients can be
 * reduced before the next ones are computed. So the buffer has room for only one section of them. A
 * section begins with matrices, for which it has as many elements as the largest matrix of the
 * group, or a quarter of all elements if that is more. After the matrices, it has all vectors of
 * the group. Matrices get places as their gradients arrive. If a matrix does not fit and all
 * gradients in the section are complete, the section is posted, the previous section is reduced,
 * and the next section begins in the memory of the reduced one. The gradient of a parameter is
 * complete when backward has run for all nodes that read the parameter, including nodes that a
 * checkpointed module will still record (fsdp_grad_sink.n_readers). If a matrix does not fit and a
 * gradient is incomplete, the buffer is exchanged for one with places for all gradients. So each
 * gradient is summed over the ranks once, and the bits of the result do not depend on sections.
 *
 * A whole buffer has places for all gradients, in the order of the parameters. It is used where
 * sections are impossible or gain nothing:
 *   - gradients accumulate without communication;
 *   - gradients are reduced over the shard group only, and over the replicas by a later reduce;
 *   - some gradients are tables;
 *   - several nodes, which may be far apart, read the same parameter;
 *   - peers are on other hosts, where fewer messages are better;
 *   - the group is so small that waiting would cost more than memory;
 *   - a section would be almost as large as the whole buffer.
 *
 * Where a section ends depends on the order in which gradients arrive, and on how many nodes of
 * unfinished tapes (neither swept nor reset) read each parameter. If ranks differ in this, they get
 * an error which says that they diverged. With whole buffers, such ranks get no error, and their
 * gradients are summed. */
#pragma once
#include "src/fsdp/param.h"

/* The gradients that this rank has posted and not reduced yet. */
typedef struct fsdp_posted_gradients {
    fsdp_buffer *buffer; /* NULL: no gradients are posted. */
    int64_t numel;       /* Elements of a rank's part. */
    bool is_section;     /* The buffer is a section, not a whole buffer. */
    bool is_last;        /* The gradients belong to the step's last micro-step. */
} fsdp_posted_gradients;

typedef struct fsdp_grad_buffer {
    const fsdp_param_context *context;
    fsdp_param *params; /* [n_params] Borrowed from the param group. */
    size_t n_params;
    const void **sources; /* [number of ranks] Scratch memory of the reduce: an address in each
                             rank's part. */

    /* The open buffer, which backward writes. */
    fsdp_buffer *open;     /* NULL: no buffer is open. */
    fsdp_storage *storage; /* This rank's part; whole gradients are views of it. */
    int64_t numel;         /* Elements of a part, including padding. */
    int64_t section_numel; /* In a section: the elements for matrices, which come first. In a whole
                              buffer: `numel`. */
    int64_t used;          /* Elements of `section_numel` that are assigned to parameters. */
    bool in_sections;      /* The open buffer is a section. */
    int n_placed;          /* Number of matrices that have a place in the section. */
    int64_t least_in_sections; /* A group with fewer elements uses whole buffers. */

    fsdp_posted_gradients posted;

    /* Controls of fsdp.h. */
    bool no_gradient_sync; /* Gradients accumulate in the open buffer, which is not posted. */
    bool in_no_sync;    /* Set by fsdp_no_sync_begin(); has the same effect as no_gradient_sync. */
    bool no_all_reduce; /* The sum over the replicas is left to a later reduce. */
    double divide_factor; /* Gradients are divided by this; 0 means by the number of ranks. */
    fsdp_all_reduce_hook *all_reduce_hook;
    void *all_reduce_arg;
} fsdp_grad_buffer;

/* Will the buffer be posted at the end of the group's backward? */
static inline bool fsdp_grad_buffer_syncs(const fsdp_grad_buffer *b)
{
    return !b->no_gradient_sync && !b->in_no_sync;
}

/* Initialize b for `params` [n], which are borrowed. Their shards must have been chosen.
 * fsdp_param_group_adopt() sets the targets of their gradient sinks later. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_init(fsdp_grad_buffer *b,
                                                  const fsdp_param_context *context,
                                                  fsdp_param *params, size_t n);
/* Free all buffers, including posted ones. Does not access the parameters of modules
 * (fsdp_param.parameter), which may have been destroyed. */
void fsdp_grad_buffer_fini(fsdp_grad_buffer *b);
/* Implements fsdp_grad_sink.target. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_target(fsdp_grad_sink *sink, fsdp_tensor *leaf,
                                                    fsdp_tensor **dst, float *beta);
/* Implements fsdp_grad_sink.rows. out->table stays NULL if the parameter has no table. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_target_rows(fsdp_grad_sink *sink, const int32_t *ids,
                                                         int64_t n, int32_t padding_idx,
                                                         fsdp_grad_rows *out);
/* Post the open buffer. Call this when backward has left the group or a section is complete. If the
 * previous posted buffer of this group is not reduced yet, reduce it, too. No effect if no buffer
 * is open. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_post(fsdp_grad_buffer *b);
/* Reduce the pending buffer, if it belongs to another group. If b has a posted buffer, this buffer
 * becomes the pending one. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_reduce_previous(fsdp_grad_buffer *b);
/* Does the group have gradients that are not assigned to the parameters yet? */
bool fsdp_grad_buffer_has_sums(const fsdp_grad_buffer *b);
/* Drop the partial sums that an unfinished step has left behind. */
void fsdp_grad_buffer_drop_sums(fsdp_grad_buffer *b);
/* Drop all buffers and partial sums. Call this when a step has failed. */
void fsdp_grad_buffer_drop(fsdp_grad_buffer *b);
