/* Singular value decompositions, in float64. Results depend only on the arguments, not on the
 * number of threads. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "src/base/error.h"

/* The r largest singular values of a matrix [rows, cols] with their vectors, largest first:
 * the matrix is approximately u diag(s) v^T. */
typedef struct fsdp_svd {
    double *u; /* [rows, r]; owned */
    double *s; /* [r]; owned */
    double *v; /* [cols, r]; owned */
} fsdp_svd;

/* Decompose w [rows, cols] exactly, by one-sided Jacobi rotations (Hestenes 1958). This takes about
 * 60 k^2 l operations, where k is the smaller dimension and l the larger one. 1 <= r <= k. The
 * caller frees *svd with fsdp_svd_fini(), also after a failure.
 * @return FSDP_ERR_INVALID if an element is not finite; FSDP_ERR_NOMEM */
FSDP_MUST_CHECK fsdp_status fsdp_svd_exact(const float *w, int64_t rows, int64_t cols, int64_t r,
                                           fsdp_svd *svd);
/* Approximate the decomposition by `niter` iterations from r random vectors (Halko et al. 2009,
 * arXiv 0909.4061, algorithm 5.1), as torch.svd_lowrank(w, r, niter) does. This takes about
 * (8 + 8 niter) rows cols r operations. The random vectors are a function of `seed`. In all other
 * respects, this function is like fsdp_svd_exact(). */
FSDP_MUST_CHECK fsdp_status fsdp_svd_low_rank(const float *w, int64_t rows, int64_t cols, int64_t r,
                                              int niter, uint64_t seed, fsdp_svd *svd);
void fsdp_svd_fini(fsdp_svd *svd);
