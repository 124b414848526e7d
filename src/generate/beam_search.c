/* See beam_search.h. */
#include <math.h>

#include "src/base/alloc.h"
#include "src/generate/beam_search.h"
#include "src/generate/logits_process.h"

static fsdp_status create_beams(const fsdp_generation_config *c, fsdp_beam_search *s)
{
    const int64_t n = c->num_beams;
    s->candidates.k = n * (c->n_eos > 1 ? 1 + c->n_eos : 2);
    s->running = fsdp_calloc((size_t)n, sizeof *s->running);
    s->next = fsdp_calloc((size_t)n, sizeof *s->next);
    s->finished = fsdp_calloc((size_t)n, sizeof *s->finished);
    s->candidates.items = fsdp_calloc((size_t)s->candidates.k, sizeof *s->candidates.items);
    return s->running && s->next && s->finished && s->candidates.items ? FSDP_OK : FSDP_ERR_NOMEM;
}

fsdp_status fsdp_beam_search_create(const fsdp_generation_config *config, const int32_t *ids,
                                    size_t n, int64_t max_new, fsdp_beam_search **search)
{
    fsdp_beam_search *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    s->config = config;
    s->max_new = max_new;
    s->n_running = 1;
    fsdp_status status = create_beams(config, s);
    if (status == FSDP_OK)
        status = fsdp_token_list_set(&s->running->ids, ids, n);
    if (status == FSDP_OK)
        *search = s;
    else
        fsdp_beam_search_destroy(s);
    return status;
}

static void free_beams(fsdp_beam *beams, int64_t n)
{
    for (int64_t i = 0; beams && i < n; i++)
        fsdp_token_list_fini(&beams[i].ids);
    fsdp_free(beams);
}

void fsdp_beam_search_destroy(fsdp_beam_search *s)
{
    if (!s)
        return;
    free_beams(s->running, s->config->num_beams);
    free_beams(s->next, s->config->num_beams);
    free_beams(s->finished, s->config->num_beams);
    fsdp_free(s->candidates.items);
    fsdp_free(s);
}

void fsdp_beam_search_offer(fsdp_beam_search *s, int32_t beam, const float *scores, int64_t vocab)
{
    const float before = s->running[beam].score;
    for (int64_t id = 0; id < vocab; id++)
        fsdp_top_k_offer(&s->candidates, (fsdp_candidate){scores[id] + before, beam, (int32_t)id});
}

/* --- the end of a step: candidates become finished beams or running beams --- */

static fsdp_status continue_beam(const fsdp_beam_search *s, const fsdp_candidate *c,
                                 fsdp_beam *beam)
{
    const fsdp_token_list *ids = &s->running[c->beam].ids;
    FSDP_TRY(fsdp_token_list_set(&beam->ids, ids->ids, ids->len));
    if (!FSDP_GROW(beam->ids.ids, beam->ids.cap, ids->len + 1))
        return FSDP_ERR_NOMEM;
    beam->ids.ids[beam->ids.len++] = c->id;
    beam->score = c->score;
    beam->parent = c->beam;
    return FSDP_OK;
}

static float final_score(const fsdp_beam_search *s, float sum, int64_t length)
{
    return sum / (float)pow((double)length, s->config->length_penalty);
}

static bool is_full(const fsdp_beam_search *s)
{
    return s->n_finished == s->config->num_beams;
}

/* Candidate c has ended. Add it to the finished beams, which are sorted; beams with an equal score
 * come before it. If there are already num_beams finished beams, the candidate replaces the worst
 * one. If it is not better than the worst one, do nothing. */
static fsdp_status add_finished(fsdp_beam_search *s, const fsdp_candidate *c)
{
    const float score = final_score(s, c->score, s->n_new);
    if (is_full(s) && score <= s->finished[s->n_finished - 1].score)
        return FSDP_OK;
    fsdp_beam beam = s->finished[is_full(s) ? s->n_finished - 1 : s->n_finished];
    fsdp_status status = continue_beam(s, c, &beam);
    int32_t at = is_full(s) ? s->n_finished - 1 : s->n_finished;
    /* `beam` is stored even if continue_beam() has failed, because that call may have moved
     * beam.ids to other memory */
    s->finished[at] = beam;
    FSDP_TRY(status);
    beam.score = score;
    for (; at > 0 && s->finished[at - 1].score < score; at--)
        s->finished[at] = s->finished[at - 1];
    s->finished[at] = beam;
    if (!is_full(s))
        s->n_finished++;
    return FSDP_OK;
}

/* Return true if the search must continue. It continues at least until num_beams beams have
 * finished. After that, config->early_stopping decides. */
static bool can_improve(const fsdp_beam_search *s)
{
    if (!is_full(s))
        return true;
    if (s->config->early_stopping == FSDP_EARLY_STOPPING_TRUE)
        return false;
    bool longest =
        s->config->early_stopping == FSDP_EARLY_STOPPING_NEVER && s->config->length_penalty > 0;
    int64_t length = longest ? s->max_new : s->n_new;
    return final_score(s, s->running[0].score, length) > s->finished[s->n_finished - 1].score;
}

static fsdp_status has_ended(const fsdp_beam_search *s, const fsdp_candidate *c, bool *ended)
{
    const fsdp_token_list *ids = &s->running[c->beam].ids;
    *ended = s->n_new == s->max_new || fsdp_is_end_of_sequence(s->config, c->id);
    if (*ended || !s->stop)
        return FSDP_OK;
    return fsdp_stop_strings_check(s->stop, ids->ids, ids->len, c->id, ended);
}

/* Process the candidates, from the best to the worst. A candidate that has ended may become a
 * finished beam (beam_search.h). The best num_beams candidates that have not ended become the
 * running beams of the next step. */
static fsdp_status place_candidates(fsdp_beam_search *s)
{
    int32_t going_on = 0;
    for (int64_t i = 0; i < s->candidates.n; i++) {
        const fsdp_candidate *c = &s->candidates.items[i];
        bool ended;
        FSDP_TRY(has_ended(s, c, &ended));
        if (ended) {
            if (i < s->config->num_beams)
                FSDP_TRY(add_finished(s, c));
        } else if (going_on < s->config->num_beams) {
            FSDP_TRY(continue_beam(s, c, &s->next[going_on++]));
        }
    }
    fsdp_beam *next = s->next;
    s->next = s->running;
    s->running = next;
    s->n_running = going_on;
    return FSDP_OK;
}

fsdp_status fsdp_beam_search_advance(fsdp_beam_search *s)
{
    s->n_new++;
    fsdp_top_k_sort(&s->candidates);
    FSDP_TRY(place_candidates(s));
    s->candidates.n = 0;
    s->done = s->n_running == 0 || !can_improve(s);
    return FSDP_OK;
}

bool fsdp_log_softmax(float *scores, int64_t vocab)
{
    float largest = (float)-INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        largest = scores[i] > largest ? scores[i] : largest;
    for (int64_t i = 0; i < vocab; i++)
        sum += (double)expf(scores[i] - largest);
    if (!isfinite(sum))
        return false;
    const float shift = (float)log(sum);
    for (int64_t i = 0; i < vocab; i++)
        scores[i] = scores[i] - largest - shift;
    return true;
}
