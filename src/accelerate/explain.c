/* See explain.h. explain_print.c prints the explanation. */
#include "src/accelerate/explain.h"

#include <stdio.h>
#include <string.h>

#include "src/launch/accelerate_variables.h"

fsdp_status fsdp_explain_read(const char *path, const char *ranks, fsdp_launch_config *config,
                              fsdp_options **options)
{
    char program[] = "launch", file[] = "--config_file", number[] = "--num_processes",
         command[] = "train";
    /* fsdp_options_parse() keeps pointers to the words of argv, but does not write to them. */
    char *name = (char *)(uintptr_t)path, *count = (char *)(uintptr_t)ranks;
    char *argv[] = {program, file, name, ranks ? number : command, count, command, NULL};
    return fsdp_options_parse(fsdp_launch_options(), ranks ? 6 : 4, argv, config, options);
}

/* ---- values ---- */

/* Return the sharding strategy that the file gives. parallelism_config is not considered yet; it
 * may change the strategy to a hybrid one. fsdp_accelerate_check() has already refused
 * contradictory keys. */
static fsdp_sharding_strategy base_strategy(const fsdp_accelerate_config *a,
                                            const fsdp_options *options)
{
    const int word = -1 - a->reshard_after_forward;
    if (word >= 0)
        return (fsdp_sharding_strategy)word;
    if (fsdp_options_given(options, "fsdp-sharding-strategy"))
        return (fsdp_sharding_strategy)a->sharding_strategy;
    return a->reshard_after_forward ? FSDP_SHARDING_FULL_SHARD : FSDP_SHARDING_SHARD_GRAD_OP;
}

static bool is_hybrid(fsdp_sharding_strategy strategy)
{
    return strategy == FSDP_SHARDING_HYBRID_SHARD || strategy == FSDP_SHARDING_HYBRID_SHARD_ZERO2;
}

/* Set out->strategy, out->replicas and out->shards. Without parallelism_config, a hybrid strategy
 * has one replica on each host, as FSDP1 and `fsdp train` arrange ranks by default. */
static void explain_mesh(const fsdp_accelerate_config *a, const fsdp_options *options,
                         fsdp_explained *out)
{
    fsdp_sharding_strategy strategy = base_strategy(a, options);
    out->replicas = is_hybrid(strategy) ? out->machines : 1;
    if (a->use_parallelism_config && a->dp_replicate_size > 1) {
        out->replicas = a->dp_replicate_size;
        if (!is_hybrid(strategy))
            strategy = strategy == FSDP_SHARDING_SHARD_GRAD_OP ? FSDP_SHARDING_HYBRID_SHARD_ZERO2
                                                               : FSDP_SHARDING_HYBRID_SHARD;
    }
    if (strategy == FSDP_SHARDING_NO_SHARD)
        out->replicas = out->ranks;
    out->strategy = strategy;
    out->shards = out->ranks / out->replicas;
}

static void explain_units(const fsdp_accelerate_config *a, fsdp_explained *out)
{
    static const char *const policies[] = {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"};
    const fsdp_option_list *classes = &a->transformer_layer_cls_to_wrap;
    out->wrap_policy = policies[a->auto_wrap_policy];
    out->min_num_params = a->min_num_params;
    size_t used = 0;
    for (size_t i = 0; i < classes->count && used < sizeof out->classes; i++)
        used += (size_t)snprintf(out->classes + used, sizeof out->classes - used, "%s%s",
                                 i ? ", " : "", classes->items[i]);
}

fsdp_explained fsdp_explain(const fsdp_launch_config *c, const fsdp_options *options)
{
    static const char *const prefetches[] = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"};
    static const char *const kinds[] = {"FULL_STATE_DICT", "LOCAL_STATE_DICT",
                                        "SHARDED_STATE_DICT"};
    const fsdp_accelerate_config *a = &c->accelerate;
    const bool has_kind = fsdp_options_given(options, "fsdp-state-dict-type");
    fsdp_explained out = {.version = a->fsdp_version + 1,
                          .ranks = (long)c->n_ranks * c->most_nodes,
                          .machines = c->most_nodes,
                          .precision = fsdp_accelerate_precisions[a->mixed_precision],
                          .prefetch = prefetches[a->backward_prefetch],
                          .state_dict = has_kind ? kinds[a->state_dict_type] : kinds[2],
                          .ignored = a->ignored_modules,
                          .forward_prefetch = a->forward_prefetch,
                          .offload = a->offload_params,
                          .checkpointing = a->activation_checkpointing,
                          .checkpointing_offload = a->activation_checkpointing_offload};
    explain_mesh(a, options, &out);
    explain_units(a, &out);
    out.param_bytes = strcmp(out.precision, "no") == 0 ? 4 : 2;
    out.float8_gathers = a->mixed_precision == FSDP_ACCELERATE_PRECISION_FP8 && a->fp8_all_gather;
    return out;
}
