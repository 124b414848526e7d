/* The run of `fsdp train`: set up, epochs, validation, saving. See trainer.h. */
#include <math.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/train/human.h"
#include "src/train/plot.h"
#include "src/train/progress.h"
#include "src/train/threads.h"
#include "src/train/trainer_internal.h"

/* --- set up --- */

/* What is written after hours must be writable now. */
static fsdp_status check_outputs(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    fsdp_atomic_file *file;
    fsdp_existing existing = c->overwrite_output ? FSDP_EXISTING_UPDATE : FSDP_EXISTING_REFUSE;
    fsdp_status status = c->save_model ? fsdp_atomic_directory_check(c->output, existing) : FSDP_OK;
    if (status == FSDP_ERR_INVALID && fsdp_path_is_directory(c->output) && !c->overwrite_output)
        return fsdp_error(status, "--output %s (--overwrite-output replaces the model in it)",
                          fsdp_last_error());
    FSDP_TRY(status);
    if (c->plot) {
        FSDP_TRY(fsdp_atomic_file_begin(c->plot, 0, &file));
        fsdp_atomic_file_discard(file);
    }
    return FSDP_OK;
}

static fsdp_status open_device(fsdp_trainer *t)
{
    t->threads = t->config->threads_per_rank;
    if (t->threads == 0)
        FSDP_TRY(fsdp_default_threads(t->group, &t->threads));
    fsdp_device_options options = {.threads = t->threads, .isa = t->config->isa};
    if (t->config->device == FSDP_TRAIN_META)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--device meta: planning a run comes with a later version");
    fsdp_group_set_threads(t->group, options.threads);
    return fsdp_device_create(&options, &t->device);
}

static fsdp_status open_model(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    fsdp_model_options options = {
        .name = c->model,
        .from_config = c->from_config,
        .seed = (uint64_t)c->seed,
        .set_dropout = !isnan(c->dropout),
        .dropout = c->dropout,
        .shard = {.mp_policy = {.param_dtype = c->param_dtype,
                                .reduce_dtype = c->reduce_dtype,
                                .master_dtype = c->master_dtype},
                  .reshard_after_forward =
                      c->reshard_after_forward ? FSDP_RESHARD_DEFAULT : FSDP_RESHARD_FALSE,
                  .no_shard = c->sharding_strategy == FSDP_SHARDING_NO_SHARD},
    };
    FSDP_TRY(fsdp_model_open(&options, t->group, t->device, &t->model));
    t->loop.module = t->model->module;
    return fsdp_module_parameters(t->loop.module, false, &t->loop.parameters);
}

/* The tokenizer of --tokenizer, else the model's. Ready-made ids need none: its absence is an error
 * only once a dataset asks for it. */
static fsdp_status open_tokenizer(fsdp_trainer *t)
{
    const char *path = t->config->tokenizer ? t->config->tokenizer : t->model->dir;
    fsdp_status status = fsdp_tokenizer_open(path, &t->tokenizer);
    if (status == FSDP_OK || t->config->tokenizer)
        return status;
    snprintf(t->no_tokenizer, sizeof t->no_tokenizer, "%.*s", (int)sizeof t->no_tokenizer - 1,
             fsdp_last_error());
    return FSDP_OK;
}

static fsdp_status open_dataset(const fsdp_trainer *t, const char *path, int64_t max_samples,
                                fsdp_dataset **set)
{
    const fsdp_train_config *c = t->config;
    fsdp_dataset_options options = {.tokenizer = t->tokenizer,
                                    .source_prefix = c->task_prefix,
                                    .max_source_length = c->max_source_length,
                                    .max_target_length = c->max_target_length,
                                    .max_samples = max_samples,
                                    .vocab_size = t->model->config.vocab_size};
    fsdp_status status = fsdp_dataset_open(path, &options, set);
    if (status == FSDP_ERR_INVALID && !t->tokenizer)
        return fsdp_error(status, "%s (%s)", fsdp_last_error(), t->no_tokenizer);
    return status;
}

static fsdp_status open_loader(const fsdp_trainer *t, const fsdp_dataset *set, bool training,
                               fsdp_loader **loader)
{
    const fsdp_train_config *c = t->config;
    fsdp_loader_options options = {
        .sampler = {.kind = (fsdp_sampler_kind)c->sampler,
                    .batch_size = training ? c->batch_size : c->validation_batch_size,
                    .rank = fsdp_group_rank(t->group),
                    .world_size = fsdp_group_world_size(t->group),
                    .accumulation = training ? c->gradient_accumulation_steps : 1,
                    .no_shuffle = !training || !c->shuffle,
                    .drop_last = training && c->drop_last,
                    .seed = (uint64_t)c->seed},
        .decoder_start_token_id = (int32_t)t->model->config.decoder_start_token_id,
        .pad_token_id = (int32_t)t->model->config.pad_token_id,
        .num_workers = c->num_workers};
    return fsdp_loader_create(set, &options, loader);
}

static fsdp_status open_data(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    FSDP_TRY(open_tokenizer(t));
    FSDP_TRY(open_dataset(t, c->data, c->max_train_samples, &t->train_set));
    FSDP_TRY(open_loader(t, t->train_set, true, &t->train_loader));
    if (c->validation_data && c->run_validation) {
        FSDP_TRY(
            open_dataset(t, c->validation_data, c->max_validation_samples, &t->validation_set));
        FSDP_TRY(open_loader(t, t->validation_set, false, &t->validation_loader));
    }
    t->steps_per_epoch = fsdp_loader_steps(t->train_loader);
    t->total_steps = t->steps_per_epoch * c->epochs;
    if (c->max_steps > 0 && c->max_steps < t->total_steps)
        t->total_steps = c->max_steps;
    return FSDP_OK;
}

static fsdp_status open_optimizer(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    if (c->optimizer == FSDP_OPTIMIZER_SGD) {
        fsdp_sgd_options options = {
            .lr = c->lr, .momentum = c->momentum, .weight_decay = c->weight_decay};
        return fsdp_sgd_create(t->loop.module, &options, &t->loop.optimizer);
    }
    fsdp_adamw_options options = {.lr = c->lr,
                                  .beta1 = c->beta1,
                                  .beta2 = c->beta2,
                                  .eps = c->eps,
                                  .weight_decay = c->weight_decay};
    return fsdp_adamw_create(t->loop.module, &options, &t->loop.optimizer);
}

static fsdp_status open_schedule(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    t->schedule = (fsdp_lr_schedule){
        .kind = (fsdp_lr_schedule_kind)c->lr_schedule,
        .lr = c->lr,
        .min_lr = c->min_lr,
        .gamma = c->gamma,
        .step_size = c->step_size,
        .unit_steps = c->schedule_unit == FSDP_SCHEDULE_EPOCH ? t->steps_per_epoch : 1,
        .warmup_steps = c->warmup_steps,
        .total_steps = t->total_steps};
    return fsdp_lr_schedule_check(&t->schedule);
}

static fsdp_status open_training(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    t->loop.group = t->group;
    t->loop.device = t->device;
    t->loop.micro_steps = c->gradient_accumulation_steps;
    t->loop.max_grad_norm = c->max_grad_norm;
    t->loop.mean_of_means = c->loss_reduction == FSDP_LOSS_MEAN_OF_MEANS;
    FSDP_TRY(fsdp_tape_create(&t->loop.tape));
    FSDP_TRY(open_optimizer(t));
    FSDP_TRY(open_schedule(t));
    if (c->metrics && fsdp_trainer_is_first(t))
        FSDP_TRY(fsdp_metrics_open(c->metrics, false, &t->metrics));
    return FSDP_OK;
}

static fsdp_status print_start(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    if (!t->out)
        return FSDP_OK;
    int64_t n = 0;
    for (size_t i = 0; i < t->loop.parameters.n; i++)
        n += fsdp_parameter_numel(t->loop.parameters.items[i].parameter);
    fprintf(t->out, "%s %s: %s parameters, %s\n", fsdp_module_class(t->loop.module), c->model,
            fsdp_human_count((double)n).text, c->from_config ? "drawn from the seed" : "loaded");
    fprintf(t->out, "ranks: %d (%s), %d thread%s each, %s compute, %s master, %s\n",
            fsdp_group_world_size(t->group), fsdp_group_backend(t->group), t->threads,
            t->threads == 1 ? "" : "s", fsdp_dtype_name(c->param_dtype),
            fsdp_dtype_name(c->master_dtype),
            c->sharding_strategy == FSDP_SHARDING_NO_SHARD ? "NO_SHARD"
            : c->reshard_after_forward                     ? "FULL_SHARD"
                                                           : "SHARD_GRAD_OP");
    fprintf(t->out, "Size of train dataset:  %lld\n", (long long)fsdp_dataset_len(t->train_set));
    if (t->validation_set)
        fprintf(t->out, "Size of Validation dataset:  %lld\n",
                (long long)fsdp_dataset_len(t->validation_set));
    else if (c->save_model)
        fprintf(t->out, "without validation the model is saved once, at the end\n");
    fflush(t->out);
    return FSDP_OK;
}

/* --- validation and saving --- */

static void validation_progress(void *arg)
{
    fsdp_progress_update(arg, 1, NULL);
}

static fsdp_status open_progress(const fsdp_trainer *t, const char *what,
                                 fsdp_progress_colour colour, int64_t total, int64_t line_steps,
                                 fsdp_progress **progress)
{
    fsdp_progress_options options = {.description = what,
                                     .total = total,
                                     .colour = colour,
                                     .style = t->out ? FSDP_PROGRESS_AUTO : FSDP_PROGRESS_OFF,
                                     .line_steps = line_steps};
    return fsdp_progress_create(&options, progress);
}

static fsdp_status save(fsdp_trainer *t, const char *why)
{
    if (!t->config->save_model)
        return FSDP_OK;
    if (t->config->interrupted && atomic_load(t->config->interrupted))
        return fsdp_error(FSDP_ERR_STATE, "interrupted");
    fsdp_trainer_at(t, "saving the model");
    fsdp_model_save_options options = {.overwrite = t->config->overwrite_output || t->result->saved,
                                       .tokenizer = t->config->tokenizer};
    FSDP_TRY(fsdp_model_save(t->model, t->config->output, &options));
    if (t->out)
        fprintf(t->out, "--> saved the model in %s (%s)\n", t->config->output, why);
    t->result->saved = true;
    return FSDP_OK;
}

static fsdp_status validate(fsdp_trainer *t, int64_t epoch, fsdp_epoch_record *record)
{
    fsdp_step_result result;
    fsdp_progress *progress = NULL;
    double begin = fsdp_clock_s();
    fsdp_trainer_at(t, "validation");
    fsdp_loader_set_epoch(t->validation_loader, 0);
    FSDP_TRY(open_progress(t, "Validation Epoch", FSDP_PROGRESS_GREEN,
                           fsdp_loader_steps(t->validation_loader), 0, &progress));
    fsdp_status status =
        fsdp_validate(&t->loop, t->validation_loader, validation_progress, progress, &result);
    fsdp_progress_destroy(progress);
    FSDP_TRY(status);
    if (!isfinite(result.loss))
        return fsdp_error(FSDP_ERR_NUMERIC, "validation after step %lld: the loss is %s",
                          (long long)t->step, fsdp_human_not_finite(result.loss));
    FSDP_TRY(fsdp_report_validation(t, &result, fsdp_clock_s() - begin, epoch));
    t->result->validation_loss = record->validation_loss = result.loss;
    if (t->out)
        fprintf(t->out, "Validation Loss: %.4f\n", result.loss);
    if (!(result.loss < t->result->best_validation_loss))
        return FSDP_OK;
    t->result->best_validation_loss = result.loss;
    if (t->out)
        fprintf(t->out, "-->>>> New Val Loss Record: %.4f\n", result.loss);
    record->saved |= t->config->save_model;
    return save(t, "validation improved");
}

/* --- epochs --- */

typedef struct epoch_sum {
    double loss; /* sum over label tokens */
    int64_t labels, tokens;
    double seconds; /* of steps */
} epoch_sum;

static fsdp_status one_step(fsdp_trainer *t, int64_t epoch, fsdp_progress *progress, epoch_sum *sum)
{
    fsdp_step_result result;
    double lr = fsdp_lr_at(&t->schedule, t->step), begin = fsdp_clock_s();
    if (!FSDP_GROW(t->step_seconds, t->cap_step_seconds, (size_t)t->step + 1))
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_train_step(&t->loop, t->train_loader, lr, t->step, &result));
    double seconds = fsdp_clock_s() - begin;
    if (t->step == 0)
        t->result->first_loss = result.loss;
    t->step_seconds[t->step++] = seconds;
    t->result->steps = t->step;
    fsdp_trainer_at(t, "reporting");
    sum->loss += result.loss * (double)result.labels;
    sum->labels += result.labels;
    sum->tokens += result.tokens;
    sum->seconds += seconds;
    FSDP_TRY(fsdp_report_step(t, &result, lr, seconds, epoch));
    fsdp_progress_update(progress, 1, "loss=%.4f", result.loss);
    return t->step == 2 ? fsdp_report_sample_memory(t) : FSDP_OK;
}

static bool is_time_to_validate(const fsdp_trainer *t, bool end_of_epoch)
{
    int64_t every = t->config->evaluation_steps;
    if (!t->validation_loader)
        return false;
    return every > 0 ? t->step % every == 0 || t->step == t->total_steps : end_of_epoch;
}

static fsdp_status steps_of_epoch(fsdp_trainer *t, int64_t epoch, epoch_sum *sum,
                                  fsdp_epoch_record *record)
{
    int64_t steps = t->total_steps - t->step;
    if (steps > t->steps_per_epoch)
        steps = t->steps_per_epoch;
    fsdp_progress *progress = NULL;
    fsdp_loader_set_epoch(t->train_loader, epoch);
    FSDP_TRY(open_progress(t, "r0 Training Epoch", FSDP_PROGRESS_BLUE, steps,
                           t->config->logging_steps, &progress));
    fsdp_status status = FSDP_OK;
    for (int64_t i = 0; i < steps && status == FSDP_OK; i++) {
        status = one_step(t, epoch, progress, sum);
        if (status == FSDP_OK && i + 1 < steps && is_time_to_validate(t, false))
            status = validate(t, epoch, record);
    }
    fsdp_progress_destroy(progress);
    return status;
}

static fsdp_status run_epoch(fsdp_trainer *t, int64_t epoch)
{
    epoch_sum sum = {0};
    fsdp_epoch_record record = {.validation_loss = (double)NAN};
    double begin = fsdp_clock_s();
    FSDP_TRY(steps_of_epoch(t, epoch, &sum, &record));
    record.train_loss = sum.labels ? sum.loss / (double)sum.labels : 0.0;
    record.tokens_per_s = (double)sum.tokens / sum.seconds;
    t->result->train_loss = record.train_loss;
    if (t->out)
        fprintf(t->out, "Train Epoch: \t%lld, Loss: \t%.4f\n", (long long)epoch + 1,
                record.train_loss);
    if (is_time_to_validate(t, true))
        FSDP_TRY(validate(t, epoch, &record));
    FSDP_TRY(fsdp_report_sample_memory(t));
    record.seconds = fsdp_clock_s() - begin;
    if (!FSDP_GROW(t->epochs, t->cap_epochs, t->n_epochs + 1))
        return FSDP_ERR_NOMEM;
    t->epochs[t->n_epochs++] = record;
    if (t->out)
        fflush(t->out);
    return FSDP_OK;
}

static fsdp_status run(fsdp_trainer *t)
{
    FSDP_TRY(fsdp_agree(t->group, fsdp_trainer_is_first(t) ? check_outputs(t) : FSDP_OK));
    FSDP_TRY(open_device(t));
    FSDP_TRY(open_model(t));
    FSDP_TRY(open_data(t));
    FSDP_TRY(open_training(t));
    FSDP_TRY(print_start(t));
    for (int64_t epoch = 0; t->step < t->total_steps; epoch++)
        FSDP_TRY(run_epoch(t, epoch));
    if (!t->validation_loader)
        FSDP_TRY(save(t, "end of training"));
    FSDP_TRY(fsdp_report_summary(t));
    if (t->config->generate_examples > 0)
        FSDP_TRY(fsdp_report_examples(t));
    if (!t->config->plot || !t->metrics)
        return FSDP_OK;
    FSDP_TRY(fsdp_plot_files(&t->config->metrics, 1, NULL, t->config->plot));
    fprintf(t->out, "loss curve: %s\n", t->config->plot);
    return FSDP_OK;
}

static void fini(fsdp_trainer *t)
{
    fsdp_loader_destroy(t->train_loader);
    fsdp_loader_destroy(t->validation_loader);
    fsdp_dataset_close(t->train_set);
    fsdp_dataset_close(t->validation_set);
    fsdp_metrics_close(t->metrics);
    fsdp_hostmem_destroy(t->hostmem);
    fsdp_optimizer_destroy(t->loop.optimizer);
    fsdp_tape_destroy(t->loop.tape);
    fsdp_parameter_list_free(&t->loop.parameters);
    fsdp_model_close(t->model);
    fsdp_tokenizer_close(t->tokenizer);
    fsdp_device_destroy(t->device);
    fsdp_free(t->step_seconds);
    fsdp_free(t->epochs);
}

fsdp_status fsdp_train_run(const fsdp_train_config *config, fsdp_group *group, FILE *out,
                           fsdp_train_result *result)
{
    *result = (fsdp_train_result){.validation_loss = (double)NAN,
                                  .best_validation_loss = (double)INFINITY};
    fsdp_trainer t = {.config = config,
                      .group = group,
                      .out = fsdp_group_rank(group) == 0 ? out : NULL,
                      .result = result,
                      .started_s = fsdp_clock_s()};
    fsdp_trainer_at(&t, "");
    fsdp_status status = run(&t);
    fini(&t);
    if (status != FSDP_OK && config->save_model) {
        /* Rank 0 may have been killed while it saved. The message is of the failure. */
        char message[1024];
        snprintf(message, sizeof message, "%s", fsdp_last_error());
        fsdp_atomic_directory_sweep(config->output, 0);
        return fsdp_error(status, "%s", message);
    }
    return status;
}
