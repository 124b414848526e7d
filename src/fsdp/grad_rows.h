/* Gradients of the rows that were looked up.
 *
 * Note [Gradients by row]. The gradient of an embedding is zero except for the rows of the ids in
 * the batch, so the gradient buffer has no place for all of it. It has a table of the rows that are
 * touched, in the order in which they come, and a list of their ids. Row 0 of the table is zero and
 * stays so: it is added for a rank that did not touch a row, so that own rows are added up over the
 * ranks in the same tree as whole gradients, with the same bits.
 *
 * The parts of all ranks have one layout, chosen before backward writes to them. What tapes have
 * recorded by then, or checkpointed parts have run, says which parameters are read by lookups alone
 * and how many rows these may touch. The table's length is the most of all ranks and replicas,
 * which they exchange, rounded up to a power of two, so that buffers have few sizes. A parameter
 * that something else reads too (a tied head), or of which most rows may be touched, has a place
 * for its whole gradient. When something comes that was not foreseen (another micro-step, which
 * adds to an open buffer; a product that was recorded later), the buffer gets a new layout with
 * places for whole gradients, and what is in it moves there. That happens on every rank, since all
 * run the same program.
 *
 * In the buffer: [1 + most] int32, the number of rows and their ids; then the
 * table. */
#pragma once
#include "src/fsdp/grad_parts.h"

/* Choose which parameters have a table, and of which length, from what was recorded since the last
 * time. Collective if there is a parameter that may have one. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_plan(fsdp_grad_buffer *b);
/* A sweep of backward has ended: what was recorded and has not come will not come, and what comes
 * now was not foreseen. */
void fsdp_grad_rows_forget(fsdp_grad_buffer *b);
/* Has the table room for every lookup of p whose gradient may come now? By what the program did,
 * not by how many ids there were, so that the ranks agree. */
bool fsdp_grad_rows_are_foreseen(const fsdp_param *p);
/* Elements that a parameter with a table takes in a gradient buffer. */
int64_t fsdp_grad_rows_numel(const fsdp_param *p);
/* The open buffer has memory and a place for p: begin an empty table there. No effect without a
 * table, here and in the next. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_open(const fsdp_grad_buffer *b, fsdp_param *p);
/* p has no table from here on; its contents are dropped. */
void fsdp_grad_rows_close(fsdp_param *p);
/* Places for the gradients of `ids` [n], which were foreseen. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_take(const fsdp_grad_buffer *b, fsdp_param *p,
                                                const int32_t *ids, int64_t n, int32_t padding_idx,
                                                fsdp_grad_rows *out);
/* `whole` [V, D] float32 = what the table has; `place`: of p in the buffer. */
void fsdp_grad_rows_spread(const fsdp_grad_buffer *b, const fsdp_param *p, const float *place,
                           const fsdp_tensor *whole);
/* Write for the peers which rows are touched. */
void fsdp_grad_rows_post(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                         const fsdp_param *p);
/* fsdp_grad_parts_sum() of own rows. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_sum(const fsdp_grad_buffer *b,
                                               const fsdp_grad_parts *parts, const fsdp_param *p,
                                               const fsdp_tensor *rows, float scale);
/* Free what p keeps for it from step to step. */
void fsdp_grad_rows_fini(fsdp_param *p);
