/* Configuration files of Accelerate: what the questions write, and converting to FSDP2.
 * The expected files were written by accelerate 1.15: `accelerate config` with the same answers,
 * and `accelerate to-fsdp2`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accelerate/questions.h"
#include "src/accelerate/to_fsdp2.h"
#include "src/accelerate/update.h"
#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "tests/test.h"

/* clang-format off */
static const char v1[] =
    "compute_environment: LOCAL_MACHINE\n"
    "debug: false\n"
    "distributed_type: FSDP\n"
    "downcast_bf16: 'no'\n"
    "enable_cpu_affinity: false\n"
    "fsdp_config:\n"
    "  fsdp_activation_checkpointing: false\n"
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    "  fsdp_backward_prefetch: BACKWARD_PRE\n"
    "  fsdp_cpu_ram_efficient_loading: true\n"
    "  fsdp_forward_prefetch: false\n"
    "  fsdp_offload_params: false\n"
    "  fsdp_reshard_after_forward: FULL_SHARD\n"
    "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
    "  fsdp_sync_module_states: true\n"
    "  fsdp_transformer_layer_cls_to_wrap: BertLayer\n"
    "  fsdp_use_orig_params: true\n"
    "  fsdp_version: 1\n"
    "machine_rank: 0\n"
    "main_training_function: main\n"
    "mixed_precision: bf16\n"
    "num_machines: 1\n"
    "num_processes: 2\n"
    "rdzv_backend: static\n"
    "same_network: true\n"
    "tpu_env: []\n"
    "tpu_use_cluster: false\n"
    "tpu_use_sudo: false\n"
    "use_cpu: false\n";
static const char v1size[] =
    "compute_environment: LOCAL_MACHINE\n"
    "debug: false\n"
    "distributed_type: FSDP\n"
    "downcast_bf16: 'no'\n"
    "enable_cpu_affinity: false\n"
    "fsdp_config:\n"
    "  fsdp_activation_checkpointing: true\n"
    "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
    "  fsdp_backward_prefetch: NO_PREFETCH\n"
    "  fsdp_cpu_ram_efficient_loading: false\n"
    "  fsdp_forward_prefetch: true\n"
    "  fsdp_min_num_params: 20000\n"
    "  fsdp_offload_params: true\n"
    "  fsdp_reshard_after_forward: HYBRID_SHARD\n"
    "  fsdp_state_dict_type: FULL_STATE_DICT\n"
    "  fsdp_sync_module_states: false\n"
    "  fsdp_use_orig_params: false\n"
    "  fsdp_version: 1\n"
    "machine_rank: 0\n"
    "main_training_function: main\n"
    "mixed_precision: fp16\n"
    "num_machines: 1\n"
    "num_processes: 4\n"
    "rdzv_backend: static\n"
    "same_network: true\n"
    "tpu_env: []\n"
    "tpu_use_cluster: false\n"
    "tpu_use_sudo: false\n"
    "use_cpu: false\n";
static const char v2multi[] =
    "compute_environment: LOCAL_MACHINE\n"
    "debug: true\n"
    "distributed_type: FSDP\n"
    "downcast_bf16: 'no'\n"
    "enable_cpu_affinity: false\n"
    "fsdp_config:\n"
    "  fsdp_activation_checkpointing: true\n"
    "  fsdp_auto_wrap_policy: NO_WRAP\n"
    "  fsdp_cpu_ram_efficient_loading: false\n"
    "  fsdp_offload_params: false\n"
    "  fsdp_reshard_after_forward: false\n"
    "  fsdp_state_dict_type: FULL_STATE_DICT\n"
    "  fsdp_version: 2\n"
    "machine_rank: 1\n"
    "main_process_ip: 10.77.0.1\n"
    "main_process_port: 29500\n"
    "main_training_function: main\n"
    "mixed_precision: bf16\n"
    "num_machines: 2\n"
    "num_processes: 4\n"
    "parallelism_config:\n"
    "  parallelism_config_cp_size: 1\n"
    "  parallelism_config_dp_replicate_size: 2\n"
    "  parallelism_config_dp_shard_size: 2\n"
    "  parallelism_config_tp_size: 1\n"
    "rdzv_backend: c10d\n"
    "same_network: false\n"
    "tpu_env: []\n"
    "tpu_use_cluster: false\n"
    "tpu_use_sudo: false\n"
    "use_cpu: false\n";
static const char cpu[] =
    "compute_environment: LOCAL_MACHINE\n"
    "debug: false\n"
    "distributed_type: MULTI_CPU\n"
    "downcast_bf16: 'no'\n"
    "enable_cpu_affinity: false\n"
    "machine_rank: 0\n"
    "main_training_function: main\n"
    "mixed_precision: 'no'\n"
    "num_machines: 1\n"
    "num_processes: 1\n"
    "rdzv_backend: static\n"
    "same_network: true\n"
    "tpu_env: []\n"
    "tpu_use_cluster: false\n"
    "tpu_use_sudo: false\n"
    "use_cpu: true\n";
static const char v1_to_2[] =
    "compute_environment: LOCAL_MACHINE\n"
    "debug: false\n"
    "distributed_type: FSDP\n"
    "downcast_bf16: 'no'\n"
    "enable_cpu_affinity: false\n"
    "fsdp_config:\n"
    "  fsdp_activation_checkpointing: false\n"
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    "  fsdp_cpu_ram_efficient_loading: true\n"
    "  fsdp_offload_params: false\n"
    "  fsdp_reshard_after_forward: true\n"
    "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
    "  fsdp_transformer_layer_cls_to_wrap: BertLayer\n"
    "  fsdp_version: 2\n"
    "machine_rank: 0\n"
    "main_training_function: main\n"
    "mixed_precision: bf16\n"
    "num_machines: 1\n"
    "num_processes: 2\n"
    "rdzv_backend: static\n"
    "same_network: true\n"
    "tpu_env: []\n"
    "tpu_use_cluster: false\n"
    "tpu_use_sudo: false\n"
    "use_cpu: false\n";
static const char v1size_to_2[] =
    "compute_environment: LOCAL_MACHINE\n"
    "debug: false\n"
    "distributed_type: FSDP\n"
    "downcast_bf16: 'no'\n"
    "enable_cpu_affinity: false\n"
    "fsdp_config:\n"
    "  fsdp_activation_checkpointing: true\n"
    "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
    "  fsdp_cpu_ram_efficient_loading: false\n"
    "  fsdp_min_num_params: 20000\n"
    "  fsdp_offload_params: true\n"
    "  fsdp_reshard_after_forward: true\n"
    "  fsdp_state_dict_type: FULL_STATE_DICT\n"
    "  fsdp_version: 2\n"
    "machine_rank: 0\n"
    "main_training_function: main\n"
    "mixed_precision: fp16\n"
    "num_machines: 1\n"
    "num_processes: 4\n"
    "rdzv_backend: static\n"
    "same_network: true\n"
    "tpu_env: []\n"
    "tpu_use_cluster: false\n"
    "tpu_use_sudo: false\n"
    "use_cpu: false\n";
/* clang-format on */

static fsdp_status answer(const char *line, fsdp_yaml *config)
{
    static char text[2000];
    const char *given[40];
    size_t n = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        given[n++] = word;
    return fsdp_accelerate_ask(given, n, NULL, config);
}

/* The file that the answers make; NULL after an error. */
static char *make(const char *line)
{
    fsdp_yaml config = {0};
    if (answer(line, &config) != FSDP_OK)
        return NULL;
    char *text = fsdp_yaml_print(&config);
    fsdp_yaml_fini(&config);
    return text;
}

static void check_file(fsdp_test *t, const char *line, const char *expected)
{
    char *text = make(line);
    ASSERT_STR(text, expected);
    fsdp_free(text);
}

TEST(answers_make_the_files_that_accelerate_writes)
{
    check_file(t,
               "fsdp_version=1 fsdp_transformer_layer_cls_to_wrap=BertLayer "
               "fsdp_state_dict_type=SHARDED_STATE_DICT num_processes=2 mixed_precision=bf16",
               v1);
    CHECK_HERE();
    check_file(t,
               "fsdp_version=1 sharding_strategy=4 offload_params=yes auto_wrap_policy=2 "
               "min_num_params=20000 backward_prefetch=3 state_dict_type=1 forward_prefetch=yes "
               "use_orig_params=no cpu_ram_efficient_loading=no sync_module_states=no "
               "activation_checkpointing=yes num_processes=4 mixed_precision=fp16",
               v1size);
    CHECK_HERE();
    check_file(t,
               "num_machines=2 machine_rank=1 main_process_ip=10.77.0.1 main_process_port=29500 "
               "same_network=no rdzv_backend=c10d debug=yes reshard-after-forward=no "
               "auto_wrap_policy=NO_WRAP state_dict_type=FULL_STATE_DICT "
               "cpu_ram_efficient_loading=no activation_checkpointing=yes "
               "use_parallelism_config=yes dp_replicate_size=2 dp_shard_size=2 num_processes=4 "
               "mixed_precision=bf16",
               v2multi);
    CHECK_HERE();
    check_file(t, "distributed_type=MULTI_CPU", cpu);
}

TEST(every_menu_number_is_its_word)
{
    static const struct {
        const char *key;
        const char *words[6];
    } menus[] = {
        {"sharding_strategy",
         {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"}},
        {"auto_wrap_policy", {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"}},
        {"backward_prefetch_policy", {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"}},
        {"state_dict_type", {"FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"}}};
    for (size_t i = 0; i < FSDP_LENGTH(menus); i++)
        for (int k = 0; k < 6 && menus[i].words[k]; k++) {
            char line[100];
            snprintf(line, sizeof line, "fsdp_version=1 %s=%d", menus[i].key, k + 1);
            char *text = make(line);
            ASSERT(text && strstr(text, menus[i].words[k]));
            fsdp_free(text);
        }
}

TEST(wrong_answers_are_named)
{
    fsdp_yaml c;
    ASSERT_ERROR(answer("num_procesess=2", &c), FSDP_ERR_INVALID, "did you mean num_processes");
    ASSERT_ERROR(answer("num_processes=0", &c), FSDP_ERR_INVALID, "num_processes=0");
    ASSERT_ERROR(answer("num_processes=two", &c), FSDP_ERR_INVALID, "num_processes=two");
    ASSERT_ERROR(answer("num_processes", &c), FSDP_ERR_INVALID, "key=value");
    ASSERT_ERROR(answer("fsdp_version=1 sharding_strategy=6", &c), FSDP_ERR_INVALID,
                 "HYBRID_SHARD_ZERO2 (5)");
    ASSERT_ERROR(answer("sharding_strategy=FULL_SHARD", &c), FSDP_ERR_INVALID, "fsdp_version=1");
    /* FSDP2 asks whether to reshard, so the menu number 1 would mean yes, and 0 no. */
    ASSERT_ERROR(answer("fsdp_sharding_strategy=1", &c), FSDP_ERR_INVALID,
                 "fsdp_sharding_strategy=1: a sharding strategy is for fsdp_version=1");
    ASSERT_ERROR(answer("sharding_strategy=0", &c), FSDP_ERR_INVALID, "sharding_strategy=0: a");
    ASSERT_ERROR(answer("fsdp_version=1 sharding_strategy=9", &c), FSDP_ERR_INVALID,
                 "sharding_strategy=9: none of FULL_SHARD (1)");
    ASSERT_ERROR(answer("backward_prefetch=1", &c), FSDP_ERR_INVALID, "fsdp_version=1");
    ASSERT_ERROR(answer("min_num_params=5", &c), FSDP_ERR_INVALID, "SIZE_BASED_WRAP");
    ASSERT_ERROR(answer("num_machines=2 num_processes=2", &c), FSDP_ERR_INVALID, "main_process_ip");
    ASSERT_ERROR(answer("mixed_precision=fp8 fp8_backend=TE", &c), FSDP_ERR_UNSUPPORTED,
                 "choose AO");
    ASSERT_ERROR(answer("fp8_backend=AO", &c), FSDP_ERR_INVALID, "mixed_precision=fp8");
    ASSERT_ERROR(answer("use_deepspeed=yes", &c), FSDP_ERR_UNSUPPORTED, "ZeRO stage 3");
    ASSERT_ERROR(answer("distributed_type=XLA", &c), FSDP_ERR_UNSUPPORTED, "XLA");
    ASSERT_ERROR(answer("use_parallelism_config=yes dp_replicate_size=2 num_processes=4", &c),
                 FSDP_ERR_INVALID, "dp_replicate_size=2");
    ASSERT_ERROR(answer("distributed_type=MULTI_GPU use_fsdp=no", &c), FSDP_ERR_INVALID,
                 "num_processes=1");
}

TEST(one_key_with_two_values_is_an_error)
{
    fsdp_yaml c = {0};
    ASSERT_ERROR(answer("num_processes=4 mixed_precision=bf16 num_processes=2", &c),
                 FSDP_ERR_INVALID, "num_processes=4 contradicts num_processes=2");
    ASSERT_ERROR(answer("fsdp_version=1 sharding_strategy=2 fsdp_reshard_after_forward=1", &c),
                 FSDP_ERR_INVALID, "sharding_strategy=2 contradicts fsdp_reshard_after_forward=1");
    ASSERT_ERROR(answer("fsdp-offload-params=yes offload_params=no", &c), FSDP_ERR_INVALID,
                 "fsdp-offload-params=yes contradicts offload_params=no");
    /* FSDP as the type means use_fsdp=yes */
    ASSERT_ERROR(answer("distributed_type=FSDP use_fsdp=no num_processes=4", &c), FSDP_ERR_INVALID,
                 "distributed_type=FSDP contradicts use_fsdp=no; leave one of them out");
    ASSERT_ERROR(answer("use-fsdp=false num_processes=4 distributed_type=fsdp", &c),
                 FSDP_ERR_INVALID, "use-fsdp=false contradicts distributed_type=fsdp");
    ASSERT_OK(answer("use_fsdp=1 distributed_type=FSDP num_processes=4", &c));
    fsdp_yaml_fini(&c);
    ASSERT_OK(answer("num_processes=4 num_processes=4", &c));
    fsdp_yaml_fini(&c);
    ASSERT_OK(answer("distributed_type=MULTI_GPU use_fsdp=yes num_processes=4", &c));
    fsdp_yaml_fini(&c);
}

/* Answers are typed; wrong ones are asked again. */
TEST(questions_are_asked_in_accelerates_order)
{
    static const char answers[] = "\n"           /* this machine */
                                  "multi-GPU\n"  /* type */
                                  "\n\n\n\n"     /* machines, debug, dynamo, DeepSpeed */
                                  "maybe\nyes\n" /* FSDP */
                                  "1\n"          /* version */
                                  "1\n\n1\nno\n" /* strategy, offload, policy, _no_split_modules */
                                  "BertLayer\n"  /* classes */
                                  "\n3\n"        /* prefetch, state dict */
                                  "\n\n\n\n2\n3\n"; /* ..., processes, precision */
    fsdp_menu_io io = {.in = fmemopen((void *)(uintptr_t)answers, sizeof answers - 1, "r"),
                       .out = fopen("/dev/null", "w")};
    fsdp_yaml config = {0};
    fsdp_status status = fsdp_accelerate_ask(NULL, 0, &io, &config);
    fclose(io.in);
    fclose(io.out);
    ASSERT_OK(status);
    char *text = fsdp_yaml_print(&config);
    fsdp_yaml_fini(&config);
    ASSERT_STR(text, v1);
    fsdp_free(text);
}

static fsdp_status read_text(fsdp_test *t, const char *text, fsdp_yaml *config)
{
    char path[300];
    snprintf(path, sizeof path, "%s/c.yaml", fsdp_test_dir(t));
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    return fsdp_yaml_read(path, config);
}

static char said[2000];

static void say(void *context, const char *message)
{
    (void)context;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", message);
}

static char *converted(fsdp_test *t, const char *text)
{
    fsdp_yaml config = {0};
    *said = 0;
    if (read_text(t, text, &config) != FSDP_OK)
        return NULL;
    char *out =
        fsdp_to_fsdp2(&config, "c.yaml", say, NULL) == FSDP_OK ? fsdp_yaml_print(&config) : NULL;
    fsdp_yaml_fini(&config);
    return out;
}

TEST(fsdp1_becomes_fsdp2_as_accelerate_converts_it)
{
    NEEDS_LIBYAML();
    char *text = converted(t, v1);
    ASSERT_STR(text, v1_to_2);
    fsdp_free(text);
    ASSERT(strstr(said, "fsdp_use_orig_params has been removed"));
    text = converted(t, v1size);
    ASSERT_STR(text, v1size_to_2);
    fsdp_free(text);
}

/* Files of old versions of Accelerate have keys without the prefix. */
TEST(keys_without_prefix_are_converted)
{
    NEEDS_LIBYAML();
    char *text =
        converted(t, "fsdp_config:\n  auto_wrap_policy: 2\n  backward_prefetch: NO_PREFETCH\n"
                     "  min_num_params: 700\n  offload_params: true\n"
                     "  sharding_strategy: SHARD_GRAD_OP\n");
    ASSERT_STR(text, "fsdp_config:\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
                     "  fsdp_min_num_params: 700\n  fsdp_offload_params: true\n"
                     "  fsdp_reshard_after_forward: false\n  fsdp_version: 2\n");
    fsdp_free(text);
    ASSERT(strstr(said, "fsdp_backward_prefetch has been removed"));
    ASSERT(!converted(t, "fsdp_config:\n  fsdp_offload_params: true\n  offload_params: false\n") &&
           strstr(fsdp_last_error(), "c.yaml:3: offload_params is the same key as "
                                     "fsdp_offload_params in line 2"));
}

TEST(what_fsdp2_cannot_do_is_said)
{
    NEEDS_LIBYAML();
    char *text = converted(t, "num_machines: 2\nnum_processes: 8\nfsdp_config:\n"
                              "  fsdp_sharding_strategy: 4\n  fsdp_state_dict_type: 2\n"
                              "  fsdp_auto_wrap_policy: 3\n  fsdp_backward_prefetch_policy: 1\n");
    ASSERT_STR(text, "fsdp_config:\n  fsdp_auto_wrap_policy: NO_WRAP\n"
                     "  fsdp_reshard_after_forward: true\n"
                     "  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_version: 2\n"
                     "num_machines: 2\nnum_processes: 8\nparallelism_config:\n"
                     "  parallelism_config_cp_size: 1\n  parallelism_config_dp_replicate_size: 2\n"
                     "  parallelism_config_dp_shard_size: 4\n  parallelism_config_tp_size: 1\n");
    fsdp_free(text);
    ASSERT(strstr(said, "LOCAL_STATE_DICT") && strstr(said, "2 replicas of 4 shards"));
    text = converted(t, "fsdp_config:\n  fsdp_sharding_strategy: NO_SHARD\n");
    ASSERT(text && strstr(text, "fsdp_reshard_after_forward: false") && strstr(said, "NO_SHARD"));
    fsdp_free(text);
    ASSERT(!converted(t, "fsdp_config: {fsdp_version: 2}\n") &&
           strstr(fsdp_last_error(), "2 already"));
    ASSERT(!converted(t, "num_processes: 2\n") && strstr(fsdp_last_error(), "fsdp_config"));
    ASSERT(!converted(t, "fsdp_config: {fsdp_sharding_strategy: 9}\n") &&
           strstr(fsdp_last_error(), "c.yaml:1: fsdp_sharding_strategy: 9"));
    /* What is not read is an error: a second document, and what a merge key names. */
    ASSERT(!converted(t, "fsdp_config: {fsdp_version: 1}\n---\nnum_processes: 2\n") &&
           strstr(fsdp_last_error(), ":3: a second document begins"));
    ASSERT(!converted(t, "fsdp_config:\n  <<: {fsdp_version: 1}\n") &&
           strstr(fsdp_last_error(), ":2: <<: keys of another map are not merged"));
}

/* The expected files were written by `accelerate config update` of 1.15. */
TEST(old_files_are_updated_as_accelerate_updates_them)
{
    NEEDS_LIBYAML();
    static const char rest[] = "downcast_bf16: false\n", later[] = "enable_cpu_affinity: false\n";
    fsdp_yaml config = {0};
    char expected[1000], *text;
    ASSERT_OK(read_text(t,
                        "distributed_type: MULTI_GPU\nfp16: true\nnum_processes: 4\n"
                        "dynamo_backend: INDUCTOR\nmain_process_ip: null\ndeepspeed_config: {}\n",
                        &config));
    ASSERT_OK(fsdp_accelerate_update(&config, "c.yaml"));
    text = fsdp_yaml_print(&config);
    snprintf(expected, sizeof expected,
             "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: MULTI_GPU\n%s"
             "dynamo_config:\n  dynamo_backend: INDUCTOR\n%smachine_rank: 0\n"
             "main_training_function: main\nmixed_precision: fp16\nnum_machines: 1\n"
             "num_processes: 4\nrdzv_backend: static\nsame_network: false\n"
             "tpu_use_cluster: false\ntpu_use_sudo: false\nuse_cpu: false\n",
             rest, later);
    ASSERT_STR(text, expected);
    fsdp_free(text);
    ASSERT_OK(fsdp_yaml_print_json(&config, &text));
    ASSERT(strstr(text, "  \"dynamo_config\": {\n    \"dynamo_backend\": \"INDUCTOR\"\n  },\n"));
    ASSERT(strstr(text, "  \"num_processes\": 4,\n") && strstr(text, "\"use_cpu\": false\n}\n"));
    fsdp_free(text);
    fsdp_yaml_fini(&config);
    ASSERT_OK(read_text(t, "distributed_type: 'NO'\n", &config));
    ASSERT_OK(fsdp_accelerate_update(&config, "c.yaml"));
    ASSERT_STR(fsdp_yaml_text(&config, "num_processes"), "1");
    fsdp_yaml_fini(&config);
}

/* Accelerate would replace dynamo_config by a map that has only the backend. */
TEST(the_old_key_of_dynamo_is_added_to_the_new_map)
{
    NEEDS_LIBYAML();
    fsdp_yaml config = {0};
    ASSERT_OK(read_text(t,
                        "distributed_type: 'NO'\ndynamo_backend: INDUCTOR\n"
                        "dynamo_config: {dynamo_mode: max-autotune}\n",
                        &config));
    ASSERT_OK(fsdp_accelerate_update(&config, "c.yaml"));
    char *text = fsdp_yaml_print(&config);
    ASSERT(
        strstr(text, "dynamo_config:\n  dynamo_backend: INDUCTOR\n  dynamo_mode: max-autotune\n"));
    fsdp_free(text);
    fsdp_yaml_fini(&config);
    ASSERT_OK(read_text(t,
                        "distributed_type: 'NO'\ndynamo_backend: INDUCTOR\n"
                        "dynamo_config: {dynamo_backend: EAGER}\n",
                        &config));
    ASSERT_ERROR(fsdp_accelerate_update(&config, "c.yaml"), FSDP_ERR_INVALID,
                 "c.yaml: dynamo_backend: INDUCTOR contradicts dynamo_backend: EAGER in "
                 "dynamo_config; remove the first one");
    fsdp_yaml_fini(&config);
}

TEST(files_that_are_not_accelerates_are_not_updated)
{
    NEEDS_LIBYAML();
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"num_processes: 2\n", "distributed_type is missing"},
        {"distributed_type: FSDP\nnum_proceses: 2\n",
         "c.yaml:2: num_proceses is not a key of Accelerate's files; correct or remove it; did "
         "you mean num_processes?"},
        {"distributed_type: FSPD\n", "c.yaml:1: distributed_type: FSPD"},
        {"distributed_type: 'NO'\ncompute_environment: AMAZON_SAGEMAKER\n",
         "AMAZON_SAGEMAKER is not supported"}};
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        fsdp_yaml config = {0};
        ASSERT_OK(read_text(t, rows[i].text, &config));
        ASSERT(fsdp_accelerate_update(&config, "c.yaml") != FSDP_OK &&
               strstr(fsdp_last_error(), rows[i].error));
        fsdp_yaml_fini(&config);
    }
}

TEST(texts_are_quoted_as_pyyaml_quotes_them)
{
    static const struct {
        const char *text, *printed;
    } rows[] = {{"no", "'no'"},
                {"BertLayer,T5Block", "BertLayer,T5Block"},
                {"0,1", "0,1"},
                {"10.77.0.1", "10.77.0.1"},
                {"1e8", "'1e8'"},
                {"it's", "'it''s'"},
                {"a: b", "'a: b'"},
                {"/a/b-c_d.e", "/a/b-c_d.e"},
                {"2020-01-01", "'2020-01-01'"}};
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        fsdp_yaml map = {.kind = FSDP_YAML_MAP};
        char expected[100];
        ASSERT_OK(fsdp_yaml_set(&map, "k", rows[i].text, true));
        char *text = fsdp_yaml_print(&map);
        snprintf(expected, sizeof expected, "k: %s\n", rows[i].printed);
        ASSERT_STR(text, expected);
        fsdp_free(text);
        fsdp_yaml_fini(&map);
    }
}

static fsdp_status everything(fsdp_test *t)
{
    fsdp_yaml config = {0};
    FSDP_TRY(answer("fsdp_version=1 sharding_strategy=4 num_processes=4", &config));
    char *text = fsdp_yaml_print(&config);
    fsdp_yaml_fini(&config);
    if (!text)
        return FSDP_ERR_NOMEM;
    fsdp_status status = read_text(t, text, &config);
    fsdp_free(text);
    FSDP_TRY(status);
    status = fsdp_to_fsdp2(&config, "c.yaml", NULL, NULL);
    if (status == FSDP_OK)
        status = fsdp_yaml_set(&config, "dynamo_backend", "EAGER", true);
    if (status == FSDP_OK)
        status = fsdp_accelerate_update(&config, "c.yaml");
    if (status == FSDP_OK && (status = fsdp_yaml_print_json(&config, &text)) == FSDP_OK)
        fsdp_free(text);
    fsdp_yaml_fini(&config);
    return status;
}

TEST(failing_allocations_leak_nothing)
{
    NEEDS_LIBYAML();
    fsdp_status status = FSDP_ERR_NOMEM;
    for (uint64_t n = 1; status != FSDP_OK; n++) {
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_alloc_fail_at(n);
        status = everything(t);
        fsdp_alloc_fail_at(0);
    }
}
