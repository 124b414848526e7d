/* See accelerate_variables.h. Also the words of Accelerate's options, and the error for an option
 * of `fsdp launch`. */
#include "src/launch/accelerate_variables.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const fsdp_accelerate_precisions[] = {"no", "fp8", "fp16", "bf16", NULL};

/* The order is that of fsdp_launch_type. */
const char *const fsdp_launch_distributed_types[] = {
    "NO",        "FSDP",         "MULTI_GPU", "MULTI_CPU",  "DEEPSPEED",  "MEGATRON_LM",
    "XLA|TPU",   "MULTI_NPU",    "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU",
    "MULTI_HPU", "MULTI_NEURON", "TP",        NULL};

const fsdp_accelerate_variable fsdp_accelerate_common[FSDP_ACCELERATE_COMMON] = {
    {"ACCELERATE_MIXED_PRECISION", "mixed-precision", FSDP_SPELLED_BY_NAME, true},
    {"ACCELERATE_DYNAMO_BACKEND", "dynamo-backend", FSDP_SPELLED_BY_NAME, true},
    {"ACCELERATE_DYNAMO_MODE", "dynamo-mode", FSDP_SPELLED_BY_NAME, true},
    {"ACCELERATE_DYNAMO_USE_FULLGRAPH", "dynamo-use-fullgraph", FSDP_SPELLED_CAPITAL, true},
    {"ACCELERATE_DYNAMO_USE_DYNAMIC", "dynamo-use-dynamic", FSDP_SPELLED_CAPITAL, true},
    {"ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "dynamo-use-regional-compilation",
     FSDP_SPELLED_CAPITAL, true},
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

fsdp_status fsdp_launch_refuse(const fsdp_options *options, const char *option, fsdp_status code,
                               const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *where = fsdp_options_source(options, option);
    const char *file = fsdp_options_file(options);
    const char *hint =
        file && strstr(file, "/accelerate/default_config.yaml")
            ? " (this file was found as Accelerate's default; --config_file none reads no file)"
            : "";
    if (fsdp_options_origin(options, option) == FSDP_ORIGIN_FILE)
        return fsdp_error(code, "%s: %s: %s%s", where, fsdp_options_key(options, option), text,
                          hint);
    return fsdp_error(code, "%s%s: %s", where ? "" : "--", where ? where : option, text);
}
