/* What a unit's backward writes: its slot, Note [Three memories of a unit] in param_group.h.
 *
 * Note [Sections]. A slot for all gradients of a unit is as large as the unit, in float32, on every
 * rank. But backward comes to one weight after another, and what is through with can be reduced
 * before the next one begins. So a slot has room for a section: for the largest of the unit's
 * matrices, or a quarter of all if that is more, and, at the end, for all its vectors. Matrices get
 * places as their gradients come. Where there is none left, and all gradients that are there are
 * complete, the section is published, the one before it reduced, and the next one begins, in the
 * memory of that. A gradient is complete when no node is left that reads its parameter, on a tape
 * or to be recorded by a checkpointed part (fsdp_grad_sink.n_readers); if any is not, the slot is
 * exchanged for one with places for all. So bits do not depend on sections: each gradient is added
 * up over the ranks once.
 *   All of a unit at once, in the order of its parameters, is laid out where sections could not be
 * told apart or would gain nothing: where gradients add up without being communicated, or have done
 * so over the shard group alone and are now to go over the replicas; where some are tables (Note
 * [Gradients by row] in grad_rows.h); where several nodes read one of its parameters, which may be
 * far apart; where peers are on other hosts, whom few messages suit better; and of a unit so small
 * that memory matters less than the waits.
 *   Where sections end depends on the order in which gradients come, and on who reads what how
 * often, on any tape that was not swept or reset. Ranks whose programs differ in that are told that
 * they diverged, where whole slots would have added up. */
#pragma once
#include "src/fsdp/grad_parts.h"

/* The parts of the published slot's ranks. */
fsdp_grad_parts fsdp_slot_published(const fsdp_param_group *unit);
/* For a phase of `numel` gradients of the unit; and for the reduce of those that are published.
 * Ranks that ran different code differ in these bytes, and the phase check says so. */
fsdp_phase_info fsdp_slot_info(const fsdp_param_group *unit, fsdp_phase_kind kind, size_t numel);
fsdp_phase_info fsdp_slot_reduce_info(const fsdp_param_group *unit);
/* The published slot was reduced; and: what is in any slot of the unit is nobody's. */
void fsdp_slot_was_reduced(fsdp_param_group *unit);
void fsdp_slot_drop(fsdp_param_group *unit);
