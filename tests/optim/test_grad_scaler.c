/* fsdp_grad_scaler: the rules of torch.amp.GradScaler, and one decision for all ranks. */
#include "src/nn/module.h"
#include "tests/elements.h"
#include "tests/optim/shards.h"
#include "tests/test.h"

enum {
    ROWS = 5,
    WIDTH = 3
};

/* One sharded matrix of ones, trained by SGD with a rate of 1. */
typedef struct trainee {
    fsdp_device *device;
    fsdp_module *module;
    fsdp_parameter *p;
    fsdp_optimizer *optimizer;
    fsdp_grad_scaler *scaler;
} trainee;

static void trainee_open(fsdp_test *t, fsdp_group *group, const fsdp_grad_scaler_options *options,
                         trainee *m)
{
    *m = (trainee){0};
    ASSERT_OK(fsdp_device_create(NULL, &m->device));
    ASSERT_OK(fsdp_module_create("Weights", &m->module));
    ASSERT_OK(fsdp_module_add_parameter(m->module, "w", 2, (const int64_t[]){ROWS, WIDTH},
                                        (fsdp_init){.mean = 1.0f}, &m->p));
    ASSERT_OK(fsdp_fully_shard(m->module, group, m->device, NULL));
    ASSERT_OK(fsdp_module_init(m->module, 1));
    fsdp_sgd_options sgd = fsdp_sgd_defaults();
    sgd.lr = 1.0;
    ASSERT_OK(fsdp_sgd_create(m->module, &sgd, &m->optimizer));
    ASSERT_OK(fsdp_grad_scaler_create(options, &m->scaler));
}

static void trainee_close(trainee *m)
{
    fsdp_grad_scaler_destroy(m->scaler);
    fsdp_optimizer_destroy(m->optimizer);
    fsdp_module_destroy(m->module);
    fsdp_device_destroy(m->device);
}

/* Sets gradients of 0.5 times the scale, with `odd` in one row. */
static fsdp_status set_gradients(const trainee *m, int odd_row, float odd)
{
    float grad[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++)
        grad[i] = i / WIDTH == odd_row ? odd : 0.5f * (float)fsdp_grad_scaler_scale(m->scaler);
    return shards_set_grad(m->p, grad);
}

/* Checks that all elements of this rank's rows are `want`. */
static void check_values(fsdp_test *t, const fsdp_tensor *tensor, float want)
{
    const float *values = elements_of(tensor);
    for (int64_t i = 0; i < fsdp_tensor_numel(tensor); i++)
        ASSERT_F32(values[i], want);
}

static void check_rules_on(fsdp_test *t, fsdp_group *group)
{
    static const float bad[] = {(float)INFINITY, -(float)INFINITY, (float)NAN};
    trainee m;
    trainee_open(t, group, &(fsdp_grad_scaler_options){.growth_interval = 2, .group = group}, &m);
    CHECK_HERE();
    ASSERT_F32(fsdp_grad_scaler_scale(m.scaler), 65536.0);
    ASSERT_OK(set_gradients(&m, -1, 0));
    ASSERT_OK(fsdp_grad_scaler_unscale(m.scaler, m.optimizer));
    ASSERT(!fsdp_grad_scaler_found_inf(m.scaler));
    check_values(t, fsdp_parameter_grad(m.p), 0.5f);
    ASSERT_ERROR(fsdp_grad_scaler_unscale(m.scaler, m.optimizer), FSDP_ERR_STATE, "called already");
    ASSERT_OK(fsdp_grad_scaler_step(m.scaler, m.optimizer, 0.5f));
    check_values(t, fsdp_parameter_local(m.p), 0.75f);
    ASSERT_ERROR(fsdp_grad_scaler_step(m.scaler, m.optimizer, 1.0f), FSDP_ERR_STATE, "step of");
    ASSERT_ERROR(fsdp_grad_scaler_unscale(m.scaler, m.optimizer), FSDP_ERR_STATE, "after its step");
    ASSERT_OK(fsdp_grad_scaler_update(m.scaler));
    ASSERT_INT(fsdp_grad_scaler_get_state(m.scaler).growth_tracker, 1);
    /* Each row is on one rank only, and the other ranks do not see its values. */
    double scale = 65536.0;
    for (int row = 0; row < ROWS; row++) {
        ASSERT_OK(set_gradients(&m, row, bad[row % 3]));
        ASSERT_OK(fsdp_grad_scaler_step(m.scaler, m.optimizer, 1.0f));
        ASSERT(fsdp_grad_scaler_found_inf(m.scaler));
        check_values(t, fsdp_parameter_local(m.p), 0.75f);
        ASSERT_INT(fsdp_optimizer_steps(m.optimizer, m.p), 1);
        ASSERT_OK(fsdp_grad_scaler_update(m.scaler));
        ASSERT(!fsdp_grad_scaler_found_inf(m.scaler));
        ASSERT_F32(fsdp_grad_scaler_scale(m.scaler), scale /= 2.0);
        ASSERT_INT(fsdp_grad_scaler_get_state(m.scaler).growth_tracker, 0);
    }
    for (int step = 1; step <= 2; step++) {
        ASSERT_OK(set_gradients(&m, -1, 0));
        ASSERT_OK(fsdp_grad_scaler_step(m.scaler, m.optimizer, 1.0f));
        ASSERT_OK(fsdp_grad_scaler_update(m.scaler));
        check_values(t, fsdp_parameter_local(m.p), 0.75f - 0.5f * (float)step);
    }
    ASSERT_F32(fsdp_grad_scaler_scale(m.scaler), 2.0 * scale); /* grows after two good steps in a
                                                                * row */
    ASSERT_ERROR(fsdp_grad_scaler_update(m.scaler), FSDP_ERR_STATE, "without unscale or step");
    trainee_close(&m);
}

TEST(one_rank_follows_torchs_rules)
{
    check_rules_on(t, NULL);
}

TEST_RANKS(an_inf_on_one_of_two_ranks_skips_the_step_on_both, 2)
{
    check_rules_on(t, t->group);
}

TEST_RANKS(an_inf_on_one_of_three_ranks_skips_the_step_on_all, 3)
{
    check_rules_on(t, t->group);
}

/* Without a group, the ranks are those that the parameters are sharded over. Two of the seven ranks
 * have no row. */
TEST_RANKS(without_a_group_the_parameters_group_is_used, 7)
{
    trainee m;
    trainee_open(t, t->group, NULL, &m);
    CHECK_HERE();
    ASSERT_OK(set_gradients(&m, 2, (float)NAN));
    ASSERT_OK(fsdp_grad_scaler_step(m.scaler, m.optimizer, 1.0f));
    ASSERT(fsdp_grad_scaler_found_inf(m.scaler));
    check_values(t, fsdp_parameter_local(m.p), 1.0f);
    trainee_close(&m);
}

/* PyTorch keeps the state per optimizer: one of them may skip its step, and both determine the
 * scale. */
TEST_RANKS(one_scaler_serves_two_optimizers, 2)
{
    trainee a, b;
    trainee_open(t, t->group, NULL, &a);
    trainee_open(t, t->group, NULL, &b);
    CHECK_HERE();
    fsdp_grad_scaler_destroy(b.scaler);
    b.scaler = a.scaler;
    ASSERT_OK(set_gradients(&a, ROWS - 1, (float)INFINITY));
    ASSERT_OK(set_gradients(&b, -1, 0));
    ASSERT_OK(fsdp_grad_scaler_unscale(a.scaler, a.optimizer));
    ASSERT_OK(fsdp_grad_scaler_step(a.scaler, b.optimizer, 1.0f));
    ASSERT_ERROR(fsdp_grad_scaler_unscale(a.scaler, a.optimizer), FSDP_ERR_STATE, "called already");
    ASSERT_ERROR(fsdp_grad_scaler_unscale(a.scaler, b.optimizer), FSDP_ERR_STATE, "after its step");
    ASSERT_ERROR(fsdp_grad_scaler_step(a.scaler, b.optimizer, 1.0f), FSDP_ERR_STATE, "step of");
    ASSERT_OK(fsdp_grad_scaler_step(a.scaler, a.optimizer, 1.0f));
    check_values(t, fsdp_parameter_local(a.p), 1.0f);
    check_values(t, fsdp_parameter_local(b.p), 0.5f);
    ASSERT(fsdp_grad_scaler_found_inf(a.scaler));
    ASSERT_OK(fsdp_grad_scaler_update(a.scaler));
    ASSERT_F32(fsdp_grad_scaler_scale(a.scaler), 32768.0); /* halved once */
    ASSERT(!fsdp_grad_scaler_found_inf(a.scaler));
    ASSERT_OK(set_gradients(&a, -1, 0));
    ASSERT_OK(set_gradients(&b, 0, (float)NAN)); /* now the other one, which is the last of the
                                                  * two */
    ASSERT_OK(fsdp_grad_scaler_step(a.scaler, a.optimizer, 1.0f));
    ASSERT_OK(fsdp_grad_scaler_step(a.scaler, b.optimizer, 1.0f));
    check_values(t, fsdp_parameter_local(a.p), 0.5f);
    check_values(t, fsdp_parameter_local(b.p), 0.5f);
    ASSERT_OK(fsdp_grad_scaler_update(a.scaler));
    ASSERT_F32(fsdp_grad_scaler_scale(a.scaler), 16384.0);
    ASSERT_OK(set_gradients(&b, -1, 0));
    ASSERT_OK(fsdp_grad_scaler_step(a.scaler, b.optimizer, 1.0f)); /* only one of them steps */
    ASSERT_OK(fsdp_grad_scaler_update(a.scaler));
    ASSERT_INT(fsdp_grad_scaler_get_state(a.scaler).growth_tracker, 1);
    b.scaler = NULL;
    trainee_close(&b);
    trainee_close(&a);
}

TEST(a_disabled_scaler_is_the_optimizer_alone)
{
    trainee m;
    trainee_open(t, NULL, &(fsdp_grad_scaler_options){.disabled = true}, &m);
    CHECK_HERE();
    ASSERT(!fsdp_grad_scaler_is_enabled(m.scaler));
    ASSERT_F32(fsdp_grad_scaler_scale(m.scaler), 1.0);
    ASSERT_OK(set_gradients(&m, -1, 0));
    ASSERT_OK(fsdp_grad_scaler_unscale(m.scaler, m.optimizer));
    ASSERT_OK(fsdp_grad_scaler_step(m.scaler, m.optimizer, 1.0f));
    ASSERT_OK(fsdp_grad_scaler_update(m.scaler));
    check_values(t, fsdp_parameter_local(m.p), 0.5f);
    trainee_close(&m);
}

TEST(its_state_can_be_kept_and_restored)
{
    fsdp_grad_scaler *a, *b;
    ASSERT_OK(fsdp_grad_scaler_create(
        &(fsdp_grad_scaler_options){
            .init_scale = 3.0, .growth_factor = 4.0, .backoff_factor = 0.25, .growth_interval = 7},
        &a));
    ASSERT_OK(fsdp_grad_scaler_create(NULL, &b));
    fsdp_grad_scaler_state state = fsdp_grad_scaler_get_state(a);
    state.growth_tracker = 6;
    ASSERT_OK(fsdp_grad_scaler_set_state(b, &state));
    ASSERT_F32(fsdp_grad_scaler_scale(b), 3.0);
    ASSERT_F32(fsdp_grad_scaler_get_state(b).growth_factor, 4.0);
    ASSERT_F32(fsdp_grad_scaler_get_state(b).backoff_factor, 0.25);
    ASSERT_INT(fsdp_grad_scaler_get_state(b).growth_interval, 7);
    trainee m;
    trainee_open(t, NULL, NULL, &m);
    CHECK_HERE();
    ASSERT_OK(fsdp_grad_scaler_unscale(b, m.optimizer)); /* without any gradient all are finite */
    ASSERT_OK(fsdp_grad_scaler_update(b));
    ASSERT_F32(fsdp_grad_scaler_scale(b), 12.0);
    ASSERT_OK(fsdp_grad_scaler_unscale(b, m.optimizer));
    ASSERT_OK(fsdp_grad_scaler_set_state(b, &state)); /* forgets the unscale that was begun */
    ASSERT_ERROR(fsdp_grad_scaler_update(b), FSDP_ERR_STATE, "without unscale or step");
    ASSERT_OK(fsdp_grad_scaler_unscale(b, m.optimizer));
    trainee_close(&m);
    state.scale = (double)NAN;
    ASSERT_ERROR(fsdp_grad_scaler_set_state(b, &state), FSDP_ERR_INVALID, "scale is nan");
    ASSERT_F32(fsdp_grad_scaler_scale(b), 3.0);
    fsdp_grad_scaler_destroy(a);
    fsdp_grad_scaler_destroy(b);
}

TEST(bad_options_are_named)
{
    static const struct {
        fsdp_grad_scaler_options options;
        const char *message;
    } cases[] = {{{.init_scale = -1.0}, "scale is -1"},
                 {{.growth_factor = 1.0}, "growth_factor is 1"},
                 {{.backoff_factor = 1.0}, "backoff_factor is 1"},
                 {{.growth_interval = -3}, "growth_interval is -3"}};
    fsdp_grad_scaler *scaler;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ASSERT_ERROR(fsdp_grad_scaler_create(&cases[i].options, &scaler), FSDP_ERR_INVALID,
                     cases[i].message);
}
