/* Runs `fsdp train`. Trains epoch by epoch, validates, and saves the model. trainer_open.c opens
 * what the run needs. */
#include <math.h>
#include <stdio.h>

#include <fsdp/train.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/io.h"
#include "src/comm/comm.h"
#include "src/hf/folder_kind.h"
#include "src/pretrained/lora_files.h"
#include "src/report/human.h"
#include "src/report/plot.h"
#include "src/train/checkpoint.h"
#include "src/train/predict.h"
#include "src/train/sources.h"
#include "src/train/trainer_internal.h"
#include "src/train_config/config_device.h"

/* --- validation and saving --- */

static void validation_progress(void *arg)
{
    fsdp_progress_update(arg, 1, NULL);
}

static fsdp_status open_progress(const fsdp_trainer *t, const char *what, fsdp_progress_color color,
                                 int64_t total, int64_t line_steps, fsdp_progress **progress)
{
    fsdp_progress_options options = {.description = what,
                                     .total = total,
                                     .color = color,
                                     .style = t->out ? FSDP_PROGRESS_AUTO : FSDP_PROGRESS_OFF,
                                     .line_steps = line_steps};
    return fsdp_progress_create(&options, progress);
}

fsdp_status fsdp_trainer_set_mode(const fsdp_trainer *t, bool evaluates)
{
    FSDP_TRY(evaluates ? fsdp_optimizer_eval(t->loop.optimizer)
                       : fsdp_optimizer_train(t->loop.optimizer));
    return t->config->optimizer == FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW
               ? fsdp_precompute_float8_dynamic_scale_for_fsdp(t->loop.module)
               : FSDP_OK;
}

static fsdp_status save_model(fsdp_trainer *t, const char *why)
{
    if (!t->config->save_model)
        return FSDP_OK;
    /* An interrupted run that saves no checkpoints ends here, without saving its model. A run that
     * saves checkpoints does not end here: fsdp_checkpoint_at_step() saves one and ends the run. */
    if (t->config->save_strategy == FSDP_SAVE_NO && t->config->interrupted &&
        atomic_load(t->config->interrupted)) {
        t->result->interrupted = true;
        return fsdp_error(FSDP_ERR_STATE, "interrupted");
    }
    /* Wait for the checkpoint in progress, if there is one. A thread may be writing it into a
     * folder in `output`, and saving the model moves all files in `output`. */
    FSDP_TRY(fsdp_checkpoint_finish(t));
    fsdp_trainer_enter(t, "saving the model");
    /* If the folder `output` exists already, this run may overwrite it: check_outputs() has checked
     * this before the first step. */
    fsdp_model_save_options options = {
        .overwrite = true,
        .dtype = t->config->master_dtype,
        .tokenizer = t->config->tokenizer,
        .text_prefix = fsdp_train_uses_prefix(t) ? t->config->task_prefix : NULL};
    FSDP_TRY(fsdp_model_save(t->model, t->config->output, &options));
    fsdp_trainer_print(t, "--> saved the model in %s (%s)", t->config->output, why);
    t->result->saved = t->saved_model = true;
    return FSDP_OK;
}

/* Return true if the folder `output` has a model of the kind that this run saves: weights or, for a
 * run that trains an adapter, the values of an adapter. The folder may exist without a model,
 * because the run also writes its reports there (--report-to, --metrics, --plot). */
static bool output_has_model(const fsdp_trainer *t)
{
    return t->model->lora ? fsdp_lora_has_values(t->config->output)
                          : fsdp_folder_has_weights(t->config->output);
}

/* Save the model at the end of the run, unless the model that must be kept is saved already.
 * Without validation, or with --no-load-best-model-at-end, the final state is saved now. Otherwise
 * the model was saved each time the measure --metric-for-best-model improved, so in most cases
 * nothing is left to save.
 *
 * If the measure has not improved in this run, the best model is the one that was saved by the
 * earlier run from which this run was resumed. But that run may have saved the model elsewhere or
 * not at all. So if `output` has no model, or if the earlier run had not saved any, save the final
 * state. */
static fsdp_status save_at_end(fsdp_trainer *t)
{
    int there = 0;
    if (!t->validation_loader || !t->config->load_best_model_at_end)
        return save_model(t, "end of training");
    if (!t->config->save_model || t->saved_model)
        return FSDP_OK;
    if (fsdp_trainer_is_first(t))
        there = t->result->saved && output_has_model(t);
    FSDP_TRY(fsdp_broadcast(t->group, &there, sizeof there, 0));
    return there
               ? FSDP_OK
               : save_model(t, "end of training: the best validation was before --resume, and its "
                               "model was not saved here");
}

/* Print the validation loss and the other measures of the task, after `when`. */
static void print_validation(const fsdp_trainer *t, const char *when,
                             const fsdp_step_result *result)
{
    size_t n;
    const fsdp_measure_field *fields = fsdp_trainer_measures(t, &n);
    if (!t->out)
        return;
    fprintf(t->out, "%sValidation Loss: %.4f", when, result->loss);
    if (fsdp_train_has_perplexity(t->task))
        fprintf(t->out, ", Perplexity: %.4g", exp(result->loss));
    for (size_t i = 0; i < n; i++)
        fprintf(t->out, ", %s: %.4f", fields[i].heading,
                fsdp_measure_get(&result->measures, &fields[i]));
    fputc('\n', t->out);
}

/* Return the number of batches of a rank in a validation. */
static int64_t validation_steps(const fsdp_trainer *t)
{
    const int64_t all = fsdp_loader_steps(t->validation_loader), most = t->config->eval_iters;
    return most && most < all ? most : all;
}

static void print_record(const fsdp_trainer *t, double measure)
{
    if (!t->out)
        return;
    if (t->config->metric_for_best_model == FSDP_BEST_LOSS)
        fprintf(t->out, "-->>>> New Val Loss Record: %.4f\n", measure);
    else
        fprintf(t->out, "-->>>> New Record of %s: %.4f\n", fsdp_best_measure_name(t), -measure);
}

/* Validate, report the result, and print it after `when`. *rouge is all 0 without
 * --predict-with-generate. */
static fsdp_status measure_validation(fsdp_trainer *t, const char *when, int64_t epoch,
                                      fsdp_step_result *result, fsdp_rouge *rouge)
{
    fsdp_progress *progress = NULL;
    double begin = fsdp_clock_s();
    fsdp_trainer_enter(t, "validation");
    fsdp_loader_set_epoch(t->validation_loader, 0);
    FSDP_TRY(open_progress(t, "Validation Epoch", FSDP_PROGRESS_GREEN, validation_steps(t), 0,
                           &progress));
    fsdp_status status =
        fsdp_validate(&t->loop, t->validation_loader, validation_progress, progress, result);
    fsdp_progress_destroy(progress);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_check_any_label(t->config->validation_data, result->labels));
    if (!isfinite(result->loss))
        return fsdp_error(FSDP_ERR_NUMERIC,
                          "validation after step %lld: the loss of rows %lld to %lld is %s%s%s",
                          (long long)t->step, (long long)result->not_finite.first,
                          (long long)(result->not_finite.first + result->not_finite.n - 1),
                          fsdp_human_not_finite(result->loss), t->loop.in_float16 ? ": " : "",
                          t->loop.in_float16 ? fsdp_human_not_finite_advice(FSDP_DTYPE_F16) : "");
    double length = 0;
    const bool predicts = t->config->predict_with_generate;
    *rouge = (fsdp_rouge){0};
    if (predicts)
        FSDP_TRY(fsdp_predict(t, rouge, &length));
    FSDP_TRY(fsdp_report_validation(t, result, fsdp_clock_s() - begin, epoch,
                                    predicts ? rouge : NULL, length));
    print_validation(t, when, result);
    if (predicts)
        fsdp_trainer_print(
            t, "ROUGE-1: %.4f, ROUGE-2: %.4f, ROUGE-L: %.4f, ROUGE-Lsum: %.4f, %.1f tokens a text",
            rouge->rouge1.fmeasure, rouge->rouge2.fmeasure, rouge->rougeL.fmeasure,
            rouge->rougeLsum.fmeasure, length);
    return FSDP_OK;
}

/* Validate after a step, and save the model if it is the best one so far. */
static fsdp_status run_validation(fsdp_trainer *t, int64_t epoch, fsdp_epoch_record *record)
{
    fsdp_step_result result;
    fsdp_rouge rouge;
    FSDP_TRY(measure_validation(t, "", epoch, &result, &rouge));
    t->result->validation_loss = record->validation_loss = result.loss;
    t->result->measures = record->measures = result.measures;
    const double measure = fsdp_best_measure(t, &result, &rouge);
    if (result.loss < t->result->best_validation_loss)
        t->result->best_validation_loss = result.loss;
    if (!(measure < t->best))
        return FSDP_OK;
    t->best = measure;
    print_record(t, measure);
    if (!t->config->load_best_model_at_end)
        return FSDP_OK;
    record->saved |= t->config->save_model;
    return save_model(t, "validation improved");
}

static fsdp_status validate(fsdp_trainer *t, int64_t epoch, fsdp_epoch_record *record)
{
    FSDP_TRY(fsdp_trainer_set_mode(t, true));
    FSDP_TRY(run_validation(t, epoch, record));
    return fsdp_trainer_set_mode(t, false);
}

/* --eval-on-start: validate before the first step of this run. As in transformers, the model as it
 * is then does not count as the best one. */
static fsdp_status validate_at_start(fsdp_trainer *t)
{
    fsdp_step_result result;
    fsdp_rouge rouge;
    if (!t->config->eval_on_start || t->step >= t->total_steps)
        return FSDP_OK;
    FSDP_TRY(fsdp_trainer_set_mode(t, true));
    FSDP_TRY(measure_validation(t, t->step ? "Before this run: " : "Before training: ",
                                t->step / t->steps_per_epoch, &result, &rouge));
    return fsdp_trainer_set_mode(t, false);
}

/* --- epochs --- */

/* Add a step to the sums of the epoch. With float16, the loss of a step may not be finite. Such a
 * loss does not count in the mean loss of the epoch. */
static void add_step(fsdp_epoch_sum *sum, const fsdp_step_result *result, double seconds)
{
    if (isfinite(result->loss)) {
        sum->loss += result->loss * (double)result->labels;
        sum->finite += result->labels;
    }
    sum->labels += result->labels;
    sum->tokens += result->tokens;
    sum->seconds += seconds;
}

static void report_skipped(fsdp_trainer *t, const fsdp_step_result *result, fsdp_progress *progress)
{
    t->result->skipped_steps++;
    t->result->overflowed_forwards += result->forward_overflowed;
    if (result->forward_overflowed) {
        fsdp_progress_print(
            progress, "step %lld: the loss is %s before it is scaled: no update%s%s%s",
            (long long)t->step, fsdp_human_not_finite(result->loss), t->loop.in_float16 ? ". " : "",
            t->loop.in_float16 ? fsdp_human_not_finite_advice(FSDP_DTYPE_F16) : "",
            t->loop.in_float16 ? " (--bf16)" : "");
        return;
    }
    fsdp_progress_print(progress,
                        "step %lld: gradients overflow with a loss scale of %g: no update, the "
                        "next scale is %g",
                        (long long)t->step, result->loss_scale,
                        fsdp_grad_scaler_scale(t->loop.scaler));
}

static fsdp_status one_step(fsdp_trainer *t, int64_t epoch, fsdp_progress *progress)
{
    fsdp_step_result result;
    double lr = fsdp_lr_at(&t->schedule, t->step), begin = fsdp_clock_s();
    const int64_t done = t->step - t->first_step; /* steps done by this run */
    if (!FSDP_GROW(t->step_seconds, t->cap_step_seconds, (size_t)done + 1))
        return FSDP_ERR_NOMEM;
    fsdp_monitor_step_begin(t->monitor);
    FSDP_TRY(fsdp_profile_step_begin(t->profile));
    FSDP_TRY(fsdp_train_step(&t->loop, t->train_loader, lr, t->step, &result));
    double seconds = fsdp_clock_s() - begin;
    FSDP_TRY(fsdp_profile_step_end(t->profile));
    if (t->step == 0)
        t->result->first_loss = result.loss;
    t->step_seconds[done] = seconds;
    t->step++;
    t->result->steps = t->step;
    fsdp_trainer_at(t, "reporting");
    add_step(&t->sum, &result, seconds);
    if (result.skipped)
        report_skipped(t, &result, progress);
    /* Report the rate that the step has used. With Adafactor and Schedule-Free AdamW, it may differ
     * from the rate of the schedule. */
    lr = fsdp_optimizer_scheduled_lr(t->loop.optimizer, 0);
    fsdp_monitor_step_end(t->monitor, t->step, seconds, result.data_s);
    fsdp_trainer_check_monitor(t);
    FSDP_TRY(fsdp_report_step(t, &result, lr, seconds, epoch));
    FSDP_TRY(fsdp_trainer_report_weights(t));
    if (isfinite(result.loss))
        fsdp_progress_update(progress, 1, "loss=%.4f", result.loss);
    else
        fsdp_progress_update(progress, 1, "loss=%s", fsdp_human_not_finite(result.loss));
    return done == 1 ? fsdp_report_sample_memory(t) : FSDP_OK;
}

static bool is_time_to_validate(const fsdp_trainer *t, bool end_of_epoch)
{
    int64_t every = (int64_t)t->config->evaluation_steps;
    if (!t->validation_loader)
        return false;
    if (end_of_epoch && t->config->eval_step_interval > 0)
        return true;
    return every > 0 ? t->step % every == 0 || t->step == t->total_steps : end_of_epoch;
}

/* Run the remaining steps of the epoch. A resumed run may begin in the middle of the epoch. */
static fsdp_status steps_of_epoch(fsdp_trainer *t, int64_t epoch)
{
    const int64_t first = epoch * t->steps_per_epoch, left = t->total_steps - first;
    const int64_t end = first + (left < t->steps_per_epoch ? left : t->steps_per_epoch);
    fsdp_progress *progress = NULL;
    fsdp_loader_seek(t->train_loader, epoch, t->step - first);
    FSDP_TRY(open_progress(t, "r0 Training Epoch", FSDP_PROGRESS_BLUE, end - t->step,
                           (int64_t)t->config->logging_steps, &progress));
    fsdp_status status = FSDP_OK;
    t->progress = progress;
    while (t->step < end && status == FSDP_OK) {
        status = one_step(t, epoch, progress);
        if (status == FSDP_OK && t->step < end && is_time_to_validate(t, false))
            status = validate(t, epoch, &t->record);
        if (status == FSDP_OK && t->step < end)
            status = fsdp_checkpoint_at_step(t, false);
    }
    t->progress = NULL;
    fsdp_progress_destroy(progress);
    return status;
}

static fsdp_status end_epoch(fsdp_trainer *t, int64_t epoch)
{
    fsdp_epoch_record *record = &t->record;
    FSDP_TRY(fsdp_check_any_label(t->config->data, t->sum.labels));
    /* With float16, it is possible that no step of the epoch has a finite loss. */
    record->train_loss = t->sum.finite ? t->sum.loss / (double)t->sum.finite : (double)NAN;
    record->tokens_per_s = (double)t->sum.tokens / t->sum.seconds;
    t->result->train_loss = record->train_loss;
    if (t->out && isfinite(record->train_loss))
        fprintf(t->out, "Train Epoch: \t%lld, Loss: \t%.4f\n", (long long)epoch + 1,
                record->train_loss);
    else if (t->out)
        fprintf(t->out, "Train Epoch: \t%lld, Loss: \t%s\n", (long long)epoch + 1,
                fsdp_human_not_finite(record->train_loss));
    return is_time_to_validate(t, true) ? validate(t, epoch, record) : FSDP_OK;
}

static void begin_epoch(fsdp_trainer *t)
{
    t->sum = (fsdp_epoch_sum){0};
    t->record = (fsdp_epoch_record){.validation_loss = (double)NAN};
}

static fsdp_status run_epoch(fsdp_trainer *t, int64_t epoch)
{
    double begin = fsdp_clock_s();
    FSDP_TRY(steps_of_epoch(t, epoch));
    FSDP_TRY(end_epoch(t, epoch));
    FSDP_TRY(fsdp_report_sample_memory(t));
    t->record.seconds = fsdp_clock_s() - begin;
    if (t->out)
        fflush(t->out);
    /* If --max-steps ends the run in the middle of an epoch, save the checkpoint before the epoch's
     * record is added. A run that resumes with a larger --max-steps can then continue this
     * epoch. */
    const bool cut = t->step % t->steps_per_epoch != 0;
    if (cut)
        FSDP_TRY(fsdp_checkpoint_at_step(t, true));
    if (!FSDP_GROW(t->epochs, t->cap_epochs, t->n_epochs + 1))
        return FSDP_ERR_NOMEM;
    t->epochs[t->n_epochs++] = t->record;
    begin_epoch(t);
    return cut ? FSDP_OK : fsdp_checkpoint_at_step(t, true);
}

static fsdp_status run_epochs(fsdp_trainer *t)
{
    FSDP_TRY(fsdp_checkpoint_find_prefix(t));
    FSDP_TRY(fsdp_trainer_open(t));
    FSDP_TRY(fsdp_examples_prepare(t));
    FSDP_TRY(fsdp_predict_prepare(t));
    begin_epoch(t);
    FSDP_TRY(fsdp_checkpoint_resume(t));
    FSDP_TRY(fsdp_trainer_set_mode(t, false));
    FSDP_TRY(fsdp_trainer_open_reports(t));
    FSDP_TRY(validate_at_start(t));
    while (t->step < t->total_steps)
        FSDP_TRY(run_epoch(t, t->step / t->steps_per_epoch));
    FSDP_TRY(fsdp_checkpoint_finish(t));
    FSDP_TRY(fsdp_trainer_set_mode(t, true));
    FSDP_TRY(save_at_end(t));
    /* If the run was resumed after its last step, no epoch of this run has sampled the memory. */
    if (t->step == t->first_step)
        FSDP_TRY(fsdp_report_sample_memory(t));
    FSDP_TRY(fsdp_report_summary(t));
    if (t->task == FSDP_TASK_CLASSIFICATION && t->saved_model)
        fsdp_trainer_print(t, "to label new texts: fsdp classify --model %s TEXT",
                           t->config->output);
    if (t->makes_examples)
        FSDP_TRY(fsdp_report_examples(t));
    if (t->config->plot && fsdp_trainer_is_first(t)) {
        FSDP_TRY(fsdp_plot_files(&t->config->metrics, 1, NULL, t->config->plot));
        if (t->out)
            fprintf(t->out, "loss curve: %s\n", t->config->plot);
    }
    return fsdp_report_next(t);
}

/* Several ranks may use the card of this rank. Return the number of bytes that they can use for
 * tensors together. This is --memory-limit if it was given. Otherwise it is the free bytes plus the
 * bytes that these ranks have reserved. All of them are assumed to have reserved the same number of
 * bytes. Return 0 if the device is not a card. */
static int64_t count_card_bytes(const fsdp_trainer *t)
{
    fsdp_memory_stats stats;
    int64_t unused = 0;
    if (!fsdp_device_name_is_cuda(fsdp_device_name(t->device)))
        return 0;
    const int ranks = fsdp_train_ranks_per_card(t->config, fsdp_group_local_world_size(t->group));
    if (t->config->memory_limit)
        return t->config->memory_limit;
    fsdp_device_memory(t->device, &stats);
    if (fsdp_card_functions()->free_bytes(t->device->ordinal, &unused) != FSDP_OK)
        return 0;
    return stats.reserved * ranks + unused;
}

fsdp_status fsdp_train_run(const fsdp_train_config *config, fsdp_group *group, FILE *out,
                           fsdp_train_result *result)
{
    *result = (fsdp_train_result){.validation_loss = (double)NAN,
                                  .best_validation_loss = (double)INFINITY};
    fsdp_trainer t = {.completed = *config,
                      .group = group,
                      .out = fsdp_group_rank(group) == 0 ? out : NULL,
                      .result = result,
                      .best = (double)INFINITY,
                      .started_s = fsdp_clock_s()};
    t.config = &t.completed;
    fsdp_trainer_at(&t, "");
    fsdp_saved_error error; /* keep the run's error, since closing may report other errors */
    fsdp_error_save(run_epochs(&t), &error);
    if (error.status == FSDP_ERR_NOMEM && t.device)
        result->card_bytes = count_card_bytes(&t);
    fsdp_monitor_close(t.monitor, error.status == FSDP_OK ? NULL : error.message);
    fsdp_trainer_close_tracking(&t, error.status != FSDP_OK);
    fsdp_trainer_fini(&t);
    if (error.status == FSDP_OK)
        return FSDP_OK;
    /* Rank 0 may have been killed while it saved the model. Remove the temporary folder that it
     * left. */
    if (config->save_model)
        fsdp_atomic_directory_sweep(config->output, 0);
    return fsdp_error_restore(&error);
}
