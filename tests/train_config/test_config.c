/* The option table of `fsdp train`: the tutorials' defaults, other tools' spellings, the checks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/train_config/precision.h"
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
                 "--min-lr 0.1 is above --lr 2e-05");
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

/* Fabric's tutorial computes the cosine itself, with a switch for it and its last rate. */
TEST(lr_decay_and_min_lr_are_a_cosine)
{
    static const struct {
        const char *line;
        int schedule;
    } rows[] = {{"--lr 1 --min_lr 0.5", FSDP_LR_COSINE},
                {"--lr_decay True", FSDP_LR_COSINE},
                {"--lr_decay False", FSDP_LR_CONSTANT},
                {"--lr_decay True --lr-schedule linear", FSDP_LR_LINEAR},
                {"--lr 1 --min_lr 0.5 --lr-schedule linear", FSDP_LR_LINEAR},
                {"", FSDP_LR_STEP}};
    fsdp_train_config c;
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        ASSERT_OK(parse(&c, rows[i].line));
        ASSERT_INT(c.lr_schedule, rows[i].schedule);
        ASSERT_INT(c.schedule_unit,
                   rows[i].schedule == FSDP_LR_STEP ? FSDP_SCHEDULE_EPOCH : FSDP_SCHEDULE_STEP);
    }
    ASSERT_OK(parse(&c, "--auto_wrap_policy LlamaDecoderLayer"));
    ASSERT_INT(c.auto_wrap_policy, FSDP_AUTO_WRAP_TRANSFORMER_BASED);
}

/* Spellings of the tutorials on Llama (llama-recipes, Lightning Fabric) and of transformers'
 * run_clm.py. */
TEST(spellings_of_causal_tools_are_known)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c,
                    "--block_size 512 --batch_size_training 3 --val_batch_size 5 --num_epochs 4 "
                    "--enable_fsdp --do_train --do_eval --precision bf16-true "
                    "--validation_file v.jsonl "
                    "--prompt_column p --completion_column c"));
    ASSERT_INT(c.max_seq_length, 512);
    ASSERT_INT(c.batch_size, 3);
    ASSERT_INT(c.validation_batch_size, 5);
    ASSERT_INT(c.epochs, 4);
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_BF16);
    ASSERT_INT(c.master_dtype, FSDP_DTYPE_BF16);
    ASSERT_INT(c.optimizer_state_dtype, FSDP_DTYPE_BF16);
    ASSERT_STR(c.text_column, "p");
    ASSERT_STR(c.target_column, "c");
    ASSERT_OK(parse(&c, "--context_length 64 --precision bf16-mixed"));
    ASSERT_INT(c.max_seq_length, 64);
    ASSERT_INT(c.master_dtype, FSDP_DTYPE_F32);
    ASSERT_INT(c.optimizer_state_dtype, FSDP_DTYPE_F32);
    /* Lightning's older names are numbers. */
    ASSERT_OK(parse(&c, "--precision 16"));
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_F16);
    ASSERT_INT(c.master_dtype, FSDP_DTYPE_F32);
    ASSERT_OK(parse(&c, "--precision 32"));
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_F32);
    ASSERT_ERROR(parse(&c, "--precision 64"), FSDP_ERR_INVALID, "'64' is not allowed");
    ASSERT_ERROR(parse(&c, "--precision 8"), FSDP_ERR_INVALID, "'8' is not allowed");
#ifdef FSDP_HAVE_YAML
    ASSERT_OK(parse(&c, "--config {\"precision\":16}"));
    ASSERT_INT(c.param_dtype, FSDP_DTYPE_F16);
#endif
    ASSERT_OK(parse(&c, "--precision bf16-true --optimizer adafactor"));
    ASSERT_INT(c.optimizer_state_dtype, FSDP_DTYPE_F32);
    ASSERT_OK(parse(&c, "--optimizer-state-dtype bf16 --optimizer adam"));
    ASSERT_INT(c.optimizer_state_dtype, FSDP_DTYPE_BF16);
    ASSERT_INT(c.master_dtype, FSDP_DTYPE_F32);
    ASSERT_OK(parse(&c, "--max-length 65 --frozen-prefixes a.,b"));
    ASSERT_INT(c.max_seq_length, 65);
    ASSERT_INT(c.frozen_prefixes.count, 2);
    ASSERT_STR(c.frozen_prefixes.items[1], "b");
}

/* The options of every unit for a command line. */
static fsdp_fully_shard_options shard_options_of(fsdp_test *t, const char *line)
{
    fsdp_train_config c;
    fsdp_fully_shard_options o = {0};
    fsdp_status status = parse(&c, line);
    if (status == FSDP_OK)
        fsdp_train_config_shard_options(&c, &o);
    else
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s", line, fsdp_last_error());
    return o;
}

TEST(prefetch_and_its_limit_reach_the_units)
{
    fsdp_fully_shard_options o = shard_options_of(t, "");
    ASSERT_INT(o.backward_prefetch, FSDP_BACKWARD_PRE);
    ASSERT_INT(o.forward_prefetch, FSDP_FORWARD_IMPLICIT);
    ASSERT(!o.no_limit_all_gathers);
    o = shard_options_of(t, "--backward-prefetch BACKWARD_POST --forward-prefetch "
                            "--no-limit-all-gathers");
    ASSERT_INT(o.backward_prefetch, FSDP_BACKWARD_POST);
    ASSERT_INT(o.forward_prefetch, FSDP_FORWARD_STRICT);
    ASSERT(o.no_limit_all_gathers);
    o = shard_options_of(t, "--fsdp_backward_prefetch NO_PREFETCH --no-forward-prefetch");
    ASSERT_INT(o.backward_prefetch, FSDP_BACKWARD_NONE);
    ASSERT_INT(o.forward_prefetch, FSDP_FORWARD_NONE);
    o = shard_options_of(t, "--fsdp_backward_prefetch_policy backward_pre --fsdp_forward_prefetch "
                            "true --limit_all_gathers true");
    ASSERT_INT(o.backward_prefetch, FSDP_BACKWARD_PRE);
    ASSERT_INT(o.forward_prefetch, FSDP_FORWARD_STRICT);
    fsdp_train_config c;
    ASSERT_ERROR(parse(&c, "--backward-prefetch BACKWARD_PER"), FSDP_ERR_INVALID, "BACKWARD_PRE");
}

TEST(explicit_prefetching_is_the_tutorials_two_and_two)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, ""));
    ASSERT(!c.explicit_prefetching && !c.forward_prefetch_depth && !c.backward_prefetch_depth);
    ASSERT_OK(parse(&c, "--explicit-prefetching"));
    ASSERT_INT(c.forward_prefetch_depth, 2);
    ASSERT_INT(c.backward_prefetch_depth, 2);
    ASSERT_OK(parse(&c, "--forward-prefetch-depth 3"));
    ASSERT(c.explicit_prefetching);
    ASSERT_INT(c.forward_prefetch_depth, 3);
    ASSERT_INT(c.backward_prefetch_depth, 0);
    ASSERT_ERROR(parse(&c, "--no-explicit-prefetching --backward-prefetch-depth 1"),
                 FSDP_ERR_INVALID, "--no-explicit-prefetching contradicts --backward-prefetch");
}

TEST(classes_left_out_are_those_of_the_size_based_policy)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--min-num-params 5 --exclude-wrap-modules A,B --force-leaf-modules C"));
    ASSERT_INT(c.named.exclude_wrap_modules.count, 2);
    ASSERT_STR(c.named.force_leaf_modules.items[0], "C");
    ASSERT_ERROR(parse(&c, "--exclude-wrap-modules A"), FSDP_ERR_INVALID,
                 "--exclude-wrap-modules is for --auto-wrap-policy SIZE_BASED_WRAP, not TRANS");
    ASSERT_ERROR(parse(&c, "--auto-wrap-policy none --force-leaf-modules A"), FSDP_ERR_INVALID,
                 "--force-leaf-modules is for --auto-wrap-policy SIZE_BASED_WRAP, not NO_WRAP");
}

TEST(options_of_one_optimizer_are_refused_for_another)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--optimizer adafactor --relative-step --warmup-init --task seq2seq"));
    ASSERT(c.lr == 0);
    ASSERT_ERROR(parse(&c, "--relative-step"), FSDP_ERR_INVALID,
                 "--relative-step is for --optimizer adafactor, not adamw");
    ASSERT_ERROR(parse(&c, "--optimizer sgd --clip-threshold 2"), FSDP_ERR_INVALID,
                 "--clip-threshold is for --optimizer adafactor, not sgd");
    ASSERT_ERROR(parse(&c, "--optimizer adafactor --eps 1"), FSDP_ERR_INVALID,
                 "--eps is for --optimizer adamw and adam, not adafactor");
    ASSERT_OK(parse(&c, "--optimizer adam --eps 1"));
    ASSERT_ERROR(parse(&c, "--optimizer adafactor --warmup-init"), FSDP_ERR_INVALID,
                 "--warmup-init needs --relative-step");
    ASSERT_ERROR(parse(&c, "--optimizer adafactor --relative-step --lr 1"), FSDP_ERR_INVALID,
                 "--lr contradicts --relative-step");
    ASSERT_ERROR(parse(&c, "--optimizer adafactor --decay-rate 0.5"), FSDP_ERR_INVALID,
                 "--decay-rate: '0.5' is not allowed; it takes a number from -1000 to 0");
}

/* An option that changes nothing with the other values is an error. A default in a file that lists
 * everything, and a value that asks for nothing, are not. */
TEST(options_that_change_nothing_are_refused)
{
    static const char *const cases[][2] = {
        {"--gamma 0.5 --lr-schedule linear", "--gamma is for --lr-schedule step"},
        {"--step-size 2 --lr-schedule constant", "--step-size is for --lr-schedule step"},
        {"--schedule-unit epoch --lr-schedule constant", "--schedule-unit needs another"},
        {"--no-lr-decay --lr-schedule cosine", "--lr-decay false contradicts"},
        {"--lr-decay --lr-schedule constant", "--lr-decay contradicts --lr-schedule constant"},
        {"--optimizer adafactor --relative-step --warmup-steps 3", "--warmup-steps contradicts"},
        {"--optimizer adafactor --relative-step --gamma 0.7", "--gamma contradicts"},
        {"--optimizer sgd --dampening 0.1", "--dampening needs --momentum"},
        {"--optimizer adafactor --eps2 0.1", "--adafactor-eps2 needs --scale-parameter"},
        {"--init-scale 8", "--init-scale is for float16"},
        {"--bf16 --growth-interval 5", "--growth-interval is for float16"},
        {"--growth-factor 3", "--growth-factor is for float16"},
        {"--backoff-factor 0.25", "--backoff-factor is for float16"},
        {"--max-eval-samples 5", "--max-validation-samples needs --validation-data"},
        {"--task span-corruption --max-target-length 9", "--max-target-length is for pairs"},
        {"--task span-corruption --task-prefix a", "--task-prefix is for pairs and prompts"},
        {"--task span-corruption --text-column a --target-column b",
         "--target-column is for pairs"},
        {"--task span-corruption --wikihow-cleaning", "--wikihow-cleaning is for pairs"},
        {"--task causal-lm --wikihow-cleaning", "--wikihow-cleaning is for --task seq2seq"},
        {"--task causal-lm --max-source-length 9", "--max-source-length is for --task seq2seq"},
        {"--task classification --max-output-length 9",
         "--max-target-length is for --task seq2seq"},
        {"--auto-wrap-policy NO_WRAP --blocks-per-unit 2", "--blocks-per-unit needs units"},
        {"--tutorial-loss --loss-reduction token-mean", "--tutorial-loss contradicts"},
        {"--data-weight 1", "--data-weight needs --mix-data"},
        {"--noise-density 0.2", "--noise-density is for --task span-corruption"},
    };
    static const char *const accepted[] = {
        "--gamma 0.5",
        "--warmup-steps 5 --lr-schedule constant",
        "--lr-decay --lr-schedule linear",
        "--init-scale 8 --fp16",
        "--init-scale 8 --reduce-dtype float16",
        "--momentum 0 --dampening 0 --max-eval-samples 0 --no-wikihow-cleaning --task-prefix=",
        "--task causal-lm --max-target-length 9 --generate-examples 1 --validation-data v",
        "--optimizer adamw --no-nesterov --no-relative-step",
    };
    fsdp_train_config c;
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++)
        ASSERT_ERROR(parse(&c, cases[i][0]), FSDP_ERR_INVALID, cases[i][1]);
    for (size_t i = 0; i < FSDP_LENGTH(accepted); i++)
        ASSERT_OK(parse(&c, accepted[i]));
}

static void write_config(fsdp_test *t, char *path, size_t room, const char *text)
{
    snprintf(path, room, "%s/run.yaml", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
}

TEST(a_file_may_list_defaults_that_change_nothing)
{
    NEEDS_LIBYAML();
    char path[600], line[700];
    fsdp_train_config c;
    write_config(t, path, sizeof path,
                 "lr-schedule: linear\ngamma: 0.70\ninit-scale: 65536\nbeta2: 0.999\n"
                 "optimizer: adafactor\nmax-eval-samples: 0\n");
    CHECK_HERE();
    snprintf(line, sizeof line, "--config %s", path);
    ASSERT_OK(parse(&c, line));
    write_config(t, path, sizeof path, "lr-schedule: linear\ngamma: 0.9\n");
    CHECK_HERE();
    ASSERT_ERROR(parse(&c, line), FSDP_ERR_INVALID,
                 "run.yaml:2: --gamma is for --lr-schedule step");
    write_config(t, path, sizeof path, "optimizer: adafactor\nbeta2: 0.95\n");
    CHECK_HERE();
    ASSERT_ERROR(parse(&c, line), FSDP_ERR_INVALID, "--beta2 is for --optimizer adamw");
}

/* Options that scripts give routinely get a note, and --print-config lists them. */
TEST(options_that_change_nothing_by_the_way_are_noted)
{
    static const char *const cases[][2] = {
        {"--validation-batch-size 8", "--validation-batch-size: needs --validation-data\n"},
        {"--no-decay bias --weight-decay 0", "--no-decay: needs --weight-decay above 0\n"},
        {"--gradient-accumulation-mode no-sync --no-reshard-after-backward",
         "--gradient-accumulation-mode, --reshard-after-backward: needs --gradient-accum"},
        {"--sharding-strategy NO_SHARD --backward-prefetch BACKWARD_POST",
         "--backward-prefetch: with --sharding-strategy NO_SHARD nothing is gathered\n"},
        {"--state-dict-type FULL_STATE_DICT", "--state-dict-type: without --save-steps"},
        {"--no-cast-forward-inputs", "--cast-forward-inputs: with --param-dtype float32 nothing"},
        {"--no-cast-forward-inputs --bf16", ""},
        {"--overwrite-output --no-save-model", "--overwrite-output: with --no-save-model"},
        {"--validation-batch-size 8 --validation-data v", ""},
        {"--gradient-accumulation-mode no-sync --gradient-accumulation-steps 2", ""},
        {"--state-dict-type FULL_STATE_DICT --save-steps 3", ""},
    };
    fsdp_train_config c;
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        ASSERT_OK(parse(&c, cases[i][0]));
        char *notes = fsdp_options_notes(kept), *printed = fsdp_options_print(kept, &c);
        ASSERT(notes && printed);
        if (*cases[i][1] ? strstr(notes, cases[i][1]) != notes : *notes != 0)
            fsdp_test_fail(t, __FILE__, __LINE__, "%s: '%s'", cases[i][0], notes);
        ASSERT_INT(strstr(printed, "# accepted, without effect here:") != NULL, *cases[i][1] != 0);
        fsdp_text_free(notes);
        fsdp_text_free(printed);
        CHECK_HERE();
    }
}

TEST(what_micro_steps_communicate_is_chosen_once)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, ""));
    ASSERT_INT(c.accumulation_mode, FSDP_ACCUMULATION_REDUCE);
    ASSERT_OK(parse(&c, "--gradient-accumulation-mode no-sync"));
    ASSERT_INT(c.accumulation_mode, FSDP_ACCUMULATION_NO_SYNC);
    ASSERT_OK(parse(&c, "--no-sync-each-batch"));
    ASSERT_INT(c.accumulation_mode, FSDP_ACCUMULATION_NO_SYNC);
    ASSERT_OK(parse(&c, "--sync_each_batch true"));
    ASSERT_INT(c.accumulation_mode, FSDP_ACCUMULATION_REDUCE);
    ASSERT_OK(parse(&c, "--gradient-accumulation-mode reduce-scatter "
                        "--sharding-strategy HYBRID_SHARD --replicas 2"));
    ASSERT_INT(c.accumulation_mode, FSDP_ACCUMULATION_REDUCE_SCATTER);
    ASSERT_ERROR(parse(&c, "--gradient-accumulation-mode reduce-scatter"), FSDP_ERR_INVALID,
                 "HYBRID_SHARD");
    ASSERT_ERROR(parse(&c, "--gradient-accumulation-mode no-sync --sync-each-batch"),
                 FSDP_ERR_INVALID, "no-sync contradicts --sync-each-batch true");
    ASSERT_ERROR(parse(&c, "--gradient-accumulation-mode reduce --no-sync-each-batch"),
                 FSDP_ERR_INVALID, "reduce contradicts --sync-each-batch false");
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
    ASSERT_OK(parse(&c, "--tutorial-loss"));
    ASSERT_INT(c.loss_reduction, FSDP_LOSS_MEAN_OF_MEANS);
}

TEST(replicas_divide_the_ranks)
{
    fsdp_train_config c;
    int size;
    ASSERT_OK(parse(&c, "--sharding-strategy HYBRID_SHARD"));
    ASSERT_OK(fsdp_train_config_shard_size(&c, 8, 4, &size));
    ASSERT_INT(size, 4);
    ASSERT_OK(parse(&c, "--replicas 4"));
    ASSERT_OK(fsdp_train_config_shard_size(&c, 8, 8, &size));
    ASSERT_INT(size, 2);
    ASSERT_ERROR(fsdp_train_config_shard_size(&c, 6, 6, &size), FSDP_ERR_INVALID,
                 "--replicas 4 does not divide the 6 ranks");
    ASSERT_OK(parse(&c, "--replicas 2 --shard-size 2"));
    ASSERT_OK(fsdp_train_config_shard_size(&c, 4, 4, &size));
    ASSERT_INT(size, 2);
    ASSERT_ERROR(fsdp_train_config_shard_size(&c, 8, 8, &size), FSDP_ERR_INVALID,
                 "--replicas 2 times --shard-size 2 are 4 ranks, but there are 8");
    ASSERT_ERROR(fsdp_train_config_shard_size(&c, 3, 3, &size), FSDP_ERR_INVALID,
                 "--shard-size 2 does not divide the 3 ranks");
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

static void check_dtypes(fsdp_test *t, const char *line, fsdp_dtype param, fsdp_dtype reduce,
                         fsdp_dtype buffer)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, line));
    ASSERT_INT(c.param_dtype, param);
    ASSERT_INT(c.reduce_dtype, reduce);
    ASSERT_INT(c.buffer_dtype, buffer);
    const fsdp_mp_policy mp = fsdp_train_mp_policy(&c);
    ASSERT_INT(mp.param_dtype, param);
    ASSERT_INT(mp.reduce_dtype, reduce);
    ASSERT_INT(mp.buffer_dtype, buffer);
    ASSERT(fsdp_train_needs_grad_scaler(&c) ==
           (param == FSDP_DTYPE_F16 || reduce == FSDP_DTYPE_F16));
}

TEST(precision_has_many_names)
{
    const fsdp_dtype f32 = FSDP_DTYPE_F32, f16 = FSDP_DTYPE_F16, bf16 = FSDP_DTYPE_BF16;
    check_dtypes(t, "", f32, f32, f32);
    check_dtypes(t, "--fp16", f16, f32, f32);
    check_dtypes(t, "--mixed_precision fp16 --fp16", f16, f32, f32);
    check_dtypes(t, "--precision 16-mixed --reduce-dtype fp16", f16, f16, f32);
    check_dtypes(t, "--mixed-precision bfSixteen", bf16, bf16, bf16);
    check_dtypes(t, "--mixed-precision fpSixteen", f16, f16, f16);
    check_dtypes(t, "--mixed-precision fp32_policy", f32, f32, f32);
    check_dtypes(t, "--mixed-precision grad_bf16", f32, bf16, f32);
    check_dtypes(t, "--mixed-precision grad_bf16 --bf16", bf16, bf16, f32);
    check_dtypes(t, "--no-bf16 --fp16 --buffer-dtype bf16", f16, f32, bf16);
    setenv("FSDP_MIXED_PRECISION", "bf16", 1); /* lower precedence than a flag */
    check_dtypes(t, "", bf16, f32, f32);
    check_dtypes(t, "--fp16", f16, f32, f32);
    check_dtypes(t, "--param-dtype float32", f32, f32, f32);
    setenv("FSDP_MIXED_PRECISION", "no", 1); /* as Accelerate exports it: counts as not given */
    setenv("FSDP_BF16", "true", 1);
    check_dtypes(t, "", bf16, f32, f32);
    unsetenv("FSDP_MIXED_PRECISION");
    unsetenv("FSDP_BF16");
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--mixed-precision bfSixteen"));
    ASSERT(fsdp_train_mp_policy(&c).no_cast_forward_inputs); /* FSDP1's default */
    ASSERT(fsdp_train_mp_policy(&c).cast_root_forward_inputs);
    ASSERT_OK(parse(&c, "--mixed-precision bfSixteen --no-cast-root-forward-inputs"));
    ASSERT(!fsdp_train_mp_policy(&c).cast_root_forward_inputs);
    ASSERT_OK(parse(&c, "--bf16 --no-cast-forward-inputs --cast-root-forward-inputs"));
    ASSERT(fsdp_train_mp_policy(&c).cast_root_forward_inputs);
    ASSERT(!fsdp_train_mp_policy(&c).set_output_dtype);
    ASSERT_OK(parse(&c, "--mixed-precision bfSixteen --cast-forward-inputs --output-dtype fp32"));
    ASSERT(!fsdp_train_mp_policy(&c).no_cast_forward_inputs);
    ASSERT(fsdp_train_mp_policy(&c).set_output_dtype);
    ASSERT_OK(parse(&c, "--bf16 --no-cast-forward-inputs --output-dtype bf16"));
    ASSERT(fsdp_train_mp_policy(&c).no_cast_forward_inputs);
    ASSERT_INT(fsdp_train_mp_policy(&c).output_dtype, FSDP_DTYPE_BF16);
    ASSERT_OK(parse(&c, "--fp16 --clip-value 0.5 --norm-type inf --init-scale 8"));
    ASSERT(!fsdp_train_mp_policy(&c).no_cast_forward_inputs);
    ASSERT_F32(c.clip_value, 0.5);
    ASSERT(isinf(c.grad_norm_type));
    ASSERT_F32(c.init_scale, 8);
    ASSERT_INT(c.growth_interval, 2000);
}

TEST(contradictions_name_both_options)
{
    static const struct {
        const char *line, *message;
        fsdp_status status;
    } cases[] = {
        {"--task translation", "causal-lm, classification, masked-lm or span-corruption",
         FSDP_ERR_INVALID},
        {"--task seq2seq --min-lr 0.1", "--min-lr 0.1 is above --lr 0.002", FSDP_ERR_INVALID},
        {"--task clm --target-column a", "--target-column needs --text-column", FSDP_ERR_INVALID},
        {"--document-token -2", "--document-token", FSDP_ERR_INVALID},
        {"--warmup-steps 2.5", "--warmup-steps 2.5 is neither a whole number of steps nor",
         FSDP_ERR_INVALID},
        {"--momentum 0.9", "--momentum is for --optimizer sgd", FSDP_ERR_INVALID},
        {"--optimizer sgd --beta2 0.9", "--beta2 is for --optimizer adamw", FSDP_ERR_INVALID},
        {"--nesterov", "--nesterov is for --optimizer sgd", FSDP_ERR_INVALID},
        {"--optimizer adam --dampening 0.1", "--dampening is for --optimizer sgd",
         FSDP_ERR_INVALID},
        {"--optimizer sgd --nesterov", "--nesterov needs --momentum", FSDP_ERR_INVALID},
        {"--reduce-dtype int64", "--reduce-dtype int64: it takes float32, bfloat16 or float16",
         FSDP_ERR_INVALID},
        {"--sharding-strategy HYBRID_SHARD --no-reshard-after-forward",
         "HYBRID_SHARD contradicts --reshard-after-forward false", FSDP_ERR_INVALID},
        {"--reshard-after-forward=-2", "it takes true, false or an integer from 0 to 1048576",
         FSDP_ERR_INVALID},
        {"--no-reshard-after-forward=2", "it takes true, false or an integer", FSDP_ERR_INVALID},
        {"--sharding-strategy FULL_SHARD --shard-size 2",
         "--shard-size is for --sharding-strategy HYBRID_SHARD, not FULL_SHARD", FSDP_ERR_INVALID},
        {"--sharding-strategy NO_SHARD --replicas 2",
         "--replicas is for --sharding-strategy HYBRID_SHARD, not NO_SHARD", FSDP_ERR_INVALID},
        {"--buffer-dtype double", "--buffer-dtype float64: it takes", FSDP_ERR_INVALID},
        {"--master-dtype fp16", "--master-dtype float16: must be float32 or bfloat16",
         FSDP_ERR_INVALID},
        {"--optimizer-state-dtype fp16",
         "--optimizer-state-dtype float16: must be float32 or bfloat16", FSDP_ERR_INVALID},
        {"--optimizer-state-dtype bf16 --optimizer sgd",
         "--optimizer-state-dtype is for --optimizer adamw and adam, not sgd", FSDP_ERR_INVALID},
        {"--mixed-precision bf16-true --optimizer-state-dtype float32",
         "--optimizer-state-dtype float32 contradicts --mixed-precision bf16-true",
         FSDP_ERR_INVALID},
        {"--precision 16-true", "16-true: master weights are float32 or bfloat16",
         FSDP_ERR_UNSUPPORTED},
        {"--bf16 --param-dtype float32", "--param-dtype float32 contradicts --bf16",
         FSDP_ERR_INVALID},
        {"--bf16 --fp16", "--bf16 contradicts --fp16", FSDP_ERR_INVALID},
        {"--fp16 --mixed-precision bf16", "--fp16 contradicts --mixed-precision bf16",
         FSDP_ERR_INVALID},
        {"--bf16 --mixed-precision no", "--bf16 contradicts --mixed-precision no",
         FSDP_ERR_INVALID},
        {"--mixed-precision bf16-true --master-dtype float32",
         "--master-dtype float32 contradicts --mixed-precision bf16-true", FSDP_ERR_INVALID},
        {"--mixed-precision grad_bf16 --reduce-dtype fp16",
         "--reduce-dtype float16 contradicts --mixed-precision grad_bf16", FSDP_ERR_INVALID},
        {"--mixed-precision bfSixteen --buffer-dtype float32",
         "--buffer-dtype float32 contradicts --mixed-precision bfSixteen", FSDP_ERR_INVALID},
        {"--internode-reduce-dtype fp16",
         "--internode-reduce-dtype float16: sums of gradients are sent to other hosts in float32",
         FSDP_ERR_INVALID},
        {"--output-dtype fp16", "--output-dtype float16: sums of losses", FSDP_ERR_INVALID},
        {"--output-dtype int32", "--output-dtype int32: it takes", FSDP_ERR_INVALID},
        {"--clip-value 1 --max-grad-norm 1", "--clip-value contradicts --max-grad-norm",
         FSDP_ERR_INVALID},
        {"--grad-norm-type 0", "it takes a number above 0, or inf", FSDP_ERR_INVALID},
        {"--grad-norm-type=-inf", "it takes a number above 0, or inf", FSDP_ERR_INVALID},
        {"--grad-norm-type nan", "it takes a number above 0, or inf", FSDP_ERR_INVALID},
        {"--max-grad-norm inf", "it takes a number of at least 0", FSDP_ERR_INVALID},
        {"--sharding-strategy FULL_SHARD --no-reshard-after-forward",
         "FULL_SHARD contradicts --reshard-after-forward false", FSDP_ERR_INVALID},
        {"--sharding-strategy SHARD_GRAD_OP --reshard-after-forward", "SHARD_GRAD_OP contradicts",
         FSDP_ERR_INVALID},
        {"--sharding-strategy NO_SHARD --reshard-after-forward",
         "NO_SHARD contradicts --reshard-after-forward true", FSDP_ERR_INVALID},
        {"--sharding-strategy NO_SHARD --reshard-after-forward 2",
         "NO_SHARD contradicts --reshard-after-forward 2", FSDP_ERR_INVALID},
        {"--run-validation", "--run-validation needs --validation-data", FSDP_ERR_INVALID},
        {"--evaluation-steps 5", "--evaluation-steps needs", FSDP_ERR_INVALID},
        {"--generate-examples 5", "--generate-examples needs", FSDP_ERR_INVALID},
        {"--device gpu", "--device: unknown device 'gpu' (known: cpu, meta, cuda, cuda:N",
         FSDP_ERR_INVALID},
        {"--device=", "--device: unknown device ''", FSDP_ERR_INVALID},
        {"--device cuda:", "the part after the colon is the number of a card", FSDP_ERR_INVALID},
        {"--use-cpu --device cuda", "--use-cpu contradicts --device cuda", FSDP_ERR_INVALID},
        {"--device cuda:1 --device-id 0", "--device-id 0 contradicts --device cuda:1",
         FSDP_ERR_INVALID},
        {"--device-id first", "--device-id: 'first' is not allowed", FSDP_ERR_INVALID},
        {"--dropout 1", "from 0 to below 1", FSDP_ERR_INVALID},
        {"--batch-size 0", "--batch-size: '0' is not allowed", FSDP_ERR_INVALID},
        {"--data=", "--data is empty", FSDP_ERR_INVALID},
        {"--save-strategy no --checkpoint-steps 5", "--save-strategy no contradicts --save-steps 5",
         FSDP_ERR_INVALID},
        {"--save-strategy epoch --save-step-interval 5",
         "--save-strategy epoch contradicts --save-steps 5", FSDP_ERR_INVALID},
        {"--save-total-limit 2", "--save-total-limit 2: without --save-steps or --save-strategy",
         FSDP_ERR_INVALID},
        {"--checkpoint-dir c", "--checkpoint-dir c: without --save-steps or --save-strategy",
         FSDP_ERR_INVALID},
        {"--save-steps 5 --checkpoint-dir=", "--checkpoint-dir is empty", FSDP_ERR_INVALID},
        {"--metrics d.csv", "--metrics d.csv and --data d.csv are the same file", FSDP_ERR_INVALID},
        {"--metrics ./d.csv", "--metrics ./d.csv and --data d.csv are the same", FSDP_ERR_INVALID},
        {"--profile v --validation-data v", "--profile v and --validation-data v are the same file",
         FSDP_ERR_INVALID},
        {"--metrics x --profile x", "--profile x and --metrics x are the same file",
         FSDP_ERR_INVALID},
        {"--metrics out", "--metrics out and --output out are the same file", FSDP_ERR_INVALID},
        {"--metrics ./out --output out/", "--metrics ./out and --output out/ are the same file",
         FSDP_ERR_INVALID},
        {"--metrics out/model.safetensors", "the model that is saved in --output has a file of",
         FSDP_ERR_INVALID},
        {"--profile ./out/tokenizer.json", "the model that is saved in --output has a file of",
         FSDP_ERR_INVALID},
        {"--checkpoint c", "--checkpoint c: needs --resume true", FSDP_ERR_INVALID},
        {"--lr 1 --min-lr 0.1 --lr-schedule step",
         "--min-lr 0.1: only --lr-schedule linear, cosine, polynomial and", FSDP_ERR_INVALID},
        {"--outptu x", "did you mean '--output'", FSDP_ERR_INVALID},
    };
    fsdp_train_config c;
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++)
        ASSERT_ERROR(parse(&c, cases[i].line), cases[i].status, cases[i].message);
    ASSERT_ERROR(parse_line(&c, "--data d --output o", ""), FSDP_ERR_INVALID, "--model is missing");
    ASSERT_ERROR(parse_line(&c, "--model m --output o", ""), FSDP_ERR_INVALID, "--data is missing");
    ASSERT_ERROR(parse_line(&c, "--model m --data d", ""), FSDP_ERR_INVALID, "--no-save-model");
    ASSERT_ERROR(parse_line(&c, "--model m --data d --no-save-model", "--save-steps 5"),
                 FSDP_ERR_INVALID, "--save-steps needs --checkpoint-dir");
    ASSERT_OK(parse(&c, "--metrics /dev/null --profile /dev/null"));
    ASSERT_OK(parse(&c, "--checkpoint-dir c --resume"));
    ASSERT_OK(parse_line(&c, "--model m --data d --no-save-model", ""));
    ASSERT(!c.output);
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
    char *help = fsdp_options_help(spec, 10000);
    ASSERT(help && strstr(help, "accepted, without effect here:") && strstr(help, "--no-cuda"));
    const bool names_default_units =
        strstr(help, "the model's blocks, and its embedding and head unless they share a weight");
    fsdp_free(help);
    ASSERT(names_default_units); /* as fsdp_model_shard() makes them */
}

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
