/* Declarations that the files of src/train share with each other and with src/plan/plan.c.
 *
 * This folder has more than 25 source files, because the steps of a run and its checkpoints are
 * parts of one object, the trainer. */
#pragma once
#include <fsdp/data.h>
#include <fsdp/text.h>
#include <fsdp/train.h>

#include "src/comm/comm.h"
#include "src/data/labels/class_text.h"
#include "src/models/generation_config.h"
#include "src/monitor/histograms.h"
#include "src/monitor/monitor.h"
#include "src/pretrained/model_tokenizer.h"
#include "src/profile/profile.h"
#include "src/report/hostmem.h"
#include "src/report/rouge.h"
#include "src/report/tracking.h"
#include "src/train/step.h"
#include "src/train/trainer.h"
#include "src/train_config/config_lora.h"

/* The results of one epoch, which are one row of the table at the end. */
typedef struct fsdp_epoch_record {
    double train_loss, validation_loss, seconds, tokens_per_s;
    fsdp_measures measures; /* measures of a classifier in the validation of this epoch */
    bool saved;
} fsdp_epoch_record;

/* Sums over the finished steps of the current epoch. */
typedef struct fsdp_epoch_sum {
    double loss; /* sum of the losses of label tokens, in steps whose loss is finite */
    /* finite: number of label tokens in the steps whose loss is finite. labels: number of label
     * tokens in all steps. */
    int64_t finite, labels;
    int64_t tokens;
    double seconds; /* sum of the durations of the steps */
} fsdp_epoch_sum;

/* A checkpoint that was saved. Times are in seconds. */
typedef struct fsdp_checkpoint_report {
    int64_t step;
    /* Time from the call that began the save until the checkpoint's folder appeared. */
    double seconds;
    /* call_s: the time for which the save stopped the training. step_s: call_s plus the duration of
     * the last step before the save. */
    double call_s, step_s;
    double held_s; /* time that later steps lost by copying parts of the snapshot and by waiting */
    uint64_t copied_bytes;
} fsdp_checkpoint_report;

typedef struct fsdp_async_checkpoint fsdp_async_checkpoint;

typedef struct fsdp_trainer {
    const fsdp_train_config *config; /* points to `completed` */
    /* a copy of the caller's configuration, with the values that depend on the task filled in */
    fsdp_train_config completed;
    fsdp_task task; /* the model's task; set when the model is opened */
    fsdp_group *group;
    FILE *out; /* NULL: do not print; always NULL on ranks other than 0 */
    /* the progress bar of the current epoch; NULL while no steps run; borrowed */
    fsdp_progress *progress;
    fsdp_train_result *result;
    fsdp_device *device;
    int threads; /* number of threads of this rank */
    fsdp_model_tokenizer tokenizer;
    /* HYBRID_SHARD: mesh [replicas, ranks per replica]; otherwise NULL */
    fsdp_device_mesh *mesh;
    fsdp_activation_offload *offload; /* NULL without --activation-offload */
    /* True if the model is a masked language model and remains one. False if it becomes a
     * classifier, or if --task is given. */
    bool keeps_lm_head;
    /* Classes that were found in the training rows; {0}: the model has the classes of
     * config.json. */
    fsdp_found_labels found_labels;
    fsdp_train_lora lora; /* the adapter that the flags describe; config.r is 0: none */
    fsdp_model *model;
    fsdp_dataset *train_set, *validation_set; /* validation_set is NULL without validation */
    fsdp_loader *train_loader, *validation_loader;
    fsdp_train_loop loop;
    /* gets the rows of metrics; NULL if no option asks for them, and on ranks other than 0 */
    fsdp_tracking *tracking;
    /* rank 0: path of the file of metrics; NULL if no such file is written, or if it is not a
     * regular file */
    char *metrics_path;
    fsdp_monitor *monitor;       /* writes the file of this rank; NULL if ranks write no files */
    fsdp_histograms *histograms; /* NULL without --log-histograms */
    fsdp_profile *profile;       /* NULL without --profile, or if no steps are left */
    fsdp_hostmem *hostmem;       /* samples the memory of this host; used on its first rank only */
    fsdp_lr_schedule schedule;
    int64_t steps_per_epoch, total_steps, step;
    /* step at which this run began: 0, or the step of the resumed checkpoint */
    int64_t first_step;
    /* [step - first_step]: seconds of each step of this run, for the median */
    double *step_seconds;
    size_t cap_step_seconds;
    fsdp_epoch_sum sum;            /* sums over the steps of the current epoch that are done */
    fsdp_epoch_record record;      /* record of the current epoch */
    char *checkpoint_dir;          /* NULL: the run neither saves nor resumes */
    fsdp_async_checkpoint *saving; /* the checkpoint in progress; NULL: none */
    bool knows_disks;              /* true if fsdp_checkpoint_print_disks() was called before */
    int64_t n_saved;               /* rank 0: number of checkpoints that were saved */
    /* rank 0: the largest call_s, step_s and held_s of all saved checkpoints */
    fsdp_checkpoint_report slowest;
    char *resumed_from; /* path of the checkpoint; NULL: the run was not resumed */
    /* --task-prefix of the run that is resumed; NULL: unknown, or the run is not resumed; owned */
    char *resumed_prefix;
    /* name of a parameter that is trained now but was frozen in the checkpoint, or NULL */
    const char *was_frozen;
    /* True if this run itself has saved the model. False if it was saved only by the earlier run
     * from which this run was resumed, or not at all. */
    bool saved_model;
    bool makes_examples; /* true: generate example texts at the end of the run, with the settings
                          * `generation` */
    fsdp_generation_config generation;
    fsdp_generation_config prediction; /* settings with which --predict-with-generate generates
                                        * texts */
    /* --metric-for-best-model: the best value so far, negated if greater is better; INFINITY: none
     * yet */
    double best;
    fsdp_epoch_record *epochs;
    size_t n_epochs, cap_epochs;
    double started_s;
} fsdp_trainer;

static inline bool fsdp_trainer_is_first(const fsdp_trainer *t)
{
    return fsdp_group_rank(t->group) == 0;
}

/* Return true if the run may overwrite existing files at the paths of its outputs. It may do so in
 * three cases: the user gave --overwrite-output, the run resumes from its own folder of
 * checkpoints, or an earlier attempt of the same job may have written the files. */
bool fsdp_trainer_may_replace(const fsdp_trainer *t);

/* --- set-up (trainer_open.c) --- */

/* Check the number of ranks and the outputs, then open the device, the model, the data and the
 * optimizer. Called before fsdp_checkpoint_resume(). Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open(fsdp_trainer *t);
/* Called after fsdp_checkpoint_resume(). Open metrics and profile, and print the model, the ranks
 * and the data. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_reports(fsdp_trainer *t);
/* Open the model with its units. t->group and t->device must be open. Called by fsdp_trainer_open()
 * and by `fsdp plan`. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_model(fsdp_trainer *t);
/* Open the tape, the optimizer and the loss scaler. The model must be open. Called by
 * fsdp_trainer_open() and by `fsdp plan`. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_loop(fsdp_trainer *t);
/* Print the tree of the open model in the style that --print-model selects. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_print_model(const fsdp_trainer *t, FILE *out);
/* Called by fsdp_trainer_open_reports() (tracking.c). Open t->tracking on rank 0, print where its
 * files are, and report the options of the run. A resumed run keeps the rows that were reported up
 * to the step of its checkpoint. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_tracking(fsdp_trainer *t);
/* Called by fsdp_trainer_open_reports() (tracking.c). Open t->monitor if there is a file of
 * metrics. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_monitor(fsdp_trainer *t);
/* Called by fsdp_trainer_open_reports() (tracking.c). Prepare --log-histograms. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_open_histograms(fsdp_trainer *t);
/* Report the histograms of the weights, if it is time for them after the step. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_report_weights(fsdp_trainer *t);
/* If t->monitor has failed since the last call, print a warning. */
void fsdp_trainer_check_monitor(const fsdp_trainer *t);
/* Check that the files of --metrics, --profile and --plot and the folder of --logging-dir can be
 * written, without leaving anything behind. The message names the flag and the path. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_check_tracking(const fsdp_train_config *config);
/* Close t->tracking, and wait until the program of --tracker-command exits. The wait has a time
 * limit, which is shorter if the run has failed. */
void fsdp_trainer_close_tracking(fsdp_trainer *t, bool failed);
void fsdp_trainer_fini(fsdp_trainer *t); /* closes whatever is open, including the device */

/* Record what this rank is doing, and the number of steps that it has finished. If this rank is
 * lost, the error messages of its peers contain both. */
static inline void fsdp_trainer_at(const fsdp_trainer *t, const char *what)
{
    fsdp_group_at(t->group, (uint32_t)t->step, "", what);
}

/* Do what fsdp_trainer_at() does, and also record `what` in the file of this rank, which `fsdp
 * dashboard` shows. */
static inline void fsdp_trainer_enter(const fsdp_trainer *t, const char *what)
{
    fsdp_trainer_at(t, what);
    fsdp_monitor_at(t->monitor, what);
}

/* Return true for tasks whose models are judged by perplexity, which is the exponential of the mean
 * loss over tokens. */
static inline bool fsdp_train_has_perplexity(fsdp_task task)
{
    return task == FSDP_TASK_CAUSAL_LM || task == FSDP_TASK_MASKED_LM;
}

/* Return the measures of the model's task; *n is set to their number, which is 0 if the task is not
 * classification. */
static inline const fsdp_measure_field *fsdp_trainer_measures(const fsdp_trainer *t, size_t *n)
{
    const fsdp_measure_field *fields = fsdp_measure_fields(t->loop.problem_type, n);
    if (t->task != FSDP_TASK_CLASSIFICATION)
        *n = 0;
    return fields;
}

/* Set the parameters to their values for the next step or, if `evaluates`, for an evaluation. They
 * differ for Schedule-Free AdamW only. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_set_mode(const fsdp_trainer *t, bool evaluates);
/* Print a line to rank 0's output and flush it, so that it appears even if the run is killed. */
void fsdp_trainer_print(const fsdp_trainer *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sample the host memory of all ranks. Must not be called while a step is timed. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_report_sample_memory(fsdp_trainer *t);
/* Report a step to t->tracking. No effect if it is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_report_step(fsdp_trainer *t, const fsdp_step_result *result,
                                             double lr, double seconds, int64_t epoch);
/* Report a validation to t->tracking. With --predict-with-generate, `rouge` has the scores, and
 * `length` is the mean number of generated tokens. Otherwise `rouge` is NULL. No effect if
 * t->tracking is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_report_validation(fsdp_trainer *t, const fsdp_step_result *result,
                                                   double seconds, int64_t epoch,
                                                   const fsdp_rouge *rouge, double length);
/* Called by rank 0. Count a checkpoint that was saved, and report it to t->tracking. */
FSDP_MUST_CHECK fsdp_status fsdp_report_checkpoint(fsdp_trainer *t,
                                                   const fsdp_checkpoint_report *report);
/* Called before the first step. Set t->makes_examples to whether texts can be generated at the end
 * (--generate-examples). If they cannot, print the reason as a warning. The run continues, because
 * training matters more than examples. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_examples_prepare(fsdp_trainer *t);
/* Return how many tokens at the beginning of a row are the prompt that a causal model continues.
 * The rest of the row is the reference. */
size_t fsdp_example_prompt_length(const fsdp_example *example);
/* Check the prompts of validation rows of a causal model: each must have a token, and leave room
 * for a new one. Check the rows `first`, `first` + `step`, ... below `rows`. FSDP_ERR_INVALID names
 * the row, which is counted from 1. Not collective. */
FSDP_MUST_CHECK fsdp_status fsdp_check_prompts(const fsdp_trainer *t,
                                               const fsdp_generation_config *config, int64_t first,
                                               int64_t step, int64_t rows);
/* Generate texts for the first validation rows, and print them with their references. Called if
 * t->makes_examples is true. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_report_examples(fsdp_trainer *t);
/* Print at the start of the run how the learning rate changes, and the text that is put before each
 * source text, since both may be defaults that the user does not know. Called when the data and the
 * schedule are open, and t->out is not NULL. */
void fsdp_report_start(const fsdp_trainer *t);
/* Print the command that generates a text with the saved model, if the model generates texts. */
FSDP_MUST_CHECK fsdp_status fsdp_report_next(const fsdp_trainer *t);
/* Print the final tables (epochs, memory of each rank by purpose), the host memory and the step
 * time, and report a summary to t->tracking. Collective, since rank 0 gathers the memory of all
 * ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_report_summary(fsdp_trainer *t);
