/* The best k of a sequence of candidates, kept in a heap. */
#pragma once
#include <math.h>
#include <stdint.h>

/* A possible next id of one of several beams. */
typedef struct fsdp_candidate {
    float score;
    int32_t beam, id;
} fsdp_candidate;

typedef struct fsdp_top_k {
    fsdp_candidate *items; /* [k], the caller's memory; a heap with the worst first until sorted */
    int64_t k, n;
} fsdp_top_k;

/* For qsort, best first: by score; among equals by beam, then by id, ascending. */
int fsdp_candidate_order(const void *a, const void *b);
void fsdp_top_k_add(fsdp_top_k *top, fsdp_candidate candidate);
/* Sorts the items, best first. */
void fsdp_top_k_sort(fsdp_top_k *top);

/* Offer candidates in ascending order of beam and id: a later one loses to an equal earlier one. A
 * score of -INFINITY is ignored. */
static inline void fsdp_top_k_offer(fsdp_top_k *top, fsdp_candidate candidate)
{
    if (candidate.score > (top->n == top->k ? top->items->score : (float)-INFINITY))
        fsdp_top_k_add(top, candidate);
}
