/* Frequencies of rotary embeddings compared with transformers' (tests/golden), and the table of
 * angles. */
#include "src/models/rope.h"

#include <stdio.h>

#include "src/autograd/autograd.h"
#include "src/base/assert.h"
#include "tests/models/model_case.h"

/* Every rope_type, and another theta, to within one unit in the last place. */
TEST(frequencies_are_those_of_transformers)
{
    static const char *const names[] = {"llama2", "llama3",     "llama_bias",
                                        "qwen2",  "llama_yarn", "llama_dynamic"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
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
    const fsdp_rope_config config = {.type = FSDP_ROPE_LLAMA3,
                                     .theta = 10000.0,
                                     .factor = 8.0,
                                     .low_freq_factor = 1.0,
                                     .high_freq_factor = 4.0,
                                     .original_max_position_embeddings = 256};
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

/* YaRN's default factor of cosines and sines, 0.1 ln(factor) + 1, is their length; mscale changes
 * it. */
TEST(yarn_multiplies_the_table)
{
    fsdp_rope_config config = {.type = FSDP_ROPE_YARN,
                               .theta = 100.0,
                               .factor = 4.0,
                               .original_max_position_embeddings = 16,
                               .truncate = true};
    static const double mscales[][3] = {{0, 0, 1.13862944}, {1, 0.5, 1.06482}, {0, 0, 0.25}};
    fsdp_device *device;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    for (int i = 0; i < 3; i++) {
        config.mscale = mscales[i][0];
        config.mscale_all_dim = mscales[i][1];
        config.attention_factor = i == 2 ? 0.25 : 0.0;
        fsdp_rotary *rotary = fsdp_rotary_create(&config, 6);
        ASSERT(rotary != NULL);
        fsdp_tensor *table = table_of(t, s, rotary, 5);
        CHECK_HERE();
        const float *row = fsdp_tensor_data(table);
        for (int j = 0; j < 15; j++) {
            const float *pair = row + 6 * (j / 3) + j % 3;
            ASSERT_NEAR(hypotf(pair[0], pair[3]), mscales[i][2], 1e-5);
        }
        fsdp_rotary_destroy(rotary);
    }
    fsdp_scope_close(s);
    fsdp_device_destroy(device);
}

/* The table of a length does not depend on the lengths before it. Up to the original length it is
 * the default table; beyond, waves are longer. */
TEST(a_dynamic_table_depends_on_the_longest_sequence_alone)
{
    const fsdp_rope_config config = {.type = FSDP_ROPE_DYNAMIC,
                                     .theta = 100.0,
                                     .factor = 2.0,
                                     .original_max_position_embeddings = 8};
    const fsdp_rope_config plain = {.type = FSDP_ROPE_DEFAULT, .theta = 100.0};
    static const int64_t lengths[] = {8, 30, 12, 3, 30, 8};
    fsdp_rotary *rotary = fsdp_rotary_create(&config, 6), *of_plain = fsdp_rotary_create(&plain, 6);
    fsdp_device *device;
    fsdp_scope *s;
    ASSERT(rotary && of_plain);
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    for (size_t i = 0; i < FSDP_LENGTH(lengths); i++) {
        const int64_t n = lengths[i];
        fsdp_rotary *fresh = fsdp_rotary_create(&config, 6);
        ASSERT(fresh != NULL);
        const fsdp_tensor *got = table_of(t, s, rotary, n), *want = table_of(t, s, fresh, n);
        const fsdp_tensor *unscaled = table_of(t, s, of_plain, n);
        CHECK_HERE();
        const size_t bytes = (size_t)n * 6 * sizeof(float);
        ASSERT(memcmp(fsdp_tensor_data(got), fsdp_tensor_data(want), bytes) == 0);
        ASSERT_INT(memcmp(fsdp_tensor_data(got), fsdp_tensor_data(unscaled), bytes) == 0, n <= 8);
        /* the second frequency, at position 1: sin(theta^(-1/3)), with theta as in transformers */
        const float *row = fsdp_tensor_data(got);
        const double base = n <= 8 ? 100.0 : 100.0 * pow(2.0 * (double)n / 8.0 - 1.0, 1.5);
        ASSERT_NEAR(row[6 + 4], sin(pow(base, -1.0 / 3.0)), 1e-6);
        fsdp_rotary_destroy(fresh);
    }
    ASSERT_OK(fsdp_scope_status(s));
    fsdp_scope_close(s);
    fsdp_rotary_destroy(rotary);
    fsdp_rotary_destroy(of_plain);
    fsdp_device_destroy(device);
}
