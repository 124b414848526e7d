/* prepare: order, several models, errors; what the environment says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/accelerator/job.h"
#include "tests/fsdp/toy.h"
#include "tests/test.h"

static const toy_shape shape = {.vocab = 7, .width = 6, .hidden = 5, .blocks = 2};

static fsdp_status open_accelerator(fsdp_test *t, const char *precision, fsdp_accelerator **a)
{
    const fsdp_grad_scaler_options scaler = {.init_scale = 64};
    const fsdp_accelerator_options options = {
        .group = t->group, .cpu = true, .mixed_precision = precision, .grad_scaler = &scaler};
    return fsdp_accelerator_create(&options, a);
}

/* ---- errors ---- */

TEST_RANKS(each_object_is_prepared_once, 2)
{
    const job_options options = {.total_steps = 10};
    const fsdp_lr_schedule schedule = {.kind = FSDP_LR_CONSTANT};
    fsdp_accelerated_scheduler *scheduler;
    fsdp_module *unwrapped;
    job j;
    ASSERT_OK(job_open(&j, t->group, &options));
    ASSERT_ERROR(fsdp_accelerator_prepare_model(j.accelerator, j.models[0]), FSDP_ERR_INVALID,
                 "this model was prepared before");
    ASSERT_ERROR(fsdp_accelerator_prepare_optimizer(j.accelerator, j.optimizers[0]),
                 FSDP_ERR_INVALID, "this optimizer was prepared before");
    ASSERT_ERROR(fsdp_accelerator_prepare_data_loader(j.accelerator, j.loader), FSDP_ERR_INVALID,
                 "this loader was prepared before");
    ASSERT_ERROR(
        fsdp_accelerator_prepare_scheduler(j.accelerator, j.optimizers[0], &schedule, &scheduler),
        FSDP_ERR_INVALID, "has a scheduler already");
    ASSERT_ERROR(fsdp_accelerator_prepare_model(j.accelerator, fsdp_module_child(j.models[0], 0)),
                 FSDP_ERR_INVALID, "is inside another one");
    ASSERT_OK(fsdp_accelerator_unwrap_model(j.accelerator, j.models[0], &unwrapped));
    ASSERT(unwrapped == j.models[0]);
    /* free_memory() forgets them. */
    fsdp_accelerator_free_memory(j.accelerator);
    ASSERT_ERROR(fsdp_accelerator_unwrap_model(j.accelerator, j.models[0], &unwrapped),
                 FSDP_ERR_INVALID, "this model was not prepared");
    ASSERT_OK(fsdp_accelerator_prepare_model(j.accelerator, j.models[0]));
    ASSERT_OK(fsdp_accelerator_prepare_optimizer(j.accelerator, j.optimizers[0]));
    ASSERT_ERROR(fsdp_accelerator_prepare_data_loader(j.accelerator, j.loader), FSDP_ERR_INVALID,
                 "the loader is split over 2 ranks already");
    job_close(&j);
}

TEST_RANKS(unknown_objects_are_errors, 1)
{
    fsdp_accelerator *a;
    fsdp_module *model, *other;
    fsdp_optimizer *optimizer, *both, *none;
    fsdp_parameter_list list;
    fsdp_batch *batch;
    fsdp_dataset *dataset;
    fsdp_loader *loader;
    const fsdp_loader_options options = {.sampler = {.batch_size = 2, .world_size = 1}};
    ASSERT_OK(open_accelerator(t, NULL, &a));
    ASSERT_OK(toy_create(&shape, &model));
    ASSERT_OK(toy_create(&shape, &other));
    ASSERT_OK(fsdp_adamw_create(model, NULL, &optimizer));
    ASSERT_OK(job_dataset(4, &dataset));
    ASSERT_OK(fsdp_loader_create(dataset, &options, &loader));
    ASSERT_ERROR(fsdp_accelerator_prepare_optimizer(a, optimizer), FSDP_ERR_INVALID,
                 "of the optimizer belongs to no prepared model");
    ASSERT_OK(fsdp_accelerator_prepare_model(a, other));
    ASSERT_ERROR(fsdp_accelerator_prepare_optimizer(a, optimizer), FSDP_ERR_INVALID,
                 "parameter 'embedding' of the optimizer belongs to no prepared model");
    ASSERT_OK(fsdp_adamw_create(other, NULL, &both));
    ASSERT_OK(fsdp_module_parameters(model, false, &list));
    ASSERT_OK(fsdp_adamw_add_group(both, &list, NULL));
    ASSERT_ERROR(fsdp_accelerator_prepare_optimizer(a, both), FSDP_ERR_INVALID,
                 "belongs to no prepared model");
    ASSERT_OK(fsdp_accelerator_prepare_model(a, model));
    ASSERT_ERROR(fsdp_accelerator_prepare_optimizer(a, both), FSDP_ERR_UNSUPPORTED,
                 "the optimizer updates models 0 and 1");
    ASSERT_OK(fsdp_adamw_create(NULL, NULL, &none));
    ASSERT_ERROR(fsdp_accelerator_prepare_optimizer(a, none), FSDP_ERR_INVALID,
                 "the optimizer has no parameters");
    ASSERT_ERROR(fsdp_accelerator_optimizer_step(a, optimizer), FSDP_ERR_INVALID,
                 "this optimizer was not prepared");
    ASSERT_ERROR(fsdp_accelerator_zero_grad(a, optimizer), FSDP_ERR_INVALID,
                 "this optimizer was not prepared");
    ASSERT_ERROR(fsdp_accelerator_scheduler_step(a, NULL), FSDP_ERR_INVALID,
                 "this scheduler is not one of");
    ASSERT_ERROR(fsdp_accelerator_next(a, loader, &batch), FSDP_ERR_INVALID,
                 "this loader was not prepared; call fsdp_accelerator_prepare_data_loader() first");
    fsdp_parameter_list_free(&list);
    fsdp_loader_destroy(loader);
    fsdp_dataset_close(dataset);
    fsdp_optimizer_destroy(none);
    fsdp_optimizer_destroy(both);
    fsdp_optimizer_destroy(optimizer);
    fsdp_module_destroy(model);
    fsdp_module_destroy(other);
    fsdp_accelerator_destroy(a);
}

TEST_RANKS(calls_in_the_wrong_order_are_errors, 2)
{
    const job_options options = {.accelerator = {.gradient_accumulation_steps = 2}};
    job j;
    ASSERT_OK(job_open(&j, t->group, &options));
    ASSERT_ERROR(fsdp_accelerator_accumulate_end(j.accelerator), FSDP_ERR_STATE,
                 "without accumulate_begin");
    ASSERT_OK(fsdp_accelerator_accumulate_begin(j.accelerator));
    ASSERT_ERROR(fsdp_accelerator_accumulate_begin(j.accelerator), FSDP_ERR_STATE, "called twice");
    ASSERT(!fsdp_accelerator_sync_gradients(j.accelerator));
    ASSERT_ERROR(fsdp_accelerator_clip_grad_norm(j.accelerator, j.models[0], 1.0, NULL, NULL),
                 FSDP_ERR_STATE, "(micro-step 1 of 2)");
    ASSERT_ERROR(fsdp_accelerator_clip_grad_value(j.accelerator, j.models[0], 1.0), FSDP_ERR_STATE,
                 "still being accumulated");
    ASSERT_OK(fsdp_accelerator_accumulate_end(j.accelerator));
    ASSERT(fsdp_accelerator_sync_gradients(j.accelerator));
    ASSERT_ERROR(fsdp_accelerator_set_epoch(j.accelerator, j.loader, -1), FSDP_ERR_INVALID,
                 "epoch -1 is negative");
    ASSERT_ERROR(fsdp_accelerator_skip_first_batches(j.accelerator, j.loader, 7), FSDP_ERR_INVALID,
                 "7 batches to skip, but an epoch has 6");
    job_close(&j);
}

static void refused(fsdp_test *t, const fsdp_accelerator_options *more, fsdp_status status,
                    const char *text)
{
    fsdp_accelerator_options options = *more;
    fsdp_accelerator *a;
    options.group = t->group;
    ASSERT_ERROR(fsdp_accelerator_create(&options, &a), status, text);
}

TEST_RANKS(options_are_checked, 2)
{
    const fsdp_fully_shard_options shard = {0};
    refused(t, &(fsdp_accelerator_options){.mixed_precision = "fp8"}, FSDP_ERR_INVALID,
            "\"fp8\": expected no, fp16 or bf16; for float8, choose bf16 and call");
    refused(t, &(fsdp_accelerator_options){.mixed_precision = "bf16", .fully_shard = &shard},
            FSDP_ERR_INVALID, "fully_shard.mp_policy says");
    refused(t, &(fsdp_accelerator_options){.gradient_accumulation_steps = -1}, FSDP_ERR_INVALID,
            "gradient_accumulation_steps -1 must be positive");
    refused(t, &(fsdp_accelerator_options){.automatic_checkpoint_naming = true}, FSDP_ERR_INVALID,
            "needs a project_dir");
    refused(t, &(fsdp_accelerator_options){.total_limit = 2}, FSDP_ERR_INVALID,
            "are for automatic_checkpoint_naming");
    refused(t, &(fsdp_accelerator_options){.state_dict_type = 4}, FSDP_ERR_INVALID,
            "state_dict_type 4");
    refused(t, &(fsdp_accelerator_options){.log_with = "json, wandb"}, FSDP_ERR_UNSUPPORTED,
            "set tracker_command");
    refused(t, &(fsdp_accelerator_options){.log_with = "tensorbord"}, FSDP_ERR_INVALID,
            "did you mean tensorboard?");
    refused(t, &(fsdp_accelerator_options){.log_with = "xlsx"}, FSDP_ERR_INVALID,
            "none of tensorboard, json, csv, all and none");
}

TEST_RANKS(loaders_and_schedules_are_checked, 2)
{
    fsdp_accelerator *a;
    fsdp_dataset *dataset;
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    fsdp_accelerated_scheduler *scheduler;
    fsdp_lr_schedule schedule = {.kind = FSDP_LR_LINEAR, .lr = 0.5, .total_steps = 4};
    const fsdp_accelerator_options options = {
        .group = t->group, .cpu = true, .split_batches = true, .gradient_accumulation_steps = 2};
    const fsdp_sampler samplers[] = {
        {.batch_size = 3, .world_size = 1},
        {.batch_size = 2, .world_size = 1, .accumulation = 3},
        {.kind = FSDP_SAMPLER_DISTRIBUTED, .batch_size = 2, .world_size = 1}};
    static const char *const messages[] = {"batch size 3 is not divisible by 2 ranks",
                                           "accumulation 3, but gradient_accumulation_steps is 2",
                                           "give it FSDP_SAMPLER_DEFAULT"};
    ASSERT_OK(fsdp_accelerator_create(&options, &a));
    ASSERT_OK(job_dataset(12, &dataset));
    for (int i = 0; i < 3; i++) {
        fsdp_loader *loader;
        const fsdp_loader_options loading = {.sampler = samplers[i]};
        ASSERT_OK(fsdp_loader_create(dataset, &loading, &loader));
        ASSERT_ERROR(fsdp_accelerator_prepare_data_loader(a, loader),
                     i == 2 ? FSDP_ERR_UNSUPPORTED : FSDP_ERR_INVALID, messages[i]);
        fsdp_loader_destroy(loader);
    }
    ASSERT_OK(toy_create(&shape, &model));
    ASSERT_OK(fsdp_adamw_create(model, NULL, &optimizer));
    ASSERT_OK(fsdp_accelerator_prepare_model(a, model));
    ASSERT_ERROR(fsdp_accelerator_prepare_scheduler(a, optimizer, &schedule, &scheduler),
                 FSDP_ERR_INVALID, "this optimizer was not prepared");
    ASSERT_OK(fsdp_accelerator_prepare_optimizer(a, optimizer));
    ASSERT_ERROR(fsdp_accelerator_prepare_scheduler(a, optimizer, &schedule, &scheduler),
                 FSDP_ERR_INVALID,
                 "the learning rate is 0.5 in the schedule and 0.001 in the optimizer");
    schedule.lr = 0;
    schedule.warmup_steps = -1;
    ASSERT_ERROR(fsdp_accelerator_prepare_scheduler(a, optimizer, &schedule, &scheduler),
                 FSDP_ERR_INVALID, "warmup");
    schedule.warmup_steps = 2;
    ASSERT_OK(fsdp_accelerator_prepare_scheduler(a, optimizer, &schedule, &scheduler));
    ASSERT_F32(fsdp_optimizer_lr(optimizer, 0), 0);
    ASSERT_OK(fsdp_accelerator_scheduler_step(a, scheduler));
    ASSERT_F32(fsdp_accelerated_scheduler_last_lr(scheduler), 0.0005);
    /* The learning rate of Schedule-Free AdamW is there before its first step, as in
     * param_groups. */
    fsdp_optimizer *schedule_free;
    ASSERT_OK(fsdp_schedule_free_adamw_create(model, NULL, &schedule_free));
    ASSERT_OK(fsdp_accelerator_prepare_optimizer(a, schedule_free));
    ASSERT_OK(fsdp_accelerator_prepare_scheduler(a, schedule_free, &schedule, &scheduler));
    ASSERT_OK(fsdp_accelerator_scheduler_step(a, scheduler));
    ASSERT_F32(fsdp_accelerated_scheduler_last_lr(scheduler), 0.00125);
    fsdp_dataset_close(dataset);
    fsdp_optimizer_destroy(schedule_free);
    fsdp_optimizer_destroy(optimizer);
    fsdp_module_destroy(model);
    fsdp_accelerator_destroy(a);
}

/* ---- values ---- */

/* A model that has values keeps those of rank 0, as DistributedDataParallel does. */
TEST_RANKS(all_ranks_get_the_values_of_the_main_process, 2)
{
    fsdp_accelerator *a;
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    fsdp_state_dict *dict, *expected = NULL;
    const fsdp_state_dict_options full = {.full_state_dict = true, .group = t->group};
    ASSERT_OK(open_accelerator(t, NULL, &a));
    ASSERT_OK(toy_create(&shape, &model));
    ASSERT_OK(fsdp_adamw_create(model, NULL, &optimizer));
    ASSERT_OK(fsdp_module_to_empty(model, fsdp_accelerator_device(a)));
    ASSERT_OK(fsdp_module_init(model, (uint64_t)t->rank + 1));
    float before[7 * 6], after[7 * 6];
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_data(fsdp_module_parameter(model, "embedding")),
                                    before));
    ASSERT_OK(fsdp_broadcast(t->group, before, sizeof before, 0));
    ASSERT_OK(fsdp_accelerator_prepare_model(a, model));
    ASSERT(fsdp_module_is_unit(model));
    ASSERT_OK(fsdp_accelerator_prepare_optimizer(a, optimizer));
    ASSERT_OK(fsdp_get_model_state_dict(model, &full, &dict));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_state_dict_find(dict, "embedding")->tensor, after));
    ASSERT(memcmp(before, after, sizeof before) == 0);
    fsdp_state_dict_destroy(dict);
    fsdp_state_dict_destroy(expected);
    fsdp_optimizer_destroy(optimizer);
    fsdp_module_destroy(model);
    fsdp_accelerator_destroy(a);
}

/* ---- a teacher and a student ---- */

static fsdp_tensor *loss_of(fsdp_scope *s, fsdp_module *model, double factor)
{
    static const int32_t ids[] = {1, 2, 3, 4}, labels[] = {2, 3, 4, 5};
    static _Thread_local toy_batch batch;
    batch = (toy_batch){.ids = ids, .labels = labels, .n = 4, .factor = (float)(0.25 * factor)};
    return toy_loss(s, model, &batch);
}

/* The teacher (model 0) has no optimizer; the optimizer of the student (model 1) is optimizer 0.
 * The loss has its factor in it, because linear_cross_entropy needs that. */
TEST_RANKS(a_teacher_without_an_optimizer_comes_first, 2)
{
    fsdp_accelerator *a;
    fsdp_module *teacher, *student;
    fsdp_optimizer *optimizer;
    fsdp_scope *s;
    double before, after, teaching, norm = 0;
    char dir[300];
    ASSERT_OK(open_accelerator(t, "fp16", &a));
    ASSERT_OK(toy_create(&shape, &teacher));
    ASSERT_OK(toy_create(&shape, &student));
    ASSERT_OK(fsdp_adamw_create(student, NULL, &optimizer));
    ASSERT_OK(fsdp_accelerator_prepare_model(a, teacher));
    ASSERT_OK(fsdp_accelerator_prepare_model(a, student));
    ASSERT_OK(fsdp_accelerator_prepare_optimizer(a, optimizer));
    ASSERT_OK(fsdp_module_init(teacher, 1));
    ASSERT_OK(fsdp_module_init(student, 2));
    for (int step = 0; step < 8; step++) {
        ASSERT_OK(fsdp_accelerator_scope_open(a, false, NULL, &s));
        ASSERT_OK(fsdp_tensor_item(loss_of(s, teacher, 1), &teaching));
        fsdp_scope_close(s);
        ASSERT_OK(fsdp_accelerator_scope_open(a, true, NULL, &s));
        const double factor = fsdp_accelerator_loss_factor(a);
        fsdp_tensor *loss = loss_of(s, student, factor);
        ASSERT_OK(fsdp_accelerator_backward_scaled(a, s, loss));
        ASSERT_OK(fsdp_tensor_item(loss, &after));
        after /= factor;
        before = step ? before : after;
        fsdp_scope_close(s);
        ASSERT_OK(fsdp_accelerator_clip_grad_norm(a, student, 0.5, NULL, &norm));
        ASSERT(norm > 0);
        ASSERT_OK(fsdp_accelerator_optimizer_step(a, optimizer));
        ASSERT_OK(fsdp_accelerator_zero_grad(a, optimizer));
    }
    ASSERT(after < before && teaching > 0);
    ASSERT_OK(fsdp_accelerator_scope_open(a, true, NULL, &s));
    ASSERT_ERROR(fsdp_accelerator_backward(a, s, loss_of(s, student, 1)), FSDP_ERR_UNSUPPORTED,
                 "linear_cross_entropy: the gradient of the loss is");
    fsdp_scope_close(s);
    snprintf(dir, sizeof dir, "%s/state", fsdp_test_dir(t));
    ASSERT_OK(fsdp_accelerator_save_state(a, dir));
    ASSERT_OK(fsdp_accelerator_load_state(a, dir));
    fsdp_optimizer_destroy(optimizer);
    fsdp_module_destroy(student);
    fsdp_module_destroy(teacher);
    fsdp_accelerator_destroy(a);
}

/* ---- the environment ---- */

/* Return the number of units of a toy with two blocks. */
static fsdp_status count_units(const char *path, fsdp_module *module, void *arg)
{
    (void)path;
    *(int *)arg += fsdp_module_is_unit(module);
    return FSDP_OK;
}

typedef struct seen {
    fsdp_status status;
    int units, accumulation;
    char precision[8];
    fsdp_unit_info info;
    char message[1024];
} seen;

static fsdp_status look(fsdp_accelerator *a, seen *s)
{
    fsdp_module *model;
    FSDP_TRY(toy_create(&shape, &model));
    fsdp_status status = fsdp_accelerator_prepare_model(a, model);
    if (status == FSDP_OK)
        status = fsdp_module_visit(model, count_units, &s->units);
    if (status == FSDP_OK)
        status = fsdp_unit_get_info(model, &s->info);
    s->accumulation = fsdp_accelerator_gradient_accumulation_steps(a);
    snprintf(s->precision, sizeof s->precision, "%s", fsdp_accelerator_mixed_precision(a));
    fsdp_module_destroy(model);
    return status;
}

/* Prepare a toy with NAME=VALUE variables set. */
static seen look_with(fsdp_test *t, const char *const *variables)
{
    seen s = {0};
    fsdp_accelerator *a;
    for (int i = 0; variables[i]; i += 2)
        setenv(variables[i], variables[i + 1], 1);
    const fsdp_accelerator_options options = {.group = t->group, .cpu = true};
    s.status = fsdp_accelerator_create(&options, &a);
    if (s.status == FSDP_OK) {
        s.status = look(a, &s);
        fsdp_accelerator_destroy(a);
    }
    if (s.status != FSDP_OK)
        snprintf(s.message, sizeof s.message, "%s", fsdp_last_error());
    for (int i = 0; variables[i]; i += 2)
        unsetenv(variables[i]);
    return s;
}

TEST_RANKS(the_environment_decides_what_the_program_does_not, 1)
{
    seen s = look_with(t, (const char *const[]){NULL});
    ASSERT_OK(s.status);
    ASSERT_INT(s.units, 1);
    ASSERT_INT(s.accumulation, 1);
    ASSERT_STR(s.precision, "no");
    s = look_with(t, (const char *const[]){"FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP",
                                           "FSDP_TRANSFORMER_CLS_TO_WRAP", "ToyBlock",
                                           "ACCELERATE_MIXED_PRECISION", "bf16",
                                           "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "3",
                                           "FSDP_SHARDING_STRATEGY", "NO_SHARD", NULL});
    ASSERT_OK(s.status);
    ASSERT_INT(s.units, 3);
    ASSERT_INT(s.accumulation, 3);
    ASSERT_STR(s.precision, "bf16");
    ASSERT(s.info.no_shard);
    ASSERT_INT(s.info.mp_policy.param_dtype, FSDP_DTYPE_BF16);
    ASSERT_INT(s.info.mp_policy.reduce_dtype, FSDP_DTYPE_BF16);
    s = look_with(
        t, (const char *const[]){"FSDP_AUTO_WRAP_POLICY", "2", "FSDP_MIN_NUM_PARAMS", "60", NULL});
    ASSERT_OK(s.status);
    ASSERT_INT(s.units, 3);
    s = look_with(t, (const char *const[]){"FSDP_AUTO_WRAP_POLICY", "NO_WRAP", NULL});
    ASSERT_OK(s.status);
    ASSERT_INT(s.units, 1);
    /* An argument replaces a variable whose value is not supported. */
    fsdp_accelerator *a;
    setenv("ACCELERATE_MIXED_PRECISION", "fp8", 1);
    s.status = fsdp_accelerator_create(
        &(fsdp_accelerator_options){.group = t->group, .cpu = true, .mixed_precision = "bf16"}, &a);
    unsetenv("ACCELERATE_MIXED_PRECISION");
    ASSERT_OK(s.status);
    ASSERT_STR(fsdp_accelerator_mixed_precision(a), "bf16");
    fsdp_accelerator_destroy(a);
}

TEST_RANKS(wrong_variables_are_errors, 1)
{
    seen s = look_with(t, (const char *const[]){"FSDP_AUTO_WRAP_POLICY", "all", NULL});
    ASSERT(s.status == FSDP_ERR_INVALID && strstr(s.message, "FSDP_AUTO_WRAP_POLICY"));
    s = look_with(t, (const char *const[]){"FSDP_TRANSFORMER_CLS_TO_WRAP", "T5Block", NULL});
    ASSERT(s.status == FSDP_ERR_INVALID && strstr(s.message, "T5Block"));
    s = look_with(t, (const char *const[]){"FSDP_AUTO_WRAP_POLICY", "1", NULL});
    ASSERT(s.status == FSDP_ERR_INVALID && strstr(s.message, "FSDP_TRANSFORMER_CLS_TO_WRAP"));
    s = look_with(t, (const char *const[]){"ACCELERATE_MIXED_PRECISION", "fp8", NULL});
    ASSERT(s.status == FSDP_ERR_INVALID && strstr(s.message, "ACCELERATE_MIXED_PRECISION"));
    s = look_with(t, (const char *const[]){"FSDP_IGNORED_MODULES", "head", NULL});
    ASSERT(s.status == FSDP_ERR_UNSUPPORTED && strstr(s.message, "fully_shard.ignored_params"));
    s = look_with(t, (const char *const[]){"PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "2", NULL});
    ASSERT(s.status == FSDP_ERR_INVALID && strstr(s.message, "do not give the 1 ranks"));
}
