/* Sharded training equals training on one rank, bit for bit where the design promises it, for
 * widths that divide evenly, unevenly or not at all, with random delays before every phase. */
#include <stdio.h>
#include <stdlib.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/toy.h"
#include "tests/test.h"

enum {
    ROWS = 5,
    STEPS = 10,
    LEAVES = 4
};

typedef struct curve {
    double loss[STEPS][LEAVES];
    float *params; /* all parameters in list order, after the last step */
    size_t n_params;
} curve;

/* The tokens depend on (step, leaf) only, so any rank can compute any leaf. */
static void draw_tokens(const toy_shape *shape, int step, int leaf, int32_t *ids, int32_t *labels)
{
    for (int i = 0; i < ROWS; i++) {
        fsdp_philox r = fsdp_philox4x32(7, (uint64_t)(step * 100 + leaf), (uint64_t)i);
        ids[i] = (int32_t)(r.v[0] % (uint32_t)shape->vocab);
        labels[i] = i == leaf ? -100 : (int32_t)((ids[i] * 3 + 1) % shape->vocab);
    }
}

static fsdp_status forward_backward(fsdp_device *device, fsdp_tape *tape, fsdp_module *model,
                                    const toy_batch *batch, const fsdp_scope_options *o,
                                    double *loss)
{
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(device, tape, o, &s));
    fsdp_tensor *out = toy_loss(s, model, batch);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_tensor_item(out, loss);
    if (status == FSDP_OK)
        status = fsdp_backward(tape, &out, NULL, 1);
    fsdp_scope_close(s);
    return status;
}

/* Plain SGD on the shards, between begin_write and end_write as in an optimizer. */
static fsdp_status sgd(fsdp_module *model, float lr)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(model, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        fsdp_tensor *local = fsdp_parameter_local(list.items[i].parameter);
        fsdp_tensor *grad = fsdp_parameter_grad(list.items[i].parameter);
        if (!grad)
            continue;
        status = fsdp_tensor_begin_write(local);
        if (status != FSDP_OK)
            break;
        float *p = fsdp_tensor_data(local);
        const float *g = fsdp_tensor_data(grad);
        for (int64_t k = 0; k < fsdp_tensor_numel(local); k++)
            p[k] -= lr * g[k];
        fsdp_tensor_end_write(local);
    }
    fsdp_parameter_list_free(&list);
    return status;
}

static fsdp_status collect_params(fsdp_module *model, curve *c)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(model, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        fsdp_tensor *full;
        status = fsdp_full_tensor(fsdp_parameter_local(list.items[i].parameter), &full);
        if (status != FSDP_OK)
            break;
        size_t n = (size_t)fsdp_tensor_numel(full);
        c->params = fsdp_realloc(c->params, c->n_params + n, sizeof(float));
        status = fsdp_tensor_to_floats(full, c->params + c->n_params);
        c->n_params += n;
        fsdp_tensor_release(full);
    }
    fsdp_parameter_list_free(&list);
    return status;
}

typedef struct job {
    toy_shape shape;
    fsdp_fully_shard_options options;
    bool delays, no_fsdp;
    curve *result; /* rank 0 fills it; each rank fills the losses of its own leaves */
} job;

static fsdp_status steps(const job *j, fsdp_group *group, fsdp_device *device, fsdp_tape *tape,
                         fsdp_module *model)
{
    int rank = fsdp_group_rank(group), world_size = fsdp_group_world_size(group);
    int micro_steps = LEAVES / world_size;
    if (!j->no_fsdp)
        FSDP_TRY(fsdp_set_gradient_divide_factor(model, LEAVES));
    for (int step = 0; step < STEPS; step++) {
        fsdp_module_zero_grad(model);
        for (int a = 0; a < micro_steps; a++) {
            int leaf = a * world_size + rank;
            int32_t ids[ROWS], labels[ROWS];
            draw_tokens(&j->shape, step, leaf, ids, labels);
            toy_batch batch = {ids, labels, ROWS, 1.0f / (ROWS - 1)};
            fsdp_scope_options o = {.step = (uint32_t)step,
                                    .micro_batch = (uint32_t)leaf,
                                    .micro_step = a,
                                    .n_micro_steps = micro_steps};
            FSDP_TRY(
                forward_backward(device, tape, model, &batch, &o, &j->result->loss[step][leaf]));
        }
        FSDP_TRY(sgd(model, j->no_fsdp ? 0.5f / LEAVES : 0.5f));
    }
    return FSDP_OK;
}

static fsdp_status run_job(fsdp_group *group, void *arg)
{
    const job *j = arg;
    fsdp_device *device;
    fsdp_tape *tape = NULL;
    fsdp_module *model = NULL;
    curve mine = {0};
    if (j->delays)
        fsdp_group_set_delay(group, 11, 300);
    FSDP_TRY(fsdp_device_create(NULL, &device));
    fsdp_status status = fsdp_tape_create(&tape);
    if (status == FSDP_OK)
        status = toy_create(&j->shape, &model);
    if (status == FSDP_OK)
        status = j->no_fsdp ? fsdp_module_to_empty(model, device)
                            : toy_shard(model, group, device, &j->options);
    if (status == FSDP_OK)
        status = fsdp_module_init(model, 3);
    if (status == FSDP_OK)
        status = steps(j, group, device, tape, model);
    if (status == FSDP_OK)
        status = collect_params(model, &mine);
    if (status == FSDP_OK && fsdp_group_rank(group) == 0) {
        j->result->params = mine.params;
        j->result->n_params = mine.n_params;
    } else {
        fsdp_free(mine.params);
    }
    fsdp_tape_destroy(tape);
    fsdp_module_destroy(model);
    fsdp_memory_stats stats;
    fsdp_device_memory(device, &stats);
    if (status == FSDP_OK && stats.allocated != 0)
        status = fsdp_error(FSDP_ERR_STATE, "%lld bytes are still allocated",
                            (long long)stats.allocated);
    fsdp_device_destroy(device);
    return status;
}

static void run(fsdp_test *t, int world_size, const toy_shape *shape,
                const fsdp_fully_shard_options *options, bool delays, curve *c)
{
    job j = {.shape = *shape, .delays = delays, .no_fsdp = !options, .result = c};
    if (options)
        j.options = *options;
    ASSERT_OK(fsdp_run_ranks(world_size, run_job, &j, NULL));
}

static void assert_same(fsdp_test *t, const curve *a, const curve *b, double tolerance)
{
    ASSERT_INT(a->n_params, b->n_params);
    for (int s = 0; s < STEPS; s++)
        for (int l = 0; l < LEAVES; l++)
            ASSERT_NEAR(a->loss[s][l], b->loss[s][l], tolerance);
    for (size_t i = 0; i < a->n_params; i++)
        ASSERT_NEAR((double)a->params[i], (double)b->params[i], tolerance);
}

static const int64_t widths[] = {1, 2, 7, 15, 16, 17};

static double sum_of(const double *losses)
{
    return losses[0] + losses[1] + losses[2] + losses[3];
}

/* Compare 1 rank with 4 micro-steps, 2 with 2 and 4 with 1. The model must learn its toy task. */
static void compare_worlds(fsdp_test *t, const fsdp_fully_shard_options *options)
{
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        toy_shape shape = {.vocab = widths[i] + 2, .width = widths[i], .hidden = 17, .blocks = 3};
        curve one = {0};
        run(t, 1, &shape, options, false, &one);
        CHECK_HERE();
        for (int world_size = 2; world_size <= 4; world_size += 2) {
            curve many = {0};
            run(t, world_size, &shape, options, true, &many);
            CHECK_HERE();
            assert_same(t, &one, &many, 0.0);
            fsdp_free(many.params);
            CHECK_HERE();
        }
        ASSERT(shape.width < 7 || sum_of(one.loss[STEPS - 1]) < 0.8 * sum_of(one.loss[0]));
        fsdp_free(one.params);
    }
}

TEST(ranks_times_micro_steps_agree_in_every_bit_in_fp32)
{
    compare_worlds(t, &(fsdp_fully_shard_options){0});
}

TEST(ranks_times_micro_steps_agree_in_every_bit_in_bf16)
{
    fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}};
    compare_worlds(t, &o);
}

TEST(keeping_parameters_after_forward_changes_no_bit)
{
    fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16},
                                  .reshard_after_forward = FSDP_RESHARD_FALSE};
    compare_worlds(t, &o);
}

TEST(no_shard_changes_no_bit)
{
    toy_shape shape = {.vocab = 13, .width = 15, .hidden = 7, .blocks = 2};
    fsdp_fully_shard_options whole = {.no_shard = true}, sharded = {0};
    curve a = {0}, b = {0};
    run(t, 4, &shape, &whole, true, &a);
    CHECK_HERE();
    run(t, 4, &shape, &sharded, true, &b);
    CHECK_HERE();
    assert_same(t, &a, &b, 0.0);
    fsdp_free(a.params);
    fsdp_free(b.params);
}

/* Four ranks agree up to rounding with a plain module, whose gradients accumulate in one buffer. */
TEST(sharded_training_follows_a_module_without_sharding)
{
    toy_shape shape = {.vocab = 13, .width = 15, .hidden = 7, .blocks = 2};
    curve plain = {0}, sharded = {0};
    run(t, 1, &shape, NULL, false, &plain);
    CHECK_HERE();
    run(t, 4, &shape, &(fsdp_fully_shard_options){0}, true, &sharded);
    CHECK_HERE();
    assert_same(t, &plain, &sharded, 2e-5);
    fsdp_free(plain.params);
    fsdp_free(sharded.params);
}
