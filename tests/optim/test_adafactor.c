/* Adafactor against the formulas in double, for whole tensors of any number of dimensions;
 * placements of its state; its own rate; options. test_optimizer.c compares with PyTorch's numbers
 * and tests for equal bits at several world sizes. */
#include <fsdp/dtensor.h>

#include "src/base/alloc_testing.h"
#include "src/comm/comm.h"
#include "tests/optim/shards.h"
#include "tests/test.h"

enum {
    N_PARAMS = 5,
    STEPS = 4,
    MAX_NUMEL = 2 * 3 * 2 * 5
};

typedef struct shape {
    int ndim;
    int64_t dims[4];
} shape;

/* Fewer rows than ranks, more than two dimensions, rows of one element. */
static const shape shapes[N_PARAMS] = {
    {1, {17}}, {2, {7, 5}}, {3, {5, 3, 4}}, {4, {2, 3, 2, 5}}, {2, {3, 1}}};

/* --- the formulas --- */

typedef struct naive {
    int64_t numel, matrices, rows, cols;
    double p[MAX_NUMEL], exp_avg[MAX_NUMEL], row[MAX_NUMEL], col[MAX_NUMEL], rms;
} naive;

static void naive_open(naive *x, const shape *s, const float *start)
{
    *x = (naive){.matrices = 1, .rows = 1, .cols = s->dims[s->ndim - 1]};
    for (int d = 0; d < s->ndim - 2; d++)
        x->matrices *= s->dims[d];
    if (s->ndim > 1)
        x->rows = s->dims[s->ndim - 2];
    x->numel = x->matrices * x->rows * x->cols;
    for (int64_t i = 0; i < x->numel; i++)
        x->p[i] = (double)start[i];
}

static double root_mean_square(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum / (double)n);
}

static double mean(const double *x, int64_t n, int64_t stride)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i * stride];
    return sum / (double)n;
}

/* On entry s is g^2 + eps; on return it is the factor with u = s g. */
static void naive_matrix(naive *x, int64_t m, double *s, double beta2)
{
    double *row = x->row + m * x->rows, *col = x->col + m * x->cols;
    for (int64_t i = 0; i < x->rows; i++)
        row[i] = beta2 * row[i] + (1.0 - beta2) * mean(s + i * x->cols, x->cols, 1);
    for (int64_t j = 0; j < x->cols; j++)
        col[j] = beta2 * col[j] + (1.0 - beta2) * mean(s + j, x->rows, x->cols);
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++)
            s[i * x->cols + j] = 1.0 / sqrt(row[i] / mean(row, x->rows, 1) * col[j]);
}

static void naive_step(naive *x, int ndim, const fsdp_adafactor_options *o, const float *grad,
                       double step)
{
    double u[MAX_NUMEL], beta2 = 1.0 - pow(step, o->decay_rate), rate = o->lr;
    x->rms = root_mean_square(x->p, x->numel);
    if (o->relative_step)
        rate = fmin(o->warmup_init ? 1e-6 * step : 1e-2, 1.0 / sqrt(step));
    if (o->scale_parameter)
        rate *= fmax(o->eps2, x->rms);
    for (int64_t i = 0; i < x->numel; i++)
        u[i] = (double)grad[i] * (double)grad[i] + o->eps1;
    if (ndim > 1)
        for (int64_t m = 0; m < x->matrices; m++)
            naive_matrix(x, m, u + m * x->rows * x->cols, beta2);
    for (int64_t i = 0; i < x->numel && ndim == 1; i++) {
        x->row[i] = beta2 * x->row[i] + (1.0 - beta2) * u[i];
        u[i] = 1.0 / sqrt(x->row[i]);
    }
    for (int64_t i = 0; i < x->numel; i++)
        u[i] *= (double)grad[i];
    double clip = fmax(1.0, root_mean_square(u, x->numel) / o->clip_threshold);
    for (int64_t i = 0; i < x->numel; i++) {
        u[i] *= rate / clip;
        if (o->beta1 >= 0.0)
            u[i] = x->exp_avg[i] = o->beta1 * x->exp_avg[i] + (1.0 - o->beta1) * u[i];
        x->p[i] -= o->weight_decay * rate * x->p[i] + u[i];
    }
}

/* --- comparison --- */

/* Gradients grow with the step, so that updates are clipped. */
static void make_grad(float *grad, int param, int step)
{
    for (int k = 0; k < MAX_NUMEL; k++)
        grad[k] = (float)(1 + 9 * step) * shards_random((uint64_t)(100 * step + param), k);
}

static void compare(fsdp_test *t, const char *what, int param, fsdp_tensor *local,
                    const double *want, int64_t n)
{
    float got[MAX_NUMEL];
    double largest = 0.0;
    ASSERT_OK(shards_full(local, got));
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= 2e-6 * largest))
            FAIL("%s of p%d: element %lld is %.9g, not %.9g", what, param, (long long)i,
                 (double)got[i], want[i]);
}

static void compare_parameter(fsdp_test *t, const fsdp_optimizer *o, int param, const naive *x)
{
    const fsdp_parameter *p = fsdp_optimizer_parameters(o)->items[param].parameter;
    bool factored = shapes[param].ndim > 1;
    double rms;
    compare(t, "parameter", param, fsdp_parameter_local(p), x->p, x->numel);
    CHECK_HERE();
    compare(t, "row", param, fsdp_optimizer_state(o, p, factored ? "exp_avg_sq_row" : "exp_avg_sq"),
            x->row, factored ? x->matrices * x->rows : x->numel);
    CHECK_HERE();
    if (factored)
        compare(t, "column", param, fsdp_optimizer_state(o, p, "exp_avg_sq_col"), x->col,
                x->matrices * x->cols);
    CHECK_HERE();
    if (fsdp_optimizer_state(o, p, "exp_avg"))
        compare(t, "exp_avg", param, fsdp_optimizer_state(o, p, "exp_avg"), x->exp_avg, x->numel);
    ASSERT_OK(fsdp_tensor_item(fsdp_optimizer_state(o, p, "RMS"), &rms));
    ASSERT_NEAR(rms, x->rms, 2e-6 * x->rms);
}

static void create_parameters(fsdp_test *t, fsdp_module **module)
{
    fsdp_parameter *p;
    ASSERT_OK(fsdp_module_create("Weights", module));
    for (int i = 0; i < N_PARAMS; i++) {
        const char name[] = {'p', (char)('0' + i), 0};
        ASSERT_OK(fsdp_module_add_parameter(*module, name, shapes[i].ndim, shapes[i].dims,
                                            (fsdp_init){0}, &p));
    }
}

static void check_options(fsdp_test *t, const fsdp_adafactor_options *options)
{
    static _Thread_local naive want[N_PARAMS];
    fsdp_device *device;
    fsdp_module *module = NULL;
    fsdp_optimizer *o;
    float values[MAX_NUMEL];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    create_parameters(t, &module);
    CHECK_HERE();
    ASSERT_OK(fsdp_fully_shard(module, t->group, device, NULL));
    ASSERT_OK(fsdp_adafactor_create(module, options, &o));
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(o);
    for (int i = 0; i < N_PARAMS; i++) {
        for (int k = 0; k < MAX_NUMEL; k++)
            values[k] = shards_random((uint64_t)i, k);
        naive_open(&want[i], &shapes[i], values);
        ASSERT_OK(shards_set_values(list->items[i].parameter, values));
    }
    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < N_PARAMS; i++) {
            make_grad(values, i, step);
            naive_step(&want[i], shapes[i].ndim, options, values, step);
            ASSERT_OK(shards_set_grad(list->items[i].parameter, values));
        }
        ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
        for (int i = 0; i < N_PARAMS; i++) {
            compare_parameter(t, o, i, &want[i]);
            CHECK_HERE();
        }
    }
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(module);
    fsdp_device_destroy(device);
}

static void check_formulas(fsdp_test *t)
{
    fsdp_adafactor_options o = fsdp_adafactor_defaults();
    check_options(t, &o);
    CHECK_HERE();
    o.relative_step = false;
    o.lr = 0.01;
    o.beta1 = 0.9;
    o.weight_decay = 0.1;
    o.clip_threshold = 0.5;
    check_options(t, &o);
    CHECK_HERE();
    o.scale_parameter = false;
    o.beta1 = 0.0;
    o.decay_rate = -0.5;
    check_options(t, &o);
}

TEST_RANKS(steps_equal_the_formulas, 1)
{
    check_formulas(t);
}
TEST_RANKS(steps_equal_the_formulas_on_2_ranks, 2)
{
    check_formulas(t);
}
TEST_RANKS(steps_equal_the_formulas_on_3_ranks, 3)
{
    check_formulas(t);
}
TEST_RANKS(steps_equal_the_formulas_on_4_ranks, 4)
{
    check_formulas(t);
}

/* --- placement of state --- */

static void check_placement(fsdp_test *t, const fsdp_tensor *state, fsdp_placement_kind kind,
                            int ndim, const int64_t *whole)
{
    ASSERT(fsdp_is_dtensor(state));
    ASSERT_INT(fsdp_dtensor_placement(state).kind, kind);
    ASSERT_INT(fsdp_tensor_ndim(state), ndim);
    ASSERT(memcmp(fsdp_dtensor_shape(state), whole, (size_t)ndim * sizeof *whole) == 0);
}

/* Also, a step gathers twice for any number of parameters. */
TEST_RANKS(state_is_sharded_as_its_parameter_if_they_share_rows, 3)
{
    const uint64_t *gathers = &fsdp_group_counters(t->group)->calls[FSDP_KIND_ALL_GATHER];
    fsdp_device *device;
    fsdp_module *module = NULL;
    fsdp_optimizer *o;
    float values[MAX_NUMEL];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    create_parameters(t, &module);
    CHECK_HERE();
    ASSERT_OK(fsdp_adafactor_create(module, NULL, &o)); /* before fully_shard, which it must
                                                         * follow */
    ASSERT_OK(fsdp_fully_shard(module, t->group, device, NULL));
    const fsdp_named_parameter *p = fsdp_optimizer_parameters(o)->items;
    for (int i = 0; i < N_PARAMS; i++) {
        make_grad(values, i, 1);
        ASSERT_OK(shards_set_values(p[i].parameter, values));
        ASSERT_OK(shards_set_grad(p[i].parameter, values));
    }
    uint64_t before = *gathers;
    ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
    ASSERT_INT(*gathers - before, 2);
    check_placement(t, fsdp_optimizer_state(o, p[0].parameter, "exp_avg_sq"), FSDP_SHARD, 1,
                    (int64_t[]){17});
    check_placement(t, fsdp_optimizer_state(o, p[1].parameter, "exp_avg_sq_row"), FSDP_SHARD, 1,
                    (int64_t[]){7});
    check_placement(t, fsdp_optimizer_state(o, p[1].parameter, "exp_avg_sq_col"), FSDP_REPLICATE, 1,
                    (int64_t[]){5});
    check_placement(t, fsdp_optimizer_state(o, p[3].parameter, "exp_avg_sq_row"), FSDP_SHARD, 3,
                    (int64_t[]){2, 3, 2});
    check_placement(t, fsdp_optimizer_state(o, p[3].parameter, "exp_avg_sq_col"), FSDP_SHARD, 3,
                    (int64_t[]){2, 3, 5});
    CHECK_HERE();
    ASSERT(!fsdp_optimizer_state(o, p[0].parameter, "exp_avg_sq_row"));
    ASSERT(!fsdp_optimizer_state(o, p[1].parameter, "exp_avg_sq"));
    ASSERT(!fsdp_optimizer_state(o, p[1].parameter, "exp_avg"));
    ASSERT_INT(fsdp_tensor_ndim(fsdp_optimizer_state(o, p[1].parameter, "RMS")), 0);
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(module);
    fsdp_device_destroy(device);
}

/* --- one rank --- */

typedef struct small {
    fsdp_device *device;
    fsdp_module *module;
    fsdp_parameter *p; /* [2, 2], all values are 2 */
} small;

static void open_small(fsdp_test *t, small *x)
{
    static const float twos[4] = {2, 2, 2, 2};
    ASSERT_OK(fsdp_device_create(NULL, &x->device));
    ASSERT_OK(shards_create((int64_t[]){2}, 1, 2, &x->module));
    ASSERT_OK(fsdp_module_to_empty(x->module, x->device));
    x->p = fsdp_module_parameter(x->module, "p0");
    ASSERT_OK(shards_set_values(x->p, twos));
    ASSERT_OK(shards_set_grad(x->p, twos));
}

static void close_small(small *x, fsdp_optimizer *o)
{
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(x->module);
    fsdp_device_destroy(x->device);
}

/* The rate is 1e-6 t with warmup_init, times the root mean square of the parameter, 2. */
TEST(a_relative_step_reports_its_own_rate)
{
    small x;
    fsdp_optimizer *o;
    fsdp_adafactor_options options = fsdp_adafactor_defaults();
    options.warmup_init = true;
    open_small(t, &x);
    CHECK_HERE();
    ASSERT_OK(fsdp_adafactor_create(x.module, &options, &o));
    ASSERT(strcmp(fsdp_optimizer_name(o), "adafactor") == 0);
    fsdp_optimizer_set_lr(o, 7.0);
    ASSERT_F32(fsdp_optimizer_lr(o, 0), 0.0);
    ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
    ASSERT_NEAR(fsdp_optimizer_lr(o, 0), 2e-6, 1e-12);
    ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
    ASSERT_NEAR(fsdp_optimizer_lr(o, 0), 4e-6, 1e-10);
    close_small(&x, o);
}

TEST(a_rate_of_the_caller_is_set_and_reported)
{
    small x;
    fsdp_optimizer *o;
    float values[4];
    fsdp_adafactor_options options = fsdp_adafactor_defaults();
    options.relative_step = options.scale_parameter = false;
    open_small(t, &x);
    CHECK_HERE();
    ASSERT_OK(fsdp_adafactor_create(x.module, &options, &o));
    fsdp_optimizer_set_lr(o, 0.25);
    ASSERT_F32(fsdp_optimizer_lr(o, 0), 0.25);
    ASSERT_OK(fsdp_optimizer_step(o, 1.0f)); /* u is 1 in all elements */
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_local(x.p), values));
    ASSERT_NEAR(values[3], 1.75, 1e-6);
    close_small(&x, o);
}

TEST_RANKS(sharding_after_a_step_is_an_error_before_anything_changes, 2)
{
    small x;
    fsdp_optimizer *o;
    float values[4];
    open_small(t, &x);
    CHECK_HERE();
    ASSERT_OK(fsdp_adafactor_create(x.module, NULL, &o));
    ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
    fsdp_optimizer_zero_grad(o);
    ASSERT_OK(fsdp_fully_shard(x.module, t->group, x.device, NULL));
    ASSERT_OK(shards_set_values(x.p, (float[]){2, 2, 2, 2}));
    ASSERT_OK(shards_set_grad(x.p, (float[]){2, 2, 2, 2}));
    ASSERT_ERROR(fsdp_optimizer_step(o, 1.0f), FSDP_ERR_STATE,
                 "p0: the optimizer's state is [2], this rank's rows are now [1, 2]");
    ASSERT_OK(shards_full(fsdp_parameter_local(x.p), values));
    ASSERT_F32(values[3], 2.0);
    ASSERT_INT(fsdp_optimizer_steps(o, x.p), 1);
    close_small(&x, o);
}

/* Each allocation of a first step fails once. The device's allocator recovers from some of the
 * failures. */
TEST(a_step_that_runs_out_of_memory_changes_nothing)
{
    int failed = 0;
    for (long n = 1; n <= 40; n++) {
        small x;
        fsdp_optimizer *o;
        float values[4];
        open_small(t, &x);
        CHECK_HERE();
        ASSERT_OK(fsdp_adafactor_create(x.module, NULL, &o));
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_optimizer_step(o, 1.0f);
        fsdp_alloc_fail_at(0);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_local(x.p), values));
        ASSERT(status == FSDP_OK ? values[0] < 2.0f : values[0] == 2.0f);
        ASSERT_INT(fsdp_optimizer_steps(o, x.p), status == FSDP_OK);
        failed += status != FSDP_OK;
        close_small(&x, o);
    }
    ASSERT(failed > 10);
}

/* One step on a device with memory of its own, in which allocation n fails. */
static fsdp_status step_without_memory(fsdp_test *t, long n, double *largest)
{
    fsdp_device *device;
    fsdp_module *module = NULL;
    fsdp_optimizer *o;
    float values[MAX_NUMEL];
    fsdp_status status = FSDP_OK;
    *largest = 0.0;
    if (fsdp_device_create(&(fsdp_device_options){.name = "fake"}, &device) != FSDP_OK)
        return FSDP_ERR_STATE;
    create_parameters(t, &module);
    status = fsdp_module_to_empty(module, device);
    if (status == FSDP_OK)
        status = fsdp_adafactor_create(module, NULL, &o);
    if (status != FSDP_OK)
        return FSDP_ERR_STATE;
    const fsdp_named_parameter *p = fsdp_optimizer_parameters(o)->items;
    for (int i = 0; i < N_PARAMS && status == FSDP_OK; i++) {
        make_grad(values, i, 1);
        status = shards_set_values(p[i].parameter, values);
        if (status == FSDP_OK)
            status = shards_set_grad(p[i].parameter, values);
    }
    if (status == FSDP_OK) {
        fsdp_alloc_fail_at(n);
        status = fsdp_optimizer_step(o, 1.0f);
        fsdp_alloc_fail_at(0);
    }
    const fsdp_tensor *rows = fsdp_optimizer_state(o, p[2].parameter, "exp_avg_sq_row");
    if (rows && fsdp_tensor_to_floats(rows, values) != FSDP_OK)
        status = FSDP_ERR_STATE;
    for (int64_t i = 0; rows && i < fsdp_tensor_numel(rows); i++)
        *largest = fmax(*largest, fabs((double)values[i]));
    fsdp_optimizer_destroy(o);
    fsdp_module_destroy(module);
    fsdp_device_destroy(device);
    return status;
}

/* A tensor of several matrices needs numbers of the device on the host. */
TEST(a_step_on_a_device_that_runs_out_of_memory_changes_no_state)
{
    fsdp_status status = FSDP_ERR_NOMEM;
    double largest;
    int failed = 0;
    for (long n = 1; n <= 100; n++) {
        status = step_without_memory(t, n, &largest);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
        ASSERT((status == FSDP_OK) == (largest > 0.0));
        failed += status != FSDP_OK;
    }
    ASSERT_INT(status, FSDP_OK); /* a step has fewer allocations */
    ASSERT(failed > 10);
}

/* Counts rows, columns and RMS of each parameter, and no memory that a step uses temporarily. */
TEST(meta_counts_the_state)
{
    small x;
    fsdp_optimizer *o;
    fsdp_memory_stats memory;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "meta"}, &x.device));
    ASSERT_OK(shards_create((int64_t[]){7, 5}, 2, 3, &x.module));
    ASSERT_OK(fsdp_module_to_empty(x.module, x.device));
    ASSERT_OK(fsdp_adafactor_create(x.module, NULL, &o));
    for (int i = 0; i < 2; i++)
        ASSERT_OK(
            shards_set_grad(fsdp_optimizer_parameters(o)->items[i].parameter, (float[21]){0}));
    ASSERT_OK(fsdp_optimizer_step(o, 1.0f));
    fsdp_device_memory(x.device, &memory);
    ASSERT_INT(memory.tag_allocated[FSDP_TAG_OPTIM], 4 * (7 + 3 + 1 + 5 + 3 + 1));
    ASSERT_INT(memory.tag_allocated[FSDP_TAG_COMM], 0);
    close_small(&x, o);
}

static void check_refused(fsdp_test *t, const fsdp_adafactor_options *options, const char *why)
{
    fsdp_optimizer *o;
    ASSERT_ERROR(fsdp_adafactor_create(NULL, options, &o), FSDP_ERR_INVALID, why);
}

TEST(options_that_contradict_each_other_or_are_out_of_bounds_are_named)
{
    fsdp_adafactor_options o = fsdp_adafactor_defaults();
    o.lr = 0.1;
    check_refused(t, &o, "lr is 0.1, but relative_step sets it");
    o.relative_step = false;
    o.warmup_init = true;
    check_refused(t, &o, "warmup_init needs relative_step");
    o = fsdp_adafactor_defaults();
    o.beta1 = 1.0;
    check_refused(t, &o, "beta1 is 1, not below 1");
    o = fsdp_adafactor_defaults();
    o.clip_threshold = 0.0;
    check_refused(t, &o, "clip_threshold is 0");
    o = fsdp_adafactor_defaults();
    o.decay_rate = 0.8;
    check_refused(t, &o, "decay_rate is 0.8");
    o = fsdp_adafactor_defaults();
    o.eps1 = -1.0;
    check_refused(t, &o, "eps1 is -1");
}
