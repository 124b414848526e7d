/* The best k of candidates that come one after the other, by a heap. */
#pragma once
#include <math.h>
#include <stdint.h>

/* A next id, of one of several beams. */
typedef struct fsdp_candidate {
    float score;
    int32_t beam, id;
} fsdp_candidate;

typedef struct fsdp_top_k {
    fsdp_candidate *items; /* [k], the caller's; until sorted a heap with the worst first */
    int64_t k, n;
} fsdp_top_k;

/* For qsort, best first: by score; of equals, the earlier beam and the lower id. */
int fsdp_candidate_order(const void *a, const void *b);
void fsdp_top_k_add(fsdp_top_k *top, fsdp_candidate candidate);
/* Best first. */
void fsdp_top_k_sort(fsdp_top_k *top);

/* Offer candidates in rising order of beam and id: a later one loses to an equal earlier one. One
 * of -INFINITY is none. */
static inline void fsdp_top_k_offer(fsdp_top_k *top, fsdp_candidate candidate)
{
    if (candidate.score > (top->n == top->k ? top->items->score : (float)-INFINITY))
        fsdp_top_k_add(top, candidate);
}
