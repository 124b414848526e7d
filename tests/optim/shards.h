/* Parameters whose values and gradients a test sets. They are given as whole arrays, of which each
 * rank keeps its rows. The module has no forward. */
#pragma once
#include <fsdp/fsdp.h>
#include <fsdp/optim.h>

/* A module "Weights" with one parameter [rows[i], width] (width 0: a vector) for each i, named p0,
 * p1, ... */
FSDP_MUST_CHECK fsdp_status shards_create(const int64_t *rows, int n, int64_t width,
                                          fsdp_module **module);
FSDP_MUST_CHECK fsdp_status shards_set_values(fsdp_parameter *p, const float *whole);
/* `whole` NULL: no gradient. */
FSDP_MUST_CHECK fsdp_status shards_set_grad(fsdp_parameter *p, const float *whole);
/* Gathers a local tensor (parameter, gradient, state) into a whole array. Collective. */
FSDP_MUST_CHECK fsdp_status shards_full(fsdp_tensor *local, float *whole);
/* Element i of tensor `key`, in [-1, 1). */
float shards_random(uint64_t key, int64_t i);
