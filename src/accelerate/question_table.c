/* See question_table.h. The texts are those of accelerate 1.15. */
#include "src/accelerate/question_table.h"

#include <stdlib.h>
#include <string.h>

#include "src/accelerate/words.h"
#include "src/base/assert.h"

static const char *const environments[] = {"LOCAL_MACHINE", "AMAZON_SAGEMAKER", NULL};
static const char *const shown_environments[] = {"This machine", "AWS (Amazon SageMaker)", NULL};
static const char *const machines[] = {"NO",         "MULTI_CPU",    "MULTI_XPU", "MULTI_HPU",
                                       "MULTI_GPU",  "MULTI_NPU",    "MULTI_MLU", "MULTI_SDAA",
                                       "MULTI_MUSA", "MULTI_NEURON", "XLA",       NULL};
static const char *const shown_machines[] = {"No distributed training",
                                             "multi-CPU",
                                             "multi-XPU",
                                             "multi-HPU",
                                             "multi-GPU",
                                             "multi-NPU",
                                             "multi-MLU",
                                             "multi-SDAA",
                                             "multi-MUSA",
                                             "multi-NEURON",
                                             "TPU",
                                             NULL};
static const char *const versions[] = {"1", "2", NULL};
static const char *const state_dicts_2[] = {"SHARDED_STATE_DICT", "FULL_STATE_DICT", NULL};
static const char *const precisions[] = {"no", "fp16", "bf16", "fp8", NULL};
static const char *const fp8_backends[] = {"AO", "TE", "MSAMP", NULL};

/* ---- answers ---- */

const char *fsdp_answer(const fsdp_answers *a, const char *key)
{
    for (size_t i = 0; i < FSDP_QUESTIONS; i++)
        if (a->values[i] && strcmp(fsdp_questions[i].key, key) == 0)
            return a->values[i];
    return "";
}

bool fsdp_answer_is(const fsdp_answers *a, const char *key, const char *value)
{
    return strcmp(fsdp_answer(a, key), value) == 0;
}

/* ---- answers that are refused ---- */

static const char *refuse_environment(const char *value)
{
    return strcmp(value, "AMAZON_SAGEMAKER") == 0
               ? "this program starts ranks on this machine; choose LOCAL_MACHINE"
               : NULL;
}

static const char *refuse_machine(const char *value)
{
    return strcmp(value, "NO") == 0 || strcmp(value, "MULTI_CPU") == 0 ||
                   strcmp(value, "MULTI_GPU") == 0
               ? NULL
               : "there is no such device here: FSDP, MULTI_GPU, MULTI_CPU and NO are possible, "
                 "and "
                 "FSDP works without a GPU, too";
}

static bool is_true(const char *value)
{
    return strcmp(value, "true") == 0;
}

static const char *refuse_mpirun(const char *value)
{
    return is_true(value) ? "fsdp launch starts ranks without MPI; answer no" : NULL;
}

static const char *refuse_dynamo(const char *value)
{
    return is_true(value) ? "nothing is left to compile here; answer no" : NULL;
}

static const char *refuse_deepspeed(const char *value)
{
    return is_true(value) ? "DeepSpeed is not part of this program; FSDP does the same: FULL_SHARD "
                            "is ZeRO stage 3, SHARD_GRAD_OP stage 2; answer no"
                          : NULL;
}

static const char *refuse_megatron(const char *value)
{
    return is_true(value) ? "Megatron-LM is not part of this program; answer no" : NULL;
}

static const char *refuse_fp8_backend(const char *value)
{
    return strcmp(value, "AO") != 0 ? "products in fp8 are those of torchao; choose AO" : NULL;
}

static const char *refuse_parallelism(const char *value)
{
    return strcmp(value, "1") != 0 ? "there is no tensor or context parallelism here; 1" : NULL;
}

/* ---- which questions apply ---- */

static bool is_fp8(const fsdp_answers *a)
{
    return strcmp(fsdp_answer(a, "mixed_precision"), "fp8") == 0;
}

static bool always(const fsdp_answers *a)
{
    (void)a;
    return true;
}

static bool is_multi(const fsdp_answers *a)
{
    return !fsdp_answer_is(a, "distributed_type", "NO");
}

static bool is_gpu(const fsdp_answers *a)
{
    return fsdp_answer_is(a, "distributed_type", "MULTI_GPU");
}

static bool is_multi_cpu(const fsdp_answers *a)
{
    return fsdp_answer_is(a, "distributed_type", "MULTI_CPU");
}

static bool is_single(const fsdp_answers *a)
{
    return !is_multi(a);
}

static bool is_gpu_or_single(const fsdp_answers *a)
{
    return is_gpu(a) || is_single(a);
}

static bool has_machines(const fsdp_answers *a)
{
    return atol(fsdp_answer(a, "num_machines")) > 1;
}

static bool has_other_network(const fsdp_answers *a)
{
    return fsdp_answer_is(a, "same_network", "false");
}

static bool is_fsdp(const fsdp_answers *a)
{
    return fsdp_answer_is(a, "use_fsdp", "true");
}

static bool is_fsdp1(const fsdp_answers *a)
{
    return fsdp_answer_is(a, "fsdp_version", "1");
}

static bool is_fsdp2(const fsdp_answers *a)
{
    return fsdp_answer_is(a, "fsdp_version", "2");
}

static bool wraps_by_class(const fsdp_answers *a)
{
    return fsdp_answer_is(a, "fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
}

static bool names_classes(const fsdp_answers *a)
{
    return fsdp_answer_is(a, "use_no_split_modules", "false");
}

static bool wraps_by_size(const fsdp_answers *a)
{
    return fsdp_answer_is(a, "fsdp_auto_wrap_policy", "SIZE_BASED_WRAP");
}

static bool loads_everywhere(const fsdp_answers *a)
{
    return fsdp_answer_is(a, "fsdp_cpu_ram_efficient_loading", "false");
}

static bool has_parallelism(const fsdp_answers *a)
{
    return fsdp_answer_is(a, "use_parallelism_config", "true");
}

static bool is_gpu_without_fsdp(const fsdp_answers *a)
{
    return is_gpu(a) && !is_fsdp(a);
}

/* Return true if Accelerate asks which GPUs of this machine to use. With FSDP it does not ask, but
 * still reads gpu_ids from the file. */
static bool asks_for_gpus(const fsdp_answers *a)
{
    return is_gpu_without_fsdp(a) || (is_single(a) && fsdp_answer_is(a, "use_cpu", "false"));
}

#define MULTI "a distributed_type other than NO"
#define MACHINES "num_machines above 1"
#define FSDP "distributed_type=FSDP"
#define FSDP1 "fsdp_version=1 (FSDP2 has no such key)"
#define FSDP2 "fsdp_version=2"
#define SECTION "fsdp_config"
#define FP8_SECTION "fp8_config"
#define PARALLELISM "parallelism_config"

/* clang-format off */
const fsdp_question fsdp_questions[FSDP_QUESTIONS] = {
    {.key = "compute_environment", .prompt = "In which compute environment are you running?", .kind = FSDP_ASK_CHOICE,
     .values = environments, .shown = shown_environments, .value = "LOCAL_MACHINE", .applies = always, .refuse = refuse_environment},
    {.key = "distributed_type", .section = "", .prompt = "Which type of machine are you using?", .kind = FSDP_ASK_CHOICE,
     .values = machines, .shown = shown_machines, .value = "NO", .default_without_questions = "MULTI_GPU", .applies = always,
     .refuse = refuse_machine},
    {.key = "num_machines", .prompt = "How many different machines will you use (use more than 1 for multi-node training)? [1]: ",
     .kind = FSDP_ASK_INT, .value = "1", .least = 1, .applies = is_multi, .needs = MULTI},
    {.key = "machine_rank", .prompt = "What is the rank of this machine? [0]: ", .kind = FSDP_ASK_INT, .value = "0",
     .applies = has_machines, .needs = MACHINES},
    {.key = "main_process_ip", .prompt = "What is the IP address of the machine that will host the main process? ",
     .kind = FSDP_ASK_TEXT, .applies = has_machines, .needs = MACHINES},
    {.key = "main_process_port", .prompt = "What is the port you will use to communicate with the main process? ",
     .kind = FSDP_ASK_INT, .least = 1, .applies = has_machines, .needs = MACHINES},
    {.key = "same_network", .prompt = "Are all the machines on the same local network? Answer `no` if nodes are on the cloud and/or on "
     "different network hosts [YES/no]: ", .kind = FSDP_ASK_YES_NO, .value = "true", .applies = has_machines, .needs = MACHINES},
    {.key = "rdzv_backend", .prompt = "What rendezvous backend will you use? ('static', 'c10d', ...): ", .kind = FSDP_ASK_TEXT,
     .value = "static", .applies = has_other_network, .needs = "same_network=no"},
    {.key = "debug", .prompt = "Should distributed operations be checked while running for errors? This can avoid timeout issues but "
     "will be slower. [yes/NO]: ", .kind = FSDP_ASK_YES_NO, .value = "false", .applies = is_multi, .needs = MULTI},
    {.key = "use_cpu", .prompt = "Do you want to run your training on CPU only (even if a GPU / Apple Silicon / Ascend NPU device is "
     "available)? [yes/NO]:", .kind = FSDP_ASK_YES_NO, .value = "false", .applies = is_single, .needs = "distributed_type=NO (FSDP takes a GPU only if there is one)"},
    {.key = "mpirun", .section = "", .prompt = "Do you want accelerate to launch mpirun? [yes/NO]: ", .kind = FSDP_ASK_YES_NO,
     .value = "false", .applies = is_multi_cpu, .refuse = refuse_mpirun, .needs = "distributed_type=MULTI_CPU"},
    {.key = "dynamo", .section = "", .prompt = "Do you wish to optimize your script with torch dynamo?[yes/NO]:", .kind = FSDP_ASK_YES_NO,
     .value = "false", .applies = always, .refuse = refuse_dynamo},
    {.key = "use_deepspeed", .section = "", .prompt = "Do you want to use DeepSpeed? [yes/NO]: ", .kind = FSDP_ASK_YES_NO, .value = "false",
     .applies = is_gpu_or_single, .refuse = refuse_deepspeed, .needs = "distributed_type=NO, FSDP or MULTI_GPU"},
    {.key = "use_fsdp", .section = "", .prompt = "Do you want to use FullyShardedDataParallel? [yes/NO]: ", .kind = FSDP_ASK_YES_NO,
     .value = "false", .default_without_questions = "true", .applies = is_gpu, .needs = "distributed_type=FSDP or MULTI_GPU"},
    {.key = "fsdp_version", .section = SECTION, .prompt = "What should be your FSDP version? [2]: ", .kind = FSDP_ASK_CHOICE,
     .values = versions, .value = "2", .applies = is_fsdp, .needs = FSDP},
    {.key = "fsdp_reshard_after_forward", .section = SECTION, .prompt = "What should be your sharding strategy?", .kind = FSDP_ASK_CHOICE,
     .values = fsdp_accelerate_strategies, .value = "FULL_SHARD", .applies = is_fsdp1, .needs = FSDP},
    {.key = "fsdp_reshard_after_forward", .section = SECTION, .prompt = "Do you want to enable resharding after forward? [YES/no]: ",
     .kind = FSDP_ASK_YES_NO, .value = "true", .applies = is_fsdp2, .needs = FSDP,
     .hint = "a sharding strategy is for fsdp_version=1; with fsdp_version=2, "
             "fsdp_reshard_after_forward=yes is FULL_SHARD, and no is SHARD_GRAD_OP"},
    {.key = "fsdp_offload_params", .section = SECTION, .prompt = "Do you want to offload parameters and gradients to CPU? [yes/NO]: ",
     .kind = FSDP_ASK_YES_NO, .value = "false", .applies = is_fsdp, .needs = FSDP},
    {.key = "fsdp_auto_wrap_policy", .section = SECTION, .prompt = "What should be your auto wrap policy?", .kind = FSDP_ASK_CHOICE,
     .values = fsdp_accelerate_wrap_policies, .value = "TRANSFORMER_BASED_WRAP", .applies = is_fsdp, .needs = FSDP},
    {.key = "use_no_split_modules", .section = "", .prompt = "Do you want to use the model's `_no_split_modules` to wrap. Only applicable "
     "for \xf0\x9f\xa4\x97 Transformers [yes/NO]: ", .kind = FSDP_ASK_YES_NO, .value = "false", .applies = wraps_by_class,
     .needs = "fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP"},
    {.key = "fsdp_transformer_layer_cls_to_wrap", .section = SECTION, .prompt = "Specify the comma-separated list of transformer layer class "
     "names (case-sensitive) to wrap ,e.g, :`BertLayer`, `GPTJBlock`, `T5Block`, `BertLayer,BertEmbeddings,BertSelfOutput` ...? : ",
     .kind = FSDP_ASK_TEXT, .may_be_empty = true, .applies = names_classes, .needs = "fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP"},
    {.key = "fsdp_min_num_params", .section = SECTION, .prompt = "What should be your FSDP's minimum number of parameters for Default Auto "
     "Wrapping Policy? [1e8]: ", .kind = FSDP_ASK_INT, .value = "100000000", .applies = wraps_by_size,
     .needs = "fsdp_auto_wrap_policy=SIZE_BASED_WRAP"},
    {.key = "fsdp_backward_prefetch", .section = SECTION, .prompt = "What should be your FSDP's backward prefetch policy?",
     .kind = FSDP_ASK_CHOICE, .values = fsdp_accelerate_prefetches, .value = "BACKWARD_PRE", .applies = is_fsdp1, .needs = FSDP1},
    {.key = "fsdp_state_dict_type", .section = SECTION, .prompt = "What should be your FSDP's state dict type?", .kind = FSDP_ASK_CHOICE,
     .values = fsdp_accelerate_state_dicts, .value = "FULL_STATE_DICT", .applies = is_fsdp1, .needs = FSDP},
    {.key = "fsdp_state_dict_type", .section = SECTION, .prompt = "What should be your FSDP's state dict type?", .kind = FSDP_ASK_CHOICE,
     .values = state_dicts_2, .value = "SHARDED_STATE_DICT", .applies = is_fsdp2, .needs = FSDP},
    {.key = "fsdp_forward_prefetch", .section = SECTION, .prompt = "Do you want to enable FSDP's forward prefetch policy? [yes/NO]: ",
     .kind = FSDP_ASK_YES_NO, .value = "false", .applies = is_fsdp1, .needs = FSDP1},
    {.key = "fsdp_use_orig_params", .section = SECTION, .prompt = "Do you want to enable FSDP's `use_orig_params` feature? [YES/no]: ",
     .kind = FSDP_ASK_YES_NO, .value = "true", .applies = is_fsdp1, .needs = FSDP1},
    {.key = "fsdp_cpu_ram_efficient_loading", .section = SECTION, .prompt = "Do you want to enable CPU RAM efficient model loading? Only "
     "applicable for \xf0\x9f\xa4\x97 Transformers models. [YES/no]: ", .kind = FSDP_ASK_YES_NO, .value = "true", .applies = is_fsdp, .needs = FSDP},
    {.key = "fsdp_sync_module_states", .section = SECTION, .prompt = "Do you want each individually wrapped FSDP unit to broadcast module "
     "parameters from rank 0 at the start? [YES/no]: ", .kind = FSDP_ASK_YES_NO, .value = "true", .applies = is_fsdp1,
     .asked = loads_everywhere, .needs = FSDP1},
    {.key = "fsdp_activation_checkpointing", .section = SECTION, .prompt = "Do you want to enable FSDP activation checkpointing? [yes/NO]: ",
     .kind = FSDP_ASK_YES_NO, .value = "false", .applies = is_fsdp, .needs = FSDP},
    {.key = "use_parallelism_config", .section = "", .prompt = "Do you want to use the parallelism config? [yes/NO]: ",
     .kind = FSDP_ASK_YES_NO, .value = "false", .applies = is_fsdp2, .needs = FSDP2},
    {.key = "parallelism_config_dp_replicate_size", .section = PARALLELISM, .prompt = "What is the data parallelism replicate size? [1]: ",
     .kind = FSDP_ASK_INT, .value = "1", .least = 1, .applies = has_parallelism, .needs = "use_parallelism_config=yes"},
    {.key = "parallelism_config_dp_shard_size", .section = PARALLELISM, .prompt = "What is the FSDP shard size? [1]: ",
     .kind = FSDP_ASK_INT, .value = "1", .least = 1, .applies = has_parallelism, .needs = "use_parallelism_config=yes"},
    {.key = "parallelism_config_tp_size", .section = PARALLELISM, .prompt = "What is the tensor parallelism size? [1]: ",
     .kind = FSDP_ASK_INT, .value = "1", .least = 1, .applies = has_parallelism, .refuse = refuse_parallelism, .needs = "use_parallelism_config=yes"},
    {.key = "parallelism_config_cp_size", .section = PARALLELISM, .prompt = "What is the context parallelism size? [1]: ",
     .kind = FSDP_ASK_INT, .value = "1", .least = 1, .applies = has_parallelism, .refuse = refuse_parallelism, .needs = "use_parallelism_config=yes"},
    {.key = "use_megatron_lm", .section = "", .prompt = "Do you want to use Megatron-LM ? [yes/NO]: ", .kind = FSDP_ASK_YES_NO,
     .value = "false", .applies = is_gpu_without_fsdp, .refuse = refuse_megatron, .needs = "distributed_type=MULTI_GPU"},
    {.key = "num_processes", .prompt = "How many processes should be used for distributed training? [1]:", .kind = FSDP_ASK_INT,
     .value = "1", .least = 1, .applies = is_multi_cpu, .needs = MULTI},
    {.key = "num_processes", .prompt = "How many GPU(s) should be used for distributed training? [1]:", .kind = FSDP_ASK_INT,
     .value = "1", .least = 1, .applies = is_gpu, .needs = MULTI},
    {.key = "gpu_ids", .prompt = "What GPU(s) (by id) should be used for training on this machine as a comma-separated list? [all]:",
     .kind = FSDP_ASK_TEXT, .value = "all", .applies = is_gpu_or_single, .asked = asks_for_gpus, .needs = "distributed_type=NO, FSDP or MULTI_GPU"},
    {.key = "enable_cpu_affinity", .prompt = "Would you like to enable numa efficiency? (Currently only supported on NVIDIA hardware). "
     "[yes/NO]: ", .kind = FSDP_ASK_YES_NO, .value = "false", .applies = always, .asked = asks_for_gpus},
    {.key = "mixed_precision", .prompt = "Do you wish to use mixed precision?", .kind = FSDP_ASK_CHOICE, .values = precisions,
     .value = "no", .applies = always},
    {.key = "fp8_backend", .section = FP8_SECTION, .prompt = "Which FP8 backend do you want to use?", .kind = FSDP_ASK_CHOICE,
     .values = fp8_backends, .value = "AO", .applies = is_fp8, .refuse = refuse_fp8_backend, .needs = "mixed_precision=fp8"},
    {.key = "fp8_enable_fsdp_float8_all_gather", .section = FP8_SECTION, .prompt = "Do you want to enable FSDP2 float8 all gather? This is "
     "recommended for better performance if using FSDP2. [YES/no]: ", .kind = FSDP_ASK_YES_NO, .value = "true", .applies = is_fp8,
     .needs = "mixed_precision=fp8"},
    {.key = "fp8_pad_inner_dim", .section = FP8_SECTION, .prompt = "Do you want to pad the inner dimension of weight matrices before float8 "
     "matmuls? This is required for _scaled_mm which has strict alignment requirements. Note: padding may cause memory spikes. [YES/no]: ",
     .kind = FSDP_ASK_YES_NO, .value = "true", .applies = is_fp8, .needs = "mixed_precision=fp8"},
};
/* clang-format on */

/* ---- checks ---- */

fsdp_status fsdp_answers_check(const fsdp_answers *a)
{
    const long machines_n = atol(fsdp_answer(a, "num_machines"));
    const long ranks = atol(fsdp_answer(a, "num_processes"));
    if (has_machines(a) && atol(fsdp_answer(a, "machine_rank")) >= machines_n)
        return fsdp_error(FSDP_ERR_INVALID, "machine_rank=%s: must be below num_machines=%ld",
                          fsdp_answer(a, "machine_rank"), machines_n);
    if (has_machines(a) && ranks % machines_n)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "num_processes=%ld: the processes of all machines, which num_machines=%ld "
            "must divide",
            ranks, machines_n);
    if (is_gpu_without_fsdp(a) && ranks == 1 && machines_n == 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "distributed_type=MULTI_GPU with num_processes=1: more than one, or "
                          "distributed_type=NO or FSDP");
    const long replicas = atol(fsdp_answer(a, "parallelism_config_dp_replicate_size"));
    const long shards = atol(fsdp_answer(a, "parallelism_config_dp_shard_size"));
    if (has_parallelism(a) && (ranks % replicas != 0 || ranks / replicas != shards))
        return fsdp_error(FSDP_ERR_INVALID,
                          "dp_replicate_size=%ld times dp_shard_size=%ld is not num_processes=%ld",
                          replicas, shards, ranks);
    return FSDP_OK;
}

/* ---- writing ---- */

static bool is_written(const fsdp_answers *a, size_t i)
{
    const fsdp_question *q = &fsdp_questions[i];
    if (!a->values[i] || !*a->values[i] || (q->section && !*q->section))
        return false;
    /* Accelerate writes gpu_ids only where it asks for them. */
    return strcmp(q->key, "gpu_ids") != 0 || a->given[i] || asks_for_gpus(a);
}

static fsdp_status write_answer(const fsdp_answers *a, size_t i, fsdp_yaml *config)
{
    const fsdp_question *q = &fsdp_questions[i];
    fsdp_yaml *map = config;
    if (q->section && !(map = fsdp_yaml_find(config, q->section)))
        FSDP_TRY(fsdp_yaml_set_empty(config, q->section, FSDP_YAML_MAP, &map));
    const bool is_string =
        q->kind == FSDP_ASK_TEXT || (q->kind == FSDP_ASK_CHOICE && q->values != versions);
    return fsdp_yaml_set(map, q->key, a->values[i], is_string);
}

/* Add the keys that Accelerate writes to every file, if `config` does not have them yet. */
static fsdp_status write_rest(const fsdp_answers *a, fsdp_yaml *config)
{
    static const struct {
        const char *key, *value;
        bool is_string;
    } rest[] = {{"downcast_bf16", "no", true},
                {"machine_rank", "0", false},
                {"main_training_function", "main", true},
                {"num_machines", "1", false},
                {"num_processes", "1", false},
                {"rdzv_backend", "static", true},
                {"same_network", "true", false},
                {"tpu_use_cluster", "false", false},
                {"tpu_use_sudo", "false", false},
                {"debug", "false", false}};
    fsdp_yaml *list;
    const char *type = is_fsdp(a) ? "FSDP" : fsdp_answer(a, "distributed_type");
    FSDP_TRY(fsdp_yaml_set(config, "distributed_type", type, true));
    if (!fsdp_yaml_find(config, "use_cpu"))
        FSDP_TRY(fsdp_yaml_set(config, "use_cpu", is_multi_cpu(a) ? "true" : "false", false));
    for (size_t i = 0; i < FSDP_LENGTH(rest); i++)
        if (!fsdp_yaml_find(config, rest[i].key))
            FSDP_TRY(fsdp_yaml_set(config, rest[i].key, rest[i].value, rest[i].is_string));
    return fsdp_yaml_set_empty(config, "tpu_env", FSDP_YAML_LIST, &list);
}

fsdp_status fsdp_answers_write(const fsdp_answers *a, fsdp_yaml *config)
{
    for (size_t i = 0; i < FSDP_QUESTIONS; i++)
        if (is_written(a, i))
            FSDP_TRY(write_answer(a, i, config));
    return write_rest(a, config);
}
