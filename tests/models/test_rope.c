/* Frequencies of rotary embeddings compared with transformers' (tests/golden), and the table of
 * angles. */
#include "src/models/rope.h"

#include <stdio.h>

#include "src/autograd/autograd.h"
#include "tests/models/model_case.h"

/* default, llama3, linear, and another theta, to within one unit in the last place. */
TEST(frequencies_are_those_of_transformers)
{
    static const char *const names[] = {"llama2", "llama3", "llama_bias", "qwen2"};
    for (int i = 0; i < 4; i++) {
        char dir[64];
        fsdp_model_config config;
        fsdp_checkpoint_reader *expected;
        snprintf(dir, sizeof dir, "golden/%s/model", names[i]);
        ASSERT_OK(fsdp_model_config_read(fsdp_test_path(dir), &config));
        model_case_expected(t, names[i], "expected", &expected);
        CHECK_HERE();
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_find(expected, "inv_freq");
        ASSERT(entry && entry->numel == config.llama.head_dim / 2);
        const float *want = entry->data;
        fsdp_rotary *rotary = fsdp_rotary_create(&config.llama.rope, config.llama.head_dim);
        ASSERT(rotary != NULL);
        for (int64_t j = 0; j < entry->numel; j++)
            ASSERT_NEAR(fsdp_rotary_inv_freq(rotary)[j], want[j], 1.2e-7 * (double)want[j]);
        fsdp_rotary_destroy(rotary);
        fsdp_checkpoint_close(expected);
    }
}

/* Wavelengths of theta 10000 with 8 frequencies: 6, 20, 63, 199, 628, ... For an original context
 * of 256, those below 64 are kept, those above 256 are stretched by 8, and the one in between is a
 * mixture. */
TEST(llama3_scales_long_waves_alone)
{
    const fsdp_rope_config plain = {.type = FSDP_ROPE_DEFAULT, .theta = 10000.0};
    const fsdp_rope_config config = {FSDP_ROPE_LLAMA3, 10000.0, 8.0, 1.0, 4.0, 256};
    fsdp_rotary *scaled = fsdp_rotary_create(&config, 16), *base = fsdp_rotary_create(&plain, 16);
    ASSERT(scaled && base);
    const float *f = fsdp_rotary_inv_freq(base), *g = fsdp_rotary_inv_freq(scaled);
    for (int j = 0; j < 8; j++) {
        const float ratio = g[j] / f[j];
        if (j < 3)
            ASSERT_F32(ratio, 1.0);
        else if (j == 3)
            ASSERT(ratio > 0.13f && ratio < 0.99f);
        else
            ASSERT_NEAR(ratio, 0.125, 1e-7);
    }
    fsdp_rotary_destroy(scaled);
    fsdp_rotary_destroy(base);
}

static fsdp_tensor *table_of(fsdp_test *t, fsdp_scope *s, fsdp_rotary *rotary, int64_t positions)
{
    fsdp_tensor *table = fsdp_rotary_table(s, rotary, positions);
    if (!table || fsdp_tensor_size(table, 0) != positions || fsdp_tensor_size(table, 1) != 6 ||
        fsdp_tensor_dtype(table) != FSDP_DTYPE_F32)
        fsdp_test_fail(t, __FILE__, __LINE__, "no table of %lld positions", (long long)positions);
    return table;
}

/* The values do not depend on how the table grew, and a shorter table is a prefix of a longer
 * one. */
TEST(the_table_holds_cosines_and_sines_by_position)
{
    const fsdp_rope_config config = {.type = FSDP_ROPE_DEFAULT, .theta = 100.0};
    static const int64_t lengths[] = {1, 0, 5, 300, 2};
    fsdp_rotary *rotary = fsdp_rotary_create(&config, 6);
    fsdp_device *device;
    fsdp_scope *s;
    ASSERT(rotary != NULL);
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    for (int i = 0; i < 5; i++) {
        fsdp_tensor *table = table_of(t, s, rotary, lengths[i]);
        CHECK_HERE();
        const float *row = fsdp_tensor_data(table);
        for (int64_t p = 0; p < lengths[i]; p++, row += 6)
            for (int j = 0; j < 3; j++) {
                const float angle = (float)p * fsdp_rotary_inv_freq(rotary)[j];
                ASSERT_NEAR(row[j], cos((double)angle), 1e-7);
                ASSERT_NEAR(row[3 + j], sin((double)angle), 1e-7);
            }
    }
    ASSERT_OK(fsdp_scope_status(s));
    fsdp_scope_close(s);
    fsdp_rotary_destroy(rotary);
    fsdp_device_destroy(device);
}
