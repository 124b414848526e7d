/* The gradient buffer of a param group. Backward writes whole gradients to it, and the ranks reduce
 * them to the gradients of the shards.
 *
 * Note [Gradient buffers]. All ranks of a group share a gradient buffer, which comes from a pool
 * and has a part for each rank. (A group of one rank has none: Note [Gradients of one rank] in
 * grad_own.h.) In a WRITE phase, a rank's backward writes whole gradients, in
 * float32, to the rank's part. A part has places only for parameters that train. The place of an
 * embedding has room only for the rows that were looked up (Note [Gradients by row] in
 * grad_rows.h). When backward has left the group, the rank posts the buffer, which ends the WRITE
 * phase. Later, each rank reduces the buffer in a READ phase: it sums the rows that it owns over
 * all parts.
 *
 * For each rank and parameter, the buffer has a flag that says whether the rank has a gradient of
 * the parameter. Before the sum, each rank compares its flags with those of its peers. They differ
 * only if the ranks ran different code. Without this check, a rank would add old values that
 * another group has left in the buffer.
 *
 * Note [Sections]. A whole buffer has places for all gradients of a group. Each rank's part of it
 * is as large as these gradients in float32. But backward computes one gradient after another, and
 * complete gradients can be reduced before the next ones are computed. So a buffer may be smaller:
 * it then holds one section of the gradients at a time. A section begins with space for matrices.
 * This space is as large as the largest matrix of the group, but at least a quarter of all
 * elements. Then come the places of all vectors of the group. A matrix gets a place when its
 * gradient arrives.
 *
 * The gradient of a parameter is complete when backward has run for all nodes that read the
 * parameter. This includes nodes that a checkpointed module has yet to record
 * (fsdp_grad_sink.n_readers). When a matrix does not fit, there are two cases. If all gradients in
 * the section are complete, the section is posted and the section before it is reduced. The next
 * section begins in the memory of the reduced one. If a gradient is incomplete, the buffer is
 * exchanged for a whole buffer. So each gradient is summed over the ranks once, and sections do not
 * change the bits of the result.
 *
 * The places in a whole buffer are in the order of the parameters. But where products are joined
 * (Note [Joined products] in src/autograd/joined_linear.h), the places of all matrices come before
 * those of the vectors. A whole buffer is used where sections are impossible or gain nothing:
 *   - gradients accumulate without communication;
 *   - gradients are summed over the shard group only, and over the replicas by a later reduce;
 *   - some gradients are tables (Note [Gradients by row] in grad_rows.h);
 *   - several nodes, which may be far apart on the tape, read the same parameter;
 *   - peers are on other hosts, where fewer messages are better;
 *   - the group is small, so sections would save little memory and cause many waits;
 *   - a section would be almost as large as the whole buffer.
 *
 * A section ends where the next matrix does not fit. This point depends on the order in which
 * gradients arrive, and on the number of nodes that will still read each parameter. This number
 * includes nodes of tapes that were neither swept nor reset. If ranks differ in this, they get an
 * error: "ranks diverged". With whole buffers, such ranks get no error, and their gradients are
 * summed. */
#pragma once
#include "src/fsdp/param.h"

/* The gradients that this rank has posted but not reduced yet. */
typedef struct fsdp_posted_gradients {
    bool exists;         /* Gradients are posted. */
    fsdp_buffer *buffer; /* NULL: no gradients are posted, or the group has only one rank. */
    int64_t numel;       /* Elements of each rank's part. */
    int64_t peer_numel;  /* See fsdp_grad_parts. */
    bool is_section;     /* The buffer holds one section, not all gradients. */
    bool is_last;        /* The gradients belong to the step's last micro-step. */
    bool is_new;      /* fsdp_grad_buffer_reduce_previous() has not been called since the post. */
    bool is_added_up; /* The sums of this host were sent: Note [Sums of a host] in grad_terms.h. */
} fsdp_posted_gradients;

/* Sums over the replicas that are in progress: Note [Lanes of replicas] in grad_lanes.h. */
typedef struct fsdp_grad_lanes {
    bool exists;
    fsdp_buffer *buffer;
    int64_t numel;    /* Elements of a lane. */
    bool has_results; /* This rank has summed its piece, and waits for the other pieces. */
    bool is_last;     /* The gradients belong to the step's last micro-step. */
} fsdp_grad_lanes;

typedef struct fsdp_grad_buffer {
    const fsdp_param_context *context;
    fsdp_param *params; /* [n_params] Borrowed from the param group. */
    size_t n_params;
    const void **sources; /* [number of ranks] Scratch memory of the reduce. Item r is an address in
                             the part of rank r. */
    unsigned char *flags; /* [n_params] Scratch memory for this rank's flags. */

    /* The open buffer, to which backward writes. A group of one rank has no buffer, and uses none
     * of these fields except is_open: Note [Gradients of one rank] in grad_own.h. */
    bool is_open;
    fsdp_buffer *open;     /* NULL: no buffer is open. */
    fsdp_storage *storage; /* This rank's part; whole gradients are views of it. */
    int64_t numel;         /* Elements of a part, including padding. */
    int64_t peer_numel;    /* In a whole buffer: see fsdp_grad_parts.peer_numel. */
    int64_t section_numel; /* In a section: elements of the space for matrices. In a whole buffer:
                              `numel`. */
    int64_t used;     /* How many of the `section_numel` elements are assigned to parameters. */
    bool in_sections; /* The open buffer is a section. */
    int n_placed;     /* Number of matrices that have a place in the section. */
    int64_t least_in_sections; /* A group that has fewer elements uses whole buffers. */

    fsdp_posted_gradients posted;
    fsdp_grad_lanes lanes;
    struct fsdp_grad_buffer *next_in_flight; /* See fsdp_comm_context.in_flight. */
    bool waits_for_lanes; /* Scratch memory of a reduce: true if the next stage of this buffer waits
                             for sums over the replicas. */

    /* Controls of fsdp.h. */
    bool no_gradient_sync; /* Gradients accumulate in the open buffer, which is not posted. */
    bool in_no_sync;    /* Set by fsdp_no_sync_begin(); has the same effect as no_gradient_sync. */
    bool no_all_reduce; /* The reduce sums over the shard group only. A later reduce sums over the
                           replicas. */
    double divide_factor; /* The divisor of the gradients. 0: the number of ranks. */
    fsdp_all_reduce_hook *all_reduce_hook;
    void *all_reduce_arg;
} fsdp_grad_buffer;

/* Return true if gradients are communicated now. The buffer is then posted at the end of the
 * group's backward. */
static inline bool fsdp_grad_buffer_syncs(const fsdp_grad_buffer *b)
{
    return !b->no_gradient_sync && !b->in_no_sync;
}

/* Initialize b for `params` [n], which are borrowed. Call this after the shards of `params` are
 * chosen. Later, fsdp_param_group_adopt() makes the gradient sinks of `params` write to b. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_init(fsdp_grad_buffer *b,
                                                  const fsdp_param_context *context,
                                                  fsdp_param *params, size_t n);
/* Free the open buffer, the posted buffer and all sums. This function does not access
 * fsdp_param.parameter, because the module's parameter may have been destroyed. */
void fsdp_grad_buffer_fini(fsdp_grad_buffer *b);
/* Implements fsdp_grad_sink.target. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_target(fsdp_grad_sink *sink, fsdp_tensor *leaf,
                                                    fsdp_tensor **dst, float *beta);
/* Implements fsdp_grad_sink.rows. out->table stays NULL if the parameter has no table. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_target_rows(fsdp_grad_sink *sink, const int32_t *ids,
                                                         int64_t n, int32_t padding_idx,
                                                         fsdp_grad_rows *out);
/* Post the open buffer. Call this when backward has left the group or a section is complete. If the
 * buffer that this group posted before is not reduced yet, reduce it, too. No effect if no buffer
 * is open. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_post(fsdp_grad_buffer *b);
/* If b has posted gradients since the last call of this function for b, begin to send them, and
 * move b to the end of the list fsdp_comm_context.in_flight. Then do the next stage of the reduce
 * of each other buffer in the list. Usually the list has one other buffer, which was posted before
 * b, and this is the last stage of its reduce. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_reduce_previous(fsdp_grad_buffer *b);
/* Complete the reduce of all buffers in fsdp_comm_context.in_flight. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_reduce_all(fsdp_comm_context *comm);
/* Return true if the group has gradients that are not assigned to the parameters yet. They are in
 * the open buffer, in the posted buffer or in sums. */
bool fsdp_grad_buffer_has_sums(const fsdp_grad_buffer *b);
/* Drop the partial sums of earlier micro-steps. Call this when a step begins: any sums that exist
 * then are from a step that was not finished. */
void fsdp_grad_buffer_drop_sums(fsdp_grad_buffer *b);
/* Drop the gradients in all buffers and the sums of gradients. Call this when a step has failed. */
void fsdp_grad_buffer_drop(fsdp_grad_buffer *b);
