/* See accelerate.h. The names and values of variables are those of Accelerate 1.15. */
#include "src/launch/accelerate.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/fsdp.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

enum {
    FSDP1,
    FSDP2
};
enum {
    PRECISION_FP8 = 1,
    PRECISION_FP16 = 2
};
enum {
    WRAP_TRANSFORMER,
    WRAP_SIZE
};

/* How the value of a variable is spelled. */
typedef enum spelling {
    AS_GIVEN, /* as the user spelled it, such as the number of a menu */
    BY_NAME,  /* the first spelling of the option's choice */
    LOWER,    /* in lower case: true */
    CAPITAL   /* with a capital letter, as Python prints it: True */
} spelling;

typedef struct variable {
    const char *name, *option;
    spelling spelling;
    bool always; /* it is set even if the option was not given */
} variable;

static const variable common[] = {
    {"ACCELERATE_MIXED_PRECISION", "mixed-precision", BY_NAME, true},
    {"ACCELERATE_DYNAMO_BACKEND", "dynamo-backend", BY_NAME, true},
    {"ACCELERATE_DYNAMO_MODE", "dynamo-mode", BY_NAME, true},
    {"ACCELERATE_DYNAMO_USE_FULLGRAPH", "dynamo-use-fullgraph", CAPITAL, true},
    {"ACCELERATE_DYNAMO_USE_DYNAMIC", "dynamo-use-dynamic", CAPITAL, true},
    {"ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "dynamo-use-regional-compilation", CAPITAL,
     true},
};

/* The variables of an FSDP run. The options of this table are the ones that ask for FSDP. */
static const variable of_fsdp[] = {
    {"FSDP_VERSION", "fsdp-version", BY_NAME, true},
    {"FSDP_SHARDING_STRATEGY", "fsdp-sharding-strategy", AS_GIVEN, true},
    {"FSDP_RESHARD_AFTER_FORWARD", "fsdp-reshard-after-forward", LOWER, true},
    {"FSDP_OFFLOAD_PARAMS", "fsdp-offload-params", LOWER, true},
    {"FSDP_MIN_NUM_PARAMS", "fsdp-min-num-params", BY_NAME, true},
    {"FSDP_AUTO_WRAP_POLICY", "fsdp-auto-wrap-policy", BY_NAME, false},
    {"FSDP_TRANSFORMER_CLS_TO_WRAP", "fsdp-transformer-layer-cls-to-wrap", BY_NAME, false},
    {"FSDP_BACKWARD_PREFETCH", "fsdp-backward-prefetch", BY_NAME, false},
    {"FSDP_STATE_DICT_TYPE", "fsdp-state-dict-type", BY_NAME, false},
    {"FSDP_FORWARD_PREFETCH", "fsdp-forward-prefetch", LOWER, true},
    {"FSDP_USE_ORIG_PARAMS", "fsdp-use-orig-params", LOWER, true},
    {"FSDP_CPU_RAM_EFFICIENT_LOADING", "fsdp-cpu-ram-efficient-loading", LOWER, true},
    {"FSDP_SYNC_MODULE_STATES", "fsdp-sync-module-states", LOWER, true},
    {"FSDP_ACTIVATION_CHECKPOINTING", "fsdp-activation-checkpointing", LOWER, true},
    {"FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "fsdp-activation-checkpointing-offload", LOWER, true},
    {"FSDP_IGNORED_MODULES", "fsdp-ignored-modules", BY_NAME, false},
};

static const variable of_parallelism[] = {
    {"PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "parallelism-config-dp-replicate-size", BY_NAME, true},
    {"PARALLELISM_CONFIG_DP_SHARD_SIZE", "parallelism-config-dp-shard-size", BY_NAME, true},
};

/* ---- the default file ---- */

/* Return the folder of Hugging Face's caches. The caller owns it. NULL if memory is short. */
static char *cache_folder(void)
{
    const char *hf = getenv("HF_HOME"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (hf)
        return *hf == '~' ? fsdp_strdup_printf("%s%s", home ? home : "", hf + 1) : fsdp_strdup(hf);
    if (xdg)
        return fsdp_strdup_printf("%s%s/huggingface", *xdg == '~' && home ? home : "",
                                  xdg + (*xdg == '~'));
    return fsdp_strdup_printf("%s/.cache/huggingface", home ? home : "");
}

fsdp_status fsdp_accelerate_default_config(char **path)
{
    char *folder = cache_folder();
    char *file = folder ? fsdp_strdup_printf("%s/accelerate/default_config.yaml", folder) : NULL;
    fsdp_free(folder);
    if (!file)
        return fsdp_error_nomem();
    if (access(file, F_OK) != 0) {
        fsdp_free(file);
        file = NULL;
    }
    *path = file;
    return FSDP_OK;
}

/* ---- derived values ---- */

/* Return true if a flag or a file gave the option, and not only the environment. */
static bool is_chosen(const fsdp_options *options, const char *option)
{
    return fsdp_options_origin(options, option) > FSDP_ORIGIN_ENV;
}

/* Return the option of the table that a source of at least the precedence `origin` gave; NULL:
 * none. */
static const char *first_chosen(const fsdp_options *options, const variable *table, size_t n,
                                fsdp_option_origin origin)
{
    for (size_t i = 0; i < n; i++)
        if (fsdp_options_origin(options, table[i].option) >= origin)
            return table[i].option;
    return NULL;
}

/* Return true if a flag of `accelerate launch` was given. torchrun has some of the options, too,
 * but under another name. */
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
        if (is_chosen(options, own[i]))
            return true;
    return first_chosen(options, common, FSDP_LENGTH(common), FSDP_ORIGIN_FILE) ||
           first_chosen(options, of_fsdp, FSDP_LENGTH(of_fsdp), FSDP_ORIGIN_FILE) ||
           first_chosen(options, of_parallelism, FSDP_LENGTH(of_parallelism), FSDP_ORIGIN_FILE);
}

/* FSDP1 takes a sharding strategy in fsdp_reshard_after_forward, by name or by its number in the
 * menu of `accelerate config`. The option parser has stored a number as itself: make it a name. If
 * a stronger source gives fsdp_sharding_strategy, restore the default. */
static void derive_reshard(fsdp_accelerate_config *a, const fsdp_options *options)
{
    const char *text = fsdp_options_text(options, "fsdp-reshard-after-forward");
    if (a->fsdp_version == FSDP1 && text && text[0] >= '1' && text[0] <= '5' && !text[1])
        a->reshard_after_forward = -(text[0] - '0');
    if (a->fsdp_version == FSDP1 && is_chosen(options, "fsdp-reshard-after-forward") &&
        fsdp_options_origin(options, "fsdp-sharding-strategy") >
            fsdp_options_origin(options, "fsdp-reshard-after-forward"))
        a->reshard_after_forward = true;
}

void fsdp_accelerate_derive(fsdp_launch_config *c, const fsdp_options *options)
{
    fsdp_accelerate_config *a = &c->accelerate;
    const bool by_flag =
        first_chosen(options, of_fsdp, FSDP_LENGTH(of_fsdp), FSDP_ORIGIN_FLAG) != NULL;
    const bool by_file =
        first_chosen(options, of_fsdp, FSDP_LENGTH(of_fsdp), FSDP_ORIGIN_FILE) != NULL;
    c->is_accelerate = fsdp_options_file(options) || has_accelerate_flag(options);
    if (!is_chosen(options, "use-fsdp"))
        a->use_fsdp =
            (a->distributed_type == FSDP_LAUNCH_TYPE_FSDP && !is_chosen(options, "multi-gpu")) ||
            by_flag || (by_file && !is_chosen(options, "distributed-type"));
    if (!is_chosen(options, "multi-gpu"))
        a->multi_gpu = a->distributed_type == FSDP_LAUNCH_TYPE_MULTI_GPU && !a->use_fsdp;
    if (a->fp16 && !fsdp_options_given(options, "mixed-precision"))
        a->mixed_precision = PRECISION_FP16;
    if (!is_chosen(options, "use-parallelism-config"))
        a->use_parallelism_config =
            first_chosen(options, of_parallelism, FSDP_LENGTH(of_parallelism), FSDP_ORIGIN_FILE);
    derive_reshard(a, options);
}

const char *fsdp_accelerate_without_effect(const void *target, const fsdp_options *options,
                                           const char *name)
{
    const fsdp_launch_config *c = target;
    const fsdp_accelerate_config *a = &c->accelerate;
    const bool has_policy = fsdp_options_given(options, "fsdp-auto-wrap-policy");
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
    const char *type = fsdp_launch_distributed_types[a->distributed_type];
    const int length = (int)strcspn(type, "|");
    const char *instead = NULL;
    if (a->distributed_type == FSDP_LAUNCH_TYPE_DEEPSPEED)
        instead = "there is no DeepSpeed; FSDP with fsdp_sharding_strategy FULL_SHARD is its "
                  "ZeRO-3, SHARD_GRAD_OP its ZeRO-2";
    else if (a->distributed_type == FSDP_LAUNCH_TYPE_MEGATRON_LM)
        instead = "there is no Megatron-LM; FSDP shards";
    else if (a->distributed_type >= FSDP_LAUNCH_TYPE_OTHER)
        instead = "devices are CPUs and NVIDIA's GPUs: FSDP, MULTI_GPU, MULTI_CPU or NO";
    if (instead)
        return fsdp_launch_refuse(options, "distributed-type", FSDP_ERR_UNSUPPORTED,
                                  "%.*s is not supported: %s", length, type, instead);
    const char *option = first_chosen(options, of_fsdp, FSDP_LENGTH(of_fsdp), FSDP_ORIGIN_FILE);
    if (!option || a->use_fsdp || is_chosen(options, "multi-gpu"))
        return FSDP_OK;
    if (is_chosen(options, "use-fsdp"))
        return fsdp_launch_refuse(options, option, FSDP_ERR_INVALID, "contradicts --no-use-fsdp");
    return fsdp_launch_refuse(options, option, FSDP_ERR_INVALID,
                              "contradicts distributed_type %.*s: it is for distributed_type FSDP "
                              "or --use_fsdp",
                              length, type);
}

static fsdp_status check_precision(const fsdp_accelerate_config *a, const fsdp_options *options)
{
    if (a->mixed_precision == PRECISION_FP8)
        return fsdp_launch_refuse(options, "mixed-precision", FSDP_ERR_UNSUPPORTED,
                                  "fp8 is not supported: bf16 and fp16 are");
    if (a->fp16 && a->mixed_precision != PRECISION_FP16)
        return fsdp_launch_refuse(options, "fp16", FSDP_ERR_INVALID,
                                  "contradicts mixed_precision %s",
                                  fsdp_accelerate_precisions[a->mixed_precision]);
    return FSDP_OK;
}

static fsdp_status check_cards(const fsdp_launch_config *c, const fsdp_options *options)
{
    const fsdp_option_list *ids = &c->accelerate.gpu_ids;
    for (size_t i = 0; i < ids->count; i++) {
        const char *id = ids->items[i];
        const bool is_number = *id && strspn(id, "0123456789") == strlen(id);
        const bool is_uuid = strncmp(id, "GPU-", 4) == 0 || strncmp(id, "MIG-", 4) == 0;
        if (!is_number && !is_uuid && !(strcmp(id, "all") == 0 && ids->count == 1))
            return fsdp_launch_refuse(options, "gpu-ids", FSDP_ERR_INVALID,
                                      "'%.100s' is not allowed; it takes all, or numbers of cards "
                                      "such as 0,1",
                                      id);
        for (size_t k = 0; k < i; k++)
            if (strcmp(ids->items[k], id) == 0)
                return fsdp_launch_refuse(options, "gpu-ids", FSDP_ERR_INVALID,
                                          "card %.100s is given twice", id);
    }
    if (c->accelerate.multi_gpu && c->accelerate.use_fsdp)
        return fsdp_launch_refuse(options, "multi-gpu", FSDP_ERR_INVALID,
                                  "contradicts %s: one of the two says how ranks train",
                                  is_chosen(options, "use-fsdp") ? "--use_fsdp"
                                                                 : "the fsdp_ options");
    if (c->accelerate.multi_gpu && c->cpu)
        return fsdp_launch_refuse(options, "cpu", FSDP_ERR_INVALID,
                                  "contradicts --multi_gpu, or distributed_type MULTI_GPU");
    if (c->accelerate.multi_gpu && c->n_ranks < 2)
        return fsdp_launch_refuse(options, "nproc-per-node", FSDP_ERR_INVALID,
                                  "--multi_gpu, or distributed_type MULTI_GPU, needs at least 2 "
                                  "processes; 1 is distributed_type NO");
    return FSDP_OK;
}

static bool reshards(int strategy)
{
    return strategy == FSDP_SHARDING_FULL_SHARD || strategy == FSDP_SHARDING_HYBRID_SHARD;
}

/* Check fsdp_reshard_after_forward, and that it agrees with fsdp_sharding_strategy. */
static fsdp_status check_reshard(const fsdp_accelerate_config *a, const fsdp_options *options)
{
    static const char reshard[] = "fsdp-reshard-after-forward",
                      strategy[] = "fsdp-sharding-strategy";
    const int word = -1 - a->reshard_after_forward, value = a->reshard_after_forward;
    const bool both = is_chosen(options, strategy) &&
                      (a->fsdp_version == FSDP2 || fsdp_options_origin(options, strategy) <=
                                                       fsdp_options_origin(options, reshard));
    const char *text = fsdp_options_text(options, reshard);
    const char *name = fsdp_sharding_strategy_choices[a->sharding_strategy];
    const int length = (int)strcspn(name, "|");
    if (a->fsdp_version == FSDP2 && (word >= 0 || value > 1))
        return fsdp_launch_refuse(options, reshard, FSDP_ERR_INVALID,
                                  "%s: with fsdp_version 2 it is true (FULL_SHARD) or false "
                                  "(SHARD_GRAD_OP); a strategy is for fsdp_version 1",
                                  text ? text : "");
    if (a->fsdp_version == FSDP1 && value > 1)
        return fsdp_launch_refuse(options, reshard, FSDP_ERR_INVALID,
                                  "%d is no strategy; the menu has 1 (FULL_SHARD) to 5 "
                                  "(HYBRID_SHARD_ZERO2)",
                                  value);
    if (a->fsdp_version == FSDP1 && value == 0 && !is_chosen(options, strategy))
        return fsdp_launch_refuse(options, reshard, FSDP_ERR_INVALID,
                                  "false is for fsdp_version 2; with fsdp_version 1 it is a "
                                  "strategy, and SHARD_GRAD_OP means the same");
    if (both &&
        (word >= 0 ? word != a->sharding_strategy : (value != 0) != reshards(a->sharding_strategy)))
        return fsdp_launch_refuse(options, strategy, FSDP_ERR_INVALID,
                                  "%.*s contradicts fsdp_reshard_after_forward %s%s", length, name,
                                  text ? text : "true",
                                  a->fsdp_version == FSDP2 ? " of fsdp_version 2" : "");
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
    if ((int64_t)a->dp_replicate_size * a->dp_shard_size != c->n_ranks &&
        (a->dp_replicate_size > 1 || a->dp_shard_size > 1))
        return fsdp_launch_refuse(options, "parallelism-config-dp-shard-size", FSDP_ERR_INVALID,
                                  "dp_replicate_size %d times dp_shard_size %d are not the %d "
                                  "processes",
                                  a->dp_replicate_size, a->dp_shard_size, c->n_ranks);
    return FSDP_OK;
}

static fsdp_status check_fsdp(const fsdp_accelerate_config *a, const fsdp_options *options)
{
    enum {
        LOCAL_STATE_DICT = 1
    };
    FSDP_TRY(check_reshard(a, options));
    if (a->cpu_ram_efficient_loading && !a->sync_module_states)
        return fsdp_launch_refuse(
            options, "fsdp-sync-module-states", FSDP_ERR_INVALID,
            "false contradicts fsdp_cpu_ram_efficient_loading true%s",
            is_chosen(options, "fsdp-cpu-ram-efficient-loading") ? "" : ", which is the default");
    if (a->activation_checkpointing_offload && !a->activation_checkpointing)
        return fsdp_launch_refuse(options, "fsdp-activation-checkpointing-offload",
                                  FSDP_ERR_INVALID, "needs fsdp_activation_checkpointing true");
    if (a->fsdp_version == FSDP2 && a->state_dict_type == LOCAL_STATE_DICT)
        return fsdp_launch_refuse(options, "fsdp-state-dict-type", FSDP_ERR_INVALID,
                                  "LOCAL_STATE_DICT is for fsdp_version 1; fsdp_version 2 has "
                                  "SHARDED_STATE_DICT and FULL_STATE_DICT");
    return FSDP_OK;
}

fsdp_status fsdp_accelerate_check(const fsdp_launch_config *c, const fsdp_options *options)
{
    FSDP_TRY(check_type(&c->accelerate, options));
    FSDP_TRY(check_precision(&c->accelerate, options));
    FSDP_TRY(check_cards(c, options));
    FSDP_TRY(check_parallelism(c, options));
    return c->accelerate.use_fsdp ? check_fsdp(&c->accelerate, options) : FSDP_OK;
}

/* ---- the environment ---- */

static fsdp_status set_variable(const char *name, const char *value, bool overwrite)
{
    const char *now = getenv(name);
    if (now && *now && !overwrite)
        return FSDP_OK;
    if (setenv(name, value, 1) == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_NOMEM, "%s: %s", name, strerror(errno));
}

static const fsdp_option *find_row(const char *name)
{
    const fsdp_options_spec *spec = fsdp_launch_options();
    for (size_t i = 0; i < spec->count; i++)
        if (strcmp(spec->table[i].name, name) == 0)
            return &spec->table[i];
    return NULL;
}

/* Return the value of an option as Accelerate spells it. The caller owns it. NULL if memory is
 * short. */
static char *value_of(const variable *v, const fsdp_launch_config *c, const fsdp_options *options)
{
    const char *given = v->spelling == AS_GIVEN ? fsdp_options_text(options, v->option) : NULL;
    const fsdp_option *row = find_row(v->option);
    FSDP_ASSERT(row);
    char *text = given ? fsdp_strdup(given) : fsdp_option_text(row, c);
    for (char *at = text; at && *at && v->spelling == LOWER; at++)
        *at = (char)tolower((unsigned char)*at);
    if (text && v->spelling == CAPITAL)
        *text = (char)toupper((unsigned char)*text);
    return text;
}

static fsdp_status set_variables(const variable *table, size_t n, const fsdp_launch_config *c,
                                 const fsdp_options *options)
{
    for (size_t i = 0; i < n; i++) {
        /* The key fp16 of old files is chosen in place of mixed_precision. */
        const bool chosen = is_chosen(options, table[i].option) ||
                            (strcmp(table[i].option, "mixed-precision") == 0 && c->accelerate.fp16);
        if (!chosen && !table[i].always)
            continue;
        char *value = value_of(&table[i], c, options);
        if (!value)
            return fsdp_error_nomem();
        const fsdp_status status = set_variable(table[i].name, value, chosen);
        fsdp_free(value);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* Set the variables of parallelism_config. */
static fsdp_status set_parallelism(const fsdp_launch_config *c, const fsdp_options *options)
{
    static const char *const fixed[][2] = {{"ACCELERATE_USE_PARALLELISM_CONFIG", "true"},
                                           {"PARALLELISM_CONFIG_TP_SIZE", "1"},
                                           {"PARALLELISM_CONFIG_CP_SIZE", "1"},
                                           {"PARALLELISM_CONFIG_CP_BACKEND", "torch"},
                                           {"PARALLELISM_CONFIG_SP_SIZE", "1"},
                                           {"PARALLELISM_CONFIG_SP_BACKEND", "deepspeed"}};
    for (size_t i = 0; i < FSDP_LENGTH(fixed); i++)
        FSDP_TRY(set_variable(fixed[i][0], fixed[i][1], true));
    return set_variables(of_parallelism, FSDP_LENGTH(of_parallelism), c, options);
}

static fsdp_status set_cards(const fsdp_option_list *ids)
{
    if (!ids->count || strcmp(ids->items[0], "all") == 0)
        return FSDP_OK;
    char *text = fsdp_strdup("");
    for (size_t i = 0; i < ids->count && text; i++) {
        char *longer = fsdp_strdup_printf("%s%s%s", text, i ? "," : "", ids->items[i]);
        fsdp_free(text);
        text = longer;
    }
    if (!text)
        return fsdp_error_nomem();
    const fsdp_status status = set_variable("CUDA_VISIBLE_DEVICES", text, true);
    fsdp_free(text);
    return status;
}

fsdp_status fsdp_accelerate_set_environment(const fsdp_launch_config *c,
                                            const fsdp_options *options)
{
    const fsdp_accelerate_config *a = &c->accelerate;
    if (!c->is_accelerate)
        return FSDP_OK;
    FSDP_TRY(set_cards(&a->gpu_ids));
    FSDP_TRY(set_variables(common, FSDP_LENGTH(common), c, options));
    if (a->debug)
        FSDP_TRY(set_variable("ACCELERATE_DEBUG_MODE", "true", true));
    if (a->enable_cpu_affinity)
        FSDP_TRY(set_variable("ACCELERATE_CPU_AFFINITY", "1", true));
    if (!a->use_fsdp)
        return a->multi_gpu ? FSDP_OK
                            : set_variable("ACCELERATE_USE_CPU", c->cpu ? "True" : "False",
                                           fsdp_options_given(options, "cpu"));
    FSDP_TRY(set_variable("ACCELERATE_USE_FSDP", "true", true));
    FSDP_TRY(set_variables(of_fsdp, FSDP_LENGTH(of_fsdp), c, options));
    return a->use_parallelism_config ? set_parallelism(c, options) : FSDP_OK;
}
