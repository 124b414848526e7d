/* Decides where the second run of a checkpointed part may stop computing.
 *
 * Note [Early stop]. The second run exists for the tensors that backward reads. Everything after
 * the last of them is computed in vain: in a transformer block the last product and the addition to
 * the residual stream, which is a quarter to a third of the block's products. PyTorch's checkpoint
 * leaves the part there with an exception (set_checkpoint_early_stop()). Here the part runs to its
 * end, so its nodes are recorded and its modules' hooks are called. From that point on, however,
 * operations get no kernels and create tensors without memory, as on the meta device.
 *
 * The first run finds the stopping point. It numbers operations in the order in which they are
 * counted, marks their results with the number, and remembers the highest one that a later
 * operation might save. When in doubt it considers an operation needed. The last one may be needed
 * only for what it keeps besides its result (a norm's moments), and not for the result. The first
 * run counts all operations that the second one can count. If the two differ, the second run
 * therefore stops later or, if the part computed something else, fails. Calls inside the part are
 * checkpointed only in its second run; then the second run does not stop early. */
#pragma once
#include "src/autograd/autograd.h"

typedef struct fsdp_early_stop {
    bool is_off;
    const fsdp_args *inputs; /* inputs of the part, in its first run */
    uint64_t mark;           /* generation of the results of the first run */
    uint32_t n;              /* operations so far */
    uint32_t needed;         /* number of the last operation whose values backward reads; 0: none */
    bool result_is_needed;   /* its result is needed, not only what it keeps besides */
} fsdp_early_stop;

/* Called before and after a run of the part, whose operations are counted. */
void fsdp_early_stop_begin_first(fsdp_early_stop *stop, fsdp_run *run, uint64_t mark,
                                 const fsdp_args *inputs);
void fsdp_early_stop_end_first(fsdp_run *run);
void fsdp_early_stop_begin_second(fsdp_early_stop *stop, fsdp_run *run);
void fsdp_early_stop_end_second(fsdp_run *run);
/* Count an operation that has computed, or would have. Called by fsdp_record(), and by code in
 * which two operations share a node. */
void fsdp_early_stop_count(fsdp_scope *s, const fsdp_record_args *args);
/* Is the operation counted last the one at which a second run stops? Then the first node of
 * backward reads its result. */
bool fsdp_early_stop_is_here(const fsdp_run *run);
/* Will the second run stop at the operation counted next, without any reader of its result? Then
 * its values need not be computed. */
bool fsdp_early_stop_is_unread(const fsdp_run *run);
