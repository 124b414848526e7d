/* Accelerate's files and flags, read by the options of `fsdp launch`: which variables the ranks
 * get, what `fsdp train` makes of them, and what is refused. The expected variables are those that
 * the workers of accelerate 1.15 print when it launches a script with the same file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/launch/accelerate.h"
#include "src/train_config/config.h"
#include "tests/test.h"

static fsdp_options *kept;

/* Unset the variables of the previous case. */
static void clear_variables(void)
{
    static const char *const prefixes[] = {"ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "PET_",
                                           "CUDA_VISIBLE_DEVICES"};
    bool found = true;
    while (found) {
        found = false;
        for (char **entry = environ; *entry && !found; entry++)
            for (size_t i = 0; i < FSDP_LENGTH(prefixes) && !found; i++)
                if (strncmp(*entry, prefixes[i], strlen(prefixes[i])) == 0 &&
                    strncmp(*entry, "FSDP_TEST", 9) != 0) {
                    char name[128] = "";
                    snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
                    unsetenv(name);
                    found = true;
                }
    }
}

/* Read the words of a command line, which are separated by spaces, as `fsdp launch` does. */
static fsdp_status launch(fsdp_launch_config *c, const char *line)
{
    static char words[4096];
    char *argv[64], *rest = words;
    int argc = 0;
    snprintf(words, sizeof words, "launch %s ./program", line);
    for (char *word; (word = strsep(&rest, " "));)
        if (*word)
            argv[argc++] = word;
    argv[argc] = NULL;
    fsdp_options_destroy(kept);
    kept = NULL;
    return fsdp_options_parse(fsdp_launch_options(), argc, argv, c, &kept);
}

/* Write `text` to acc.yaml of this test and read it with the flags. */
static fsdp_status launch_file(fsdp_test *t, fsdp_launch_config *c, const char *text,
                               const char *flags)
{
    char line[1024], path[600];
    snprintf(path, sizeof path, "%s/acc.yaml", fsdp_test_dir(t));
    FSDP_TRY(fsdp_file_write(path, text, strlen(text)));
    snprintf(line, sizeof line, "--config_file %s %s", path, flags);
    return launch(c, line);
}

static void expect_variable(fsdp_test *t, const char *what, const char *name, const char *value)
{
    const char *now = getenv(name);
    if (value ? !now || strcmp(now, value) != 0 : now != NULL)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s is '%s', not '%s'", what, name,
                       now ? now : "(unset)", value ? value : "(unset)");
}

#define TOP "distributed_type: FSDP\nnum_processes: 2\n"

/* A key of a file, the same as a flag, and the variable that it sets. */
static const struct {
    const char *key, *value, *variable, *expected;
} keys[] = {
    /* FSDP1, by name and by the number of the menu */
    {"fsdp_sharding_strategy", "FULL_SHARD", "FSDP_SHARDING_STRATEGY", "FULL_SHARD"},
    {"fsdp_sharding_strategy", "1", "FSDP_SHARDING_STRATEGY", "1"},
    {"fsdp_sharding_strategy", "2", "FSDP_SHARDING_STRATEGY", "2"},
    {"fsdp_sharding_strategy", "3", "FSDP_SHARDING_STRATEGY", "3"},
    {"fsdp_sharding_strategy", "4", "FSDP_SHARDING_STRATEGY", "4"},
    {"fsdp_sharding_strategy", "5", "FSDP_SHARDING_STRATEGY", "5"},
    {"fsdp_sharding_strategy", "HYBRID_SHARD_ZERO2", "FSDP_SHARDING_STRATEGY",
     "HYBRID_SHARD_ZERO2"},
    {"fsdp_reshard_after_forward", "SHARD_GRAD_OP", "FSDP_RESHARD_AFTER_FORWARD", "shard_grad_op"},
    {"fsdp_reshard_after_forward", "NO_SHARD", "FSDP_RESHARD_AFTER_FORWARD", "no_shard"},
    {"fsdp_reshard_after_forward", "2", "FSDP_RESHARD_AFTER_FORWARD", "shard_grad_op"},
    {"fsdp_reshard_after_forward", "4", "FSDP_RESHARD_AFTER_FORWARD", "hybrid_shard"},
    {"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "FSDP_AUTO_WRAP_POLICY",
     "TRANSFORMER_BASED_WRAP"},
    {"fsdp_auto_wrap_policy", "1", "FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP"},
    {"fsdp_auto_wrap_policy", "2", "FSDP_AUTO_WRAP_POLICY", "SIZE_BASED_WRAP"},
    {"fsdp_auto_wrap_policy", "3", "FSDP_AUTO_WRAP_POLICY", "NO_WRAP"},
    {"fsdp_transformer_layer_cls_to_wrap", "BertLayer,T5Block", "FSDP_TRANSFORMER_CLS_TO_WRAP",
     "BertLayer,T5Block"},
    {"fsdp_min_num_params", "2000", "FSDP_MIN_NUM_PARAMS", "2000"},
    {"fsdp_backward_prefetch", "BACKWARD_POST", "FSDP_BACKWARD_PREFETCH", "BACKWARD_POST"},
    {"fsdp_backward_prefetch", "1", "FSDP_BACKWARD_PREFETCH", "BACKWARD_PRE"},
    {"fsdp_backward_prefetch", "2", "FSDP_BACKWARD_PREFETCH", "BACKWARD_POST"},
    {"fsdp_backward_prefetch", "3", "FSDP_BACKWARD_PREFETCH", "NO_PREFETCH"},
    {"fsdp_backward_prefetch_policy", "BACKWARD_PRE", "FSDP_BACKWARD_PREFETCH", "BACKWARD_PRE"},
    {"fsdp_forward_prefetch", "true", "FSDP_FORWARD_PREFETCH", "true"},
    {"fsdp_state_dict_type", "SHARDED_STATE_DICT", "FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT"},
    {"fsdp_state_dict_type", "1", "FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT"},
    {"fsdp_state_dict_type", "2", "FSDP_STATE_DICT_TYPE", "LOCAL_STATE_DICT"},
    {"fsdp_state_dict_type", "3", "FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT"},
    {"fsdp_offload_params", "true", "FSDP_OFFLOAD_PARAMS", "true"},
    {"fsdp_use_orig_params", "false", "FSDP_USE_ORIG_PARAMS", "false"},
    {"fsdp_sync_module_states", "true", "FSDP_SYNC_MODULE_STATES", "true"},
    {"fsdp_cpu_ram_efficient_loading", "false", "FSDP_CPU_RAM_EFFICIENT_LOADING", "false"},
    {"fsdp_activation_checkpointing", "true", "FSDP_ACTIVATION_CHECKPOINTING", "true"},
    {"fsdp_activation_checkpointing_offload", "false", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
     "false"},
    {"fsdp_ignored_modules", "lm_head", "FSDP_IGNORED_MODULES", "lm_head"},
    {"fsdp_version", "1", "FSDP_VERSION", "1"},
    {"fsdp_version", "2", "FSDP_VERSION", "2"},
};

TEST(every_key_of_fsdp_config_reaches_the_ranks)
{
    NEEDS_LIBYAML();
    fsdp_launch_config c;
    for (size_t i = 0; i < FSDP_LENGTH(keys); i++) {
        char text[512], flag[256];
        snprintf(text, sizeof text, TOP "fsdp_config:\n  %s: %s\n", keys[i].key, keys[i].value);
        clear_variables();
        ASSERT_OK(launch_file(t, &c, text, ""));
        ASSERT(c.is_accelerate && c.accelerate.use_fsdp);
        ASSERT_INT(c.n_ranks, 2);
        ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
        expect_variable(t, text, keys[i].variable, keys[i].expected);

        /* the key of old files, without fsdp_ */
        snprintf(text, sizeof text, TOP "fsdp_config:\n  %s: %s\n", keys[i].key + 5, keys[i].value);
        clear_variables();
        ASSERT_OK(launch_file(t, &c, text, ""));
        ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
        expect_variable(t, text, keys[i].variable, keys[i].expected);

        snprintf(flag, sizeof flag, "--config none --num_processes 2 --%s %s", keys[i].key,
                 keys[i].value);
        clear_variables();
        ASSERT_OK(launch(&c, flag));
        ASSERT(c.accelerate.use_fsdp);
        ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
        expect_variable(t, flag, keys[i].variable, keys[i].expected);
        expect_variable(t, flag, "ACCELERATE_USE_FSDP", "true");

        for (char *at = flag; *at; at++)
            *at = *at == '_' && at < strstr(flag, keys[i].value) ? '-' : *at;
        clear_variables();
        ASSERT_OK(launch(&c, flag));
        ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
        expect_variable(t, flag, keys[i].variable, keys[i].expected);
        CHECK_HERE();
    }
    clear_variables();
}

/* A file of Accelerate 0.1, with keys that newer files do not have, in which other values are null.
 * `fsdp train` reads it, too. */
TEST(old_files_are_read)
{
    NEEDS_LIBYAML();
    static const char text[] =
        "command_file: null\ncommands: null\ncompute_environment: LOCAL_MACHINE\n"
        "deepspeed_config: {}\ndistributed_type: FSDP\ndowncast_bf16: 'no'\n"
        "dynamo_backend: 'NO'\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
        "  fsdp_backward_prefetch_policy: BACKWARD_PRE\n  fsdp_offload_params: false\n"
        "  fsdp_sharding_strategy: 1\n  fsdp_state_dict_type: FULL_STATE_DICT\n"
        "  fsdp_transformer_layer_cls_to_wrap: T5Block\ngpu_ids: null\nmachine_rank: 0\n"
        "main_process_ip: null\nmain_process_port: null\nmain_training_function: main\n"
        "megatron_lm_config: {}\nmixed_precision: 'no'\nnum_machines: 1\nnum_processes: 2\n"
        "rdzv_backend: static\nsame_network: true\ntpu_name: null\ntpu_zone: null\n"
        "use_cpu: false\n";
    fsdp_launch_config c;
    fsdp_train_config train;
    fsdp_options *options;
    char path[600],
        *argv[] = {"train", "--model", "m", "--data", "d", "--output", "o", "--config", path, NULL};
    clear_variables();
    ASSERT_OK(launch_file(t, &c, text, ""));
    char *notes = fsdp_options_notes(kept);
    ASSERT_STR(notes, "");
    fsdp_text_free(notes);
    ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
    expect_variable(t, "old", "FSDP_SHARDING_STRATEGY", "1");
    expect_variable(t, "old", "FSDP_BACKWARD_PREFETCH", "BACKWARD_PRE");
    expect_variable(t, "old", "CUDA_VISIBLE_DEVICES", NULL);
    clear_variables();
    snprintf(path, sizeof path, "%s/acc.yaml", fsdp_test_dir(t));
    ASSERT_OK(
        fsdp_options_parse(fsdp_train_options(), FSDP_LENGTH(argv) - 1, argv, &train, &options));
    ASSERT_INT(train.transformer_layer_cls_to_wrap.count, 1);
    fsdp_options_destroy(options);
}

/* Accelerate's ClusterConfig makes an empty map of a section that is null. */
TEST(sections_may_be_null)
{
    NEEDS_LIBYAML();
    static const char *const nulls[] = {
        TOP "fsdp_config:\n", TOP "fsdp_config: null\n",
        TOP "fsdp_config: ~\ndeepspeed_config: null\nmegatron_lm_config:\n",
        TOP "deepspeed_config:\nmixed_precision: 'no'\nparallelism_config: Null\n",
        TOP "fsdp_config: {fsdp_offload_params: null}\ndynamo_config:\n"};
    static const char *const wrong[][2] = {
        {TOP "fsdp_config: [a]\n", "acc.yaml:3: fsdp_config: takes 'key: value' lines of its own"},
        {TOP "fsdp_config: yes\n", "not a single value"},
        {TOP "fsdp_config: ''\n", "acc.yaml:3: fsdp_config: takes"},
        {TOP "deepspeed_config: {zero_stage: 3}\n", "acc.yaml:3: deepspeed_config: not supported"}};
    fsdp_launch_config c;
    for (size_t i = 0; i < FSDP_LENGTH(nulls); i++) {
        clear_variables();
        ASSERT_OK(launch_file(t, &c, nulls[i], ""));
        ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
        expect_variable(t, nulls[i], "ACCELERATE_USE_FSDP", "true");
        expect_variable(t, nulls[i], "FSDP_OFFLOAD_PARAMS", "false");
        CHECK_HERE();
    }
    clear_variables();
    for (size_t i = 0; i < FSDP_LENGTH(wrong); i++) {
        fsdp_status status = launch_file(t, &c, wrong[i][0], "");
        ASSERT(status != FSDP_OK);
        if (!strstr(fsdp_last_error(), wrong[i][1]) || strstr(fsdp_last_error(), "unknown option"))
            FAIL("%s: %s", wrong[i][0], fsdp_last_error());
    }
}

/* The variables of a file that gives nothing but the type, which are accelerate's defaults. */
TEST(an_fsdp_run_has_the_defaults_of_accelerate)
{
    NEEDS_LIBYAML();
    static const char *const expected[][2] = {
        {"ACCELERATE_DYNAMO_BACKEND", "NO"},
        {"ACCELERATE_DYNAMO_MODE", "default"},
        {"ACCELERATE_DYNAMO_USE_DYNAMIC", "False"},
        {"ACCELERATE_DYNAMO_USE_FULLGRAPH", "False"},
        {"ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "False"},
        {"ACCELERATE_MIXED_PRECISION", "no"},
        {"ACCELERATE_USE_FSDP", "true"},
        {"ACCELERATE_USE_CPU", NULL},
        {"ACCELERATE_DEBUG_MODE", NULL},
        {"ACCELERATE_CPU_AFFINITY", NULL},
        {"ACCELERATE_USE_PARALLELISM_CONFIG", NULL},
        {"FSDP_ACTIVATION_CHECKPOINTING", "false"},
        {"FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "false"},
        {"FSDP_AUTO_WRAP_POLICY", NULL},
        {"FSDP_BACKWARD_PREFETCH", NULL},
        {"FSDP_CPU_RAM_EFFICIENT_LOADING", "true"},
        {"FSDP_FORWARD_PREFETCH", "false"},
        {"FSDP_IGNORED_MODULES", NULL},
        {"FSDP_MIN_NUM_PARAMS", "100000000"},
        {"FSDP_OFFLOAD_PARAMS", "false"},
        {"FSDP_RESHARD_AFTER_FORWARD", "true"},
        {"FSDP_SHARDING_STRATEGY", "FULL_SHARD"},
        {"FSDP_STATE_DICT_TYPE", NULL},
        {"FSDP_SYNC_MODULE_STATES", "true"},
        {"FSDP_TRANSFORMER_CLS_TO_WRAP", NULL},
        {"FSDP_USE_ORIG_PARAMS", "true"},
        {"FSDP_VERSION", "1"},
    };
    fsdp_launch_config c;
    clear_variables();
    ASSERT_OK(launch_file(t, &c, TOP, ""));
    ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
    for (size_t i = 0; i < FSDP_LENGTH(expected); i++)
        expect_variable(t, "defaults", expected[i][0], expected[i][1]);
    clear_variables();
}

/* Keys at the top of a file and in its other maps, and flags that only Accelerate has. */
TEST(the_other_keys_reach_the_ranks)
{
    NEEDS_LIBYAML();
    static const struct {
        const char *text, *flags, *variable, *expected;
    } cases[] = {
        {TOP "mixed_precision: bf16\n", "", "ACCELERATE_MIXED_PRECISION", "bf16"},
        {TOP "mixed_precision: 'no'\n", "", "ACCELERATE_MIXED_PRECISION", "no"},
        {TOP "mixed_precision: bf16\n", "--mixed_precision fp16", "ACCELERATE_MIXED_PRECISION",
         "fp16"},
        {TOP "fp16: true\n", "", "ACCELERATE_MIXED_PRECISION", "fp16"},
        {"distributed_type: FSDP\nnum_processes: 0x2\nfsdp_config: {fsdp_version: 1,\n"
         "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP, fsdp_min_num_params: 1_000}\n",
         "", "FSDP_MIN_NUM_PARAMS", "1000"},
        {TOP "debug: true\n", "", "ACCELERATE_DEBUG_MODE", "true"},
        {TOP, "--debug", "ACCELERATE_DEBUG_MODE", "true"},
        {TOP "enable_cpu_affinity: true\n", "", "ACCELERATE_CPU_AFFINITY", "1"},
        {TOP "gpu_ids: 0,1\n", "", "CUDA_VISIBLE_DEVICES", "0,1"},
        {TOP "gpu_ids: [2, 3]\n", "", "CUDA_VISIBLE_DEVICES", "2,3"},
        {TOP "gpu_ids: all\n", "", "CUDA_VISIBLE_DEVICES", NULL},
        {TOP, "--gpu_ids 1", "CUDA_VISIBLE_DEVICES", "1"},
        {TOP "dynamo_backend: INDUCTOR\n", "", "ACCELERATE_DYNAMO_BACKEND", "INDUCTOR"},
        {TOP "dynamo_config:\n  dynamo_backend: inductor\n  dynamo_mode: max-autotune\n", "",
         "ACCELERATE_DYNAMO_MODE", "max-autotune"},
        {TOP "dynamo_config:\n  backend: EAGER\n", "", "ACCELERATE_DYNAMO_BACKEND", "EAGER"},
        {TOP "dynamo_config:\n  dynamo_use_dynamic: true\n", "", "ACCELERATE_DYNAMO_USE_DYNAMIC",
         "True"},
        {"distributed_type: 'NO'\nnum_processes: 1\n", "", "ACCELERATE_USE_CPU", "False"},
        {"distributed_type: MULTI_CPU\nnum_processes: 1\nuse_cpu: true\n", "", "ACCELERATE_USE_CPU",
         "True"},
        {"distributed_type: MULTI_GPU\nnum_processes: 2\n", "", "ACCELERATE_USE_FSDP", NULL},
        {TOP "fsdp_config: {}\n", "--multi_gpu", "ACCELERATE_USE_FSDP", NULL},
        {"distributed_type: MULTI_GPU\nnum_processes: 2\n", "--use_fsdp", "ACCELERATE_USE_FSDP",
         "true"},
        {TOP "fsdp_config: {fsdp_version: 2}\nparallelism_config:\n"
             "  parallelism_config_dp_replicate_size: 2\n",
         "", "PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "2"},
        {TOP "fsdp_config: {fsdp_version: 2}\nparallelism_config: {dp_shard_size: 2}\n", "",
         "PARALLELISM_CONFIG_DP_SHARD_SIZE", "2"},
        {TOP "fsdp_config: {fsdp_version: 2}\nparallelism_config: {dp_shard_size: 2}\n", "",
         "ACCELERATE_USE_PARALLELISM_CONFIG", "true"},
    };
    fsdp_launch_config c;
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        clear_variables();
        ASSERT_OK(launch_file(t, &c, cases[i].text, cases[i].flags));
        ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
        expect_variable(t, cases[i].text, cases[i].variable, cases[i].expected);
        CHECK_HERE();
    }
    clear_variables();
}

/* A flag wins over the file, the file over the environment, and the environment over the default.
 */
TEST(sources_have_an_order)
{
    NEEDS_LIBYAML();
    fsdp_launch_config c;
    clear_variables();
    setenv("FSDP_OFFLOAD_PARAMS", "true", 1);
    setenv("ACCELERATE_MIXED_PRECISION", "fp16", 1);
    ASSERT_OK(launch_file(t, &c, TOP, ""));
    ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
    expect_variable(t, "environment", "FSDP_OFFLOAD_PARAMS", "true");
    expect_variable(t, "environment", "ACCELERATE_MIXED_PRECISION", "fp16");
    ASSERT_OK(launch_file(t, &c,
                          TOP "mixed_precision: bf16\nfsdp_config: {offload_params: false}\n", ""));
    ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
    expect_variable(t, "file", "FSDP_OFFLOAD_PARAMS", "false");
    expect_variable(t, "file", "ACCELERATE_MIXED_PRECISION", "bf16");
    ASSERT_OK(launch_file(t, &c,
                          TOP "mixed_precision: bf16\nfsdp_config: {offload_params: false}\n",
                          "--fsdp_offload_params true --num-processes 3"));
    ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
    expect_variable(t, "flag", "FSDP_OFFLOAD_PARAMS", "true");
    ASSERT_INT(c.n_ranks, 3);
    clear_variables();
    ASSERT_OK(launch_file(t, &c, TOP "fsdp_config: {reshard_after_forward: SHARD_GRAD_OP}\n",
                          "--fsdp_sharding_strategy NO_SHARD"));
    ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
    expect_variable(t, "flag", "FSDP_SHARDING_STRATEGY", "NO_SHARD");
    expect_variable(t, "flag", "FSDP_RESHARD_AFTER_FORWARD", "true");
    clear_variables();
}

/* Without Accelerate's options and files, the ranks get torchrun's environment only. */
TEST(torchruns_options_set_nothing_of_accelerate)
{
    fsdp_launch_config c;
    clear_variables();
    ASSERT_OK(launch(&c, "--config none --standalone --nproc-per-node 2 --nnodes 1 --cpu"));
    ASSERT(!c.is_accelerate);
    ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
    expect_variable(t, "torchrun", "ACCELERATE_MIXED_PRECISION", NULL);
    expect_variable(t, "torchrun", "FSDP_VERSION", NULL);
}

/* The rendezvous as torchrun and accelerate choose it. */
TEST(the_meeting_place_is_torchruns)
{
    static const struct {
        const char *line, *addr;
        int port;
        bool random_id;
    } cases[] = {
        {"-n 2", "localhost", 0, true},
        {"--standalone -n 2", "localhost", 0, true},
        {"-n 2 --rdzv-id job", "localhost", 0, false},
        {"-n 2 --master-port 29511 --master-addr 127.0.0.1", "127.0.0.1", 29511, false},
        {"-n 2 --master_port 29511", "127.0.0.1", 29511, false},
        {"-n 2 --rdzv-backend c10d --rdzv-endpoint localhost:0", "localhost", 0, false},
        {"--num_processes 2", "127.0.0.1", 29500, false},
        {"--num_processes 2 --main_process_port 0", "127.0.0.1", 0, false},
        {"--num_processes 2 --main_process_port 29501", "127.0.0.1", 29501, false},
    };
    fsdp_launch_config c;
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        char line[256];
        snprintf(line, sizeof line, "--config none %s", cases[i].line);
        ASSERT_OK(launch(&c, line));
        ASSERT_STR(c.master_addr, cases[i].addr);
        ASSERT_INT(c.master_port, cases[i].port);
        /* a version 4 UUID has 36 characters */
        ASSERT_INT(strlen(c.rdzv_id) == 36 && c.rdzv_id[14] == '4', cases[i].random_id);
        CHECK_HERE();
    }
}

TEST(contradictions_and_unknown_keys_are_named)
{
    NEEDS_LIBYAML();
    static const struct {
        const char *text, *flags, *error;
    } cases[] = {
        {TOP "color: red\n", "", "acc.yaml:3: unknown option 'color'"},
        {TOP "num_machine: 1\n", "",
         "acc.yaml:3: unknown option 'num_machine'; did you mean 'num-machines'?"},
        {TOP "fsdp_config:\n  fsdp_sharding_stratgy: 1\n", "",
         "acc.yaml:4: unknown option 'fsdp_sharding_stratgy'; did you mean "
         "'fsdp-sharding-strategy'?"},
        {TOP "fsdp_confg:\n  fsdp_version: 1\n", "",
         "acc.yaml:3: unknown map 'fsdp_confg'; did you mean 'fsdp_config'?"},
        {TOP "fsdp_config: {fsdp_version: 3}\n", "",
         "fsdp_version: '3' is not allowed; it takes 1 or 2"},
        {TOP "num_machines: 2\n", "", "acc.yaml:3: num_machines: 2: say where the hosts meet"},
        {TOP "num_machines: 2\nmain_process_ip: host0\n", "--num_processes 3",
         "3 processes cannot be shared equally by 2 hosts"},
        {TOP "machine_rank: 1\n", "", "acc.yaml:3: machine_rank: 1: with one host it is 0"},
        {"distributed_type: FSDP\nnum_processes: -1\n", "",
         "acc.yaml:2: num_processes: -1: this file leaves the number of ranks to --num_processes"},
        {"distributed_type: DEEPSPEED\n", "", "DEEPSPEED is not supported: there is no DeepSpeed"},
        {"distributed_type: MULTI_NPU\n", "", "MULTI_NPU is not supported: devices are CPUs"},
        {"distributed_type: FSPD\n", "", "distributed_type: 'FSPD' is not allowed"},
        {"deepspeed_config: {zero_stage: 3}\n", "",
         "acc.yaml:1: deepspeed_config: not supported: there is no DeepSpeed"},
        {"compute_environment: AMAZON_SAGEMAKER\n", "",
         "AMAZON_SAGEMAKER is not supported: ranks run on this machine"},
        {"distributed_type: 'NO'\nfsdp_config:\n  fsdp_version: 2\n", "",
         "acc.yaml:3: fsdp_version: contradicts distributed_type NO"},
        {TOP, "--no-use-fsdp --fsdp_version 2", "--fsdp_version: contradicts --no-use-fsdp"},
        {TOP, "--use_fsdp --multi_gpu", "--multi_gpu: contradicts --use_fsdp"},
        {TOP, "--cpu --multi_gpu", "--cpu: contradicts --multi_gpu"},
        {"", "--multi_gpu --num_processes 1", "needs at least 2 processes"},
        {TOP "mixed_precision: fp8\nfp8_config: {backend: TE}\n", "",
         "acc.yaml:4: backend: TE is not supported; AO (torchao) is"},
        {TOP "mixed_precision: bf16\nfp8_config: {pad_inner_dim: true}\n", "",
         "acc.yaml:4: pad_inner_dim: has no effect without mixed_precision fp8"},
        {TOP "mixed_precision: bf16\nfp16: true\n", "", "fp16: contradicts mixed_precision bf16"},
        {TOP "gpu_ids: 0,x\n", "", "gpu_ids: 'x' is not allowed; it takes all, or numbers"},
        {TOP, "--gpu_ids 1,1", "--gpu_ids: card 1 is given twice"},
        {TOP "fsdp_config: {fsdp_sync_module_states: false}\n", "",
         "fsdp_sync_module_states: false contradicts fsdp_cpu_ram_efficient_loading true"},
        {TOP "fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: FULL_SHARD}\n", "",
         "fsdp_reshard_after_forward: FULL_SHARD: with fsdp_version 2 it is true"},
        {TOP "fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: 2}\n", "",
         "fsdp_reshard_after_forward: 2: with fsdp_version 2 it is true"},
        {TOP "fsdp_config: {fsdp_version: 2, fsdp_sharding_strategy: SHARD_GRAD_OP}\n", "",
         "SHARD_GRAD_OP contradicts fsdp_reshard_after_forward true of fsdp_version 2"},
        {TOP "fsdp_config: {fsdp_reshard_after_forward: false}\n", "",
         "false is for fsdp_version 2"},
        {TOP "fsdp_config: {fsdp_reshard_after_forward: 7}\n", "", "7 is no strategy"},
        {TOP "fsdp_config: {fsdp_sharding_strategy: 1, fsdp_reshard_after_forward: NO_SHARD}\n", "",
         "FULL_SHARD contradicts fsdp_reshard_after_forward NO_SHARD"},
        {TOP "fsdp_config: {fsdp_version: 2, fsdp_state_dict_type: LOCAL_STATE_DICT}\n", "",
         "LOCAL_STATE_DICT is for fsdp_version 1"},
        {TOP "fsdp_config: {fsdp_activation_checkpointing_offload: true}\n", "",
         "needs fsdp_activation_checkpointing true"},
        {TOP "fsdp_config: {fsdp_sharding_strategy: 6}\n", "", "fsdp_sharding_strategy: '6'"},
        {TOP "parallelism_config: {dp_shard_size: 2}\n", "",
         "needs --use_fsdp and --fsdp_version 2"},
        {TOP "fsdp_config: {version: 2}\nparallelism_config: {dp_shard_size: 4}\n", "",
         "dp_replicate_size 1 times dp_shard_size 4 are not the 2 processes"},
        {TOP "fsdp_config: {version: 2}\nparallelism_config: {tp_size: 2}\n", "",
         "no tensor parallelism"},
        {TOP, "--zero_stage 3", "--zero_stage: not supported: there is no DeepSpeed"},
        {TOP, "--megatron-lm-tp-degree 2", "--megatron-lm-tp-degree: not supported"},
        {TOP, "--fp8_backend te", "--fp8_backend: TE is not supported; AO (torchao) is"},
        {TOP, "--fp8_margin 2", "it is for Transformer Engine or MS-AMP"},
        {TOP, "--gradient_accumulation_steps 2", "train --gradient-accumulation-steps N"},
        {TOP, "--tpu", "--tpu: not supported: there is no device for TPUs"},
        {TOP, "-m", "ranks are programs, not Python modules"},
        {TOP, "-m --no_python", "--module contradicts --no-python"},
        {TOP, "--virtual-local-rank", "each rank takes its card by LOCAL_RANK"},
    };
    fsdp_launch_config c;
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        clear_variables();
        const fsdp_status status = launch_file(t, &c, cases[i].text, cases[i].flags);
        if (status == FSDP_OK || !strstr(fsdp_last_error(), cases[i].error))
            fsdp_test_fail(t, __FILE__, __LINE__, "%s %s: '%s', not '%s'", cases[i].text,
                           cases[i].flags, status == FSDP_OK ? "accepted" : fsdp_last_error(),
                           cases[i].error);
    }
}

/* What has no effect is listed, but not what a file only repeats. */
TEST(what_has_no_effect_is_listed_once)
{
    NEEDS_LIBYAML();
    static const struct {
        const char *text, *flags, *notes;
    } cases[] = {
        {TOP "machine_rank: 0\nmain_training_function: main\nrdzv_backend: static\n"
             "same_network: true\ntpu_env: []\ntpu_use_cluster: false\ntpu_use_sudo: false\n"
             "downcast_bf16: 'no'\ncompute_environment: LOCAL_MACHINE\ndebug: false\n"
             "main_process_ip: null\nfsdp_config: {fsdp_use_orig_params: true}\n",
         "", ""},
        {TOP, "--monitor-interval 5 --rdzv-conf a=b --quiet",
         "--rdzv-conf: ranks of one host find each other without it\n"
         "--monitor-interval: a rank's end is noticed at once\n"
         "--quiet: one message says which rank failed\n"},
        {TOP "fsdp_config:\n  fsdp_auto_wrap_policy: NO_WRAP\n  fsdp_min_num_params: 5\n", "",
         "--fsdp-min-num-params: is for fsdp_auto_wrap_policy SIZE_BASED_WRAP\n"},
        {TOP "tpu_env: [A=1]\n", "", "--tpu-env: there is no device for TPUs\n"},
        {TOP "dynamo_backend: INDUCTOR\n", "", "--dynamo-backend: nothing is left to compile\n"},
    };
    fsdp_launch_config c;
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        ASSERT_OK(launch_file(t, &c, cases[i].text, cases[i].flags));
        char *notes = fsdp_options_notes(kept);
        ASSERT_STR(notes, cases[i].notes);
        fsdp_text_free(notes);
        CHECK_HERE();
    }
}

/* $HF_HOME, then $XDG_CACHE_HOME, then ~/.cache, as in accelerate. */
TEST(the_default_file_is_where_accelerate_looks)
{
    NEEDS_LIBYAML();
    char folder[800], path[900], *found;
    fsdp_launch_config c;
    static const char *const folders[][2] = {{"HF_HOME", "accelerate"},
                                             {"XDG_CACHE_HOME", "huggingface/accelerate"},
                                             {"HOME", ".cache/huggingface/accelerate"}};
    char *kept_home = fsdp_strdup(getenv("HOME") ? getenv("HOME") : "/");
    for (size_t i = 0; i < FSDP_LENGTH(folders); i++) {
        unsetenv("HF_HOME");
        unsetenv("XDG_CACHE_HOME");
        char own[600];
        snprintf(own, sizeof own, "%s/home%zu", fsdp_test_dir(t), i);
        setenv(folders[i][0], own, 1);
        snprintf(folder, sizeof folder, "%s/%s", own, folders[i][1]);
        ASSERT_OK(fsdp_accelerate_default_config(&found));
        ASSERT(!found);
        ASSERT_OK(fsdp_directory_make(folder));
        snprintf(path, sizeof path, "%s/default_config.yaml", folder);
        ASSERT_OK(fsdp_file_write(path, TOP, strlen(TOP)));
        ASSERT_OK(fsdp_accelerate_default_config(&found));
        ASSERT_STR(found, path);
        fsdp_free(found);
        ASSERT_OK(launch(&c, ""));
        ASSERT_STR(fsdp_options_file(kept), path);
        ASSERT_INT(c.n_ranks, 2);
        ASSERT_OK(launch(&c, "--config_file none"));
        ASSERT(!fsdp_options_file(kept));
        ASSERT_INT(c.n_ranks, 1);
        CHECK_HERE();
    }
    setenv("HOME", kept_home, 1);
    setenv("HF_HOME", "/nonexistent", 1);
    fsdp_free(kept_home);
}

/* What `fsdp train` makes of the variables. */
TEST(train_takes_the_variables)
{
    NEEDS_LIBYAML();
    static const struct {
        const char *text, *line;
        int strategy, reshard;
    } cases[] = {
        {"fsdp_sharding_strategy: 1", "", FSDP_SHARDING_FULL_SHARD, 1},
        {"fsdp_sharding_strategy: 2", "", FSDP_SHARDING_SHARD_GRAD_OP, 0},
        {"fsdp_sharding_strategy: NO_SHARD", "", FSDP_SHARDING_NO_SHARD, 0},
        {"fsdp_sharding_strategy: 4", "", FSDP_SHARDING_HYBRID_SHARD, 1},
        {"fsdp_sharding_strategy: 5", "", FSDP_SHARDING_HYBRID_SHARD_ZERO2, 0},
        {"fsdp_reshard_after_forward: SHARD_GRAD_OP", "", FSDP_SHARDING_SHARD_GRAD_OP, 0},
        {"fsdp_version: 2\n  fsdp_reshard_after_forward: false", "", FSDP_SHARDING_SHARD_GRAD_OP,
         0},
        {"fsdp_version: 2\n  fsdp_reshard_after_forward: true", "", FSDP_SHARDING_FULL_SHARD, 1},
        {"fsdp_sharding_strategy: 2\n  reshard_after_forward: 2", "", FSDP_SHARDING_SHARD_GRAD_OP,
         0},
        {"fsdp_sharding_strategy: 2", "--sharding-strategy FULL_SHARD", FSDP_SHARDING_FULL_SHARD,
         1},
        {"fsdp_version: 2\nparallelism_config: {dp_replicate_size: 2, dp_shard_size: 1}", "",
         FSDP_SHARDING_HYBRID_SHARD, 1},
        {"fsdp_version: 2\n  reshard_after_forward: false\nparallelism_config: {dp_replicate_size: "
         "2}",
         "", FSDP_SHARDING_HYBRID_SHARD_ZERO2, 0},
        {"fsdp_version: 2\nparallelism_config: {dp_shard_size: 2}", "", FSDP_SHARDING_FULL_SHARD,
         1},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        char text[512];
        fsdp_launch_config c;
        fsdp_train_config train;
        fsdp_options *options;
        char *argv[16] = {"train", "--model", "m", "--data", "d", "--output", "o"};
        char line[64], *rest = line;
        int argc = 7;
        snprintf(line, sizeof line, "%s", cases[i].line);
        for (char *word; (word = strsep(&rest, " "));)
            if (*word)
                argv[argc++] = word;
        snprintf(text, sizeof text,
                 TOP "mixed_precision: bf16\nfsdp_config:\n  offload_params: "
                     "true\n  %s\n",
                 cases[i].text);
        clear_variables();
        ASSERT_OK(launch_file(t, &c, text, ""));
        ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
        ASSERT_OK(fsdp_options_parse(fsdp_train_options(), argc, argv, &train, &options));
        ASSERT_INT(train.sharding_strategy, cases[i].strategy);
        ASSERT_INT(train.reshard_after_forward, cases[i].reshard);
        ASSERT_INT(train.param_dtype, FSDP_DTYPE_BF16);
        ASSERT(train.cpu_offload);
        char *printed = fsdp_options_print(options, &train);
        ASSERT(strstr(printed, "# environment ACCELERATE_MIXED_PRECISION"));
        ASSERT(strstr(printed, "# environment FSDP_OFFLOAD_PARAMS"));
        ASSERT(!strstr(printed, "no option here reads this variable"));
        fsdp_text_free(printed);
        fsdp_options_destroy(options);
        CHECK_HERE();
    }
    clear_variables();
}

/* Flags of `fsdp train` work although accelerate exports the opposite as a default. */
TEST(flags_of_train_win_over_what_is_exported)
{
    NEEDS_LIBYAML();
    fsdp_launch_config c;
    fsdp_train_config train;
    fsdp_options *options;
    char *argv[] = {"train",  "--model",
                    "m",      "--data",
                    "d",      "--output",
                    "o",      "--activation-offload",
                    "--fsdp", "full_shard offload",
                    "--fp16", "--min-num-params",
                    "9",      NULL};
    clear_variables();
    ASSERT_OK(
        launch_file(t, &c, TOP "mixed_precision: bf16\nfsdp_config: {auto_wrap_policy: 3}\n", ""));
    ASSERT_OK(fsdp_accelerate_set_environment(&c, kept));
    setenv("ACCELERATE_COLOR", "red", 1);
    setenv("ACCELERATE_SIZE", "", 1);
    setenv("FSDP_SHARDING_STRATGY", "NO_SHARD", 1);
    setenv("FSDP_TIMEOUT_S", "60", 1);
    setenv("FSDP_LOG", "info", 1);
    ASSERT_OK(
        fsdp_options_parse(fsdp_train_options(), FSDP_LENGTH(argv) - 1, argv, &train, &options));
    ASSERT(train.activation_checkpointing && train.cpu_offload);
    ASSERT_INT(train.param_dtype, FSDP_DTYPE_F16);
    ASSERT_INT(train.auto_wrap_policy, FSDP_AUTO_WRAP_SIZE_BASED);
    char *notes = fsdp_options_notes(options);
    ASSERT(strstr(notes, "ACCELERATE_COLOR: no option here reads this variable\n"));
    ASSERT(strstr(notes, "FSDP_SHARDING_STRATGY: no option here reads this variable; did you mean "
                         "FSDP_SHARDING_STRATEGY?\n"));
    ASSERT(!strstr(notes, "FSDP_TIMEOUT_S") && !strstr(notes, "FSDP_LOG") &&
           !strstr(notes, "ACCELERATE_SIZE"));
    fsdp_text_free(notes);
    fsdp_options_destroy(options);
    clear_variables();
}

/* Every allocation fails once. */
TEST(running_out_of_memory_is_an_error)
{
    const char *line = "--config none --num_processes 2 --use_fsdp --gpu_ids 0,1";
    fsdp_launch_config c;
    long n = 1;
    for (;; n++) {
        clear_variables();
        fsdp_alloc_fail_at(n);
        fsdp_status status = launch(&c, line);
        if (status == FSDP_OK)
            status = fsdp_accelerate_set_environment(&c, kept);
        if (status == FSDP_OK)
            break;
        ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
    fsdp_alloc_fail_at(0);
    ASSERT(n > 20);
    clear_variables();
    fsdp_options_destroy(kept);
    kept = NULL;
}
