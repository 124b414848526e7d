/* What trainer.c shares with trainer_open.c, checkpoint.c, report.c and plan.c. */
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
    double accuracy, f1; /* of a classifier's validation */
    bool saved;
} fsdp_epoch_record;

/* Of the epoch under way. */
typedef struct fsdp_epoch_sum {
    double loss;            /* sum over label tokens of steps whose loss is finite */
    int64_t finite, labels; /* such label tokens; all */
    int64_t tokens;
    double seconds; /* of steps */
} fsdp_epoch_sum;

/* Of a checkpoint that was written beside training; times in seconds. */
typedef struct fsdp_checkpoint_report {
    int64_t step;
    double seconds;        /* until it was there */
    double call_s, step_s; /* of the call; of the step that triggered it, with the call */
    double held_s;         /* for copies and waiting in later steps */
    uint64_t copied_bytes;
} fsdp_checkpoint_report;

typedef struct fsdp_async_checkpoint fsdp_async_checkpoint;

typedef struct fsdp_trainer {
    const fsdp_train_config *config; /* &completed */
    fsdp_train_config completed;     /* the caller's, with what depends on the task */
    fsdp_task task;                  /* the model's; known once the model is open */
    fsdp_group *group;
    FILE *out;               /* NULL on ranks other than 0 */
    fsdp_progress *progress; /* of the steps under way, else NULL; borrowed */
    fsdp_train_result *result;
    fsdp_device *device;
    int threads; /* of this rank */
    fsdp_model_tokenizer tokenizer;
    fsdp_device_mesh *mesh;           /* HYBRID_SHARD: (replicas, ranks of each), else NULL */
    fsdp_activation_offload *offload; /* --activation-offload, else NULL */
    fsdp_model *model;
    fsdp_dataset *train_set, *validation_set; /* validation_set NULL: none */
    fsdp_loader *train_loader, *validation_loader;
    fsdp_train_loop loop;
    fsdp_metrics *metrics; /* rank 0, if asked for */
    fsdp_profile *profile; /* if asked for */
    fsdp_hostmem *hostmem; /* rank 0 */
    fsdp_lr_schedule schedule;
    int64_t steps_per_epoch, total_steps, step;
    int64_t first_step;   /* at which this run began: 0, or that of its checkpoint */
    double *step_seconds; /* [step - first_step]: for the median */
    size_t cap_step_seconds;
    fsdp_epoch_sum sum;             /* of the epoch under way, as is */
    fsdp_epoch_record record;       /* this */
    char *checkpoint_dir;           /* NULL: none */
    fsdp_async_checkpoint *saving;  /* the one under way, else NULL */
    int64_t n_saved;                /* those that ended, and the worst of each figure */
    fsdp_checkpoint_report slowest; /* of them */
    char *resumed_from;             /* NULL: nothing */
    const char *was_frozen;         /* a parameter that is trained now but was not there; or NULL */
    bool saved_model;               /* this run, not the one that it goes on from */
    bool makes_examples;            /* at the end, with these settings: */
    fsdp_generation_config generation;
    fsdp_epoch_record *epochs;
    size_t n_epochs, cap_epochs;
    double started_s;
} fsdp_trainer;

static inline bool fsdp_trainer_is_first(const fsdp_trainer *t)
{
    return fsdp_group_rank(t->group) == 0;
}

/* What lies at the run's outputs: its own, since it goes on from one of its own checkpoints
 * (checkpoint.h), or given up by the user. */
bool fsdp_trainer_may_replace(const fsdp_trainer *t);

/* --- set-up (trainer_open.c) --- */

/* All that must be there before a checkpoint can be resumed. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open(fsdp_trainer *t);
/* After that: metrics and profile; what is trained on what is printed. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_reports(fsdp_trainer *t);
/* Parts of the set-up that a plan of the run does too: model with its units, once `group` and
 * `device` are there; then tape and optimizer. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_model(fsdp_trainer *t);
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_loop(fsdp_trainer *t);
/* The tree of the open model, as --print-model wants it. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_print_model(const fsdp_trainer *t, FILE *out);
void fsdp_trainer_fini(fsdp_trainer *t); /* whatever was opened, the device too */

/* What this rank is about, for the message if it fails there; after the last step done. */
static inline void fsdp_trainer_at(const fsdp_trainer *t, const char *what)
{
    fsdp_group_at(t->group, (uint32_t)t->step, "", what);
}

/* A line of its own on rank 0's output, which is there even if the run is killed next. */
void fsdp_trainer_say(const fsdp_trainer *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sample the host memory of all ranks; outside of timed steps. */
FSDP_MUST_CHECK fsdp_status fsdp_report_sample_memory(fsdp_trainer *t);
/* One JSON line each; no effect without --metrics. */
FSDP_MUST_CHECK fsdp_status fsdp_report_step(fsdp_trainer *t, const fsdp_step_result *result,
                                             double lr, double seconds, int64_t epoch);
FSDP_MUST_CHECK fsdp_status fsdp_report_validation(fsdp_trainer *t, const fsdp_step_result *result,
                                                   double seconds, int64_t epoch);
/* Rank 0, of a checkpoint written beside training. */
FSDP_MUST_CHECK fsdp_status fsdp_report_checkpoint(fsdp_trainer *t,
                                                   const fsdp_checkpoint_report *report);
/* Whether generated texts can be shown at the end (--generate-examples), before there is a first
 * step. What they cannot be made with is said and is no error: a training is worth more than its
 * examples. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_examples_prepare(fsdp_trainer *t);
/* These texts beside their references; after that, if there are to be any. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_report_examples(fsdp_trainer *t);
/* Tables at the end: epochs, memory by purpose of each rank, host memory, step time; a summary
 * line in the metrics. Collective (memory is gathered). */
FSDP_MUST_CHECK fsdp_status fsdp_report_summary(fsdp_trainer *t);
