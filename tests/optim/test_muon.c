/* Muon: torch's numbers, the same bits on 1 to 4 ranks, groups with AdamW, and refusals. */
#include <stdio.h>

#include <fsdp/ckpt.h>
#include <fsdp/dtensor.h>
#include <fsdp/state_dict.h>

#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "src/optim/optimizer.h"
#include "tests/optim/shards.h"
#include "tests/test.h"

/* --- torch's numbers --- */

enum {
    GOLDEN_STEPS = 3,
    TALL = 24 * 9,
    WIDE = 7 * 20
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

/* The elements of an orthogonal matrix are computed in bfloat16, in 5 steps of which each
 * multiplies a relative error by up to 3.4. `bound` is absolute. */
static void check_near(fsdp_test *t, const char *what, const float *have, const float *want,
                       int64_t n, double bound)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)have[i] - (double)want[i]) <= bound))
            FAIL("%s: element %lld is %.9g, not %.9g", what, (long long)i, (double)have[i],
                 (double)want[i]);
}

static void check_case(fsdp_test *t, const char *name, const fsdp_muon_options *options)
{
    static const int64_t shapes[2][2] = {{24, 9}, {7, 20}};
    static const int64_t sizes[] = {TALL, WIDE};
    static const char *const names[] = {"tall", "wide"};
    float whole[TALL];
    fsdp_safetensors *file;
    fsdp_device *device;
    fsdp_module *module;
    fsdp_parameter *p[2];
    fsdp_optimizer *o;
    ASSERT_OK(fsdp_safetensors_open(fsdp_test_path("golden/states/states.safetensors"), &file));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_module_create("Weights", &module));
    for (int i = 0; i < 2; i++)
        ASSERT_OK(fsdp_module_add_parameter(module, names[i], 2, shapes[i], (fsdp_init){0}, &p[i]));
    ASSERT_OK(fsdp_muon_create(module, options, &o));
    ASSERT_OK(fsdp_fully_shard(module, t->group, device, NULL));
    for (int i = 0; i < 2; i++) {
        const float *start = read_floats(t, file, names[i], "start", sizes[i]);
        CHECK_HERE();
        ASSERT_OK(shards_set_values(p[i], start));
    }
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        const float *want[2];
        for (int i = 0; i < 2; i++) {
            char key[64];
            const float *grads = read_floats(t, file, names[i], "grads", GOLDEN_STEPS * sizes[i]);
            snprintf(key, sizeof key, "%s.%s", name, names[i]);
            want[i] = read_floats(t, file, key, "params", GOLDEN_STEPS * sizes[i]);
            CHECK_HERE();
            ASSERT_OK(shards_set_grad(p[i], grads + step * sizes[i]));
        }
        ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
        for (int i = 0; i < 2; i++) {
            ASSERT_OK(shards_full(fsdp_parameter_local(p[i]), whole));
            check_near(t, names[i], whole, want[i] + step * sizes[i], sizes[i],
                       0.02 * options->lr * (step + 1));
            CHECK_HERE();
        }
    }
    for (int i = 0; i < 2; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.%s.state", name, names[i]);
        const float *want = read_floats(t, file, key, "momentum_buffer", sizes[i]);
        CHECK_HERE();
        ASSERT_OK(shards_full(fsdp_optimizer_state(o, p[i], "momentum_buffer"), whole));
        check_near(t, key, whole, want, sizes[i], 1e-7);
        CHECK_HERE();
        ASSERT(!fsdp_optimizer_state(o, p[i], "exp_avg"));
    }
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(module);
    fsdp_device_destroy(device);
    fsdp_safetensors_close(file);
}

static void check_golden(fsdp_test *t)
{
    fsdp_muon_options options = fsdp_muon_defaults();
    options.lr = 0.02;
    check_case(t, "muon", &options);
    CHECK_HERE();
    options.momentum = 0.9;
    options.nesterov = false;
    options.weight_decay = 0.0;
    options.adjust_lr_fn = FSDP_MUON_MATCH_RMS_ADAMW;
    check_case(t, "muon_match", &options);
}

TEST_RANKS(muon_is_that_of_torch, 1)
{
    check_golden(t);
}
TEST_RANKS(muon_is_that_of_torch_on_3_ranks, 3)
{
    check_golden(t);
}

/* --- the same bits at any world size --- */

enum {
    STEPS = 6,
    N_PARAMS = 6,
    WIDTH = 5,
    MOST = 17 * WIDTH,
    ALL = (1 + 2 + 7 + 15 + 16 + 17) * WIDTH
};

static const int64_t rows[N_PARAMS] = {1, 2, 7, 15, 16, 17};

typedef struct job {
    fsdp_fully_shard_options options;
    float params[ALL];
} job;

/* p2 is updated by AdamW, and p3 gets no gradient in every third step. */
static fsdp_status create(fsdp_module *module, fsdp_optimizer **o)
{
    fsdp_muon_options options = fsdp_muon_defaults();
    fsdp_named_parameter muon[N_PARAMS], adamw[1];
    fsdp_parameter_list all;
    size_t n = 0;
    options.lr = 0.05;
    FSDP_TRY(fsdp_module_parameters(module, false, &all));
    for (size_t i = 0; i < all.n; i++)
        if (i == 2)
            adamw[0] = all.items[i];
        else
            muon[n++] = all.items[i];
    fsdp_status status = fsdp_muon_create(NULL, NULL, o);
    if (status == FSDP_OK)
        status = fsdp_muon_add_group(*o, &(fsdp_parameter_list){muon, n}, &options);
    options.use_adamw = true;
    if (status == FSDP_OK)
        status = fsdp_muon_add_group(*o, &(fsdp_parameter_list){adamw, 1}, &options);
    fsdp_parameter_list_free(&all);
    return status;
}

static fsdp_status run_steps(job *j, fsdp_module *module, fsdp_optimizer *o, int rank)
{
    float whole[MOST], *to = j->params;
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(module, false, &list));
    fsdp_status status = FSDP_OK;
    for (int step = 0; step < STEPS && status == FSDP_OK; step++) {
        for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
            for (int64_t k = 0; k < rows[i] * WIDTH; k++)
                whole[k] = shards_random((uint64_t)(step * 100 + (int)i), k);
            status =
                shards_set_grad(list.items[i].parameter, i == 3 && step % 3 == 0 ? NULL : whole);
        }
        if (status == FSDP_OK)
            status = fsdp_optimizer_step(o, 0.5f);
        fsdp_optimizer_zero_grad(o);
    }
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        status = shards_full(fsdp_parameter_local(list.items[i].parameter), rank ? whole : to);
        to += rows[i] * WIDTH;
    }
    fsdp_parameter_list_free(&list);
    return status;
}

static fsdp_status run_rank(fsdp_group *group, void *arg)
{
    job *j = arg;
    fsdp_device *device;
    fsdp_module *module = NULL;
    fsdp_optimizer *o = NULL;
    fsdp_memory_stats memory;
    FSDP_TRY(fsdp_device_create(NULL, &device));
    fsdp_status status = shards_create(rows, N_PARAMS, WIDTH, &module);
    if (status == FSDP_OK)
        status = fsdp_fully_shard(module, group, device, &j->options);
    if (status == FSDP_OK)
        status = fsdp_module_init(module, 1);
    if (status == FSDP_OK)
        status = create(module, &o);
    if (status == FSDP_OK)
        status = run_steps(j, module, o, fsdp_group_rank(group));
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
    ASSERT_OK(fsdp_run_ranks(1, run_rank, &one, NULL));
    for (int i = 0; i < ALL; i++)
        ASSERT(isfinite(one.params[i]) && one.params[i] != 0.0f);
    for (int world_size = 2; world_size <= 4; world_size++) {
        job many = {.options = *options};
        ASSERT_OK(fsdp_run_ranks(world_size, run_rank, &many, NULL));
        ASSERT(memcmp(many.params, one.params, sizeof one.params) == 0);
    }
}

TEST(muon_gives_the_same_bits_on_1_to_4_ranks)
{
    compare_worlds(t, &(fsdp_fully_shard_options){0});
}
TEST(muon_gives_the_same_bits_with_halves)
{
    compare_worlds(t, &(fsdp_fully_shard_options){.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}});
}
TEST(muon_gives_the_same_bits_with_a_bfloat16_master)
{
    compare_worlds(t, &(fsdp_fully_shard_options){.mp_policy = {.param_dtype = FSDP_DTYPE_BF16,
                                                                .master_dtype = FSDP_DTYPE_BF16}});
}
TEST(muon_gives_the_same_bits_without_sharding)
{
    compare_worlds(t, &(fsdp_fully_shard_options){.no_shard = true});
}

/* --- state dicts --- */

/* param_groups have the options of the iteration under torch's names, and read them back. */
TEST_RANKS(muon_saves_the_options_of_its_iteration, 2)
{
    fsdp_muon_options options = fsdp_muon_defaults();
    fsdp_device *device;
    fsdp_module *module;
    fsdp_optimizer *o, *other;
    fsdp_state_dict *dict;
    options.ns_coefficients[0] = 3.0;
    options.ns_coefficients[1] = -3.2;
    options.ns_coefficients[2] = 1.2;
    options.ns_steps = 7;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(shards_create((int64_t[]){3}, 1, 2, &module));
    ASSERT_OK(fsdp_fully_shard(module, t->group, device, NULL));
    ASSERT_OK(fsdp_module_init(module, 1));
    ASSERT_OK(fsdp_muon_create(module, &options, &o));
    ASSERT_OK(fsdp_muon_create(module, NULL, &other));
    ASSERT_OK(fsdp_get_optimizer_state_dict(module, o, NULL, &dict));
    const fsdp_plain *list = fsdp_state_dict_find(dict, "param_groups.0.ns_coefficients")->value;
    ASSERT(list->kind == FSDP_PLAIN_TUPLE && list->as.list.n == 3);
    ASSERT(list->as.list.items[1].as.number == -3.2);
    ASSERT_INT(fsdp_state_dict_find(dict, "param_groups.0.ns_steps")->value->as.integer, 7);
    ASSERT_OK(fsdp_set_optimizer_state_dict(module, other, dict,
                                            &(fsdp_state_dict_options){.group = t->group}));
    const fsdp_muon_options *now = &fsdp_optimizer_group_options(other, 0)->muon;
    ASSERT_INT(now->ns_steps, 7);
    ASSERT(memcmp(now->ns_coefficients, options.ns_coefficients, sizeof now->ns_coefficients) == 0);
    fsdp_state_dict_destroy(dict);
    fsdp_optimizer_destroy(other);
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(module);
    fsdp_device_destroy(device);
}

/* --- refusals --- */

TEST(muon_refuses_vectors_and_bad_options)
{
    fsdp_muon_options options = fsdp_muon_defaults();
    fsdp_module *module, *vector;
    fsdp_optimizer *o;
    ASSERT_OK(shards_create((int64_t[]){3}, 1, 2, &module));
    ASSERT_OK(shards_create((int64_t[]){3}, 1, 0, &vector));
    ASSERT_ERROR(fsdp_muon_create(vector, NULL, &o), FSDP_ERR_INVALID,
                 "parameter p0 has 1 dimension: Muon is for matrices");
    options.use_adamw = true;
    ASSERT_OK(fsdp_muon_create(vector, &options, &o));
    fsdp_optimizer_destroy(o);
    options = fsdp_muon_defaults();
    options.momentum = 1.0;
    ASSERT_ERROR(fsdp_muon_create(module, &options, &o), FSDP_ERR_INVALID, "momentum is 1");
    options = fsdp_muon_defaults();
    options.ns_coefficients[2] = 0.0;
    ASSERT_ERROR(fsdp_muon_create(module, &options, &o), FSDP_ERR_INVALID, "ns_coefficients");
    options = fsdp_muon_defaults();
    options.ns_steps = 100;
    ASSERT_ERROR(fsdp_muon_create(module, &options, &o), FSDP_ERR_INVALID, "ns_steps is 100");
    fsdp_module_destroy(vector);
    fsdp_module_destroy(module);
}
