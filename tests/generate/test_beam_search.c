/* Beam search on a table of scores, compared with a naive implementation of transformers' algorithm
 * and with an enumeration of all sequences. */
#include <stdlib.h>

#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/philox.h"
#include "src/generate/beam_search.h"
#include "src/generate/logits_process.h"
#include "tests/test.h"

enum {
    VOCAB = 9,
    MAX_BEAMS = 5,
    MAX_LENGTH = 8,
    MAX_CANDIDATES = MAX_BEAMS * VOCAB
};

/* Log-probabilities of what follows ids[0 .. n): an arbitrary function of them. */
static void toy_scores(uint64_t seed, const int32_t *ids, int n, float *scores, int vocab)
{
    uint64_t key = seed;
    for (int i = 0; i < n; i++)
        key = fsdp_mix64(key ^ (uint64_t)(ids[i] + 1));
    for (int i = 0; i < vocab; i++)
        scores[i] = 3.0f * fsdp_uniform_from_bits(fsdp_philox4x32(key, (uint64_t)i, 0).v[0]) - 1.0f;
    (void)fsdp_log_softmax(scores, vocab);
}

static void search(fsdp_test *t, const fsdp_generation_config *config, uint64_t seed, int vocab,
                   int max_new, fsdp_beam_search **out)
{
    const int32_t start = 0;
    float scores[VOCAB];
    fsdp_beam_search *s;
    ASSERT_OK(fsdp_beam_search_create(config, &start, 1, max_new, &s));
    while (!s->done) {
        for (int32_t i = 0; i < s->n_running; i++) {
            toy_scores(seed, s->running[i].ids.ids, (int)s->running[i].ids.len, scores, vocab);
            fsdp_beam_search_offer(s, i, scores, vocab);
        }
        ASSERT_OK(fsdp_beam_search_advance(s));
    }
    *out = s;
}

/* --- transformers' _beam_search(), with all its rows of -1e9 --- */

typedef struct hypothesis {
    int32_t ids[MAX_LENGTH + 1];
    float score, rank; /* in the current sort */
    int at;            /* position before the sort */
    bool hit, finished;
} hypothesis;

static int by_rank(const void *a, const void *b)
{
    const hypothesis *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank > y->rank ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void sort(hypothesis *list, int n)
{
    for (int i = 0; i < n; i++)
        list[i].at = i;
    qsort(list, (size_t)n, sizeof *list, by_rank);
}

typedef struct naive {
    const fsdp_generation_config *config;
    int beams, max_new, n_new;
    hypothesis running[MAX_BEAMS], finished[MAX_BEAMS];
    bool unsatisfied; /* is_early_stop_heuristic_unsatisfied */
} naive;

static bool all_finished(const naive *v)
{
    for (int i = 0; i < v->beams; i++)
        if (!v->finished[i].finished)
            return false;
    return true;
}

/* The best candidates of all beams; returns how many. */
static int naive_candidates(const naive *v, uint64_t seed, hypothesis *list)
{
    int n = 0, keep = (v->config->n_eos > 1 ? 1 + v->config->n_eos : 2) * v->beams;
    float scores[VOCAB];
    for (int b = 0; b < v->beams; b++) {
        toy_scores(seed, v->running[b].ids, v->n_new + 1, scores, VOCAB);
        for (int id = 0; id < VOCAB; id++) {
            list[n] = v->running[b];
            list[n].ids[v->n_new + 1] = id;
            list[n].score = list[n].rank = scores[id] + v->running[b].score;
            list[n].hit = v->n_new + 1 == v->max_new || fsdp_is_end_of_sequence(v->config, id);
            n++;
        }
    }
    sort(list, n);
    return keep < n ? keep : n;
}

static void naive_update_finished(naive *v, const hypothesis *list, int n)
{
    hypothesis merged[MAX_BEAMS + MAX_CANDIDATES];
    bool closed = all_finished(v) && v->config->early_stopping == FSDP_EARLY_STOPPING_TRUE;
    for (int i = 0; i < v->beams; i++) {
        merged[i] = v->finished[i];
        merged[i].rank = merged[i].score;
    }
    for (int i = 0; i < n; i++) {
        hypothesis *h = &merged[v->beams + i];
        *h = list[i];
        h->finished = list[i].hit && i < v->beams;
        h->score /= (float)pow(v->n_new + 1, v->config->length_penalty);
        h->score += closed ? -1e9f : 0;
        h->score += v->unsatisfied ? 0 : -1e9f;
        h->score += h->finished ? 0 : -1e9f;
        h->rank = h->score;
    }
    sort(merged, v->beams + n);
    memcpy(v->finished, merged, (size_t)v->beams * sizeof *merged);
}

static void naive_check_heuristic(naive *v)
{
    bool longest =
        v->config->early_stopping == FSDP_EARLY_STOPPING_NEVER && v->config->length_penalty > 0;
    float best = v->running[0].score /
                 (float)pow(longest ? v->max_new : v->n_new, v->config->length_penalty);
    float worst = v->finished[0].score;
    bool any = false;
    for (int i = 1; i < v->beams; i++)
        worst = v->finished[i].score < worst ? v->finished[i].score : worst;
    for (int i = 0; i < v->beams; i++)
        any |= best > (v->finished[i].finished ? worst : -1e9f);
    v->unsatisfied &= any;
}

static void naive_search(naive *v, uint64_t seed)
{
    bool go_on = true;
    for (int i = 0; i < v->beams; i++) {
        v->running[i] = (hypothesis){.score = i ? -1e9f : 0};
        v->finished[i] = (hypothesis){.score = -1e9f};
    }
    v->unsatisfied = true;
    for (v->n_new = 0; go_on;) {
        hypothesis list[MAX_CANDIDATES], next[MAX_CANDIDATES];
        int n = naive_candidates(v, seed, list), hits = 0;
        memcpy(next, list, sizeof next);
        for (int i = 0; i < n; i++) {
            hits += list[i].hit;
            next[i].score = next[i].rank = list[i].score + (list[i].hit ? -1e9f : 0);
        }
        sort(next, n);
        memcpy(v->running, next, (size_t)v->beams * sizeof *next);
        naive_update_finished(v, list, n);
        v->n_new++;
        naive_check_heuristic(v);
        go_on = v->unsatisfied && hits < n &&
                !(all_finished(v) && v->config->early_stopping == FSDP_EARLY_STOPPING_TRUE);
    }
}

static void compare(fsdp_test *t, const fsdp_generation_config *config, uint64_t seed, int max_new)
{
    fsdp_beam_search *s = NULL;
    naive v = {.config = config, .beams = (int)config->num_beams, .max_new = max_new};
    naive_search(&v, seed);
    search(t, config, seed, VOCAB, max_new, &s);
    CHECK_HERE();
    ASSERT_INT(s->n_finished, v.beams);
    for (int i = 0; i < v.beams; i++) {
        ASSERT_F32(s->finished[i].score, v.finished[i].score);
        for (size_t k = 0; k < s->finished[i].ids.len; k++)
            ASSERT_INT(s->finished[i].ids.ids[k], v.finished[i].ids[k]);
        ASSERT(v.finished[i].finished);
    }
    fsdp_beam_search_destroy(s);
}

TEST(beams_are_those_of_transformers)
{
    static const double penalties[] = {0, 1, 2, -1};
    static const fsdp_early_stopping stopping[] = {
        FSDP_EARLY_STOPPING_FALSE, FSDP_EARLY_STOPPING_TRUE, FSDP_EARLY_STOPPING_NEVER};
    static const int lengths[] = {1, 2, 5, MAX_LENGTH};
    for (int beams = 1; beams <= MAX_BEAMS; beams++) {
        for (uint64_t i = 0; i < 4 * 3 * 4 * 3 * 10; i++) {
            const fsdp_generation_config config = {.num_beams = beams,
                                                   .length_penalty = penalties[i % 4],
                                                   .early_stopping = stopping[i / 4 % 3],
                                                   .eos_token_ids = {1, 6},
                                                   .n_eos = (int)(i / 12 % 3)};
            compare(t, &config, i / 144, lengths[i / 36 % 4]);
            CHECK_HERE();
        }
    }
}

/* --- all sequences --- */

enum {
    FEW = 3,   /* size of the vocabulary */
    SHORT = 4, /* limit of new ids */
    ALL = 81   /* FEW ^ SHORT: no beam is ever dropped */
};

typedef struct best {
    const fsdp_generation_config *config;
    uint64_t seed;
    float score;
    int32_t ids[SHORT + 1];
    int n;
} best;

/* Try every continuation of ids[0 .. n), whose log-probability is `sum`. */
static void enumerate(best *b, int32_t *ids, int n, float sum)
{
    float scores[FEW];
    toy_scores(b->seed, ids, n, scores, FEW);
    for (int32_t id = 0; id < FEW; id++) {
        const float total = sum + scores[id];
        ids[n] = id;
        if (id != 1 && n < SHORT) {
            enumerate(b, ids, n + 1, total);
            continue;
        }
        const float score = total / (float)pow(n, b->config->length_penalty);
        if (score > b->score) {
            b->score = score;
            b->n = n + 1;
            memcpy(b->ids, ids, (size_t)(n + 1) * sizeof *ids);
        }
    }
}

TEST(enough_beams_find_the_best_of_all_sequences)
{
    static const double penalties[] = {0, 1, 2, -1};
    for (uint64_t i = 0; i < 100; i++) {
        const fsdp_generation_config config = {.num_beams = ALL,
                                               .length_penalty = penalties[i % 4],
                                               .early_stopping = FSDP_EARLY_STOPPING_NEVER,
                                               .eos_token_ids = {1},
                                               .n_eos = 1};
        best b = {.config = &config, .seed = i, .score = -1e9f};
        int32_t ids[SHORT + 1] = {0};
        fsdp_beam_search *s = NULL;
        enumerate(&b, ids, 1, 0);
        search(t, &config, i, FEW, SHORT, &s);
        CHECK_HERE();
        ASSERT_F32(s->finished[0].score, b.score);
        ASSERT_INT(s->finished[0].ids.len, b.n);
        ASSERT(memcmp(s->finished[0].ids.ids, b.ids, (size_t)b.n * sizeof *b.ids) == 0);
        fsdp_beam_search_destroy(s);
    }
}

/* --- corner cases --- */

/* Two beams of one prompt have equal candidates: those of the earlier beam and with the lower id
 * come first. */
TEST(equal_candidates_rank_by_beam_then_id)
{
    const fsdp_generation_config config = {.num_beams = 2, .length_penalty = 1};
    const float flat[4] = {-1, -1, -1, -1};
    const int32_t start = 0;
    fsdp_beam_search *s;
    ASSERT_OK(fsdp_beam_search_create(&config, &start, 1, 3, &s));
    fsdp_beam_search_offer(s, 0, flat, 4);
    ASSERT_OK(fsdp_beam_search_advance(s));
    ASSERT_INT(s->n_running, 2);
    ASSERT_INT(s->running[1].ids.ids[1], 1);
    for (int32_t i = 0; i < 2; i++)
        fsdp_beam_search_offer(s, i, flat, 4);
    ASSERT_OK(fsdp_beam_search_advance(s));
    ASSERT(s->running[0].parent == 0 && s->running[1].parent == 0);
    ASSERT(s->running[0].ids.ids[2] == 0 && s->running[1].ids.ids[2] == 1);
    fsdp_beam_search_destroy(s);
}

TEST(banned_ids_are_no_candidates)
{
    const fsdp_generation_config config = {.num_beams = 3, .length_penalty = 1};
    const float scores[3] = {(float)-INFINITY, -1, (float)-INFINITY}, none[1] = {(float)-INFINITY};
    const int32_t start = 0;
    fsdp_beam_search *s;
    ASSERT_OK(fsdp_beam_search_create(&config, &start, 1, 9, &s));
    fsdp_beam_search_offer(s, 0, scores, 3);
    ASSERT_OK(fsdp_beam_search_advance(s));
    ASSERT_INT(s->n_running, 1);
    ASSERT(!s->done && s->n_finished == 0);
    fsdp_beam_search_offer(s, 0, none, 1);
    ASSERT_OK(fsdp_beam_search_advance(s));
    ASSERT(s->done && s->n_finished == 0);
    fsdp_beam_search_destroy(s);
}

TEST(log_softmax_is_that_of_doubles)
{
    float scores[3] = {1e30f, 1e30f, -5}, bad[2] = {1, (float)NAN}, high[1] = {(float)INFINITY};
    ASSERT(fsdp_log_softmax(scores, 3));
    ASSERT_NEAR(scores[1], -log(2), 1e-7);
    ASSERT(!fsdp_log_softmax(bad, 2) && !fsdp_log_softmax(high, 1));
}

TEST(beams_survive_each_allocation_that_fails)
{
    const fsdp_generation_config config = {.num_beams = 3, .length_penalty = 1};
    const int32_t start = 0;
    const float scores[4] = {-1, -2, -3, -4};
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK; n++) {
        fsdp_beam_search *s = NULL;
        fsdp_alloc_fail_at(n);
        status = fsdp_beam_search_create(&config, &start, 1, 2, &s);
        while (status == FSDP_OK && !s->done) {
            for (int32_t i = 0; i < s->n_running; i++)
                fsdp_beam_search_offer(s, i, scores, 4);
            status = fsdp_beam_search_advance(s);
        }
        fsdp_alloc_fail_at(0);
        fsdp_beam_search_destroy(s);
        ASSERT(n < 100);
    }
}
