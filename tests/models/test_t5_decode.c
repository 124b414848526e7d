/* Decoding one token at a time compared with whole targets. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/models/t5_decode.h"
#include "src/nn/module.h"
#include "tests/models/model_case.h"
#include "tests/models/t5_shape.h"

enum {
    VOCAB = 23,
    STEPS = 40 /* beyond the last bucket, so distances share it */
};

/* One encoder layer and two decoder layers; the head is tied to the embedding. */
static fsdp_model_config shape(void)
{
    fsdp_model_config config = t5_odd_shape();
    config.t5.vocab_size = VOCAB;
    config.t5.d_ff = 9;
    config.t5.num_layers = 1;
    config.t5.num_decoder_layers = 2;
    config.t5.is_gated_act = false;
    config.t5.dense_act_fn = FSDP_HIDDEN_ACT_RELU;
    config.t5.scale_decoder_outputs = config.t5.tie_word_embeddings = true;
    return config;
}

/* Token `i` of the target of row `row`; the ids are arbitrary. */
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
        list[row] = (fsdp_batch_row){.source = source,
                                     .labels = labels[row],
                                     .source_len = lengths[row],
                                     .labels_len = STEPS};
    }
    ASSERT_OK(fsdp_batch_create(list, rows, NULL, batch));
}

/* Checks that the logits [n, VOCAB] of a step are those of step `step` of targets live[0 .. n). */
static void compare(fsdp_test *t, fsdp_scope *s, fsdp_tensor *logits, int step, const int32_t *live,
                    int n, const float *want)
{
    float *got = fsdp_calloc((size_t)(n * VOCAB) + 1, sizeof *got);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT(got && logits);
    ASSERT_INT(fsdp_tensor_size(logits, 0), n);
    ASSERT_OK(fsdp_tensor_to_floats(logits, got));
    for (int i = 0; i < n * VOCAB; i++)
        ASSERT_NEAR(got[i], want[(live[i / VOCAB] * STEPS + step) * VOCAB + i % VOCAB], 2e-5);
    fsdp_free(got);
}

/* What follows a step: sequences rows[0 .. n) continue. */
typedef struct choice {
    int after, n;
    int32_t rows[8];
} choice;

/* Decodes the targets of the batch's `n` rows step by step, with choices along the way, and checks
 * that each step's logits are those of the whole targets. */
static void check_steps(fsdp_test *t, model_case *c, int n, int steps, const choice *choices,
                        size_t n_choices)
{
    const fsdp_decoder *d = &fsdp_t5_decoder;
    int32_t live[8] = {0, 1, 2}, ids[8];
    float *want = NULL; /* [rows, STEPS, VOCAB] */
    fsdp_decode_cache *cache;
    model_case_logits(t, c, &want);
    CHECK_HERE();
    ASSERT_OK(d->create(c->model, &cache));
    for (int step = 0; step < steps; step++) {
        fsdp_scope *s;
        const fsdp_scope_options options = {.batch = c->batch};
        for (int i = 0; i < n && step > 0; i++)
            ids[i] = target(live[i], step - 1);
        ASSERT_OK(fsdp_scope_open(c->device, NULL, &options, &s));
        fsdp_tensor *logits =
            step ? d->step(s, c->model, cache, ids) : d->prompt(s, c->model, cache);
        compare(t, s, logits, step, live, n, want);
        CHECK_HERE();
        for (size_t k = 0; k < n_choices; k++) {
            if (choices[k].after != step)
                continue;
            int32_t before[8];
            memcpy(before, live, sizeof before);
            d->select(s, cache, choices[k].rows, choices[k].n);
            n = choices[k].n;
            for (int i = 0; i < n; i++)
                live[i] = before[choices[k].rows[i]];
        }
        ASSERT_OK(fsdp_scope_status(s));
        fsdp_scope_close(s);
    }
    d->destroy(cache);
    fsdp_free(want);
}

static void check_family(fsdp_test *t, fsdp_t5_family family, int rows, int steps,
                         const choice *choices, size_t n)
{
    model_case c;
    fsdp_model_config config = shape();
    config.t5.family = family;
    model_case_create(t, &config, &c);
    CHECK_HERE();
    make_batch(t, rows, &c.batch);
    check_steps(t, &c, rows, steps, choices, n);
    CHECK_HERE();
    model_case_close(&c);
}

static void check(fsdp_test *t, int rows, int steps, const choice *choices, size_t n)
{
    check_family(t, FSDP_T5, rows, steps, choices, n);
    CHECK_HERE();
    check_family(t, FSDP_UMT5, rows, steps, choices, n);
}

/* Three sequences; the middle one ends after 10 steps, the first after 25. */
static const choice endings[] = {{.after = 9, .n = 2, .rows = {0, 2}},
                                 {.after = 24, .n = 1, .rows = {1}}};
TEST(decoding_step_by_step_gives_the_logits_of_the_whole)
{
    check(t, 3, STEPS, endings, 2);
}
TEST_RANKS(decoding_step_by_step_gives_the_logits_of_the_whole_on_3_ranks, 3)
{
    check(t, 3, STEPS, endings, 2);
}

/* Sequences of one prompt branch off, some more than once, are reordered and end. At last a prompt
 * ends between two that continue. */
static const choice branches[] = {{.after = 0, .n = 6, .rows = {0, 0, 1, 2, 2, 2}},
                                  {.after = 2, .n = 7, .rows = {1, 0, 2, 2, 5, 3, 5}},
                                  {.after = 3, .n = 4, .rows = {1, 0, 6, 4}},
                                  {.after = 3, .n = 5, .rows = {1, 1, 0, 2, 3}},
                                  {.after = 6, .n = 2, .rows = {4, 3}},
                                  {.after = 8, .n = 0}};
TEST(sequences_branch_off_and_share_their_source)
{
    check(t, 3, 12, branches, FSDP_LENGTH(branches));
}
TEST_RANKS(sequences_branch_off_and_share_their_source_on_2_ranks, 2)
{
    check(t, 3, 12, branches, FSDP_LENGTH(branches));
}

/* Rank 1 has no sequence and takes part in every step. */
TEST_RANKS(a_rank_without_sequences_decodes_along, 2)
{
    check(t, t->rank ? 0 : 3, 3, NULL, 0);
}

TEST(a_prompt_needs_a_batch)
{
    model_case c;
    const fsdp_model_config config = shape();
    fsdp_scope *s;
    fsdp_decode_cache *cache;
    model_case_create(t, &config, &c);
    CHECK_HERE();
    ASSERT_OK(fsdp_t5_decoder.create(c.model, &cache));
    ASSERT_OK(fsdp_scope_open(c.device, NULL, NULL, &s));
    ASSERT(fsdp_t5_decoder.prompt(s, c.model, cache) == NULL);
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "batch");
    fsdp_scope_close(s);
    fsdp_t5_decoder.destroy(cache);
    model_case_close(&c);
}
