/* T5 against what transformers and PyTorch compute (tests/golden), alone and sharded; and what
 * packing promises. */
#include <stdio.h>

#include <fsdp/ckpt.h>

#include "src/base/alloc.h"
#include "tests/models/t5_case.h"

static const char *const names[] = {"t5_v1_0", "t5_v1_1"};

/* --- against PyTorch --- */

static void open_expected(fsdp_test *t, const char *name, fsdp_checkpoint_reader **reader)
{
    char path[256];
    snprintf(path, sizeof path, "golden/%s/expected.safetensors", name);
    ASSERT_OK(fsdp_checkpoint_open(fsdp_test_path(path), reader));
}

/* Packed rows [tokens, width] of `actual` stand at `positions` of the padded rows of `name`. */
static void compare_rows(fsdp_test *t, const fsdp_checkpoint_reader *expected, const char *name,
                         const fsdp_tensor *actual, const int64_t *positions, double tolerance)
{
    const fsdp_checkpoint_entry *entry = fsdp_checkpoint_find(expected, name);
    ASSERT(entry && entry->ndim == 3 && actual);
    int64_t tokens = fsdp_tensor_size(actual, 0), width = entry->shape[2];
    ASSERT_INT(fsdp_tensor_size(actual, 1), width);
    float *values = fsdp_calloc((size_t)(tokens * width), sizeof *values);
    ASSERT(values);
    ASSERT_OK(fsdp_tensor_to_floats(actual, values));
    const float *want = entry->data;
    for (int64_t i = 0; i < tokens * width; i++)
        ASSERT_NEAR(values[i], want[positions[i / width] * width + i % width], tolerance);
    fsdp_free(values);
}

static void check_forward(fsdp_test *t, const char *name)
{
    t5_case c;
    fsdp_checkpoint_reader *expected;
    t5_case_open(t, name, NULL, &c);
    CHECK_HERE();
    open_expected(t, name, &expected);
    CHECK_HERE();
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = c.batch};
    ASSERT_OK(fsdp_scope_open(c.device, NULL, &options, &s));
    fsdp_t5_outputs out = fsdp_t5_logits(s, c.model);
    ASSERT_OK(fsdp_scope_status(s));
    compare_rows(t, expected, "logits", out.logits, c.batch->target_positions, 2e-5);
    compare_rows(t, expected, "last_hidden", out.last_hidden, c.batch->target_positions, 2e-5);
    compare_rows(t, expected, "encoder_last_hidden", out.encoder_last_hidden,
                 c.batch->source_positions, 2e-5);
    fsdp_scope_close(s);
    fsdp_checkpoint_close(expected);
    t5_case_close(&c);
}

/* Every rank runs the same batch: the mean over ranks is its gradient, rounded once. */
static void check_gradients(fsdp_test *t, const char *name)
{
    t5_case c;
    fsdp_checkpoint_reader *expected;
    t5_case_open(t, name, NULL, &c);
    CHECK_HERE();
    open_expected(t, name, &expected);
    CHECK_HERE();
    double loss;
    t5_case_step(t, &c, &loss);
    CHECK_HERE();
    ASSERT_NEAR(loss, *(const float *)fsdp_checkpoint_find(expected, "loss")->data, 1e-5);
    int compared = 0;
    for (size_t i = 0; i < fsdp_checkpoint_count(expected); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(expected, i);
        if (strncmp(entry->name, "grad.", 5) != 0)
            continue;
        const float *want = entry->data;
        float *got, largest = 0;
        t5_case_gradient(t, &c, entry->name + 5, &got);
        CHECK_HERE();
        for (int64_t k = 0; k < entry->numel; k++)
            largest = fmaxf(largest, fabsf(want[k]));
        for (int64_t k = 0; k < entry->numel; k++)
            if (!(fabsf(got[k] - want[k]) <= 3e-5f * largest))
                FAIL("%s[%lld] is %g, not %g", entry->name, (long long)k, (double)got[k],
                     (double)want[k]);
        fsdp_free(got);
        compared++;
    }
    ASSERT(compared > 40);
    fsdp_checkpoint_close(expected);
    t5_case_close(&c);
}

static void check_all(fsdp_test *t)
{
    for (int i = 0; i < 2; i++) {
        check_forward(t, names[i]);
        CHECK_HERE();
        check_gradients(t, names[i]);
        CHECK_HERE();
    }
}

TEST(without_fsdp_it_computes_pytorchs_numbers)
{
    check_all(t);
}
TEST_RANKS(on_1_rank_it_computes_pytorchs_numbers, 1)
{
    check_all(t);
}
TEST_RANKS(on_2_ranks_it_computes_pytorchs_numbers, 2)
{
    check_all(t);
}
TEST_RANKS(on_3_ranks_it_computes_pytorchs_numbers, 3)
{
    check_all(t);
}
TEST_RANKS(on_4_ranks_it_computes_pytorchs_numbers, 4)
{
    check_all(t);
}
