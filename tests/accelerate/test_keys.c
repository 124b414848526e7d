/* Each key of Accelerate's files: what `fsdp launch`, `fsdp train --config` and `fsdp config
 * explain` make of it. A key acts, is listed as one without effect, or is refused, and all three
 * agree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/accelerate/explain.h"
#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/launch/accelerate.h"
#include "src/options/options_parse.h"
#include "src/train_config/config.h"
#include "tests/test.h"

enum {
    BOTH = 0, /* generations of FSDP */
    ACTS = 'a',
    NO_EFFECT = 'n',
    REFUSED = 'r',
    /* It is for the launcher; one rank of `fsdp train --config` neither needs nor refuses it. */
    LAUNCHER_REFUSES = 'l'
};

/* clang-format off */
static const struct {
    char section; /* 'f': fsdp_config, 'p': parallelism_config, 'd': dynamo_config, 't': the top */
    int version;
    const char *key, *value;
    int verdict;
    /* ACTS: what is explained. NO_EFFECT: the reason. REFUSED: part of the error. */
    const char *text;
    const char *variable; /* ACTS: what the ranks get; NULL: no variable */
} rows[] = {
    /* --- the top --- */
    {'t', BOTH, "compute_environment", "LOCAL_MACHINE", NO_EFFECT, "ranks run on this machine", NULL},
    {'t', BOTH, "compute_environment", "AMAZON_SAGEMAKER", REFUSED, "ranks run on this machine", NULL},
    {'t', BOTH, "distributed_type", "FSDP", NO_EFFECT, "FSDP is always used", "ACCELERATE_USE_FSDP=true"},
    {'t', BOTH, "distributed_type", "DEEPSPEED", REFUSED, "ZeRO-3", NULL},
    {'t', BOTH, "distributed_type", "XLA", REFUSED, "NVIDIA", NULL},
    {'t', BOTH, "debug", "true", NO_EFFECT, "always compared", "ACCELERATE_DEBUG_MODE=true"},
    {'t', BOTH, "downcast_bf16", "'no'", NO_EFFECT, "TPUs", NULL},
    {'t', BOTH, "enable_cpu_affinity", "true", NO_EFFECT, "binds ranks", "ACCELERATE_CPU_AFFINITY=1"},
    {'t', BOTH, "gpu_ids", "all", ACTS, "ranks         2", NULL},
    {'t', BOTH, "gpu_ids", "0,1", ACTS, "only 0, 1", "CUDA_VISIBLE_DEVICES=0,1"},
    {'t', BOTH, "gpu_ids", "1", ACTS, "only 1", "CUDA_VISIBLE_DEVICES=1"},
    {'t', BOTH, "gpu_ids", "0,0", REFUSED, "card 0 is given twice", NULL},
    {'t', BOTH, "machine_rank", "0", NO_EFFECT, "one host is node 0", NULL},
    {'t', BOTH, "machine_rank", "1", REFUSED, "with one host it is 0", NULL},
    {'t', BOTH, "main_process_ip", "10.0.0.1", ACTS, "ranks", NULL},
    {'t', BOTH, "main_process_port", "29501", ACTS, "ranks", NULL},
    {'t', BOTH, "main_process_port", "99999", REFUSED, "99999", NULL},
    {'t', BOTH, "main_training_function", "main", NO_EFFECT, "ranks are programs", NULL},
    {'t', BOTH, "mixed_precision", "'no'", ACTS, "in float32", "ACCELERATE_MIXED_PRECISION=no"},
    {'t', BOTH, "mixed_precision", "no", ACTS, "in float32", "ACCELERATE_MIXED_PRECISION=no"},
    {'t', BOTH, "mixed_precision", "false", ACTS, "in float32", "ACCELERATE_MIXED_PRECISION=no"},
    {'t', BOTH, "mixed_precision", "null", ACTS, "in float32", "ACCELERATE_MIXED_PRECISION=no"},
    {'t', BOTH, "mixed_precision", "bf16", ACTS, "in bfloat16", "ACCELERATE_MIXED_PRECISION=bf16"},
    {'t', BOTH, "mixed_precision", "fp16", ACTS, "in float16", "ACCELERATE_MIXED_PRECISION=fp16"},
    {'t', BOTH, "mixed_precision", "fp8", ACTS, "in float8", "ACCELERATE_MIXED_PRECISION=fp8"},
    {'t', BOTH, "fp16", "true", ACTS, "in float16", "ACCELERATE_MIXED_PRECISION=fp16"},
    {'t', BOTH, "num_machines", "1", ACTS, "1 machine", NULL},
    {'t', BOTH, "num_machines", "2", REFUSED, "2", NULL},
    {'t', BOTH, "num_processes", "3", ACTS, "ranks         3", NULL},
    {'t', BOTH, "num_processes", "-1", LAUNCHER_REFUSES, "--num_processes N", NULL},
    {'t', BOTH, "rdzv_backend", "static", NO_EFFECT, "one host", NULL},
    {'t', BOTH, "same_network", "true", NO_EFFECT, "one host", NULL},
    {'t', BOTH, "use_cpu", "true", ACTS, "the CPU", NULL},
    {'t', BOTH, "tpu", "false", NO_EFFECT, "TPUs", NULL},
    {'t', BOTH, "tpu", "true", REFUSED, "TPUs", NULL},
    {'t', BOTH, "tpu_cluster", "true", REFUSED, "TPUs", NULL},
    {'t', BOTH, "tpu_use_cluster", "false", NO_EFFECT, "TPUs", NULL},
    {'t', BOTH, "tpu_use_cluster", "true", REFUSED, "TPUs", NULL},
    {'t', BOTH, "tpu_use_sudo", "false", NO_EFFECT, "TPUs", NULL},
    {'t', BOTH, "no_tpu_cluster", "true", NO_EFFECT, "TPUs", NULL},
    {'t', BOTH, "tpu_name", "x", NO_EFFECT, "TPUs", NULL},
    {'t', BOTH, "tpu_zone", "x", NO_EFFECT, "TPUs", NULL},
    {'t', BOTH, "tpu_vm", "[a, b]", NO_EFFECT, "TPUs", NULL},
    {'t', BOTH, "tpu_env", "[]", NO_EFFECT, "TPUs", NULL},
    {'t', BOTH, "command_file", "x", NO_EFFECT, "TPUs", NULL},
    {'t', BOTH, "commands", "[a]", NO_EFFECT, "TPUs", NULL},
    {'t', BOTH, "use_fsdp", "true", NO_EFFECT, "FSDP is always used", "ACCELERATE_USE_FSDP=true"},
    {'t', BOTH, "use_deepspeed", "true", REFUSED, "ZeRO-3", NULL},
    {'t', BOTH, "use_megatron_lm", "true", REFUSED, "not supported", NULL},
    {'t', BOTH, "use_megatron_lm", "false", NO_EFFECT, "Megatron-LM", NULL},
    {'t', BOTH, "deepspeed_config", "{zero_stage: 3}", REFUSED, "ZeRO-3", NULL},
    {'t', BOTH, "megatron_lm_config", "{a: 1}", REFUSED, "Megatron-LM", NULL},
    {'t', BOTH, "fp8_config", "{a: 1}", REFUSED, "unknown option 'a'", NULL},
    {'t', BOTH, "fp8_backend", "AO", REFUSED, "without mixed_precision fp8", NULL},
    {'t', BOTH, "fp8_enable_fsdp_float8_all_gather", "true", REFUSED,
     "without mixed_precision fp8", NULL},
    {'t', BOTH, "fp8_pad_inner_dim", "true", LAUNCHER_REFUSES, "without mixed_precision fp8", NULL},
    {'t', BOTH, "mpirun_config", "{a: 1}", REFUSED, "fsdp launch starts the ranks", NULL},
    {'t', BOTH, "dynamo_backend", "INDUCTOR", NO_EFFECT, "nothing is left to compile", NULL},
    {'t', BOTH, "a_key_of_no_tool", "1", REFUSED, "a_key_of_no_tool", NULL},
    {'t', 2, "use_parallelism_config", "true", NO_EFFECT, "how ranks are arranged", NULL},
    {'t', 1, "use_parallelism_config", "true", REFUSED, "fsdp_version 2", NULL},
    {'d', BOTH, "dynamo_mode", "default", NO_EFFECT, "nothing is left to compile", NULL},
    {'d', BOTH, "dynamo_use_dynamic", "false", NO_EFFECT, "nothing is left to compile", NULL},
    {'d', BOTH, "dynamo_use_fullgraph", "false", NO_EFFECT, "nothing is left to compile", NULL},
    {'d', BOTH, "dynamo_use_regional_compilation", "true", NO_EFFECT, "nothing is left to compile", NULL},
    /* --- fsdp_config --- */
    {'f', BOTH, "fsdp_version", "1", NO_EFFECT, "options of both versions are known", "FSDP_VERSION=1"},
    {'f', BOTH, "fsdp_version", "2", NO_EFFECT, "options of both versions are known", "FSDP_VERSION=2"},
    {'f', BOTH, "fsdp_version", "3", REFUSED, "it takes 1 or 2", NULL},
    {'f', 1, "fsdp_sharding_strategy", "1", ACTS, "FULL_SHARD: ", "FSDP_SHARDING_STRATEGY=1"},
    {'f', 1, "fsdp_sharding_strategy", "SHARD_GRAD_OP", ACTS, "SHARD_GRAD_OP: ", "FSDP_SHARDING_STRATEGY=SHARD_GRAD_OP"},
    {'f', 1, "fsdp_sharding_strategy", "3", ACTS, "NO_SHARD: ", "FSDP_SHARDING_STRATEGY=3"},
    {'f', 1, "fsdp_sharding_strategy", "HYBRID_SHARD", ACTS, "HYBRID_SHARD: ", "FSDP_SHARDING_STRATEGY=HYBRID_SHARD"},
    {'f', 1, "fsdp_sharding_strategy", "5", ACTS, "HYBRID_SHARD_ZERO2: ", "FSDP_SHARDING_STRATEGY=5"},
    {'f', 1, "fsdp_sharding_strategy", "6", REFUSED, "'6' is not allowed", NULL},
    {'f', 2, "fsdp_sharding_strategy", "NO_SHARD", REFUSED, "NO_SHARD contradicts fsdp_reshard_after_forward true", NULL},
    {'f', 1, "fsdp_reshard_after_forward", "SHARD_GRAD_OP", ACTS, "SHARD_GRAD_OP: ", "FSDP_RESHARD_AFTER_FORWARD=shard_grad_op"},
    {'f', 1, "fsdp_reshard_after_forward", "3", ACTS, "NO_SHARD: ", "FSDP_RESHARD_AFTER_FORWARD=no_shard"},
    {'f', 1, "fsdp_reshard_after_forward", "false", REFUSED, "false is for fsdp_version 2", NULL},
    {'f', 1, "fsdp_reshard_after_forward", "6", REFUSED, "6 is no strategy", NULL},
    {'f', 2, "fsdp_reshard_after_forward", "true", ACTS, "FULL_SHARD: ", "FSDP_RESHARD_AFTER_FORWARD=true"},
    {'f', 2, "fsdp_reshard_after_forward", "false", ACTS, "SHARD_GRAD_OP: ", "FSDP_RESHARD_AFTER_FORWARD=false"},
    {'f', 2, "fsdp_reshard_after_forward", "FULL_SHARD", REFUSED, "a strategy is for fsdp_version 1", NULL},
    {'f', BOTH, "fsdp_offload_params", "true", NO_EFFECT, "--offload-dir", "FSDP_OFFLOAD_PARAMS=true"},
    {'f', BOTH, "fsdp_cpu_offload", "true", NO_EFFECT, "--offload-dir", "FSDP_OFFLOAD_PARAMS=true"},
    {'f', BOTH, "fsdp_offload_params", "false", ACTS, "", "FSDP_OFFLOAD_PARAMS=false"},
    {'f', BOTH, "fsdp_auto_wrap_policy", "1", ACTS, "TRANSFORMER_BASED_WRAP: ", "FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP"},
    {'f', BOTH, "fsdp_auto_wrap_policy", "SIZE_BASED_WRAP", ACTS, "SIZE_BASED_WRAP: modules with at least 100000000", "FSDP_AUTO_WRAP_POLICY=SIZE_BASED_WRAP"},
    {'f', BOTH, "fsdp_auto_wrap_policy", "3", ACTS, "NO_WRAP: ", "FSDP_AUTO_WRAP_POLICY=NO_WRAP"},
    {'f', BOTH, "fsdp_transformer_layer_cls_to_wrap", "T5Block,BertLayer", ACTS, "T5Block, BertLayer", "FSDP_TRANSFORMER_CLS_TO_WRAP=T5Block,BertLayer"},
    {'f', BOTH, "fsdp_transformer_layer_cls_to_wrap", "[T5Block, BertLayer]", ACTS, "T5Block, BertLayer", "FSDP_TRANSFORMER_CLS_TO_WRAP=T5Block,BertLayer"},
    {'f', BOTH, "fsdp_transformer_cls_to_wrap", "T5Block", ACTS, ": T5Block", "FSDP_TRANSFORMER_CLS_TO_WRAP=T5Block"},
    {'f', BOTH, "fsdp_min_num_params", "2000", ACTS, "at least 2000 parameters", "FSDP_MIN_NUM_PARAMS=2000"},
    {'f', BOTH, "auto_wrap_policy: 2\n  fsdp_min_num_params", "2000", ACTS, "at least 2000 parameters", "FSDP_MIN_NUM_PARAMS=2000"},
    {'f', 1, "fsdp_backward_prefetch", "NO_PREFETCH", ACTS, "NO_PREFETCH: ", "FSDP_BACKWARD_PREFETCH=NO_PREFETCH"},
    {'f', 1, "fsdp_backward_prefetch", "2", ACTS, "BACKWARD_POST: ", "FSDP_BACKWARD_PREFETCH=BACKWARD_POST"},
    {'f', 1, "fsdp_backward_prefetch_policy", "1", ACTS, "BACKWARD_PRE: ", "FSDP_BACKWARD_PREFETCH=BACKWARD_PRE"},
    {'f', 1, "fsdp_forward_prefetch", "true", ACTS, "forward prefetches", "FSDP_FORWARD_PREFETCH=true"},
    {'f', BOTH, "fsdp_state_dict_type", "1", ACTS, "FULL_STATE_DICT: ", "FSDP_STATE_DICT_TYPE=FULL_STATE_DICT"},
    {'f', BOTH, "fsdp_state_dict_type", "SHARDED_STATE_DICT", ACTS, "SHARDED_STATE_DICT: ", "FSDP_STATE_DICT_TYPE=SHARDED_STATE_DICT"},
    {'f', 1, "fsdp_state_dict_type", "2", ACTS, "LOCAL_STATE_DICT: ", "FSDP_STATE_DICT_TYPE=LOCAL_STATE_DICT"},
    {'f', 2, "fsdp_state_dict_type", "LOCAL_STATE_DICT", REFUSED, "is for fsdp_version 1", NULL},
    {'f', BOTH, "fsdp_use_orig_params", "true", NO_EFFECT, "names and shapes", "FSDP_USE_ORIG_PARAMS=true"},
    {'f', BOTH, "fsdp_cpu_ram_efficient_loading", "true", NO_EFFECT, "own rows", "FSDP_CPU_RAM_EFFICIENT_LOADING=true"},
    {'f', BOTH, "fsdp_sync_module_states", "true", NO_EFFECT, "own rows", "FSDP_SYNC_MODULE_STATES=true"},
    {'f', BOTH, "fsdp_sync_module_states", "false", REFUSED, "contradicts fsdp_cpu_ram_efficient_loading true", NULL},
    {'f', BOTH, "fsdp_activation_checkpointing", "true", ACTS, "computes the rest again", "FSDP_ACTIVATION_CHECKPOINTING=true"},
    {'f', BOTH, "fsdp_activation_checkpointing_offload", "true", REFUSED, "needs fsdp_activation_checkpointing true", NULL},
    {'f', BOTH, "activation_checkpointing: true\n  fsdp_activation_checkpointing_offload", "true", ACTS, "in a file until then", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD=true"},
    {'f', BOTH, "fsdp_ignored_modules", "lm_head", ACTS, "lm_head: not sharded", "FSDP_IGNORED_MODULES=lm_head"},
    {'f', BOTH, "fsdp_offload_parms", "true", REFUSED, "did you mean 'fsdp-offload-params'", NULL},
    /* --- parallelism_config --- */
    {'p', 2, "parallelism_config_dp_replicate_size", "2", ACTS, "HYBRID_SHARD: ", "PARALLELISM_CONFIG_DP_REPLICATE_SIZE=2"},
    {'p', 2, "parallelism_config_dp_shard_size", "2", ACTS, "FULL_SHARD: ", "PARALLELISM_CONFIG_DP_SHARD_SIZE=2"},
    {'p', 1, "parallelism_config_dp_shard_size", "2", REFUSED, "fsdp_version 2", NULL},
    {'p', 2, "parallelism_config_dp_replicate_size: 3\n  dp_shard_size", "1", LAUNCHER_REFUSES, "are not the 2 processes", NULL},
    {'p', 2, "parallelism_config_tp_size", "1", NO_EFFECT, "no tensor parallelism", NULL},
    {'p', 2, "parallelism_config_tp_size", "2", REFUSED, "tp_size: ", NULL},
    {'p', 2, "parallelism_config_cp_size", "1", NO_EFFECT, "no context parallelism", NULL},
    {'p', 2, "parallelism_config_cp_size", "2", REFUSED, "cp_size: ", NULL},
    {'p', 2, "parallelism_config_cp_backend", "torch", NO_EFFECT, "no context parallelism", NULL},
    {'p', 2, "parallelism_config_cp_comm_strategy", "alltoall", NO_EFFECT, "no context parallelism", NULL},
    {'p', 2, "parallelism_config_sp_size", "2", REFUSED, "sp_size: ", NULL},
    {'p', 2, "parallelism_config_sp_size", "1", NO_EFFECT, "no sequence parallelism", NULL},
    {'p', 2, "parallelism_config_sp_backend", "deepspeed", NO_EFFECT, "no sequence parallelism", NULL},
    {'p', 2, "parallelism_config_sp_seq_length", "8", NO_EFFECT, "no sequence parallelism", NULL},
    {'p', 2, "parallelism_config_sp_seq_length_is_variable", "true", NO_EFFECT, "no sequence parallelism", NULL},
    {'p', 2, "parallelism_config_sp_attn_implementation", "sdpa", NO_EFFECT, "no sequence parallelism", NULL},
};
/* clang-format on */

typedef struct reading {
    fsdp_launch_config launch;
    fsdp_options *launch_options, *train_options;
    fsdp_train_config train;
    fsdp_status launch_status, train_status;
    char launch_error[600], train_error[600];
    char *explained; /* NULL if the launcher refuses the file */
} reading;

static void forget(reading *r)
{
    fsdp_options_destroy(r->launch_options);
    fsdp_options_destroy(r->train_options);
    free(r->explained); /* open_memstream() made it */
    *r = (reading){0};
}

/* Unset the variables that a rank reads. */
static void clear_variables(void)
{
    static const char *const prefixes[] = {"ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_",
                                           "CUDA_VISIBLE_DEVICES"};
    for (char **entry = environ; *entry;) {
        bool found = false;
        for (size_t i = 0; i < FSDP_LENGTH(prefixes) && !found; i++)
            found = strncmp(*entry, prefixes[i], strlen(prefixes[i])) == 0 &&
                    strncmp(*entry, "FSDP_TEST", 9) != 0;
        char name[128] = "";
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
        if (found)
            unsetenv(name);
        entry = found ? environ : entry + 1;
    }
}

static fsdp_status explain(reading *r)
{
    size_t bytes;
    FILE *file = open_memstream(&r->explained, &bytes);
    const fsdp_status status = fsdp_explain_print(&r->launch, r->launch_options, file);
    fclose(file);
    return status;
}

/* Read the file as the three commands do. */
static fsdp_status read_file(char *path, reading *r)
{
    char *argv[] = {"train",    "--model", "m",        "--data", "d",
                    "--output", "o",       "--config", path,     NULL};
    r->launch_status = fsdp_explain_read(path, NULL, &r->launch, &r->launch_options);
    snprintf(r->launch_error, sizeof r->launch_error, "%s",
             r->launch_status == FSDP_OK ? "" : fsdp_last_error());
    if (r->launch_status == FSDP_OK)
        FSDP_TRY(explain(r));
    r->train_status =
        fsdp_options_parse(fsdp_train_options(), 9, argv, &r->train, &r->train_options);
    snprintf(r->train_error, sizeof r->train_error, "%s",
             r->train_status == FSDP_OK ? "" : fsdp_last_error());
    return FSDP_OK;
}

static void write_row(size_t i, int version, bool is_short, const char *path)
{
    static const char *const maps[] = {
        ['f'] = "fsdp_config", ['p'] = "parallelism_config", ['d'] = "dynamo_config"};
    static const char *const prefixes[] = {
        ['f'] = "fsdp_", ['p'] = "parallelism_config_", ['d'] = "dynamo_"};
    const char section = rows[i].section, *key = rows[i].key;
    const char *skip = section == 't' ? "" : prefixes[(int)section];
    FILE *file = fopen(path, "w");
    if (strcmp(key, "distributed_type") != 0)
        fputs("distributed_type: FSDP\n", file);
    if (strcmp(key, "num_processes") != 0)
        fputs("num_processes: 2\n", file);
    if (section != 'f' || !strstr(key, "fsdp_version"))
        fprintf(file, "fsdp_config:\n  fsdp_version: %d\n", version);
    else
        fputs("fsdp_config:\n", file);
    if (section == 't' || section == 'f')
        fprintf(file, "%s", section == 't' ? "" : "  ");
    else
        fprintf(file, "%s:\n  ", maps[(int)section]);
    if (is_short && strncmp(key, skip, strlen(skip)) == 0)
        key += strlen(skip);
    fprintf(file, "%s: %s\n", key, rows[i].value);
    fclose(file);
}

/* Return the line of the explanation's list of keys without effect that begins with, or contains,
 * `key`; NULL: the key is not in the list. */
static bool is_listed(const char *explained, const char *key, const char *reason)
{
    const char *list = strstr(explained, "\nwithout effect here:\n");
    char text[4000] = "";
    /* A reason may be broken at any space. */
    for (size_t n = 0; list && *list && n + 1 < sizeof text; list++)
        if (*list != '\n' || strncmp(list, "\n    ", 5) != 0)
            text[n++] = *list, text[n] = 0;
        else
            list += 4, text[n++] = ' ', text[n] = 0;
    for (const char *at = text; (at = strstr(at, key)); at += strlen(key)) {
        const char *end = at + strcspn(at, "\n"), *found = reason ? strstr(at, reason) : at;
        const size_t n = strlen(key);
        if ((at[n] == ':' || at[n] == ',') && at > text && at[-1] == ' ' && found && found < end)
            return true;
    }
    return false;
}

static void expect_agreement(fsdp_test *t, const char *name, size_t i, const char *key, reading *r)
{
    const int verdict = rows[i].verdict;
    const bool refused = verdict == REFUSED || verdict == LAUNCHER_REFUSES;
    if ((r->launch_status != FSDP_OK) != refused ||
        (refused && !strstr(r->launch_error, rows[i].text)))
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: the launcher says '%s'", name, r->launch_error);
    if ((r->train_status != FSDP_OK) != (verdict == REFUSED))
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: train says '%s'", name, r->train_error);
    if (verdict == REFUSED && !strstr(r->train_error, "acc.yaml"))
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: train does not name the file: '%s'", name,
                       r->train_error);
    if (refused)
        return;
    if (verdict == NO_EFFECT && !is_listed(r->explained, key, rows[i].text))
        fsdp_test_fail(t, __FILE__, __LINE__, "%s is not listed with its reason:\n%s", name,
                       r->explained);
    if (verdict == ACTS &&
        (is_listed(r->explained, key, NULL) || !strstr(r->explained, rows[i].text)))
        fsdp_test_fail(t, __FILE__, __LINE__, "%s is not explained:\n%s", name, r->explained);
}

/* The ranks get the variable, and what `fsdp train` makes of it is what is explained. */
static void expect_effect(fsdp_test *t, const char *name, size_t i, reading *r)
{
    char variable[100] = "";
    fsdp_train_config train = {0};
    fsdp_options *options = NULL;
    char *argv[] = {"train", "--model", "m", "--data", "d", "--output", "o", NULL};
    ASSERT_OK(fsdp_accelerate_set_environment(&r->launch, r->launch_options));
    const char *wanted = rows[i].variable, *equals = wanted ? strchr(wanted, '=') : NULL;
    if (wanted) {
        snprintf(variable, sizeof variable, "%.*s", (int)(equals - wanted), wanted);
        const char *value = getenv(variable);
        if (!value || strcmp(value, equals + 1) != 0)
            fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s is '%s'", name, variable,
                           value ? value : "(unset)");
    }
    ASSERT_OK(fsdp_options_parse(fsdp_train_options(), 7, argv, &train, &options));
    const fsdp_explained x = fsdp_explain(&r->launch, r->launch_options);
    /* in the environment, and read from the file itself */
    ASSERT_INT(train.sharding_strategy, (int)x.strategy);
    ASSERT_INT(r->train.sharding_strategy, (int)x.strategy);
    ASSERT_INT(train.activation_checkpointing, x.checkpointing);
    ASSERT_INT(r->train.activation_checkpointing, x.checkpointing);
    ASSERT_INT(train.param_dtype == FSDP_DTYPE_F32, x.param_bytes == 4);
    ASSERT_INT(r->train.param_dtype, train.param_dtype);
    ASSERT_INT(r->train.auto_wrap_policy, train.auto_wrap_policy);
    ASSERT_INT(r->train.backward_prefetch, train.backward_prefetch);
    ASSERT_INT(r->train.state_dict_type, train.state_dict_type);
    ASSERT_INT(r->train.replicas, train.replicas);
    if (r->train.shard_size) /* without the key, the number of ranks decides */
        ASSERT_INT(r->train.shard_size, train.shard_size);
    ASSERT_INT((int)r->train.mesh_ranks, (int)train.mesh_ranks);
    if (fsdp_sharding_is_hybrid(train.sharding_strategy) && train.replicas)
        ASSERT_INT(train.replicas, (int)x.replicas);
    ASSERT_INT((int)(r->train.transformer_layer_cls_to_wrap.count),
               (int)train.transformer_layer_cls_to_wrap.count);
    fsdp_options_destroy(options);
}

TEST(each_key_has_its_effect_its_line_or_its_refusal)
{
    NEEDS_LIBYAML();
    char path[600];
    snprintf(path, sizeof path, "%s/acc.yaml", fsdp_test_dir(t));
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++)
        for (int version = 1; version <= 2; version++)
            for (int is_short = 0; is_short < 2; is_short++) {
                const char *key =
                    strrchr(rows[i].key, ' ') ? strrchr(rows[i].key, ' ') + 1 : rows[i].key;
                if ((rows[i].version && rows[i].version != version) ||
                    (is_short && (rows[i].section == 't' || strchr(rows[i].key, '\n'))))
                    continue;
                reading r = {0};
                char name[200];
                snprintf(name, sizeof name, "FSDP%d, %s: %s", version, rows[i].key, rows[i].value);
                clear_variables();
                write_row(i, version, is_short, path);
                ASSERT_OK(read_file(path, &r));
                if (is_short)
                    key += rows[i].section == 'f' ? 5 : rows[i].section == 'd' ? 7 : 19;
                expect_agreement(t, name, i, key, &r);
                if (r.launch_status == FSDP_OK)
                    expect_effect(t, name, i, &r);
                forget(&r);
                CHECK_HERE();
            }
    clear_variables();
}

/* A key that is added to the launcher's table needs a row here. */
TEST(the_table_has_every_key_of_the_launcher)
{
    static const char *const flags_only[] = {"multi-gpu", "run-path", "virtual-local-rank",
                                             "quiet"};
    const fsdp_options_spec *spec = fsdp_launch_options();
    size_t first = 0;
    while (strcmp(spec->table[first].name, "mixed-precision") != 0)
        first++;
    for (size_t k = first; k < spec->count; k++) {
        bool found = false, negated;
        for (size_t i = 0; i < FSDP_LENGTH(flags_only) && !found; i++)
            found = strcmp(spec->table[k].name, flags_only[i]) == 0;
        for (size_t i = 0; i < FSDP_LENGTH(rows) && !found; i++) {
            const char *key =
                strrchr(rows[i].key, ' ') ? strrchr(rows[i].key, ' ') + 1 : rows[i].key;
            found = fsdp_options_find(spec, key, &negated) == (int)k;
        }
        if (!found)
            fsdp_test_fail(t, __FILE__, __LINE__, "no row has %s", spec->table[k].name);
    }
}

/* The number of ranks may come from a flag instead of the file. */
TEST(a_flag_gives_the_number_of_ranks)
{
    NEEDS_LIBYAML();
    char path[600];
    reading r = {0};
    static const char text[] = "distributed_type: FSDP\nnum_processes: -1\n";
    snprintf(path, sizeof path, "%s/acc.yaml", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
    ASSERT_OK(fsdp_explain_read(path, "6", &r.launch, &r.launch_options));
    ASSERT_INT(fsdp_explain(&r.launch, r.launch_options).shards, 6);
    forget(&r);
}

/* Explain a file with fp8 on two ranks, and return the part that begins with `heading`, on one line
 * and without repeated spaces. */
static void explain_fp8(fsdp_test *t, const char *keys, const char *heading, char text[1500])
{
    char path[600], file[400];
    reading r = {0};
    snprintf(path, sizeof path, "%s/acc.yaml", fsdp_test_dir(t));
    snprintf(file, sizeof file,
             "distributed_type: FSDP\nnum_processes: 2\nmixed_precision: fp8\n%s", keys);
    ASSERT_OK(fsdp_file_write(path, file, strlen(file)));
    ASSERT_OK(fsdp_explain_read(path, NULL, &r.launch, &r.launch_options));
    ASSERT_OK(explain(&r));
    const char *at = strstr(r.explained, heading);
    ASSERT(at != NULL);
    size_t n = 0;
    for (; *at && n + 1 < 1500 && !(*at == '\n' && at[1] != ' '); at++) {
        const char c = *at == '\n' ? ' ' : *at;
        if (c != ' ' || n == 0 || text[n - 1] != ' ')
            text[n++] = c;
    }
    text[n] = 0;
    forget(&r);
}

/* A weight that is gathered in float8 has 1 byte for each element, and all others have 2. */
TEST(float8_gathers_are_counted_as_one_byte)
{
    NEEDS_LIBYAML();
    char text[1500];
    explain_fp8(t, "fp8_config: {backend: AO, enable_fsdp_float8_all_gather: true}\n",
                "communication", text);
    CHECK_HERE();
    ASSERT(strstr(text, "1 byte of parameters (two all-gathers of 1 byte, ") != NULL);
    ASSERT(strstr(text, "gathered in bfloat16: 2 bytes.") != NULL);
    explain_fp8(t, "", "communication", text); /* the key is true by default */
    CHECK_HERE();
    ASSERT(strstr(text, "two all-gathers of 1 byte, ") != NULL);
    explain_fp8(t, "fp8_config: {backend: AO, enable_fsdp_float8_all_gather: false}\n",
                "communication", text);
    CHECK_HERE();
    ASSERT(strstr(text, "2 bytes of parameters (two all-gathers of 2 bytes, ") != NULL);
    ASSERT(strstr(text, "scales") == NULL);
    explain_fp8(t, "fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}\n", "memory",
                text);
    CHECK_HERE();
    ASSERT(strstr(text, "from forward to backward 1 byte more (2 where") != NULL);
}

static fsdp_status everything(const char *path)
{
    reading r = {0};
    fsdp_status status = fsdp_explain_read(path, NULL, &r.launch, &r.launch_options);
    if (status == FSDP_OK)
        status = explain(&r);
    forget(&r);
    return status;
}

TEST(explaining_without_memory_leaks_nothing)
{
    NEEDS_LIBYAML();
    char path[600];
    static const char text[] = "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n"
                               "  fsdp_sharding_strategy: 4\n  fsdp_use_orig_params: true\n"
                               "  fsdp_transformer_layer_cls_to_wrap: [T5Block, BertLayer]\n";
    snprintf(path, sizeof path, "%s/acc.yaml", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
    fsdp_status status = FSDP_ERR_NOMEM;
    for (uint64_t n = 1; status != FSDP_OK; n++) {
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_alloc_fail_at(n);
        status = everything(path);
        fsdp_alloc_fail_at(0);
    }
}
