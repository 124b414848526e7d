/* The gradient buffer of a param group: what its backward writes, from the first gradient to the
 * reduced shards.
 *
 * Note [Gradient buffers]. Backward writes this rank's whole gradients, float32, to its part of a
 * pool buffer that all ranks of the group share (WRITE); only what trains has a place there, and of
 * an embedding only the rows that were looked up (Note [Gradients by row] in grad_rows.h). When
 * backward has left the group the buffer is posted: the WRITE phase ends. To reduce it, each rank
 * sums its own rows over all parts (READ). A byte for each parameter and rank says whether it has a
 * gradient. Ranks differ in that only if they ran different code, and would otherwise add up what
 * an earlier group left there.
 *
 * Note [Sections]. A buffer for all gradients of a group is as large as the group, in float32, on
 * every rank. But backward comes to one weight after another, and what is complete can be reduced
 * before the next one begins. So the buffer has room for a section: for the largest of the group's
 * matrices, or a quarter of all if that is more, and, at the end, for all its vectors. Matrices get
 * places as their gradients come. When there is no room left, and all gradients that are there are
 * complete, the section is posted, the one before it reduced, and the next one begins, in the
 * memory of that. A gradient is complete when no node is left that reads its parameter, on a tape
 * or to be recorded by a checkpointed part (fsdp_grad_sink.n_readers). If any is not, the buffer is
 * exchanged for one with places for all. So bits do not depend on sections: each gradient is added
 * up over the ranks once.
 *
 * Whole buffers, in the order of the parameters, are laid out where
 * sections could not be told apart or would gain nothing: where gradients add up without being
 * communicated, or have done so over the shard group alone and are now to go over the replicas;
 * where some are tables; where several nodes read one of the parameters, which may be far apart;
 * where peers are on other hosts, for whom few messages are better; and for a group so small that
 * memory matters less than the waits.
 *
 * Where sections end depends on the order in which gradients
 * come, and on how often which parameter is read on any tape that was not swept or reset. Ranks
 * whose programs differ in that get an error that says they diverged, where whole buffers would
 * have added up. */
#pragma once
#include "src/fsdp/param.h"

/* The gradients that this rank has handed to its peers and not reduced yet. */
typedef struct fsdp_posted_gradients {
    fsdp_buffer *buffer; /* NULL: there are none. */
    int64_t numel;       /* Of a rank's part. */
    bool is_section;     /* It is not a whole buffer. */
    bool is_last;        /* It is of the step's last micro-step. */
} fsdp_posted_gradients;

typedef struct fsdp_grad_buffer {
    const fsdp_param_context *context;
    fsdp_param *params; /* [n_params] The group's, borrowed. */
    size_t n_params;
    const void **sources; /* [largest group] Scratch of the reduce. */

    /* The open buffer, which backward writes. */
    fsdp_buffer *open;         /* NULL: none. */
    fsdp_storage *storage;     /* What gradients are views of: this rank's part. */
    int64_t numel;             /* Elements of a part, with alignment. */
    int64_t section_numel;     /* Elements for matrices, which come first. */
    int64_t used;              /* Elements for matrices that have been given away. */
    bool in_sections;          /* The open buffer is a section. */
    int n_placed;              /* Places that were given in its order. */
    int64_t least_in_sections; /* A group of fewer elements has whole buffers. */

    fsdp_posted_gradients posted;

    /* Controls of fsdp.h. */
    bool no_gradient_sync; /* Gradients add up in the open buffer, which is not posted. */
    bool in_no_sync;       /* The same, by no_sync(). */
    bool no_all_reduce;    /* Not over the replicas: a later reduce adds them. */
    double divide_factor;  /* 0: the number of ranks. */
    fsdp_all_reduce_hook *all_reduce_hook;
    void *all_reduce_arg;
} fsdp_grad_buffer;

/* Is it to be communicated at the end of the group's backward? */
static inline bool fsdp_grad_buffer_syncs(const fsdp_grad_buffer *b)
{
    return !b->no_gradient_sync && !b->in_no_sync;
}

/* For params [n], whose shards have been chosen; the sinks' targets are set when they are adopted.
 */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_init(fsdp_grad_buffer *b,
                                                  const fsdp_param_context *context,
                                                  fsdp_param *params, size_t n);
/* Free all, also what is under way. Parameters are not notified: they may be gone. */
void fsdp_grad_buffer_fini(fsdp_grad_buffer *b);
/* fsdp_grad_sink.target of the group's parameters, and .rows of those with a table. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_target(fsdp_grad_sink *sink, fsdp_tensor *leaf,
                                                    fsdp_tensor **dst, float *beta);
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_target_rows(fsdp_grad_sink *sink, const int32_t *ids,
                                                         int64_t n, int32_t padding_idx,
                                                         fsdp_grad_rows *out);
/* Backward has left the group, or a section of it: hand the gradients to the peers. No effect if no
 * buffer is open. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_post(fsdp_grad_buffer *b);
/* Reduce the buffer that was posted before this one, which becomes the pending one if it has posted
 * something. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_buffer_reduce_previous(fsdp_grad_buffer *b);
/* Does the group hold gradients that are not the parameters' yet? */
bool fsdp_grad_buffer_has_sums(const fsdp_grad_buffer *b);
/* Drop what earlier micro-steps of a step that never ended have left. */
void fsdp_grad_buffer_drop_sums(fsdp_grad_buffer *b);
/* The step failed: drop the buffers and partial sums. */
void fsdp_grad_buffer_drop(fsdp_grad_buffer *b);
