/* Stores the gradients of embeddings as tables, which contain only the rows that were looked up.
 *
 * Note [Gradients by row]. In the gradient of an embedding, all rows are zero except those of the
 * ids in the batch. So the gradient buffer does not have a place for the whole gradient. Instead,
 * each rank's part has a table of the rows that the rank touched, in the order of their first
 * lookup, and a list of their ids. Row 0 of a table is always zero. If a rank has not touched a
 * row, row 0 of its table is added instead. So rows are summed over the ranks in the same tree as
 * whole gradients, and the sums have the same bits.
 *
 * The parts of all ranks have the same layout, which is chosen before backward writes to them. By
 * then, the lookups of the forward are known, including those of checkpointed modules. They show
 * which parameters are read only by lookups, and how many rows of each of these parameters may be
 * touched. An all-reduce finds the maximum of this number over all ranks and replicas. The maximum
 * is rounded up to a power of two, so that buffers have few sizes. The result is the length of the
 * table. In two cases, a parameter has a place for its whole gradient instead. One is that another
 * operation also reads it (a tied head). The other is that the table would need at least half as
 * much memory as the whole gradient.
 *
 * Every gradient comes from an operation: a lookup or, in a tied head, a matrix product. A gradient
 * is unforeseen if its operation was recorded after the layout was chosen. This happens in a later
 * micro-step that adds to the open buffer. When an unforeseen gradient arrives, the buffer is
 * exchanged for one with places for whole gradients, and its contents are moved. Every rank does
 * this, because all ranks run the same program.
 *
 * A table's place in the buffer contains two arrays. The first, [1 + most] int32, has the number of
 * touched rows and then their ids. The second, [1 + most, D] float32, is the table. In a group of
 * one rank, which has no buffer, the table is a tensor. */
#pragma once
#include "src/fsdp/grad_parts.h"

/* Choose which parameters have a table, and the length of each table. The choice depends on the
 * lookups that are recorded now. After the choice, this function forgets them, as
 * fsdp_grad_rows_end_backward() does. Collective if any parameter may have a table. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_plan(fsdp_grad_buffer *b);
/* Forget the lookups that were recorded. Call this at the end of a backward sweep, when all
 * gradients of these lookups have arrived. Gradients that arrive later are unforeseen until the
 * next fsdp_grad_rows_plan(). */
void fsdp_grad_rows_end_backward(fsdp_grad_buffer *b);
/* Return true if p's table has room for all gradients of p that can still arrive. This is so if
 * none of these gradients can be unforeseen (Note [Gradients by row]). The result depends only on
 * the order of the program's calls, not on the ids. So it is the same on all ranks. */
bool fsdp_grad_rows_have_room(const fsdp_param *p);
/* Return the number of elements that p takes in a gradient buffer. p must have a table. */
int64_t fsdp_grad_rows_numel(const fsdp_param *p);
/* Create an empty table at p's place in the open buffer or, in a group of one rank, in new memory.
 * No effect if fsdp_grad_rows_plan() has chosen no table for p. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_open(const fsdp_grad_buffer *b, fsdp_param *p);
/* Remove p's table and drop its contents. No effect if p has no table. */
void fsdp_grad_rows_close(fsdp_param *p);
/* Set out->table to p's table, and out->index [n] to the row of the table for each of `ids` [n]. If
 * an id has no row yet, it gets a new row that is filled with zeros. padding_idx gets row 0. Call
 * this only if fsdp_grad_rows_have_room(p) is true. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_reserve(const fsdp_grad_buffer *b, fsdp_param *p,
                                                   const int32_t *ids, int64_t n,
                                                   int32_t padding_idx, fsdp_grad_rows *out);
/* Return the address of p's table in a buffer, in which p's place has the address `place`. */
const float *fsdp_grad_rows_in_place(const fsdp_param *p, const float *place);
/* Copy the touched rows from p's table, which has the address `table`, to `whole` [V, D] float32.
 * Set all other rows of `whole` to zero. */
void fsdp_grad_rows_spread(const fsdp_grad_buffer *b, const fsdp_param *p, const float *table,
                           const fsdp_tensor *whole);
/* Write the list of p's touched rows to this rank's part, where peers will read it. */
void fsdp_grad_rows_post(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                         const fsdp_param *p);
/* Return how many bytes of p's list and table this rank sends to other hosts, if every lookup finds
 * a different row. */
uint64_t fsdp_grad_rows_sent_bytes(const fsdp_grad_parts *parts, const fsdp_param *p);
/* This rank sums the rows [first, first + n) of a parameter. `place` says where the table of each
 * rank has these rows. */
typedef struct fsdp_grad_own_rows {
    int64_t first, n;
    int ranks;
    int32_t *place; /* [ranks, n] index of the row in the rank's table; 0: the table does not have
                       the row */
    int32_t *sums;  /* [n, 1 + parts] scratch memory for fsdp_tree_sum_rows_args.rows; `parts` is at
                       most FSDP_MAX_SUMMED_TABLES */
} fsdp_grad_own_rows;

/* This rank sums some of the rows of p. Find these rows in the tables of all ranks. The caller
 * frees *own by fsdp_grad_rows_drop_own(). */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_find_own(const fsdp_grad_buffer *b,
                                                    const fsdp_grad_parts *parts,
                                                    const fsdp_param *p, fsdp_grad_own_rows *own);
void fsdp_grad_rows_drop_own(fsdp_grad_own_rows *own);
/* Like fsdp_grad_parts_sum(), but for tables: sum a range of the rows in *own over the tables of
 * range->parts ranks, multiply the sum by `scale`, and store it in `to` [range->n]. The range
 * consists of whole rows and has at most FSDP_MAX_SUMMED_TABLES parts. Do not call this on meta. */
void fsdp_grad_rows_sum(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                        const fsdp_param *p, const fsdp_grad_own_rows *own,
                        const fsdp_grad_range *range, float *to, float scale);
/* Free p's table and the array fsdp_row_table.place, which fsdp_grad_rows_close() keeps. */
void fsdp_grad_rows_fini(fsdp_param *p);
