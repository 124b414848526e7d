/* Says in words what a configuration file of Accelerate makes `fsdp train` do. */
#pragma once
#include <stdio.h>

#include "src/accelerate/yaml_tree.h"

typedef enum fsdp_explained_strategy {
    FSDP_EXPLAINED_FULL_SHARD,
    FSDP_EXPLAINED_SHARD_GRAD_OP,
    FSDP_EXPLAINED_NO_SHARD,
    FSDP_EXPLAINED_HYBRID_SHARD,
    FSDP_EXPLAINED_HYBRID_SHARD_ZERO2
} fsdp_explained_strategy;

typedef struct fsdp_explained {
    int version; /* version of FSDP */
    fsdp_explained_strategy strategy;
    long ranks, machines;
    long replicas, shards;   /* replicas * shards == ranks */
    int param_bytes;         /* size of a parameter in forward and backward: 4 or 2 */
    const char *precision;   /* "no", "fp16" or "bf16" */
    const char *wrap_policy; /* as Accelerate names it */
    const char *classes;     /* TRANSFORMER_BASED_WRAP: as in the file; NULL: the model's blocks */
    const char *min_num_params; /* SIZE_BASED_WRAP; NULL: 1e8 */
    const char *prefetch;       /* FSDP1: as Accelerate names it */
    const char *state_dict;     /* as Accelerate names it */
    bool forward_prefetch, offload, checkpointing;
} fsdp_explained;

/* Understand a configuration. Texts in *out point into `config` or are static. Returns
 * FSDP_ERR_INVALID for an unknown key, a wrong value and a contradiction, and FSDP_ERR_UNSUPPORTED
 * for what this program cannot do; the message names `path`, the line, the key and the value. */
FSDP_MUST_CHECK fsdp_status fsdp_explain_read(const fsdp_yaml *config, const char *path,
                                              fsdp_explained *out);
/* Print what the configuration does, and which of its keys have no effect. */
FSDP_MUST_CHECK fsdp_status fsdp_explain_print(const fsdp_yaml *config,
                                               const fsdp_explained *explained, FILE *out);
/* Return the strategy as --sharding-strategy names it; static. */
const char *fsdp_explained_strategy_name(fsdp_explained_strategy strategy);
