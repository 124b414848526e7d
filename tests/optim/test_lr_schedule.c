/* Rates of PyTorch's StepLR and transformers' schedules, from tests/golden/optim/schedules.json. */
#include <math.h>

#include <fsdp/optim.h>

#include "src/base/json.h"
#include "tests/test.h"

/* The file has 24 steps. Beyond the total, the cosine of transformers rises again, while ours
 * stays. */
static void check_rates(fsdp_test *t, const char *name, const fsdp_lr_schedule *s, int steps)
{
    fsdp_json *doc;
    ASSERT_OK(fsdp_lr_schedule_check(s));
    ASSERT_OK(fsdp_json_read(fsdp_test_path("golden/optim/schedules.json"), &doc));
    fsdp_json_node rates = fsdp_json_find(fsdp_json_root(doc), name);
    for (int i = 0; i < steps; i++) {
        double want = -1.0;
        if (fsdp_json_get_f64(fsdp_json_at(rates, (size_t)i), NULL, &want) != FSDP_OK ||
            !(fabs(fsdp_lr_at(s, i) - want) <= 1e-15)) {
            fsdp_json_destroy(doc);
            FAIL("%s: step %d: %.17g, not %.17g", name, i, fsdp_lr_at(s, i), want);
        }
    }
    fsdp_json_destroy(doc);
}

TEST(rates_are_those_of_torch_and_transformers)
{
    fsdp_lr_schedule step = {.kind = FSDP_LR_STEP, .lr = 0.002, .gamma = 0.7, .step_size = 4};
    fsdp_lr_schedule constant = {.kind = FSDP_LR_CONSTANT, .lr = 0.002};
    fsdp_lr_schedule warm = {.kind = FSDP_LR_CONSTANT, .lr = 0.002, .warmup_steps = 5};
    fsdp_lr_schedule linear = {
        .kind = FSDP_LR_LINEAR, .lr = 0.002, .warmup_steps = 5, .total_steps = 20};
    fsdp_lr_schedule cosine = linear, cosine_min = linear;
    cosine.kind = cosine_min.kind = FSDP_LR_COSINE;
    cosine_min.min_lr = 2e-4;
    check_rates(t, "step_gamma_0_7_every_4", &step, 24);
    check_rates(t, "constant", &constant, 24);
    check_rates(t, "constant_warmup_5", &warm, 24);
    check_rates(t, "linear_warmup_5_total_20", &linear, 24);
    check_rates(t, "cosine_warmup_5_total_20", &cosine, 21);
    check_rates(t, "cosine_min_lr_2e_4_warmup_5_total_20", &cosine_min, 21);
    warm.kind = FSDP_LR_INVERSE_SQRT;
    check_rates(t, "inverse_sqrt_warmup_5", &warm, 24);
}

TEST(without_a_warmup_the_inverse_square_root_counts_in_ten_thousands)
{
    fsdp_lr_schedule s = {.kind = FSDP_LR_INVERSE_SQRT, .lr = 1.0};
    ASSERT_F32(fsdp_lr_at(&s, 0), 1.0);
    ASSERT_NEAR(fsdp_lr_at(&s, 30000), 0.5, 1e-15);
}

TEST(linear_and_cosine_stay_at_their_minimum)
{
    fsdp_lr_schedule s = {.kind = FSDP_LR_LINEAR, .lr = 1.0, .min_lr = 0.25, .total_steps = 8};
    ASSERT_F32(fsdp_lr_at(&s, 0), 1.0);
    ASSERT_F32(fsdp_lr_at(&s, 4), 0.625);
    ASSERT_F32(fsdp_lr_at(&s, 8), 0.25);
    ASSERT_F32(fsdp_lr_at(&s, 1000000), 0.25);
    s.kind = FSDP_LR_COSINE;
    ASSERT_F32(fsdp_lr_at(&s, 0), 1.0);
    ASSERT_NEAR(fsdp_lr_at(&s, 4), 0.625, 1e-12);
    ASSERT_F32(fsdp_lr_at(&s, 9), 0.25);
}

/* transformers' get_polynomial_decay_schedule_with_warmup: lr_end + (lr - lr_end) (1 - x)^power. */
TEST(polynomial_is_a_power_of_what_is_left)
{
    fsdp_lr_schedule s = {.kind = FSDP_LR_POLYNOMIAL,
                          .lr = 1.0,
                          .min_lr = 0.5,
                          .power = 2.0,
                          .warmup_steps = 2,
                          .total_steps = 6};
    static const double want[] = {0, 0.5, 1, 0.78125, 0.625, 0.53125, 0.5, 0.5};
    ASSERT_OK(fsdp_lr_schedule_check(&s));
    for (int i = 0; i < 8; i++)
        ASSERT_NEAR(fsdp_lr_at(&s, i), want[i], 1e-15);
    s.power = 1.0;
    ASSERT_NEAR(fsdp_lr_at(&s, 3), 0.875, 1e-15); /* linear */
}

/* get_cosine_with_hard_restarts_schedule_with_warmup: two half cosines of 4 steps. */
TEST(cosine_restarts_begin_again_at_the_full_rate)
{
    fsdp_lr_schedule s = {
        .kind = FSDP_LR_COSINE_RESTARTS, .lr = 2.0, .num_cycles = 2.0, .total_steps = 8};
    const double high = 1.0 + sqrt(0.5), low = 1.0 - sqrt(0.5);
    const double want[] = {2, high, 1, low, 2, high, 1, low, 0, 0};
    ASSERT_OK(fsdp_lr_schedule_check(&s));
    for (int i = 0; i < 10; i++)
        ASSERT_NEAR(fsdp_lr_at(&s, i), want[i], 1e-15);
}

TEST(a_warmup_beyond_the_end_rises_over_the_whole_run)
{
    static const fsdp_lr_schedule_kind kinds[] = {FSDP_LR_LINEAR, FSDP_LR_COSINE,
                                                  FSDP_LR_POLYNOMIAL, FSDP_LR_COSINE_RESTARTS};
    for (int k = 0; k < 4; k++) {
        fsdp_lr_schedule s = {.kind = kinds[k],
                              .lr = 1.0,
                              .power = 1.0,
                              .num_cycles = 1.0,
                              .warmup_steps = 8,
                              .total_steps = 4};
        ASSERT_OK(fsdp_lr_schedule_check(&s));
        for (int i = 0; i < 4; i++)
            ASSERT_NEAR(fsdp_lr_at(&s, i), i / 8.0, 0);
    }
}

/* With an epoch of 3 steps the rate changes with epochs, while warmup continues by steps. */
TEST(a_unit_can_be_an_epoch)
{
    fsdp_lr_schedule s = {.kind = FSDP_LR_STEP,
                          .lr = 1.0,
                          .gamma = 0.5,
                          .step_size = 1,
                          .unit_steps = 3,
                          .warmup_steps = 2};
    const double want[] = {0.0, 0.5, 1.0, 0.5, 0.5, 0.5, 0.25};
    for (int i = 0; i < 7; i++)
        ASSERT_F32(fsdp_lr_at(&s, i), want[i]);
    s = (fsdp_lr_schedule){.kind = FSDP_LR_LINEAR, .lr = 1.0, .unit_steps = 3, .total_steps = 9};
    for (int i = 0; i < 9; i++)
        ASSERT_NEAR(fsdp_lr_at(&s, i), 1.0 - i / 3 / 3.0, 1e-12);
}

TEST(bad_schedules_name_their_field)
{
    fsdp_lr_schedule s = {.kind = FSDP_LR_STEP, .lr = 1.0, .gamma = 0.5};
    ASSERT_ERROR(fsdp_lr_schedule_check(&s), FSDP_ERR_INVALID, "step_size is 0");
    s.step_size = 1;
    s.gamma = (double)NAN;
    ASSERT_ERROR(fsdp_lr_schedule_check(&s), FSDP_ERR_INVALID, "gamma");
    s = (fsdp_lr_schedule){.kind = FSDP_LR_COSINE, .lr = 1.0, .min_lr = 2.0};
    ASSERT_ERROR(fsdp_lr_schedule_check(&s), FSDP_ERR_INVALID, "min_lr is 2");
    s = (fsdp_lr_schedule){.kind = FSDP_LR_POLYNOMIAL, .lr = 1.0};
    ASSERT_ERROR(fsdp_lr_schedule_check(&s), FSDP_ERR_INVALID, "power is 0, not above 0");
    s = (fsdp_lr_schedule){.kind = FSDP_LR_COSINE_RESTARTS, .lr = 1.0, .num_cycles = -1.0};
    ASSERT_ERROR(fsdp_lr_schedule_check(&s), FSDP_ERR_INVALID, "num_cycles is -1, not above 0");
    s = (fsdp_lr_schedule){.kind = FSDP_LR_CONSTANT, .lr = -1.0};
    ASSERT_ERROR(fsdp_lr_schedule_check(&s), FSDP_ERR_INVALID, "lr is -1");
}
