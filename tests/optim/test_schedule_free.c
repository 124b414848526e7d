/* Schedule-Free AdamW: the numbers of schedulefree, the same bits on 1 to 4 ranks, evaluation that
 * changes no bit of training, and refusals. */
#include <stdio.h>

#include <fsdp/ckpt.h>
#include <fsdp/dtensor.h>

#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "src/optim/optimizer.h"
#include "tests/optim/shards.h"
#include "tests/test.h"

/* --- the numbers of schedulefree --- */

enum {
    WIDE = 7 * 20,
    VECTOR = 11
};

static const float *read_floats(fsdp_test *t, const fsdp_safetensors *file, const char *part,
                                const char *name, int64_t n)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", part, name);
    const fsdp_checkpoint_entry *entry = fsdp_safetensors_find(file, key);
    if (!entry || entry->numel != n || entry->bytes != (size_t)n * sizeof(float)) {
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: not there, or not %lld floats", key,
                       (long long)n);
        return NULL;
    }
    return entry->data;
}

static void check_near(fsdp_test *t, const char *what, fsdp_tensor *local, const float *want,
                       int64_t n)
{
    float have[WIDE];
    double largest = 0.0;
    ASSERT_OK(shards_full(local, have));
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)have[i] - (double)want[i]) <= 2e-6 * largest))
            FAIL("%s: element %lld is %.9g, not %.9g", what, (long long)i, (double)have[i],
                 (double)want[i]);
}

/* The gradients are tensors of the case `grads`; "" for those that cases share. */
static void check_case(fsdp_test *t, const char *name, const char *grads, int steps,
                       const fsdp_schedule_free_options *options)
{
    static const int64_t shapes[2][2] = {{7, 20}, {VECTOR, 0}}, sizes[] = {WIDE, VECTOR};
    static const char *const names[] = {"wide", "vector"};
    fsdp_safetensors *file;
    fsdp_device *device;
    fsdp_module *module;
    fsdp_parameter *p[2];
    fsdp_optimizer *o;
    char key[64];
    ASSERT_OK(fsdp_safetensors_open(fsdp_test_path("golden/states/states.safetensors"), &file));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_module_create("Weights", &module));
    for (int i = 0; i < 2; i++)
        ASSERT_OK(
            fsdp_module_add_parameter(module, names[i], 2 - i, shapes[i], (fsdp_init){0}, &p[i]));
    ASSERT_OK(fsdp_schedule_free_adamw_create(module, options, &o));
    ASSERT_OK(fsdp_fully_shard(module, t->group, device, NULL));
    for (int i = 0; i < 2; i++) {
        const float *start = read_floats(t, file, names[i], "start", sizes[i]);
        CHECK_HERE();
        ASSERT_OK(shards_set_values(p[i], start));
    }
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < 2; i++) {
            snprintf(key, sizeof key, "%s%s", grads, names[i]);
            const float *all = read_floats(t, file, key, "grads", steps * sizes[i]);
            CHECK_HERE();
            ASSERT_OK(shards_set_grad(p[i], all + step * sizes[i]));
        }
        ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
        for (int i = 0; i < 2; i++) {
            snprintf(key, sizeof key, "%s.%s", name, names[i]);
            const float *all = read_floats(t, file, key, "params", steps * sizes[i]);
            CHECK_HERE();
            check_near(t, key, fsdp_parameter_local(p[i]), all + step * sizes[i], sizes[i]);
            CHECK_HERE();
        }
    }
    ASSERT_OK(fsdp_optimizer_eval(o));
    for (int i = 0; i < 2; i++) {
        static const char *const parts[] = {"averaged", "state.z", "state.exp_avg_sq"};
        fsdp_tensor *const have[] = {fsdp_parameter_local(p[i]), fsdp_optimizer_state(o, p[i], "z"),
                                     fsdp_optimizer_state(o, p[i], "exp_avg_sq")};
        snprintf(key, sizeof key, "%s.%s", name, names[i]);
        for (int k = 0; k < 3; k++) {
            const float *want = read_floats(t, file, key, parts[k], sizes[i]);
            CHECK_HERE();
            check_near(t, parts[k], have[k], want, sizes[i]);
            CHECK_HERE();
        }
    }
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(module);
    fsdp_device_destroy(device);
    fsdp_safetensors_close(file);
}

static void check_golden(fsdp_test *t)
{
    fsdp_schedule_free_options options = fsdp_schedule_free_adamw_defaults();
    options.lr = 0.01;
    options.beta2 = 0.99;
    options.weight_decay = 0.1;
    options.warmup_steps = 2;
    check_case(t, "schedule_free", "", 3, &options);
    CHECK_HERE();
    options.lr = 0.02;
    options.beta1 = 0.95;
    options.weight_decay = 0.02;
    options.warmup_steps = 6;
    options.r = 0.5;
    options.weight_lr_power = 1.5;
    check_case(t, "schedule_free_20", "schedule_free_20.", 20, &options);
}

TEST_RANKS(schedule_free_adamw_is_that_of_schedulefree, 1)
{
    check_golden(t);
}
TEST_RANKS(schedule_free_adamw_is_that_of_schedulefree_on_3_ranks, 3)
{
    check_golden(t);
}

/* --- the same bits at any world size, and with evaluations between steps --- */

enum {
    STEPS = 6,
    N_PARAMS = 5,
    WIDTH = 5,
    MOST = 17 * WIDTH,
    ALL = (1 + 2 + 7 + 16 + 17) * WIDTH
};

static const int64_t rows[N_PARAMS] = {1, 2, 7, 16, 17};

typedef struct job {
    fsdp_fully_shard_options options;
    bool evaluates; /* between all steps */
    float params[ALL], averages[ALL];
} job;

static fsdp_status read_all(const fsdp_parameter_list *list, float *to, bool keeps)
{
    float ignored[MOST];
    for (size_t i = 0; i < list->n; i++, to += rows[i - 1] * WIDTH)
        FSDP_TRY(shards_full(fsdp_parameter_local(list->items[i].parameter), keeps ? to : ignored));
    return FSDP_OK;
}

/* p3 gets no gradient in every third step, the first one included. */
static fsdp_status run_steps(job *j, fsdp_optimizer *o, int rank)
{
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(o);
    float whole[MOST];
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < list->n; i++) {
            for (int64_t k = 0; k < rows[i] * WIDTH; k++)
                whole[k] = shards_random((uint64_t)(step * 100 + (int)i), k);
            FSDP_TRY(
                shards_set_grad(list->items[i].parameter, i == 3 && step % 3 == 0 ? NULL : whole));
        }
        FSDP_TRY(fsdp_optimizer_step(o, 0.5f));
        fsdp_optimizer_zero_grad(o);
        for (int k = 0; k < 2 && j->evaluates; k++)
            FSDP_TRY(fsdp_optimizer_eval(o)); /* the second call has no effect */
        FSDP_TRY(fsdp_optimizer_train(o));
    }
    FSDP_TRY(read_all(list, j->params, rank == 0));
    FSDP_TRY(fsdp_optimizer_eval(o));
    return read_all(list, j->averages, rank == 0);
}

static fsdp_status run_rank(fsdp_group *group, void *arg)
{
    job *j = arg;
    fsdp_schedule_free_options options = fsdp_schedule_free_adamw_defaults();
    fsdp_device *device;
    fsdp_module *module = NULL;
    fsdp_optimizer *o = NULL;
    fsdp_memory_stats memory;
    options.lr = 0.05;
    options.warmup_steps = 3;
    FSDP_TRY(fsdp_device_create(NULL, &device));
    fsdp_status status = shards_create(rows, N_PARAMS, WIDTH, &module);
    if (status == FSDP_OK)
        status = fsdp_fully_shard(module, group, device, &j->options);
    if (status == FSDP_OK)
        status = fsdp_module_init(module, 1);
    if (status == FSDP_OK)
        status = fsdp_schedule_free_adamw_create(module, &options, &o);
    if (status == FSDP_OK)
        status = run_steps(j, o, fsdp_group_rank(group));
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(module);
    fsdp_device_memory(device, &memory);
    if (status == FSDP_OK && memory.allocated != 0)
        status = fsdp_error(FSDP_ERR_STATE, "%lld bytes are still allocated",
                            (long long)memory.allocated);
    fsdp_device_destroy(device);
    return status;
}

static void compare_worlds(fsdp_test *t, const fsdp_fully_shard_options *options)
{
    job one = {.options = *options};
    int differ = 0;
    ASSERT_OK(fsdp_run_ranks(1, run_rank, &one, NULL));
    for (int i = 0; i < ALL; i++) {
        ASSERT(isfinite(one.params[i]) && one.params[i] != 0.0f);
        differ += one.params[i] != one.averages[i];
    }
    ASSERT(differ > ALL / 2);
    for (int world_size = 1; world_size <= 4; world_size++) {
        job many = {.options = *options, .evaluates = world_size != 3};
        ASSERT_OK(fsdp_run_ranks(world_size, run_rank, &many, NULL));
        ASSERT(memcmp(many.params, one.params, sizeof one.params) == 0);
        ASSERT(memcmp(many.averages, one.averages, sizeof one.averages) == 0);
    }
}

TEST(schedule_free_adamw_gives_the_same_bits_on_1_to_4_ranks)
{
    compare_worlds(t, &(fsdp_fully_shard_options){0});
}
TEST(schedule_free_adamw_gives_the_same_bits_with_halves)
{
    compare_worlds(t, &(fsdp_fully_shard_options){.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}});
}
TEST(schedule_free_adamw_gives_the_same_bits_with_a_bfloat16_master)
{
    compare_worlds(t, &(fsdp_fully_shard_options){.mp_policy = {.param_dtype = FSDP_DTYPE_BF16,
                                                                .master_dtype = FSDP_DTYPE_BF16}});
}
TEST(schedule_free_adamw_gives_the_same_bits_without_sharding)
{
    compare_worlds(t, &(fsdp_fully_shard_options){.no_shard = true});
}

/* --- one step at a time --- */

typedef struct small {
    fsdp_device *device;
    fsdp_module *module;
    fsdp_optimizer *o;
    fsdp_parameter *p;
} small;

static void open_small(fsdp_test *t, const fsdp_schedule_free_options *options, small *s)
{
    static const float values[] = {1, 2, 3, 4, 5, 6};
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_device_create(NULL, &s->device));
    ASSERT_OK(shards_create((int64_t[]){3}, 1, 2, &s->module));
    ASSERT_OK(fsdp_module_parameters(s->module, false, &list));
    s->p = list.items[0].parameter;
    fsdp_parameter_list_free(&list);
    ASSERT_OK(fsdp_fully_shard(s->module, t->group, s->device, NULL));
    ASSERT_OK(fsdp_schedule_free_adamw_create(s->module, options, &s->o));
    ASSERT_OK(shards_set_values(s->p, values));
}

static void close_small(small *s)
{
    fsdp_optimizer_destroy(s->o);
    fsdp_module_destroy(s->module);
    fsdp_device_destroy(s->device);
}

/* z begins as the parameter even if it is saved before the first step. A step in evaluation mode is
 * refused, and takes nothing away. A step that is refused after it was counted has never been. */
TEST_RANKS(schedule_free_adamw_steps_only_in_training, 2)
{
    static const float grads[] = {1, -1, 1, -1, 1, -1};
    fsdp_schedule_free_options options = fsdp_schedule_free_adamw_defaults();
    float before[6], z[6], after[6];
    small s;
    options.warmup_steps = 4;
    open_small(t, &options, &s);
    CHECK_HERE();
    ASSERT(fsdp_optimizer_lr(s.o, 0) == 0.0025);
    ASSERT(fsdp_optimizer_scheduled_lr(s.o, 0) == 0.0); /* schedulefree's, before the first step */
    ASSERT_OK(fsdp_optimizer_init_state(s.o));
    ASSERT_OK(shards_full(fsdp_optimizer_state(s.o, s.p, "z"), z));
    ASSERT_OK(shards_full(fsdp_parameter_local(s.p), before));
    ASSERT(memcmp(before, z, sizeof z) == 0);
    ASSERT_OK(fsdp_optimizer_eval(s.o)); /* before the first step, both are the same */
    ASSERT_OK(shards_full(fsdp_parameter_local(s.p), after));
    ASSERT(memcmp(before, after, sizeof after) == 0);
    ASSERT_OK(shards_set_grad(s.p, grads));
    ASSERT_ERROR(fsdp_optimizer_step(s.o, 1.0f), FSDP_ERR_STATE,
                 "call fsdp_optimizer_train() before a step");
    ASSERT_OK(fsdp_optimizer_train(s.o));
    ASSERT_OK(fsdp_optimizer_step(s.o, 1.0f));
    const fsdp_schedule_free_options *now = &fsdp_optimizer_group_options(s.o, 0)->schedule_free;
    ASSERT_INT(now->k, 1);
    ASSERT(now->scheduled_lr == 0.0025 / 4 && now->lr_max == 0.0025 / 4);
    ASSERT(fsdp_optimizer_lr(s.o, 0) == 0.0025);
    ASSERT(fsdp_optimizer_scheduled_lr(s.o, 0) == 0.0025 / 4);
    const double sum = now->weight_sum;
    ASSERT(sum == now->lr_max * now->lr_max);
    ASSERT_OK(fsdp_optimizer_step(s.o, 1.0f));
    ASSERT_INT(now->k, 2);
    fsdp_optimizer_uncount_step(s.o);
    ASSERT_INT(now->k, 1);
    ASSERT(now->weight_sum == sum && now->scheduled_lr == 0.0025 / 4);
    ASSERT_INT(fsdp_optimizer_steps(s.o, s.p), 1);
    close_small(&s);
}

/* A state dict that was saved in evaluation mode has x, from which y is computed. */
TEST_RANKS(schedule_free_adamw_trains_on_from_the_average, 2)
{
    static const float grads[] = {1, -1, 2, -1, 3, -1};
    float y[6], again[6];
    small s;
    open_small(t, NULL, &s);
    CHECK_HERE();
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(shards_set_grad(s.p, grads));
        ASSERT_OK(fsdp_optimizer_step(s.o, 1.0f));
    }
    ASSERT_OK(shards_full(fsdp_parameter_local(s.p), y));
    ASSERT_OK(fsdp_optimizer_eval(s.o));
    ASSERT_OK(fsdp_optimizer_set_steps(s.o, s.p, 3)); /* as after loading: y is no longer kept */
    ASSERT_OK(fsdp_optimizer_train(s.o));
    ASSERT_OK(shards_full(fsdp_parameter_local(s.p), again));
    for (int i = 0; i < 6; i++)
        ASSERT(fabsf(again[i] - y[i]) <= 1e-6f * fabsf(y[i]));
    close_small(&s);
}

/* --- refusals --- */

TEST(schedule_free_adamw_refuses_bad_options)
{
    fsdp_schedule_free_options options = fsdp_schedule_free_adamw_defaults();
    fsdp_module *module;
    fsdp_optimizer *o;
    ASSERT_OK(shards_create((int64_t[]){3}, 1, 2, &module));
    options.beta1 = 0.0;
    ASSERT_ERROR(fsdp_schedule_free_adamw_create(module, &options, &o), FSDP_ERR_INVALID,
                 "beta1 is 0");
    options = fsdp_schedule_free_adamw_defaults();
    options.warmup_steps = -1;
    ASSERT_ERROR(fsdp_schedule_free_adamw_create(module, &options, &o), FSDP_ERR_INVALID,
                 "warmup_steps is -1");
    options = fsdp_schedule_free_adamw_defaults();
    options.weight_lr_power = (double)INFINITY;
    ASSERT_ERROR(fsdp_schedule_free_adamw_create(module, &options, &o), FSDP_ERR_INVALID,
                 "weight_lr_power is inf");
    fsdp_module_destroy(module);
}
