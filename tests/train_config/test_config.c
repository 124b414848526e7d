/* The option table of `fsdp train`: the defaults of the tutorials, what follows from the task and
 * from other values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "tests/train_config/parse.h"

TEST(defaults_are_the_tutorials)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, ""));
    ASSERT_INT(c.batch_size, 4);
    ASSERT_INT(c.validation_batch_size, 4);
    ASSERT_INT(c.epochs, 2);
    ASSERT_INT(c.task, FSDP_TRAIN_AUTO);
    ASSERT(isnan(c.lr) && !c.task_prefix); /* until the task is known */
    ASSERT_INT(c.max_seq_length, 0);
    ASSERT_INT(c.document_token, -1);
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
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_F32);
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_FULL_SHARD);
    ASSERT(c.reshard_after_forward && c.shuffle && c.save_model && !c.from_config);
    ASSERT(isnan(c.dropout) && !c.isa && !c.metrics && c.max_steps <= 0);
    ASSERT(!c.run_validation); /* there is nothing to run without --validation-data */
}

TEST(rate_and_prefix_follow_from_the_task)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--task seq2seq"));
    ASSERT_F32(c.lr, 0.002);
    ASSERT_STR(c.task_prefix, "summarize: ");
    ASSERT_OK(parse(&c, "--task clm"));
    ASSERT_F32(c.lr, 2e-5);
    ASSERT_STR(c.task_prefix, "");
    ASSERT_OK(parse(&c, "--task text-classification --lr 1 --task-prefix=x"));
    ASSERT_F32(c.lr, 1);
    ASSERT_STR(c.task_prefix, "x");
    /* The model's task is known later. */
    ASSERT_OK(parse(&c, ""));
    ASSERT_OK(fsdp_train_config_set_task(&c, FSDP_TASK_SEQ2SEQ));
    ASSERT_F32(c.lr, 0.002);
    ASSERT_STR(c.task_prefix, "summarize: ");
    ASSERT_OK(parse(&c, "--min-lr 0.1"));
    ASSERT_ERROR(fsdp_train_config_set_task(&c, FSDP_TASK_CAUSAL_LM), FSDP_ERR_INVALID,
                 "--min-lr 0.1 is above the learning rate, which is 2e-05 for causal-lm if --lr");
    ASSERT_OK(parse(&c, "--lr_end 0.1 --learning_rate 0.01"));
    ASSERT_ERROR(fsdp_train_config_set_task(&c, FSDP_TASK_CAUSAL_LM), FSDP_ERR_INVALID,
                 "--min-lr 0.1 is above --lr 0.01 (--learning_rate gives --lr, --lr_end gives "
                 "--min-lr)");
    ASSERT_OK(parse(&c, "--max-length 3"));
    ASSERT_ERROR(fsdp_train_config_set_task(&c, FSDP_TASK_SEQ2SEQ), FSDP_ERR_INVALID,
                 "--max-seq-length is for --task causal-lm and classification");
    ASSERT_OK(fsdp_train_config_set_task(&c, FSDP_TASK_CAUSAL_LM));
    ASSERT_OK(parse(&c, "--document-token 3 --validation-data v --generate-examples 1"));
    ASSERT_ERROR(fsdp_train_config_set_task(&c, FSDP_TASK_SEQ2SEQ), FSDP_ERR_INVALID,
                 "--document-token is for the token files of --task causal-lm, not seq2seq");
    ASSERT_ERROR(fsdp_train_config_set_task(&c, FSDP_TASK_CLASSIFICATION), FSDP_ERR_INVALID,
                 "classifiers do not generate texts");
}

TEST(the_schedule_follows_from_the_task)
{
    static const struct {
        fsdp_task task;
        int schedule, unit;
    } rows[] = {{FSDP_TASK_SEQ2SEQ, FSDP_LR_STEP, FSDP_SCHEDULE_EPOCH},
                {FSDP_TASK_CAUSAL_LM, FSDP_LR_COSINE, FSDP_SCHEDULE_STEP},
                {FSDP_TASK_CLASSIFICATION, FSDP_LR_LINEAR, FSDP_SCHEDULE_STEP},
                {FSDP_TASK_MASKED_LM, FSDP_LR_LINEAR, FSDP_SCHEDULE_STEP}};
    fsdp_train_config c;
    char line[100];
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        ASSERT_OK(parse(&c, ""));
        ASSERT_OK(fsdp_train_config_set_task(&c, rows[i].task));
        ASSERT_INT(c.lr_schedule, rows[i].schedule);
        ASSERT_INT(c.schedule_unit, rows[i].unit);
        ASSERT(c.schedule_by_task && c.min_lr == 0);
        snprintf(line, sizeof line, "--task %s", fsdp_train_task_name(rows[i].task));
        ASSERT_OK(parse(&c, line));
        ASSERT_INT(c.lr_schedule, rows[i].schedule);
        /* --gamma is of the step schedule, for any task */
        ASSERT_OK(parse(&c, "--gamma 0.5"));
        ASSERT_OK(fsdp_train_config_set_task(&c, rows[i].task));
        ASSERT_INT(c.lr_schedule, FSDP_LR_STEP);
        ASSERT(!c.schedule_by_task);
    }
}

TEST(values_follow_from_others)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--optimizer sgd --momentum 0.9"));
    ASSERT_F32(c.weight_decay, 0);
    ASSERT_OK(parse(&c, "--optimizer sgd --momentum 0.9 --nesterov"));
    ASSERT(c.nesterov);
    ASSERT_OK(parse(&c, "--optimizer sgd --momentum 0.9 --dampening 0.5"));
    ASSERT_F32(c.dampening, 0.5);
    ASSERT_OK(parse(&c, "--optimizer adam --beta1 0.8"));
    ASSERT_INT(c.optimizer, FSDP_OPTIMIZER_ADAM);
    ASSERT_F32(c.weight_decay, 0);
    ASSERT_OK(parse(&c, "--optimizer sgd --weight-decay 0.1"));
    ASSERT_F32(c.weight_decay, 0.1);
    ASSERT_OK(parse(&c, "--lr-schedule linear"));
    ASSERT_INT(c.schedule_unit, FSDP_SCHEDULE_STEP);
    ASSERT_OK(parse(&c, "--lr-schedule step --schedule-unit step"));
    ASSERT_INT(c.schedule_unit, FSDP_SCHEDULE_STEP);
    ASSERT_OK(parse(&c, "--no-reshard-after-forward"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_SHARD_GRAD_OP);
    ASSERT_OK(parse(&c, "--reshard-after-forward 2"));
    ASSERT_INT(c.reshard_after_forward, 2);
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_FULL_SHARD);
    ASSERT_OK(parse(&c, "--reshard-after-forward --bf16"));
    ASSERT_INT(c.reshard_after_forward, 1);
    ASSERT_OK(parse(&c, "--sharding-strategy no_shard"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_NO_SHARD);
    ASSERT(!c.reshard_after_forward);
    ASSERT_OK(parse(&c, "--sharding-strategy _HYBRID_SHARD_ZERO2 --hybrid-shard-size 4"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_HYBRID_SHARD_ZERO2);
    ASSERT(!c.reshard_after_forward);
    ASSERT_OK(parse(&c, "--sharding-strategy HYBRID_SHARD_ZERO2"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_HYBRID_SHARD_ZERO2);
    ASSERT_OK(parse(&c, "--data-parallel-replicate-degree 2 --data-parallel-shard-degree -1"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_HYBRID_SHARD);
    ASSERT(c.reshard_after_forward);
    ASSERT_OK(parse(&c, "--data-parallel-replicate-degree 1"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_FULL_SHARD);
    setenv("FSDP_SHARDING_STRATEGY", "FULL_SHARD", 1);
    setenv("FSDP_RESHARD_AFTER_FORWARD", "false", 1);
    ASSERT_OK(parse(&c, ""));
    ASSERT(!c.reshard_after_forward);
    ASSERT_OK(parse(&c, "--reshard-after-forward true"));
    ASSERT(c.reshard_after_forward);
    unsetenv("FSDP_SHARDING_STRATEGY");
    unsetenv("FSDP_RESHARD_AFTER_FORWARD");
}

/* A folder with train.jsonl and validation.jsonl is used by these files. If there are further files
 * for a split, the folder itself is used, so that all are read. */
TEST(a_folder_of_splits_is_read_whole)
{
    static const char *const files[] = {"train.jsonl", "validation.jsonl", "more.jsonl"};
    fsdp_train_config c;
    char line[300], path[300];
    snprintf(line, sizeof line, "--data %s", fsdp_test_dir(t));
    for (size_t i = 0; i < FSDP_LENGTH(files); i++) {
        snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), files[i]);
        ASSERT_OK(fsdp_file_write(path, "", 0));
    }
    ASSERT_OK(parse(&c, line));
    ASSERT_STR(fsdp_path_name(c.data), "train.jsonl");
    ASSERT_STR(fsdp_path_name(c.validation_data), "validation.jsonl");
    snprintf(path, sizeof path, "%s/train_part2.jsonl", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, "", 0));
    ASSERT_OK(parse(&c, line));
    ASSERT_STR(c.data, fsdp_test_dir(t));
    ASSERT_STR(fsdp_path_name(c.validation_data), "validation.jsonl");
    snprintf(path, sizeof path, "%s/validation_part2.jsonl", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, "", 0));
    ASSERT_OK(parse(&c, line));
    ASSERT_STR(c.validation_data, fsdp_test_dir(t));
}

/* Both spellings of the newest checkpoint and of none; any other word is a folder. */
TEST(resume_takes_a_word_or_a_folder)
{
    static const struct {
        const char *line, *resume;
    } cases[] = {{"--save-steps 5 --resume", "auto"},
                 {"--save-steps 5 --resume true", "auto"},
                 {"--save-steps 5 --resume latest", "auto"},
                 {"--save-steps 5 --resume=auto", "auto"},
                 {"--save-steps 5 --resume c/checkpoint-5", "c/checkpoint-5"},
                 {"--save-steps 5 --resume false", NULL},
                 {"--save-steps 5 --resume no", NULL},
                 {"--resume True --checkpoint c/checkpoint-5", "c/checkpoint-5"},
                 {"--save-steps 5", NULL}};
    fsdp_train_config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ASSERT_OK(parse(&c, cases[i].line));
        ASSERT((c.resume == NULL) == (cases[i].resume == NULL));
        if (c.resume)
            ASSERT_STR(c.resume, cases[i].resume);
    }
}

/* Options that change nothing are in a separate table. */
TEST(the_tables_are_well_formed)
{
    const fsdp_options_spec *spec = fsdp_train_options();
    ASSERT(spec->n_compat > 40);
    for (size_t i = 0; i < spec->count + spec->n_compat; i++) {
        const bool is_real = i < spec->count;
        const fsdp_option *o = is_real ? &spec->table[i] : &spec->compat[i - spec->count];
        ASSERT(is_real ? !o->no_effect && o->help && *o->help
                       : o->no_effect && *o->no_effect && o->offset == FSDP_OPTION_NOWHERE);
        ASSERT(!o->instead || o->no_effect);
        ASSERT(o->type == FSDP_OPTION_BOOL_OR_INT ||
               (o->type == FSDP_OPTION_CHOICE) == (o->choices != NULL));
        for (const char *c = o->name; *c; c++)
            ASSERT((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '-');
        for (size_t k = 0; k < i; k++)
            ASSERT(strcmp(o->name, k < spec->count ? spec->table[k].name
                                                   : spec->compat[k - spec->count].name) != 0);
    }
    /* Each name of the first page is in the table (asserted), and most of a screen is left free. */
    int n_first = 0;
    for (const char *const *row = spec->first_page; *row; row++)
        for (const char *at = strchr(*row, ':'); at && *at; at++)
            n_first += *at == ' ';
    ASSERT(n_first >= 10 && n_first <= 30);
    char *help = fsdp_options_help(spec, 10000);
    ASSERT(help && strstr(help, "accepted, without effect here:") && strstr(help, "--no-cuda"));
    const bool names_default_units =
        strstr(help, "the model's blocks, and its embedding and head unless they share a weight");
    fsdp_free(help);
    ASSERT(names_default_units); /* as fsdp_model_shard() makes them */
}
