/* A step whose factor the host does not wait for equals a step with the factor, and a step that is
 * refused changes nothing. On the CPU, the host has the factor before the step. */
#include "src/optim/clip_grad.h"
#include "tests/optim/shards.h"
#include "tests/test.h"

enum {
    N = 5,
    WIDTH = 3,
    MOST = 40 * WIDTH,
    STEPS = 3
};

static const int64_t rows[N] = {7, 1, 40, 2, 33};

typedef enum optimizer_kind {
    ADAMW,
    SGD,
    ADAFACTOR,
    N_KINDS
} optimizer_kind;

typedef struct model {
    fsdp_device *device;
    fsdp_module *module;
    fsdp_parameter_list list;
    fsdp_optimizer *optimizer;
} model;

static fsdp_status create_optimizer(optimizer_kind kind, fsdp_module *module,
                                    fsdp_optimizer **optimizer)
{
    fsdp_sgd_options sgd = fsdp_sgd_defaults();
    sgd.momentum = 0.9;
    if (kind == SGD)
        return fsdp_sgd_create(module, &sgd, optimizer);
    return kind == ADAMW ? fsdp_adamw_create(module, NULL, optimizer)
                         : fsdp_adafactor_create(module, NULL, optimizer);
}

static void open_model(fsdp_test *t, optimizer_kind kind, model *m)
{
    ASSERT_OK(fsdp_device_create(NULL, &m->device));
    ASSERT_OK(shards_create(rows, N, WIDTH, &m->module));
    ASSERT_OK(create_optimizer(kind, m->module, &m->optimizer));
    ASSERT_OK(fsdp_fully_shard(m->module, t->group, m->device, NULL));
    ASSERT_OK(fsdp_module_parameters(m->module, false, &m->list));
    for (size_t i = 0; i < N; i++) {
        float values[MOST];
        for (int k = 0; k < MOST; k++)
            values[k] = shards_random(100 + i, k);
        ASSERT_OK(shards_set_values(m->list.items[i].parameter, values));
    }
}

static void close_model(model *m)
{
    fsdp_optimizer_destroy(m->optimizer);
    fsdp_parameter_list_free(&m->list);
    fsdp_module_destroy(m->module);
    fsdp_device_destroy(m->device);
}

/* The last element of parameter 2 gets `odd`, unless that is 0. */
static void set_gradients(fsdp_test *t, const model *m, int step, float odd)
{
    for (size_t i = 0; i < N; i++) {
        float values[MOST];
        for (int k = 0; k < MOST; k++)
            values[k] = shards_random((uint64_t)step * N + i, k);
        if (i == 2 && odd != 0.0f)
            values[MOST - 1] = odd;
        ASSERT_OK(shards_set_grad(m->list.items[i].parameter, values));
    }
}

static void get_values(fsdp_test *t, const model *m, float values[N][MOST])
{
    memset(values, 0, N * sizeof *values);
    for (size_t i = 0; i < N; i++)
        ASSERT_OK(shards_full(fsdp_parameter_local(m->list.items[i].parameter), values[i]));
}

static void check_equal(fsdp_test *t, optimizer_kind kind)
{
    model want, got;
    float wanted[N][MOST], values[N][MOST];
    open_model(t, kind, &want);
    CHECK_HERE();
    open_model(t, kind, &got);
    CHECK_HERE();
    for (int step = 0; step < STEPS; step++) {
        const double bound = step == 1 ? 1e6 : 0.5; /* step 1 does not clip */
        double wanted_norm, norm;
        float wanted_scale, scale;
        fsdp_clip *clip;
        set_gradients(t, &want, step, 0.0f);
        set_gradients(t, &got, step, 0.0f);
        CHECK_HERE();
        ASSERT_OK(fsdp_clip_grad_norm(&want.list, bound, NULL, &wanted_norm, &wanted_scale));
        ASSERT_OK(fsdp_optimizer_step(want.optimizer, wanted_scale));
        ASSERT_OK(fsdp_clip_begin(&got.list, bound, NULL, &clip));
        ASSERT_OK(fsdp_clip_compute(clip, NULL));
        ASSERT_OK(fsdp_optimizer_step_clipped(got.optimizer, clip));
        ASSERT_OK(fsdp_clip_end(clip, &norm, &scale));
        fsdp_clip_destroy(clip);
        ASSERT_F32(norm, wanted_norm);
        ASSERT_F32(scale, wanted_scale);
        get_values(t, &want, wanted);
        get_values(t, &got, values);
        CHECK_HERE();
        ASSERT(memcmp(wanted, values, sizeof values) == 0);
    }
    for (size_t i = 0; i < N; i++)
        ASSERT_INT(fsdp_optimizer_steps(got.optimizer, got.list.items[i].parameter), STEPS);
    close_model(&got);
    close_model(&want);
}

static void check_all(fsdp_test *t)
{
    for (int kind = 0; kind < N_KINDS; kind++) {
        check_equal(t, (enum optimizer_kind)kind);
        CHECK_HERE();
    }
}

TEST_RANKS(a_clipped_step_is_a_step_with_the_factor, 1)
{
    check_all(t);
}
TEST_RANKS(a_clipped_step_is_a_step_with_the_factor_on_3_ranks, 3)
{
    check_all(t);
}

/* After a first step, so that a second one is refused: its gradients or losses are not finite. */
static void check_refused(fsdp_test *t, optimizer_kind kind, float odd_gradient, float odd_loss)
{
    const fsdp_clip_grad_options strict = {.error_if_nonfinite = true};
    model m;
    float before[N][MOST], after[N][MOST];
    open_model(t, kind, &m);
    CHECK_HERE();
    for (int step = 0; step < 2; step++) {
        fsdp_tensor *losses;
        fsdp_clip *clip;
        const float values[] = {1.0f, step && odd_loss != 0.0f ? odd_loss : 2.0f};
        set_gradients(t, &m, step, step ? odd_gradient : 0.0f);
        get_values(t, &m, before);
        CHECK_HERE();
        ASSERT_OK(fsdp_tensor_from_data(m.device, FSDP_DTYPE_F32, 1, (int64_t[]){2}, values,
                                        FSDP_TAG_ACTIVATION, &losses));
        ASSERT_OK(fsdp_clip_begin(&m.list, 1.0, &strict, &clip));
        ASSERT_OK(fsdp_clip_compute(clip, losses));
        ASSERT_OK(fsdp_optimizer_step_clipped(m.optimizer, clip));
        if (step && odd_gradient != 0.0f)
            ASSERT_ERROR(fsdp_clip_end(clip, NULL, NULL), FSDP_ERR_NUMERIC, "that of p2 is");
        else
            ASSERT_OK(fsdp_clip_end(clip, NULL, NULL));
        fsdp_clip_destroy(clip);
        fsdp_tensor_release(losses);
        get_values(t, &m, after);
        CHECK_HERE();
        ASSERT_INT(memcmp(before, after, sizeof after) == 0, step);
        for (size_t i = 0; i < N; i++)
            ASSERT_INT(fsdp_optimizer_steps(m.optimizer, m.list.items[i].parameter), 1);
    }
    close_model(&m);
}

static void check_all_refused(fsdp_test *t)
{
    for (int kind = 0; kind < N_KINDS; kind++) {
        check_refused(t, (enum optimizer_kind)kind, NAN, 0.0f);
        CHECK_HERE();
        check_refused(t, (enum optimizer_kind)kind, INFINITY, 0.0f);
        CHECK_HERE();
        check_refused(t, (enum optimizer_kind)kind, 0.0f, NAN);
        CHECK_HERE();
        check_refused(t, (enum optimizer_kind)kind, 0.0f, INFINITY);
        CHECK_HERE();
    }
}

TEST_RANKS(a_step_that_is_refused_changes_nothing, 1)
{
    check_all_refused(t);
}
TEST_RANKS(a_step_that_is_refused_changes_nothing_on_2_ranks, 2)
{
    check_all_refused(t);
}

/* Without gradients there is nothing to refuse, and the factor is 1. */
TEST(a_step_without_gradients)
{
    model m;
    double norm;
    float scale, value = NAN;
    fsdp_tensor *losses;
    fsdp_clip *clip;
    open_model(t, ADAMW, &m);
    CHECK_HERE();
    ASSERT_OK(fsdp_tensor_from_data(m.device, FSDP_DTYPE_F32, 1, (int64_t[]){1}, &value,
                                    FSDP_TAG_ACTIVATION, &losses));
    ASSERT_OK(fsdp_clip_begin(&m.list, 1.0, NULL, &clip));
    ASSERT_OK(fsdp_clip_compute(clip, losses));
    ASSERT_OK(fsdp_optimizer_step_clipped(m.optimizer, clip));
    ASSERT_OK(fsdp_clip_wait(clip));
    ASSERT_OK(fsdp_clip_end(clip, &norm, &scale));
    ASSERT_F32(norm, 0.0);
    ASSERT_F32(scale, 1.0);
    ASSERT_INT(fsdp_optimizer_steps(m.optimizer, m.list.items[0].parameter), 0);
    fsdp_clip_destroy(clip);
    fsdp_tensor_release(losses);
    close_model(&m);
}
