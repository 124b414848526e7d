/* `fsdp train`: data, model, optimizer, epochs, validation, saving, reports. */
#pragma once
#include <stdio.h>

#include <fsdp/comm.h>

#include "src/train/config.h"

enum {
    /* Memory of a rank that is not in its tensors: Note [Beside the plan] in src/plan/plan.c */
    FSDP_BESIDE_TENSORS_BYTES = 64 << 20
};

/* What a run came to; for tests and for programs that embed the trainer. */
typedef struct fsdp_train_result {
    int64_t steps;               /* steps done, skipped ones included */
    int64_t skipped_steps;       /* of these, in which float16 overflowed: nothing was updated */
    int64_t overflowed_forwards; /* of these, whose loss itself was not finite */
    double first_loss;           /* of the first step */
    double train_loss;           /* mean over the label tokens of the last epoch */
    double validation_loss;      /* last one; NAN without validation */
    double best_validation_loss;
    double accuracy, f1; /* of a classifier's last validation */
    bool saved;          /* config->output holds the model */
    bool refused;        /* for what lies at its outputs: to start it again is pointless */
} fsdp_train_result;

/* Train as config says, on every rank of group. Rank 0 prints to `out` (NULL: nothing). Collective;
 * a failure on one rank is a failure on all (fsdp_group_abort by the caller's cleanup).
 * config->memory_limit bounds the memory of tensors; whether the run fits into it, the caller asks
 * before (fsdp_memory_limit_check() in src/plan/memory_limit.h). */
FSDP_MUST_CHECK fsdp_status fsdp_train_run(const fsdp_train_config *config, fsdp_group *group,
                                           FILE *out, fsdp_train_result *result);
