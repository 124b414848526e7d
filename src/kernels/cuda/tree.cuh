/* Computes sums in the order of the aligned binary tree: ((0+1)+(2+3))+... */
#pragma once
#include "src/kernels/cuda/elements.cuh"

/* Return the sum of term(first) to term(first + N - 1); N is a power of two. `term` must return -0
 * for a term that does not exist. x + -0 has the bits of x, so a term without a partner does not
 * change. */
template <int N, typename T, typename F> FSDP_DEVICE T tree_of(const F &term, int first = 0)
{
    if constexpr (N == 1)
        return term(first);
    else
        return tree_of<N / 2, T>(term, first) + tree_of<N / 2, T>(term, first + N / 2);
}
