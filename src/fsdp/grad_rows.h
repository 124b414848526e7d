/* Gradients of embeddings: only the rows that were looked up.
 *
 * Note [Gradients by row]. The gradient of an embedding is zero except for the rows of the ids in
 * the batch, so the gradient buffer has no place for the whole gradient. It has a table of the rows
 * that were touched, in order of their first lookup, and a list of their ids. Row 0 of the table is
 * always zero. It is added for a rank that did not touch a row. So own rows are added up over the
 * ranks in the same tree as whole gradients, with the same bits.
 *
 * The parts of all ranks have the same layout, chosen before backward writes to them. The lookups
 * that tapes have recorded and checkpointed modules have run by then say which parameters are read
 * by lookups alone, and how many rows these may touch. The table's length is the maximum over all
 * ranks and replicas, found by an all-reduce and rounded up to a power of two, so that buffers have
 * few sizes. A parameter has a place for its whole gradient if another operation reads it too (a
 * tied head), or if most of its rows may be touched. When an unforeseen gradient arrives (of
 * another micro-step, which adds to an open buffer; of a product that was recorded later), the
 * buffer gets a new layout with places for whole gradients, and its contents move there. This
 * happens on every rank, since all run the same program.
 *
 * In the buffer: [1 + most] int32, the number of rows and their ids; then the table. */
#pragma once
#include "src/fsdp/grad_parts.h"

/* Choose which parameters have a table, and its length, from the lookups recorded since the last
 * call. Collective if any parameter may have a table. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_plan(fsdp_grad_buffer *b);
/* Call this at the end of a backward sweep. Recorded lookups whose gradients have not arrived will
 * not arrive, and later gradients were not foreseen. */
void fsdp_grad_rows_forget(fsdp_grad_buffer *b);
/* Does the table have room for every lookup of p whose gradient may arrive now? The answer depends
 * on what the program did, not on the number of ids, so it is the same on all ranks. */
bool fsdp_grad_rows_are_foreseen(const fsdp_param *p);
/* Elements that a parameter with a table takes in a gradient buffer. */
int64_t fsdp_grad_rows_numel(const fsdp_param *p);
/* Begin an empty table at p's place in the open buffer. No effect if p has no table. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_open(const fsdp_grad_buffer *b, fsdp_param *p);
/* Remove p's table and drop its contents. No effect if p has no table. */
void fsdp_grad_rows_close(fsdp_param *p);
/* Give places to the gradients of `ids` [n]. These lookups must have been foreseen. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_take(const fsdp_grad_buffer *b, fsdp_param *p,
                                                const int32_t *ids, int64_t n, int32_t padding_idx,
                                                fsdp_grad_rows *out);
/* `whole` [V, D] float32 = the table as a dense gradient. `place` is p's place in the buffer. */
void fsdp_grad_rows_spread(const fsdp_grad_buffer *b, const fsdp_param *p, const float *place,
                           const fsdp_tensor *whole);
/* Write the list of touched rows to the buffer, for the peers. */
void fsdp_grad_rows_post(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                         const fsdp_param *p);
/* The counterpart of fsdp_grad_parts_sum() for tables: sum this rank's rows over all parts. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_sum(const fsdp_grad_buffer *b,
                                               const fsdp_grad_parts *parts, const fsdp_param *p,
                                               const fsdp_tensor *rows, float scale);
/* Free p's table, and what it keeps from step to step. */
void fsdp_grad_rows_fini(fsdp_param *p);
