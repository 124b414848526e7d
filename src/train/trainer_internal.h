/* What trainer.c shares with report.c. */
#pragma once
#include <fsdp/data.h>
#include <fsdp/text.h>

#include "src/comm/comm.h"
#include "src/train/hostmem.h"
#include "src/train/metrics.h"
#include "src/train/model.h"
#include "src/train/step.h"
#include "src/train/trainer.h"

/* One line of the summary table. */
typedef struct fsdp_epoch_record {
    double train_loss, validation_loss, seconds, tokens_per_s;
    bool saved;
} fsdp_epoch_record;

typedef struct fsdp_trainer {
    const fsdp_train_config *config;
    fsdp_group *group;
    FILE *out; /* NULL on ranks other than 0 */
    fsdp_train_result *result;
    fsdp_device *device;
    int threads;               /* of this rank */
    fsdp_tokenizer *tokenizer; /* NULL for ready-made ids */
    char no_tokenizer[256];    /* why it is NULL */
    fsdp_model *model;
    fsdp_dataset *train_set, *validation_set; /* validation_set NULL: none */
    fsdp_loader *train_loader, *validation_loader;
    fsdp_train_loop loop;
    fsdp_metrics *metrics; /* rank 0, if asked for */
    fsdp_hostmem *hostmem; /* rank 0 */
    fsdp_lr_schedule schedule;
    int64_t steps_per_epoch, total_steps, step;
    double *step_seconds; /* [step]: for the median */
    size_t cap_step_seconds;
    fsdp_epoch_record *epochs;
    size_t n_epochs, cap_epochs;
    double started_s;
} fsdp_trainer;

static inline bool fsdp_trainer_is_first(const fsdp_trainer *t)
{
    return fsdp_group_rank(t->group) == 0;
}

/* What this rank is about, for the message if it fails there; after the last step done. */
static inline void fsdp_trainer_at(const fsdp_trainer *t, const char *what)
{
    fsdp_group_at(t->group, (uint32_t)t->step, "", what);
}

/* Sample the host memory of all ranks; outside of timed steps. */
FSDP_MUST_CHECK fsdp_status fsdp_report_sample_memory(fsdp_trainer *t);
/* One JSON line each; no effect without --metrics. */
FSDP_MUST_CHECK fsdp_status fsdp_report_step(fsdp_trainer *t, const fsdp_step_result *result,
                                             double lr, double seconds, int64_t epoch);
FSDP_MUST_CHECK fsdp_status fsdp_report_validation(fsdp_trainer *t, const fsdp_step_result *result,
                                                   double seconds, int64_t epoch);
/* Generated texts beside their references (--generate-examples). Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_report_examples(fsdp_trainer *t);
/* Tables at the end: epochs, memory by purpose of each rank, host memory, step time; a summary
 * line in the metrics. Collective (memory is gathered). */
FSDP_MUST_CHECK fsdp_status fsdp_report_summary(fsdp_trainer *t);
