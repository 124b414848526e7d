/* Finds the k candidates with the largest scores, with a heap. */
#pragma once
#include <math.h>
#include <stdint.h>

/* A possible next id of a beam. */
typedef struct fsdp_candidate {
    float score;
    int32_t beam, id;
} fsdp_candidate;

typedef struct fsdp_top_k {
    /* [k], memory of the caller. Until fsdp_top_k_sort() is called, the first n items are a heap,
     * and items[0] is the worst of them. */
    fsdp_candidate *items;
    int64_t k, n;
} fsdp_top_k;

/* Compare two candidates for qsort(). The candidate with the larger score comes first. Candidates
 * with equal scores are in ascending order of beam, then of id. */
int fsdp_candidate_order(const void *a, const void *b);
void fsdp_top_k_add(fsdp_top_k *top, fsdp_candidate candidate);
/* Sort the items, best first. */
void fsdp_top_k_sort(fsdp_top_k *top);

/* Offer a candidate. If two candidates have an equal score, the one that was offered first is
 * preferred. So candidates must be offered in ascending order of beam, then of id. A score of
 * -INFINITY is ignored. */
static inline void fsdp_top_k_offer(fsdp_top_k *top, fsdp_candidate candidate)
{
    if (candidate.score > (top->n == top->k ? top->items->score : (float)-INFINITY))
        fsdp_top_k_add(top, candidate);
}
