/* fsdp_train_run() on texts with span corruption, alone and mixed with pairs. */
#include <stdio.h>
#include <string.h>

#include "src/base/io.h"
#include "src/train/trainer.h"
#include "src/train_config/config_sources.h"
#include "tests/test.h"
#include "tests/train/small_job.h"

enum {
    PATH = JOB_PATH
};

/* small_job's T5 with the vocabulary of T5's tokenizer. */
static const char model[] =
    "{\"model_type\": \"t5\", \"architectures\": [\"T5ForConditionalGeneration\"],"
    " \"is_encoder_decoder\": true, \"d_model\": 21, \"d_kv\": 5, \"num_heads\": 3, \"d_ff\": 37,"
    " \"num_layers\": 1, \"num_decoder_layers\": 1, \"vocab_size\": 32128,"
    " \"relative_attention_num_buckets\": 8, \"relative_attention_max_distance\": 20,"
    " \"dropout_rate\": 0.1, \"layer_norm_epsilon\": 1e-6, \"initializer_factor\": 1.0,"
    " \"feed_forward_proj\": \"gated-gelu\", \"tie_word_embeddings\": false,"
    " \"pad_token_id\": 0, \"eos_token_id\": 1, \"decoder_start_token_id\": 0}";

static void write_texts(fsdp_test *t, const char *path, int rows)
{
    FILE *file = fopen(path, "w");
    ASSERT(file);
    for (int i = 0; i < rows; i++)
        fprintf(file, "{\"text\": \"row %d of %d says that %d and %d make %d\"}\n", i, rows, i % 7,
                i % 5, i % 7 + i % 5);
    fclose(file);
}

/* Texts in train.jsonl and validation.jsonl, pairs of ids in pairs.jsonl. */
static void make_files(fsdp_test *t, char dir[PATH])
{
    char path[PATH + 32];
    job_make_files_of(t, model, write_texts, dir);
    CHECK_HERE();
    snprintf(path, sizeof path, "%s/pairs.jsonl", dir);
    if (t->rank == 0)
        job_write_rows(t, path, 25);
    if (t->group)
        ASSERT_OK(fsdp_barrier(t->group));
}

/* The flags of all runs, and those of `more`, in which %s is the folder. */
static const char *flags(const char *dir, const char *more, char line[4 * PATH])
{
    int n = snprintf(line, 4 * PATH,
                     "--task span-corruption --tokenizer %s --max-source-length 40 --lr 0.01 ",
                     fsdp_test_path("../data/tokenizers/t5"));
    for (; *more; more++)
        if (strncmp(more, "%s", 2) == 0) {
            n += snprintf(line + n, 4 * PATH - (size_t)n, "%s", dir);
            more++;
        } else {
            line[n++] = *more;
        }
    line[n] = '\0';
    return line;
}

#define MIXED "--data-weight 3 --mix-data seq2seq:1:%s/pairs.jsonl --epochs 3 --max-steps 7 "

/* 7 steps of four leaves, across the ends of epochs. */
TEST_RANKS(two_ranks_give_the_bits_of_one, 2)
{
    NEEDS_SENTENCEPIECE();
    char dir[PATH], line[4 * PATH];
    fsdp_train_result many, one = {0};
    make_files(t, dir);
    CHECK_HERE();
    ASSERT_OK(job_train(t->group, dir,
                        flags(dir, MIXED "--no-save-model --gradient-accumulation-steps 2", line),
                        &many));
    if (t->rank == 0)
        job_train_alone(t, dir,
                        flags(dir,
                              MIXED "--no-save-model --gradient-accumulation-steps 4 "
                                    "--num-workers 0",
                              line),
                        &one);
    CHECK_HERE();
    ASSERT_OK(fsdp_broadcast(t->group, &one, sizeof one, 0));
    ASSERT_INT(many.steps, 7);
    ASSERT(many.train_loss == one.train_loss);
    ASSERT(many.best_validation_loss == one.best_validation_loss);
    ASSERT(many.first_loss == one.first_loss);
}

/* Compares the losses of all steps one by one. */
TEST(a_resumed_run_draws_what_it_would_have_drawn)
{
    NEEDS_SENTENCEPIECE();
    enum {
        STEPS = 9
    };
    char dir[PATH], line[4 * PATH];
    double whole[STEPS], resumed[STEPS];
    fsdp_train_result result;
    make_files(t, dir);
    CHECK_HERE();
    static const char common[] = "--epochs 3 --data-weight 3 --mix-data "
                                 "seq2seq:1:%s/pairs.jsonl --batch-size 10 --no-save-model "
                                 "--metrics %s/m.jsonl --checkpoint-dir %s/c --save-steps 4 ";
    char words[PATH];
    snprintf(words, sizeof words, "%s--max-steps 9", common);
    job_train_alone(t, dir, flags(dir, words, line), &result);
    CHECK_HERE();
    job_read_steps(t, dir, "loss", whole, STEPS);
    CHECK_HERE();
    snprintf(words, sizeof words, "%s--max-steps 9 --resume %%s/c/checkpoint-4", common);
    job_train_alone(t, dir, flags(dir, words, line), &result);
    CHECK_HERE();
    ASSERT_INT(result.steps, STEPS);
    job_read_steps(t, dir, "loss", resumed, STEPS);
    CHECK_HERE();
    for (int i = 0; i < STEPS; i++)
        ASSERT(whole[i] == resumed[i]);
}

/* With a rate of 0 and without dropout, only the noise differs between epochs. */
TEST(epochs_have_noise_of_their_own)
{
    NEEDS_SENTENCEPIECE();
    enum {
        STEPS = 4
    };
    char dir[PATH], line[4 * PATH];
    double loss[STEPS];
    fsdp_train_result result;
    make_files(t, dir);
    CHECK_HERE();
    job_train_alone(t, dir,
                    flags(dir,
                          "--lr 0 --dropout 0 --epochs 2 --no-shuffle --max-train-samples 6 "
                          "--metrics %s/m.jsonl --no-save-model",
                          line),
                    &result);
    CHECK_HERE();
    job_read_steps(t, dir, "loss", loss, STEPS);
    CHECK_HERE();
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k < i; k++)
            ASSERT(loss[i] != loss[k]);
}

static void check_refused(fsdp_test *t, const char *dir, const char *more, const char *message)
{
    char line[4 * PATH];
    fsdp_group *one;
    fsdp_train_result result;
    ASSERT_OK(fsdp_init_process_group(NULL, &one));
    ASSERT_ERROR(job_train(one, dir, flags(dir, more, line), &result), FSDP_ERR_INVALID, message);
    fsdp_destroy_process_group(one);
}

TEST(options_that_contradict_are_refused)
{
    NEEDS_SENTENCEPIECE();
    static const struct {
        const char *more, *message;
    } rows[] = {
        {"--mix-data pairs.jsonl", "--mix-data pairs.jsonl: not of the form TASK:WEIGHT:PATH"},
        {"--mix-data seq2seq:1:", "not of the form"},
        {"--mix-data mlm:1:a", "task 'mlm'"},
        {"--mix-data seq2seq:0:a", "weight '0'"},
        {"--mix-data seq2seq:1x:a", "weight '1x'"},
        {"--mix-data seq2seq:nan:a", "weight 'nan'"},
        {"--mix-data causal-lm:1:%s/pairs.jsonl --no-save-model", "is for seq2seq"},
        {"--mix-data seq2seq:1:%s/pairs.jsonl --metrics %s/pairs.jsonl --no-save-model",
         "/pairs.jsonl are the same file"},
        {"--data-weight 2", "--data-weight needs --mix-data"},
        {"--task seq2seq --noise-density 0.2", "--noise-density is for --task span-corruption"},
        {"--noise-density 1", "noise-density"},
        {"--mean-noise-span-length 0.5", "mean-noise-span-length"},
        {"--max-source-length 2", "--max-source-length 2: span corruption: no piece"},
        {"--max-source-length 2200 --no-save-model", "spiece.model: 100 sentinels"},
    };
    char dir[PATH];
    make_files(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_refused(t, dir, rows[i].more, rows[i].message);
        CHECK_HERE();
    }
}

TEST(a_model_of_another_kind_is_refused)
{
    char dir[PATH];
    job_make_files_of(t, job_llama, job_write_causal_rows, dir);
    CHECK_HERE();
    check_refused(t, dir, "--no-save-model", "--task span-corruption: ");
}

TEST(a_source_is_task_weight_and_path)
{
    fsdp_train_source source;
    ASSERT_OK(fsdp_train_source_parse("span-corruption:0.25:/a/b:c.txt", &source));
    ASSERT_INT(source.task, FSDP_TRAIN_SPAN_CORRUPTION);
    ASSERT(source.weight == 0.25);
    ASSERT_STR(source.path, "/a/b:c.txt");
}

/* A plan's rows have the longer of both lengths. */
TEST(targets_are_as_long_as_the_noise_says)
{
    const fsdp_train_config alone = {.task = FSDP_TRAIN_SPAN_CORRUPTION,
                                     .max_source_length = 512,
                                     .max_target_length = 150},
                            pairs = {.max_source_length = 512, .max_target_length = 150};
    const char *const mix[] = {"seq2seq:1:a"};
    fsdp_train_config both = alone;
    both.mix_data = (fsdp_option_list){mix, 1};
    ASSERT_INT(fsdp_train_sources_target_length(&alone), 114);
    ASSERT_INT(fsdp_train_sources_target_length(&pairs), 150);
    ASSERT_INT(fsdp_train_sources_target_length(&both), 150);
}
