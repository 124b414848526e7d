/* See config_parallelism.h. */
#include "src/train_config/config_parallelism.h"

#include <ctype.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/options/options_parse.h"

/* Return true if the value of `option` was given by a key, flag or variable of Accelerate's
 * parallelism_config. */
static bool is_by_parallelism(const fsdp_options *options, const char *option)
{
    static const char *const names[] = {"parallelism_config_", "dp_replicate_size",
                                        "dp_shard_size"};
    const char *key = fsdp_options_key(options, option),
               *name = key ? key : fsdp_options_source(options, option);
    if (!name)
        return false;
    name += strspn(name, "-");
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        const char *word = names[i], *at = name;
        while (*word && (tolower((unsigned char)*at) == *word || (*at == '-' && *word == '_')))
            at++, word++;
        if (!*word)
            return true;
    }
    return false;
}

void fsdp_train_derive_parallelism(fsdp_train_config *c, const fsdp_options *options)
{
    const bool shards = is_by_parallelism(options, "shard-size"),
               replicates = is_by_parallelism(options, "replicas");
    const bool decides = fsdp_options_origin(options, "sharding-strategy") <=
                             fsdp_options_origin(options, replicates ? "replicas" : "shard-size") ||
                         fsdp_sharding_is_hybrid(c->sharding_strategy);
    const bool several = c->replicas > 1 && decides;
    const int64_t ranks = (int64_t)(shards ? c->shard_size : 1) * (replicates ? c->replicas : 1);
    c->mesh_ranks = decides && ranks > 1 ? ranks : 0;
    if (shards && !several)
        c->shard_size = 0;
    if (replicates && several)
        c->sharding_strategy = c->reshard_after_forward ? FSDP_SHARDING_HYBRID_SHARD
                                                        : FSDP_SHARDING_HYBRID_SHARD_ZERO2;
    else if (replicates)
        c->replicas = 0;
}

fsdp_status fsdp_train_check_parallelism(const fsdp_options *options)
{
    static const char *const names[] = {"replicas", "shard-size", "use-parallelism-config"};
    const char *uses = fsdp_options_text(options, "use-parallelism-config");
    const char *version = fsdp_options_text(options, "fsdp-version");
    bool used = false;
    if (version && strcmp(version, "2") == 0)
        return FSDP_OK;
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        if (fsdp_options_origin(options, names[i]) != FSDP_ORIGIN_FILE)
            continue;
        if (i < 2 ? is_by_parallelism(options, names[i])
                  : uses && fsdp_option_bool_from_text(uses, &used) && used)
            return fsdp_accelerate_refuse(options, names[i], FSDP_ERR_INVALID,
                                          "parallelism_config needs fsdp_version 2");
    }
    return FSDP_OK;
}

fsdp_status fsdp_train_check_mesh(const fsdp_train_config *c, int world_size)
{
    if (c->mesh_ranks == 0 || c->mesh_ranks == world_size)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "parallelism_config: dp_replicate_size times dp_shard_size are %lld ranks, "
                      "but there %s %d; 'fsdp launch -n %lld train ...' starts %lld",
                      (long long)c->mesh_ranks, world_size == 1 ? "is" : "are", world_size,
                      (long long)c->mesh_ranks, (long long)c->mesh_ranks);
}
