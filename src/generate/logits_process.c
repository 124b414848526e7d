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
static void penalize_repetition(float penalty, const int32_t *ids, size_t n, float *scores,
                                int64_t vocab, float *scratch)
{
    for (size_t i = 0; i < n; i++) {
        float score = ids[i] < vocab ? scores[ids[i]] : 0.0f;
        scratch[i] = score < 0 ? score * penalty : score / penalty;
    }
    for (size_t i = 0; i < n; i++)
        if (ids[i] < vocab)
            scores[ids[i]] = scratch[i];
}

/* For no_repeat_ngram_size: ban each id that would complete an n-gram that `from` contains. */
static void ban_repeated_ngrams(size_t n, const fsdp_token_list *ids, const fsdp_source_ids *from,
                                float *scores, int64_t vocab)
{
    if (ids->len < n - 1)
        return;
    const int32_t *suffix = ids->ids + ids->len - (n - 1);
    for (size_t at = 0; at + n <= from->n; at++)
        if (memcmp(from->ids + at, suffix, (n - 1) * sizeof *suffix) == 0)
            ban(scores, vocab, from->ids[at + n - 1]);
}

/* A sequence of sequence_bias whose last id may come next. */
typedef struct biased_id {
    int32_t id;
    float bias; /* sum of the numbers of all such sequences with this last id */
} biased_id;

/* Add `bias` to the number of `id` in found [n], and return the new n. */
static int32_t add_bias(biased_id *found, int32_t n, int32_t id, float bias)
{
    for (int32_t i = 0; i < n; i++)
        if (found[i].id == id) {
            found[i].bias += bias;
            return n;
        }
    found[n] = (biased_id){id, bias};
    return n + 1;
}

/* For sequence_bias, which assigns a bias to each of several sequences of ids. If a sequence would
 * be complete after one more id, add its bias to the score of this id. */
static void add_biases(const fsdp_rule_biases *biases, const fsdp_token_list *ids, float *scores,
                       int64_t vocab)
{
    const int32_t *all = biases->words.ids;
    biased_id found[FSDP_MAX_RULE_IDS];
    int32_t n = 0;
    for (int32_t i = 0, begin = 0, end; i < biases->n; i++, begin = end + 1) {
        for (end = begin; all[end] != FSDP_END_OF_WORD;)
            end++;
        const size_t before = (size_t)(end - begin) - 1;
        if (before <= ids->len &&
            memcmp(ids->ids + ids->len - before, all + begin, before * sizeof *ids->ids) == 0)
            n = add_bias(found, n, all[end - 1], biases->biases[i]);
    }
    for (int32_t i = 0; i < n; i++)
        if (found[i].id < vocab)
            scores[found[i].id] += found[i].bias;
}

/* For remove_invalid_values. */
static void remove_invalid_values(float *scores, int64_t vocab)
{
    for (int64_t i = 0; i < vocab; i++)
        scores[i] = isnan(scores[i]) ? 0.0f : fmaxf(-FLT_MAX, fminf(FLT_MAX, scores[i]));
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
    if (c->remove_invalid_values)
        remove_invalid_values(scores, vocab);
    if (c->exponential_decay_length_penalty.factor > 0)
        raise_ends(c, length - prompt_length, scores, vocab);
    ban_ids(&c->suppress_tokens, scores, vocab);
    if (length == begin)
        ban_ids(&c->begin_suppress_tokens, scores, vocab);
}

void fsdp_logits_process(const fsdp_generation_config *c, const fsdp_token_list *ids,
                         int64_t prompt_length, const fsdp_source_ids *source, float *scores,
                         int64_t vocab, float *scratch)
{
    const fsdp_source_ids own = {ids->ids, ids->len};
    if (c->sequence_bias.n > 0)
        add_biases(&c->sequence_bias, ids, scores, vocab);
    if (c->encoder_repetition_penalty > 0 && c->encoder_repetition_penalty != 1.0)
        penalize_repetition((float)(1 / c->encoder_repetition_penalty), source->ids, source->n,
                            scores, vocab, scratch);
    if (c->repetition_penalty != 1.0)
        penalize_repetition((float)c->repetition_penalty, ids->ids, ids->len, scores, vocab,
                            scratch);
    if (c->no_repeat_ngram_size > 0)
        ban_repeated_ngrams((size_t)c->no_repeat_ngram_size, ids, &own, scores, vocab);
    if (c->encoder_no_repeat_ngram_size > 0)
        ban_repeated_ngrams((size_t)c->encoder_no_repeat_ngram_size, ids, source, scores, vocab);
    ban_words(c, ids, scores, vocab);
    int64_t n_new = (int64_t)ids->len - prompt_length;
    if (n_new < fsdp_generation_config_min_new(c, prompt_length))
        for (int i = 0; i < c->n_eos; i++)
            ban(scores, vocab, c->eos_token_ids[i]);
    apply_places(c, (int64_t)ids->len, prompt_length, scores, vocab);
}
