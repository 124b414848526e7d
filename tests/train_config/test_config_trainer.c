/* Options of transformers' Trainer and of its example scripts. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/train_config/config_effect.h"
#include "src/train_config/config_trainer.h"
#include "tests/test.h"

static fsdp_options *kept;

/* Parse `line`, and what every training needs, unless the line gives it by another name. Words are
 * separated by one space; a + in a word is replaced by a space. */
static fsdp_status parse(fsdp_train_config *c, const char *line)
{
    static char words[1024];
    char *argv[64], *rest = words;
    int argc = 0;
    snprintf(words, sizeof words, "train %s%s%s%s",
             strstr(line, "--model_name_or_path") ? "" : "--model m ",
             strstr(line, "--train_file") ? "" : "--data d.csv ",
             strstr(line, "--output_dir") ? "" : "--output out ", line);
    for (char *word; (word = strsep(&rest, " "));)
        if (*word)
            argv[argc++] = word;
    argv[argc] = NULL;
    for (int i = 0; i < argc; i++)
        for (char *plus; (plus = strchr(argv[i], '+'));)
            *plus = ' ';
    fsdp_options_destroy(kept);
    kept = NULL;
    return fsdp_options_parse(fsdp_train_options(), argc, argv, c, &kept);
}

/* Rounded as by TrainingArguments.get_warmup_steps() and set_initial_training_values(). */
TEST(shares_of_epochs_and_steps_are_rounded_up)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--num_train_epochs 3.0"));
    ASSERT_INT(fsdp_train_epochs_steps(c.epochs, 7), 21);
    ASSERT_OK(parse(&c, "--num_train_epochs 0.5"));
    ASSERT_INT(fsdp_train_epochs_steps(c.epochs, 7), 4);
    ASSERT_OK(parse(&c, "--epochs 2.25"));
    ASSERT_INT(fsdp_train_epochs_steps(c.epochs, 8), 18);
    ASSERT_INT(fsdp_train_epochs_steps(1e300, 1), INT64_C(1) << 53);
    ASSERT_ERROR(parse(&c, "--num_train_epochs 0"), FSDP_ERR_INVALID, "a number above 0");

    ASSERT_OK(parse(&c, "--warmup_ratio 0.1"));
    ASSERT_INT(fsdp_train_warmup_steps(&c, 95), 10);
    ASSERT_OK(parse(&c, "--warmup_steps 0.25"));
    ASSERT_INT(fsdp_train_warmup_steps(&c, 8), 2);
    ASSERT_OK(parse(&c, "--warmup_steps 1 --warmup_ratio 0.5"));
    ASSERT_INT(fsdp_train_warmup_steps(&c, 8), 1);
    ASSERT_OK(parse(&c, "--warmup_ratio 1"));
    ASSERT_INT(fsdp_train_warmup_steps(&c, 8), 8);
    ASSERT_OK(parse(&c, "--eval_steps 0.5 --logging_steps 0.1 --save_steps 500.0 "
                        "--validation_file v.csv"));
    fsdp_train_resolve_steps(&c, 9);
    ASSERT_INT(c.evaluation_steps, 5);
    ASSERT_INT(c.logging_steps, 1);
    ASSERT_INT(c.save_steps, 500);
    ASSERT_ERROR(parse(&c, "--save-steps 2.5"), FSDP_ERR_INVALID,
                 "--save-steps 2.5 is neither a whole number of steps nor, below 1, a fraction");
    ASSERT_ERROR(parse(&c, "--eval-step-interval 2.5"), FSDP_ERR_INVALID,
                 "--eval-step-interval 2.5 is neither a whole number of steps nor");
    ASSERT_ERROR(parse(&c, "--eval-step-interval 5"), FSDP_ERR_INVALID,
                 "--eval-step-interval needs --validation-data");
    ASSERT_ERROR(parse(&c, "--validation_file v.csv --eval_strategy steps --logging_steps 2.5"),
                 FSDP_ERR_INVALID, "--logging-steps 2.5 is neither a whole number of steps nor");
    ASSERT_ERROR(parse(&c, "--save-steps 1000000.5"), FSDP_ERR_INVALID,
                 "--save-steps 1000000.5 is");
    ASSERT_ERROR(parse(&c, "--eval_steps 2.5"), FSDP_ERR_INVALID,
                 "a fraction of all steps (--eval_steps gives --evaluation-steps)");
    ASSERT_OK(parse(&c, "--max_steps 5 --warmup_steps 60"));
    ASSERT_INT(fsdp_train_epochs_steps(c.epochs, 2), INT64_C(1) << 53); /* no other end */
    ASSERT_INT(fsdp_train_warmup_steps(&c, 5), 60);
}

TEST(schedules_have_transformers_names)
{
    static const struct {
        const char *name;
        int kind;
    } rows[] = {{"linear", FSDP_LR_LINEAR},
                {"cosine", FSDP_LR_COSINE},
                {"cosine_with_min_lr", FSDP_LR_COSINE},
                {"cosine_with_restarts", FSDP_LR_COSINE_RESTARTS},
                {"polynomial", FSDP_LR_POLYNOMIAL},
                {"constant", FSDP_LR_CONSTANT},
                {"constant_with_warmup", FSDP_LR_CONSTANT},
                {"inverse_sqrt", FSDP_LR_INVERSE_SQRT}};
    char line[64];
    fsdp_train_config c;
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        snprintf(line, sizeof line, "--lr_scheduler_type %s", rows[i].name);
        ASSERT_OK(parse(&c, line));
        ASSERT_INT(c.lr_schedule, rows[i].kind);
        ASSERT_INT(c.schedule_unit, FSDP_SCHEDULE_STEP);
        ASSERT_F32(c.min_lr, rows[i].kind == FSDP_LR_POLYNOMIAL ? 1e-7 : 0);
    }
    ASSERT_OK(parse(&c, "--lr-schedule polynomial --lr-end 0 --lr-power 2"));
    ASSERT_F32(c.min_lr, 0);
    ASSERT_ERROR(parse(&c, "--lr-schedule linear --num-cycles 2"), FSDP_ERR_INVALID,
                 "--num-cycles is for --lr-schedule cosine-with-restarts");
#ifdef FSDP_HAVE_YAML
    ASSERT_ERROR(parse(&c, "--lr-schedule linear --config {lr_power:+2}"), FSDP_ERR_INVALID,
                 "--lr-power is for --lr-schedule polynomial");
    ASSERT_OK(parse(&c, "--lr-schedule linear --config {lr_power:+1}"));
#endif
}

#ifdef FSDP_HAVE_YAML
TEST(lists_of_trainer_files_are_accepted)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--config {report_to:+[tensorboard,+csv],+include_for_metrics:+[]}"));
    ASSERT_OK(parse(&c, "--num-labels 3 --config {class_names:+[]}"));
    ASSERT(c.class_names.items == NULL && c.class_names.count == 0);
}
#endif

TEST(strategies_say_when_to_validate)
{
    static const struct {
        const char *line;
        bool validates;
        int64_t every;
    } rows[] = {{"--eval_strategy no", false, 0},
                {"--do_train --eval_strategy no --do_eval", true, INT64_C(1) << 53},
                {"--do_eval False", false, 0},
                {"--do_train --do_eval", true, 0},
                {"--evaluation_strategy epoch", true, 0},
                {"--eval_strategy steps", true, 500},
                {"--eval_strategy steps --logging_steps 7", true, 7},
                {"--eval_strategy steps --eval_steps 3", true, 3}};
    char line[128];
    fsdp_train_config c;
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        snprintf(line, sizeof line, "--validation_file v.csv %s", rows[i].line);
        ASSERT_OK(parse(&c, line));
        ASSERT_INT(c.run_validation, rows[i].validates);
        ASSERT_INT(c.evaluation_steps, rows[i].every);
    }
    ASSERT_OK(parse(&c, "--logging_strategy epoch"));
    ASSERT_INT(c.logging_steps, INT_MAX);
    ASSERT_ERROR(parse(&c, "--eval_strategy epoch"), FSDP_ERR_INVALID, "--validation-data");
    ASSERT_ERROR(parse(&c, "--eval_strategy epoch --evaluation-steps 5 --validation_file v.csv"),
                 FSDP_ERR_INVALID, "--eval-strategy epoch contradicts --evaluation-steps 5");
    ASSERT_ERROR(parse(&c, "--eval_strategy epoch --eval-step-interval 5 --validation_file v.csv"),
                 FSDP_ERR_INVALID, "--eval-strategy epoch contradicts --eval-step-interval 5");
    ASSERT_ERROR(
        parse(&c, "--eval_strategy no --do_eval --eval-step-interval 5 --validation_file v.csv"),
        FSDP_ERR_INVALID, "--eval-strategy no contradicts --eval-step-interval 5");
    ASSERT_ERROR(parse(&c, "--eval_strategy no --eval-step-interval 5 --validation_file v.csv"),
                 FSDP_ERR_INVALID, "--eval-strategy no contradicts --eval-step-interval 5");
    ASSERT_ERROR(parse(&c, "--evaluation-steps 3 --eval-step-interval 5 --validation_file v.csv"),
                 FSDP_ERR_INVALID, "--eval-step-interval 5 contradicts --evaluation-steps 3");
    ASSERT_OK(parse(&c, "--eval_strategy steps --eval-step-interval 5 --validation_file v.csv"));
    ASSERT_INT(c.evaluation_steps, 5);
}

/* TrainingArguments has 500 steps by default, and uses them with the strategy steps only; and it
 * has Adam's constants beside every optimizer. */
TEST(what_transformers_ignores_has_no_effect)
{
    static const struct {
        const char *line, *option;
    } rows[] = {
        {"--save_strategy epoch --save_steps 500", "save-steps"},
        {"--save-strategy no --save-steps 500", "save-steps"},
        {"--eval_strategy epoch --eval_steps 500 --validation_file v.csv", "evaluation-steps"},
        {"--evaluation_strategy no --eval_steps 500 --validation_file v.csv", "evaluation-steps"},
        {"--eval_strategy no --eval_steps 500", "evaluation-steps"},
        {"--do_train --do_eval --eval_strategy no --eval_steps 5 --validation_file v.csv",
         "evaluation-steps"},
        {"--logging_strategy epoch --logging_steps 500", "logging-steps"},
        {"--logging_strategy no --logging_steps 5", "logging-steps"},
        {"--save_strategy no --save_total_limit 2", "save-total-limit"}};
    fsdp_train_config c;
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        ASSERT_OK(parse(&c, rows[i].line));
        ASSERT(fsdp_train_option_without_effect(&c, kept, rows[i].option));
        ASSERT_INT(c.save_steps, 0);
        ASSERT_INT(c.save_total_limit, 0);
        ASSERT_INT(c.logging_steps, strstr(rows[i].line, "logging") ? INT_MAX : 10);
        const bool at_the_end = strstr(rows[i].line, "--do_eval") != NULL;
        ASSERT_INT(c.evaluation_steps, at_the_end ? INT64_C(1) << 53 : 0);
        ASSERT_INT(c.run_validation, at_the_end || strstr(rows[i].line, "--eval_strategy epoch"));
    }
    ASSERT_OK(parse(&c, "--optim adamw_torch --adam_beta1 0.8"));
    ASSERT(!fsdp_train_option_without_effect(&c, kept, "beta1"));
    ASSERT_ERROR(parse(&c, "--optim sgd --beta1 0.8"), FSDP_ERR_INVALID,
                 "is for --optimizer adamw");
    ASSERT_OK(parse(&c, "--save_strategy steps --save_steps 5 --save_total_limit 2"));
    ASSERT(!fsdp_train_option_without_effect(&c, kept, "save-steps"));
    ASSERT(!fsdp_train_option_without_effect(&c, kept, "save-total-limit"));
    ASSERT_INT(c.save_steps, 5);
}

/* The option with precedence must have been meant. */
TEST(steps_of_a_source_with_precedence_contradict_the_strategy)
{
    fsdp_train_config c;
    NEEDS_LIBYAML();
    ASSERT_ERROR(parse(&c, "--config {save_strategy:+epoch} --save_steps 5"), FSDP_ERR_INVALID,
                 "--save-strategy epoch contradicts --save-steps 5");
    ASSERT_OK(parse(&c, "--config {save_steps:+5} --save_strategy epoch"));
    ASSERT_INT(c.save_steps, 0);
    ASSERT_OK(parse(&c, "--config {checkpoint_steps:+5} --save_strategy epoch"));
    ASSERT_OK(parse(&c, "--config {save_steps:+5,+save_strategy:+epoch}"));
    ASSERT_ERROR(parse(&c, "--config {checkpoint_steps:+5,+save_strategy:+epoch}"),
                 FSDP_ERR_INVALID, "--save-strategy epoch contradicts --save-steps 5");
    ASSERT_OK(parse(&c, "--config {save_strategy:+epoch}"));
    setenv("FSDP_SAVE_STEPS", "7", 1);
    setenv("FSDP_SAVE_STRATEGY", "epoch", 1);
    fsdp_status status = parse(&c, "--lr 1");
    unsetenv("FSDP_SAVE_STEPS");
    unsetenv("FSDP_SAVE_STRATEGY");
    ASSERT_OK(status);
    ASSERT_INT(c.save_steps, 0);
    ASSERT_INT(c.save_strategy, FSDP_SAVE_EPOCH);
}

TEST(words_of_fsdp_are_strategies)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--fsdp shard_grad_op+auto_wrap+offload"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_SHARD_GRAD_OP);
    ASSERT(!c.reshard_after_forward && c.cpu_offload);
    ASSERT_OK(parse(&c, "--fsdp"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_FULL_SHARD);
    ASSERT_OK(parse(&c, "--fsdp HYBRID_SHARD,auto_wrap"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_HYBRID_SHARD);
    ASSERT(!c.cpu_offload);
    ASSERT_ERROR(parse(&c, "--fsdp full_shrad"), FSDP_ERR_INVALID,
                 "--fsdp full_shrad: 'full_shrad' is none of full_shard");
    ASSERT_ERROR(parse(&c, "--fsdp full_shard --sharding-strategy NO_SHARD"), FSDP_ERR_INVALID,
                 "--fsdp full_shard contradicts --sharding-strategy NO_SHARD");
    /* full_shard is also the word that only turns FSDP on. */
    ASSERT_OK(parse(&c, "--fsdp full_shard --reshard-after-forward false"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_SHARD_GRAD_OP);
    ASSERT_OK(parse(&c, "--fsdp full_shard --shard-size 2"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_HYBRID_SHARD);
    ASSERT_OK(parse(&c, "--fsdp shard_grad_op --reshard-after-forward false"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_SHARD_GRAD_OP);
    ASSERT_OK(parse(&c, "--fsdp hybrid_shard --shard-size 2"));
    ASSERT_INT(c.sharding_strategy, FSDP_SHARDING_HYBRID_SHARD);
    ASSERT_ERROR(parse(&c, "--fsdp shard_grad_op --reshard-after-forward true"), FSDP_ERR_INVALID,
                 "--fsdp shard_grad_op contradicts --reshard-after-forward");
    ASSERT_ERROR(parse(&c, "--fsdp no_shard --reshard-after-forward true"), FSDP_ERR_INVALID,
                 "--fsdp no_shard contradicts --reshard-after-forward");
    ASSERT_ERROR(parse(&c, "--fsdp no_shard --shard-size 2"), FSDP_ERR_INVALID,
                 "--fsdp no_shard contradicts --shard-size");
    ASSERT_ERROR(parse(&c, "--fsdp shard_grad_op --replicas 2"), FSDP_ERR_INVALID,
                 "--fsdp shard_grad_op contradicts --replicas");
}

#ifdef FSDP_HAVE_YAML
/* Indented with tabs, as JSON may be. */
TEST(fsdp_config_is_read_from_json)
{
    fsdp_train_config c;
    char line[512];
    char path[256];
    snprintf(path, sizeof path, "%s/fsdp.json", fsdp_test_dir(t));
    FILE *file = fopen(path, "w");
    ASSERT(file);
    fputs("{\n\t\"fsdp_version\": 2,\n\t\"backward_prefetch\": \"backward_post\",\n"
          "\t\"transformer_layer_cls_to_wrap\": [\"T5Block\", \"T5Stack\"],\n\t\"xla\": false\n}\n",
          file);
    fclose(file);
    snprintf(line, sizeof line, "--fsdp_config %s", path);
    ASSERT_OK(parse(&c, line));
    ASSERT_INT((int)c.transformer_layer_cls_to_wrap.count, 2);
    ASSERT_INT(c.backward_prefetch, FSDP_BACKWARD_POST);
    ASSERT_OK(parse(&c, "--fsdp_config {\"min_num_params\":+7}"));
    ASSERT_INT(c.min_num_params, 7);
    ASSERT_ERROR(parse(&c, "--fsdp_config {\"xla\":+true}"), FSDP_ERR_UNSUPPORTED,
                 "xla: true is not supported");
}
#endif

/* A value that asks for nothing is accepted; any other is refused with what to use instead. */
TEST(what_is_not_there_is_refused_with_what_to_use)
{
    static const struct {
        const char *nothing, *something, *message;
    } rows[] = {{"--push_to_hub False", "--push_to_hub", "hf upload"},
                {"--no-push-to-hub", "--push_to_hub True", "hf upload"},
                {"--do_train True", "--do_train False", "fsdp evaluate"},
                {"--save_safetensors", "--save_safetensors 0", "checkpoint convert"},
                {"--save_strategy no", "--save_strategy best", "the best model is always saved"},
                {"--task_name None", "--task_name mrpc", "--label-column"},
                {"--test_file None", "--test_file t.csv", "fsdp evaluate"},
                {"--do_predict False", "--do_predict", "fsdp evaluate"},
                {"--optim_args None", "--optim_args momentum=0.9", "--momentum"},
                {"--ignore_pad_token_for_loss", "--ignore_pad_token_for_loss False", "not padded"},
                {"--ddp_backend gloo", NULL, NULL},
                {"--ddp_find_unused_parameters True", NULL, NULL},
                {"--torch_compile", NULL, NULL},
                {"--tf32 True", NULL, NULL},
                {"--group_by_length", NULL, NULL},
                {"--pad_to_max_length", NULL, NULL},
                {"--deepspeed None", "--deepspeed ds.json", "ZeRO-3"},
                {"--lr_scheduler_kwargs {}", "--lr_scheduler_kwargs x.json", "--lr-power"},
                {"--model_revision main", "--model_revision v2", "snapshots/REVISION"},
                {"--tpu false", "--tpu", "there is no device for TPUs"},
                {"--overwrite_cache", NULL, NULL},
                {"--load_best_model_at_end True", NULL, NULL},
                {"--debug underflow_overflow", NULL, NULL},
                {"--ddp_timeout 1800", NULL, NULL}};
    fsdp_train_config c;
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        ASSERT_OK(parse(&c, rows[i].nothing));
        if (rows[i].something)
            ASSERT_ERROR(parse(&c, rows[i].something), FSDP_ERR_UNSUPPORTED, rows[i].message);
    }
}

TEST(devices_are_the_ranks_that_are_started)
{
    ASSERT_OK(fsdp_train_check_devices("auto", 3));
    ASSERT_OK(fsdp_train_check_devices("-1", 3));
    ASSERT_OK(fsdp_train_check_devices("3", 3));
    ASSERT_ERROR(fsdp_train_check_devices("3", 1), FSDP_ERR_INVALID,
                 "--devices 3: 1 rank is started; 'fsdp launch -n 3 train ...' starts 3");
    ASSERT_ERROR(fsdp_train_check_devices("0", 1), FSDP_ERR_INVALID, "a number of ranks, or auto");
    ASSERT_ERROR(fsdp_train_check_devices("2x", 2), FSDP_ERR_INVALID, "a number of ranks, or auto");
    ASSERT_ERROR(fsdp_train_check_devices("99999999999999999999", 1), FSDP_ERR_INVALID,
                 "--devices 99999999999999999999: must be a number of ranks");
}

/* ---- flags that act ---- */

/* Return the text of an option's value; the caller frees it. */
static char *text_of(const fsdp_train_config *c, const char *name)
{
    const fsdp_options_spec *spec = fsdp_train_options();
    for (size_t i = 0; i < spec->count; i++)
        if (strcmp(spec->table[i].name, name) == 0)
            return fsdp_option_text(&spec->table[i], c);
    return NULL;
}

/* Flags of HF's example scripts, and the option of this project that they set. */
static const struct {
    const char *line, *option, *value;
} acting[] = {
    {"--model_name_or_path t5-small", "model", "t5-small"},
    {"--tokenizer_name tok", "tokenizer", "tok"},
    {"--train_file t.csv", "data", "t.csv"},
    {"--validation_file v.csv", "validation-data", "v.csv"},
    {"--output_dir dir", "output", "dir"},
    {"--overwrite_output_dir", "overwrite-output", "true"},
    {"--source_prefix translate:", "task-prefix", "translate:"},
    {"--text_column article", "text-column", "article"},
    {"--summary_column highlights", "target-column", "highlights"},
    {"--label_column_name y --task classification", "label-column", "y"},
    {"--source_lang en --target_lang ro", "target-lang", "ro"},
    {"--max_source_length 1024", "max-source-length", "1024"},
    {"--max_target_length 128", "max-target-length", "128"},
    {"--val_max_target_length 32", "val-max-target-length", "32"},
    {"--block_size 64", "max-seq-length", "64"},
    {"--max_seq_length 64", "max-seq-length", "64"},
    {"--max_length 64", "max-seq-length", "64"},
    {"--mlm_probability 0.3 --task masked-lm", "noise-density", "0.3"},
    {"--max_train_samples 9", "max-train-samples", "9"},
    {"--max_eval_samples 9 --validation_file v.csv", "max-validation-samples", "9"},
    {"--num_beams 4 --predict_with_generate --validation_file v.csv", "generation-num-beams", "4"},
    {"--num_beams 1", "generation-num-beams", "1"},
    {"--do_regression --task classification", "problem-type", "regression"},
    {"--per_device_train_batch_size 16", "batch-size", "16"},
    {"--per_gpu_train_batch_size 16", "batch-size", "16"},
    {"--per_device_eval_batch_size 16 --validation_file v.csv", "validation-batch-size", "16"},
    {"--gradient_accumulation_steps 4", "gradient-accumulation-steps", "4"},
    {"--num_train_epochs 3.0", "epochs", "3"},
    {"--max_epochs 3", "epochs", "3"},
    {"--max_steps 10", "max-steps", "10"},
    {"--learning_rate 5e-5", "lr", "5e-05"},
    {"--weight_decay 0.1", "weight-decay", "0.1"},
    {"--adam_beta1 0.8", "beta1", "0.8"},
    {"--adam_beta2 0.95", "beta2", "0.95"},
    {"--adam_epsilon 1e-6", "eps", "1e-06"},
    {"--max_grad_norm 1.0", "max-grad-norm", "1"},
    {"--optim adamw_torch", "optimizer", "adamw"},
    {"--optim adamw_torch_fused", "optimizer", "adamw"},
    {"--optim adamw_hf", "optimizer", "adamw"},
    {"--optim paged_adamw_32bit", "optimizer", "adamw"},
    {"--optim adafactor", "optimizer", "adafactor"},
    {"--optim sgd", "optimizer", "sgd"},
    {"--lr_scheduler_type cosine", "lr-schedule", "cosine"},
    {"--lr_scheduler_type constant_with_warmup --warmup_steps 2", "lr-schedule", "constant"},
    {"--warmup_ratio 0.1", "warmup-ratio", "0.1"},
    {"--warmup_steps 0.1", "warmup-steps", "0.1"},
    {"--warmup_steps 100", "warmup-steps", "100"},
    {"--label_smoothing_factor 0.1", "label-smoothing", "0.1"},
    {"--seed 42", "seed", "42"},
    {"--data_seed 7", "data-seed", "7"},
    {"--train_sampling_strategy sequential", "shuffle", "false"},
    {"--train_sampling_strategy group_by_length", "shuffle", "true"},
    {"--dataloader_num_workers 4", "num-workers", "4"},
    {"--dataloader_drop_last", "drop-last", "true"},
    {"--bf16", "param-dtype", "bfloat16"},
    {"--fp16 True", "param-dtype", "float16"},
    {"--gradient_checkpointing", "activation-checkpointing", "true"},
    {"--fsdp full_shard+auto_wrap+offload", "sharding-strategy", "FULL_SHARD"},
    {"--fsdp full_shard+auto_wrap+offload", "cpu-offload", "true"},
    {"--fsdp shard_grad_op", "sharding-strategy", "SHARD_GRAD_OP"},
    {"--fsdp_transformer_layer_cls_to_wrap T5Block", "transformer-layer-cls-to-wrap", "T5Block"},
    {"--fsdp_min_num_params 2000", "auto-wrap-policy", "SIZE_BASED_WRAP"},
    {"--eval_strategy steps --eval_steps 10 --validation_file v.csv", "evaluation-steps", "10"},
    {"--evaluation_strategy epoch --validation_file v.csv", "eval-strategy", "epoch"},
    {"--eval_steps 10 --validation_file v.csv", "eval-strategy", "steps"},
    {"--save_strategy epoch", "save-strategy", "epoch"},
    {"--save_strategy steps", "save-steps", "500"},
    {"--save_steps 10", "save-strategy", "steps"},
    {"--save_steps 10 --save_total_limit 2", "save-total-limit", "2"},
    {"--logging_steps 5", "logging-steps", "5"},
    {"--load_best_model_at_end False --validation_file v.csv", "load-best-model-at-end", "false"},
    {"--metric_for_best_model eval_loss", "metric-for-best-model", "loss"},
    {"--metric_for_best_model eval_rouge1 --greater_is_better True --predict_with_generate "
     "--validation_file v.csv",
     "metric-for-best-model", "rouge1"},
    {"--report_to tensorboard", "report-to", "tensorboard"},
    {"--logging_dir logs --report_to csv", "logging-dir", "logs"},
    {"--resume_from_checkpoint True", "resume", "auto"},
    {"--resume_from_checkpoint out/checkpoint-5", "resume", "out/checkpoint-5"},
    {"--no_cuda", "device", "cpu"},
    {"--num_train_epochs 3.0 --max_steps 10", "epochs", "inf"},
    {"--epochs 3 --max_steps 10", "epochs", "3"},
    {"--lr_scheduler_type constant --warmup_steps 5", "warmup-steps", "0"},
    {"--lr_scheduler_type constant_with_warmup --warmup_steps 5", "warmup-steps", "5"},
    {"--lr-schedule constant --warmup_steps 5", "warmup-steps", "5"},
    {"--report_to tensorboard csv --logging_dir logs", "report-to", "tensorboard,csv"},
    {"--fsdp shard_grad_op auto_wrap --bf16", "sharding-strategy", "SHARD_GRAD_OP"},
    {"--fsdp shard_grad_op auto_wrap --bf16", "fsdp", "shard_grad_op auto_wrap"},
#ifdef FSDP_HAVE_YAML
    {"--lr_scheduler_type cosine_with_min_lr --lr_scheduler_kwargs {\"min_lr\":+0.00001}", "min-lr",
     "1e-05"},
    {"--lr_scheduler_type=cosine --learning_rate 0.5 --lr_scheduler_kwargs={\"min_lr_rate\":+0.1}",
     "min-lr", "0.05"},
    {"--lr_scheduler_type polynomial --lr_scheduler_kwargs {\"power\":+2,+\"lr_end\":+0}",
     "lr-power", "2"},
    {"--lr_scheduler_type cosine_with_restarts --lr_scheduler_kwargs {\"num_cycles\":+3}",
     "num-cycles", "3"},
    {"--lr_scheduler_kwargs {}", "min-lr", "0"},
    {"--fsdp_config {\"fsdp_min_num_params\":+9}", "min-num-params", "9"},
    {"--fsdp_config {\"min_num_params\":+9,+\"limit_all_gathers\":+false}", "limit-all-gathers",
     "false"},
    {"--fsdp_config {\"backward_prefetch\":+\"backward_post\"}", "backward-prefetch",
     "BACKWARD_POST"},
    {"--fsdp_config {\"fsdp_transformer_layer_cls_to_wrap\":+[\"T5Block\"]}",
     "transformer-layer-cls-to-wrap", "T5Block"},
    {"--fsdp_config {\"activation_checkpointing\":+true}", "activation-checkpointing", "true"},
#endif
};

TEST(flags_of_the_example_scripts_mean_what_they_mean_there)
{
    for (size_t i = 0; i < FSDP_LENGTH(acting); i++) {
        fsdp_train_config c;
        char line[300];
        snprintf(line, sizeof line, "%s%s",
                 strstr(acting[i].line, "--task ") ? "" : "--task seq2seq ", acting[i].line);
        if (strstr(line, "seq_length") || strstr(line, "max_length") || strstr(line, "block_size"))
            snprintf(line, sizeof line, "--task causal-lm %s", acting[i].line);
        if (parse(&c, line) != FSDP_OK)
            fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s", line, fsdp_last_error());
        CHECK_HERE();
        char *text = text_of(&c, acting[i].option);
        if (!text || strcmp(text, acting[i].value) != 0)
            fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s is '%s', not '%s'", line,
                           acting[i].option, text ? text : "(none)", acting[i].value);
        fsdp_text_free(text);
    }
}

TEST(spellings_of_one_thing_contradict_each_other)
{
    static const char *const rows[][2] = {
        {"--train_sampling_strategy sequential --shuffle", "contradicts --shuffle"},
        {"--do_regression --problem-type single-label", "contradicts --problem-type"},
        {"--min-lr-rate 0.1 --min-lr 1e-9 --lr-schedule cosine", "contradicts --min-lr"},
        {"--min-lr-rate 0.1 --lr-schedule constant",
         "--min-lr-rate 0.1: only --lr-schedule linear"},
        {"--epochs inf", "--epochs inf needs --max-steps"},
        {"--num_beams 4", "--generation-num-beams needs --predict-with-generate"}};
    fsdp_train_config c;
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++)
        ASSERT_ERROR(parse(&c, rows[i][0]), FSDP_ERR_INVALID, rows[i][1]);
}
