/* Declarations that trainer.c shares with trainer_open.c, checkpoint.c, report.c and plan.c. */
#pragma once
#include <fsdp/data.h>
#include <fsdp/text.h>
#include <fsdp/train.h>

#include "src/comm/comm.h"
#include "src/models/generation_config.h"
#include "src/report/hostmem.h"
#include "src/report/metrics.h"
#include "src/pretrained/model_tokenizer.h"
#include "src/profile/profile.h"
#include "src/train/step.h"
#include "src/train/trainer.h"

/* One line of the summary table. */
typedef struct fsdp_epoch_record {
    double train_loss, validation_loss, seconds, tokens_per_s;
    double accuracy, f1; /* validation of a classifier */
    bool saved;
} fsdp_epoch_record;

/* Sums of the current epoch. */
typedef struct fsdp_epoch_sum {
    double loss;            /* sum over label tokens of the steps whose loss is finite */
    int64_t finite, labels; /* label tokens of steps whose loss is finite, and of all steps */
    int64_t tokens;
    double seconds; /* sum over steps */
} fsdp_epoch_sum;

/* A checkpoint that was written while training continued; times in seconds. */
typedef struct fsdp_checkpoint_report {
    int64_t step;
    double seconds;        /* from the call until the folder appeared */
    double call_s, step_s; /* of the call, and of the step that triggered it including the call */
    double held_s;         /* that later steps spent copying and waiting */
    uint64_t copied_bytes;
} fsdp_checkpoint_report;

typedef struct fsdp_async_checkpoint fsdp_async_checkpoint;

typedef struct fsdp_trainer {
    const fsdp_train_config *config; /* &completed */
    /* the caller's configuration, with values that depend on the task */
    fsdp_train_config completed;
    fsdp_task task; /* of the model; known once the model is open */
    fsdp_group *group;
    FILE *out;               /* NULL on ranks other than 0 */
    fsdp_progress *progress; /* for the current steps, else NULL; borrowed */
    fsdp_train_result *result;
    fsdp_device *device;
    int threads; /* threads of this rank */
    fsdp_model_tokenizer tokenizer;
    fsdp_device_mesh *mesh;           /* HYBRID_SHARD: (replicas, ranks of each), else NULL */
    fsdp_activation_offload *offload; /* --activation-offload, else NULL */
    fsdp_model *model;
    fsdp_dataset *train_set, *validation_set; /* validation_set NULL: none */
    fsdp_loader *train_loader, *validation_loader;
    fsdp_train_loop loop;
    fsdp_metrics *metrics; /* rank 0, if requested */
    fsdp_profile *profile; /* if requested */
    fsdp_hostmem *hostmem; /* rank 0 */
    fsdp_lr_schedule schedule;
    int64_t steps_per_epoch, total_steps, step;
    int64_t first_step;   /* step at which this run began: 0, or that of its checkpoint */
    double *step_seconds; /* [step - first_step], for the median */
    size_t cap_step_seconds;
    fsdp_epoch_sum sum;             /* sums of the current epoch so far */
    fsdp_epoch_record record;       /* record of the current epoch */
    char *checkpoint_dir;           /* NULL: no checkpoints */
    fsdp_async_checkpoint *saving;  /* the checkpoint in progress, else NULL */
    int64_t n_saved;                /* checkpoints that were completed in the background */
    fsdp_checkpoint_report slowest; /* the largest value of each figure over these checkpoints */
    char *resumed_from;             /* NULL: not resumed */
    /* a parameter that is trained now but was frozen in the checkpoint, or NULL */
    const char *was_frozen;
    bool saved_model;    /* by this run, not by the one that it continues */
    bool makes_examples; /* generate example texts at the end, with the settings of `generation` */
    fsdp_generation_config generation;
    fsdp_epoch_record *epochs;
    size_t n_epochs, cap_epochs;
    double started_s;
} fsdp_trainer;

static inline bool fsdp_trainer_is_first(const fsdp_trainer *t)
{
    return fsdp_group_rank(t->group) == 0;
}

/* May the run overwrite files at its outputs? Yes if they are its own, because it resumes from one
 * of its own checkpoints (checkpoint.h), or if the user allows it. */
bool fsdp_trainer_may_replace(const fsdp_trainer *t);

/* --- set-up (trainer_open.c) --- */

/* Open all that is needed before a checkpoint can be resumed. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open(fsdp_trainer *t);
/* After resuming: open metrics and profile, and print what is trained on what. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_reports(fsdp_trainer *t);
/* Parts of the set-up that a plan of the run shares: first the model with its units, which needs
 * `group` and `device`, then tape and optimizer. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_model(fsdp_trainer *t);
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_loop(fsdp_trainer *t);
/* Print the tree of the open model in the form of --print-model. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_print_model(const fsdp_trainer *t, FILE *out);
void fsdp_trainer_fini(fsdp_trainer *t); /* closes whatever was opened, including the device */

/* Record what this rank is doing, after the last finished step; an error message of a lost rank
 * reports it. */
static inline void fsdp_trainer_at(const fsdp_trainer *t, const char *what)
{
    fsdp_group_at(t->group, (uint32_t)t->step, "", what);
}

/* Print a line on rank 0's output and flush it, so that it is there even if the run is killed next.
 */
void fsdp_trainer_say(const fsdp_trainer *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sample the host memory of all ranks; called outside timed steps. */
FSDP_MUST_CHECK fsdp_status fsdp_report_sample_memory(fsdp_trainer *t);
/* Write one JSON line each; no effect without --metrics. */
FSDP_MUST_CHECK fsdp_status fsdp_report_step(fsdp_trainer *t, const fsdp_step_result *result,
                                             double lr, double seconds, int64_t epoch);
FSDP_MUST_CHECK fsdp_status fsdp_report_validation(fsdp_trainer *t, const fsdp_step_result *result,
                                                   double seconds, int64_t epoch);
/* Report a checkpoint that was written while training continued. Rank 0. */
FSDP_MUST_CHECK fsdp_status fsdp_report_checkpoint(fsdp_trainer *t,
                                                   const fsdp_checkpoint_report *report);
/* Before the first step: find out whether texts can be generated at the end (--generate-examples).
 * If not, the reason is printed; it is not an error, because the training matters more than its
 * examples. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_examples_prepare(fsdp_trainer *t);
/* Print the generated texts and their references, if fsdp_examples_prepare() found that it is
 * possible. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_report_examples(fsdp_trainer *t);
/* Print the tables at the end: epochs, memory of each rank by purpose, host memory, step time. Adds
 * a summary line to the metrics. Collective (memory is gathered). */
FSDP_MUST_CHECK fsdp_status fsdp_report_summary(fsdp_trainer *t);
