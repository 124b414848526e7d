/* Results that backward recomputes instead of keeping them.
 *
 * Note [Derived results]. The result of a norm, a gelu or a gated activation takes one pass over
 * tensors that its own backward keeps anyway. So an operation that reads such a result in backward
 * does not hold the result. It only refers to the node that made it, and the result's memory is
 * freed when forward no longer needs it. In backward, before the first operation that reads the
 * result, the node recomputes it with the same kernel, so with the same bits. The recomputed result
 * is released after the last operation that reads it, or at the latest after the backward of its
 * own node, which runs after all of them. (In the second run of a checkpointed part, where memory
 * matters more, it is released after each operation that reads it.)
 *
 * Two kinds of results are read as they are, without recomputation: those that something still
 * holds when backward reads them, and the one at which the second run of a checkpointed part stops.
 * A result that is computed from a derived result is kept: otherwise a chain of them would be
 * recomputed from its beginning. torch.compile makes the same decision where it splits forward from
 * backward. An operation whose result can be recomputed has a `derive` function. */
#pragma once
#include "src/autograd/autograd.h"

/* Node `n`, which has just been recorded and keeps everything that it saved, can recompute
 * `result`. `for_each`: once for each reader. */
FSDP_MUST_CHECK fsdp_status fsdp_derived_create(fsdp_node *n, fsdp_tensor *result, bool for_each);
/* The node is destroyed: no operation needs its result any more. Accepts NULL. */
void fsdp_derived_destroy(fsdp_derived *derived);
/* Keep the result, which has just been made, for its readers. */
void fsdp_derived_hold(fsdp_derived *derived);
/* Only the nodes that have saved the result by now will read it. Accepts NULL. */
void fsdp_derived_let_go(fsdp_derived *derived);
/* A node saves the result, and later has read it for the last time. The latter may happen after the
 * result's own node was destroyed (NULL): backward does not visit a node that no root depends
 * on. */
void fsdp_derived_begin_read(fsdp_derived *derived);
void fsdp_derived_end_read(fsdp_derived *derived);
/* Is there a node that saved it and has not read it yet? Accepts NULL. */
bool fsdp_derived_is_wanted(const fsdp_derived *derived);
/* Is `t` the result of a node on the scope's tape that can recompute it? */
bool fsdp_is_derived(const fsdp_scope *s, const fsdp_tensor *t);
/* Make everything that `n` saved available until the node is cleared. s has no tape. */
void fsdp_node_restore(fsdp_scope *s, const fsdp_tape *tape, fsdp_node *n);
