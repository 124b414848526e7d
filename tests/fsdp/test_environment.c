/* fsdp_options_from_environment(): the variables that Accelerate's launcher sets. */
#include <stdlib.h>
#include <string.h>

#include <fsdp/fsdp.h>

#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "tests/test.h"

static const char *const names[] = {"ACCELERATE_MIXED_PRECISION", "FSDP_VERSION",
                                    "FSDP_SHARDING_STRATEGY",     "FSDP_RESHARD_AFTER_FORWARD",
                                    "FSDP_OFFLOAD_PARAMS",        "FSDP_BACKWARD_PREFETCH",
                                    "FSDP_FORWARD_PREFETCH",      "FSDP_ACTIVATION_CHECKPOINTING"};

/* Set the variables in the order of `names`, and read them. NULL: not set. */
static fsdp_status read_variables(const char *const values[8], fsdp_environment_options *e)
{
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (values[i])
            setenv(names[i], values[i], 1);
        else
            unsetenv(names[i]);
    const fsdp_status status = fsdp_options_from_environment(e);
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        unsetenv(names[i]);
    return status;
}

TEST(nothing_in_the_environment_gives_the_defaults)
{
    const char *const none[8] = {NULL};
    const fsdp_fully_shard_options zero = {0};
    fsdp_environment_options e;
    ASSERT_OK(read_variables(none, &e));
    ASSERT_INT(e.sharding_strategy, FSDP_SHARDING_FULL_SHARD);
    ASSERT(!e.activation_checkpointing);
    ASSERT_INT(memcmp(&e.fully_shard, &zero, sizeof zero), 0);
}

TEST(each_variable_sets_its_field)
{
    const char *const all[8] = {"bf16",          "1",    "NO_SHARD", "true", "true",
                                "BACKWARD_POST", "true", "true"};
    fsdp_environment_options e;
    ASSERT_OK(read_variables(all, &e));
    ASSERT_INT(e.sharding_strategy, FSDP_SHARDING_NO_SHARD);
    ASSERT(e.activation_checkpointing && e.fully_shard.no_shard);
    ASSERT_INT(e.fully_shard.mp_policy.param_dtype, FSDP_DTYPE_BF16);
    ASSERT_INT(e.fully_shard.mp_policy.reduce_dtype, FSDP_DTYPE_F32);
    ASSERT_INT(e.fully_shard.backward_prefetch, FSDP_BACKWARD_POST);
    ASSERT_INT(e.fully_shard.forward_prefetch, FSDP_FORWARD_STRICT);
    ASSERT_INT(e.fully_shard.offload_policy.kind, FSDP_OFFLOAD_CPU);
}

/* The launcher sets the version and both variables of the strategy in any case. */
TEST(the_strategy_is_the_one_that_the_user_chose)
{
    static const struct {
        const char *version, *strategy, *reshard;
        fsdp_sharding_strategy expected;
        fsdp_reshard expected_reshard;
        int ranks;
    } cases[] = {
        {"1", "FULL_SHARD", "true", FSDP_SHARDING_FULL_SHARD, FSDP_RESHARD_DEFAULT, 0},
        {"1", "2", "true", FSDP_SHARDING_SHARD_GRAD_OP, FSDP_RESHARD_FALSE, 0},
        {"1", "FULL_SHARD", "shard_grad_op", FSDP_SHARDING_SHARD_GRAD_OP, FSDP_RESHARD_FALSE, 0},
        {"1", "FULL_SHARD", "hybrid_shard", FSDP_SHARDING_HYBRID_SHARD, FSDP_RESHARD_DEFAULT, 0},
        {"1", "5", "true", FSDP_SHARDING_HYBRID_SHARD_ZERO2, FSDP_RESHARD_FALSE, 0},
        {"1", "FULL_SHARD", "2", FSDP_SHARDING_SHARD_GRAD_OP, FSDP_RESHARD_FALSE, 0},
        {"1", "FULL_SHARD", "3", FSDP_SHARDING_NO_SHARD, FSDP_RESHARD_DEFAULT, 0},
        {"2", "FULL_SHARD", "false", FSDP_SHARDING_SHARD_GRAD_OP, FSDP_RESHARD_FALSE, 0},
        {"2", "FULL_SHARD", "true", FSDP_SHARDING_FULL_SHARD, FSDP_RESHARD_DEFAULT, 0},
        {"2", NULL, "2", FSDP_SHARDING_FULL_SHARD, FSDP_RESHARD_TO_SMALLER, 2},
        {"2", "HYBRID_SHARD", "false", FSDP_SHARDING_HYBRID_SHARD_ZERO2, FSDP_RESHARD_FALSE, 0},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        const char *const values[8] = {NULL, cases[i].version, cases[i].strategy, cases[i].reshard};
        fsdp_environment_options e;
        ASSERT_OK(read_variables(values, &e));
        ASSERT_INT(e.sharding_strategy, cases[i].expected);
        ASSERT_INT(e.fully_shard.reshard_after_forward, cases[i].expected_reshard);
        ASSERT_INT(e.fully_shard.reshard_ranks, cases[i].ranks);
        CHECK_HERE();
    }
}

TEST(another_value_is_an_error_that_names_the_variable)
{
    const char *const wrong[][8] = {
        {"fp8"}, {NULL, "3"}, {NULL, NULL, "6"}, {NULL, NULL, NULL, "x"}};
    const char *const errors[] = {"ACCELERATE_MIXED_PRECISION: 'fp8' is not allowed",
                                  "FSDP_VERSION: '3' is not allowed; it takes 1 or 2",
                                  "FSDP_SHARDING_STRATEGY: '6'", "FSDP_RESHARD_AFTER_FORWARD: 'x'"};
    fsdp_environment_options e;
    for (size_t i = 0; i < FSDP_LENGTH(errors); i++)
        ASSERT_ERROR(read_variables(wrong[i], &e), FSDP_ERR_INVALID, errors[i]);
    fsdp_alloc_fail_at(1);
    const fsdp_status status = fsdp_options_from_environment(&e);
    fsdp_alloc_fail_at(0);
    ASSERT_INT(status, FSDP_ERR_NOMEM);
}
