/* See top_k.h. */
#include <stdbool.h>
#include <stdlib.h>

#include "src/generate/top_k.h"

int fsdp_candidate_order(const void *a, const void *b)
{
    const fsdp_candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->beam != y->beam)
        return x->beam < y->beam ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_worse(const fsdp_candidate *a, const fsdp_candidate *b)
{
    return fsdp_candidate_order(a, b) > 0;
}

static void swap(fsdp_candidate *a, fsdp_candidate *b)
{
    fsdp_candidate t = *a;
    *a = *b;
    *b = t;
}

static void sift_up(fsdp_candidate *heap, int64_t at)
{
    for (; at > 0 && is_worse(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap[at], &heap[(at - 1) / 2]);
}

static void sift_down(fsdp_candidate *heap, int64_t n)
{
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_worse(&heap[child + 1], &heap[child]))
            child++;
        if (!is_worse(&heap[child], &heap[at]))
            return;
        swap(&heap[at], &heap[child]);
    }
}

void fsdp_top_k_add(fsdp_top_k *top, fsdp_candidate candidate)
{
    if (top->n < top->k) {
        top->items[top->n] = candidate;
        sift_up(top->items, top->n++);
    } else {
        top->items[0] = candidate;
        sift_down(top->items, top->n);
    }
}

void fsdp_top_k_sort(fsdp_top_k *top)
{
    qsort(top->items, (size_t)top->n, sizeof *top->items, fsdp_candidate_order);
}
