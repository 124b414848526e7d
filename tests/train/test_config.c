/* The option table of `fsdp train`: the tutorials' defaults, other tools' spellings, the checks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/train/config.h"
#include "tests/test.h"

static fsdp_options *kept;

static fsdp_status parse_line(fsdp_train_config *c, const char *before, const char *line)
{
    static char words[2048];
    char *argv[64], *rest = words;
    int argc = 0;
    snprintf(words, sizeof words, "train %s %s", before, line);
    for (char *word; (word = strsep(&rest, " "));)
        if (*word)
            argv[argc++] = word;
    argv[argc] = NULL;
    fsdp_options_destroy(kept);
    kept = NULL;
    return fsdp_options_parse(fsdp_train_options(), argc, argv, c, &kept);
}

static fsdp_status parse(fsdp_train_config *c, const char *line)
{
    return parse_line(c, "--model m --data d.csv --output out", line);
}

TEST(defaults_are_the_tutorials)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, ""));
    ASSERT_INT(c.batch_size, 4);
    ASSERT_INT(c.validation_batch_size, 4);
    ASSERT_INT(c.epochs, 2);
    ASSERT_F32(c.lr, 0.002);
    ASSERT_INT(c.lr_schedule, FSDP_LR_STEP);
    ASSERT_INT(c.schedule_unit, FSDP_SCHEDULE_EPOCH);
    ASSERT_F32(c.gamma, 0.7);
    ASSERT_INT(c.step_size, 1);
    ASSERT_INT(c.optimizer, FSDP_OPTIMIZER_ADAMW);
    ASSERT_F32(c.weight_decay, 0.01);
    ASSERT_F32(c.beta1, 0.9);
    ASSERT_F32(c.beta2, 0.999);
    ASSERT_F32(c.eps, 1e-8);
    ASSERT_F32(c.max_grad_norm, 0);
    ASSERT_INT(c.seed, 1);
    ASSERT_INT(c.max_source_length, 512);
    ASSERT_INT(c.max_target_length, 150);
    ASSERT_INT(c.gradient_accumulation_steps, 1);
    ASSERT_STR(c.task_prefix, "summarize: ");
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_F32);
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_FULL_SHARD);
    ASSERT(c.reshard_after_forward && c.shuffle && c.save_model && !c.from_config);
    ASSERT(isnan(c.dropout) && !c.isa && !c.metrics && c.max_steps <= 0);
    ASSERT(!c.run_validation); /* without --validation-data there is nothing to run */
}

TEST(spellings_of_other_tools_are_known)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--test-batch-size 7 --learning_rate 1e-4 --per_device_train_batch_size 3 "
                        "--num_train_epochs 5 --warmup_steps 10 --lr_scheduler_type cosine "
                        "--optim adamw_torch --mixed_precision bf16 --output_dir o "
                        "--validation_file v.csv --eval_steps 50 --source_prefix= --no-cuda "
                        "--limit_all_gathers True --report_to none --fsdp_sharding_strategy 2"));
    ASSERT_INT(c.validation_batch_size, 7);
    ASSERT_INT(c.batch_size, 3);
    ASSERT_F32(c.lr, 1e-4);
    ASSERT_INT(c.epochs, 5);
    ASSERT_INT(c.lr_schedule, FSDP_LR_COSINE);
    ASSERT_INT(c.schedule_unit, FSDP_SCHEDULE_STEP);
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_BF16);
    ASSERT_INT(c.evaluation_steps, 50);
    ASSERT_STR(c.task_prefix, "");
    ASSERT_STR(c.output, "o");
    ASSERT(c.run_validation);
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_SHARD_GRAD_OP);
    ASSERT(!c.reshard_after_forward);
    ASSERT_OK(parse(&c, "--bf16"));
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_BF16);
    ASSERT_OK(parse(&c, "--bf16 --param-dtype fp32"));
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_F32);
    ASSERT_OK(parse(&c, "--tutorial-loss"));
    ASSERT_INT(c.loss_reduction, FSDP_LOSS_MEAN_OF_MEANS);
}

TEST(values_follow_from_others)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--optimizer sgd --momentum 0.9"));
    ASSERT_F32(c.weight_decay, 0);
    ASSERT_OK(parse(&c, "--optimizer sgd --weight-decay 0.1"));
    ASSERT_F32(c.weight_decay, 0.1);
    ASSERT_OK(parse(&c, "--lr-schedule linear"));
    ASSERT_INT(c.schedule_unit, FSDP_SCHEDULE_STEP);
    ASSERT_OK(parse(&c, "--lr-schedule step --schedule-unit step"));
    ASSERT_INT(c.schedule_unit, FSDP_SCHEDULE_STEP);
    ASSERT_OK(parse(&c, "--no-reshard-after-forward"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_SHARD_GRAD_OP);
    ASSERT_OK(parse(&c, "--sharding-strategy no_shard"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_NO_SHARD);
    ASSERT(!c.reshard_after_forward);
    setenv("FSDP_SHARDING_STRATEGY", "FULL_SHARD", 1);
    setenv("FSDP_RESHARD_AFTER_FORWARD", "false", 1);
    ASSERT_OK(parse(&c, ""));
    ASSERT(!c.reshard_after_forward);
    ASSERT_OK(parse(&c, "--reshard-after-forward true"));
    ASSERT(c.reshard_after_forward);
    unsetenv("FSDP_SHARDING_STRATEGY");
    unsetenv("FSDP_RESHARD_AFTER_FORWARD");
}

TEST(contradictions_name_both_options)
{
    static const struct {
        const char *line, *message;
        fsdp_status status;
    } cases[] = {
        {"--task causal-lm", "--task causal-lm comes with a later version", FSDP_ERR_UNSUPPORTED},
        {"--task clm", "--task causal-lm", FSDP_ERR_UNSUPPORTED},
        {"--task translation", "seq2seq, causal-lm or classification", FSDP_ERR_INVALID},
        {"--min-lr 0.1", "--min-lr 0.1 is above --lr 0.002", FSDP_ERR_INVALID},
        {"--max-steps 5 --warmup-steps 6", "--warmup-steps 6 is more than --max-steps 5",
         FSDP_ERR_INVALID},
        {"--momentum 0.9", "--momentum is for --optimizer sgd", FSDP_ERR_INVALID},
        {"--optimizer sgd --beta2 0.9", "--beta2 is for --optimizer adamw", FSDP_ERR_INVALID},
        {"--param-dtype fp16", "--param-dtype float16: it needs loss scaling",
         FSDP_ERR_UNSUPPORTED},
        {"--mixed-precision fp16", "loss scaling", FSDP_ERR_UNSUPPORTED},
        {"--reduce-dtype int64", "--reduce-dtype int64: it takes float32 or bfloat16",
         FSDP_ERR_INVALID},
        {"--sharding-strategy HYBRID_SHARD", "HYBRID_SHARD comes with a later version",
         FSDP_ERR_UNSUPPORTED},
        {"--sharding-strategy FULL_SHARD --no-reshard-after-forward",
         "FULL_SHARD contradicts --reshard-after-forward false", FSDP_ERR_INVALID},
        {"--sharding-strategy SHARD_GRAD_OP --reshard-after-forward", "SHARD_GRAD_OP contradicts",
         FSDP_ERR_INVALID},
        {"--sharding-strategy NO_SHARD --reshard-after-forward", "NO_SHARD contradicts",
         FSDP_ERR_INVALID},
        {"--run-validation", "--run-validation needs --validation-data", FSDP_ERR_INVALID},
        {"--evaluation-steps 5", "--evaluation-steps needs", FSDP_ERR_INVALID},
        {"--generate-examples 5", "--generate-examples needs", FSDP_ERR_INVALID},
        {"--device cuda", "it takes cpu or meta", FSDP_ERR_INVALID},
        {"--dropout 1", "from 0 to below 1", FSDP_ERR_INVALID},
        {"--batch-size 0", "--batch-size: '0' is not allowed", FSDP_ERR_INVALID},
        {"--data=", "--data is empty", FSDP_ERR_INVALID},
        {"--outptu x", "did you mean '--output'", FSDP_ERR_INVALID},
    };
    fsdp_train_config c;
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++)
        ASSERT_ERROR(parse(&c, cases[i].line), cases[i].status, cases[i].message);
    ASSERT_ERROR(parse_line(&c, "--data d --output o", ""), FSDP_ERR_INVALID, "--model is missing");
    ASSERT_ERROR(parse_line(&c, "--model m --output o", ""), FSDP_ERR_INVALID, "--data is missing");
    ASSERT_ERROR(parse_line(&c, "--model m --data d", ""), FSDP_ERR_INVALID, "--no-save-model");
    ASSERT_OK(parse_line(&c, "--model m --data d --no-save-model", ""));
    ASSERT(!c.output);
}

TEST(the_table_is_well_formed)
{
    const fsdp_options_spec *spec = fsdp_train_options();
    for (size_t i = 0; i < spec->count; i++) {
        const fsdp_option *o = &spec->table[i];
        ASSERT(o->no_effect ? o->offset == FSDP_OPTION_NOWHERE : o->help && *o->help);
        ASSERT((o->type == FSDP_OPTION_CHOICE) == (o->choices != NULL));
        for (const char *c = o->name; *c; c++)
            ASSERT((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '-');
        for (size_t k = 0; k < i; k++)
            ASSERT(strcmp(o->name, spec->table[k].name) != 0);
    }
    char *help = fsdp_options_help(spec, 100);
    ASSERT(help && strstr(help, "accepted, without effect here:") && strstr(help, "--no-cuda"));
    fsdp_free(help);
}

#ifdef FSDP_HAVE_YAML
/* The dropout that nobody gave survives the way through the printed file: it stays the model's. */
TEST(the_printed_configuration_reads_back)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--lr 0.001 --validation-data v.csv --bf16"));
    char *printed = fsdp_options_print(kept, &c), path[256], line[300];
    ASSERT(printed);
    snprintf(path, sizeof path, "%s/c.yaml", fsdp_test_dir(t));
    FILE *file = fopen(path, "w");
    ASSERT(file);
    fputs(printed, file);
    fclose(file);
    fsdp_free(printed);
    snprintf(line, sizeof line, "--config %s", path);
    ASSERT_OK(parse_line(&c, "", line));
    ASSERT(isnan(c.dropout) && c.run_validation);
    ASSERT_STR(c.model, "m");
    ASSERT_F32(c.lr, 0.001);
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_BF16);
}
#endif
