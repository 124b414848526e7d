/* See accelerate_variables.h. Also has the list of values of --mixed-precision. */
#include "src/launch/accelerate_variables.h"

const char *const fsdp_accelerate_precisions[] = {"no", "fp8", "fp16", "bf16", NULL};
/* Accelerate's own files have "no" in quotes. But in YAML, no, off and false without quotes all
 * mean false, so they are spellings of the same choice. */
const char *const fsdp_accelerate_precision_choices[] = {"no|false|off", "fp8", "fp16", "bf16",
                                                         NULL};

const char *const fsdp_accelerate_fp8_backends[] = {"AO", "TE", "MSAMP", NULL};

const fsdp_accelerate_variable fsdp_accelerate_common[FSDP_ACCELERATE_COMMON] = {
    {"ACCELERATE_MIXED_PRECISION", "mixed-precision", FSDP_SPELLED_BY_NAME, true},
    {"ACCELERATE_DYNAMO_BACKEND", "dynamo-backend", FSDP_SPELLED_BY_NAME, true},
    {"ACCELERATE_DYNAMO_MODE", "dynamo-mode", FSDP_SPELLED_BY_NAME, true},
    {"ACCELERATE_DYNAMO_USE_FULLGRAPH", "dynamo-use-fullgraph", FSDP_SPELLED_CAPITAL, true},
    {"ACCELERATE_DYNAMO_USE_DYNAMIC", "dynamo-use-dynamic", FSDP_SPELLED_CAPITAL, true},
    {"ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "dynamo-use-regional-compilation",
     FSDP_SPELLED_CAPITAL, true},
};

const fsdp_accelerate_variable fsdp_accelerate_fp8[FSDP_ACCELERATE_FP8] = {
    {"ACCELERATE_FP8_BACKEND", "fp8-backend", FSDP_SPELLED_BY_NAME, true},
    {"ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER", "fp8-enable-fsdp-float8-all-gather",
     FSDP_SPELLED_CAPITAL, false},
    {"ACCELERATE_FP8_PAD_INNER_DIM", "fp8-pad-inner-dim", FSDP_SPELLED_CAPITAL, false},
};

const fsdp_accelerate_variable fsdp_accelerate_fsdp[FSDP_ACCELERATE_FSDP] = {
    {"FSDP_VERSION", "fsdp-version", FSDP_SPELLED_BY_NAME, true},
    {"FSDP_SHARDING_STRATEGY", "fsdp-sharding-strategy", FSDP_SPELLED_AS_GIVEN, true},
    {"FSDP_RESHARD_AFTER_FORWARD", "fsdp-reshard-after-forward", FSDP_SPELLED_LOWER, true},
    {"FSDP_OFFLOAD_PARAMS", "fsdp-offload-params", FSDP_SPELLED_LOWER, true},
    {"FSDP_MIN_NUM_PARAMS", "fsdp-min-num-params", FSDP_SPELLED_BY_NAME, true},
    {"FSDP_AUTO_WRAP_POLICY", "fsdp-auto-wrap-policy", FSDP_SPELLED_BY_NAME, false},
    {"FSDP_TRANSFORMER_CLS_TO_WRAP", "fsdp-transformer-layer-cls-to-wrap", FSDP_SPELLED_BY_NAME,
     false},
    {"FSDP_BACKWARD_PREFETCH", "fsdp-backward-prefetch", FSDP_SPELLED_BY_NAME, false},
    {"FSDP_STATE_DICT_TYPE", "fsdp-state-dict-type", FSDP_SPELLED_BY_NAME, false},
    {"FSDP_FORWARD_PREFETCH", "fsdp-forward-prefetch", FSDP_SPELLED_LOWER, true},
    {"FSDP_USE_ORIG_PARAMS", "fsdp-use-orig-params", FSDP_SPELLED_LOWER, true},
    {"FSDP_CPU_RAM_EFFICIENT_LOADING", "fsdp-cpu-ram-efficient-loading", FSDP_SPELLED_LOWER, true},
    {"FSDP_SYNC_MODULE_STATES", "fsdp-sync-module-states", FSDP_SPELLED_LOWER, true},
    {"FSDP_ACTIVATION_CHECKPOINTING", "fsdp-activation-checkpointing", FSDP_SPELLED_LOWER, true},
    {"FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "fsdp-activation-checkpointing-offload",
     FSDP_SPELLED_LOWER, true},
    {"FSDP_IGNORED_MODULES", "fsdp-ignored-modules", FSDP_SPELLED_BY_NAME, false},
};

const fsdp_accelerate_variable fsdp_accelerate_parallelism[FSDP_ACCELERATE_PARALLELISM] = {
    {"PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "parallelism-config-dp-replicate-size",
     FSDP_SPELLED_BY_NAME, true},
    {"PARALLELISM_CONFIG_DP_SHARD_SIZE", "parallelism-config-dp-shard-size", FSDP_SPELLED_BY_NAME,
     true},
};
