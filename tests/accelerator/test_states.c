/* save_state, load_state, registered objects, names of checkpoints, models in files. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "tests/accelerator/job.h"
#include "tests/test.h"

enum {
    PATH = 300
};

static void path_in(fsdp_test *t, const char *name, char path[PATH])
{
    snprintf(path, PATH, "%s/%s", fsdp_test_dir(t), name);
}

static bool has(const char *dir, const char *name)
{
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return fsdp_path_exists(path);
}

/* ---- resuming ---- */

static fsdp_status steps(job *j, int n)
{
    double loss;
    bool more;
    for (int i = 0; i < n; i++)
        FSDP_TRY(job_step(j, &loss, &more));
    return FSDP_OK;
}

/* Train two epochs, save after `batches` batches of the second one. Then load the state into
 * another job, skip these batches, and end up with the same weights. */
static void resume(fsdp_test *t, const job_options *options, int batches)
{
    static float expected[JOB_WEIGHTS], found[JOB_WEIGHTS];
    float *weights = t->rank == 0 ? expected : calloc(JOB_WEIGHTS, sizeof *weights);
    char dir[PATH];
    job a, b;
    path_in(t, "state", dir);
    ASSERT_OK(job_open(&a, t->group, options));
    ASSERT_OK(job_epoch(&a));
    ASSERT_OK(steps(&a, batches));
    ASSERT_OK(fsdp_accelerator_save_state(a.accelerator, dir));
    const int64_t last_epoch = fsdp_accelerated_scheduler_last_epoch(a.scheduler);
    const double lr = fsdp_accelerated_scheduler_last_lr(a.scheduler);
    ASSERT(last_epoch > 0 && lr < 0.01);
    ASSERT_OK(job_epoch(&a));
    ASSERT_OK(job_weights(&a, weights));
    ASSERT_OK(job_open(&b, t->group, options));
    ASSERT_OK(fsdp_accelerator_load_state(b.accelerator, dir));
    ASSERT_OK(fsdp_accelerator_set_epoch(b.accelerator, b.loader, 1));
    ASSERT_OK(fsdp_accelerator_skip_first_batches(b.accelerator, b.loader, batches));
    ASSERT_INT(fsdp_accelerated_scheduler_last_epoch(b.scheduler), last_epoch);
    ASSERT_F32(fsdp_accelerated_scheduler_last_lr(b.scheduler), lr);
    ASSERT_OK(job_epoch(&b));
    ASSERT_OK(job_weights(&b, t->rank == 0 ? found : weights));
    if (t->rank == 0)
        ASSERT(memcmp(expected, found, sizeof expected) == 0);
    else
        free(weights);
    job_close(&a);
    job_close(&b);
    ASSERT_OK(fsdp_barrier(t->group));
}

static void resume_in_all_ways(fsdp_test *t)
{
    static const char *const precisions[] = {"no", "fp16", "bf16"};
    for (int i = 0; i < 3; i++) {
        job_options options = {
            .batch_size = 3,
            .dropout = 0.1,
            .total_steps = 100,
            .second = true,
            .reversed = i > 0,
            .accelerator = {.mixed_precision = precisions[i], .state_dict_type = i == 1 ? 2 : 1}};
        resume(t, &options, 2);
        CHECK_HERE();
    }
    job_options accumulated = {.batch_size = 3,
                               .accumulation = 2,
                               .dropout = 0.1,
                               .total_steps = 100,
                               .accelerator = {.gradient_accumulation_steps = 2}};
    resume(t, &accumulated, 2);
}

TEST_RANKS(a_state_is_resumed_to_the_bit_on_one_rank, 1)
{
    resume_in_all_ways(t);
}

TEST_RANKS(a_state_is_resumed_to_the_bit_on_three_ranks, 3)
{
    resume_in_all_ways(t);
}

/* What two ranks have saved is loaded by one. */
static fsdp_status load_alone(fsdp_group *group, void *arg)
{
    const job_options options = {.total_steps = 100};
    job j;
    fsdp_status status = job_open(&j, group, &options);
    if (status == FSDP_OK)
        status = fsdp_accelerator_load_state(j.accelerator, arg);
    if (status == FSDP_OK && fsdp_accelerated_scheduler_last_epoch(j.scheduler) != 12)
        status = fsdp_error(FSDP_ERR_STATE, "the schedule is elsewhere");
    job_close(&j);
    return status;
}

TEST_RANKS(a_state_is_loaded_on_another_number_of_ranks, 2)
{
    const job_options options = {.total_steps = 100};
    char dir[PATH];
    job j;
    path_in(t, "state", dir);
    ASSERT_OK(job_open(&j, t->group, &options));
    ASSERT_OK(job_epoch(&j));
    ASSERT_OK(fsdp_accelerator_save_state(j.accelerator, dir));
    if (t->rank == 0) {
        ASSERT(has(dir, "pytorch_model_fsdp_0/.metadata") && has(dir, "optimizer_0/.metadata"));
        ASSERT(has(dir, "scheduler.bin") && has(dir, "random_states_1.pkl"));
        ASSERT(!has(dir, "scaler.pt") && has(dir, "accelerator_state.json"));
        ASSERT_OK(fsdp_run_ranks(1, load_alone, dir, NULL));
    }
    ASSERT_OK(fsdp_barrier(t->group));
    job_close(&j);
}

/* ---- what Accelerate saved ---- */

static fsdp_status add_layer(fsdp_module *root, const char *name, int64_t in, int64_t out)
{
    fsdp_module *linear;
    FSDP_TRY(fsdp_linear_create(in, out, true, (fsdp_init){0}, &linear));
    return fsdp_module_add_child(root, name, linear);
}

/* The fixtures are those of Accelerate 1.15 on two ranks after two steps of a Sequential. */
static void load_accelerates(fsdp_test *t, const char *kind)
{
    char dir[PATH];
    fsdp_accelerator *a;
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    fsdp_accelerated_scheduler *scheduler;
    fsdp_tensor *weight;
    float values[12];
    const fsdp_accelerator_options options = {.group = t->group, .cpu = true};
    const fsdp_lr_schedule schedule = {.kind = FSDP_LR_LINEAR, .total_steps = 3};
    snprintf(dir, sizeof dir, "%s/%s", fsdp_test_path("fixtures/accelerate"), kind);
    ASSERT_OK(fsdp_accelerator_create(&options, &a));
    ASSERT_OK(fsdp_module_create("Sequential", &model));
    ASSERT_OK(add_layer(model, "0", 4, 3));
    ASSERT_OK(add_layer(model, "1", 3, 1));
    ASSERT_OK(fsdp_adamw_create(model, NULL, &optimizer));
    ASSERT_OK(fsdp_accelerator_prepare_model(a, model));
    ASSERT_OK(fsdp_accelerator_prepare_optimizer(a, optimizer));
    ASSERT_OK(fsdp_accelerator_prepare_scheduler(a, optimizer, &schedule, &scheduler));
    ASSERT_OK(fsdp_accelerator_load_state(a, dir));
    fsdp_parameter *parameter = fsdp_module_parameter(fsdp_module_find(model, "0"), "weight");
    ASSERT_OK(fsdp_full_tensor(fsdp_parameter_local(parameter), &weight));
    ASSERT_OK(fsdp_tensor_to_floats(weight, values));
    ASSERT_NEAR(values[0], -0.0150, 1e-4);
    ASSERT_INT(fsdp_optimizer_steps(optimizer, parameter), 2);
    ASSERT_INT(fsdp_accelerated_scheduler_last_epoch(scheduler), 2);
    ASSERT_NEAR(fsdp_accelerated_scheduler_last_lr(scheduler), 0.01 / 3, 1e-12);
    /* Its base learning rate is that of the folder: the schedule ends at 0 after the next step. */
    ASSERT_OK(fsdp_accelerator_scheduler_step(a, scheduler));
    ASSERT_NEAR(fsdp_accelerated_scheduler_last_lr(scheduler), 0, 1e-12);
    fsdp_tensor_release(weight);
    fsdp_optimizer_destroy(optimizer);
    fsdp_module_destroy(model);
    fsdp_accelerator_destroy(a);
}

TEST_RANKS(what_accelerate_saved_is_loaded_on_one_rank, 1)
{
    load_accelerates(t, "sharded");
    CHECK_HERE();
    load_accelerates(t, "full");
}

TEST_RANKS(what_accelerate_saved_is_loaded_on_two_ranks, 2)
{
    load_accelerates(t, "sharded");
    CHECK_HERE();
    load_accelerates(t, "full");
}

/* Random numbers of forwards without a batch go on where they were. */
TEST_RANKS(dropout_without_a_batch_is_resumed, 2)
{
    char dir[PATH];
    job j;
    fsdp_scope *s;
    float values[3][8];
    const job_options options = {0};
    path_in(t, "state", dir);
    ASSERT_OK(job_open(&j, t->group, &options));
    for (int i = 0; i < 3; i++) {
        fsdp_tensor *ones;
        const float one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        ASSERT_OK(fsdp_tensor_from_data(fsdp_accelerator_device(j.accelerator), FSDP_DTYPE_F32, 1,
                                        (int64_t[]){8}, one, FSDP_TAG_DATA, &ones));
        if (i == 2)
            ASSERT_OK(fsdp_accelerator_load_state(j.accelerator, dir));
        ASSERT_OK(fsdp_accelerator_scope_open(j.accelerator, true, NULL, &s));
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_dropout(s, ones, 0.5f), values[i]));
        fsdp_scope_close(s);
        fsdp_tensor_release(ones);
        if (i == 0)
            ASSERT_OK(fsdp_accelerator_save_state(j.accelerator, dir));
    }
    ASSERT(memcmp(values[0], values[1], sizeof values[0]) != 0);
    ASSERT(memcmp(values[1], values[2], sizeof values[0]) == 0);
    job_close(&j);
}

/* ---- registered objects ---- */

typedef struct counter {
    int64_t value;
    fsdp_status fails;
} counter;

static fsdp_status counter_save(void *object, fsdp_state_dict *dict)
{
    const counter *c = object;
    const fsdp_plain value = {.kind = FSDP_PLAIN_INT, .as.integer = c->value};
    if (c->fails)
        return fsdp_error(c->fails, "no state today");
    return fsdp_state_dict_put_value(dict, &(fsdp_state_key){.name = "value"}, 1, &value);
}

static fsdp_status counter_load(void *object, const fsdp_state_dict *dict)
{
    counter *c = object;
    const fsdp_state_entry *entry = fsdp_state_dict_find(dict, "value");
    if (!entry || !entry->value || entry->value->kind != FSDP_PLAIN_INT)
        return fsdp_error(FSDP_ERR_FORMAT, "value is missing");
    c->value = entry->value->as.integer;
    return FSDP_OK;
}

static fsdp_status register_counter(job *j, const char *name, counter *c)
{
    const fsdp_checkpointed_object object = {
        .name = name, .state_dict = counter_save, .load_state_dict = counter_load, .object = c};
    return fsdp_accelerator_register_for_checkpointing(j->accelerator, &object);
}

TEST_RANKS(registered_objects_are_saved_and_loaded, 2)
{
    const job_options options = {0};
    counter a = {.value = 7}, b = {.value = INT64_C(1) << 40};
    char dir[PATH];
    job j, other;
    path_in(t, "state", dir);
    ASSERT_OK(job_open(&j, t->group, &options));
    ASSERT_OK(register_counter(&j, "a", &a));
    ASSERT_OK(register_counter(&j, "b", &b));
    ASSERT_ERROR(register_counter(&j, "b", &b), FSDP_ERR_INVALID, "'b' was registered before");
    ASSERT_OK(fsdp_accelerator_save_state(j.accelerator, dir));
    ASSERT(has(dir, "custom_checkpoint_0.pkl") && has(dir, "custom_checkpoint_1.pkl"));
    a.value = b.value = 0;
    ASSERT_OK(fsdp_accelerator_load_state(j.accelerator, dir));
    ASSERT_INT(a.value, 7);
    ASSERT_INT(b.value, INT64_C(1) << 40);
    ASSERT_OK(job_open(&other, t->group, &options));
    ASSERT_ERROR(fsdp_accelerator_load_state(other.accelerator, dir), FSDP_ERR_INVALID,
                 "has 2 custom_checkpoint_<i>.pkl, but 0 objects are registered");
    /* Saved again with fewer objects, the folder has no old ones. */
    ASSERT_OK(register_counter(&other, "a", &a));
    ASSERT_OK(fsdp_accelerator_save_state(other.accelerator, dir));
    ASSERT_OK(fsdp_accelerator_load_state(other.accelerator, dir));
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT(!has(dir, "custom_checkpoint_1.pkl"));
    /* An object that fails on one rank fails on all, and the old state stays. */
    a.fails = t->rank == 1 ? FSDP_ERR_STATE : FSDP_OK;
    ASSERT_ERROR(fsdp_accelerator_save_state(other.accelerator, dir), FSDP_ERR_STATE,
                 "no state today");
    ASSERT_OK(fsdp_accelerator_load_state(other.accelerator, dir));
    job_close(&other);
    job_close(&j);
}

/* Both objects could load the state of the other one, so only their names show the wrong order. */
TEST_RANKS(objects_in_another_order_are_an_error, 2)
{
    const job_options options = {0};
    counter a = {.value = 1}, b = {.value = 2}, c = {.value = 3}, d = {.value = 4};
    char dir[PATH];
    job saved, swapped, renamed;
    path_in(t, "state", dir);
    ASSERT_OK(job_open(&saved, t->group, &options));
    ASSERT_OK(register_counter(&saved, "sampler", &a));
    ASSERT_OK(register_counter(&saved, "average\xe9", &b)); /* a name that is not UTF-8 */
    ASSERT_OK(fsdp_accelerator_save_state(saved.accelerator, dir));
    ASSERT_OK(job_open(&swapped, t->group, &options));
    ASSERT_OK(register_counter(&swapped, "average\xe9", &c));
    ASSERT_OK(register_counter(&swapped, "sampler", &d));
    ASSERT_ERROR(fsdp_accelerator_load_state(swapped.accelerator, dir), FSDP_ERR_INVALID,
                 "custom_checkpoint_0.pkl is the state of 'sampler'");
    ASSERT_INT(c.value, 3);
    ASSERT_INT(d.value, 4);
    /* A name that is not in the folder says nothing about the order. */
    ASSERT_OK(job_open(&renamed, t->group, &options));
    ASSERT_OK(register_counter(&renamed, "order", &c));
    ASSERT_OK(register_counter(&renamed, "average\xe9", &d));
    ASSERT_OK(fsdp_accelerator_load_state(renamed.accelerator, dir));
    ASSERT_INT(c.value, 1);
    ASSERT_INT(d.value, 2);
    job_close(&renamed);
    job_close(&swapped);
    job_close(&saved);
}

/* ---- names ---- */

TEST_RANKS(checkpoints_are_named_automatically, 2)
{
    char project[PATH], dir[PATH + 16];
    job j, other;
    path_in(t, "project", project);
    snprintf(dir, sizeof dir, "%s/checkpoints", project);
    job_options options = {.accelerator = {.project_dir = project,
                                           .automatic_checkpoint_naming = true,
                                           .total_limit = 2,
                                           .iteration = 8}};
    ASSERT_OK(job_open(&j, t->group, &options));
    ASSERT_ERROR(fsdp_accelerator_load_state(j.accelerator, NULL), FSDP_ERR_NOT_FOUND,
                 "has no folder checkpoint_<i>");
    for (int i = 8; i < 12; i++)
        ASSERT_OK(fsdp_accelerator_save_state(j.accelerator, NULL));
    ASSERT(has(dir, "checkpoint_10") && has(dir, "checkpoint_11"));
    ASSERT(!has(dir, "checkpoint_9") && !has(dir, "checkpoint_8"));
    ASSERT_ERROR(fsdp_accelerator_save_state(j.accelerator, dir), FSDP_ERR_INVALID,
                 "automatic_checkpoint_naming names the folders");
    options.accelerator.iteration = 11;
    ASSERT_OK(job_open(&other, t->group, &options));
    ASSERT_ERROR(fsdp_accelerator_save_state(other.accelerator, NULL), FSDP_ERR_INVALID,
                 "checkpoint_11 exists already");
    ASSERT_OK(fsdp_accelerator_load_state(other.accelerator, NULL));
    ASSERT_OK(fsdp_accelerator_save_state(other.accelerator, NULL));
    ASSERT(has(dir, "checkpoint_12"));
    job_close(&other);
    /* A run that begins at a smaller number keeps what it saves. */
    options.accelerator.iteration = 0;
    ASSERT_OK(job_open(&other, t->group, &options));
    ASSERT_OK(fsdp_accelerator_save_state(other.accelerator, NULL));
    ASSERT(has(dir, "checkpoint_0") && has(dir, "checkpoint_12") && !has(dir, "checkpoint_11"));
    ASSERT_OK(fsdp_accelerator_save_state(other.accelerator, NULL));
    ASSERT(has(dir, "checkpoint_1") && has(dir, "checkpoint_12") && !has(dir, "checkpoint_0"));
    job_close(&other);
    job_close(&j);
}

TEST_RANKS(a_state_needs_a_folder_and_whole_steps, 2)
{
    const job_options options = {.accelerator = {.gradient_accumulation_steps = 2}};
    char dir[PATH];
    double loss;
    bool more;
    job j;
    path_in(t, "none", dir);
    ASSERT_OK(job_open(&j, t->group, &options));
    ASSERT_ERROR(fsdp_accelerator_save_state(j.accelerator, NULL), FSDP_ERR_INVALID,
                 "no folder was given");
    ASSERT_ERROR(fsdp_accelerator_load_state(j.accelerator, NULL), FSDP_ERR_INVALID,
                 "no folder was given");
    ASSERT_ERROR(fsdp_accelerator_load_state(j.accelerator, dir), FSDP_ERR_NOT_FOUND,
                 "there is no such folder");
    ASSERT_OK(job_step(&j, &loss, &more));
    ASSERT_ERROR(fsdp_accelerator_save_state(j.accelerator, dir), FSDP_ERR_STATE,
                 "within an accumulation (1 of 2 micro-steps)");
    ASSERT(!has(dir, "scheduler.bin"));
    ASSERT_OK(job_step(&j, &loss, &more));
    ASSERT_OK(fsdp_accelerator_save_state(j.accelerator, dir));
    job_close(&j);
}

/* ---- models in files ---- */

static fsdp_status open_pretrained(const char *dir, fsdp_accelerator *a, fsdp_pretrained *weights,
                                   fsdp_module **model)
{
    FSDP_TRY(fsdp_pretrained_open(dir, false, weights));
    FSDP_TRY(fsdp_model_create(&weights->config, model));
    FSDP_TRY(fsdp_accelerator_prepare_model(a, *model));
    return fsdp_pretrained_load(weights, *model, fsdp_accelerator_group(a), 0, NULL);
}

TEST_RANKS(a_model_is_saved_as_transformers_does, 2)
{
    const fsdp_accelerator_options options = {.group = t->group, .cpu = true};
    char dir[PATH], plain[PATH];
    fsdp_accelerator *a;
    fsdp_pretrained first = {0}, second = {0};
    fsdp_module *model = NULL, *again = NULL;
    fsdp_state_dict *dict, *other;
    path_in(t, "model", dir);
    path_in(t, "plain", plain);
    ASSERT_OK(fsdp_accelerator_create(&options, &a));
    ASSERT_OK(open_pretrained(fsdp_test_path("golden/bert_tiny/model"), a, &first, &model));
    const fsdp_accelerator_save_model_options save = {.max_shard_bytes = 1500,
                                                      .pretrained = &first};
    ASSERT_OK(fsdp_accelerator_save_model(a, model, dir, &save));
    ASSERT(has(dir, "config.json") && has(dir, "model.safetensors.index.json"));
    ASSERT_OK(open_pretrained(dir, a, &second, &again));
    ASSERT_OK(fsdp_accelerator_get_state_dict(a, model, &dict));
    ASSERT_OK(fsdp_accelerator_get_state_dict(a, again, &other));
    ASSERT_INT(fsdp_state_dict_count(dict) > 0, t->rank == 0);
    for (size_t i = 0; i < fsdp_state_dict_count(dict); i++) {
        float x[512], y[512];
        const fsdp_tensor *tensor = fsdp_state_dict_at(dict, i)->tensor;
        ASSERT(fsdp_tensor_numel(tensor) <= 512);
        ASSERT_OK(fsdp_tensor_to_floats(tensor, x));
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_state_dict_at(other, i)->tensor, y));
        ASSERT(memcmp(x, y, (size_t)fsdp_tensor_numel(tensor) * sizeof *x) == 0);
    }
    fsdp_state_dict_destroy(dict);
    fsdp_state_dict_destroy(other);
    /* Without a pretrained model, there are weights only. */
    ASSERT_OK(fsdp_accelerator_save_model(a, model, plain, NULL));
    ASSERT(has(plain, "model.safetensors") && !has(plain, "config.json"));
    fsdp_module *stranger;
    ASSERT_OK(fsdp_model_create(&first.config, &stranger));
    ASSERT_ERROR(fsdp_accelerator_save_model(a, stranger, plain, NULL), FSDP_ERR_INVALID,
                 "this model was not prepared");
    fsdp_module_destroy(stranger);
    fsdp_module_destroy(model);
    fsdp_module_destroy(again);
    fsdp_pretrained_close(&first);
    fsdp_pretrained_close(&second);
    fsdp_accelerator_destroy(a);
}

/* ---- memory ---- */

/* The n-th allocation fails, for each n, in everything that a job does; then nothing is lost. */
TEST_RANKS(a_failed_allocation_is_an_error, 1)
{
    char dir[PATH];
    path_in(t, "state", dir);
    for (long n = 1;; n += 1 + n / 40) {
        const job_options options = {.rows = 6, .total_steps = 10};
        counter c = {.value = 1};
        double loss;
        bool more;
        job j;
        fsdp_alloc_fail_at(n);
        fsdp_status status = job_open(&j, t->group, &options);
        if (status == FSDP_OK)
            status = register_counter(&j, "c", &c);
        if (status == FSDP_OK)
            status = job_step(&j, &loss, &more);
        if (status == FSDP_OK)
            status = fsdp_accelerator_save_state(j.accelerator, dir);
        if (status == FSDP_OK)
            status = fsdp_accelerator_load_state(j.accelerator, dir);
        fsdp_alloc_fail_at(0);
        job_close(&j);
        if (status == FSDP_OK && n > 1000)
            return;
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
    }
}

/* ---- hooks ---- */

typedef struct hook_calls {
    char name;
    fsdp_status fails;
    int on_rank;
} hook_calls;

static char order[2][16]; /* the names of the hooks that each rank has called */

static fsdp_status note(void *context, fsdp_accelerator *a, const char *dir)
{
    const hook_calls *h = context;
    const int rank = fsdp_accelerator_process_index(a);
    const size_t n = strlen(order[rank]);
    order[rank][n] = h->name;
    order[rank][n + 1] = 0;
    if (!fsdp_path_is_directory(dir))
        return fsdp_error(FSDP_ERR_IO, "%s: no folder", dir);
    if (h->fails != FSDP_OK && rank == h->on_rank)
        return fsdp_error(h->fails, "hook %c", h->name);
    if (h->name != 's' || rank != 0)
        return FSDP_OK;
    char path[PATH * 2];
    snprintf(path, sizeof path, "%s/mine.txt", dir);
    return fsdp_file_write(path, "mine", 4);
}

TEST_RANKS(hooks_are_called_before_states_are_saved_and_loaded, 2)
{
    hook_calls save = {.name = 's'}, load = {.name = 'l'}, last = {.name = 'z'};
    int64_t handles[3];
    char dir[PATH];
    job j;
    const job_options options = {0};
    path_in(t, "state", dir);
    order[t->rank][0] = 0;
    ASSERT_OK(job_open(&j, t->group, &options));
    fsdp_accelerator *a = j.accelerator;
    ASSERT_OK(fsdp_accelerator_register_save_state_pre_hook(a, note, &save, &handles[0]));
    ASSERT_OK(fsdp_accelerator_register_load_state_pre_hook(a, note, &load, NULL));
    ASSERT_OK(fsdp_accelerator_register_save_state_pre_hook(a, note, &last, &handles[1]));
    ASSERT_ERROR(fsdp_accelerator_register_load_state_pre_hook(a, NULL, NULL, NULL),
                 FSDP_ERR_INVALID, "register_load_state_pre_hook: the function is missing");
    ASSERT_OK(fsdp_accelerator_save_state(a, dir));
    ASSERT_STR(order[t->rank], "sz");
    ASSERT(has(dir, "mine.txt")); /* it is a part of the state */
    ASSERT_OK(fsdp_accelerator_load_state(a, dir));
    ASSERT_STR(order[t->rank], "szl");
    /* A hook that fails on one rank: nothing is saved or loaded. */
    ASSERT_OK(fsdp_barrier(t->group));
    last.fails = load.fails = FSDP_ERR_STATE;
    last.on_rank = load.on_rank = 1;
    char other[PATH];
    path_in(t, "other", other);
    ASSERT_ERROR(fsdp_accelerator_save_state(a, other), FSDP_ERR_STATE, "hook z");
    ASSERT(!has(fsdp_test_dir(t), "other"));
    ASSERT_ERROR(fsdp_accelerator_load_state(a, dir), FSDP_ERR_STATE, "hook l");
    ASSERT_OK(fsdp_accelerator_remove_hook(a, handles[1]));
    ASSERT_ERROR(fsdp_accelerator_remove_hook(a, handles[1]), FSDP_ERR_INVALID, "was removed");
    order[t->rank][0] = 0;
    ASSERT_OK(fsdp_accelerator_save_state(a, dir)); /* its file of the earlier state is replaced */
    ASSERT_STR(order[t->rank], "s");
    ASSERT_OK(fsdp_accelerator_remove_hook(a, handles[0]));
    job_close(&j);
}
