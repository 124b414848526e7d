/* Results that backward recomputes instead of keeping them.
 *
 * Note [Derived results]. The result of a norm, a gelu or a gated activation can be recomputed in
 * one pass, from tensors that the operation keeps for its own backward anyway. So an operation that
 * reads such a result in backward does not keep the result. The operation only refers to the node
 * that made the result, and the memory of the result is freed when forward no longer needs it. In
 * backward, before the first operation that reads the result, the node recomputes the result. It
 * uses the same kernel, so the recomputed result has the same bits. The recomputed result is
 * released after the last operation that reads it. If backward does not run all of these
 * operations, the result is released after the backward of the node that made it. (In the second
 * run of a checkpointed part, where memory matters more, the result is released after each reader
 * and recomputed for the next one.)
 *
 * Three kinds of results are kept instead of being recomputed:
 *   - a result that something else still holds when backward reads it;
 *   - the last result that the second run of a checkpointed part computes before it stops (Note
 *     [Early stop] in early_stop.h);
 *   - a result that is computed from a derived result. If it were recomputed, too, backward would
 *     have to recompute a chain of results from its beginning.
 *
 * torch.compile decides in the same way what backward recomputes. Operations whose results can be
 * recomputed have a `derive` function. */
#pragma once
#include "src/autograd/autograd.h"

/* Declare that node `n` can recompute `result`. Call this directly after the node has been
 * recorded. The node must not have saved another derived result. If `for_each` is true, the result
 * is recomputed once for each reader. */
FSDP_MUST_CHECK fsdp_status fsdp_derived_create(fsdp_node *n, fsdp_tensor *result, bool for_each);
/* Call this when the node that can recompute the result is destroyed. No operation needs the result
 * after that. Accepts NULL. */
void fsdp_derived_destroy(fsdp_derived *derived);
/* Keep the result for its readers, so that it is not recomputed. Call this directly after
 * fsdp_derived_create(). */
void fsdp_derived_hold(fsdp_derived *derived);
/* Call this when no further node will save the result. If no node has saved it, drop the reference
 * that fsdp_derived_hold() took. Accepts NULL. */
void fsdp_derived_release(fsdp_derived *derived);
/* Call this when a node saves the result. */
void fsdp_derived_begin_read(fsdp_derived *derived);
/* Call this when a node that has saved the result has read it for the last time, or when such a
 * node is cleared without having read the result. Accepts NULL, because the node that made the
 * result may already have been cleared. */
void fsdp_derived_end_read(fsdp_derived *derived);
/* Return true if a node has saved the result and will still read it. Accepts NULL. */
bool fsdp_derived_is_wanted(const fsdp_derived *derived);
/* Return true if `t` is the result of a node on the scope's tape, and if that node can recompute
 * it. */
bool fsdp_is_derived(const fsdp_scope *s, const fsdp_tensor *t);
/* Node `n` may refer to derived results (Note [Derived results]). Recompute those that are not in
 * memory. After this call, everything that `n` saved is available until the node is cleared. s has
 * no tape. */
void fsdp_node_restore(fsdp_scope *s, const fsdp_tape *tape, fsdp_node *n);
