/* See accelerate.h. accelerate_environment.c sets the variables. */
#include "src/launch/accelerate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/fsdp.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/fsdp/reshard_menu.h"
#include "src/launch/accelerate_variables.h"
#include "src/tensor/cards.h"
#include "src/train_config/config_accelerate.h"

enum {
    FSDP1,
    FSDP2
};
enum {
    PRECISION_FP16 = 2,
    BACKEND_AO = 0
};
enum {
    WRAP_TRANSFORMER,
    WRAP_SIZE
};

/* ---- the default file ---- */

/* Return the path of Hugging Face's cache folder, or NULL when out of memory. The caller owns the
 * path. An empty environment variable counts as not set. */
static char *cache_folder(void)
{
    const char *hf = getenv("HF_HOME"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (hf && *hf)
        return *hf == '~' ? fsdp_strdup_printf("%s%s", home ? home : "", hf + 1) : fsdp_strdup(hf);
    if (xdg && *xdg)
        return fsdp_strdup_printf("%s%s/huggingface", *xdg == '~' && home ? home : "",
                                  xdg + (*xdg == '~'));
    return fsdp_strdup_printf("%s/.cache/huggingface", home ? home : "");
}

fsdp_status fsdp_accelerate_default_path(char **path)
{
    char *folder = cache_folder();
    *path = folder ? fsdp_strdup_printf("%s/accelerate/default_config.yaml", folder) : NULL;
    fsdp_free(folder);
    return *path ? FSDP_OK : fsdp_error_nomem();
}

fsdp_status fsdp_accelerate_default_config(char **path)
{
    char *file;
    FSDP_TRY(fsdp_accelerate_default_path(&file));
    if (access(file, F_OK) != 0) {
        fsdp_free(file);
        file = NULL;
    }
    *path = file;
    return FSDP_OK;
}

/* ---- derived values ---- */

/* Return the first option in `table` [n] whose value comes from a source of at least the precedence
 * `origin`. Return NULL if there is none. */
static const char *first_chosen(const fsdp_options *options, const fsdp_accelerate_variable *table,
                                size_t n, fsdp_option_origin origin)
{
    for (size_t i = 0; i < n; i++)
        if (fsdp_options_origin(options, table[i].option) >= origin)
            return table[i].option;
    return NULL;
}

/* Return true if a flag or a file gave an option of `accelerate launch`. torchrun has the options
 * in `shared`, too, but under other names, so for these check which name was used. */
static bool has_accelerate_flag(const fsdp_options *options)
{
    static const char *const shared[] = {"nproc-per-node", "nnodes", "node-rank", "master-addr",
                                         "master-port"};
    static const char *const own[] = {"use-fsdp", "multi-gpu",           "gpu-ids",
                                      "debug",    "enable-cpu-affinity", "use-parallelism-config",
                                      "fp16",     "distributed-type"};
    for (size_t i = 0; i < FSDP_LENGTH(shared); i++) {
        const char *where = fsdp_options_source(options, shared[i]);
        if (where && (strncmp(where, "--num", 5) == 0 || strncmp(where, "--machine", 9) == 0 ||
                      strncmp(where, "--main", 6) == 0))
            return true;
    }
    for (size_t i = 0; i < FSDP_LENGTH(own); i++)
        if (fsdp_launch_is_chosen(options, own[i]))
            return true;
    return first_chosen(options, fsdp_accelerate_common, FSDP_ACCELERATE_COMMON,
                        FSDP_ORIGIN_FILE) ||
           first_chosen(options, fsdp_accelerate_fsdp, FSDP_ACCELERATE_FSDP, FSDP_ORIGIN_FILE) ||
           first_chosen(options, fsdp_accelerate_parallelism, FSDP_ACCELERATE_PARALLELISM,
                        FSDP_ORIGIN_FILE);
}

/* With FSDP1, fsdp_reshard_after_forward contains a sharding strategy: its name, or its number in
 * the menu of `accelerate config`. The option parser does not know that a number means a strategy,
 * so replace the number by the value that the strategy's name has. If a source of higher precedence
 * gave fsdp_sharding_strategy, reset reshard_after_forward to its default. */
static void derive_reshard(fsdp_accelerate_config *a, const fsdp_options *options)
{
    const char *text = fsdp_options_text(options, "fsdp-reshard-after-forward");
    if (a->fsdp_version == FSDP1)
        a->reshard_after_forward = fsdp_reshard_of_menu(text, a->reshard_after_forward);
    if (a->fsdp_version == FSDP1 && fsdp_launch_is_chosen(options, "fsdp-reshard-after-forward") &&
        fsdp_options_origin(options, "fsdp-sharding-strategy") >
            fsdp_options_origin(options, "fsdp-reshard-after-forward"))
        a->reshard_after_forward = true;
}

void fsdp_accelerate_derive(fsdp_launch_config *c, const fsdp_options *options)
{
    fsdp_accelerate_config *a = &c->accelerate;
    const bool by_flag =
        first_chosen(options, fsdp_accelerate_fsdp, FSDP_ACCELERATE_FSDP, FSDP_ORIGIN_FLAG) != NULL;
    const bool by_file =
        first_chosen(options, fsdp_accelerate_fsdp, FSDP_ACCELERATE_FSDP, FSDP_ORIGIN_FILE) != NULL;
    c->is_accelerate = fsdp_options_file(options) || has_accelerate_flag(options);
    if (!fsdp_launch_is_chosen(options, "use-fsdp"))
        a->use_fsdp = (a->distributed_type == FSDP_ACCELERATE_TYPE_FSDP &&
                       !fsdp_launch_is_chosen(options, "multi-gpu")) ||
                      by_flag || (by_file && !fsdp_launch_is_chosen(options, "distributed-type"));
    if (!fsdp_launch_is_chosen(options, "multi-gpu"))
        a->multi_gpu = a->distributed_type == FSDP_ACCELERATE_TYPE_MULTI_GPU && !a->use_fsdp;
    if (a->fp16 && !fsdp_options_given(options, "mixed-precision"))
        a->mixed_precision = PRECISION_FP16;
    if (!fsdp_launch_is_chosen(options, "use-parallelism-config"))
        a->use_parallelism_config = first_chosen(options, fsdp_accelerate_parallelism,
                                                 FSDP_ACCELERATE_PARALLELISM, FSDP_ORIGIN_FILE);
    /* As in transformers' Trainer, fsdp_min_num_params without a policy selects SIZE_BASED_WRAP. */
    a->wraps_by_size = !fsdp_launch_is_chosen(options, "fsdp-auto-wrap-policy") &&
                       fsdp_launch_is_chosen(options, "fsdp-min-num-params") &&
                       a->min_num_params > 0 && a->transformer_layer_cls_to_wrap.count == 0;
    if (a->wraps_by_size)
        a->auto_wrap_policy = WRAP_SIZE;
    derive_reshard(a, options);
}

#define ONE_HOST "ranks of one host find each other without it"

static bool is_for_several_hosts(const char *name)
{
    static const char *const names[] = {"node-rank",      "rdzv-endpoint", "rdzv-backend",
                                        "rdzv-conf",      "local-addr",    "mpi",
                                        "job-secret-file"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

const char *fsdp_accelerate_without_effect(const void *target, const fsdp_options *options,
                                           const char *name)
{
    const fsdp_launch_config *c = target;
    const fsdp_accelerate_config *a = &c->accelerate;
    const bool has_policy = fsdp_options_given(options, "fsdp-auto-wrap-policy");
    if (c->most_nodes == 1 && strcmp(name, "node-rank") == 0)
        return "one host is node 0";
    if (c->most_nodes == 1 && is_for_several_hosts(name) &&
        !((c->hosts || c->hostfile) && strcmp(name, "mpi") == 0))
        return c->hosts || c->hostfile ? "the hosts are reached by ssh" : ONE_HOST;
    if (strncmp(name, "fsdp-", 5) == 0 && !a->use_fsdp)
        return "without --use_fsdp the ranks do not get it";
    if (strcmp(name, "fsdp-min-num-params") == 0 && has_policy && a->auto_wrap_policy != WRAP_SIZE)
        return "is for fsdp_auto_wrap_policy SIZE_BASED_WRAP";
    if (strcmp(name, "fsdp-transformer-layer-cls-to-wrap") == 0 && has_policy &&
        a->auto_wrap_policy != WRAP_TRANSFORMER)
        return "is for fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP";
    if (strcmp(name, "fsdp-use-orig-params") == 0)
        return "parameters always keep their names and shapes in fsdp's own commands; other "
               "programs get it";
    if (strcmp(name, "fsdp-sync-module-states") == 0 ||
        strcmp(name, "fsdp-cpu-ram-efficient-loading") == 0)
        return "each rank of fsdp's own commands reads its own rows; other programs get it";
    if (strcmp(name, "gpu-ids") == 0 && c->cpu)
        return "with --cpu no card is used";
    return NULL;
}

/* ---- checks ---- */

static fsdp_status check_type(const fsdp_accelerate_config *a, const fsdp_options *options)
{
    const char *type = fsdp_accelerate_types[a->distributed_type];
    const int length = (int)strcspn(type, "|");
    FSDP_TRY(fsdp_accelerate_check_type(a->distributed_type, options));
    const char *option =
        first_chosen(options, fsdp_accelerate_fsdp, FSDP_ACCELERATE_FSDP, FSDP_ORIGIN_FILE);
    if (!option || a->use_fsdp || fsdp_launch_is_chosen(options, "multi-gpu"))
        return FSDP_OK;
    if (fsdp_launch_is_chosen(options, "use-fsdp"))
        return fsdp_accelerate_refuse(options, option, FSDP_ERR_INVALID,
                                      "contradicts --no-use-fsdp");
    return fsdp_accelerate_refuse(
        options, option, FSDP_ERR_INVALID,
        "contradicts distributed_type %.*s: it is for distributed_type FSDP "
        "or --use_fsdp",
        length, type);
}

static fsdp_status check_fp8(const fsdp_accelerate_config *a, const fsdp_options *options)
{
    if (a->fp8_backend != BACKEND_AO)
        return fsdp_accelerate_refuse(options, "fp8-backend", FSDP_ERR_UNSUPPORTED,
                                      "%s is not supported; AO (torchao) is",
                                      fsdp_accelerate_fp8_backends[a->fp8_backend]);
    for (size_t i = 0; i < FSDP_ACCELERATE_FP8; i++)
        if (a->mixed_precision != FSDP_ACCELERATE_PRECISION_FP8 &&
            fsdp_launch_is_chosen(options, fsdp_accelerate_fp8[i].option))
            return fsdp_accelerate_refuse(options, fsdp_accelerate_fp8[i].option, FSDP_ERR_INVALID,
                                          "has no effect without mixed_precision fp8");
    return FSDP_OK;
}

static fsdp_status check_precision(const fsdp_accelerate_config *a, const fsdp_options *options)
{
    FSDP_TRY(check_fp8(a, options));
    if (a->fp16 && a->mixed_precision != PRECISION_FP16)
        return fsdp_accelerate_refuse(options, "fp16", FSDP_ERR_INVALID,
                                      "contradicts mixed_precision %s",
                                      fsdp_accelerate_precisions[a->mixed_precision]);
    return FSDP_OK;
}

/* Return the number of ranks of all hosts. */
static int world_size(const fsdp_launch_config *c)
{
    return c->n_ranks * c->most_nodes;
}

static fsdp_status check_cards(const fsdp_launch_config *c, const fsdp_options *options)
{
    const fsdp_option_list *ids = &c->accelerate.gpu_ids;
    if (fsdp_cards_check_ids(ids->items, ids->count) != FSDP_OK) {
        char reason[256];
        snprintf(reason, sizeof reason, "%s", fsdp_last_error());
        return fsdp_accelerate_refuse(options, "gpu-ids", FSDP_ERR_INVALID, "%s", reason);
    }
    if (c->accelerate.multi_gpu && c->accelerate.use_fsdp)
        return fsdp_accelerate_refuse(
            options, "multi-gpu", FSDP_ERR_INVALID,
            "contradicts %s: one of the two says how ranks train",
            fsdp_launch_is_chosen(options, "use-fsdp") ? "--use_fsdp" : "the fsdp_ options");
    if (c->accelerate.multi_gpu && c->cpu)
        return fsdp_accelerate_refuse(options, "cpu", FSDP_ERR_INVALID,
                                      "contradicts --multi_gpu, or distributed_type MULTI_GPU");
    if (c->accelerate.multi_gpu && world_size(c) < 2)
        return fsdp_accelerate_refuse(
            options, "nproc-per-node", FSDP_ERR_INVALID,
            "--multi_gpu, or distributed_type MULTI_GPU, needs at least 2 "
            "processes; 1 is distributed_type NO");
    return FSDP_OK;
}

static fsdp_status check_parallelism(const fsdp_launch_config *c, const fsdp_options *options)
{
    const fsdp_accelerate_config *a = &c->accelerate;
    if (!a->use_parallelism_config)
        return FSDP_OK;
    if (!a->use_fsdp || a->fsdp_version != FSDP2)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--use_parallelism_config, or parallelism_config: needs "
                          "--use_fsdp and --fsdp_version 2");
    if ((int64_t)a->dp_replicate_size * a->dp_shard_size != world_size(c) &&
        (a->dp_replicate_size > 1 || a->dp_shard_size > 1))
        return fsdp_accelerate_refuse(options, "parallelism-config-dp-shard-size", FSDP_ERR_INVALID,
                                      "dp_replicate_size %d times dp_shard_size %d are not the %d "
                                      "processes",
                                      a->dp_replicate_size, a->dp_shard_size, world_size(c));
    return FSDP_OK;
}

static fsdp_status check_fsdp(const fsdp_accelerate_config *a, const fsdp_options *options)
{
    enum {
        LOCAL_STATE_DICT = 1
    };
    const fsdp_accelerate_keys keys = {.is_fsdp2 = a->fsdp_version == FSDP2,
                                       .sharding_strategy = a->sharding_strategy,
                                       .reshard_after_forward = a->reshard_after_forward,
                                       .cpu_ram_efficient_loading = a->cpu_ram_efficient_loading,
                                       .sync_module_states = a->sync_module_states,
                                       .activation_checkpointing = a->activation_checkpointing,
                                       .activation_checkpointing_offload =
                                           a->activation_checkpointing_offload,
                                       .is_local = a->state_dict_type == LOCAL_STATE_DICT,
                                       .least = FSDP_ORIGIN_FILE,
                                       .most = FSDP_ORIGIN_FLAG};
    return fsdp_accelerate_check_keys(&keys, options);
}

fsdp_status fsdp_accelerate_check(const fsdp_launch_config *c, const fsdp_options *options)
{
    FSDP_TRY(check_type(&c->accelerate, options));
    FSDP_TRY(check_precision(&c->accelerate, options));
    FSDP_TRY(check_cards(c, options));
    FSDP_TRY(check_parallelism(c, options));
    return c->accelerate.use_fsdp ? check_fsdp(&c->accelerate, options) : FSDP_OK;
}
