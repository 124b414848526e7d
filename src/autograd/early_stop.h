/* Decides where the second run of a checkpointed part may stop computing.
 *
 * Note [Early stop]. The second run is needed only for the tensors that backward reads. The
 * stopping point is directly after the operation that computes the last of these tensors.
 * Operations after the stopping point need not be computed. In a transformer block, these
 * operations are the last product and the addition to the residual stream. The last product is a
 * quarter to a third of the work of all products of the block. In PyTorch, checkpoint() leaves the
 * part with an exception at the stopping point (set_checkpoint_early_stop()). Here the part runs to
 * its end, so that its nodes are recorded and its modules' hooks are called. But from the stopping
 * point on, operations get no kernels and create tensors without memory, as on the meta device.
 *
 * The first run finds the stopping point. It numbers the operations and marks their results with
 * these numbers. It records the number of the last operation whose values backward might read. The
 * values are the operation's result, or only what the operation keeps besides its result (a norm's
 * moments). When in doubt, the first run assumes that backward reads them. The first run counts all
 * operations that the second run counts, and perhaps more. So if the two runs count differently,
 * the second run stops too late rather than too early. If the second run computes something that
 * the first run did not compute, backward may need a tensor that is computed after the stopping
 * point. Such a tensor has no values, so the second run then fails with an error.
 *
 * A part may contain calls of modules that have activation checkpointing of their own. Such
 * checkpointing takes effect only in the second run of the part. If a part contains such calls, its
 * second run does not stop early. */
#pragma once
#include "src/autograd/autograd.h"

typedef struct fsdp_early_stop {
    bool is_off;             /* the second run does not stop early */
    const fsdp_args *inputs; /* inputs of the checkpointed part; set only during its first run */
    /* The first run sets fsdp_tensor.generation of each result to this value, and fsdp_tensor.node
     * to the number of the operation that computed the result. */
    uint64_t mark;
    uint32_t n;      /* number of operations counted so far */
    uint32_t needed; /* number of the last operation whose values backward reads; 0: none */
    /* True if backward reads the result of operation `needed`. False if backward reads only what
     * this operation keeps besides its result. */
    bool result_is_needed;
} fsdp_early_stop;

/* A checkpointed part runs twice. Call begin_first() before its first run, and end_first() after
 * it. Call begin_second() before its second run, and end_second() after it. Operations are counted
 * only between `begin` and `end`. */
void fsdp_early_stop_begin_first(fsdp_early_stop *stop, fsdp_run *run, uint64_t mark,
                                 const fsdp_args *inputs);
void fsdp_early_stop_end_first(fsdp_run *run);
void fsdp_early_stop_begin_second(fsdp_early_stop *stop, fsdp_run *run);
void fsdp_early_stop_end_second(fsdp_run *run);
/* Count an operation, even if it has not computed values. fsdp_record() calls this. If one node
 * serves two operations, fsdp_record() counts only one of them, and the code of the operations
 * calls this for the other one. */
void fsdp_early_stop_count(fsdp_scope *s, const fsdp_record_args *args);
/* Return true if the operation that was counted last is the last one whose values backward reads
 * (fsdp_early_stop.needed). Backward begins with the last operations, so it needs the result of
 * this operation almost at once. Therefore, if this function returns true, the caller keeps the
 * result in memory and does not let backward recompute it. */
bool fsdp_early_stop_is_reached(const fsdp_run *run);
/* Return true if the second run of a checkpointed part will stop after the next operation, and if
 * backward does not read the result of that operation. The operation then need not compute its
 * result. */
bool fsdp_early_stop_is_unread(const fsdp_run *run);
