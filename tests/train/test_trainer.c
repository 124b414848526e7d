/* fsdp_train_run() on ranks that are threads: the same numbers at any world size, and a failure of
 * one rank is one of all. tests/cli/test_train.sh tries the command from outside. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/train/trainer.h"
#include "tests/test.h"

/* A model in which nothing is even, and 37 rows of ids. */
static const char config_json[] =
    "{\"model_type\": \"t5\", \"architectures\": [\"T5ForConditionalGeneration\"],"
    " \"is_encoder_decoder\": true, \"d_model\": 21, \"d_kv\": 5, \"num_heads\": 3, \"d_ff\": 37,"
    " \"num_layers\": 2, \"num_decoder_layers\": 2, \"vocab_size\": 67,"
    " \"relative_attention_num_buckets\": 8, \"relative_attention_max_distance\": 20,"
    " \"dropout_rate\": 0.1, \"layer_norm_epsilon\": 1e-6, \"initializer_factor\": 1.0,"
    " \"feed_forward_proj\": \"gated-gelu\", \"tie_word_embeddings\": false,"
    " \"pad_token_id\": 0, \"eos_token_id\": 1, \"decoder_start_token_id\": 0}";

enum {
    ROWS = 37,
    PATH = 300
};

static void write_rows(fsdp_test *t, const char *path, int rows)
{
    FILE *file = fopen(path, "w");
    ASSERT(file);
    for (int i = 0; i < rows; i++) {
        fprintf(file, "{\"input_ids\": [%d", 2 + i);
        for (int k = 1; k < 3 + i * 7 % 19; k++)
            fprintf(file, ", %d", 2 + (i * 31 + k * k * 7) % 65);
        fputs("], \"labels\": [", file);
        for (int k = 0; k < 1 + i * 5 % 7; k++)
            fprintf(file, "%d, ", 2 + (i + k * 3) % 65);
        fputs("1]}\n", file);
    }
    fclose(file);
}

/* A folder with model and data that all ranks know; rank 0 makes it. */
static void make_files(fsdp_test *t, char dir[PATH])
{
    char path[PATH + 32];
    if (t->rank == 0) {
        snprintf(dir, PATH, "%s", fsdp_test_dir(t));
        snprintf(path, sizeof path, "%s/model", dir);
        ASSERT_OK(fsdp_directory_make(path));
        snprintf(path, sizeof path, "%s/model/config.json", dir);
        ASSERT_OK(fsdp_file_write(path, config_json, sizeof config_json - 1));
        snprintf(path, sizeof path, "%s/train.jsonl", dir);
        write_rows(t, path, ROWS);
        snprintf(path, sizeof path, "%s/validation.jsonl", dir);
        write_rows(t, path, 13);
    }
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, dir, PATH, 0));
}

/* Train with the words of `more` (separated by single spaces) on top of the files in `dir`. */
static fsdp_status train(fsdp_group *group, const char *dir, const char *more,
                         fsdp_train_result *result)
{
    enum {
        WORDS = 64
    };
    char text[4096], *argv[WORDS];
    int argc = 0;
    snprintf(text, sizeof text,
             "train --model %s/model --from-config --data %s/train.jsonl --validation-data "
             "%s/validation.jsonl --threads-per-rank 1 --batch-size 3 %s",
             dir, dir, dir, more);
    char *rest = text;
    for (char *word; argc < WORDS - 1 && (word = strsep(&rest, " "));)
        argv[argc++] = word;
    argv[argc] = NULL;
    fsdp_train_config config = {0};
    fsdp_options *options;
    FSDP_TRY(fsdp_options_parse(fsdp_train_options(), argc, argv, &config, &options));
    fsdp_status status = fsdp_train_run(&config, group, NULL, result);
    if (status != FSDP_OK)
        fsdp_group_abort(group, status);
    fsdp_options_destroy(options);
    return status;
}

/* The whole job on one rank, with `more`. */
static void train_alone(fsdp_test *t, const char *dir, const char *more, fsdp_train_result *result)
{
    fsdp_group *one;
    ASSERT_OK(fsdp_init_process_group(NULL, &one));
    ASSERT_OK(train(one, dir, more, result));
    fsdp_destroy_process_group(one);
}

static void check_same(fsdp_test *t, const char *ranks, const char *alone)
{
    char dir[PATH];
    fsdp_train_result many, one = {0};
    make_files(t, dir);
    CHECK_HERE();
    ASSERT_OK(train(t->group, dir, ranks, &many));
    if (t->rank == 0)
        train_alone(t, dir, alone, &one);
    CHECK_HERE();
    ASSERT_OK(fsdp_broadcast(t->group, &one, sizeof one, 0));
    ASSERT_INT(many.steps, one.steps);
    ASSERT(many.first_loss == one.first_loss);
    ASSERT(many.train_loss == one.train_loss);
    ASSERT(many.best_validation_loss == one.best_validation_loss);
}

/* Blocks of 12 rows: the last of an epoch holds one row, and three leaves are empty. */
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
    char dir[PATH];
    make_files(t, dir);
    CHECK_HERE();
    for (size_t i = 0; i < 3; i++) {
        ASSERT_OK(train(t->group, dir, words[i], &result[i]));
        ASSERT(result[i].train_loss == result[0].train_loss);
        ASSERT(result[i].validation_loss == result[0].validation_loss);
    }
}

TEST_RANKS(the_model_is_saved_when_validation_improves, 2)
{
    char dir[PATH], words[2 * PATH + 64], path[PATH + 64];
    fsdp_train_result result;
    make_files(t, dir);
    CHECK_HERE();
    snprintf(words, sizeof words, "--output %s/out --evaluation-steps 3 --metrics %s/m.jsonl", dir,
             dir);
    ASSERT_OK(train(t->group, dir, words, &result));
    ASSERT(result.saved);
    ASSERT_INT(result.steps, 14);
    snprintf(path, sizeof path, "%s/out/model.safetensors", dir);
    ASSERT(fsdp_path_is_file(path));
    ASSERT_ERROR(train(t->group, dir, words, &result), FSDP_ERR_INVALID, "--overwrite-output");
}

/* --- failures --- */

TEST_RANKS(what_one_rank_cannot_read_fails_on_all, 2)
{
    char dir[PATH], words[PATH + 64];
    fsdp_train_result result;
    make_files(t, dir);
    CHECK_HERE();
    snprintf(words, sizeof words, "--no-save-model%s", t->rank == 1 ? " --data none.jsonl" : "");
    ASSERT(train(t->group, dir, words, &result) != FSDP_OK);
    if (!strstr(fsdp_last_error(), "none.jsonl"))
        FAIL("rank %d does not name the file: %s", t->rank, fsdp_last_error());
}

TEST_RANKS(a_loss_that_is_no_number_ends_all_and_saves_nothing, 2)
{
    char dir[PATH], words[PATH + 64], path[PATH + 64];
    fsdp_train_result result;
    make_files(t, dir);
    CHECK_HERE();
    snprintf(words, sizeof words, "--output %s/out --lr 1e30", dir);
    ASSERT_ERROR(train(t->group, dir, words, &result), FSDP_ERR_NUMERIC, "step 2");
    ASSERT(!result.saved);
    snprintf(path, sizeof path, "%s/out", dir);
    ASSERT(!fsdp_path_is_directory(path));
}

/* Ever later allocations of a run fail: it ends with an error, or did without. Nothing leaks (ASan
 * sees). */
TEST(memory_that_runs_out_is_an_error)
{
    static const char words[] = "--no-save-model --max-steps 2 --num-workers 0";
    enum {
        CALM = 4 /* runs without a failure after which all allocations were tried */
    };
    char dir[PATH];
    fsdp_train_result result;
    fsdp_group *one;
    int failures = 0, calm = 0;
    make_files(t, dir);
    CHECK_HERE();
    ASSERT_OK(fsdp_init_process_group(NULL, &one));
    for (long n = 1; calm < CALM; n += 1 + n / 16) {
        fsdp_alloc_fail_at(n);
        fsdp_status status = train(one, dir, words, &result);
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
