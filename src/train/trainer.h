/* Runs `fsdp train`, from opening the model and the data to the final report. */
#pragma once
#include <stdio.h>

#include <fsdp/comm.h>

#include "src/train/measures.h"
#include "src/train_config/config.h"

enum {
    /* Memory that a rank's process needs besides its tensors (Note [Beside the plan] in
     * src/plan/plan.c) */
    FSDP_BESIDE_TENSORS_BYTES = 64 << 20
};

/* The result of a run, for tests and for programs that embed the trainer. */
typedef struct fsdp_train_result {
    int64_t steps;               /* steps done, including skipped steps and the steps of the run
                                  * that this run resumes */
    int64_t skipped_steps;       /* steps in which float16 overflowed and nothing was updated */
    int64_t overflowed_forwards; /* skipped steps whose loss itself was not finite */
    double first_loss;           /* loss of the first step */
    double train_loss;           /* mean loss over the label tokens of the last epoch */
    double validation_loss;      /* loss of the last validation; NAN without validation */
    double best_validation_loss;
    fsdp_measures measures; /* measures of a classifier in the last validation */
    bool saved; /* the model was saved in config->output, by this run or by the run that it
                 * resumes */
    /* The run was refused before it began, because it would overwrite existing files, or because
     * the number of ranks is wrong. Restarting it does not help. */
    bool refused;
    /* Set only if the run failed with FSDP_ERR_NOMEM on a card: several ranks may use the card of
     * this rank, and this is the number of bytes that they can use for tensors together. 0: not
     * set, or unknown. */
    int64_t card_bytes;
    /* config.interrupted has ended the run. If the run saves checkpoints, it has saved one. */
    bool interrupted;
} fsdp_train_result;

/* Train as described by `config`. Called on every rank of `group`. Rank 0 prints to `out`; if `out`
 * is NULL, nothing is printed. Collective. If a rank fails, the caller must call
 * fsdp_group_abort(), so that the other ranks fail, too. config->memory_limit bounds the memory of
 * tensors. The caller checks beforehand that the run needs at most this much memory
 * (fsdp_memory_limit_check() in src/plan/memory_limit.h). */
FSDP_MUST_CHECK fsdp_status fsdp_train_run(const fsdp_train_config *config, fsdp_group *group,
                                           FILE *out, fsdp_train_result *result);
