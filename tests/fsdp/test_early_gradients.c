/* The loss adds the head's gradient to its unit in forward (Note [Loss computes its gradients in
 * forward] in src/autograd/ops_loss.c). A step whose gradient would contain a part of another loss,
 * or lack a part of its own, is an error. The next step has the bits of a first step. */
#include "src/base/alloc.h"
#include "tests/fsdp/toy.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

static const toy_shape shape = {.vocab = 11, .width = 7, .hidden = 5, .blocks = 2};

typedef struct learner {
    fsdp_device *device;
    fsdp_tape *tape, *other;
    fsdp_scope *s, *s_other;
    fsdp_module *model;
    toy_batch batch;
    float *want; /* [vocab * width] of the embedding, which is also the head's weight */
} learner;

static fsdp_status step(learner *l)
{
    FSDP_TRY(fsdp_scope_open(l->device, l->tape, NULL, &l->s));
    fsdp_tensor *loss = toy_loss(l->s, l->model, &l->batch);
    fsdp_status status = fsdp_scope_status(l->s);
    if (status == FSDP_OK)
        status = fsdp_backward(l->tape, &loss, NULL, 1);
    fsdp_scope_close(l->s);
    return status;
}

/* A forward whose result is dropped. */
static fsdp_status look(learner *l, fsdp_tape *tape, const fsdp_scope_options *options)
{
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(l->device, tape, options, &s));
    toy_loss(s, l->model, &l->batch);
    fsdp_status status = fsdp_scope_status(s);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status gradient_of(const learner *l, float **gradient)
{
    return tree_full_grad(fsdp_module_parameter(l->model, "embedding"), gradient);
}

static void open_learner(fsdp_test *t, learner *l)
{
    static const int32_t ids[2][4] = {{1, 4, 9, 2}, {3, 3, 0, 10}},
                         labels[2][4] = {{4, 9, 2, 3}, {3, 0, 10, -100}};
    const fsdp_fully_shard_options o = {0};
    const int rank = t->group ? t->rank : 0;
    *l = (learner){.batch = {.ids = ids[rank], .labels = labels[rank], .n = 4, .factor = 1}};
    ASSERT_OK(fsdp_device_create(NULL, &l->device));
    ASSERT_OK(fsdp_tape_create(&l->tape));
    ASSERT_OK(fsdp_tape_create(&l->other));
    ASSERT_OK(toy_create(&shape, &l->model));
    ASSERT_OK(toy_shard(l->model, t->group, l->device, &o));
    ASSERT_OK(fsdp_module_init(l->model, 2));
    ASSERT_OK(step(l));
    ASSERT_OK(gradient_of(l, &l->want));
    fsdp_module_zero_grad(l->model);
}

static void close_learner(fsdp_test *t, learner *l)
{
    fsdp_tape_destroy(l->tape);
    fsdp_tape_destroy(l->other);
    fsdp_module_destroy(l->model);
    fsdp_free(l->want);
    fsdp_memory_stats stats;
    fsdp_device_memory(l->device, &stats);
    ASSERT_INT(stats.allocated, 0);
    fsdp_device_destroy(l->device);
}

/* Check that the gradient is `times` that of one step, then zero it. */
static void check_gradient(fsdp_test *t, const learner *l, float times)
{
    float *got;
    ASSERT_OK(gradient_of(l, &got));
    for (int64_t i = 0; i < shape.vocab * shape.width; i++)
        ASSERT_F32(got[i], times * l->want[i]);
    fsdp_free(got);
    fsdp_module_zero_grad(l->model);
}

/* After an error no gradient is left, and the next step is correct. */
static void check_next_step(fsdp_test *t, learner *l)
{
    ASSERT(!fsdp_parameter_grad(fsdp_module_parameter(l->model, "embedding")));
    ASSERT_OK(step(l));
    check_gradient(t, l, 1.0f);
}

TEST_RANKS(a_loss_that_no_backward_reaches_is_an_error, 2)
{
    learner l;
    open_learner(t, &l);
    CHECK_HERE();
    for (int again = 0; again < 2; again++) {
        ASSERT_OK(look(&l, l.tape, NULL));
        ASSERT_ERROR(step(&l), FSDP_ERR_STATE, "call fsdp_tape_reset() afterwards");
        check_next_step(t, &l);
        CHECK_HERE();
    }
    close_learner(t, &l);
}

TEST_RANKS(a_loss_without_a_tape_or_with_a_reset_after_it_leaves_nothing, 2)
{
    learner l;
    open_learner(t, &l);
    CHECK_HERE();
    ASSERT_OK(look(&l, NULL, NULL));
    check_next_step(t, &l);
    CHECK_HERE();
    ASSERT_OK(look(&l, l.tape, NULL));
    fsdp_tape_reset(l.tape);
    check_next_step(t, &l);
    CHECK_HERE();
    /* A forward without a tape may run between a forward and its backward. */
    ASSERT_OK(fsdp_scope_open(l.device, l.tape, NULL, &l.s));
    fsdp_tensor *loss = toy_loss(l.s, l.model, &l.batch);
    ASSERT_OK(look(&l, NULL, NULL));
    ASSERT_OK(fsdp_backward(l.tape, &loss, NULL, 1));
    fsdp_scope_close(l.s);
    check_gradient(t, &l, 1.0f);
    CHECK_HERE();
    close_learner(t, &l);
}

TEST_RANKS(a_reset_of_another_tape_is_an_error_of_the_backward, 2)
{
    learner l;
    open_learner(t, &l);
    CHECK_HERE();
    ASSERT_OK(fsdp_scope_open(l.device, l.tape, NULL, &l.s));
    fsdp_tensor *loss = toy_loss(l.s, l.model, &l.batch);
    ASSERT_OK(look(&l, l.other, NULL));
    fsdp_tape_reset(l.other);
    ASSERT_ERROR(fsdp_backward(l.tape, &loss, NULL, 1), FSDP_ERR_STATE,
                 "was dropped since, when another forward");
    fsdp_scope_close(l.s);
    check_next_step(t, &l);
    CHECK_HERE();
    close_learner(t, &l);
}

/* Also if the other tape's forward was the first one, or a step was begun again in between. */
TEST_RANKS(only_a_tape_whose_own_gradients_were_dropped_fails, 2)
{
    learner l;
    open_learner(t, &l);
    CHECK_HERE();
    ASSERT_OK(look(&l, l.other, NULL));
    fsdp_tape_reset(l.other);
    ASSERT_OK(fsdp_scope_open(l.device, l.other, NULL, &l.s_other));
    fsdp_tensor *first = toy_loss(l.s_other, l.model, &l.batch);
    ASSERT_OK(fsdp_scope_open(l.device, l.tape, NULL, &l.s));
    toy_loss(l.s, l.model, &l.batch);
    fsdp_scope_close(l.s);
    fsdp_tape_reset(l.tape);
    ASSERT_OK(fsdp_scope_open(l.device, l.tape, NULL, &l.s));
    fsdp_tensor *second = toy_loss(l.s, l.model, &l.batch);
    ASSERT_OK(fsdp_backward(l.tape, &second, NULL, 1));
    fsdp_scope_close(l.s);
    check_gradient(t, &l, 1.0f);
    CHECK_HERE();
    ASSERT_ERROR(fsdp_backward(l.other, &first, NULL, 1), FSDP_ERR_STATE, "was dropped since");
    fsdp_scope_close(l.s_other);
    check_next_step(t, &l);
    CHECK_HERE();
    close_learner(t, &l);
}

TEST_RANKS(losses_of_two_tapes_add_up, 2)
{
    learner l;
    open_learner(t, &l);
    CHECK_HERE();
    ASSERT_OK(fsdp_scope_open(l.device, l.tape, NULL, &l.s));
    ASSERT_OK(fsdp_scope_open(l.device, l.other, NULL, &l.s_other));
    fsdp_tensor *a = toy_loss(l.s, l.model, &l.batch), *b = toy_loss(l.s_other, l.model, &l.batch);
    ASSERT_OK(fsdp_backward(l.other, &b, NULL, 1));
    ASSERT_OK(fsdp_backward(l.tape, &a, NULL, 1));
    fsdp_scope_close(l.s);
    fsdp_scope_close(l.s_other);
    float *got;
    ASSERT_OK(gradient_of(&l, &got));
    for (int64_t i = 0; i < shape.vocab * shape.width; i++)
        ASSERT_NEAR(got[i], 2.0f * l.want[i], 1e-5);
    fsdp_free(got);
    close_learner(t, &l);
}

/* Each of the two micro-steps has half of the loss. Between a forward and its backward, another
 * forward runs without a tape. After the step, a forward runs whose result is dropped. Then the
 * same step runs again. */
TEST_RANKS(micro_steps_add_up_and_begin_again, 2)
{
    learner l;
    open_learner(t, &l);
    CHECK_HERE();
    l.batch.factor = 0.5f;
    for (int round = 0; round < 2; round++) {
        for (int a = 0; a < 2; a++) {
            const fsdp_scope_options o = {.micro_step = a, .n_micro_steps = 2};
            ASSERT_OK(fsdp_scope_open(l.device, l.tape, &o, &l.s));
            fsdp_tensor *loss = toy_loss(l.s, l.model, &l.batch);
            ASSERT_OK(look(&l, NULL, NULL));
            ASSERT_OK(fsdp_backward(l.tape, &loss, NULL, 1));
            fsdp_scope_close(l.s);
        }
        check_gradient(t, &l, 1.0f);
        CHECK_HERE();
        const fsdp_scope_options o = {.micro_step = 0, .n_micro_steps = 2};
        ASSERT_OK(look(&l, l.tape, &o));
        fsdp_tape_reset(l.tape);
    }
    close_learner(t, &l);
}
