/* Options of `fsdp train` as other tools spell them. */
#include "src/base/assert.h"
#include "tests/train_config/parse.h"

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
    ASSERT_OK(parse(&c, "--optim-state-dtype bf16 --bf16-stochastic-round"));
    ASSERT_INT(c.optimizer_state_dtype, FSDP_DTYPE_BF16);
    ASSERT(c.bf16_stochastic_round);
    ASSERT_OK(parse(&c, "--optim adamw_bnb_8bit"));
    ASSERT_INT(c.optimizer, FSDP_OPTIMIZER_ADAMW_8BIT);
    ASSERT_F32(c.weight_decay, 0.01);
    ASSERT_OK(parse(&c, "--optim adamw_8bit --beta2 0.95 --precision bf16-true"));
    ASSERT_INT(c.optimizer_state_dtype, FSDP_DTYPE_F32);
    ASSERT_OK(parse(&c, "--max-length 65 --frozen-prefixes a.,b"));
    ASSERT_INT(c.max_seq_length, 65);
    ASSERT_INT(c.frozen_prefixes.count, 2);
    ASSERT_STR(c.frozen_prefixes.items[1], "b");
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
