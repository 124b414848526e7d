/* Decides where the second run of a checkpointed part may stop computing.
 *
 * Note [Early stop]. The second run is needed only for the tensors that backward reads. What comes
 * after the last of these tensors need not be computed. In a transformer block, the last product
 * and the addition to the residual stream come after it. This product is a quarter to a third of
 * the work of all products of the block. PyTorch's checkpoint leaves the part with an exception
 * after the last needed tensor (set_checkpoint_early_stop()). Here the part runs to its end, so
 * that its nodes are recorded and its modules' hooks are called. But from the stopping point,
 * operations get no kernels and create tensors without memory, as on the meta device.
 *
 * The first run finds the stopping point. It numbers the operations, marks their results with the
 * number, and records the number of the last operation whose values backward might read. When in
 * doubt, it treats an operation as needed. The values that backward reads may be the operation's
 * result, or only what the operation keeps besides its result (a norm's moments). The first run
 * counts all operations that the second run counts, and perhaps more. So if the counts of the two
 * runs differ, the second run stops later, or fails if the part computed something else. If the
 * part contains calls that are checkpointed themselves, they are checkpointed only in the part's
 * second run, and this run then does not stop early. */
#pragma once
#include "src/autograd/autograd.h"

typedef struct fsdp_early_stop {
    bool is_off;
    const fsdp_args *inputs; /* inputs of the part, in its first run */
    uint64_t mark;   /* the value that marks results of the first run, in fsdp_tensor.generation */
    uint32_t n;      /* operations counted so far */
    uint32_t needed; /* number of the last operation whose values backward reads; 0: none */
    bool result_is_needed; /* backward reads the result of operation `needed`; false: only what the
                              operation keeps besides its result */
} fsdp_early_stop;

/* Call before and after each run of the part; operations in between are counted. */
void fsdp_early_stop_begin_first(fsdp_early_stop *stop, fsdp_run *run, uint64_t mark,
                                 const fsdp_args *inputs);
void fsdp_early_stop_end_first(fsdp_run *run);
void fsdp_early_stop_begin_second(fsdp_early_stop *stop, fsdp_run *run);
void fsdp_early_stop_end_second(fsdp_run *run);
/* Count an operation, whether or not it has computed values. Called by fsdp_record(), and by code
 * in which two operations share a node. */
void fsdp_early_stop_count(fsdp_scope *s, const fsdp_record_args *args);
/* Is the operation that was counted last also the last one whose values backward needs? Then its
 * result is worth keeping: backward, which begins with the last operations, would recompute it
 * almost at once. */
bool fsdp_early_stop_is_reached(const fsdp_run *run);
/* Will the second run stop after the operation that is counted next, although backward does not
 * read the result of that operation? Then the values of the result need not be computed. */
bool fsdp_early_stop_is_unread(const fsdp_run *run);
