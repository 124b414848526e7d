/* Random controls, set in the middle of random training runs. Whatever is gathered, kept, delayed
 * or requested early, a step must give the bits of one rank without controls, and communicate what
 * its controls ask for. FSDP_TEST_SEED and FSDP_TEST_CASES choose the cases; a failure prints its
 * seed. */
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/comm/group_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/chain.h"
#include "tests/test.h"

enum {
    STEPS = 4,
    MICRO_STEPS = 3
};

typedef struct random_source {
    uint64_t seed, count;
} random_source;

static int below(random_source *r, int n)
{
    return (int)(fsdp_philox4x32(r->seed, r->count++, 0).v[0] % (uint32_t)n);
}

static bool one_in(random_source *r, int n)
{
    return below(r, n) == 0;
}

static fsdp_fully_shard_options draw_options(random_source *r)
{
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    fsdp_fully_shard_options o = {.backward_prefetch = (fsdp_backward_prefetch)below(r, 3),
                                  .forward_prefetch =
                                      one_in(r, 2) ? FSDP_FORWARD_IMPLICIT : FSDP_FORWARD_NONE,
                                  .reshard_after_forward = (fsdp_reshard)below(r, 3),
                                  .no_limit_all_gathers = one_in(r, 2)};
    o.mp_policy.param_dtype = dtypes[below(r, 3)];
    return o;
}

static fsdp_status set_random_list(random_source *r, chain *c, int of)
{
    fsdp_module *modules[CHAIN_UNITS];
    const size_t n = (size_t)below(r, CHAIN_UNITS);
    for (size_t i = 0; i < n; i++)
        modules[i] = c->units[below(r, CHAIN_UNITS)];
    return one_in(r, 2) ? fsdp_set_modules_to_forward_prefetch(c->units[of], modules, n)
                        : fsdp_set_modules_to_backward_prefetch(c->units[of], modules, n);
}

/* Set random controls between micro-steps. */
static fsdp_status disturb(random_source *r, chain *c)
{
    fsdp_module *unit = c->units[below(r, CHAIN_UNITS)];
    fsdp_unshard_handle *handle;
    switch (below(r, 7)) {
    case 0:
        return set_random_list(r, c, below(r, CHAIN_UNITS));
    case 1:
        return fsdp_set_reshard_after_forward(unit, one_in(r, 2), one_in(r, 2));
    case 2:
        return fsdp_set_reshard_after_backward(unit, one_in(r, 2), one_in(r, 2));
    case 3:
        FSDP_TRY(fsdp_unit_unshard_async(unit, &handle));
        return fsdp_unshard_handle_wait(handle);
    case 4:
        return fsdp_unit_unshard_async(unit, NULL);
    case 5:
        FSDP_TRY(fsdp_unit_unshard(unit));
        FSDP_TRY(tree_evaluate(&c->m, c->m.model, 9));
        return fsdp_unit_reshard(unit);
    default:
        return tree_evaluate(&c->m, c->m.model, 9);
    }
}

/* Choose the blocks that run in this micro-step: the same on every rank and for every leaf. */
static void set_calls(random_source *r, chain *c)
{
    for (int i = 0; i < CHAIN_BLOCKS; i++)
        tree_of(c->m.model)->calls[i] = one_in(r, 5) ? below(r, 3) : 1;
}

/* Run all micro-steps of a step. `controls` NULL: set no controls. */
static fsdp_status run_step(random_source *calls, random_source *controls, chain *c, int step)
{
    fsdp_module_zero_grad(c->m.model);
    set_calls(calls, c);
    for (int a = 0; a < MICRO_STEPS; a++) {
        if (controls && one_in(controls, 2))
            FSDP_TRY(disturb(controls, c));
        if (controls)
            FSDP_TRY(
                fsdp_set_is_last_backward(c->m.model, a == MICRO_STEPS - 1 || one_in(controls, 2)));
        FSDP_TRY(chain_micro_step(c, step, a, MICRO_STEPS));
    }
    for (int i = 0; i < CHAIN_UNITS; i++)
        FSDP_TRY(fsdp_unit_reshard(c->units[i]));
    return tree_sgd(c->m.model, 0.05f);
}

/* Check that in each micro-step, each unit that ran was reduced exactly once, or twice if it has
 * two sections and ran once. */
static void check_reduces(fsdp_test *t, chain *c, bool in_sections)
{
    uint64_t reduces = in_sections ? 2 : 1;
    for (int i = 0; i < CHAIN_BLOCKS; i++) {
        const int calls = tree_of(c->m.model)->calls[i];
        reduces += calls == 1 && in_sections ? 2 : calls > 0;
    }
    ASSERT_INT(chain_counts(c).calls[FSDP_KIND_REDUCE_SCATTER], reduces * MICRO_STEPS);
}

/* Run the micro-steps on one rank, with the leaves of all ranks. */
static fsdp_status run_alone(random_source *calls, chain *one, int step, int world_size)
{
    fsdp_module_zero_grad(one->m.model);
    set_calls(calls, one);
    for (int m = 0; m < MICRO_STEPS * world_size; m++)
        FSDP_TRY(chain_micro_step(one, step, m, MICRO_STEPS * world_size));
    return tree_sgd(one->m.model, 0.05f);
}

static fsdp_status train(fsdp_test *t, uint64_t seed, chain *c, chain *one)
{
    random_source controls = {.seed = seed}, calls = {.seed = seed + 1000000}, calls_of_one = calls;
    const fsdp_fully_shard_options o = draw_options(&controls);
    FSDP_TRY(chain_open(t->group, &o, c));
    FSDP_TRY(chain_open(NULL, &o, one));
    for (int i = 0; i < 2; i++)
        FSDP_TRY(
            fsdp_set_gradient_divide_factor((i ? one : c)->m.model, MICRO_STEPS * t->world_size));
    const bool in_sections = one_in(&controls, 2);
    if (in_sections)
        FSDP_TRY(tree_in_sections(c->m.model));
    for (int step = 0; step < STEPS; step++) {
        chain_counts(c);
        FSDP_TRY(run_step(&calls, &controls, c, step));
        check_reduces(t, c, in_sections);
        FSDP_TRY(run_alone(&calls_of_one, one, step, t->world_size));
        FSDP_TRY(tree_same_params(&c->m, &one->m));
    }
    return FSDP_OK;
}

static void run_cases(fsdp_test *t)
{
    const char *first = getenv("FSDP_TEST_SEED"), *count = getenv("FSDP_TEST_CASES");
    const uint64_t begin = first ? strtoull(first, NULL, 10) : 1;
    const uint64_t n = count ? strtoull(count, NULL, 10) : 20;
    for (uint64_t seed = begin; seed < begin + n; seed++) {
        chain c, one;
        fsdp_group_set_delay(t->group, seed, 50);
        fsdp_status status = train(t, seed, &c, &one);
        if (status != FSDP_OK)
            FAIL("seed %llu: %s", (unsigned long long)seed, fsdp_last_error());
        ASSERT_OK(chain_close(&c));
        ASSERT_OK(chain_close(&one));
        CHECK_HERE();
    }
}

TEST_RANKS(random_controls_change_no_bit_on_2_ranks, 2)
{
    run_cases(t);
}

TEST_RANKS(random_controls_change_no_bit_on_4_ranks, 4)
{
    run_cases(t);
}
