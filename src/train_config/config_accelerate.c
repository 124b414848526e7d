/* See config_accelerate.h. */
#include "src/train_config/config_accelerate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <fsdp/fsdp.h>

#include "src/fsdp/reshard_menu.h"
#include "src/options/options_parse.h"

/* The values of distributed_type, in the order of fsdp_accelerate_type. */
const char *const fsdp_accelerate_types[] = {"NO",        "FSDP",         "MULTI_GPU",  "MULTI_CPU",
                                             "DEEPSPEED", "MEGATRON_LM",  "XLA|TPU",    "MULTI_NPU",
                                             "MULTI_MLU", "MULTI_SDAA",   "MULTI_MUSA", "MULTI_XPU",
                                             "MULTI_HPU", "MULTI_NEURON", "TP",         NULL};

const char *const fsdp_accelerate_dynamo_backends[] = {"NO",
                                                       "EAGER",
                                                       "AOT_EAGER",
                                                       "INDUCTOR",
                                                       "AOT_TS_NVFUSER",
                                                       "NVPRIMS_NVFUSER",
                                                       "CUDAGRAPHS",
                                                       "OFI",
                                                       "FX2TRT",
                                                       "ONNXRT",
                                                       "TENSORRT",
                                                       "AOT_TORCHXLA_TRACE_ONCE",
                                                       "TORCHXLA_TRACE_ONCE|TORHCHXLA_TRACE_ONCE",
                                                       "IPEX",
                                                       "TVM",
                                                       "HPU_BACKEND",
                                                       NULL};

fsdp_status fsdp_accelerate_refuse(const fsdp_options *options, const char *option,
                                   fsdp_status code, const char *format, ...)
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

fsdp_status fsdp_accelerate_check_type(int type, const fsdp_options *options)
{
    const char *name = fsdp_accelerate_types[type], *instead = NULL;
    if (type == FSDP_ACCELERATE_TYPE_DEEPSPEED)
        instead = "there is no DeepSpeed; FSDP with fsdp_sharding_strategy FULL_SHARD is its "
                  "ZeRO-3, SHARD_GRAD_OP its ZeRO-2";
    else if (type == FSDP_ACCELERATE_TYPE_MEGATRON_LM)
        instead = "there is no Megatron-LM; FSDP shards";
    else if (type >= FSDP_ACCELERATE_TYPE_OTHER)
        instead = "devices are CPUs and NVIDIA's GPUs: FSDP, MULTI_GPU, MULTI_CPU or NO";
    if (!instead)
        return FSDP_OK;
    return fsdp_accelerate_refuse(options, "distributed-type", FSDP_ERR_UNSUPPORTED,
                                  "%.*s is not supported: %s", (int)strcspn(name, "|"), name,
                                  instead);
}

/* ---- keys of fsdp_config ---- */

static bool is_said(const fsdp_accelerate_keys *k, const fsdp_options *options, const char *option)
{
    const fsdp_option_origin origin = fsdp_options_origin(options, option);
    return origin >= k->least && origin <= k->most;
}

static bool reshards(int strategy)
{
    return strategy == FSDP_SHARDING_FULL_SHARD || strategy == FSDP_SHARDING_HYBRID_SHARD;
}

/* Check fsdp_reshard_after_forward, and that it agrees with fsdp_sharding_strategy. */
static fsdp_status check_reshard(const fsdp_accelerate_keys *k, const fsdp_options *options)
{
    static const char reshard[] = "fsdp-reshard-after-forward",
                      strategy[] = "fsdp-sharding-strategy";
    const int word = -1 - k->reshard_after_forward, value = k->reshard_after_forward;
    const bool both =
        is_said(k, options, strategy) && (k->is_fsdp2 || fsdp_options_origin(options, strategy) <=
                                                             fsdp_options_origin(options, reshard));
    const char *text = fsdp_options_text(options, reshard);
    const char *name = fsdp_sharding_strategy_choices[k->sharding_strategy];
    const int length = (int)strcspn(name, "|");
    if (k->is_fsdp2 && (word >= 0 || value > 1))
        return fsdp_accelerate_refuse(options, reshard, FSDP_ERR_INVALID,
                                      "%s: with fsdp_version 2 it is true (FULL_SHARD) or false "
                                      "(SHARD_GRAD_OP); a strategy is for fsdp_version 1",
                                      text ? text : "");
    if (!k->is_fsdp2 && value > 1)
        return fsdp_accelerate_refuse(options, reshard, FSDP_ERR_INVALID,
                                      "%d is no strategy; the menu has 1 (FULL_SHARD) to 5 "
                                      "(HYBRID_SHARD_ZERO2)",
                                      value);
    if (!k->is_fsdp2 && value == 0 && !is_said(k, options, strategy))
        return fsdp_accelerate_refuse(options, reshard, FSDP_ERR_INVALID,
                                      "false is for fsdp_version 2; with fsdp_version 1 it is a "
                                      "strategy, and SHARD_GRAD_OP means the same");
    if (both &&
        (word >= 0 ? word != k->sharding_strategy : (value != 0) != reshards(k->sharding_strategy)))
        return fsdp_accelerate_refuse(
            options, strategy, FSDP_ERR_INVALID, "%.*s contradicts fsdp_reshard_after_forward %s%s",
            length, name, text ? text : "true", k->is_fsdp2 ? " of fsdp_version 2" : "");
    return FSDP_OK;
}

fsdp_status fsdp_accelerate_check_keys(const fsdp_accelerate_keys *k, const fsdp_options *options)
{
    FSDP_TRY(check_reshard(k, options));
    if (k->cpu_ram_efficient_loading && !k->sync_module_states)
        return fsdp_accelerate_refuse(
            options, "fsdp-sync-module-states", FSDP_ERR_INVALID,
            "false contradicts fsdp_cpu_ram_efficient_loading true%s",
            is_said(k, options, "fsdp-cpu-ram-efficient-loading") ? "" : ", which is the default");
    if (k->activation_checkpointing_offload && !k->activation_checkpointing)
        return fsdp_accelerate_refuse(options, "fsdp-activation-checkpointing-offload",
                                      FSDP_ERR_INVALID, "needs fsdp_activation_checkpointing true");
    if (k->is_fsdp2 && k->is_local)
        return fsdp_accelerate_refuse(options, "fsdp-state-dict-type", FSDP_ERR_INVALID,
                                      "LOCAL_STATE_DICT is for fsdp_version 1; fsdp_version 2 has "
                                      "SHARDED_STATE_DICT and FULL_STATE_DICT");
    return FSDP_OK;
}

/* ---- files that `fsdp train` reads ---- */

static bool in_file(const fsdp_options *options, const char *option)
{
    return fsdp_options_origin(options, option) == FSDP_ORIGIN_FILE;
}

/* Return the value that a file gives to a boolean option that has no field in the configuration, or
 * `otherwise` if no file gives one. */
static bool switch_in_file(const fsdp_options *options, const char *option, bool otherwise)
{
    const char *text = in_file(options, option) ? fsdp_options_text(options, option) : NULL;
    bool value = otherwise;
    return text && fsdp_option_bool_from_text(text, &value) ? value : otherwise;
}

void fsdp_accelerate_keys_of_file(const fsdp_options *options, int sharding_strategy,
                                  int reshard_after_forward, fsdp_accelerate_keys *keys)
{
    const char *version = fsdp_options_text(options, "fsdp-version"),
               *reshard = fsdp_options_text(options, "fsdp-reshard-after-forward"),
               *kind = fsdp_options_text(options, "fsdp-state-dict-type");
    const bool is_fsdp2 = version && strcmp(version, "2") == 0,
               says_strategy = in_file(options, "fsdp-sharding-strategy");
    *keys = (fsdp_accelerate_keys){
        .is_fsdp2 = is_fsdp2,
        .sharding_strategy = says_strategy ? sharding_strategy : FSDP_SHARDING_FULL_SHARD,
        .reshard_after_forward = 1,
        .cpu_ram_efficient_loading =
            switch_in_file(options, "fsdp-cpu-ram-efficient-loading", true),
        .sync_module_states = switch_in_file(options, "fsdp-sync-module-states", true),
        .activation_checkpointing =
            switch_in_file(options, "fsdp-activation-checkpointing", false) ||
            fsdp_options_origin(options, "fsdp-activation-checkpointing") == FSDP_ORIGIN_FLAG,
        .activation_checkpointing_offload =
            switch_in_file(options, "fsdp-activation-checkpointing-offload", false),
        .is_local = kind && in_file(options, "fsdp-state-dict-type") &&
                    (strcmp(kind, "2") == 0 || strcasecmp(kind, "LOCAL_STATE_DICT") == 0),
        .least = FSDP_ORIGIN_FILE,
        .most = FSDP_ORIGIN_FILE};
    if (in_file(options, "fsdp-reshard-after-forward"))
        keys->reshard_after_forward =
            is_fsdp2 ? reshard_after_forward : fsdp_reshard_of_menu(reshard, reshard_after_forward);
    else if (fsdp_options_given(options, "fsdp-reshard-after-forward"))
        /* A flag takes precedence over the file, so the file's fsdp_reshard_after_forward has no
         * effect and cannot contradict another key. Set the value that follows from the strategy.
         */
        keys->reshard_after_forward = reshards(keys->sharding_strategy);
}
