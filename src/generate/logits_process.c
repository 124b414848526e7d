/* See logits_process.h. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "src/generate/logits_process.h"

bool fsdp_is_end_of_sequence(const fsdp_generation_config *config, int32_t id)
{
    for (int i = 0; i < config->n_eos; i++)
        if (config->eos_token_ids[i] == id)
            return true;
    return false;
}

static void ban(float *scores, int64_t vocab, int64_t id)
{
    if (id >= 0 && id < vocab)
        scores[id] = (float)-INFINITY;
}

/* Apply the repetition penalty of Keskar et al. 2019 ("CTRL"), section 4.1. The paper divides every
 * score by the penalty. This function instead multiplies a negative score by the penalty, so that
 * the penalty also lowers negative scores. An id that occurs several times in `ids` is penalized
 * only once, because all scores are read before the first one is written. */
static void penalize_repetition(float penalty, const fsdp_token_list *ids, float *scores,
                                int64_t vocab, float *scratch)
{
    for (size_t i = 0; i < ids->len; i++) {
        float score = ids->ids[i] < vocab ? scores[ids->ids[i]] : 0.0f;
        scratch[i] = score < 0 ? score * penalty : score / penalty;
    }
    for (size_t i = 0; i < ids->len; i++)
        if (ids->ids[i] < vocab)
            scores[ids->ids[i]] = scratch[i];
}

/* For no_repeat_ngram_size: ban each id that would complete an n-gram that `ids` already
 * contains. */
static void ban_repeated_ngrams(size_t n, const fsdp_token_list *ids, float *scores, int64_t vocab)
{
    if (ids->len < n)
        return;
    const int32_t *suffix = ids->ids + ids->len - (n - 1);
    for (size_t at = 0; at + n <= ids->len; at++)
        if (memcmp(ids->ids + at, suffix, (n - 1) * sizeof *suffix) == 0)
            ban(scores, vocab, ids->ids[at + n - 1]);
}

/* A bad word is a sequence of ids. Ban the last id of a bad word if `ids` ends with the other ids
 * of this bad word. As in transformers, a bad word that consists only of an end-of-sequence id has
 * no effect. */
static void ban_words(const fsdp_generation_config *c, const fsdp_token_list *ids, float *scores,
                      int64_t vocab)
{
    const fsdp_rule_words *words = &c->bad_words_ids;
    for (int32_t i = 0, end; i < words->n; i = end + 1) {
        for (end = i; words->ids[end] != FSDP_END_OF_WORD;)
            end++;
        const size_t before = (size_t)(end - i) - 1;
        const int32_t last = words->ids[end - 1];
        if (before == 0 && fsdp_is_end_of_sequence(c, last))
            continue;
        if (before <= ids->len &&
            memcmp(ids->ids + ids->len - before, words->ids + i, before * sizeof *ids->ids) == 0)
            ban(scores, vocab, last);
    }
}

static void ban_ids(const fsdp_rule_ids *banned, float *scores, int64_t vocab)
{
    for (int32_t i = 0; i < banned->n; i++)
        ban(scores, vocab, banned->ids[i]);
}

/* Allow only the ids of `forced`, and give them the score 0. */
static void force_ids(const fsdp_rule_ids *forced, float *scores, int64_t vocab)
{
    for (int64_t i = 0; i < vocab; i++)
        scores[i] = (float)-INFINITY;
    for (int32_t i = 0; i < forced->n; i++)
        if (forced->ids[i] < vocab)
            scores[forced->ids[i]] = 0;
}

/* For exponential_decay_length_penalty: if there are more than decay->start new ids, raise the
 * scores of the end-of-sequence ids. Each further new id raises these scores more. */
static void raise_ends(const fsdp_generation_config *c, int64_t n_new, float *scores, int64_t vocab)
{
    const fsdp_length_decay *decay = &c->exponential_decay_length_penalty;
    if (n_new <= decay->start)
        return;
    /* The power may be infinite. 0 * inf would be NaN. */
    const double power = pow(decay->factor, (double)(n_new - decay->start));
    const float growth = (float)(fmin(power, (double)FLT_MAX) - 1);
    for (int i = 0; i < c->n_eos; i++) {
        const int64_t id = c->eos_token_ids[i];
        if (id >= 0 && id < vocab && isfinite(scores[id]))
            scores[id] = fminf(scores[id] + fabsf(scores[id]) * growth, FLT_MAX);
    }
}

/* Apply the settings that force or suppress certain ids at the beginning or at the end of the
 * sequence. */
static void apply_places(const fsdp_generation_config *c, int64_t length, int64_t prompt_length,
                         float *scores, int64_t vocab)
{
    const int64_t most = prompt_length + fsdp_generation_config_max_new(c, prompt_length);
    const int64_t begin =
        prompt_length > 1 || !c->forced_bos_token_id.n ? prompt_length : prompt_length + 1;
    if (c->forced_bos_token_id.n && length == 1)
        force_ids(&c->forced_bos_token_id, scores, vocab);
    if (c->forced_eos_token_id.n && length == most - 1)
        force_ids(&c->forced_eos_token_id, scores, vocab);
    if (c->exponential_decay_length_penalty.factor > 0)
        raise_ends(c, length - prompt_length, scores, vocab);
    ban_ids(&c->suppress_tokens, scores, vocab);
    if (length == begin)
        ban_ids(&c->begin_suppress_tokens, scores, vocab);
}

void fsdp_logits_process(const fsdp_generation_config *c, const fsdp_token_list *ids,
                         int64_t prompt_length, float *scores, int64_t vocab, float *scratch)
{
    if (c->repetition_penalty != 1.0)
        penalize_repetition((float)c->repetition_penalty, ids, scores, vocab, scratch);
    if (c->no_repeat_ngram_size > 0)
        ban_repeated_ngrams((size_t)c->no_repeat_ngram_size, ids, scores, vocab);
    ban_words(c, ids, scores, vocab);
    int64_t n_new = (int64_t)ids->len - prompt_length;
    if (n_new < fsdp_generation_config_min_new(c, prompt_length))
        for (int i = 0; i < c->n_eos; i++)
            ban(scores, vocab, c->eos_token_ids[i]);
    apply_places(c, (int64_t)ids->len, prompt_length, scores, vocab);
}
