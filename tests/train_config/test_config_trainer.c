/* Options of transformers' Trainer and of its example scripts. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/train_config/config_trainer.h"
#include "tests/test.h"

static fsdp_options *kept;

/* Words are separated by one space; a + in a word is replaced by a space. */
static fsdp_status parse(fsdp_train_config *c, const char *line)
{
    static char words[1024];
    char *argv[64], *rest = words;
    int argc = 0;
    snprintf(words, sizeof words, "train --model m --data d.csv --output out %s", line);
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
                {"--eval_strategy no --do_eval", true, INT64_C(1) << 53},
                {"--do_eval False", false, 0},
                {"--do_eval", true, 0},
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
    ASSERT_ERROR(parse(&c, "--eval_strategy epoch --eval_steps 5 --validation_file v.csv"),
                 FSDP_ERR_INVALID, "--eval-strategy epoch contradicts --evaluation-steps 5");
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
                {"--group_by_length no", "--group_by_length", "without padding"},
                {"--do_train True", "--do_train False", "fsdp evaluate"},
                {"--save_safetensors", "--save_safetensors 0", "checkpoint convert"},
                {"--num_beams 1", "--num_beams 4", "--num-beams N is an option of 'fsdp evaluate'"},
                {"--deepspeed None", "--deepspeed ds.json", "ZeRO-3"},
                {"--lr_scheduler_kwargs {}", "--lr_scheduler_kwargs {\"power\":2}", "--lr-power"},
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
