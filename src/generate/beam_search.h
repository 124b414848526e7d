/* Beam search for one prompt, by the rules of transformers 5's _beam_search().
 *
 * A beam is a sequence of ids: the prompt, then the new ids. In each step, the caller passes one
 * row of scores for each running beam to fsdp_beam_search_offer(): the score of each id of the
 * vocabulary as the next id of this beam. A beam with one more id is a continuation. Its score is
 * the sum of the scores of its new ids. The best k * num_beams continuations of a step are its
 * candidates, where k is 1 + the number of end-of-sequence ids, but at least 2. Candidates with
 * equal scores are ordered by beam, then by id.
 *
 * A candidate has ended if its last id is an end of sequence or completes a stop string, or if it
 * has max_new new ids. If one of the best num_beams candidates has ended, it may become a finished
 * beam. The search keeps the num_beams finished beams with the largest sum / length ^
 * length_penalty. Here, length is the number of new ids, including the end of sequence. The best
 * num_beams candidates that have not ended become the running beams of the next step.
 *
 *     fsdp_beam_search_create(config, ids, n, max_new, &search);
 *     while (!search->done) {
 *         for each i < search->n_running: compute the log-probabilities of the next id after
 *             running[i].ids, change them as in logits_process.h, and call
 *             fsdp_beam_search_offer(search, i, scores, vocab);
 *         fsdp_beam_search_advance(search);      running[i] now continues running[i].parent
 *     }
 *     results: search->finished[0 .. n_finished), best first */
#pragma once
#include <fsdp/text.h>

#include "src/generate/stop_strings.h"
#include "src/generate/top_k.h"
#include "src/models/generation_config.h"

typedef struct fsdp_beam {
    fsdp_token_list ids; /* the prompt, then the new ids */
    /* running beam: sum of the scores of its new ids; finished beam: this sum / (number of new ids)
     * ^ length_penalty */
    float score;
    /* running beam: index of the beam of the previous step that this beam continues */
    int32_t parent;
} fsdp_beam;

typedef struct fsdp_beam_search {
    const fsdp_generation_config *config; /* borrowed */
    const fsdp_stop_strings *stop;        /* borrowed; NULL: no text ends a sequence */
    /* max_new: the largest number of new ids of a beam. n_new: the number of new ids that each
     * running beam has. */
    int64_t max_new, n_new;
    fsdp_beam *running, *finished; /* [num_beams] each; `finished` is sorted, best first */
    fsdp_beam *next;               /* [num_beams]: memory in which the running beams of the next
                                    * step are made */
    int32_t n_running, n_finished;
    fsdp_top_k candidates; /* the best continuations of the current step so far */
    bool done;
} fsdp_beam_search;

/* Create a search. It has one running beam, the prompt `ids` [n]. max_new must be above 0. */
FSDP_MUST_CHECK fsdp_status fsdp_beam_search_create(const fsdp_generation_config *config,
                                                    const int32_t *ids, size_t n, int64_t max_new,
                                                    fsdp_beam_search **search);
void fsdp_beam_search_destroy(fsdp_beam_search *search); /* accepts NULL */
/* Pass the score of each id of the vocabulary [vocab] as the next id of running[beam]. A score of
 * -INFINITY excludes the id. In each step, call this once for each running beam, in ascending order
 * of `beam`. */
void fsdp_beam_search_offer(fsdp_beam_search *search, int32_t beam, const float *scores,
                            int64_t vocab);
/* End a step. Call this after fsdp_beam_search_offer() has been called for all running beams.
 * Afterwards, either search->done is true, or running[0 .. n_running) are the running beams of the
 * next step. Several of these beams may have the same parent, and the parents are in no particular
 * order. */
FSDP_MUST_CHECK fsdp_status fsdp_beam_search_advance(fsdp_beam_search *search);

/* Subtract log(sum of exp(scores)) from all scores, in place. Returns false if a score is NaN or
 * +INFINITY, or if all scores are -INFINITY. */
bool fsdp_log_softmax(float *scores, int64_t vocab);
