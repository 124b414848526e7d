/* Options of `fsdp train` that contradict each other, or change nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/base/io.h"
#include "tests/train_config/parse.h"

TEST(options_of_one_optimizer_are_refused_for_another)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--optimizer adafactor --relative-step --warmup-init --task seq2seq"));
    ASSERT(c.lr == 0);
    ASSERT_ERROR(parse(&c, "--relative-step"), FSDP_ERR_INVALID,
                 "--relative-step is for --optimizer adafactor, not adamw");
    ASSERT_ERROR(parse(&c, "--optimizer sgd --clip-threshold 2"), FSDP_ERR_INVALID,
                 "--clip-threshold is for --optimizer adafactor, not sgd");
    ASSERT_ERROR(
        parse(&c, "--optimizer adafactor --eps 1"), FSDP_ERR_INVALID,
        "--eps is for --optimizer adamw, adam, adamw_8bit, muon and schedule_free_adamw, not "
        "adafactor");
    ASSERT_OK(parse(&c, "--optimizer adam --eps 1"));
    ASSERT_ERROR(parse(&c, "--optimizer adafactor --warmup-init"), FSDP_ERR_INVALID,
                 "--warmup-init needs --relative-step");
    ASSERT_ERROR(parse(&c, "--optimizer adafactor --relative-step --lr 1"), FSDP_ERR_INVALID,
                 "--lr contradicts --relative-step");
    ASSERT_ERROR(parse(&c, "--optimizer adafactor --decay-rate 0.5"), FSDP_ERR_INVALID,
                 "--decay-rate: '0.5' is not allowed; it takes a number from -1000 to 0");
}

/* In the configuration, an alpha of 0 means that the option was not given. */
TEST(an_alpha_of_zero_is_refused)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--lora-r 4"));
    ASSERT_OK(parse(&c, "--lora-r 4 --lora-alpha -2"));
    ASSERT_OK(parse(&c, "--lora-alpha 0"));
    ASSERT_ERROR(parse(&c, "--lora-r 4 --lora-alpha 0"), FSDP_ERR_INVALID,
                 "--lora-alpha 0: the update is multiplied by alpha / r");
}

/* Environment variables are meant for several runs. */
TEST(options_of_sgd_in_the_environment_do_not_refuse_another_optimizer)
{
    fsdp_train_config c;
    setenv("FSDP_MOMENTUM", "0.9", 1);
    setenv("FSDP_NESTEROV", "true", 1);
    ASSERT_OK(parse(&c, ""));
    ASSERT_OK(parse(&c, "--optimizer sgd"));
    ASSERT(c.momentum == 0.9 && c.nesterov);
    setenv("FSDP_DAMPENING", "0.5", 1);
    ASSERT_OK(parse(&c, "--optimizer adam"));
    ASSERT_ERROR(parse(&c, "--optimizer sgd"), FSDP_ERR_INVALID,
                 "--nesterov needs --momentum and no --dampening (FSDP_MOMENTUM gives --momentum");
    ASSERT_OK(parse(&c, "--optimizer muon --momentum 0.8"));
    ASSERT_ERROR(parse(&c, "--optimizer muon --dampening 0.4"), FSDP_ERR_INVALID,
                 "--dampening is for --optimizer sgd");
    unsetenv("FSDP_MOMENTUM");
    unsetenv("FSDP_NESTEROV");
    unsetenv("FSDP_DAMPENING");
    ASSERT_ERROR(parse(&c, "--nesterov"), FSDP_ERR_INVALID, "--nesterov is for --optimizer sgd");
}

TEST(schedule_free_adamw_has_no_schedule)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--optim schedule_free_adamw --warmup-steps 5 --task causal-lm"));
    ASSERT_INT(c.optimizer, FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW);
    ASSERT_INT(c.lr_schedule, FSDP_LR_CONSTANT);
    ASSERT(c.warmup_steps == 5 && c.weight_decay == 0 && c.weight_lr_power == 2);
    /* transformers' schedule constant has no warmup, but the optimizer has. */
    ASSERT_OK(parse(&c, "--optim schedule_free_adamw --lr_scheduler_type constant "
                        "--warmup_steps 5 --task causal-lm"));
    ASSERT(c.warmup_steps == 5);
    ASSERT_ERROR(parse(&c, "--optimizer schedule_free_adamw --lr-schedule linear"),
                 FSDP_ERR_INVALID, "leave --lr-schedule, --min-lr and what belongs");
    ASSERT_ERROR(parse(&c, "--optimizer schedule_free_adamw --min-lr 1e-5"), FSDP_ERR_INVALID,
                 "leave --lr-schedule, --min-lr and what belongs");
    ASSERT_ERROR(parse(&c, "--schedule-free-r 1"), FSDP_ERR_INVALID,
                 "--schedule-free-r is for --optimizer schedule_free_adamw, not adamw");
    ASSERT_ERROR(parse(&c, "--optimizer muon --ns-coefficients 3,-4"), FSDP_ERR_INVALID,
                 "--ns-coefficients: three numbers are needed");
    ASSERT_ERROR(parse(&c, "--optimizer muon --ns-coefficients 3,-4,x"), FSDP_ERR_INVALID,
                 "--ns-coefficients: three numbers are needed");
    ASSERT_ERROR(parse(&c, "--ns-coefficients 3,-4,2"), FSDP_ERR_INVALID,
                 "--ns-coefficients is for --optimizer muon, not adamw");
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
        {"--optimizer adafactor --relative-step --warmup-ratio 0.1", "--warmup-ratio contradicts"},
        {"--optimizer adafactor --relative-step --min-lr-rate 0.1", "--min-lr-rate contradicts"},
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

TEST(contradictions_name_both_options)
{
    static const struct {
        const char *line, *message;
        fsdp_status status;
    } cases[] = {
        {"--task translation", "causal-lm, classification, masked-lm or span-corruption",
         FSDP_ERR_INVALID},
        {"--task seq2seq --min-lr 0.1",
         "--min-lr 0.1 is above the learning rate, which is 0.002 for seq2seq if --lr is not given",
         FSDP_ERR_INVALID},
        {"--task seq2seq --lr 0.01 --min-lr 0.1", "--min-lr 0.1 is above --lr 0.01",
         FSDP_ERR_INVALID},
        {"--task clm --lr-schedule polynomial --lr 5e-8",
         "--lr 5e-08 is below 1e-07, the last rate of --lr-schedule polynomial", FSDP_ERR_INVALID},
        {"--task clm --lr-schedule polynomial --optimizer adafactor --relative-step",
         "--lr-schedule contradicts --relative-step", FSDP_ERR_INVALID},
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
        {"--optimizer-state-dtype bf16 --optimizer adamw_8bit",
         "--optimizer-state-dtype is for --optimizer adamw and adam, not adamw_8bit",
         FSDP_ERR_INVALID},
        {"--bf16-stochastic-round", "nothing is: give --master-dtype bfloat16", FSDP_ERR_INVALID},
        {"--bf16-stochastic-round --master-dtype bf16 --optimizer sgd",
         "--bf16-stochastic-round is for --optimizer adamw, adam and adamw_8bit, not sgd",
         FSDP_ERR_INVALID},
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
