/* Optimizers over shards: PyTorch's numbers through the public API, the same bits on 1 to 4 ranks
 * for any number of rows, groups, parameters without a gradient, and errors. */
#include <stdio.h>

#include <fsdp/ckpt.h>
#include <fsdp/dtensor.h>

#include "src/base/json.h"
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "tests/optim/shards.h"
#include "tests/test.h"

/* --- PyTorch's numbers --- */

enum {
    GOLDEN_STEPS = 5,
    MATRIX = 35,
    VECTOR = 11
};

static void read_array(fsdp_test *t, const fsdp_safetensors *file, const char *unit,
                       const char *name, float *values, int64_t n)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", unit, name);
    const fsdp_checkpoint_entry *entry = fsdp_safetensors_find(file, key);
    if (!entry || entry->numel != n)
        FAIL("%s: not there, or not %lld values", key, (long long)n);
    memcpy(values, entry->data, entry->bytes);
}

/* The bound of golden tests: 2e-6 of the largest magnitude. */
static void compare(fsdp_test *t, const char *unit, const float *got, const float *want, int n)
{
    double largest = 0.0;
    for (int i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (int i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= 2e-6 * largest))
            FAIL("%s: element %d is %.9g, not %.9g", unit, i, (double)got[i], (double)want[i]);
}

static double number_option(fsdp_json_node unit, const char *key)
{
    double value = 0.0;
    return fsdp_json_opt_f64(unit, key, 0.0, &value) == FSDP_OK ? value : 0.0;
}

static fsdp_status create_adafactor(fsdp_json_node unit, fsdp_module *module, fsdp_optimizer **o)
{
    fsdp_adafactor_options a = fsdp_adafactor_defaults();
    a.lr = number_option(unit, "lr"); /* null: 0 */
    FSDP_TRY(fsdp_json_opt_f64(unit, "beta1", a.beta1, &a.beta1));
    a.weight_decay = number_option(unit, "weight_decay");
    FSDP_TRY(fsdp_json_opt_bool(unit, "scale_parameter", true, &a.scale_parameter));
    FSDP_TRY(fsdp_json_opt_bool(unit, "relative_step", true, &a.relative_step));
    FSDP_TRY(fsdp_json_opt_bool(unit, "warmup_init", false, &a.warmup_init));
    return fsdp_adafactor_create(module, &a, o);
}

static fsdp_status create_like(fsdp_json_node unit, fsdp_module *module, fsdp_optimizer **o)
{
    const char *class;
    FSDP_TRY(fsdp_json_get_str(unit, "class", &class));
    if (strcmp(class, "SGD") == 0) {
        fsdp_sgd_options sgd = fsdp_sgd_defaults();
        sgd.lr = number_option(unit, "lr");
        sgd.momentum = number_option(unit, "momentum");
        sgd.weight_decay = number_option(unit, "weight_decay");
        FSDP_TRY(fsdp_json_opt_bool(unit, "nesterov", false, &sgd.nesterov));
        return fsdp_sgd_create(module, &sgd, o);
    }
    if (strcmp(class, "Adafactor") == 0)
        return create_adafactor(unit, module, o);
    fsdp_adamw_options adam = fsdp_adamw_defaults();
    fsdp_json_node betas = fsdp_json_find(unit, "betas");
    adam.lr = number_option(unit, "lr");
    FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(betas, 0), NULL, &adam.beta1));
    FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(betas, 1), NULL, &adam.beta2));
    adam.eps = number_option(unit, "eps");
    adam.weight_decay = number_option(unit, "weight_decay");
    adam.l2 = strcmp(class, "Adam") == 0;
    return fsdp_adamw_create(module, &adam, o);
}

static int64_t whole_numel(const fsdp_tensor *local)
{
    int64_t numel = 1;
    for (int d = 0; d < fsdp_tensor_ndim(local); d++)
        numel *= fsdp_dtensor_shape(local)[d];
    return numel;
}

/* The golden file has every state that is not a scalar, so their number is checked too. */
static void check_state(fsdp_test *t, const fsdp_safetensors *file, const char *unit,
                        const char *part, const fsdp_optimizer *o, const fsdp_parameter *p)
{
    const char *name;
    for (int k = 0; (name = fsdp_optimizer_state_name(o, k)) != NULL; k++) {
        char key[64], full[128];
        float want[MATRIX], got[MATRIX];
        fsdp_tensor *state = fsdp_optimizer_state(o, p, name);
        snprintf(key, sizeof key, "%s.state.%s", part, name);
        snprintf(full, sizeof full, "%s.%s", unit, key);
        if (!state || !fsdp_tensor_ndim(state)) {
            ASSERT(!fsdp_safetensors_find(file, full));
            continue;
        }
        int64_t n = whole_numel(state);
        read_array(t, file, unit, key, want, n);
        CHECK_HERE();
        ASSERT_OK(shards_full(state, got));
        compare(t, unit, got, want, (int)n);
        CHECK_HERE();
    }
}

/* Matrix and vector belong to one optimizer. All gradients are doubled, which grad_scale 0.5
 * undoes. */
static void check_unit(fsdp_test *t, const fsdp_safetensors *file, fsdp_json_node unit,
                       fsdp_device *device)
{
    static const char *const parts[] = {"matrix", "vector"};
    static const int sizes[] = {MATRIX, VECTOR};
    float values[2][MATRIX], grads[2][GOLDEN_STEPS * MATRIX], want[2][GOLDEN_STEPS * MATRIX];
    fsdp_module *module;
    fsdp_parameter *p[2];
    fsdp_optimizer *o;
    ASSERT_OK(fsdp_module_create("Weights", &module));
    ASSERT_OK(
        fsdp_module_add_parameter(module, "matrix", 2, (int64_t[]){7, 5}, (fsdp_init){0}, &p[0]));
    ASSERT_OK(
        fsdp_module_add_parameter(module, "vector", 1, (int64_t[]){11}, (fsdp_init){0}, &p[1]));
    ASSERT_OK(create_like(unit, module, &o)); /* before fully_shard, which it must follow */
    ASSERT_OK(fsdp_fully_shard(module, t->group, device, NULL));
    for (int i = 0; i < 2; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.params", parts[i]);
        read_array(t, file, parts[i], "start", values[i], sizes[i]);
        read_array(t, file, parts[i], "grads", grads[i], GOLDEN_STEPS * sizes[i]);
        read_array(t, file, unit.key, key, want[i], GOLDEN_STEPS * sizes[i]);
        CHECK_HERE();
        for (int k = 0; k < GOLDEN_STEPS * sizes[i]; k++)
            grads[i][k] *= 2.0f;
        ASSERT_OK(shards_set_values(p[i], values[i]));
    }
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        for (int i = 0; i < 2; i++)
            ASSERT_OK(shards_set_grad(p[i], grads[i] + step * sizes[i]));
        ASSERT_OK(fsdp_optimizer_step(o, 0.5f));
        for (int i = 0; i < 2; i++) {
            ASSERT_OK(shards_full(fsdp_parameter_local(p[i]), values[i]));
            compare(t, unit.key, values[i], want[i] + step * sizes[i], sizes[i]);
            CHECK_HERE();
        }
    }
    for (int i = 0; i < 2; i++) {
        ASSERT_INT(fsdp_optimizer_steps(o, p[i]), GOLDEN_STEPS);
        check_state(t, file, unit.key, parts[i], o, p[i]);
    }
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(module);
}

static void check_golden(fsdp_test *t)
{
    fsdp_safetensors *file;
    fsdp_json *doc;
    fsdp_device *device;
    int units = 0;
    ASSERT_OK(fsdp_safetensors_open(fsdp_test_path("golden/optim/optim.safetensors"), &file));
    ASSERT_OK(fsdp_json_read(fsdp_test_path("golden/optim/optim.json"), &doc));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (fsdp_json_node unit = fsdp_json_first(fsdp_json_root(doc)); unit.value;
         unit = fsdp_json_next(unit)) {
        units++;
        check_unit(t, file, unit, device);
        CHECK_HERE();
    }
    ASSERT_INT(units, 11);
    fsdp_device_destroy(device);
    fsdp_json_destroy(doc);
    fsdp_safetensors_close(file);
}

TEST_RANKS(steps_are_torchs, 1)
{
    check_golden(t);
}
TEST_RANKS(steps_are_torchs_on_2_ranks, 2)
{
    check_golden(t);
}
TEST_RANKS(steps_are_torchs_on_3_ranks, 3)
{
    check_golden(t);
}
TEST_RANKS(steps_are_torchs_on_4_ranks, 4)
{
    check_golden(t);
}

/* --- the same bits at any world size --- */

enum {
    STEPS = 10,
    N_PARAMS = 6,
    WIDTH = 5,
    MAX_NUMEL = 17 * WIDTH,
    ALL = (1 + 2 + 7 + 15 + 16 + 17) * WIDTH
};

static const int64_t rows[N_PARAMS] = {1, 2, 7, 15, 16, 17};

typedef enum algorithm {
    ADAMW,
    SGD,
    ADAFACTOR
} algorithm;

typedef struct job {
    fsdp_fully_shard_options options;
    algorithm which;
    float params[ALL]; /* whole, on rank 0, after the last step */
    double norm[STEPS];
} job;

/* p3 gets no gradient in every third step, and all gradients of one step are large. */
static fsdp_status set_grads(const fsdp_parameter_list *list, int step)
{
    float whole[MAX_NUMEL];
    for (size_t i = 0; i < list->n; i++) {
        float size = step == 4 ? 100.0f : 0.1f;
        for (int64_t k = 0; k < rows[i] * WIDTH; k++)
            whole[k] = size * shards_random((uint64_t)(step * 100 + (int)i), k);
        bool none = i == 3 && step % 3 == 0;
        FSDP_TRY(shards_set_grad(list->items[i].parameter, none ? NULL : whole));
    }
    return FSDP_OK;
}

static fsdp_status train(job *j, fsdp_optimizer *o, int rank)
{
    fsdp_lr_schedule schedule = {
        .kind = FSDP_LR_COSINE, .lr = 0.05, .warmup_steps = 2, .total_steps = STEPS};
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(o);
    float *to = j->params, ignored[MAX_NUMEL];
    for (int step = 0; step < STEPS; step++) {
        double norm;
        float scale;
        FSDP_TRY(set_grads(list, step));
        FSDP_TRY(fsdp_clip_grad_norm(list, 1.0, NULL, &norm, &scale));
        if (rank == 0)
            j->norm[step] = norm;
        fsdp_optimizer_set_lr(o, fsdp_lr_at(&schedule, step));
        FSDP_TRY(fsdp_optimizer_step(o, scale));
        fsdp_optimizer_zero_grad(o);
    }
    for (size_t i = 0; i < list->n; i++) {
        FSDP_TRY(
            shards_full(fsdp_parameter_local(list->items[i].parameter), rank == 0 ? to : ignored));
        to += rows[i] * WIDTH;
    }
    return FSDP_OK;
}

static fsdp_status create_optimizer(algorithm which, fsdp_module *module, fsdp_optimizer **o)
{
    fsdp_adafactor_options adafactor = fsdp_adafactor_defaults();
    adafactor.relative_step = false;
    adafactor.beta1 = 0.8;
    adafactor.weight_decay = 0.01;
    if (which == ADAFACTOR)
        return fsdp_adafactor_create(module, &adafactor, o);
    if (which == SGD)
        return fsdp_sgd_create(module, &(fsdp_sgd_options){.lr = 0.1, .momentum = 0.9}, o);
    return fsdp_adamw_create(module, NULL, o);
}

static fsdp_status run_rank(fsdp_group *group, void *arg)
{
    job *j = arg;
    fsdp_device *device;
    fsdp_module *module = NULL;
    fsdp_optimizer *o = NULL;
    fsdp_memory_stats memory;
    fsdp_group_set_delay(group, 3, 200);
    FSDP_TRY(fsdp_device_create(NULL, &device));
    fsdp_status status = shards_create(rows, N_PARAMS, WIDTH, &module);
    if (status == FSDP_OK)
        status = fsdp_fully_shard(module, group, device, &j->options);
    if (status == FSDP_OK)
        status = fsdp_module_init(module, 1);
    if (status == FSDP_OK)
        status = create_optimizer(j->which, module, &o);
    if (status == FSDP_OK)
        status = train(j, o, fsdp_group_rank(group));
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(module);
    fsdp_device_memory(device, &memory);
    if (status == FSDP_OK && memory.allocated != 0)
        status = fsdp_error(FSDP_ERR_STATE, "%lld bytes are still allocated",
                            (long long)memory.allocated);
    fsdp_device_destroy(device);
    return status;
}

static void compare_worlds(fsdp_test *t, const job *kind)
{
    job one = *kind;
    ASSERT_OK(fsdp_run_ranks(1, run_rank, &one, NULL));
    for (int i = 0; i < ALL; i++)
        ASSERT(isfinite(one.params[i]) && one.params[i] != 0.0f);
    for (int world_size = 2; world_size <= 4; world_size++) {
        job many = *kind;
        ASSERT_OK(fsdp_run_ranks(world_size, run_rank, &many, NULL));
        for (int s = 0; s < STEPS; s++)
            ASSERT_F32(many.norm[s], one.norm[s]);
        ASSERT(memcmp(many.params, one.params, sizeof one.params) == 0);
    }
}

TEST(adamw_gives_the_same_bits_on_1_to_4_ranks)
{
    compare_worlds(t, &(job){0});
}
TEST(adamw_gives_the_same_bits_with_rows_of_each_ranks_own)
{
    compare_worlds(t, &(job){.options = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}}});
}
TEST(adamw_gives_the_same_bits_with_a_bfloat16_master)
{
    compare_worlds(t, &(job){.options = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16,
                                                       .master_dtype = FSDP_DTYPE_BF16}}});
}
TEST(adamw_gives_the_same_bits_without_sharding)
{
    compare_worlds(t, &(job){.options = {.no_shard = true}});
}
TEST(sgd_gives_the_same_bits_on_1_to_4_ranks)
{
    compare_worlds(t, &(job){.which = SGD});
}

TEST(adafactor_gives_the_same_bits_on_1_to_4_ranks)
{
    compare_worlds(t, &(job){.which = ADAFACTOR});
}
TEST(adafactor_gives_the_same_bits_with_a_bfloat16_master)
{
    compare_worlds(t, &(job){.which = ADAFACTOR,
                             .options = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16,
                                                       .master_dtype = FSDP_DTYPE_BF16}}});
}
TEST(adafactor_gives_the_same_bits_without_sharding)
{
    compare_worlds(t, &(job){.which = ADAFACTOR, .options = {.no_shard = true}});
}

/* --- one rank --- */

typedef struct small {
    fsdp_device *device;
    fsdp_module *module;
    fsdp_parameter *p[2]; /* [3, 2] */
} small;

static const float ones[6] = {1, 1, 1, 1, 1, 1};

static void open_small(fsdp_test *t, small *x)
{
    ASSERT_OK(fsdp_device_create(NULL, &x->device));
    ASSERT_OK(shards_create((int64_t[]){3, 3}, 2, 2, &x->module));
    x->p[0] = fsdp_module_parameter(x->module, "p0");
    x->p[1] = fsdp_module_parameter(x->module, "p1");
}

static void close_small(small *x, fsdp_optimizer *o)
{
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(x->module);
    fsdp_device_destroy(x->device);
}

static void fill_small(fsdp_test *t, small *x, bool grads)
{
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(shards_set_values(x->p[i], ones));
        if (grads)
            ASSERT_OK(shards_set_grad(x->p[i], ones));
    }
}

TEST(a_parameter_without_a_gradient_keeps_its_value_and_has_no_state)
{
    small x;
    fsdp_optimizer *o;
    float values[6];
    fsdp_memory_stats memory;
    open_small(t, &x);
    ASSERT_OK(fsdp_module_to_empty(x.module, x.device));
    ASSERT_OK(fsdp_adamw_create(x.module, NULL, &o));
    fill_small(t, &x, false);
    ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
    ASSERT_OK(shards_set_grad(x.p[1], ones));
    ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
    ASSERT(!fsdp_optimizer_state(o, x.p[0], "exp_avg"));
    ASSERT_INT(fsdp_optimizer_steps(o, x.p[0]), 0);
    ASSERT_INT(fsdp_optimizer_steps(o, x.p[1]), 1);
    ASSERT(fsdp_optimizer_state(o, x.p[1], "exp_avg_sq"));
    ASSERT(!fsdp_optimizer_state(o, x.p[1], "momentum_buffer"));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_local(x.p[0]), values));
    ASSERT_F32(values[5], 1.0);
    fsdp_device_memory(x.device, &memory);
    ASSERT_INT(memory.tag_allocated[FSDP_TAG_OPTIM], 2 * 6 * 4);
    fsdp_optimizer_zero_grad(o);
    ASSERT(!fsdp_parameter_grad(x.p[1]));
    close_small(&x, o);
}

/* Even if it has a gradient from before. */
TEST(a_frozen_parameter_keeps_its_value_and_has_no_state)
{
    for (algorithm k = ADAMW; k <= ADAFACTOR; k++) {
        small x;
        fsdp_optimizer *o;
        fsdp_parameter_list list;
        float values[6], scale;
        double norm;
        open_small(t, &x);
        ASSERT_OK(fsdp_module_to_empty(x.module, x.device));
        ASSERT_OK(create_optimizer(k, x.module, &o));
        fill_small(t, &x, true);
        fsdp_parameter_set_requires_grad(x.p[0], false);
        ASSERT_OK(fsdp_module_parameters(x.module, false, &list));
        ASSERT_OK(fsdp_clip_grad_norm(&list, (double)INFINITY, NULL, &norm, &scale));
        ASSERT_NEAR(norm, sqrt(6.0), 1e-12);
        fsdp_parameter_list_free(&list);
        fsdp_optimizer_set_lr(o, 0.5);
        ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
        ASSERT_INT(fsdp_optimizer_steps(o, x.p[0]), 0);
        for (int i = 0; fsdp_optimizer_state_name(o, i); i++)
            ASSERT(!fsdp_optimizer_state(o, x.p[0], fsdp_optimizer_state_name(o, i)));
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_local(x.p[0]), values));
        ASSERT(memcmp(values, ones, sizeof ones) == 0);
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_local(x.p[1]), values));
        ASSERT(values[0] < 1.0f);
        close_small(&x, o);
    }
}

/* Gradients of ones move AdamW by lr; decay first multiplies by 1 - lr wd. */
TEST(groups_have_options_of_their_own)
{
    small x;
    fsdp_optimizer *o;
    float values[6];
    fsdp_adamw_options decay = fsdp_adamw_defaults(), none = decay;
    decay.lr = none.lr = 0.5;
    decay.weight_decay = 0.5;
    none.weight_decay = 0.0;
    open_small(t, &x);
    ASSERT_OK(fsdp_module_to_empty(x.module, x.device));
    fill_small(t, &x, true);
    fsdp_named_parameter items[] = {{"p0", x.p[0]}, {"p1", x.p[1]}};
    ASSERT_OK(fsdp_adamw_create(NULL, &decay, &o));
    ASSERT_OK(fsdp_adamw_add_group(o, &(fsdp_parameter_list){&items[0], 1}, &decay));
    ASSERT_OK(fsdp_adamw_add_group(o, &(fsdp_parameter_list){&items[1], 1}, &none));
    ASSERT_ERROR(fsdp_adamw_add_group(o, &(fsdp_parameter_list){&items[1], 1}, &none),
                 FSDP_ERR_INVALID, "p1 is in two parameter groups");
    ASSERT_ERROR(fsdp_adamw_add_group(o, &(fsdp_parameter_list){items, 0}, &none), FSDP_ERR_INVALID,
                 "empty parameter list");
    ASSERT_ERROR(fsdp_sgd_add_group(o, &(fsdp_parameter_list){items, 1}, NULL), FSDP_ERR_INVALID,
                 "sgd does not fit an optimizer of kind adamw");
    ASSERT_INT(fsdp_optimizer_n_groups(o), 2);
    fsdp_optimizer_set_group_lr(o, 1, 0.25);
    ASSERT_F32(fsdp_optimizer_lr(o, 0), 0.5);
    ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_local(x.p[0]), values));
    ASSERT_NEAR(values[0], 0.75 - 0.5, 1e-6);
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_local(x.p[1]), values));
    ASSERT_NEAR(values[0], 1.0 - 0.25, 1e-6);
    close_small(&x, o);
}

TEST_RANKS(sharding_after_a_step_is_an_error_before_anything_changes, 2)
{
    small x;
    fsdp_optimizer *o;
    float values[6];
    open_small(t, &x);
    ASSERT_OK(fsdp_module_to_empty(x.module, x.device));
    ASSERT_OK(fsdp_sgd_create(x.module, &(fsdp_sgd_options){.lr = 0.5, .momentum = 0.5}, &o));
    fill_small(t, &x, true);
    ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
    fsdp_optimizer_zero_grad(o);
    ASSERT_OK(fsdp_fully_shard(x.module, t->group, x.device, NULL));
    fill_small(t, &x, true);
    ASSERT_ERROR(fsdp_optimizer_step(o, 1.0f), FSDP_ERR_STATE,
                 "p0: the optimizer's state is [3, 2], this rank's rows are now [");
    ASSERT_OK(shards_full(fsdp_parameter_local(x.p[0]), values));
    ASSERT_F32(values[0], 1.0);
    close_small(&x, o);
}

TEST(options_out_of_bounds_are_named)
{
    small x;
    fsdp_optimizer *o;
    fsdp_adamw_options adamw = fsdp_adamw_defaults();
    fsdp_sgd_options sgd = fsdp_sgd_defaults();
    open_small(t, &x);
    adamw.beta2 = 1.0;
    ASSERT_ERROR(fsdp_adamw_create(x.module, &adamw, &o), FSDP_ERR_INVALID, "beta2 is 1");
    adamw = fsdp_adamw_defaults();
    adamw.lr = (double)NAN;
    ASSERT_ERROR(fsdp_adamw_create(x.module, &adamw, &o), FSDP_ERR_INVALID, "lr is nan");
    sgd.nesterov = true;
    ASSERT_ERROR(fsdp_sgd_create(x.module, &sgd, &o), FSDP_ERR_INVALID, "nesterov needs");
    sgd = fsdp_sgd_defaults();
    sgd.weight_decay = -1.0;
    ASSERT_ERROR(fsdp_sgd_create(x.module, &sgd, &o), FSDP_ERR_INVALID, "weight_decay is -1");
    close_small(&x, NULL);
}

/* On meta the same code counts the same state. */
TEST(meta_counts_the_state)
{
    small x;
    fsdp_optimizer *o;
    fsdp_memory_stats memory;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "meta"}, &x.device));
    ASSERT_OK(shards_create((int64_t[]){3, 3}, 2, 2, &x.module));
    ASSERT_OK(fsdp_module_to_empty(x.module, x.device));
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_module_parameters(x.module, false, &list));
    ASSERT_OK(fsdp_adamw_create(x.module, NULL, &o));
    for (size_t i = 0; i < list.n; i++)
        ASSERT_OK(shards_set_grad(list.items[i].parameter, ones));
    double norm;
    float scale;
    ASSERT_OK(fsdp_clip_grad_norm(&list, 1.0, NULL, &norm, &scale));
    ASSERT_OK(fsdp_optimizer_step(o, scale));
    fsdp_device_memory(x.device, &memory);
    ASSERT_INT(memory.tag_allocated[FSDP_TAG_OPTIM], 2 * 2 * 6 * 4);
    fsdp_parameter_list_free(&list);
    close_small(&x, o);
}
