/* See sampling.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/philox.h"
#include "src/generate/sampling.h"

enum {
    TOP_H_IDS = 100 /* TopHLogitsWarper.top_n of transformers */
};

int32_t fsdp_argmax(const float *scores, int64_t vocab)
{
    int32_t best = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (scores[i] > scores[best])
            best = (int32_t)i;
    return best;
}

/* Write the ids that have the score `best` to `left`, and set their score there to 0. So all of
 * them are equally likely to be drawn. Returns the number of these ids. */
static int64_t keep_best(const float *scores, int64_t vocab, float best, fsdp_candidate *left)
{
    int64_t n = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (scores[i] == best)
            left[n++] = (fsdp_candidate){0, 0, (int32_t)i};
    return n;
}

/* Write to `left` the k most likely ids. As in transformers, also write all other ids that are
 * exactly as likely as the k-th most likely id. Returns the number of ids in `left`. */
static int64_t keep_top_k(const float *scores, int64_t vocab, int64_t k, float temperature,
                          fsdp_candidate *left)
{
    fsdp_top_k top = {.items = left, .k = k};
    for (int64_t i = 0; i < vocab && k < vocab; i++)
        fsdp_top_k_offer(&top, (fsdp_candidate){scores[i] / temperature, 0, (int32_t)i});
    const float least = top.n == k ? left->score : (float)-INFINITY;
    int64_t n = 0;
    for (int64_t i = 0; i < vocab; i++) {
        const float score = scores[i] / temperature;
        if (score >= least && score > (float)-INFINITY)
            left[n++] = (fsdp_candidate){score, 0, (int32_t)i};
    }
    return n;
}

/* --- warpers --- */

/* Return exp(score of candidate i - largest score). The candidates must be sorted. */
static double weight(const fsdp_candidate *left, int64_t i)
{
    return exp((double)left[i].score - (double)left[0].score);
}

static double total_weight(const fsdp_candidate *left, int64_t n)
{
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += weight(left, i);
    return total;
}

/* Top-p sampling (Holtzman et al. 2020, section 3.1). Return the smallest number k such that the
 * probabilities of the first k candidates sum to top_p or more. The candidates are sorted, so the
 * first k are the most likely ones. */
static int64_t keep_top_p(const fsdp_candidate *left, int64_t n, double top_p)
{
    double bound = top_p * total_weight(left, n), sum = 0;
    int64_t kept = 0;
    while (kept < n && (kept == 0 || sum < bound))
        sum += weight(left, kept++);
    return kept;
}

/* Return the number of candidates whose probability is at least min_p times the probability of the
 * first candidate. The candidates are sorted, so these are the first candidates. */
static int64_t keep_min_p(const fsdp_candidate *left, int64_t n, double min_p)
{
    int64_t kept = 0;
    while (kept < n && (kept == 0 || weight(left, kept) >= min_p))
        kept++;
    return kept;
}

/* Return the entropy of the n candidates, whose weights sum to `total`. */
static double entropy(const fsdp_candidate *left, int64_t n, double total)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double p = weight(left, i) / total;
        sum -= p > 0 ? p * log(p) : 0;
    }
    return sum;
}

/* The information content of candidate i is -log p. Return its distance from the entropy,
 * `mean`. */
static double surprise(const fsdp_candidate *left, int64_t i, double total, double mean)
{
    return fabs((double)left[0].score - (double)left[i].score + log(total) - mean);
}

/* Typical sampling (Meister et al. 2022, "Locally Typical Sampling"): keep the candidates whose
 * information content -log p is closest to the entropy. Keep the smallest number of candidates that
 * have a total probability of at least `mass`. Also keep other candidates that are exactly as close
 * to the entropy as the last one of them. The candidates are sorted by score, so the candidates
 * that are kept are adjacent. Move them to the front of `left`, and return their number. */
static int64_t keep_typical(fsdp_candidate *left, int64_t n, double mass)
{
    const double total = total_weight(left, n), mean = entropy(left, n, total);
    int64_t begin = 0, end;
    double sum = 0, last = 0;
    for (int64_t i = 1; i < n; i++)
        if (surprise(left, i, total, mean) < surprise(left, begin, total, mean))
            begin = i;
    for (end = begin; end - begin < n && (begin == end || sum < mass * total);) {
        const bool after = begin == 0 || (end < n && surprise(left, end, total, mean) <=
                                                         surprise(left, begin - 1, total, mean));
        const int64_t next = after ? end++ : --begin;
        sum += weight(left, next);
        last = surprise(left, next, total, mean);
    }
    while (end < n && surprise(left, end, total, mean) <= last)
        end++;
    while (begin > 0 && surprise(left, begin - 1, total, mean) <= last)
        begin--;
    memmove(left, left + begin, (size_t)(end - begin) * sizeof *left);
    return end - begin;
}

/* Return how many of the n candidates have at least the probability `least` or are as likely as the
 * first candidate. The candidates are sorted, so these are the first candidates. */
static int64_t keep_probable(const fsdp_candidate *left, int64_t n, double least)
{
    const double bound = least * total_weight(left, n);
    int64_t kept = 0;
    while (kept < n && (left[kept].score == left[0].score || weight(left, kept) >= bound))
        kept++;
    return kept;
}

/* Return the smallest probability that eta sampling keeps (Hewitt et al. 2022, "Truncation Sampling
 * as Language Model Desmoothing"). */
static double eta_bound(const fsdp_candidate *left, int64_t n, double epsilon)
{
    const double bound = sqrt(epsilon) * exp(-entropy(left, n, total_weight(left, n)));
    return bound < epsilon ? bound : epsilon;
}

/* Top-H sampling (Potraghloo et al. 2025, "Top-H Decoding"). Consider only the TOP_H_IDS most
 * likely candidates, as transformers does. Return the largest number k such that the terms -p log p
 * of the first k candidates sum to at most top_h times the entropy. The first candidate is always
 * kept. The candidates are sorted, so the first k are the most likely ones. */
static int64_t keep_top_h(const fsdp_candidate *left, int64_t n, double top_h)
{
    n = n < TOP_H_IDS ? n : TOP_H_IDS;
    const double total = total_weight(left, n), bound = top_h * entropy(left, n, total);
    double sum = 0;
    int64_t kept = 0;
    for (; kept < n; kept++) {
        const double p = weight(left, kept) / total;
        sum -= p > 0 ? p * log(p) : 0;
        if (kept > 0 && sum > bound)
            break;
    }
    return kept;
}

/* Return how many of the n candidates are at least as likely as the k-th one. The candidates are
 * sorted, so these are the first candidates. */
static int64_t keep_first(const fsdp_candidate *left, int64_t n, int64_t k)
{
    int64_t kept = k < n ? k : n;
    while (kept < n && left[kept].score == left[kept - 1].score)
        kept++;
    return kept;
}

int64_t fsdp_sampling_warp(const fsdp_generation_config *c, const float *scores, int64_t vocab,
                           fsdp_candidate *left)
{
    const int64_t most = c->top_k > 0 && c->top_k < vocab ? c->top_k : vocab;
    const bool few = c->top_h > 0 && most < TOP_H_IDS; /* top_h needs more than `most` ids */
    const int64_t k = !few ? most : TOP_H_IDS < vocab ? TOP_H_IDS : vocab;
    const float temperature = (float)c->temperature, best = scores[fsdp_argmax(scores, vocab)];
    if (isinf(best))
        return 0;
    /* The temperature is so close to 0 that only ids with the best score can be drawn. */
    if (!isfinite(best / temperature))
        return keep_best(scores, vocab, best, left);
    int64_t n = keep_top_k(scores, vocab, k, temperature, left);
    qsort(left, (size_t)n, sizeof *left, fsdp_candidate_order);
    if (c->top_h > 0)
        n = keep_first(left, keep_top_h(left, n, c->top_h), most);
    if (c->top_p < 1)
        n = keep_top_p(left, n, c->top_p);
    if (c->min_p > 0)
        n = keep_min_p(left, n, c->min_p);
    if (c->typical_p < 1)
        n = keep_typical(left, n, c->typical_p);
    if (c->epsilon_cutoff > 0)
        n = keep_probable(left, n, c->epsilon_cutoff);
    if (c->eta_cutoff > 0)
        n = keep_probable(left, n, eta_bound(left, n, c->eta_cutoff));
    return n;
}

/* Return a uniform random number in [0, 1) with 53 random bits. */
static double uniform(const fsdp_draw *draw)
{
    fsdp_philox bits = fsdp_philox4x32(fsdp_mix64(draw->seed), draw->row, draw->step);
    return (double)(((uint64_t)bits.v[0] << 32 | bits.v[1]) >> 11) * 0x1p-53;
}

int32_t fsdp_sample(const fsdp_generation_config *c, const float *scores, int64_t vocab,
                    const fsdp_draw *draw, fsdp_candidate *scratch)
{
    int64_t n = fsdp_sampling_warp(c, scores, vocab, scratch);
    double bound = uniform(draw) * total_weight(scratch, n), sum = 0;
    for (int64_t i = 0; i + 1 < n; i++) {
        sum += weight(scratch, i);
        if (bound < sum)
            return scratch[i].id;
    }
    return n > 0 ? scratch[n - 1].id : -1;
}
