/* Where the second run of a checkpointed part may stop computing.
 *
 * Note [Early stop]. The second run is for what backward reads: saved tensors. What comes after the
 * last of them is computed for nothing, in a transformer's block the last product and the addition
 * to the residual stream, a quarter to a third of the block's products. PyTorch's checkpoint leaves
 * the part there by an exception (set_checkpoint_early_stop()). Here the part runs to its end, so
 * that its nodes are on the tape and its modules' hooks are called, but from there on operations
 * get no kernels and make tensors without memory, as on the meta device.
 *
 * Where that is, the first run finds: it numbers operations in the order they are counted, marks
 * their results with the number, and remembers the highest one that a later operation might save.
 * When in doubt it takes an operation for one that is needed. That one may be needed for what it
 * keeps beside its result (a norm's moments), and the result for nothing. The first run counts all
 * operations that the second one can count, so a difference makes the second run stop later or, if
 * the part computed something else, fail. Calls within the call are checkpointed in the second run
 * only: then it does not stop. */
#pragma once
#include "src/autograd/autograd.h"

typedef struct fsdp_early_stop {
    bool is_off;
    const fsdp_args *inputs; /* of the part, in its first run */
    uint64_t mark;           /* generation of results of the first run */
    uint32_t n;              /* operations so far */
    uint32_t needed;         /* number of the last one with values that backward reads; 0: none */
    bool result_is_needed;   /* not only what that one keeps beside */
} fsdp_early_stop;

/* Around a run of the part: its operations are counted in between. */
void fsdp_early_stop_begin_first(fsdp_early_stop *stop, fsdp_run *run, uint64_t mark,
                                 const fsdp_args *inputs);
void fsdp_early_stop_end_first(fsdp_run *run);
void fsdp_early_stop_begin_second(fsdp_early_stop *stop, fsdp_run *run);
void fsdp_early_stop_end_second(fsdp_run *run);
/* An operation has computed, or would have: fsdp_record() says so, or who has two that share a
 * node.
 */
void fsdp_early_stop_count(fsdp_scope *s, const fsdp_record_args *args);
/* Is the operation that was counted last the one where a second run stops? Backward then begins
 * with what reads its result. */
bool fsdp_early_stop_is_here(const fsdp_run *run);
/* Will the second run stop at the operation that is going to be counted next, and nobody read its
 * result? It may do without the values. */
bool fsdp_early_stop_is_unread(const fsdp_run *run);
