/* See logits_process.h. */
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

/* Ban each id that would complete an n-gram that `ids` already contains. */
static void ban_repeated_ngrams(size_t n, const fsdp_token_list *ids, float *scores, int64_t vocab)
{
    if (ids->len < n)
        return;
    const int32_t *suffix = ids->ids + ids->len - (n - 1);
    for (size_t at = 0; at + n <= ids->len; at++)
        if (memcmp(ids->ids + at, suffix, (n - 1) * sizeof *suffix) == 0)
            ban(scores, vocab, ids->ids[at + n - 1]);
}

void fsdp_logits_process(const fsdp_generation_config *c, const fsdp_token_list *ids,
                         int64_t prompt_length, float *scores, int64_t vocab, float *scratch)
{
    if (c->repetition_penalty != 1.0)
        penalize_repetition((float)c->repetition_penalty, ids, scores, vocab, scratch);
    if (c->no_repeat_ngram_size > 0)
        ban_repeated_ngrams((size_t)c->no_repeat_ngram_size, ids, scores, vocab);
    int64_t n_new = (int64_t)ids->len - prompt_length;
    if (n_new < fsdp_generation_config_min_new(c, prompt_length))
        for (int i = 0; i < c->n_eos; i++)
            ban(scores, vocab, c->eos_token_ids[i]);
}
