/* Activation checkpointing of whole blocks, of all but expensive operations, or of every second
 * block, with kept tensors in memory or in a file. Losses and gradients must be bit for bit the
 * same as without it, with dropout, in less memory. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "src/base/alloc_testing.h"
#include "tests/models/checkpointing.h"

/* What is checkpointed and how. */
typedef struct variant {
    const char *name;
    ac_options options;
    ac_scope which;
    bool offloads;
} variant;

enum {
    FULL,
    OP,
    EVERY,
    NESTED,
    NESTED_OP,
    OF_LAYERS,
    OF_ALL,
    FULL_OFFLOADED,
    OP_OFFLOADED,
    VARIANTS
};
enum {
    DEEP = 12 /* number of blocks where peaks are compared */
};

static const variant variants[VARIANTS] = {
    [FULL] = {.name = "full"},
    [OP] = {.name = "op", .options.kind = FSDP_CHECKPOINT_OP},
    [EVERY] = {.name = "every second block", .options.every = 2},
    [NESTED] = {.name = "nested", .which = NESTED_IN_BLOCKS},
    [NESTED_OP] = {.name = "nested, op",
                   .options.kind = FSDP_CHECKPOINT_OP,
                   .which = NESTED_IN_BLOCKS},
    [OF_LAYERS] = {.name = "layers", .which = LAYERS},
    [OF_ALL] = {.name = "all modules", .which = ALL_MODULES},
    [FULL_OFFLOADED] = {.name = "offloaded", .offloads = true},
    [OP_OFFLOADED] = {.name = "op, offloaded",
                      .options.kind = FSDP_CHECKPOINT_OP,
                      .offloads = true},
};

/* Runs two steps of `again` and checks that they equal those of `plain` bit for bit. Returns the
 * peak of its activations. */
static void run_variant(fsdp_test *t, const variant *v, model_case *plain, model_case *again,
                        int64_t *peak)
{
    ac_options options = v->options;
    fsdp_activation_offload *offload = NULL;
    double loss, loss_again;
    if (v->offloads)
        ASSERT_OK(fsdp_activation_offload_create(&(fsdp_activation_offload_options){.min_bytes = 1},
                                                 &offload));
    options.offload = offload;
    ASSERT_OK(ac_checkpoint_blocks(again->model, &options, v->which));
    for (int step = 0; step < 2; step++) {
        ac_train_step(t, plain, step, &loss);
        ac_train_step(t, again, step, &loss_again);
        CHECK_HERE();
        if (loss != loss_again)
            FAIL("%s: loss %.9g, not %.9g", v->name, loss_again, loss);
        ac_compare(t, plain, again);
        CHECK_HERE();
    }
    *peak = model_case_activations(again);
    if (offload)
        ASSERT(fsdp_activation_offload_peak(offload) > 0);
    fsdp_activation_offload_destroy(offload);
}

/* Checks that `low` is at most `percent` percent of `high`. */
static void check_lower(fsdp_test *t, const char *name, int64_t low, int64_t high, int percent)
{
    if (low * 100 > high * percent)
        FAIL("%s: %lld bytes of activations are more than %d %% of %lld", name, (long long)low,
             percent, (long long)high);
}

static void check_peaks(fsdp_test *t, int64_t plain, const int64_t peak[VARIANTS])
{
    check_lower(t, "full", peak[FULL], plain, 32);
    check_lower(t, "op", peak[OP], plain, 95);
    check_lower(t, "full beside op", peak[FULL], peak[OP], 50);
    check_lower(t, "every second block", peak[EVERY], plain, 70);
    check_lower(t, "nested", peak[NESTED], plain, 32);
    check_lower(t, "nested, op", peak[NESTED_OP], plain, 95);
    check_lower(t, "offloaded", peak[FULL_OFFLOADED], peak[FULL], 80);
    check_lower(t, "op, offloaded", peak[OP_OFFLOADED], peak[OP], 33);
}

/* Runs all variants and returns the peaks of activations without and with them. */
static void run_variants(fsdp_test *t, const fsdp_model_config *config, bool masked,
                         fsdp_dtype dtype, int64_t *without, int64_t peak[VARIANTS])
{
    model_case plain, again;
    const fsdp_fully_shard_options options = {.mp_policy = {.param_dtype = dtype}};
    model_case_shard(t, config, &options, &plain);
    CHECK_HERE();
    ac_make_rows(t, config, masked, &plain.batch);
    CHECK_HERE();
    for (int i = 0; i < VARIANTS; i++) {
        model_case_shard(t, config, &options, &again);
        CHECK_HERE();
        again.batch = fsdp_batch_retain(plain.batch);
        run_variant(t, &variants[i], &plain, &again, &peak[i]);
        CHECK_HERE();
        model_case_close(&again);
    }
    *without = model_case_activations(&plain);
    model_case_close(&plain);
}

typedef struct checked_model {
    const char *name;
    bool masked; /* Note [Rows that are read] in src/models/causal.h */
} checked_model;

static void check_model(fsdp_test *t, const checked_model *m, fsdp_dtype dtype)
{
    fsdp_model_config config;
    int64_t plain = 0, peak[VARIANTS];
    ac_read_config(t, m->name, &config);
    CHECK_HERE();
    if (strcmp(m->name, "bert") == 0) /* Note [First tokens] in src/models/bert.c */
        config.bert.num_hidden_layers = 3;
    run_variants(t, &config, m->masked, dtype, &plain, peak);
    CHECK_HERE();
    check_lower(t, m->name, peak[FULL], plain, m->masked ? 90 : 85);
}

static void check_models(fsdp_test *t)
{
    static const checked_model models[] = {
        {"t5_v1_1", false}, {"llama3", true},  {"gpt2", true},    {"bert", false},
        {"t5_v1_0", false}, {"llama2", false}, {"mistral", true}, {"qwen2", false},
    };
    const size_t n = sizeof models / sizeof *models;
    const size_t relatives = UNDER_SANITIZER ? n / 2 : 0; /* they resemble the first half */
    for (size_t i = 0; i < n - relatives; i++) {
        check_model(t, &models[i], t->group ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32);
        CHECK_HERE();
    }
}

TEST(a_second_forward_changes_no_bit_of_any_model)
{
    if (UNDER_SANITIZER)
        SKIP("two ranks make the same accesses");
    check_models(t);
}

TEST_RANKS(a_second_forward_changes_no_bit_on_2_ranks, 2)
{
    check_models(t);
}

/* Twelve blocks, of which only a few are in memory whole. */
TEST(peaks_of_activations_are_those_of_what_is_kept)
{
    if (UNDER_SANITIZER)
        SKIP("twelve blocks make the accesses of few");
    static const char *const names[] = {"llama3", "t5_v1_1", "gpt2", "bert"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fsdp_model_config config;
        int64_t plain, peak[VARIANTS];
        ac_read_config(t, names[i], &config);
        CHECK_HERE();
        ac_set_layers(&config, names[i], strcmp(names[i], "t5_v1_1") == 0 ? DEEP / 2 : DEEP);
        run_variants(t, &config, false, FSDP_DTYPE_F32, &plain, peak);
        CHECK_HERE();
        check_peaks(t, plain, peak);
        CHECK_HERE();
    }
}

/* A limit on the size of files acts as a full disk. The forward returns an error; the next forward,
 * without the limit, succeeds. */
TEST(a_full_disk_is_an_error_of_the_forward)
{
    fsdp_model_config config;
    model_case c;
    fsdp_scope *s;
    fsdp_activation_offload *offload;
    struct rlimit old;
    double loss;
    ac_read_config(t, "llama3", &config);
    CHECK_HERE();
    const fsdp_fully_shard_options shard = {.reshard_after_forward = FSDP_RESHARD_DEFAULT};
    model_case_shard(t, &config, &shard, &c);
    CHECK_HERE();
    ac_make_rows(t, &config, false, &c.batch);
    ASSERT_OK(fsdp_activation_offload_create(
        &(fsdp_activation_offload_options){.dir = fsdp_test_dir(t), .min_bytes = 1}, &offload));
    ASSERT_OK(ac_checkpoint_blocks(c.model, &(ac_options){.offload = offload}, BLOCKS));
    ASSERT(getrlimit(RLIMIT_FSIZE, &old) == 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    ASSERT(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, old.rlim_max}) == 0);
    const fsdp_scope_options options = {.batch = c.batch, .training = true};
    ASSERT_OK(fsdp_scope_open(c.device, c.tape, &options, &s));
    (void)fsdp_model_loss(s, c.model, 1.0f);
    ASSERT(setrlimit(RLIMIT_FSIZE, &old) == 0);
    signal(SIGXFSZ, handler);
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_IO, "no room for an offload file");
    fsdp_scope_close(s);
    fsdp_tape_reset(c.tape);
    ac_train_step(t, &c, 0, &loss);
    CHECK_HERE();
    ASSERT(fsdp_activation_offload_peak(offload) > 1000);
    model_case_close(&c);
    fsdp_activation_offload_destroy(offload);
}

enum {
    MAX_ALLOCATIONS = 2000 /* more than a step makes */
};

static fsdp_status step_status(model_case *c)
{
    fsdp_scope *s;
    const fsdp_scope_options options = {.batch = c->batch, .training = true};
    FSDP_TRY(fsdp_scope_open(c->device, c->tape, &options, &s));
    fsdp_tensor *value = fsdp_model_loss(s, c->model, 1.0f);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_backward(c->tape, &value, NULL, 1);
    fsdp_scope_close(s);
    fsdp_tape_reset(c->tape);
    return status;
}

/* Host memory runs out at many allocations of a step. Each gives an error (unless the code can do
 * without the memory), nothing leaks, and the next step succeeds. */
TEST(memory_that_runs_out_in_a_step_is_an_error)
{
    fsdp_model_config config;
    model_case c;
    fsdp_activation_offload *offload;
    fsdp_memory_stats stats;
    int failures = 0;
    ac_read_config(t, "qwen2", &config);
    CHECK_HERE();
    const fsdp_fully_shard_options shard = {.reshard_after_forward = FSDP_RESHARD_DEFAULT};
    model_case_shard(t, &config, &shard, &c);
    CHECK_HERE();
    ac_make_rows(t, &config, false, &c.batch);
    ASSERT_OK(fsdp_activation_offload_create(
        &(fsdp_activation_offload_options){.dir = fsdp_test_dir(t), .min_bytes = 1}, &offload));
    ASSERT_OK(ac_checkpoint_blocks(
        c.model, &(ac_options){.kind = FSDP_CHECKPOINT_OP, .offload = offload}, NESTED_IN_BLOCKS));
    for (long n = 1; n < MAX_ALLOCATIONS; n += 1 + n / 16) {
        fsdp_alloc_fail_at(n);
        fsdp_status status = step_status(&c);
        fsdp_alloc_fail_at(0);
        fsdp_module_zero_grad(c.model);
        fsdp_device_memory(c.device, &stats);
        ASSERT_INT(stats.tag_allocated[FSDP_TAG_ACTIVATION], 0);
        if (status != FSDP_OK)
            ASSERT_INT(status, FSDP_ERR_NOMEM);
        failures += status != FSDP_OK;
    }
    ASSERT(failures > 50);
    ASSERT_OK(step_status(&c));
    model_case_close(&c);
    fsdp_activation_offload_destroy(offload);
}

/* A module that computes something else the second time: kept results must not be mixed up. */
static void fickle_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    int *calls = fsdp_module_impl(self);
    fsdp_tensor *x = in->t[0];
    *out = (fsdp_args){.n = 1};
    out->t[0] = (*calls)++ ? fsdp_conv1d(s, x, x, NULL) : fsdp_linear(s, x, x, NULL);
}

TEST(another_order_in_the_second_run_is_an_error)
{
    const float values[4] = {1, 2, 3, 4};
    int calls = 0;
    fsdp_module *m;
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *x;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_module_create("Fickle", &m));
    fsdp_module_set_forward(m, fickle_forward, &calls, NULL);
    fsdp_module_set_activation_checkpointing_options(m, &(ac_options){.kind = FSDP_CHECKPOINT_OP});
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, (int64_t[]){2, 2}, values,
                                    FSDP_TAG_DATA, &x));
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *loss = fsdp_sum(s, fsdp_module_call1(s, m, x));
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_ERROR(fsdp_backward(tape, &loss, NULL, 1), FSDP_ERR_INVALID,
                 "computed linear here the first time");
    fsdp_scope_close(s);
    fsdp_tensor_release(x);
    fsdp_tape_destroy(tape);
    fsdp_module_destroy(m);
    fsdp_device_destroy(device);
}

static bool is_any(const char *path, const fsdp_module *module, void *arg)
{
    (void)path, (void)module, (void)arg;
    return true;
}

TEST(a_negative_number_of_blocks_is_refused)
{
    fsdp_module *m;
    ASSERT_OK(fsdp_module_create("Block", &m));
    ASSERT_ERROR(fsdp_apply_activation_checkpointing(m, is_any, NULL, &(ac_options){.every = -2}),
                 FSDP_ERR_INVALID, "every -2 modules");
    fsdp_module_destroy(m);
}

/* Backward of two losses with different factors on one tape. */
static void backward_of_two(fsdp_test *t, model_case *c)
{
    fsdp_scope *s;
    fsdp_tensor *losses[2];
    const fsdp_scope_options options = {.batch = c->batch, .training = true, .seed = 7};
    fsdp_module_zero_grad(c->model);
    ASSERT_OK(fsdp_scope_open(c->device, c->tape, &options, &s));
    losses[0] = fsdp_model_loss(s, c->model, 1.0f);
    losses[1] = fsdp_model_loss(s, c->model, 0.25f);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_backward(c->tape, losses, NULL, 2));
    fsdp_scope_close(s);
}

/* A head that runs again in backward uses the factor of its own loss, not of the latest one. */
TEST(losses_of_one_tape_keep_their_factors)
{
    static const char *const names[] = {"llama3", "t5_v1_1", "gpt2", "bert"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fsdp_model_config config;
        model_case plain, again;
        ac_read_config(t, names[i], &config);
        CHECK_HERE();
        model_case_create(t, &config, &plain);
        model_case_create(t, &config, &again);
        CHECK_HERE();
        ASSERT_OK(ac_checkpoint_blocks(again.model, &(ac_options){0}, ALL_MODULES));
        ac_make_rows(t, &config, false, &plain.batch);
        ac_make_rows(t, &config, false, &again.batch);
        CHECK_HERE();
        backward_of_two(t, &plain);
        backward_of_two(t, &again);
        CHECK_HERE();
        ac_compare(t, &plain, &again);
        CHECK_HERE();
        model_case_close(&plain);
        model_case_close(&again);
    }
}
