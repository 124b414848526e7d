/* Beam search for one prompt, by the rules of transformers 5's _beam_search().
 *
 * A step has one row of scores for each running beam. The continuations of all beams are ordered by
 * the sum of their scores. The best k * num_beams of them are candidates, where k is 1 + the number
 * of end-of-sequence ids, but at least 2. A candidate has ended if its last id is an end of
 * sequence, or if it has max_new new ids. A candidate that has ended becomes a finished beam if it
 * is among the first num_beams candidates and good enough. There are at most num_beams finished
 * beams: those with the largest sum / length ^ length_penalty, where length is the number of new
 * ids, including the end of sequence. The best num_beams candidates that have not ended continue.
 * Candidates with equal sums are ordered by beam, then by id.
 *
 *     fsdp_beam_search_create(config, ids, n, max_new, &search);
 *     while (!search->done) {
 *         for each i < search->n_running: log-probabilities of what follows running[i].ids,
 *             processed (logits_process.h); fsdp_beam_search_offer(search, i, scores, vocab);
 *         fsdp_beam_search_advance(search);      running[i] now continues running[i].parent
 *     }
 *     results: search->finished[0 .. n_finished), best first */
#pragma once
#include <fsdp/text.h>

#include "src/generate/top_k.h"
#include "src/models/generation_config.h"

typedef struct fsdp_beam {
    fsdp_token_list ids; /* the prompt, then the new ids */
    float score;         /* running: sum of scores; finished: sum / length ^ length_penalty */
    int32_t parent; /* running: index of the beam of the previous step that this beam continues */
} fsdp_beam;

typedef struct fsdp_beam_search {
    const fsdp_generation_config *config; /* borrowed */
    int64_t max_new, n_new;        /* limit of new ids; number of new ids of the running beams */
    fsdp_beam *running, *finished; /* [num_beams]; finished: best first */
    fsdp_beam *next;               /* [num_beams]: running beams after the current step */
    int32_t n_running, n_finished;
    fsdp_top_k candidates; /* candidates of the current step, by the sum of scores */
    bool done;
} fsdp_beam_search;

/* Create a search with one running beam, which consists of the prompt's ids [n]. max_new must be
 * above 0. */
FSDP_MUST_CHECK fsdp_status fsdp_beam_search_create(const fsdp_generation_config *config,
                                                    const int32_t *ids, size_t n, int64_t max_new,
                                                    fsdp_beam_search **search);
void fsdp_beam_search_destroy(fsdp_beam_search *search); /* accepts NULL */
/* Offer the scores [vocab] of the ids that may follow beam `beam`. A score of -INFINITY excludes an
 * id. Call this once for each beam of a step, in ascending order of beams. */
void fsdp_beam_search_offer(fsdp_beam_search *search, int32_t beam, const float *scores,
                            int64_t vocab);
/* End a step in which all beams were offered. Afterwards the search is done, or running[0 ..
 * n_running) are the beams that continue. Several running beams may have the same parent, and
 * parents are in no particular order. */
FSDP_MUST_CHECK fsdp_status fsdp_beam_search_advance(fsdp_beam_search *search);

/* Subtract log(sum of exp(scores)) from all scores, in place. Returns false if a score is NaN or
 * +INFINITY. */
bool fsdp_log_softmax(float *scores, int64_t vocab);
