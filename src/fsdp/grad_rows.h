/* Gradients of embeddings, of which only the rows that were looked up are stored.
 *
 * Note [Gradients by row]. The gradient of an embedding is zero except for the rows of the ids in
 * the batch, so the gradient buffer does not need a place for the whole gradient. Instead, it has a
 * table of the rows that were touched, in the order of their first lookup, and a list of the ids of
 * these rows. Row 0 of the table is always zero. If a rank has not touched a row, row 0 of its
 * table is added instead. So rows are summed over the ranks in the same tree as whole gradients,
 * and the sums have the same bits.
 *
 * The parts of all ranks have the same layout, which is chosen before backward writes to them. By
 * then, the lookups of the forward are known, including those of checkpointed modules. They show
 * which parameters are read only by lookups, and how many rows of each parameter may be touched. An
 * all-reduce finds the maximum of this number over all ranks and replicas. The number is then
 * rounded up to a power of two, so that buffers have few sizes, and becomes the length of the
 * table. If another operation also reads the parameter (a tied head), or if a table would need at
 * least half as much memory as the whole gradient, the parameter has a place for its whole
 * gradient.
 *
 * A gradient is unforeseen if the lookup (or, in a tied head, the matrix product) that it belongs
 * to was recorded after the layout was chosen. This happens in a later micro-step that adds to the
 * open buffer. When an unforeseen gradient arrives, the buffer is exchanged for one with places for
 * whole gradients, and its contents are moved. Every rank does this, because all ranks run the same
 * program.
 *
 * The place of a table in the buffer has two arrays: first [1 + most] int32, the number of touched
 * rows and their ids, then [1 + most, D] float32, the rows. */
#pragma once
#include "src/fsdp/grad_parts.h"

/* Choose which parameters have a table, and the length of each table, from the lookups that were
 * recorded since the last call of this function or of fsdp_grad_rows_end_backward(). Collective if
 * any parameter may have a table. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_plan(fsdp_grad_buffer *b);
/* Forget the lookups that were recorded. Call this at the end of a backward sweep, after which no
 * more gradients of these lookups can arrive. Later gradients are unforeseen until the next
 * fsdp_grad_rows_plan(). */
void fsdp_grad_rows_end_backward(fsdp_grad_buffer *b);
/* Does the table have room for every lookup of p whose gradient may arrive now? The answer depends
 * only on the order of the program's calls, not on the ids, so it is the same on all ranks. */
bool fsdp_grad_rows_have_room(const fsdp_param *p);
/* Return the number of elements that p, which must have a table, takes in a gradient buffer. */
int64_t fsdp_grad_rows_numel(const fsdp_param *p);
/* Create an empty table at p's place in the open buffer. No effect if p has no table. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_open(const fsdp_grad_buffer *b, fsdp_param *p);
/* Remove p's table and drop its contents. No effect if p has no table. */
void fsdp_grad_rows_close(fsdp_param *p);
/* Assign a row of p's table to the gradient of each of `ids` [n]. These lookups must have been
 * foreseen. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_reserve(const fsdp_grad_buffer *b, fsdp_param *p,
                                                   const int32_t *ids, int64_t n,
                                                   int32_t padding_idx, fsdp_grad_rows *out);
/* Copy the rows of the table to `whole` [V, D] float32 and set its other rows to zero. `place` is
 * the place of p's table in the buffer. */
void fsdp_grad_rows_spread(const fsdp_grad_buffer *b, const fsdp_param *p, const float *place,
                           const fsdp_tensor *whole);
/* Write the list of p's touched rows to this rank's part, where peers will read it. */
void fsdp_grad_rows_post(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                         const fsdp_param *p);
/* Sum this rank's rows over the tables in all parts: rows = scale * sum. For whole gradients,
 * fsdp_grad_parts_sum() does this. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_sum(const fsdp_grad_buffer *b,
                                               const fsdp_grad_parts *parts, const fsdp_param *p,
                                               const fsdp_tensor *rows, float scale);
/* Free p's table, including the memory that it keeps from step to step. */
void fsdp_grad_rows_fini(fsdp_param *p);
