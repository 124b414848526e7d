/* Opens what a run of `fsdp train` needs, in this order: device, model, data, optimizer, reports.
 */
#include <math.h>
#include <string.h>

#include <fsdp/train.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/comm/cards/cards.h"
#include "src/comm/comm.h"
#include "src/optim/optimizer.h"
#include "src/pretrained/model.h"
#include "src/pretrained/text_prefix.h"
#include "src/report/human.h"
#include "src/tensor/cards.h"
#include "src/tensor/device.h"
#include "src/train/checkpoint_async.h"
#include "src/train/checkpoint_folders.h"
#include "src/train/labels.h"
#include "src/train/optimizer.h"
#include "src/train/sources.h"
#include "src/train/trainer_internal.h"
#include "src/train/unit_controls.h"
#include "src/train_config/config_device.h"
#include "src/train_config/config_float8.h"
#include "src/train_config/config_parallelism.h"
#include "src/train_config/config_sources.h"
#include "src/train_config/config_trainer.h"
#include "src/train_config/precision.h"

/* Create --offload-dir, but not its parents, so that a mistyped parent is reported as an error. */
static fsdp_status make_offload_dir(const fsdp_trainer *t)
{
    const char *dir = t->config->offload_dir;
    if (!dir || fsdp_path_is_directory(dir) || fsdp_path_is_file(dir))
        return FSDP_OK;
    char *parent = fsdp_path_parent(dir);
    fsdp_status status = parent ? FSDP_OK : FSDP_ERR_NOMEM;
    if (parent && !fsdp_path_is_directory(parent))
        status = fsdp_error(FSDP_ERR_INVALID,
                            "--offload-dir %s: there is no folder %s to create it in", dir, parent);
    fsdp_free(parent);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_directory_make(dir));
    fsdp_trainer_print(t, "--offload-dir %s: the folder is new", dir);
    return FSDP_OK;
}

/* Check before training that all outputs can be written. Otherwise a long run would fail only at
 * its end. */
static fsdp_status check_outputs(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    fsdp_existing existing =
        fsdp_trainer_may_replace(t) ? FSDP_EXISTING_UPDATE : FSDP_EXISTING_REFUSE;
    fsdp_status status = c->save_model ? fsdp_atomic_directory_check(c->output, existing) : FSDP_OK;
    if (status == FSDP_ERR_INVALID && fsdp_path_is_directory(c->output) && !c->overwrite_output)
        return fsdp_error(status, "--output %s (--overwrite-output replaces the model in it)",
                          fsdp_last_error());
    if (status == FSDP_OK && c->save_model) {
        status = fsdp_model_check_folder(c->output);
        fsdp_error_context(status, "--output");
    }
    FSDP_TRY(status);
    FSDP_TRY(fsdp_checkpoint_check(t));
    FSDP_TRY(make_offload_dir(t));
    return fsdp_trainer_check_tracking(c);
}

/* Return this rank's share of --memory-limit for its tensors, in bytes. Return 0 if there is no
 * limit. */
static int64_t tensor_bytes_limit(const fsdp_trainer *t)
{
    const int64_t limit = t->config->memory_limit;
    if (!limit)
        return 0;
    const int ranks = fsdp_group_local_world_size(t->group);
    const int64_t share = fsdp_train_uses_cards(t->config)
                              ? limit / fsdp_train_ranks_per_card(t->config, ranks)
                              : limit / ranks - FSDP_BESIDE_TENSORS_BYTES;
    return share > 0 ? share : 1;
}

static fsdp_status open_device(fsdp_trainer *t)
{
    t->threads = t->config->threads_per_rank;
    if (t->threads == 0)
        FSDP_TRY(fsdp_default_threads(t->group, &t->threads));
    char name[FSDP_DEVICE_NAME_BYTES];
    const fsdp_device_options options = {
        .name = name, .threads = t->threads, .isa = t->config->isa};
    FSDP_TRY(fsdp_agree(t->group,
                        fsdp_train_device_name(t->config, fsdp_group_local_rank(t->group), name)));
    if (strncmp(name, "meta", 4) == 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "--device meta: 'fsdp plan' with the same options "
                                                "reports the memory and time of a run");
    fsdp_group_set_threads(t->group, options.threads);
    FSDP_TRY(fsdp_rank_device_create(t->group, &options, &t->device));
    fsdp_allocator_set_limit(t->device->allocator, tensor_bytes_limit(t));
    return FSDP_OK;
}

/* Complete the configuration for the task. If --task-prefix is not given, use the prefix of the run
 * that is resumed. If there is none, use the prefix in the model's config.json or, if it has none,
 * the default of the task. */
static fsdp_status choose_prefix(fsdp_trainer *t)
{
    fsdp_train_config *c = &t->completed;
    if (!c->given_task_prefix && t->resumed_prefix)
        c->task_prefix = t->resumed_prefix;
    else if (!c->given_task_prefix && t->model->text_prefix)
        c->task_prefix = t->model->text_prefix;
    FSDP_TRY(fsdp_train_config_set_task(c, t->task));
    if (t->task == FSDP_TASK_SEQ2SEQ && c->save_model)
        FSDP_TRY(fsdp_text_prefix_check(c->task_prefix));
    return FSDP_OK;
}

/* Called for the error that the model is not of the kind that --task asks for. If --task asks for a
 * classifier, return the end of the message, which says what the user can do. Otherwise return
 * "". */
static const char *advice_on_task(const fsdp_trainer *t)
{
    if (t->config->task != FSDP_TRAIN_CLASSIFICATION)
        return "";
    return ": --model may name a BERT, or this model learns to write the labels as texts: "
           "--text-column TEXT --target-column LABEL, without --task";
}

/* Set t->task to the model's task, and set the values of the configuration that depend on the task.
 * Return an error if --task names another task. */
static fsdp_status choose_task(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    const fsdp_model_info *info = &t->model->info;
    t->task = info->format.task;
    t->loop.num_labels = info->num_labels;
    t->loop.problem_type = info->format.problem_type;
    if (c->task != FSDP_TRAIN_AUTO && fsdp_train_model_task(c->task) != t->task)
        return fsdp_error(FSDP_ERR_INVALID, "--task %s: %s is a %s, which is for %s%s",
                          fsdp_train_given_task_name(c->task), c->model, info->class_name,
                          fsdp_train_task_name(t->task), advice_on_task(t));
    if (t->task == FSDP_TASK_CLASSIFICATION && info->num_labels == 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s is a %s, which has no head to train; 'architectures' in its "
                          "config.json may name a model that has one",
                          c->model, info->class_name);
    if (info->format.problem_type == FSDP_PROBLEM_REGRESSION &&
        (c->metric_for_best_model == FSDP_BEST_ACCURACY ||
         c->metric_for_best_model == FSDP_BEST_F1))
        return fsdp_error(FSDP_ERR_INVALID, "--metric-for-best-model: accuracy and F1 are for "
                                            "classes; regression has the loss");
    if (c->label_smoothing > 0 && t->task == FSDP_TASK_CLASSIFICATION &&
        info->format.problem_type != FSDP_PROBLEM_SINGLE_LABEL)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--label-smoothing %g: is for one class of several; the labels are %s",
                          c->label_smoothing,
                          info->format.problem_type == FSDP_PROBLEM_REGRESSION
                              ? "numbers (regression)"
                              : "several classes a row");
    if (info->max_positions && c->max_seq_length > info->max_positions)
        return fsdp_error(FSDP_ERR_INVALID, "--max-seq-length %lld: %s has positions for %lld",
                          (long long)c->max_seq_length, c->model, (long long)info->max_positions);
    FSDP_TRY(fsdp_train_sources_check_task(c, t->task));
    return choose_prefix(t);
}

/* Return the total number of elements of the parameters that are trained. */
static int64_t count_trained(const fsdp_trainer *t)
{
    const fsdp_parameter_list *list = &t->loop.parameters;
    int64_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (fsdp_parameter_requires_grad(list->items[i].parameter))
            n += fsdp_parameter_numel(list->items[i].parameter);
    return n;
}

static fsdp_status check_any_trained(const fsdp_trainer *t)
{
    if (!t->model->lora && fsdp_model_is_quantized(t->model->module))
        return fsdp_error(
            FSDP_ERR_INVALID,
            "%s: its weights are in NF4 (quantization_config of config.json), so they "
            "cannot be trained; give --lora-r 16, which trains an adapter for them",
            t->config->model);
    if (count_trained(t) > 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "--frozen-prefixes leaves nothing to train");
}

/* Open the model with the units that `wrap` chooses, or with the default units if `wrap` is NULL.
 * Collective. */
static fsdp_status open_wrapped(fsdp_trainer *t, const fsdp_wrap_policy *wrap)
{
    const fsdp_train_config *c = t->config;
    if (fsdp_train_has_lora(c) && !t->lora.config.r)
        FSDP_TRY(fsdp_train_lora_init(&t->lora, c));
    fsdp_quantize_options quantize;
    fsdp_model_options options = {
        .name = c->model,
        .from_config = c->from_config,
        .seed = (uint64_t)c->seed,
        .set_dropout = !isnan(c->dropout),
        .dropout = c->dropout,
        .activation_checkpointing = c->activation_checkpointing,
        .checkpointing = {.kind =
                              (fsdp_activation_checkpointing_kind)c->activation_checkpointing_kind,
                          .every = c->activation_checkpointing_every,
                          .offload = t->offload},
        .wrap = wrap,
        .frozen = (const char *const *)c->frozen_prefixes.items,
        .n_frozen = c->frozen_prefixes.count,
        .num_labels = t->found_labels.classes ? t->found_labels.classes
                      : c->class_names.count  ? (int64_t)c->class_names.count
                                              : c->num_labels,
        .label_names = t->found_labels.names ? (const char *const *)t->found_labels.names
                                             : c->class_names.items,
        .problem_type = t->found_labels.classes || t->found_labels.problem_type
                            ? 1 + (int)t->found_labels.problem_type
                            : c->problem_type,
        .masked_lm = c->task == FSDP_TRAIN_MASKED_LM,
        .keep_lm_head = t->keeps_lm_head,
        .labels_of = t->found_labels.classes ? c->data : NULL,
        .ignore_mismatched_sizes = c->ignore_mismatched_sizes,
        .blocks_per_unit = c->blocks_per_unit,
        .named = c->named,
        .lora = fsdp_train_has_lora(c) ? &t->lora.config : NULL,
        .adapter = c->adapter,
        .quantize = fsdp_quantize_flags_options(&c->quantize, &quantize),
    };
    fsdp_float8_linear_config float8;
    if (fsdp_train_has_float8(c)) {
        fsdp_train_float8_init(&float8, c);
        options.float8 = &float8;
    }
    fsdp_train_config_shard_options(c, &options.shard);
    options.shard.mesh = t->mesh;
    return fsdp_model_open(&options, t->group, t->device, &t->model);
}

/* Open the model with a unit for each module whose class is in `classes`. Collective. */
static fsdp_status open_by_class(fsdp_trainer *t, const fsdp_option_list *classes)
{
    const char **names = fsdp_calloc(classes->count + 1, sizeof *names);
    if (!names)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < classes->count; i++)
        names[i] = classes->items[i];
    const fsdp_wrap_policy policy = {.kind = FSDP_WRAP_TRANSFORMER, .transformer_layer_cls = names};
    fsdp_status status = open_wrapped(t, &policy);
    fsdp_free(names);
    return status;
}

static fsdp_status open_by_policy(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    const fsdp_wrap_policy size = {.kind = FSDP_WRAP_SIZE, .min_num_params = c->min_num_params},
                           none = {.kind = FSDP_WRAP_NONE};
    switch ((fsdp_auto_wrap_policy)c->auto_wrap_policy) {
    case FSDP_AUTO_WRAP_SIZE_BASED:
        return open_wrapped(t, &size);
    case FSDP_AUTO_WRAP_NO:
        return open_wrapped(t, &none);
    case FSDP_AUTO_WRAP_TRANSFORMER_BASED:
        break;
    }
    return c->transformer_layer_cls_to_wrap.count
               ? open_by_class(t, &c->transformer_layer_cls_to_wrap)
               : open_wrapped(t, NULL);
}

/* With a hybrid sharding strategy, create t->mesh [replicas, ranks per replica]. Collective. */
static fsdp_status open_mesh(fsdp_trainer *t)
{
    static const char *const names[] = {"replicate", "shard"};
    const int world_size = fsdp_group_world_size(t->group);
    int size;
    if (!fsdp_sharding_is_hybrid(t->config->sharding_strategy))
        return FSDP_OK;
    FSDP_TRY(fsdp_train_config_shard_size(t->config, world_size,
                                          fsdp_group_local_world_size(t->group), &size));
    return fsdp_device_mesh_create(t->group, 2, (int[]){world_size / size, size}, names, &t->mesh);
}

static fsdp_status open_offload(fsdp_trainer *t)
{
    const fsdp_activation_offload_options options = {.dir = t->config->offload_dir};
    fsdp_status status = FSDP_OK;
    if (t->config->activation_offload)
        status = fsdp_activation_offload_create(&options, &t->offload);
    return fsdp_agree(t->group, status);
}

fsdp_status fsdp_trainer_open_model(fsdp_trainer *t)
{
    FSDP_TRY(open_mesh(t));
    FSDP_TRY(open_offload(t));
    FSDP_TRY(fsdp_agree(t->group, fsdp_train_choose_head(t)));
    FSDP_TRY(fsdp_agree(t->group, fsdp_train_find_labels(t, &t->found_labels)));
    FSDP_TRY(open_by_policy(t));
    FSDP_TRY(choose_task(t));
    t->loop.module = t->model->module;
    FSDP_TRY(fsdp_train_set_unit_controls(t->config, t->loop.module));
    FSDP_TRY(fsdp_module_parameters(t->loop.module, false, &t->loop.parameters));
    return check_any_trained(t);
}

static fsdp_status open_loader(const fsdp_trainer *t, const fsdp_dataset *set, bool training,
                               fsdp_loader **loader)
{
    const fsdp_train_config *c = t->config;
    fsdp_loader_options options = {
        .sampler = {.kind = training ? (fsdp_sampler_kind)c->sampler : FSDP_SAMPLER_DEFAULT,
                    .batch_size = training ? c->batch_size : c->validation_batch_size,
                    .rank = fsdp_group_rank(t->group),
                    .world_size = fsdp_group_world_size(t->group),
                    .accumulation = training ? c->gradient_accumulation_steps : 1,
                    .no_shuffle = !training || !c->shuffle,
                    .drop_last = training && c->drop_last,
                    .seed = (uint64_t)c->seed,
                    .has_order_seed = training && c->data_seed >= 0,
                    .order_seed = (uint64_t)c->data_seed},
        .format = t->model->info.format,
        .num_workers = c->num_workers};
    return fsdp_loader_create(set, &options, loader);
}

/* Return true if any label of the example counts in the loss. In a causal model the first label
 * does not count, since the model shifts the labels. */
static bool has_label(const fsdp_example *example, fsdp_task task)
{
    const fsdp_token_list *labels = &example->labels;
    size_t i = task == FSDP_TASK_CAUSAL_LM ? 1 : 0;
    if (example->num_targets)
        return true;
    if (labels->len == 0)
        return task == FSDP_TASK_CAUSAL_LM && example->source.len > 1;
    while (i < labels->len && labels->ids[i] == FSDP_IGNORE_INDEX)
        i++;
    return i < labels->len;
}

/* Return an error if no row has a label. Without labels there is no loss, and the run would return
 * this error only at the end of an epoch. The search is short, since most datasets have a label in
 * their first row. */
static fsdp_status check_labels(const fsdp_trainer *t, const fsdp_dataset *set, const char *path)
{
    fsdp_example example = {0};
    fsdp_status status = FSDP_OK;
    bool any = false;
    for (int64_t i = 0; i < fsdp_dataset_len(set) && !any && status == FSDP_OK; i++) {
        status = fsdp_dataset_get(set, i, &example);
        any = status == FSDP_OK && has_label(&example, t->task);
    }
    fsdp_example_fini(&example);
    FSDP_TRY(status);
    return fsdp_check_any_label(path, any);
}

/* Set t->steps_per_epoch and t->total_steps. The total is the smaller of --max-steps and the steps
 * of --epochs. If only --max-steps is given, c->epochs is infinite. */
static void count_steps(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    t->steps_per_epoch = fsdp_loader_steps(t->train_loader);
    t->total_steps = fsdp_train_epochs_steps(c->epochs, t->steps_per_epoch);
    const int64_t micro_steps = c->gradient_accumulation_steps, of_epochs = t->total_steps;
    if (c->max_steps > 0 && c->max_steps < of_epochs)
        t->total_steps = c->max_steps;
    if (c->max_steps > of_epochs)
        fsdp_trainer_print(t,
                           "--max-steps %lld: --epochs %g end after %lld steps, so a rank has %lld "
                           "micro-batches, not %lld x %lld; the rate decays over these steps",
                           (long long)c->max_steps, c->epochs, (long long)of_epochs,
                           (long long)(of_epochs * micro_steps), (long long)c->max_steps,
                           (long long)micro_steps);
    else if (c->max_steps > 0 && isfinite(c->epochs) && c->max_steps < of_epochs)
        fsdp_trainer_print(
            t,
            "--max-steps %lld x %lld micro-batches of a rank end before --epochs %g, "
            "which have %lld x %lld",
            (long long)c->max_steps, (long long)micro_steps, c->epochs, (long long)of_epochs,
            (long long)micro_steps);
    fsdp_train_resolve_steps(&t->completed, t->total_steps);
}

static fsdp_status open_data(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    FSDP_TRY(fsdp_model_tokenizer_open(t->model, c->tokenizer, &t->tokenizer));
    FSDP_TRY(fsdp_model_chat_open(t->model, c->tokenizer, c->chat.chat_template, &t->tokenizer));
    FSDP_TRY(fsdp_train_sources_open(t, true, &t->train_set));
    FSDP_TRY(check_labels(t, t->train_set, c->data));
    FSDP_TRY(open_loader(t, t->train_set, true, &t->train_loader));
    if (c->validation_data && c->run_validation) {
        FSDP_TRY(fsdp_train_sources_open(t, false, &t->validation_set));
        FSDP_TRY(check_labels(t, t->validation_set, c->validation_data));
        FSDP_TRY(open_loader(t, t->validation_set, false, &t->validation_loader));
    }
    FSDP_TRY(fsdp_train_sources_check_texts(t));
    count_steps(t);
    return FSDP_OK;
}

static fsdp_status open_grad_scaler(fsdp_trainer *t)
{
    const fsdp_grad_scaler_options options = {.init_scale = t->config->init_scale,
                                              .growth_factor = t->config->growth_factor,
                                              .backoff_factor = t->config->backoff_factor,
                                              .growth_interval = t->config->growth_interval,
                                              .group = t->group};
    return fsdp_train_needs_grad_scaler(t->config)
               ? fsdp_grad_scaler_create(&options, &t->loop.scaler)
               : FSDP_OK;
}

/* Schedule-Free AdamW has a warmup of its own, so take it out of the schedule. */
static void move_warmup(fsdp_trainer *t)
{
    for (int g = 0; g < fsdp_optimizer_n_groups(t->loop.optimizer); g++)
        fsdp_optimizer_group_options(t->loop.optimizer, g)->schedule_free.warmup_steps =
            t->schedule.warmup_steps;
    t->schedule.warmup_steps = 0;
}

static fsdp_status open_schedule(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    const int64_t warmup = fsdp_train_warmup_steps(c, t->total_steps);
    if (c->warmup_steps > 0 && c->warmup_ratio > 0)
        fsdp_trainer_print(t, "--warmup-steps %g takes precedence over --warmup-ratio %g",
                           c->warmup_steps, c->warmup_ratio);
    if (warmup > t->total_steps)
        fsdp_trainer_print(
            t, "--warmup-steps %lld: the run ends after %lld, so the rate only rises, to %g of %g",
            (long long)warmup, (long long)t->total_steps,
            c->lr * (double)(t->total_steps - 1) / (double)warmup, c->lr);
    if (c->min_lr > 0 && c->min_lr >= c->lr && c->lr_schedule != FSDP_LR_CONSTANT)
        fsdp_trainer_print(t, "--min-lr %g is --lr, so the rate does not decay", c->min_lr);
    t->schedule = (fsdp_lr_schedule){
        .kind = (fsdp_lr_schedule_kind)c->lr_schedule,
        .lr = c->lr,
        .min_lr = c->min_lr,
        .gamma = c->gamma,
        .step_size = c->step_size,
        .unit_steps = c->schedule_unit == FSDP_SCHEDULE_EPOCH ? t->steps_per_epoch : 1,
        .warmup_steps = warmup,
        .power = c->lr_power,
        .num_cycles = c->num_cycles,
        .total_steps = t->total_steps};
    if (c->optimizer == FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW)
        move_warmup(t);
    return fsdp_lr_schedule_check(&t->schedule);
}

fsdp_status fsdp_trainer_open_loop(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    t->loop.group = t->group;
    t->loop.device = t->device;
    t->loop.eval_iters = c->eval_iters;
    t->loop.label_smoothing = c->label_smoothing;
    t->loop.micro_steps = c->gradient_accumulation_steps;
    t->loop.accumulation_mode = (fsdp_accumulation_mode)c->accumulation_mode;
    t->loop.max_grad_norm = c->max_grad_norm;
    t->loop.grad_norm_type = c->grad_norm_type;
    t->loop.clip_value = c->clip_value;
    t->loop.unshard_first = c->explicit_prefetching;
    t->loop.keep_between_micro_steps = !c->reshard_after_backward;
    t->loop.set_is_last_backward = c->set_is_last_backward;
    t->loop.gradient_divide_factor = c->gradient_divide_factor;
    t->loop.in_float16 = fsdp_train_is_in_float16(c);
    t->loop.ignore_nonfinite = !c->error_if_nonfinite;
    t->loop.mean_of_means = c->loss_reduction == FSDP_LOSS_MEAN_OF_MEANS;
    FSDP_TRY(fsdp_tape_create(&t->loop.tape));
    FSDP_TRY(fsdp_train_optimizer_create(c, t->loop.module, &t->loop.optimizer));
    return open_grad_scaler(t);
}

static fsdp_status open_profile(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    fsdp_profile_options options = {.path = c->profile, .device = t->device};
    if (!c->profile || t->step >= t->total_steps)
        return FSDP_OK;
    FSDP_TRY(fsdp_profile_choose_steps("--profile-steps", c->profile_steps, t->step, t->total_steps,
                                       &options));
    return fsdp_profile_create(t->group, &options, &t->profile);
}

static fsdp_status open_training(fsdp_trainer *t)
{
    FSDP_TRY(fsdp_trainer_open_loop(t));
    return open_schedule(t);
}

static void print_mesh(const fsdp_trainer *t)
{
    const int replicas = t->mesh ? fsdp_device_mesh_size(t->mesh, 0) : 0;
    if (replicas == 1)
        fprintf(t->out,
                "one replica, sharded over all ranks of this host: as %s; "
                "--shard-size N makes more\n",
                t->config->sharding_strategy == FSDP_SHARDING_HYBRID_SHARD ? "FULL_SHARD"
                                                                           : "SHARD_GRAD_OP");
    else if (replicas > 1)
        fprintf(t->out, "%d replicas, each sharded over %d rank%s\n", replicas,
                fsdp_device_mesh_size(t->mesh, 1),
                fsdp_device_mesh_size(t->mesh, 1) > 1 ? "s" : "");
}

fsdp_status fsdp_trainer_print_model(const fsdp_trainer *t, FILE *out)
{
    switch ((fsdp_print_model)t->config->print_model) {
    case FSDP_PRINT_MODEL_FSDP2:
        return fsdp_module_print(t->loop.module, out, FSDP_PRINT_FSDP2);
    case FSDP_PRINT_MODEL_FSDP1:
        return fsdp_module_print(t->loop.module, out, FSDP_PRINT_FSDP1);
    case FSDP_PRINT_MODEL_NONE:
        break;
    }
    return FSDP_OK;
}

static void print_device(const fsdp_trainer *t)
{
    char text[256];
    const int ranks = fsdp_group_local_world_size(t->group);
    fsdp_device_describe(t->device, text);
    fprintf(t->out, "device: %s", text);
    if (fsdp_train_uses_cards(t->config) && fsdp_train_ranks_per_card(t->config, ranks) > 1)
        fprintf(t->out, ", shared by %d ranks", fsdp_train_ranks_per_card(t->config, ranks));
    if (*fsdp_group_card_exchange(t->group))
        fprintf(t->out, " on rank 0, a card for each rank, bytes between cards by %s",
                fsdp_group_card_exchange(t->group));
    fputc('\n', t->out);
}

/* Print which values are stored in bfloat16 or 8 bits instead of float32, and how the lower
 * precision affects training. */
static void print_precision(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    const bool weights = c->master_dtype == FSDP_DTYPE_BF16;
    const bool state = c->optimizer_state_dtype == FSDP_DTYPE_BF16;
    const bool is_8bit = c->optimizer == FSDP_OPTIMIZER_ADAMW_8BIT;
    if (is_8bit)
        fprintf(t->out,
                "the optimizer's moments are kept in 8 bits (parameters below %lld elements "
                "and vectors: float32)\n",
                (long long)fsdp_adamw_defaults().min_8bit_size);
    if (weights || state)
        fprintf(
            t->out,
            "%s kept in bfloat16: updates below 1/256 of a value are %s; gradients%s are float32\n",
            weights && state ? "weights and the optimizer's moments are"
            : weights        ? "weights are"
                             : "the optimizer's moments are",
            c->bf16_stochastic_round ? "rounded stochastically" : "rounded away",
            state || is_8bit ? "" : " and the optimizer's state");
    if (state && !c->bf16_stochastic_round && 1.0 - c->beta2 < 0x1p-9)
        fprintf(t->out,
                "--beta2 %g: a second moment in bfloat16 hardly follows the gradients; 0.95 does; "
                "--bf16 --master-dtype bfloat16 has moments in float32\n",
                c->beta2);
}

static void print_float8(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    const size_t n = t->model->n_float8;
    if (n)
        fprintf(t->out, "float8: %zu linear layer%s, recipe %s%s\n", n, n == 1 ? "" : "s",
                fsdp_float8_recipe_name((fsdp_float8_recipe)(c->float8_recipe - 1)),
                c->float8_all_gather ? ", gathered in float8" : "");
}

static void print_hosts(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    const char *dtype = fsdp_dtype_name(c->internode_reduce_dtype);
    if (!c->set_internode_reduce_dtype)
        return;
    if (fsdp_group_local_world_size(t->group) == fsdp_group_world_size(t->group))
        fprintf(t->out, "--internode-reduce-dtype %s has no effect: all ranks are on one host\n",
                dtype);
    else
        fprintf(t->out,
                "the sum of the gradients of a host is sent to other hosts in %s: the weights may "
                "not have the bits of a run on one host\n",
                dtype);
}

static fsdp_status print_start(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    if (!t->out)
        return FSDP_OK;
    int64_t n = 0;
    for (size_t i = 0; i < t->loop.parameters.n; i++)
        n += fsdp_parameter_numel(t->loop.parameters.items[i].parameter);
    fprintf(t->out, "%s %s: %s parameters, %s", fsdp_module_class(t->loop.module), c->model,
            fsdp_human_count((double)n).text, c->from_config ? "drawn from the seed" : "loaded");
    if (c->frozen_prefixes.count || t->model->lora)
        fprintf(t->out, "; %s are trained", fsdp_human_count((double)count_trained(t)).text);
    fputc('\n', t->out);
    fprintf(t->out, "ranks: %d (%s), %d thread%s each, %s compute, %s master, %s\n",
            fsdp_group_world_size(t->group), fsdp_group_backend(t->group), t->threads,
            t->threads == 1 ? "" : "s", fsdp_dtype_name(c->param_dtype),
            fsdp_dtype_name(c->master_dtype),
            fsdp_sharding_strategy_name((fsdp_sharding_strategy)c->sharding_strategy));
    print_precision(t);
    print_float8(t);
    print_hosts(t);
    print_device(t);
    print_mesh(t);
    fprintf(t->out, "Size of train dataset:  %lld\n", (long long)fsdp_dataset_len(t->train_set));
    if (t->validation_set)
        fprintf(t->out, "Size of Validation dataset:  %lld\n",
                (long long)fsdp_dataset_len(t->validation_set));
    else if (c->save_model)
        fprintf(t->out, "without validation, the model is saved once, at the end\n");
    fsdp_report_start(t);
    fflush(t->out);
    return fsdp_trainer_print_model(t, t->out);
}

static fsdp_status check_ranks_and_outputs(const fsdp_trainer *t)
{
    FSDP_TRY(fsdp_train_check_devices(t->config->devices, fsdp_group_world_size(t->group)));
    FSDP_TRY(fsdp_train_check_mesh(t->config, fsdp_group_world_size(t->group)));
    return check_outputs(t);
}

fsdp_status fsdp_trainer_open(fsdp_trainer *t)
{
    fsdp_status status =
        fsdp_agree(t->group, fsdp_trainer_is_first(t) ? check_ranks_and_outputs(t) : FSDP_OK);
    /* If hosts have disks of their own, checkpoints of an earlier run may be on the disk of any
     * host. So one rank of each host checks its disk. */
    if (status == FSDP_OK && fsdp_group_is_on_several_hosts(t->group))
        status = fsdp_agree(t->group, fsdp_group_leads_host(t->group, fsdp_group_rank(t->group))
                                          ? fsdp_checkpoint_check(t)
                                          : FSDP_OK);
    t->result->refused = status == FSDP_ERR_INVALID;
    FSDP_TRY(status);
    FSDP_TRY(open_device(t));
    FSDP_TRY(fsdp_trainer_open_model(t));
    FSDP_TRY(open_data(t));
    return open_training(t);
}

fsdp_status fsdp_trainer_open_reports(fsdp_trainer *t)
{
    FSDP_TRY(fsdp_agree(t->group, fsdp_trainer_open_tracking(t)));
    FSDP_TRY(fsdp_trainer_open_monitor(t));
    FSDP_TRY(fsdp_trainer_open_histograms(t));
    FSDP_TRY(open_profile(t));
    return print_start(t);
}

void fsdp_trainer_fini(fsdp_trainer *t)
{
    fsdp_async_checkpoint_fini(t);
    fsdp_loader_destroy(t->train_loader);
    fsdp_loader_destroy(t->validation_loader);
    fsdp_dataset_close(t->train_set);
    fsdp_dataset_close(t->validation_set);
    fsdp_profile_destroy(t->profile);
    fsdp_hostmem_destroy(t->hostmem);
    fsdp_histograms_destroy(t->histograms);
    fsdp_grad_scaler_destroy(t->loop.scaler);
    fsdp_optimizer_destroy(t->loop.optimizer);
    fsdp_tape_destroy(t->loop.tape);
    fsdp_activation_offload_destroy(t->offload);
    fsdp_parameter_list_free(&t->loop.parameters);
    fsdp_model_close(t->model);
    fsdp_train_lora_fini(&t->lora);
    fsdp_device_mesh_destroy(t->mesh);
    fsdp_model_tokenizer_close(&t->tokenizer);
    fsdp_device_destroy(t->device);
    fsdp_free(t->metrics_path);
    fsdp_free(t->checkpoint_dir);
    fsdp_free(t->resumed_from);
    fsdp_free(t->resumed_prefix);
    fsdp_free(t->step_seconds);
    fsdp_found_labels_fini(&t->found_labels);
    fsdp_free(t->epochs);
}
