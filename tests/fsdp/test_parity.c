/* The method of PyTorch's own suite: ten steps of a sharded model and of a replicated one, whose
 * gradients are averaged over the ranks by hand, with a rank that is late at various points. Widths
 * divide evenly over the ranks, or unevenly, or leave some rank without rows. */
#include <math.h>
#include <unistd.h>

#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "tests/elements.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    STEPS = 10,
    LATE_US = 1500
};

static const int64_t widths[] = {7, 15, 16, 17};

/* Where a rank is late. In each step, a different rank is late. */
typedef enum late {
    NEVER,
    IN_FORWARD,
    AFTER_FORWARD,
    BEFORE_COLLECTIVES, /* before each collective, by a random time */
    BEFORE_OPTIMIZER,
    LATE_COUNT
} late;

static void be_late(const fsdp_test *t, int step, bool here)
{
    if (here && t->rank == step % t->world_size)
        usleep(LATE_US);
}

static fsdp_status open_pair(fsdp_test *t, int64_t width, const fsdp_fully_shard_options *o,
                             trainee *sharded, trainee *replicated, fsdp_optimizer **optimizers)
{
    const fsdp_adamw_options adamw = {
        .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.0};
    FSDP_TRY(trainee_open(t->group, NULL, FSDP_DTYPE_F32, sharded));
    FSDP_TRY(tree_example(width, &sharded->model));
    FSDP_TRY(tree_example_shard(sharded->model, t->group, sharded->device, o));
    FSDP_TRY(trainee_open(t->group, NULL, FSDP_DTYPE_F32, replicated));
    FSDP_TRY(tree_example(width, &replicated->model));
    FSDP_TRY(fsdp_module_to_empty(replicated->model, replicated->device));
    FSDP_TRY(fsdp_module_init(replicated->model, 5));
    FSDP_TRY(fsdp_adamw_create(sharded->model, &adamw, &optimizers[0]));
    return fsdp_adamw_create(replicated->model, &adamw, &optimizers[1]);
}

static fsdp_status average_gradients(fsdp_group *group, const fsdp_parameter_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        fsdp_tensor *grad = fsdp_parameter_grad(list->items[i].parameter);
        if (!grad)
            continue;
        float *values = elements_of(grad);
        FSDP_TRY(fsdp_all_reduce(group, values, (size_t)fsdp_tensor_numel(grad), FSDP_DTYPE_F32,
                                 FSDP_REDUCE_AVG));
        elements_changed(grad, values);
    }
    return FSDP_OK;
}

/* Forward, backward and update of one model, with a delay at `when`. */
static fsdp_status run_step(fsdp_test *t, trainee *m, fsdp_optimizer *optimizer, int step,
                            late when)
{
    const tree_call call = {.step = step, .micro_batch = t->rank};
    fsdp_scope *s;
    fsdp_module_zero_grad(m->model);
    const bool in_forward = when == IN_FORWARD && t->rank == step % t->world_size;
    tree_of(trainee_unit(m, "second"))->pause_us = in_forward ? LATE_US : 0;
    FSDP_TRY(tree_scope(m, m->tape, &call, &s));
    fsdp_tensor *y = tree_forward(m, s, m->model, &call);
    fsdp_status status = fsdp_scope_status(s);
    be_late(t, step, when == AFTER_FORWARD);
    if (status == FSDP_OK)
        status = tree_backward(m, &y, &call, 1);
    fsdp_scope_close(s);
    FSDP_TRY(status);
    if (m->plain) {
        fsdp_parameter_list list;
        FSDP_TRY(fsdp_module_parameters(m->model, false, &list));
        status = average_gradients(t->group, &list);
        fsdp_parameter_list_free(&list);
        FSDP_TRY(status);
    }
    be_late(t, step, when == BEFORE_OPTIMIZER);
    return fsdp_optimizer_step(optimizer, 1.0f);
}

static void check_close(fsdp_test *t, const trainee *a, const trainee *b)
{
    float *x = NULL, *y = NULL;
    size_t n, m;
    ASSERT_OK(tree_params(a->model, &x, &n));
    ASSERT_OK(tree_params(b->model, &y, &m));
    ASSERT_INT(n, m);
    for (size_t i = 0; i < n; i++)
        ASSERT_NEAR(x[i], y[i], 2e-4);
    fsdp_free(x);
    fsdp_free(y);
}

static void check_parity(fsdp_test *t, int64_t width, const fsdp_fully_shard_options *o, late when)
{
    trainee sharded, replicated;
    fsdp_optimizer *optimizers[2];
    ASSERT_OK(open_pair(t, width, o, &sharded, &replicated, optimizers));
    replicated.plain = true;
    fsdp_group_set_delay(t->group, (uint64_t)width, when == BEFORE_COLLECTIVES ? 300 : 0);
    for (int step = 0; step < STEPS; step++) {
        ASSERT_OK(run_step(t, &sharded, optimizers[0], step, when));
        ASSERT_OK(run_step(t, &replicated, optimizers[1], step, NEVER));
        check_close(t, &sharded, &replicated);
        CHECK_HERE();
    }
    fsdp_group_set_delay(t->group, 0, 0);
    fsdp_optimizer_destroy(optimizers[0]);
    fsdp_optimizer_destroy(optimizers[1]);
    ASSERT_OK(trainee_close(&sharded));
    ASSERT_OK(trainee_close(&replicated));
}

/* Try every width with every point of delay, each with another way to reshard and to prefetch. */
static void check_all(fsdp_test *t)
{
    for (int w = 0; w < 4; w++)
        for (int when = NEVER; when < LATE_COUNT; when++) {
            const fsdp_fully_shard_options o = {
                .reshard_after_forward = (fsdp_reshard)((w + when) % 3),
                .backward_prefetch = (fsdp_backward_prefetch)(when % 3),
                .forward_prefetch = (fsdp_forward_prefetch)(w % 3)};
            check_parity(t, widths[w], &o, (late)when);
            CHECK_HERE();
        }
}

TEST_RANKS(one_rank_trains_as_a_replicated_model, 1)
{
    check_all(t);
}

TEST_RANKS(two_ranks_train_as_a_replicated_model, 2)
{
    check_all(t);
}

TEST_RANKS(three_ranks_train_as_a_replicated_model, 3)
{
    check_all(t);
}

TEST_RANKS(four_ranks_train_as_a_replicated_model, 4)
{
    check_all(t);
}

TEST_RANKS(eight_ranks_train_as_a_replicated_model, 8)
{
    check_parity(t, 15, &(fsdp_fully_shard_options){0}, BEFORE_COLLECTIVES);
}

/* The comparison is sharp enough: it detects half the learning rate. */
TEST_RANKS(parity_is_sharp, 2)
{
    trainee sharded, replicated;
    fsdp_optimizer *optimizers[2];
    float *x = NULL, *y = NULL, largest = 0.0f;
    size_t n, m;
    ASSERT_OK(open_pair(t, 7, &(fsdp_fully_shard_options){0}, &sharded, &replicated, optimizers));
    replicated.plain = true;
    fsdp_optimizer_set_lr(optimizers[1], 0.5e-2);
    ASSERT_OK(run_step(t, &sharded, optimizers[0], 0, NEVER));
    ASSERT_OK(run_step(t, &replicated, optimizers[1], 0, NEVER));
    ASSERT_OK(tree_params(sharded.model, &x, &n));
    ASSERT_OK(tree_params(replicated.model, &y, &m));
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(x[i] - y[i]));
    ASSERT(largest > 4e-3f);
    fsdp_free(x);
    fsdp_free(y);
    fsdp_optimizer_destroy(optimizers[0]);
    fsdp_optimizer_destroy(optimizers[1]);
    ASSERT_OK(trainee_close(&sharded));
    ASSERT_OK(trainee_close(&replicated));
}
