/* Parameters whose values and gradients a test writes itself, given as whole arrays: each rank
 * keeps its rows. The module has no forward. */
#pragma once
#include <fsdp/fsdp.h>
#include <fsdp/optim.h>

/* A module "weights" with one parameter [rows[i], width] (width 0: a vector) named p0, p1, ... */
FSDP_MUST_CHECK fsdp_status shards_create(const int64_t *rows, int n, int64_t width,
                                          fsdp_module **module);
FSDP_MUST_CHECK fsdp_status shards_set_values(fsdp_parameter *p, const float *whole);
/* NULL: no gradient. */
FSDP_MUST_CHECK fsdp_status shards_set_grad(fsdp_parameter *p, const float *whole);
/* Of a local tensor (parameter, gradient, state), whole. Collective. */
FSDP_MUST_CHECK fsdp_status shards_full(fsdp_tensor *local, float *whole);
/* Element i of tensor `key`, from [-1, 1). */
float shards_random(uint64_t key, int64_t i);
