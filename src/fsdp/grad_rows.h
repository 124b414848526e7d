/* Gradients of the rows that were looked up.
 *
 * Note [Gradients by row]. The gradient of an embedding is zero but for the rows of the ids in the
 * batch, so a slot has no place for all of it: it has a table of the rows that are touched, in the
 * order in which they come, and a list of whose they are. Row 0 of the table is zero and stays so:
 * it stands for the rows of a rank that did not touch them when own rows are added up over the
 * ranks, as the tree that whole gradients are added in, so that bits are the same.
 *   The slots of all ranks are laid out alike, before backward writes to them. What tapes have
 * recorded by then, or checkpointed parts have run, says which parameters are read by lookups
 * alone, and how many rows these
 * may touch; the most of all ranks and replicas, which they tell each other, is the table's length,
 * rounded up to a power of two, so that slots have few sizes. A parameter
 * that something else reads too (a tied head), or of which most rows may be touched, has its place
 * as a whole. Where something comes that was not foreseen (another micro-step, which adds to an
 * open slot; a product that was recorded later) the slot is laid out anew, with places for whole
 * gradients, and what is in it moves there: on every rank, since all run the same program.
 *   In a slot: [1 + most] int32, their number and whose they are; then the table. */
#pragma once
#include "src/fsdp/grad_parts.h"

/* Choose which parameters have a table, and of which length, from what was recorded since the last
 * time. Collective if there is a parameter that may have one. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_plan(fsdp_param_group *unit);
/* A sweep of backward has ended: what was recorded and has not come will not, and what comes was
 * not foreseen. */
void fsdp_grad_rows_forget(fsdp_param_group *unit);
/* Has the table room for every lookup of p whose gradient may come now? By what the program did,
 * not by how many ids there were, so that the ranks agree. */
bool fsdp_grad_rows_are_foreseen(const fsdp_param *p);
/* Elements that a parameter with a table takes in a slot. */
int64_t fsdp_grad_rows_slot_numel(const fsdp_param *p);
/* p's place in the slot, which has its memory now, has been chosen: no row is touched. No effect
 * without a table, here and in the next. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_open(const fsdp_param_group *unit, fsdp_param *p);
/* p has no table from here on, and what is in it is nobody's. */
void fsdp_grad_rows_close(fsdp_param *p);
/* Places for the gradients of `ids` [n], which were foreseen. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_take(const fsdp_param_group *unit, fsdp_param *p,
                                                const int32_t *ids, int64_t n, int32_t padding_idx,
                                                fsdp_grad_rows *out);
/* `whole` [V, D] float32 = what the table has; `place`: of p in the slot. */
void fsdp_grad_rows_spread(const fsdp_param_group *unit, const fsdp_param *p, const float *place,
                           const fsdp_tensor *whole);
/* Tell the peers which rows are touched. */
void fsdp_grad_rows_publish(const fsdp_param_group *unit, const fsdp_grad_parts *slots,
                            const fsdp_param *p);
/* fsdp_grad_parts_sum() of own rows. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_rows_sum(const fsdp_param_group *unit,
                                               const fsdp_grad_parts *slots, const fsdp_param *p,
                                               const fsdp_tensor *rows, float scale);
/* Free what p keeps for it from step to step. */
void fsdp_grad_rows_fini(fsdp_param *p);
