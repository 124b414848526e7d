/* Compares a model with the numbers of transformers and PyTorch. */
#pragma once
#include "tests/models/model_case.h"

/* Checks that the model of tests/golden/<name> has the logits, hidden states, loss and gradients of
 * <expected>.safetensors for <inputs>.safetensors. Its blocks and root are units over t->group,
 * unless t has none. The file may lack hidden states. Every rank runs the same batch, so the mean
 * over ranks is the batch's gradient, rounded once. */
void model_check_golden(fsdp_test *t, const char *name, const char *inputs, const char *expected);

/* Defines the tests that run `check` (a function of fsdp_test *) unsharded and on 1 to 4 ranks. */
#define GOLDEN_TESTS(check)                                                                        \
    TEST(without_fsdp_it_computes_pytorchs_numbers)                                                \
    {                                                                                              \
        check(t);                                                                                  \
    }                                                                                              \
    TEST_RANKS(on_1_rank_it_computes_pytorchs_numbers, 1)                                          \
    {                                                                                              \
        check(t);                                                                                  \
    }                                                                                              \
    TEST_RANKS(on_2_ranks_it_computes_pytorchs_numbers, 2)                                         \
    {                                                                                              \
        check(t);                                                                                  \
    }                                                                                              \
    TEST_RANKS(on_3_ranks_it_computes_pytorchs_numbers, 3)                                         \
    {                                                                                              \
        check(t);                                                                                  \
    }                                                                                              \
    TEST_RANKS(on_4_ranks_it_computes_pytorchs_numbers, 4)                                         \
    {                                                                                              \
        check(t);                                                                                  \
    }
