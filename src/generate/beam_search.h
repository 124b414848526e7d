/* Beam search for one prompt, by the rules of transformers 5's _beam_search().
 *
 * A step has one row of scores for each beam under way. Of all continuations the best
 * (1 + ends of sequence, at least 2) * num_beams are candidates, by the sum of their scores. Those
 * of the first num_beams that end compete for the num_beams finished places, by sum /
 * length ^ length_penalty, where length counts new ids, the end included; the best num_beams that
 * do not end go on. Equal candidates rank by beam, then id.
 *
 *     fsdp_beam_search_create(config, ids, n, max_new, &search);
 *     while (!fsdp_beam_search_done(search)) {
 *         for each i < search->n_running: log-probabilities of what follows running[i].ids,
 *             processed (logits_process.h); fsdp_beam_search_offer(search, i, scores, vocab);
 *         fsdp_beam_search_advance(search);      running[i] now continues running[i].parent
 *     }
 *     results: search->finished[0 .. n_finished), best first
 */
#pragma once
#include <fsdp/text.h>

#include "src/models/generation_config.h"
#include "src/generate/top_k.h"

typedef struct fsdp_beam {
    fsdp_token_list ids; /* the prompt's first */
    float score;         /* under way: sum of scores; finished: divided by the length's power */
    int32_t parent;      /* under way: which beam of the step before it continues */
} fsdp_beam;

typedef struct fsdp_beam_search {
    const fsdp_generation_config *config; /* borrowed */
    int64_t max_new, n_new;               /* new ids at most; of the beams under way */
    fsdp_beam *running, *finished;        /* [num_beams]; finished: best first */
    fsdp_beam *next;                      /* [num_beams]: of the step under way */
    int32_t n_running, n_finished;
    fsdp_top_k candidates; /* of the step under way, by the sum of scores */
    bool done;
} fsdp_beam_search;

/* One beam: the prompt ids [n]. max_new > 0. */
FSDP_MUST_CHECK fsdp_status fsdp_beam_search_create(const fsdp_generation_config *config,
                                                    const int32_t *ids, size_t n, int64_t max_new,
                                                    fsdp_beam_search **search);
void fsdp_beam_search_destroy(fsdp_beam_search *search); /* accepts NULL */
/* Scores [vocab] of what follows beam `beam`; those of -INFINITY are no candidates. Beams in rising
 * order, each once a step. */
void fsdp_beam_search_offer(fsdp_beam_search *search, int32_t beam, const float *scores,
                            int64_t vocab);
/* All beams were offered: end the step. Afterwards the search is done, or running[0 .. n_running)
 * are what goes on; of parents, any number in any order. */
FSDP_MUST_CHECK fsdp_status fsdp_beam_search_advance(fsdp_beam_search *search);

/* scores - log(sum of exp(scores)), in place. False if one is NaN or +INFINITY. */
bool fsdp_log_softmax(float *scores, int64_t vocab);
