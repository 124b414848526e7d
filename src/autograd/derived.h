/* Results that backward computes again rather than keeps.
 *
 * Note [Derived results]. What a norm, a gelu or a gated activation gives is one pass over what its
 * own backward keeps anyway. So an operation that reads such a result in backward does not hold it
 * but knows the node that made it, and the result's memory goes when forward is through with it. In
 * backward the node makes it again, with the same kernel and so with the same bits, before the
 * first operation that reads it, and lets go of it when the last one has, or at the latest when its
 * own backward has run, which is after all of them. (In the second run of a checkpointed part,
 * where memory is what counts, it lets go after each.) A result that somebody holds until then is
 * read as it is; so is one that the second run of a checkpointed part stops at. What comes of such
 * a result is kept: otherwise a chain of them would be made again from its beginning. torch.compile
 * decides alike where it cuts forward from backward. An operation with such a result has a
 * `derive`. */
#pragma once
#include "src/autograd/autograd.h"

/* Node `n`, which has just been recorded and keeps all that it saved, can make `result` again.
 * `for_each`: for each that reads it. */
FSDP_MUST_CHECK fsdp_status fsdp_derived_create(fsdp_node *n, fsdp_tensor *result, bool for_each);
/* The node goes: nobody asks for its result any more. Accepts NULL. */
void fsdp_derived_destroy(fsdp_derived *derived);
/* The result, which has just been made, stays for those that will read it. */
void fsdp_derived_hold(fsdp_derived *derived);
/* Nobody will read it but those that save it now. Accepts NULL. */
void fsdp_derived_let_go(fsdp_derived *derived);
/* A node saves the result; and will not read it any more. That may be after the result's own node
 * went (NULL): backward does not come to a node that no root leads to. */
void fsdp_derived_begin_read(fsdp_derived *derived);
void fsdp_derived_end_read(fsdp_derived *derived);
/* Has a node saved it that has still to read it? Accepts NULL. */
bool fsdp_derived_is_wanted(const fsdp_derived *derived);
/* Is `t` the result of a node of the scope's tape that can make it again? */
bool fsdp_is_derived(const fsdp_scope *s, const fsdp_tensor *t);
/* All that `n` saved is there from here on, until the node is cleared. s has no tape. */
void fsdp_node_restore(fsdp_scope *s, const fsdp_tape *tape, fsdp_node *n);
