/* Configuration files of `fsdp train` and of Accelerate. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "tests/train_config/parse.h"

#ifdef FSDP_HAVE_YAML
/* Prints `line` into a file and reads it back together with `more`. */
static fsdp_status parse_printed(fsdp_test *t, fsdp_train_config *c, const char *line,
                                 const char *more)
{
    char path[256], words[400];
    FSDP_TRY(parse(c, line));
    char *printed = fsdp_options_print(kept, c);
    snprintf(path, sizeof path, "%s/c.yaml", fsdp_test_dir(t));
    fsdp_status status = printed ? fsdp_file_write(path, printed, strlen(printed)) : FSDP_ERR_NOMEM;
    fsdp_free(printed);
    FSDP_TRY(status);
    snprintf(words, sizeof words, "--config %s %s", path, more);
    return parse_line(c, "", words);
}

/* A value that was not given does not contradict one that is given later. */
TEST(flags_may_be_added_to_a_printed_configuration)
{
    fsdp_train_config c;
    ASSERT_OK(parse_printed(t, &c, "",
                            "--sharding-strategy SHARD_GRAD_OP --optimizer sgd "
                            "--momentum 0.9 --min-num-params 5 --bf16 --save-steps 3 "
                            "--activation-checkpointing-every 2"));
    ASSERT(!c.reshard_after_forward && c.weight_decay == 0 && c.activation_checkpointing);
    ASSERT_INT(c.auto_wrap_policy, FSDP_AUTO_WRAP_SIZE_BASED);
    ASSERT_INT(c.save_strategy, FSDP_SAVE_STEPS);
    ASSERT_OK(parse_printed(t, &c, "--sharding-strategy SHARD_GRAD_OP", "--task seq2seq"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_SHARD_GRAD_OP);
    ASSERT(!c.reshard_after_forward && c.lr == 0.002);
    ASSERT_OK(parse_printed(t, &c, "--task seq2seq", "--task causal-lm"));
    ASSERT(c.lr == 2e-5);
}

/* A dropout that was not given remains the model's after the way through the printed file. */
TEST(the_printed_configuration_reads_back)
{
    fsdp_train_config c;
    ASSERT_OK(parse_printed(t, &c, "--lr 0.001 --validation-data v.csv --bf16", ""));
    ASSERT(isnan(c.dropout) && c.run_validation);
    ASSERT_STR(c.model, "m");
    ASSERT_F32(c.lr, 0.001);
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_BF16);
    ASSERT_OK(parse_printed(t, &c, "--grad-norm-type inf", ""));
    ASSERT(isinf(c.grad_norm_type));
    ASSERT_OK(parse_printed(t, &c, "--norm-type 2.5", ""));
    ASSERT_F32(c.grad_norm_type, 2.5);
}

/* The flag prevents gathering ahead; false in the files and variables of other tools counts as not
 * given. */
TEST(no_forward_prefetch_reads_back_and_false_elsewhere_is_silence)
{
    static const struct {
        const char *line, *more;
        fsdp_forward_prefetch is;
    } rows[] = {{"--no-forward-prefetch", "", FSDP_FORWARD_NONE},
                {"--forward-prefetch false", "", FSDP_FORWARD_NONE},
                {"--no-forward-prefetch", "--forward-prefetch", FSDP_FORWARD_STRICT},
                {"--forward-prefetch", "", FSDP_FORWARD_STRICT},
                {"--forward-prefetch", "--no-forward-prefetch", FSDP_FORWARD_NONE},
                {"", "", FSDP_FORWARD_IMPLICIT}};
    fsdp_train_config c;
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        ASSERT_OK(parse_printed(t, &c, rows[i].line, rows[i].more));
        ASSERT_INT(c.forward_prefetch_kind, rows[i].is);
    }
    setenv("FSDP_FORWARD_PREFETCH", "false", 1);
    fsdp_status status = parse(&c, "");
    unsetenv("FSDP_FORWARD_PREFETCH");
    ASSERT_OK(status);
    ASSERT_INT(c.forward_prefetch_kind, FSDP_FORWARD_IMPLICIT);
}

/* The file that `accelerate config` writes, with the script's own options in it. */
TEST(accelerates_configuration_is_read)
{
    static const char text[] = "compute_environment: LOCAL_MACHINE\n"
                               "debug: false\n"
                               "distributed_type: FSDP\n"
                               "downcast_bf16: 'no'\n"
                               "dynamo_config:\n"
                               "  dynamo_backend: INDUCTOR\n"
                               "  dynamo_mode: default\n"
                               "  dynamo_use_dynamic: false\n"
                               "  dynamo_use_fullgraph: false\n"
                               "  dynamo_use_regional_compilation: false\n"
                               "enable_cpu_affinity: false\n"
                               "fsdp_config:\n"
                               "  fsdp_activation_checkpointing: true\n"
                               "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                               "  fsdp_cpu_ram_efficient_loading: true\n"
                               "  fsdp_forward_prefetch: false\n"
                               "  fsdp_offload_params: false\n"
                               "  fsdp_reshard_after_forward: false\n"
                               "  fsdp_state_dict_type: FULL_STATE_DICT\n"
                               "  fsdp_transformer_layer_cls_to_wrap: T5Block\n"
                               "  fsdp_version: 2\n"
                               "machine_rank: 0\n"
                               "main_training_function: main\n"
                               "mixed_precision: bf16\n"
                               "num_machines: 1\n"
                               "num_processes: 2\n"
                               "parallelism_config:\n"
                               "  parallelism_config_cp_size: 1\n"
                               "  parallelism_config_dp_replicate_size: 1\n"
                               "  parallelism_config_dp_shard_size: 1\n"
                               "  parallelism_config_tp_size: 1\n"
                               "rdzv_backend: static\n"
                               "same_network: true\n"
                               "tpu_env: []\n"
                               "tpu_use_cluster: false\n"
                               "tpu_use_sudo: false\n"
                               "use_cpu: false\n";
    static const char version_1[] = "distributed_type: FSDP\n"
                                    "fsdp_config:\n"
                                    "  fsdp_reshard_after_forward: HYBRID_SHARD_ZERO2\n"
                                    "  fsdp_version: 1\n"
                                    "mixed_precision: 'no'\n";
    fsdp_train_config c;
    char path[256], line[400];
    snprintf(path, sizeof path, "%s/acc.yaml", fsdp_test_dir(t));
    FILE *file = fopen(path, "w");
    ASSERT(file);
    fputs(text, file);
    fclose(file);
    snprintf(line, sizeof line,
             "--config %s --save_step_interval 7 --lr_decay True --log_model all", path);
    ASSERT_OK(parse(&c, line));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_SHARD_GRAD_OP);
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_BF16);
    ASSERT(c.activation_checkpointing);
    ASSERT_INT(c.forward_prefetch_kind, FSDP_FORWARD_IMPLICIT);
    ASSERT_STR(c.transformer_layer_cls_to_wrap.items[0], "T5Block");
    ASSERT_INT(c.save_steps, 7);
    file = fopen(path, "w");
    ASSERT(file);
    fputs(version_1, file);
    fclose(file);
    snprintf(line, sizeof line, "--config %s", path);
    ASSERT_OK(parse(&c, line));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_HYBRID_SHARD_ZERO2);
    ASSERT_INT(c.reshard_after_forward, 0);
}

/* A configuration of another kind of job is refused with the reason. */
TEST(accelerates_other_jobs_are_refused)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"parallelism_config:\n"
         "  parallelism_config_cp_comm_strategy: allgather\n"
         "  parallelism_config_cp_size: 2\n",
         "acc.yaml:3: parallelism_config_cp_size: '2' is not allowed; it takes 1: there is no "
         "context parallelism"},
        {"fsdp_version: 1\nparallelism_config_dp_replicate_size: 2\n",
         "acc.yaml:2: parallelism_config_dp_replicate_size: parallelism_config needs fsdp_version "
         "2"},
        {"parallelism_config: {dp_shard_size: 4}\n",
         "acc.yaml:1: dp_shard_size: parallelism_config needs fsdp_version 2"},
        {"parallelism_config_sp_size: 0\n", "parallelism_config_sp_size: '0' is not allowed"},
        {"parallelism_config_tp_size: 2\n", "no tensor parallelism"},
        {"main_process_ip: 10.0.0.1\nmain_process_port: 29500\nnum_machines: 2\n",
         "acc.yaml:3: num_machines: '2' is not allowed; it takes 1: ranks come from fsdp launch"},
    };
    fsdp_train_config c;
    char path[256], line[300];
    snprintf(path, sizeof path, "%s/acc.yaml", fsdp_test_dir(t));
    snprintf(line, sizeof line, "--config %s", path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *file = fopen(path, "w");
        ASSERT(file);
        fputs(cases[i].text, file);
        fclose(file);
        ASSERT_ERROR(parse(&c, line), FSDP_ERR_INVALID, cases[i].error);
    }
}

/* Accelerate's launcher exports its default strategy in addition to the chosen one. */
TEST(a_strategy_may_be_given_in_reshard_after_forward)
{
    fsdp_train_config c;
    setenv("FSDP_RESHARD_AFTER_FORWARD", "shard_grad_op", 1);
    setenv("FSDP_SHARDING_STRATEGY", "FULL_SHARD", 1);
    fsdp_status status = parse(&c, "");
    unsetenv("FSDP_RESHARD_AFTER_FORWARD");
    unsetenv("FSDP_SHARDING_STRATEGY");
    ASSERT_OK(status);
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_SHARD_GRAD_OP);
    ASSERT_INT(c.reshard_after_forward, 0);
    setenv("FSDP_RESHARD_AFTER_FORWARD", "SHARD_GRAD_OP", 1);
    status = parse(&c, "--sharding-strategy FULL_SHARD");
    unsetenv("FSDP_RESHARD_AFTER_FORWARD");
    ASSERT_OK(status);
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_FULL_SHARD);
    ASSERT_INT(c.reshard_after_forward, 1);
    ASSERT_OK(parse(&c, "--fsdp_reshard_after_forward FULL_SHARD"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_FULL_SHARD);
    ASSERT_INT(c.reshard_after_forward, 1);
    ASSERT_OK(parse(&c, "--reshard-after-forward NO_SHARD"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_NO_SHARD);
    ASSERT_OK(parse(&c, "--reshard-after-forward 4"));
    ASSERT_INT(c.reshard_after_forward, 4);
    ASSERT_ERROR(parse(&c, "--sharding-strategy NO_SHARD --reshard-after-forward FULL_SHARD"),
                 FSDP_ERR_INVALID, "NO_SHARD contradicts --reshard-after-forward true");
    ASSERT_ERROR(parse(&c, "--reshard-after-forward=SOMETIMES"), FSDP_ERR_INVALID,
                 "'SOMETIMES' is not allowed");
}
#endif
