/* Makes the adapter of PiSSA (Meng et al. 2024, arXiv 2404.02948): its matrices are made from the
 * largest singular values of the weights and their vectors. The base model keeps the residual. */
#pragma once
#include <fsdp/lora.h>

#include "src/source/source.h"

typedef struct fsdp_init_adapter_options {
    const fsdp_lora_config *lora; /* which layers, r, lora_alpha and so on; without use_dora */
    /* Number of iterations of the randomized decomposition: the N of PEFT's pissa_niter_N. Below
     * 0: the decomposition is exact, as for PEFT's pissa. */
    int niter;
    uint64_t seed;                     /* seed of the first vectors of pissa_niter_N */
    int64_t max_shard_bytes;           /* maximum bytes of a file of the residual; 0: 50e9 */
    bool overwrite;                    /* replace what is in the two folders */
    fsdp_source_progress_fn *progress; /* may be NULL; called for the layers with an adapter */
    void *context;                     /* passed to progress() */
} fsdp_init_adapter_options;

typedef struct fsdp_init_adapter_result {
    size_t layers;  /* layers with an adapter */
    size_t tensors; /* tensors of the residual model */
} fsdp_init_adapter_result;

/* Write two folders for the base model `model` (folder or hub name): `adapter` gets a new adapter
 * with A = sqrt(S / scaling) V^T and B = U sqrt(S / scaling), where S has the r largest singular
 * values of a weight W, and U and V have their singular vectors. `residual` gets the model, in
 * which each W is replaced by W - scaling B A. So `residual` with the adapter computes what `model`
 * computes, up to rounding. The weights of one layer are in memory at a time. Each folder appears
 * complete or not at all.
 *
 * @return FSDP_ERR_INVALID if `adapter` or `residual` is the base model's folder or contains it, or
 *         if one of them is the other one or inside it */
FSDP_MUST_CHECK fsdp_status fsdp_init_adapter(const char *model, const char *adapter,
                                              const char *residual,
                                              const fsdp_init_adapter_options *options,
                                              fsdp_init_adapter_result *result);
