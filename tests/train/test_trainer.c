/* fsdp_train_run() on ranks that are threads: the same numbers at any world size, and a failure of
 * one rank is a failure on all. tests/cli/test_train.sh tests the command. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/comm/comm.h"
#include "src/train/trainer.h"
#include "tests/test.h"
#include "tests/train/small_job.h"

enum {
    PATH = JOB_PATH
};

/* `words`, with fewer steps under a sanitizer: one block of 12 rows and one of a single row. */
static const char *fewer(const char *words, char line[PATH])
{
    snprintf(line, PATH, "%s%s", words,
             UNDER_SANITIZER ? " --max-train-samples 13 --epochs 1" : "");
    return line;
}

static void check_same_in(fsdp_test *t, const char *dir, const char *ranks, const char *alone)
{
    char line[PATH];
    fsdp_train_result many, one = {0};
    ASSERT_OK(job_train(t->group, dir, fewer(ranks, line), &many));
    if (t->rank == 0)
        job_train_alone(t, dir, fewer(alone, line), &one);
    CHECK_HERE();
    ASSERT_OK(fsdp_broadcast(t->group, &one, sizeof one, 0));
    ASSERT_INT(many.steps, one.steps);
    ASSERT(many.first_loss == one.first_loss);
    ASSERT(many.train_loss == one.train_loss);
    ASSERT(many.best_validation_loss == one.best_validation_loss);
    ASSERT(many.measures.accuracy == one.measures.accuracy);
    ASSERT(many.measures.f1 == one.measures.f1);
    ASSERT(many.measures.mse == one.measures.mse);
    ASSERT(many.measures.spearmanr == one.measures.spearmanr);
}

static void check_same(fsdp_test *t, const char *ranks, const char *alone)
{
    char dir[PATH];
    job_make_files(t, dir);
    CHECK_HERE();
    check_same_in(t, dir, ranks, alone);
}

/* Blocks of 12 rows: the last one of an epoch has one row, so three leaves are empty. */
TEST_RANKS(four_ranks_give_the_bits_of_one_with_four_micro_steps, 4)
{
    check_same(t, "--no-save-model", "--no-save-model --gradient-accumulation-steps 4");
}

TEST_RANKS(two_ranks_with_two_micro_steps_give_them_too, 2)
{
    check_same(t, "--no-save-model --gradient-accumulation-steps 2 --bf16 --max-grad-norm 0.5",
               "--no-save-model --gradient-accumulation-steps 4 --bf16 --max-grad-norm 0.5");
}

TEST_RANKS(sharding_strategies_give_the_same_bits, 3)
{
    static const char *const words[] = {"--no-save-model --sharding-strategy FULL_SHARD",
                                        "--no-save-model --sharding-strategy SHARD_GRAD_OP",
                                        "--no-save-model --sharding-strategy NO_SHARD"};
    fsdp_train_result result[3];
    char dir[PATH], line[PATH];
    job_make_files(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < 3; i++) {
        ASSERT_OK(job_train(t->group, dir, fewer(words[i], line), &result[i]));
        ASSERT(result[i].train_loss == result[0].train_loss);
        ASSERT(result[i].validation_loss == result[0].validation_loss);
    }
}

/* The numbers do not depend on when parameters are gathered. */
TEST_RANKS(prefetch_changes_no_bit, 2)
{
    static const char *const words[] = {
        "--no-save-model --bf16",
        "--no-save-model --bf16 --backward-prefetch BACKWARD_POST --forward-prefetch",
        "--no-save-model --bf16 --backward-prefetch NO_PREFETCH --no-forward-prefetch",
        "--no-save-model --bf16 --no-limit-all-gathers"};
    fsdp_train_result result[4];
    char dir[PATH], line[PATH];
    job_make_files(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < 4; i++) {
        ASSERT_OK(job_train(t->group, dir, fewer(words[i], line), &result[i]));
        ASSERT(result[i].train_loss == result[0].train_loss);
        ASSERT(result[i].validation_loss == result[0].validation_loss);
    }
}

static void train_for(fsdp_test *t, fsdp_group *group, const char *dir, const char *more)
{
    char words[PATH + 300];
    fsdp_train_result result;
    snprintf(words, sizeof words,
             "--no-save-model --lr 0 --dropout 0 --metrics %s/m.jsonl --overwrite-output %s", dir,
             more);
    ASSERT_OK(job_train(group, dir, words, &result));
}

/* With a learning rate of 0 nothing changes, so one rank's single batches are the leaves of one
 * step of all ranks. For a step of one leaf both reductions are the same, including the gradient.
 */
TEST_RANKS(mean_of_means_is_the_mean_of_the_batches_means, 2)
{
    enum {
        LEAVES = 6
    };
    char dir[PATH];
    double loss[LEAVES], mean[1], norm[2][1];
    job_make_files(t, dir);
    CHECK_HERE();
    if (t->rank == 0) {
        fsdp_group *one;
        ASSERT_OK(fsdp_init_process_group(NULL, &one));
        train_for(t, one, dir, "--max-steps 6");
        CHECK_HERE();
        job_read_steps(t, dir, "loss", loss, LEAVES);
        CHECK_HERE();
        job_read_steps(t, dir, "grad_norm", norm[0], 1);
        CHECK_HERE();
        train_for(t, one, dir, "--max-steps 1 --loss-reduction mean-of-means");
        CHECK_HERE();
        job_read_steps(t, dir, "grad_norm", norm[1], 1);
        CHECK_HERE();
        fsdp_destroy_process_group(one);
        ASSERT_NEAR(norm[1][0], norm[0][0], 1e-5 * norm[0][0]);
    }
    ASSERT_OK(fsdp_barrier(t->group));
    train_for(t, t->group, dir,
              "--max-steps 1 --gradient-accumulation-steps 3 --loss-reduction mean-of-means");
    CHECK_HERE();
    if (t->rank != 0)
        return;
    job_read_steps(t, dir, "loss", mean, 1);
    CHECK_HERE();
    double sum = 0.0;
    for (int i = 0; i < LEAVES; i++)
        sum += loss[i];
    ASSERT_NEAR(mean[0], sum / LEAVES, 1e-5);
    ASSERT(loss[0] != loss[1]);
}

static uint64_t count_reduces(const fsdp_group *group)
{
    return fsdp_group_counters(group)->calls[FSDP_KIND_REDUCE_SCATTER];
}

/* Six units: two blocks each of encoder and decoder, the head, the rest. */
TEST_RANKS(the_accumulation_mode_says_what_micro_steps_communicate, 2)
{
    enum {
        UNITS = 6,
        STEPS = 3
    };
    static const char *const words[] = {"--sync-each-batch true", "--sync-each-batch",
                                        "--no-sync-each-batch",
                                        "--gradient-accumulation-mode no-sync"};
    static const uint64_t per_step[] = {4 * UNITS, 4 * UNITS, UNITS, UNITS};
    fsdp_train_result result[4];
    char dir[PATH], line[200];
    job_make_files(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < 4; i++) {
        const uint64_t before = count_reduces(t->group);
        snprintf(line, sizeof line,
                 "--no-save-model --batch-size 1 --gradient-accumulation-steps 4 --max-steps 3 %s",
                 words[i]);
        ASSERT_OK(job_train(t->group, dir, line, &result[i]));
        ASSERT_INT(count_reduces(t->group) - before, STEPS * per_step[i]);
        ASSERT_NEAR(result[i].train_loss, result[0].train_loss, 1e-4);
    }
    ASSERT(result[1].train_loss == result[0].train_loss);
    ASSERT(result[3].train_loss == result[2].train_loss);
}

TEST_RANKS(replicas_may_wait_for_the_last_micro_step, 4)
{
    static const char *const words[] = {"--gradient-accumulation-mode reduce",
                                        "--gradient-accumulation-mode reduce-scatter"};
    fsdp_train_result result[2];
    char dir[PATH], line[200];
    job_make_files(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "--no-save-model --batch-size 1 --gradient-accumulation-steps 3 --max-steps 3 "
                 "--sharding-strategy HYBRID_SHARD --replicas 2 %s",
                 words[i]);
        ASSERT_OK(job_train(t->group, dir, line, &result[i]));
        ASSERT_NEAR(result[i].train_loss, result[0].train_loss, 1e-4);
    }
}

/* --- causal language modeling --- */

TEST_RANKS(causal_training_gives_the_same_bits_on_two_ranks, 2)
{
    char dir[PATH];
    job_make_files_of(t, job_llama, job_write_causal_rows, dir);
    CHECK_HERE();
    check_same_in(t, dir, "--no-save-model --lr 0.01",
                  "--no-save-model --lr 0.01 --gradient-accumulation-steps 2");
}

TEST_RANKS(causal_training_gives_the_same_bits_on_three_ranks, 3)
{
    char dir[PATH];
    job_make_files_of(t, job_llama, job_write_causal_rows, dir);
    CHECK_HERE();
    check_same_in(t, dir, "--no-save-model --lr 0.01 --task clm --max-seq-length 7",
                  "--no-save-model --lr 0.01 --gradient-accumulation-steps 3 --max-seq-length 7");
}

/* Tokens of a fixed cycle, as in nanoGPT's train.bin and val.bin: the next token is learned, which
 * also shows in rows of another form. */
TEST_RANKS(what_token_files_teach_is_learned, 2)
{
    if (UNDER_SANITIZER)
        SKIP("learning takes many steps, which differ in values alone");
    char dir[PATH], path[PATH + 32], words[3 * PATH];
    uint16_t tokens[2000];
    fsdp_train_result result;
    job_make_files_of(t, job_llama, job_write_causal_rows, dir);
    CHECK_HERE();
    for (int i = 0; i < 2000; i++)
        tokens[i] = (uint16_t)(3 + i * 7 % 31);
    if (t->rank == 0) {
        snprintf(path, sizeof path, "%s/train.bin", dir);
        ASSERT_OK(fsdp_file_write(path, tokens, sizeof tokens));
        snprintf(path, sizeof path, "%s/val.bin", dir);
        ASSERT_OK(fsdp_file_write(path, tokens, 500));
    }
    ASSERT_OK(fsdp_barrier(t->group));
    snprintf(words, sizeof words,
             "--no-save-model --lr 0.02 --epochs 4 --max-seq-length 16 --data %s "
             "--validation-data %s",
             dir, dir);
    ASSERT_OK(job_train(t->group, dir, words, &result));
    ASSERT_INT(result.steps, 4 * 21); /* 124 rows of 16 of 2000 tokens, 6 a step */
    ASSERT(result.first_loss > 4.0);
    ASSERT_NEAR(result.validation_loss, 0, 0.1);
    snprintf(words, sizeof words,
             "--no-save-model --lr 0.02 --epochs 4 --max-seq-length 16 "
             "--document-token 3 --data %s",
             dir);
    ASSERT_OK(job_train(t->group, dir, words, &result));
    /* The first token of a document is never a label, so rows that contain it are not learned
     * completely. */
    ASSERT_NEAR(result.train_loss, 0, 0.1);
    ASSERT(result.validation_loss > 0.1);
}

/* --- classification --- */

TEST_RANKS(classification_gives_the_same_bits_on_two_ranks, 2)
{
    char dir[PATH];
    job_make_files_of(t, job_bert, job_write_classified_rows, dir);
    CHECK_HERE();
    check_same_in(t, dir, "--no-save-model --lr 0.002",
                  "--no-save-model --lr 0.002 --gradient-accumulation-steps 2");
}

TEST_RANKS(separable_classes_are_learned_on_three_ranks, 3)
{
    if (UNDER_SANITIZER)
        SKIP("learning takes many steps, which differ in values alone");
    char dir[PATH];
    fsdp_train_result result;
    job_make_files_of(t, job_bert, job_write_classified_rows, dir);
    CHECK_HERE();
    ASSERT_OK(job_train(t->group, dir,
                        "--no-save-model --lr 0.005 --epochs 16 --dropout 0 --gamma 0.9", &result));
    ASSERT(result.validation_loss < 0.2);
    ASSERT_F32(result.measures.accuracy, 1);
    ASSERT_F32(result.measures.f1, 1);
}

/* With a learning rate of 0 the model stays as it is, whatever the order of training. With 13 rows
 * on two ranks, DistributedSampler would have repeated one. */
TEST_RANKS(validation_takes_each_row_once_with_any_sampler, 2)
{
    char dir[PATH];
    fsdp_train_result many, one = {0};
    job_make_files(t, dir);
    CHECK_HERE();
    ASSERT_OK(job_train(t->group, dir, "--no-save-model --lr 0 --sampler distributed", &many));
    if (t->rank == 0)
        job_train_alone(t, dir, "--no-save-model --lr 0", &one);
    CHECK_HERE();
    ASSERT_OK(fsdp_broadcast(t->group, &one, sizeof one, 0));
    ASSERT(many.validation_loss == one.validation_loss);
}

/* Prompts that fill their rows; this is detected before the first step. */
static void write_prompts(fsdp_test *t, const char *path, int rows)
{
    FILE *file = fopen(path, "w");
    ASSERT(file);
    for (int i = 0; i < rows; i++)
        fprintf(file, "{\"prompt_length\": 2, \"input_ids\": [3, %d]}\n", 3 + i);
    fclose(file);
}

TEST(rows_without_a_label_have_no_loss)
{
    static const char *const sets[] = {"train", "validation"};
    for (size_t i = 0; i < 2; i++) {
        char dir[PATH], path[PATH + 32], message[64];
        fsdp_group *one;
        fsdp_train_result result;
        job_make_files_of(t, job_llama, job_write_causal_rows, dir);
        CHECK_HERE();
        snprintf(path, sizeof path, "%s/%s.jsonl", dir, sets[i]);
        write_prompts(t, path, 5);
        CHECK_HERE();
        snprintf(message, sizeof message, "%s.jsonl: not one token has a label", sets[i]);
        ASSERT_OK(fsdp_init_process_group(NULL, &one));
        ASSERT_ERROR(job_train(one, dir, "--no-save-model", &result), FSDP_ERR_INVALID, message);
        ASSERT_INT(result.steps, 0);
        fsdp_destroy_process_group(one);
    }
}

/* --- frozen parameters --- */

TEST_RANKS(frozen_parameters_train_alike_on_any_ranks, 2)
{
    static const char frozen[] = "--no-save-model --lr 0.01 "
                                 "--frozen-prefixes model.embed_tokens,model.layers.0.mlp";
    char dir[PATH], alone[300];
    fsdp_train_result all, some;
    job_make_files_of(t, job_llama, job_write_causal_rows, dir);
    CHECK_HERE();
    snprintf(alone, sizeof alone, "%s --gradient-accumulation-steps 2", frozen);
    check_same_in(t, dir, frozen, alone);
    CHECK_HERE();
    ASSERT_OK(job_train(t->group, dir, frozen, &some));
    ASSERT_OK(job_train(t->group, dir, "--no-save-model --lr 0.01", &all));
    ASSERT(some.first_loss == all.first_loss);
    ASSERT(some.train_loss != all.train_loss);
    ASSERT(some.validation_loss < some.first_loss);
}

/* --- precision --- */

typedef struct kind {
    const char *config, *words;
    job_write_rows_fn *write;
} kind;

static const kind kinds[] = {{job_t5, "--dropout 0", job_write_rows},
                             {job_llama, "--lr 0.01", job_write_causal_rows},
                             {job_bert, "--lr 0.002", job_write_classified_rows}};

/* float16 has eleven bits: the curve is close to float32's, and has the same bits on two ranks as
 * on one. */
TEST_RANKS(training_in_float16_is_near_float32_and_the_same_on_two_ranks, 2)
{
    static const char *const halves[] = {"--fp16", "--mixed-precision fpSixteen"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char dir[PATH], words[256], alone[300], line[PATH];
        fsdp_train_result full, half;
        job_make_files_of(t, kinds[i].config, kinds[i].write, dir);
        CHECK_HERE();
        snprintf(words, sizeof words, "--no-save-model %s --max-grad-norm 1", kinds[i].words);
        ASSERT_OK(job_train(t->group, dir, fewer(words, line), &full));
        for (size_t h = 0; h < 2; h++) {
            snprintf(words, sizeof words, "--no-save-model %s --max-grad-norm 1 --init-scale 64 %s",
                     kinds[i].words, halves[h]);
            ASSERT_OK(job_train(t->group, dir, fewer(words, line), &half));
            ASSERT_INT(half.skipped_steps, 0);
            ASSERT_NEAR(half.first_loss, full.first_loss, 4e-3 * full.first_loss);
            ASSERT_NEAR(half.train_loss, full.train_loss, 4e-2 * full.train_loss);
            ASSERT(half.first_loss != full.first_loss);
            snprintf(alone, sizeof alone, "%s --gradient-accumulation-steps 2", words);
            check_same_in(t, dir, words, alone);
            CHECK_HERE();
        }
    }
}

/* After an overflow the next step uses half the scale, and the skipped step counts for the
 * schedule. Multiplying by powers of two does not round, so the scale does not change the results.
 */
TEST_RANKS(float16_overflows_skip_steps_until_the_scale_fits, 2)
{
    char dir[PATH];
    fsdp_train_result usual, large, smaller;
    job_make_files_of(t, job_llama, job_write_causal_rows, dir);
    CHECK_HERE();
    ASSERT_OK(job_train(t->group, dir, "--no-save-model --lr 0.01 --fp16", &usual));
    ASSERT_OK(job_train(t->group, dir, "--no-save-model --lr 0.01 --fp16 --init-scale 134217728",
                        &large));
    ASSERT(large.skipped_steps > 2 && large.skipped_steps < large.steps);
    ASSERT_INT(large.steps, usual.steps);
    ASSERT(large.first_loss == usual.first_loss);
    ASSERT(large.train_loss > usual.train_loss && large.train_loss < usual.first_loss);
    ASSERT_OK(
        job_train(t->group, dir, "--no-save-model --lr 0.01 --fp16 --init-scale 32768", &smaller));
    ASSERT_NEAR(smaller.train_loss, usual.train_loss, 1e-2);
    check_same_in(t, dir, "--no-save-model --fp16 --init-scale 134217728",
                  "--no-save-model --fp16 --init-scale 134217728 --gradient-accumulation-steps 2");
}

/* A loss that overflows with any scale ends the run after a few steps, whatever the scale is by
 * then. */
TEST(float16_that_overflows_without_a_scale_is_an_error)
{
    char dir[PATH];
    fsdp_group *one;
    fsdp_train_result result;
    job_make_files_of(t, job_llama, job_write_causal_rows, dir);
    CHECK_HERE();
    ASSERT_OK(fsdp_init_process_group(NULL, &one));
    ASSERT_ERROR(job_train(one, dir,
                           "--no-save-model --fp16 --init-scale 4 --optimizer sgd --lr 1e9",
                           &result),
                 FSDP_ERR_NUMERIC, "the loss is NaN in 4 steps in a row");
    ASSERT_INT(result.overflowed_forwards, 3);
    ASSERT(result.skipped_steps >= 3);
    fsdp_destroy_process_group(one);
}

/* Rotary tables are rounded to bfloat16, also when activation checkpointing computes them a second
 * time. */
TEST(buffers_are_rounded_to_buffer_dtype)
{
    char dir[PATH];
    fsdp_train_result exact, rounded, again;
    job_make_files_of(t, job_llama, job_write_causal_rows, dir);
    CHECK_HERE();
    job_train_alone(t, dir, "--no-save-model --lr 0.01", &exact);
    CHECK_HERE();
    job_train_alone(t, dir, "--no-save-model --lr 0.01 --buffer-dtype bf16", &rounded);
    CHECK_HERE();
    job_train_alone(
        t, dir, "--no-save-model --lr 0.01 --buffer-dtype bf16 --activation-checkpointing", &again);
    CHECK_HERE();
    ASSERT(rounded.train_loss != exact.train_loss);
    ASSERT_NEAR(rounded.train_loss, exact.train_loss, 1e-2);
    ASSERT(again.train_loss == rounded.train_loss);
}

/* Only the loss is rounded: training gives the same model. */
TEST(losses_are_rounded_to_output_dtype)
{
    char dir[PATH];
    fsdp_train_result exact, rounded;
    job_make_files_of(t, job_llama, job_write_causal_rows, dir);
    CHECK_HERE();
    job_train_alone(t, dir, "--no-save-model --lr 0.01", &exact);
    CHECK_HERE();
    job_train_alone(t, dir, "--no-save-model --lr 0.01 --output-dtype bf16", &rounded);
    CHECK_HERE();
    ASSERT(rounded.first_loss != exact.first_loss);
    ASSERT_NEAR(rounded.first_loss, exact.first_loss, 0x1p-8 * exact.first_loss);
    ASSERT_NEAR(rounded.validation_loss, exact.validation_loss, 0x1p-8 * exact.validation_loss);
}

/* Clipping by a norm or by value: each changes training, but a bound that is never reached does
 * not. */
TEST_RANKS(gradients_are_clipped_as_asked, 2)
{
    static const char *const words[] = {
        "--max-grad-norm 0",
        "--max-grad-norm 1e6",
        "--max-grad-norm 1e6 --grad-norm-type inf",
        "--clip-value 1e6",
        "--max-grad-norm 0.1",
        "--max-grad-norm 0.1 --grad-norm-type 1",
        "--max-grad-norm 0.1 --grad-norm-type inf",
        "--max-grad-norm 0.1 --grad-norm-type 2.5",
        "--clip-value 0.01",
    };
    enum {
        N = sizeof words / sizeof *words,
        UNCHANGED = 4
    };
    char dir[PATH], line[256];
    fsdp_train_result result[N];
    job_make_files_of(t, job_llama, job_write_causal_rows, dir);
    CHECK_HERE();
    for (int i = 0; i < N; i++) {
        snprintf(line, sizeof line, "--no-save-model --optimizer sgd --lr 0.5 %s", words[i]);
        ASSERT_OK(job_train(t->group, dir, line, &result[i]));
        for (int k = 0; k < i; k++)
            ASSERT((result[k].train_loss == result[i].train_loss) == (i < UNCHANGED));
    }
}

/* --- tasks --- */

TEST(a_task_that_the_model_is_not_for_is_refused)
{
    static const struct {
        const char *config, *words, *message;
    } cases[] = {
        {job_bert, "--task causal-lm",
         "is a BertForSequenceClassification, which is for classification"},
        {job_llama, "--task classification", "is a LlamaForCausalLM, which is for causal-lm"},
        {job_t5, "--task clm", "is a T5ForConditionalGeneration, which is for seq2seq"},
        {job_bert, "--max-seq-length 41", "has positions for 40"},
        {job_bert, "--generate-examples 2", "classifiers do not generate texts"},
        {job_llama, "--data x.csv", "x.csv"},
        {job_llama, "--document-token 5", "in token files (.bin) only"},
        {job_llama, "--frozen-prefixes model,lm_head", "leaves nothing to train"},
        {job_llama, "--frozen-prefixes layers",
         "--frozen-prefixes layers: no parameter's name begins with it; the first is 'model."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[PATH], words[300];
        fsdp_group *one;
        fsdp_train_result result;
        job_make_files_of(t, cases[i].config, job_write_classified_rows, dir);
        CHECK_HERE();
        ASSERT_OK(fsdp_init_process_group(NULL, &one));
        snprintf(words, sizeof words, "--no-save-model %s", cases[i].words);
        ASSERT_ERROR(job_train(one, dir, words, &result), FSDP_ERR_INVALID, cases[i].message);
        fsdp_destroy_process_group(one);
    }
}

/* --- saving --- */

TEST_RANKS(the_model_is_saved_when_validation_improves, 2)
{
    char dir[PATH], words[2 * PATH + 64], path[PATH + 64];
    fsdp_train_result result;
    job_make_files(t, dir);
    CHECK_HERE();
    snprintf(words, sizeof words, "--output %s/out --evaluation-steps 3 --metrics %s/m.jsonl", dir,
             dir);
    ASSERT_OK(job_train(t->group, dir, words, &result));
    ASSERT(result.saved);
    ASSERT_INT(result.steps, 14);
    snprintf(path, sizeof path, "%s/out/model.safetensors", dir);
    ASSERT(fsdp_path_is_file(path));
    /* Rank 0 finds out. It may have aborted the group before rank 1 has read why. */
    ASSERT(job_train(t->group, dir, words, &result) != FSDP_OK);
    ASSERT(strstr(fsdp_last_error(), "--overwrite-output"));
}

/* --- failures --- */

TEST_RANKS(what_one_rank_cannot_read_fails_on_all, 2)
{
    char dir[PATH], words[PATH + 64];
    fsdp_train_result result;
    job_make_files(t, dir);
    CHECK_HERE();
    snprintf(words, sizeof words, "--no-save-model%s", t->rank == 1 ? " --data none.jsonl" : "");
    ASSERT(job_train(t->group, dir, words, &result) != FSDP_OK);
    if (!strstr(fsdp_last_error(), "none.jsonl"))
        FAIL("rank %d does not name the file: %s", t->rank, fsdp_last_error());
}

TEST_RANKS(a_loss_that_is_no_number_ends_all_and_saves_nothing, 2)
{
    char dir[PATH], words[PATH + 64], path[PATH + 64];
    fsdp_train_result result;
    job_make_files(t, dir);
    CHECK_HERE();
    snprintf(words, sizeof words, "--output %s/out --lr 1e30", dir);
    /* A rank may get the error from a peer that left the group at once. */
    fsdp_status status = job_train(t->group, dir, words, &result);
    ASSERT(status == FSDP_ERR_NUMERIC || status == FSDP_ERR_COMM);
    ASSERT(strstr(fsdp_last_error(), "step 2"));
    ASSERT(!result.saved);
    snprintf(path, sizeof path, "%s/out", dir);
    ASSERT(!fsdp_path_is_directory(path));
}

/* Later and later allocations of a run fail: the run ends with an error, or did not need the
 * memory. Nothing leaks (ASan checks). */
TEST(memory_that_runs_out_is_an_error)
{
    static const char words[] = "--no-save-model --max-steps 2 --num-workers 0";
    enum {
        CALM = 4 /* consecutive runs without a failure, after which all allocations were tried */
    };
    char dir[PATH];
    fsdp_train_result result;
    fsdp_group *one;
    int failures = 0, calm = 0;
    job_make_files(t, dir);
    CHECK_HERE();
    ASSERT_OK(fsdp_init_process_group(NULL, &one));
    for (long n = 1; calm < CALM; n += 1 + n / 16) {
        fsdp_alloc_fail_at(n);
        fsdp_status status = job_train(one, dir, words, &result);
        fsdp_alloc_fail_at(0);
        if (status == FSDP_OK)
            calm++;
        else
            ASSERT_INT(status, FSDP_ERR_NOMEM);
        failures += status != FSDP_OK;
        calm = status == FSDP_OK ? calm : 0;
    }
    fsdp_destroy_process_group(one);
    ASSERT(failures > 50);
}

/* --- labels that are numbers --- */

/* Rows whose label can be learned: `numbers` says whether it is a number or a list of three. */
static void write_numbers(fsdp_test *t, const char *path, int rows, bool numbers)
{
    FILE *file = fopen(path, "w");
    ASSERT(file);
    for (int i = 0; i < rows; i++) {
        const int group = i % 3;
        fputs("{\"input_ids\": [2", file);
        for (int k = 0; k < 2 + i * 7 % 11; k++)
            fprintf(file, ", %d", 5 + 20 * group + (i * 31 + k * k * 7) % 20);
        if (numbers)
            fprintf(file, ", 3], \"label\": %.1f}\n", 0.5 + 1.5 * group);
        else
            fprintf(file, ", 3], \"labels\": [%d, %d, 1]}\n", group == 1, group != 2);
    }
    fclose(file);
}

static void write_real(fsdp_test *t, const char *path, int rows)
{
    write_numbers(t, path, rows, true);
}

static void write_lists(fsdp_test *t, const char *path, int rows)
{
    write_numbers(t, path, rows, false);
}

static void check_same_numbers(fsdp_test *t, job_write_rows_fn *write, const char *ranks,
                               const char *alone)
{
    char dir[PATH];
    job_make_files_of(t, job_bert, write, dir);
    CHECK_HERE();
    check_same_in(t, dir, ranks, alone);
}

TEST_RANKS(regression_on_two_ranks_has_the_bits_of_one, 2)
{
    check_same_numbers(t, write_real, "--no-save-model --num-labels 1",
                       "--no-save-model --num-labels 1 "
                       "--gradient-accumulation-steps 2");
}

TEST_RANKS(rows_with_several_classes_on_four_ranks_have_the_bits_of_one, 4)
{
    check_same_numbers(t, write_lists, "--no-save-model --problem-type multi-label --num-labels 3",
                       "--no-save-model --problem-type multi-label --num-labels 3 "
                       "--gradient-accumulation-steps 4");
}

TEST_RANKS(numbers_and_several_classes_are_learned, 2)
{
    if (UNDER_SANITIZER)
        SKIP("learning takes many steps, which differ in values alone");
    char dir[PATH];
    fsdp_train_result result;
    static const char more[] =
        "--no-save-model --lr 0.005 --epochs 16 --dropout 0 --gamma 0.9 --num-labels 3";
    job_make_files_of(t, job_bert, write_lists, dir);
    CHECK_HERE();
    ASSERT_OK(job_train(t->group, dir, more, &result));
    ASSERT(result.validation_loss < 0.1);
    ASSERT_F32(result.measures.accuracy, 1);
    ASSERT_F32(result.measures.f1, 1);
    ASSERT(result.measures.f1_macro == 1);
    job_make_files_of(t, job_bert, write_real, dir);
    CHECK_HERE();
    ASSERT_OK(job_train(t->group, dir,
                        "--no-save-model --lr 0.005 --epochs 16 --dropout 0 --gamma 0.9 "
                        "--problem-type regression",
                        &result));
    ASSERT(result.measures.mse < 0.2);
    ASSERT_NEAR(result.measures.mse, result.validation_loss, 1e-6);
    ASSERT(result.measures.pearson > 0.95 && result.measures.spearmanr > 0.9);
}
