/* Decoding a token at a time against the whole target at once. */
#include "src/base/alloc.h"
#include "src/models/t5_decode.h"
#include "src/nn/module.h"
#include "tests/models/t5_case.h"

enum {
    VOCAB = 23,
    STEPS = 40 /* beyond the last bucket, so that distances share it */
};

static const fsdp_t5_config shape = {.vocab_size = VOCAB,
                                     .d_model = 15,
                                     .d_ff = 9,
                                     .d_kv = 5,
                                     .num_layers = 1,
                                     .num_decoder_layers = 2,
                                     .num_heads = 3,
                                     .relative_attention_num_buckets = 8,
                                     .relative_attention_max_distance = 20,
                                     .layer_norm_epsilon = 1e-6,
                                     .initializer_factor = 1.0,
                                     .scale_decoder_outputs = true,
                                     .tie_word_embeddings = true,
                                     .eos_token_id = 1};

/* Target of row `row` at position `i`: any ids will do. */
static int32_t target(int row, int i)
{
    return (int32_t)((i * 7 + row * 5 + i * i) % VOCAB);
}

static void make_batch(fsdp_test *t, int rows, fsdp_batch **batch)
{
    static const int32_t source[] = {3, 9, 4, 16, 5, 8, 2, 1, 7, 7, 11, 1};
    static const int32_t lengths[] = {5, 12, 1};
    int32_t labels[3][STEPS];
    fsdp_batch_row list[3];
    for (int row = 0; row < rows; row++) {
        for (int i = 0; i < STEPS; i++)
            labels[row][i] = target(row, i);
        list[row] = (fsdp_batch_row){source, labels[row], lengths[row], STEPS};
    }
    ASSERT_OK(fsdp_batch_create(list, rows, 0, 0, batch));
}

/* Logits [rows, STEPS, VOCAB] of the whole targets, the caller's. */
static void whole_logits(fsdp_test *t, t5_case *c, float **values)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = c->batch};
    ASSERT_OK(fsdp_scope_open(c->device, NULL, &options, &s));
    fsdp_t5_outputs out = fsdp_t5_logits(s, c->model);
    ASSERT_OK(fsdp_scope_status(s));
    *values = fsdp_calloc((size_t)fsdp_tensor_numel(out.logits) + 1, sizeof **values);
    ASSERT(*values);
    ASSERT_OK(fsdp_tensor_to_floats(out.logits, *values));
    fsdp_scope_close(s);
}

static void begin(fsdp_test *t, t5_case *c, fsdp_t5_cache **cache)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = c->batch};
    ASSERT_OK(fsdp_t5_cache_create(c->model, cache));
    ASSERT_OK(fsdp_scope_open(c->device, NULL, &options, &s));
    fsdp_t5_encode(s, c->model, *cache);
    ASSERT_OK(fsdp_scope_status(s));
    fsdp_scope_close(s);
}

/* Feed step `step` of the sequences live[0 .. n) and compare their logits; then keep `keep`. */
static void decode_and_compare(fsdp_test *t, t5_case *c, fsdp_t5_cache *cache, int step,
                               const int32_t *live, int n, const float *want, const int32_t *keep,
                               int n_keep)
{
    int32_t ids[3];
    float got[3 * VOCAB];
    fsdp_scope *s;
    for (int i = 0; i < n; i++)
        ids[i] = step ? target(live[i], step - 1) : 0;
    ASSERT_OK(fsdp_scope_open(c->device, NULL, NULL, &s));
    fsdp_tensor *logits = fsdp_t5_decode(s, c->model, cache, ids);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_INT(fsdp_tensor_size(logits, 0), n);
    ASSERT_OK(fsdp_tensor_to_floats(logits, got));
    for (int i = 0; i < n * VOCAB; i++)
        ASSERT_NEAR(got[i], want[(live[i / VOCAB] * STEPS + step) * VOCAB + i % VOCAB], 2e-5);
    if (keep)
        fsdp_t5_cache_keep(s, cache, keep, n_keep);
    ASSERT_OK(fsdp_scope_status(s));
    fsdp_scope_close(s);
}

/* Three sequences; the middle one ends after 10 steps, the first after 25. */
static void check_decoding(fsdp_test *t)
{
    t5_case c;
    float *want;
    fsdp_t5_cache *cache;
    t5_case_create(t, &shape, NULL, &c);
    CHECK_HERE();
    make_batch(t, 3, &c.batch);
    whole_logits(t, &c, &want);
    begin(t, &c, &cache);
    CHECK_HERE();
    static const int32_t all[] = {0, 1, 2}, outer[] = {0, 2}, last[] = {2};
    static const int32_t second_of_two[] = {1};
    for (int step = 0; step < STEPS; step++) {
        if (step < 10)
            decode_and_compare(t, &c, cache, step, all, 3, want, step == 9 ? outer : NULL, 2);
        else if (step < 25)
            decode_and_compare(t, &c, cache, step, outer, 2, want,
                               step == 24 ? second_of_two : NULL, 1);
        else
            decode_and_compare(t, &c, cache, step, last, 1, want, NULL, 0);
        CHECK_HERE();
    }
    ASSERT_INT(fsdp_t5_cache_rows(cache), 1);
    fsdp_t5_cache_destroy(cache);
    fsdp_free(want);
    t5_case_close(&c);
}

TEST(decoding_step_by_step_gives_the_logits_of_the_whole)
{
    check_decoding(t);
}
TEST_RANKS(decoding_step_by_step_gives_the_logits_of_the_whole_on_3_ranks, 3)
{
    check_decoding(t);
}

/* Rank 1 has no sequence and takes part in every step. */
TEST_RANKS(a_rank_without_sequences_decodes_along, 2)
{
    t5_case c;
    float *want;
    fsdp_t5_cache *cache;
    static const int32_t all[] = {0, 1, 2};
    int n = t->rank ? 0 : 3;
    t5_case_create(t, &shape, NULL, &c);
    CHECK_HERE();
    make_batch(t, n, &c.batch);
    whole_logits(t, &c, &want);
    begin(t, &c, &cache);
    CHECK_HERE();
    for (int step = 0; step < 3; step++) {
        decode_and_compare(t, &c, cache, step, all, n, want, NULL, 0);
        CHECK_HERE();
    }
    fsdp_t5_cache_destroy(cache);
    fsdp_free(want);
    t5_case_close(&c);
}
