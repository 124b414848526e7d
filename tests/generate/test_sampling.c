/* Sampling: compares warpers with transformers' definitions, and draws with exact probabilities;
 * also the processing of scores before. */
#include <float.h>

#include "src/base/assert.h"
#include "src/base/philox.h"
#include "src/generate/logits_process.h"
#include "src/generate/sampling.h"
#include "tests/test.h"

enum {
    VOCAB = 40
};

static fsdp_generation_config plain(void)
{
    return (fsdp_generation_config){.do_sample = true,
                                    .temperature = 1,
                                    .top_p = 1,
                                    .typical_p = 1,
                                    .repetition_penalty = 1,
                                    .num_beams = 1};
}

static void draw_scores(uint64_t seed, float *scores)
{
    for (int i = 0; i < VOCAB; i++)
        scores[i] =
            6.0f * fsdp_uniform_from_bits(fsdp_philox4x32(seed, (uint64_t)i, 0).v[0]) - 3.0f;
}

/* --- warpers --- */

/* transformers' way: each warper replaces scores that it removes by -INFINITY. Ascending order,
 * softmax, cumsum for top_p. p [VOCAB] are the remaining probabilities. */
static void naive_probabilities(const fsdp_generation_config *c, const float *scores, double *p)
{
    double x[VOCAB], total = 0, largest = (double)-INFINITY;
    for (int i = 0; i < VOCAB; i++)
        x[i] = (double)(scores[i] / (float)c->temperature);
    for (int i = 0; i < VOCAB && c->top_k; i++) {
        int above = 0;
        for (int k = 0; k < VOCAB; k++)
            above += scores[k] > scores[i];
        if (above >= c->top_k)
            x[i] = (double)-INFINITY;
    }
    for (int i = 0; i < VOCAB; i++)
        total += exp(x[i]);
    for (int i = 0; i < VOCAB; i++)
        p[i] = exp(x[i]) / total;
    for (int i = 0; i < VOCAB && c->top_p < 1; i++) {
        double up_to = 0; /* sum of probabilities that are not larger */
        for (int k = 0; k < VOCAB; k++)
            up_to += x[k] <= x[i] ? p[k] : 0;
        if (up_to <= 1 - c->top_p)
            x[i] = (double)-INFINITY;
    }
    for (int i = 0; i < VOCAB; i++)
        largest = x[i] > largest ? x[i] : largest;
    total = 0;
    for (int i = 0; i < VOCAB; i++) {
        if (exp(x[i] - largest) < c->min_p)
            x[i] = (double)-INFINITY;
        total += exp(x[i]);
    }
    for (int i = 0; i < VOCAB; i++)
        p[i] = exp(x[i]) / total;
}

static void check_warp(fsdp_test *t, const fsdp_generation_config *c, const float *scores)
{
    fsdp_candidate left[VOCAB];
    double p[VOCAB], total = 0;
    int64_t n = fsdp_sampling_warp(c, scores, VOCAB, left), want = 0;
    naive_probabilities(c, scores, p);
    for (int i = 0; i < VOCAB; i++)
        want += p[i] > 0;
    ASSERT_INT(n, want);
    for (int64_t i = 0; i < n; i++) {
        ASSERT(i == 0 || left[i - 1].score >= left[i].score);
        total += exp((double)left[i].score);
    }
    for (int64_t i = 0; i < n; i++)
        ASSERT_NEAR(exp((double)left[i].score) / total, p[left[i].id], 1e-6);
}

TEST(warpers_leave_what_transformers_leaves)
{
    static const double temperatures[] = {1, 0.5, 1.7}, top_ps[] = {1, 0.9, 0.5, 0.01};
    static const double min_ps[] = {0, 0.05, 0.3};
    static const int64_t top_ks[] = {0, 1, 3, 39, 40, 100};
    float scores[VOCAB];
    for (uint64_t i = 0; i < 3 * 4 * 3 * 6; i++) {
        fsdp_generation_config c = plain();
        c.temperature = temperatures[i % 3];
        c.top_p = top_ps[i / 3 % 4];
        c.min_p = min_ps[i / 12 % 3];
        c.top_k = top_ks[i / 36];
        draw_scores(i, scores);
        check_warp(t, &c, scores);
        CHECK_HERE();
    }
}

/* top_k keeps all ids equal to its last one, but never a banned id. */
TEST(equal_and_banned_scores)
{
    const float scores[6] = {1, 2, 1, (float)-INFINITY, 1, 0},
                none[2] = {(float)-INFINITY, (float)-INFINITY};
    fsdp_candidate left[6];
    fsdp_generation_config c = plain();
    const fsdp_draw draw = {0};
    c.top_k = 2;
    ASSERT_INT(fsdp_sampling_warp(&c, scores, 6, left), 4);
    ASSERT(left[0].id == 1 && left[1].id == 0 && left[2].id == 2 && left[3].id == 4);
    c.top_k = 0;
    ASSERT_INT(fsdp_sampling_warp(&c, scores, 6, left), 5);
    ASSERT_INT(fsdp_sample(&c, none, 2, &draw, left), -1);
    ASSERT_INT(fsdp_argmax(scores, 6), 1);
    ASSERT_INT(fsdp_argmax(none, 2), 0);
}

/* Scores that overflow after division leave only the most likely ids; an infinite score has no
 * probability. */
TEST(temperatures_next_to_0)
{
    static const double temperatures[] = {1e-30, 1e-38, 1e-45, 1e-300};
    const float above[4] = {3, 7, 7, -1}, below[4] = {-9, -5, -8, (float)-INFINITY},
                infinite[2] = {1, (float)INFINITY};
    fsdp_candidate left[4];
    fsdp_generation_config c = plain();
    const fsdp_draw draw = {0};
    for (int i = 0; i < 8; i++) {
        c.temperature = temperatures[i / 2];
        c.top_k = i % 2 ? 3 : 0;
        ASSERT_INT(fsdp_sampling_warp(&c, above, 2, left) > 0 && left[0].id == 1, 1);
        ASSERT_INT(fsdp_sample(&c, above, 2, &draw, left), 1);
        ASSERT_INT(fsdp_sample(&c, below, 4, &draw, left), 1);
        ASSERT_INT(fsdp_sample(&c, infinite, 2, &draw, left), -1);
    }
    ASSERT_INT(fsdp_sampling_warp(&c, above, 4, left), 2);
    ASSERT(left[0].id == 1 && left[1].id == 2);
}

/* --- draws --- */

/* Chi-square of many rows or steps against exact probabilities: with 11 degrees of freedom it is
 * below 60 except once in 10^8 cases, and the draws are always the same. */
static void check_draws(fsdp_test *t, bool over_rows)
{
    enum {
        N = 20000
    };
    float scores[VOCAB];
    double p[VOCAB], chi = 0;
    int64_t count[VOCAB] = {0};
    fsdp_candidate scratch[VOCAB];
    fsdp_generation_config c = plain();
    c.top_k = 12;
    c.temperature = 1.3;
    draw_scores(5, scores);
    naive_probabilities(&c, scores, p);
    for (uint64_t i = 0; i < N; i++) {
        const fsdp_draw draw = {.seed = 3, .row = over_rows ? i : 7, .step = over_rows ? 2 : i};
        int32_t id = fsdp_sample(&c, scores, VOCAB, &draw, scratch);
        ASSERT(id >= 0 && id < VOCAB && p[id] > 0);
        count[id]++;
    }
    for (int i = 0; i < VOCAB; i++)
        chi += p[i] > 0 ? pow((double)count[i] - N * p[i], 2) / (N * p[i]) : 0;
    ASSERT(chi > 1 && chi < 60);
}
TEST(rows_draw_with_the_probabilities)
{
    check_draws(t, true);
}
TEST(steps_draw_with_the_probabilities)
{
    check_draws(t, false);
}

TEST(a_draw_is_a_function_of_seed_row_and_step)
{
    float scores[VOCAB];
    fsdp_candidate scratch[VOCAB];
    int differ = 0;
    const fsdp_generation_config c = plain();
    draw_scores(1, scores);
    for (uint64_t i = 0; i < 50; i++) {
        const fsdp_draw draw = {.seed = 1, .row = i, .step = 3},
                        other = {.seed = 2, .row = i, .step = 3};
        int32_t id = fsdp_sample(&c, scores, VOCAB, &draw, scratch);
        ASSERT_INT(fsdp_sample(&c, scores, VOCAB, &draw, scratch), id);
        differ += fsdp_sample(&c, scores, VOCAB, &other, scratch) != id;
    }
    ASSERT(differ > 10);
}

/* --- logits processors --- */

TEST(repetition_is_penalized_once_whatever_the_sign)
{
    int32_t ids[] = {0, 2, 2, 9};
    const fsdp_token_list list = {.ids = ids, .len = 4};
    float scores[4] = {2, 1, -3, 0.5f}, scratch[4];
    fsdp_generation_config c = plain();
    c.repetition_penalty = 2;
    fsdp_logits_process(&c, &list, 1, &(fsdp_source_ids){0}, scores, 4, scratch);
    ASSERT_F32(scores[0], 1);
    ASSERT_F32(scores[1], 1);
    ASSERT_F32(scores[2], -6);
    ASSERT_F32(scores[3], 0.5f);
}

/* The remaining ids are those that transformers' warpers leave of these scores. */
TEST(typical_epsilon_and_eta_leave_what_transformers_leaves)
{
    static const float scores[] = {2, 1.5f, 1.25f, 0.5f, 0.25f, -0.5f, -1, -2, 0.75f, 3};
    static const struct {
        double typical_p, epsilon, eta;
        int n;
        int32_t ids[10];
    } cases[] = {{0.2, 0, 0, 2, {0, 1}},
                 {0.5, 0, 0, 4, {9, 0, 1, 2}},
                 {0.9, 0, 0, 5, {9, 0, 1, 2, 8}},
                 {1, 0.05, 0, 5, {9, 0, 1, 2, 8}},
                 {1, 0.1, 0, 3, {9, 0, 1}},
                 {1, 0.5, 0, 1, {9}},
                 {1, 0, 0.01, 8, {9, 0, 1, 2, 8, 3, 4, 5}},
                 {1, 0, 0.05, 5, {9, 0, 1, 2, 8}},
                 {1, 0, 0.3, 2, {9, 0}}};
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_candidate left[10];
        fsdp_generation_config c = plain();
        c.typical_p = cases[i].typical_p;
        c.epsilon_cutoff = cases[i].epsilon;
        c.eta_cutoff = cases[i].eta;
        ASSERT_INT(fsdp_sampling_warp(&c, scores, 10, left), cases[i].n);
        for (int k = 0; k < cases[i].n; k++)
            ASSERT_INT(left[k].id, cases[i].ids[k]);
    }
}

/* The remaining ids are those that transformers' warpers leave of these scores. */
TEST(top_h_leaves_what_transformers_leaves)
{
    static const float scores[] = {2, 1.5f, 1.25f, 0.5f, 0.25f, -0.5f, -1, -2, 0.75f, 3};
    static const struct {
        double top_h;
        int64_t top_k;
        double top_p, temperature;
        int n;
        int32_t ids[10];
    } cases[] = {{0.05, 0, 1, 1, 1, {9}},
                 {0.2, 0, 1, 1, 1, {9}},
                 {0.5, 0, 1, 1, 2, {9, 0}},
                 {0.6, 0, 1, 2, 4, {9, 0, 1, 2}},
                 {0.8, 0, 1, 1, 5, {9, 0, 1, 2, 8}},
                 {0.9, 3, 1, 1, 3, {9, 0, 1}},
                 {0.9, 0, 0.7, 1, 2, {9, 0}},
                 {1, 0, 1, 1, 10, {9, 0, 1, 2, 8, 3, 4, 5, 6, 7}}};
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_candidate left[10];
        fsdp_generation_config c = plain();
        c.top_h = cases[i].top_h;
        c.top_k = cases[i].top_k;
        c.top_p = cases[i].top_p;
        c.temperature = cases[i].temperature;
        ASSERT_INT(fsdp_sampling_warp(&c, scores, 10, left), cases[i].n);
        for (int k = 0; k < cases[i].n; k++)
            ASSERT_INT(left[k].id, cases[i].ids[k]);
    }
}

/* As in transformers, the entropy is that of the 100 most likely ids. top_k may leave fewer of
 * them, but does not change the entropy. */
TEST(top_h_considers_100_ids)
{
    float scores[300];
    fsdp_candidate left[300];
    fsdp_generation_config c = plain();
    for (int i = 0; i < 300; i++)
        scores[i] = -0.01f * (float)i;
    c.top_h = 0.5;
    ASSERT_INT(fsdp_sampling_warp(&c, scores, 300, left), 40);
    c.top_h = 0.99;
    ASSERT_INT(fsdp_sampling_warp(&c, scores, 300, left), 98);
    c.top_h = 0.5;
    c.top_k = 30;
    ASSERT_INT(fsdp_sampling_warp(&c, scores, 300, left), 30);
    c.top_k = 60;
    ASSERT_INT(fsdp_sampling_warp(&c, scores, 300, left), 40);
}

/* 1 2 was followed by 3 and by 0, so neither may follow again. */
TEST(ngrams_are_not_repeated)
{
    int32_t ids[] = {1, 2, 3, 1, 2, 0, 1, 2};
    static const struct {
        int64_t size;
        size_t len;
        unsigned banned; /* bit i: id i */
    } cases[] = {{3, 8, 0x9}, {2, 8, 0x9}, {1, 8, 0xf}, {4, 8, 0},   {9, 8, 0},
                 {8, 8, 0},   {3, 5, 0x8}, {2, 1, 0},   {1, 1, 0x2}, {2, 4, 0x4}};
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        const fsdp_token_list list = {.ids = ids, .len = cases[i].len};
        float scores[5] = {0}, scratch[8];
        fsdp_generation_config c = plain();
        c.no_repeat_ngram_size = cases[i].size;
        fsdp_logits_process(&c, &list, 1, &(fsdp_source_ids){0}, scores, 5, scratch);
        for (int id = 0; id < 5; id++)
            ASSERT_INT(isinf(scores[id]) != 0, (cases[i].banned >> id) & 1);
    }
}

TEST(invalid_values_are_removed)
{
    const float inf = (float)INFINITY;
    int32_t ids[] = {0};
    const fsdp_token_list list = {.ids = ids, .len = 1};
    float scores[5] = {(float)NAN, inf, -inf, 3, -3}, scratch[1];
    fsdp_generation_config c = plain();
    c.remove_invalid_values = true;
    c.suppress_tokens = (fsdp_rule_ids){.ids = {4}, .n = 1}; /* applied afterwards */
    fsdp_logits_process(&c, &list, 1, &(fsdp_source_ids){0}, scores, 5, scratch);
    ASSERT_F32(scores[0], 0);
    ASSERT_F32(scores[1], FLT_MAX);
    ASSERT_F32(scores[2], -FLT_MAX);
    ASSERT_F32(scores[3], 3);
    ASSERT(isinf(scores[4]));
}

/* The factor of a score grows beyond all numbers, but the scores stay finite, and 0 stays 0. */
TEST(raised_ends_stay_finite)
{
    int32_t ids[3000] = {0};
    const fsdp_token_list list = {.ids = ids, .len = 3000};
    float scores[4] = {0, 1, -2, 1}, scratch[3000];
    fsdp_generation_config c = plain();
    c.n_eos = 3;
    for (int i = 0; i < 3; i++)
        c.eos_token_ids[i] = i;
    c.exponential_decay_length_penalty.factor = 2;
    fsdp_logits_process(&c, &list, 1, &(fsdp_source_ids){0}, scores, 4, scratch);
    ASSERT_F32(scores[0], 0);
    ASSERT(scores[1] > 1e38f && isfinite(scores[1]));
    ASSERT(scores[2] > 1e38f && isfinite(scores[2]));
    ASSERT_F32(scores[3], 1);
}

TEST(ends_wait_for_the_least_length)
{
    int32_t ids[] = {0, 2, 3};
    for (int64_t least = 0; least < 6; least++) {
        for (int by_length = 0; by_length < 2; by_length++) {
            const fsdp_token_list list = {.ids = ids, .len = 3};
            float scores[4] = {0}, scratch[3];
            fsdp_generation_config c = plain();
            c.n_eos = 2;
            c.eos_token_ids[0] = 1;
            c.eos_token_ids[1] = 50; /* beyond the vocabulary */
            c.min_length = by_length ? least : 0;
            c.min_new_tokens = by_length ? 0 : least;
            fsdp_logits_process(&c, &list, 1, &(fsdp_source_ids){0}, scores, 4, scratch);
            ASSERT_INT(isinf(scores[1]) != 0, least > (by_length ? 3 : 2));
            ASSERT(!isinf(scores[0]) && !isinf(scores[2]));
        }
    }
}
