/* Optimizers whose states or weights have few bits: torchao's numbers, the same bits on 1 to 4
 * ranks, the bytes of states, and refusals. */
#include <stdio.h>

#include <fsdp/ckpt.h>
#include <fsdp/dtensor.h>

#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "src/tensor/host_copy.h"
#include "tests/optim/shards.h"
#include "tests/test.h"

/* --- torchao's numbers --- */

enum {
    GOLDEN_STEPS = 3,
    LARGE = 9 * 512,
    VECTOR = 11
};

static const void *read_array(fsdp_test *t, const fsdp_safetensors *file, const char *part,
                              const char *name, size_t bytes)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", part, name);
    const fsdp_checkpoint_entry *entry = fsdp_safetensors_find(file, key);
    if (!entry || entry->bytes != bytes) {
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: not there, or not %zu bytes", key, bytes);
        return NULL;
    }
    return entry->data;
}

/* The moments are rounded otherwise in their last bits, so that values halfway between two codes
 * may differ by one code. */
static void check_codes(fsdp_test *t, const fsdp_safetensors *file, fsdp_tensor *state,
                        const char *name)
{
    const uint8_t *want = read_array(t, file, "adamw_8bit.large.state", name, LARGE);
    fsdp_tensor *full;
    fsdp_host_copy copy;
    int differ = 0;
    CHECK_HERE();
    ASSERT_OK(fsdp_full_tensor(state, &full));
    ASSERT_OK(fsdp_host_copy_of(&copy, full));
    const uint8_t *have = copy.data;
    for (int i = 0; i < LARGE; i++) {
        ASSERT(abs(have[i] - want[i]) <= 1);
        differ += have[i] != want[i];
    }
    fsdp_host_copy_destroy(&copy);
    fsdp_tensor_release(full);
    ASSERT(differ <= LARGE / 200);
}

static void check_near(fsdp_test *t, const char *what, const float *have, const float *want,
                       int64_t n, double bound)
{
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)have[i] - (double)want[i]) <= bound * largest))
            FAIL("%s: element %lld is %.9g, not %.9g", what, (long long)i, (double)have[i],
                 (double)want[i]);
}

static void check_golden(fsdp_test *t)
{
    static const int64_t sizes[] = {LARGE, VECTOR};
    static const char *const names[] = {"large", "vector"};
    static _Thread_local float whole[LARGE];
    fsdp_adamw_options options = fsdp_adamw_defaults();
    fsdp_safetensors *file;
    fsdp_device *device;
    fsdp_module *module;
    fsdp_parameter *p[2];
    fsdp_optimizer *o;
    options.lr = 0.01;
    options.beta2 = 0.95;
    options.weight_decay = 0.1;
    ASSERT_OK(fsdp_safetensors_open(fsdp_test_path("golden/states/states.safetensors"), &file));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_module_create("Weights", &module));
    ASSERT_OK(
        fsdp_module_add_parameter(module, "large", 2, (int64_t[]){9, 512}, (fsdp_init){0}, &p[0]));
    ASSERT_OK(
        fsdp_module_add_parameter(module, "vector", 1, (int64_t[]){VECTOR}, (fsdp_init){0}, &p[1]));
    ASSERT_OK(fsdp_adamw_8bit_create(module, &options, &o));
    ASSERT_OK(fsdp_fully_shard(module, t->group, device, NULL));
    for (int i = 0; i < 2; i++) {
        const float *start = read_array(t, file, names[i], "start", (size_t)sizes[i] * 4);
        CHECK_HERE();
        ASSERT_OK(shards_set_values(p[i], start));
    }
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        const float *want[2];
        for (int i = 0; i < 2; i++) {
            char key[64];
            const size_t bytes = GOLDEN_STEPS * (size_t)sizes[i] * 4;
            const float *grads = read_array(t, file, names[i], "grads", bytes);
            snprintf(key, sizeof key, "adamw_8bit.%s", names[i]);
            want[i] = read_array(t, file, key, "params", bytes);
            CHECK_HERE();
            ASSERT_OK(shards_set_grad(p[i], grads + step * sizes[i]));
        }
        ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
        for (int i = 0; i < 2; i++) {
            ASSERT_OK(shards_full(fsdp_parameter_local(p[i]), whole));
            /* A code that differs by one moves the next update of its element by up to 2 %, of a
             * rate of 0.01. */
            check_near(t, names[i], whole, want[i] + step * sizes[i], sizes[i],
                       i == 0 && step ? 1e-4 : 2e-6);
            CHECK_HERE();
        }
    }
    check_codes(t, file, fsdp_optimizer_state(o, p[0], "state1"), "state1");
    CHECK_HERE();
    check_codes(t, file, fsdp_optimizer_state(o, p[0], "state2"), "state2");
    CHECK_HERE();
    for (int k = 1; k <= 2; k++) {
        char name[16];
        snprintf(name, sizeof name, "absmax%d", k);
        const float *want = read_array(t, file, "adamw_8bit.large.state", name, 18 * 4);
        fsdp_tensor *state = fsdp_optimizer_state(o, p[0], name);
        CHECK_HERE();
        ASSERT_INT(fsdp_dtensor_shape(state)[0], 9);
        ASSERT_INT(fsdp_dtensor_shape(state)[1], 2);
        ASSERT_OK(shards_full(state, whole));
        check_near(t, name, whole, want, 18, 1e-4);
        CHECK_HERE();
    }
    ASSERT(fsdp_tensor_dtype(fsdp_optimizer_state(o, p[1], "state1")) == FSDP_DTYPE_F32);
    ASSERT(!fsdp_optimizer_state(o, p[1], "absmax1"));
    ASSERT(!fsdp_optimizer_state(o, p[1], "qmap1"));
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(module);
    fsdp_device_destroy(device);
    fsdp_safetensors_close(file);
}

TEST_RANKS(adamw_8bit_is_that_of_torchao, 1)
{
    check_golden(t);
}
TEST_RANKS(adamw_8bit_is_that_of_torchao_on_3_ranks, 3)
{
    check_golden(t);
}

/* --- the same bits at any world size --- */

enum {
    STEPS = 8,
    N_PARAMS = 5,
    WIDTH = 272, /* a block of 256 elements and one of 16 */
    MOST = 17 * WIDTH,
    ALL = (1 + 2 + 7 + 16 + 17) * WIDTH
};

static const int64_t rows[N_PARAMS] = {1, 2, 7, 16, 17};

typedef struct job {
    fsdp_fully_shard_options options;
    fsdp_adamw_options adamw;
    bool in_8bit;
    float params[ALL];
} job;

static fsdp_status create(const job *j, fsdp_module *module, fsdp_optimizer **o)
{
    return j->in_8bit ? fsdp_adamw_8bit_create(module, &j->adamw, o)
                      : fsdp_adamw_create(module, &j->adamw, o);
}

static fsdp_status set_grads(const fsdp_parameter_list *list, int step)
{
    static _Thread_local float whole[MOST];
    for (size_t i = 0; i < list->n; i++) {
        for (int64_t k = 0; k < rows[i] * WIDTH; k++)
            whole[k] = shards_random((uint64_t)(step * 100 + (int)i), k);
        FSDP_TRY(shards_set_grad(list->items[i].parameter, i == 3 && step % 3 == 0 ? NULL : whole));
    }
    return FSDP_OK;
}

static fsdp_status run_steps(job *j, fsdp_optimizer *o, int rank)
{
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(o);
    static _Thread_local float ignored[MOST];
    float *to = j->params;
    for (int step = 0; step < STEPS; step++) {
        FSDP_TRY(set_grads(list, step));
        FSDP_TRY(fsdp_optimizer_step(o, 0.5f));
        fsdp_optimizer_zero_grad(o);
    }
    for (size_t i = 0; i < list->n; i++, to += rows[i - 1] * WIDTH)
        FSDP_TRY(shards_full(fsdp_parameter_local(list->items[i].parameter), rank ? ignored : to));
    return FSDP_OK;
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
        status = create(j, module, &o);
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

static void compare_worlds(fsdp_test *t, const job *kind, float *params)
{
    static job one, many;
    one = many = *kind;
    ASSERT_OK(fsdp_run_ranks(1, run_rank, &one, NULL));
    for (int i = 0; i < ALL; i++)
        ASSERT(isfinite(one.params[i]) && one.params[i] != 0.0f);
    for (int world_size = 2; world_size <= 4; world_size++) {
        ASSERT_OK(fsdp_run_ranks(world_size, run_rank, &many, NULL));
        ASSERT(memcmp(many.params, one.params, sizeof one.params) == 0);
    }
    if (params)
        memcpy(params, one.params, sizeof one.params);
}

static fsdp_adamw_options options_of(bool stochastic, fsdp_dtype state_dtype, uint64_t seed)
{
    fsdp_adamw_options o = fsdp_adamw_defaults();
    o.lr = 0.01;
    o.bf16_stochastic_round = stochastic;
    o.state_dtype = state_dtype;
    o.seed = seed;
    o.min_8bit_size = 300;
    return o;
}

static const fsdp_fully_shard_options in_bfloat16 = {
    .mp_policy = {.param_dtype = FSDP_DTYPE_BF16, .master_dtype = FSDP_DTYPE_BF16}};

TEST(stochastic_rounding_gives_the_same_bits_on_1_to_4_ranks)
{
    static float first[ALL], second[ALL], third[ALL];
    job j = {.options = in_bfloat16, .adamw = options_of(true, FSDP_DTYPE_BF16, 1)};
    compare_worlds(t, &j, first);
    CHECK_HERE();
    j.adamw.seed = 2;
    compare_worlds(t, &j, second);
    CHECK_HERE();
    ASSERT(memcmp(first, second, sizeof first) != 0);
    j.adamw.bf16_stochastic_round = false;
    compare_worlds(t, &j, third);
    CHECK_HERE();
    ASSERT(memcmp(first, third, sizeof first) != 0);
}
TEST(stochastic_moments_give_the_same_bits_on_1_to_4_ranks)
{
    compare_worlds(t, &(job){.adamw = options_of(true, FSDP_DTYPE_BF16, 1)}, NULL);
}
TEST(adamw_8bit_gives_the_same_bits_on_1_to_4_ranks)
{
    compare_worlds(t, &(job){.in_8bit = true, .adamw = options_of(false, FSDP_DTYPE_F32, 0)}, NULL);
}
TEST(adamw_8bit_gives_the_same_bits_with_halves)
{
    compare_worlds(t,
                   &(job){.in_8bit = true,
                          .adamw = options_of(false, FSDP_DTYPE_F32, 0),
                          .options = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}}},
                   NULL);
}
TEST(adamw_8bit_gives_the_same_bits_with_a_bfloat16_master_that_is_rounded_stochastically)
{
    compare_worlds(t,
                   &(job){.in_8bit = true,
                          .adamw = options_of(true, FSDP_DTYPE_F32, 5),
                          .options = in_bfloat16},
                   NULL);
}
TEST(adamw_8bit_gives_the_same_bits_without_sharding)
{
    compare_worlds(t,
                   &(job){.in_8bit = true,
                          .adamw = options_of(false, FSDP_DTYPE_F32, 0),
                          .options = {.no_shard = true}},
                   NULL);
}

/* --- bytes, refusals --- */

TEST(states_in_8_bits_take_at_most_2_1_bytes_a_parameter)
{
    enum {
        SIDE = 1024
    };
    fsdp_device *meta;
    fsdp_module *module;
    fsdp_optimizer *o;
    fsdp_memory_stats memory;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "meta"}, &meta));
    ASSERT_OK(shards_create((int64_t[]){SIDE, SIDE}, 2, SIDE, &module));
    ASSERT_OK(fsdp_module_to_empty(module, meta));
    ASSERT_OK(fsdp_adamw_8bit_create(module, NULL, &o));
    ASSERT_OK(fsdp_optimizer_init_state(o));
    fsdp_device_memory(meta, &memory);
    /* two codes for each element, two float32 for each block of 256, two maps for all */
    ASSERT_INT(memory.tag_allocated[FSDP_TAG_OPTIM],
               2 * SIDE * SIDE * 2 + 2 * 2 * SIDE * (SIDE / 256) * 4 + 2 * 256 * 4);
    ASSERT((double)memory.tag_allocated[FSDP_TAG_OPTIM] <= 2.1 * 2 * SIDE * SIDE);
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(module);
    fsdp_device_destroy(meta);
}

TEST(options_that_8_bits_do_not_have_are_refused)
{
    fsdp_adamw_options options = fsdp_adamw_defaults();
    fsdp_module *module;
    fsdp_optimizer *o;
    ASSERT_OK(shards_create((int64_t[]){3}, 1, 2, &module));
    options.l2 = true;
    ASSERT_ERROR(fsdp_adamw_8bit_create(module, &options, &o), FSDP_ERR_UNSUPPORTED,
                 "adamw_8bit: l2");
    options = fsdp_adamw_defaults();
    options.state_dtype = FSDP_DTYPE_BF16;
    ASSERT_ERROR(fsdp_adamw_8bit_create(module, &options, &o), FSDP_ERR_INVALID,
                 "adamw_8bit: state_dtype bfloat16");
    options = fsdp_adamw_defaults();
    options.min_8bit_size = -1;
    ASSERT_ERROR(fsdp_adamw_8bit_create(module, &options, &o), FSDP_ERR_INVALID,
                 "min_8bit_size is -1");
    fsdp_module_destroy(module);
}
