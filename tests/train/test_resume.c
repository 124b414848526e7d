/* Checkpoints of a run, tested in the process: ranks that are threads, resuming on other numbers of
 * ranks, and failures that leave the existing files. tests/cli/test_resume.sh kills the command
 * instead. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/report/metrics.h"
#include "src/train/checkpoint_folders.h"
#include "src/train/trainer.h"
#include "tests/test.h"

enum {
    ROWS = 41,
    PATH = 300
};

static const char config_json[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 67,"
    " \"hidden_size\": 21, \"intermediate_size\": 37, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 6,"
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0,"
    " \"hidden_act\": \"silu\", \"initializer_range\": 0.02, \"tie_word_embeddings\": false,"
    " \"bos_token_id\": 1, \"eos_token_id\": 2}";

static void write_rows(fsdp_test *t, const char *path)
{
    FILE *file = fopen(path, "w");
    ASSERT(file);
    for (int i = 0; i < ROWS; i++) {
        fprintf(file, "{\"input_ids\": [%d", 2 + i);
        for (int k = 1; k < 3 + i * 7 % 19; k++)
            fprintf(file, ", %d", 2 + (i * 31 + k * k * 7) % 65);
        fputs("]}\n", file);
    }
    fclose(file);
}

/* Rank 0's directory with a model's config and data; all ranks know its path. */
static void make_place(fsdp_test *t, char dir[PATH])
{
    char path[PATH + 32];
    if (t->rank == 0) {
        snprintf(dir, PATH, "%s", fsdp_test_dir(t));
        snprintf(path, sizeof path, "%s/config.json", dir);
        ASSERT_OK(fsdp_file_write(path, config_json, sizeof config_json - 1));
        snprintf(path, sizeof path, "%s/rows.jsonl", dir);
        write_rows(t, path);
    }
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, dir, PATH, 0));
}

/* Four leaves of three rows a step, 4 steps an epoch. `more` [n] are further flags. */
static fsdp_status train(fsdp_group *group, const char *dir, const char *const *more, int n)
{
    char data[PATH + 32], metrics[PATH + 32], checkpoints[PATH + 32], accumulation[16];
    snprintf(data, sizeof data, "%s/rows.jsonl", dir);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", dir);
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", dir);
    snprintf(accumulation, sizeof accumulation, "%d", 4 / fsdp_group_world_size(group));
    const char *const flags[] = {"train",
                                 "--model",
                                 dir,
                                 "--from-config",
                                 "--data",
                                 data,
                                 "--no-save-model",
                                 "--batch-size",
                                 "3",
                                 "--num-workers",
                                 "0",
                                 "--epochs",
                                 "2",
                                 "--metrics",
                                 metrics,
                                 "--gradient-accumulation-steps",
                                 accumulation,
                                 "--lr",
                                 "0.01",
                                 "--lr-schedule", /* it must not depend on --max-steps */
                                 "step",
                                 "--threads-per-rank",
                                 "1"};
    char *argv[40];
    int argc = 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        argv[argc++] = fsdp_strdup(flags[i]);
    bool has_checkpoints = false;
    for (int i = 0; i < n; i++)
        has_checkpoints |= strncmp(more[i], "--save-", 7) == 0 || strcmp(more[i], "--resume") == 0;
    if (has_checkpoints) {
        argv[argc++] = fsdp_strdup("--checkpoint-dir");
        argv[argc++] = fsdp_strdup(checkpoints);
    }
    for (int i = 0; i < n; i++)
        argv[argc++] = fsdp_strdup(more[i]);
    fsdp_train_config config = {0};
    fsdp_options *options = NULL;
    fsdp_train_result result;
    fsdp_status status = fsdp_options_parse(fsdp_train_options(), argc, argv, &config, &options);
    if (status == FSDP_OK)
        status = fsdp_train_run(&config, group, NULL, &result);
    for (int i = 0; i < argc; i++)
        fsdp_free(argv[i]);
    fsdp_options_destroy(options);
    return status;
}
#define TRAIN(group, dir, ...)                                                                     \
    train(group, dir, (const char *const[]){__VA_ARGS__},                                          \
          (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

typedef struct curve {
    double loss[16];
    int n;
} curve;

static curve read_curve(const char *dir)
{
    char path[PATH + 32];
    fsdp_metrics_curves curves = {0};
    curve c = {0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    if (fsdp_metrics_read(path, &curves) == FSDP_OK)
        for (size_t i = 0; i < curves.loss.len && i < 16; i++)
            c.loss[c.n++] = curves.loss.points[i].value;
    fsdp_metrics_curves_fini(&curves);
    return c;
}

static bool exists(const char *dir, const char *name)
{
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/checkpoints/%s", dir, name);
    return fsdp_path_is_directory(path);
}

static void remove_checkpoint(fsdp_test *t, const char *dir, const char *name)
{
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/checkpoints/%s", dir, name);
    if (t->rank == 0)
        ASSERT_OK(fsdp_tree_remove(path));
    ASSERT_OK(fsdp_barrier(t->group));
}

static void assert_same_curve(fsdp_test *t, const curve *want, const char *dir)
{
    curve got = read_curve(dir);
    ASSERT(got.n == want->n && want->n == 8);
    for (int i = 0; i < got.n; i++)
        if (got.loss[i] != want->loss[i])
            FAIL("step %d: %.17g, not %.17g", i + 1, got.loss[i], want->loss[i]);
}

/* Changes the number of ranks of a run with the flags `x` several times: the curve is that of an
 * uninterrupted run. */
static void change_ranks(fsdp_test *t, const char *const x[4])
{
    char dir[PATH] = "", newest[PATH + 64];
    fsdp_group *groups[5] = {0};
    curve whole = {0};
    static const int ways[] = {1, 2, 4, 1};
    make_place(t, dir);
    CHECK_HERE();
    for (int n = 1; n <= 4; n *= 2)
        ASSERT_OK(fsdp_group_split(t->group, t->rank < n, t->rank, &groups[n]));
    ASSERT_OK(train(t->group, dir, x, 4));
    if (t->rank == 0)
        whole = read_curve(dir);
    for (int i = 0; i < 4; i++) {
        int n = ways[i];
        ASSERT_OK(fsdp_barrier(t->group));
        if (t->rank < n && i < 3) {
            /* stops at a step that is not a multiple; the first two in the middle of an epoch */
            static const char *const until[] = {"2", "3", "6"};
            ASSERT_OK(TRAIN(groups[n], dir, "--save-steps", "100", "--resume", "auto",
                            "--max-steps", until[i], x[0], x[1], x[2], x[3]));
        } else if (t->rank < n) {
            ASSERT_OK(TRAIN(groups[n], dir, "--save-steps", "100", "--resume", "auto", x[0], x[1],
                            x[2], x[3]));
        }
    }
    if (t->rank == 0)
        assert_same_curve(t, &whole, dir);
    CHECK_HERE();
    ASSERT_OK(fsdp_barrier(t->group));
    snprintf(newest, sizeof newest, "%s/checkpoints/checkpoint-3", dir);
    ASSERT_OK(TRAIN(t->group, dir, "--resume", newest, x[0], x[1], x[2], x[3]));
    if (t->rank == 0)
        assert_same_curve(t, &whole, dir);
    for (int n = 1; n <= 4; n *= 2)
        fsdp_destroy_process_group(groups[n]);
}

/* Another spelling of a number would count as a step whose folder has another name. */
TEST(only_the_names_that_a_run_writes_are_steps)
{
    const char *rest = "";
    ASSERT_INT(fsdp_checkpoint_step_of_name("checkpoint-8", &rest), 8);
    ASSERT_INT(fsdp_checkpoint_step_of_name("checkpoint-0", &rest), 0);
    ASSERT_INT(fsdp_checkpoint_step_of_name("checkpoint-80", &rest), 80);
    ASSERT_INT(fsdp_checkpoint_step_of_name("checkpoint-00008", &rest), -1);
    ASSERT_INT(fsdp_checkpoint_step_of_name("checkpoint-00", &rest), -1);
}

TEST_RANKS(a_run_goes_on_on_other_numbers_of_ranks, 4)
{
    change_ranks(t, (const char *const[4]){"--optimizer", "adamw", "--beta1", "0.9"});
}
/* The random numbers of stochastic rounding are those of the step, not of the steps since the run
 * was resumed. */
TEST_RANKS(a_run_that_rounds_stochastically_goes_on, 4)
{
    change_ranks(t, (const char *const[4]){"--precision", "bf16-true", "--beta2=0.95",
                                           "--bf16-stochastic-round"});
}
TEST_RANKS(a_run_with_states_in_8_bits_goes_on, 4)
{
    change_ranks(t, (const char *const[4]){"--optimizer", "adamw_8bit", "--bf16", "--beta2=0.95"});
}

/* The rate rises over more steps than the first run takes, so the sum of weights must go on. */
TEST_RANKS(a_schedule_free_run_goes_on, 4)
{
    change_ranks(t, (const char *const[4]){"--optim=schedule_free_adamw", "--lr-schedule=constant",
                                           "--warmup-steps=5", "--schedule-free-r=0.5"});
}

/* Train three steps with the flags `before`, the rest with `after`. */
static void change_form(fsdp_test *t, const char *dir, const char *const *before,
                        const char *const *after)
{
    ASSERT_OK(TRAIN(t->group, dir, "--save-steps", "100", "--max-steps", "3", before[0], before[1],
                    before[2], before[3]));
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(TRAIN(t->group, dir, "--resume", "true", after[0], after[1], after[2], after[3]));
    ASSERT_OK(fsdp_barrier(t->group));
}

/* Meshes of one dimension and of two, shards and replicas, in any order: the same bits. */
TEST_RANKS(a_run_goes_on_on_another_mesh, 4)
{
    static const char *const forms[][4] = {
        {"--sharding-strategy", "FULL_SHARD", "--replicas", "1"},
        {"--sharding-strategy", "HYBRID_SHARD", "--replicas", "2"},
        {"--sharding-strategy", "NO_SHARD", "--replicas", "1"}};
    char dir[PATH] = "";
    curve whole = {0};
    make_place(t, dir);
    CHECK_HERE();
    ASSERT_OK(train(t->group, dir, NULL, 0));
    if (t->rank == 0)
        whole = read_curve(dir);
    for (int from = 0; from < 3; from++) {
        const int to = (from + 1) % 3;
        change_form(t, dir, forms[from], forms[to]);
        CHECK_HERE();
        if (t->rank == 0)
            assert_same_curve(t, &whole, dir);
        CHECK_HERE();
        remove_checkpoint(t, dir, "checkpoint-3");
        CHECK_HERE();
    }
}

/* Rows come in the same order, so the curve is that of float32 up to bf16's rounding, and exactly
 * that in the steps computed in float32. */
TEST_RANKS(a_run_goes_on_in_another_dtype, 2)
{
    static const char *const forms[][4] = {{"--param-dtype", "bf16", "--replicas", "1"},
                                           {"--param-dtype", "fp32", "--replicas", "1"}};
    char dir[PATH] = "";
    curve whole = {0};
    make_place(t, dir);
    CHECK_HERE();
    ASSERT_OK(train(t->group, dir, NULL, 0));
    if (t->rank == 0)
        whole = read_curve(dir);
    for (int from = 0; from < 2; from++) {
        change_form(t, dir, forms[from], forms[1 - from]);
        CHECK_HERE();
        const curve got = read_curve(dir);
        if (t->rank == 0)
            ASSERT(got.n == 8 && whole.n == 8);
        for (int i = 0; i < got.n && t->rank == 0; i++) {
            ASSERT(from == 0 || i >= 3 || got.loss[i] == whole.loss[i]);
            ASSERT(fabs(got.loss[i] - whole.loss[i]) < 5e-3);
        }
        remove_checkpoint(t, dir, "checkpoint-3");
        CHECK_HERE();
    }
}

TEST_RANKS(the_newest_checkpoints_are_kept, 2)
{
    char dir[PATH] = "";
    make_place(t, dir);
    CHECK_HERE();
    ASSERT_OK(TRAIN(t->group, dir, "--save-steps", "3", "--save-total-limit", "2"));
    ASSERT(!exists(dir, "checkpoint-3") && exists(dir, "checkpoint-6") &&
           exists(dir, "checkpoint-8"));
    ASSERT_OK(fsdp_barrier(t->group));
    remove_checkpoint(t, dir, "checkpoint-8");
    CHECK_HERE();
    char path[PATH + 64], *letter;
    snprintf(path, sizeof path, "%s/checkpoints/checkpoint-6", dir);
    letter = fsdp_path_join(path, "letter");
    if (t->rank == 0)
        ASSERT_OK(fsdp_file_write(letter, "dear", 4));
    ASSERT_OK(TRAIN(t->group, dir, "--save-strategy", "epoch", "--resume", "auto",
                    "--save-total-limit", "1"));
    ASSERT(exists(dir, "checkpoint-8"));
    /* The user's own file in the removed checkpoint is kept, and nothing else. */
    char **names;
    size_t count;
    ASSERT(fsdp_path_is_file(letter));
    ASSERT_OK(fsdp_directory_list(path, &names, &count));
    ASSERT_INT(count, 1);
    fsdp_free(names);
    fsdp_free(letter);
}

/* The number of collectives of a rank in a run of four steps. */
static int64_t meetings_of(fsdp_test *t, const char *dir, const char *save_steps)
{
    const fsdp_comm_counters before = fsdp_group_get_counters(t->group);
    const fsdp_status status =
        TRAIN(t->group, dir, "--save-steps", save_steps, "--max-steps", "4", "--overwrite-output");
    const fsdp_comm_counters after = fsdp_group_get_counters(t->group);
    int64_t calls = 0;
    for (int kind = 0; kind < FSDP_KIND_COUNT; kind++)
        calls += (int64_t)(after.calls[kind] - before.calls[kind]);
    return status == FSDP_OK ? calls : -1;
}

/* Three meetings for each checkpoint, whatever else the run does, and two collectives for the path
 * of the folder and the positions of what ranks wrote. */
TEST_RANKS(a_checkpoint_of_a_run_is_three_meetings, 2)
{
    char dir[PATH] = "";
    make_place(t, dir);
    CHECK_HERE();
    const int64_t once = meetings_of(t, dir, "4");
    ASSERT(once > 0);
    ASSERT_INT(meetings_of(t, dir, "2"), once + 5);
    ASSERT_INT(meetings_of(t, dir, "1"), once + 3 * 5);
}

/* Any mismatch is an error on every rank, before a step is taken. */
TEST_RANKS(checkpoints_of_other_runs_are_refused, 2)
{
    char dir[PATH] = "";
    make_place(t, dir);
    CHECK_HERE();
    ASSERT_OK(TRAIN(t->group, dir, "--save-steps", "4"));
    ASSERT(TRAIN(t->group, dir, "--resume", "auto", "--seed", "2") == FSDP_ERR_INVALID);
    ASSERT(strstr(fsdp_last_error(), "--seed"));
    ASSERT(TRAIN(t->group, dir, "--resume", "auto", "--batch-size", "5") == FSDP_ERR_INVALID);
    ASSERT(strstr(fsdp_last_error(), "rows in a step"));
    ASSERT(TRAIN(t->group, dir, "--resume", dir) == FSDP_ERR_NOT_FOUND);
}

static bool has(const char *dir, const char *name)
{
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/checkpoints/%s", dir, name);
    return fsdp_path_is_file(path);
}

/* Three steps with `type`, then the rest on another group: the curve is the whole run's. */
static void check_type(fsdp_test *t, const char *dir, fsdp_group *from, fsdp_group *to,
                       const char *type, const char *format, const char *file, const curve *whole)
{
    if (from)
        ASSERT_OK(TRAIN(from, dir, "--state-dict-type", type, "--checkpoint-format", format,
                        "--save-steps", "3", "--max-steps", "3"));
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT(has(dir, file));
    if (to)
        ASSERT_OK(TRAIN(to, dir, "--fsdp_state_dict_type", type, "--resume", "true"));
    if (t->rank == 0)
        assert_same_curve(t, whole, dir);
    CHECK_HERE();
    remove_checkpoint(t, dir, "checkpoint-3");
}

TEST_RANKS(each_type_of_state_dict_goes_on, 2)
{
    char dir[PATH] = "";
    curve whole = {0};
    fsdp_group *one = NULL;
    make_place(t, dir);
    CHECK_HERE();
    ASSERT_OK(fsdp_group_split(t->group, t->rank < 1, t->rank, &one));
    ASSERT_OK(train(t->group, dir, NULL, 0));
    if (t->rank == 0)
        whole = read_curve(dir);
    else {
        fsdp_destroy_process_group(one);
        one = NULL;
    }
    check_type(t, dir, t->group, t->group, "sharded", "fsdp", "checkpoint-3/.metadata", &whole);
    CHECK_HERE();
    check_type(t, dir, t->group, one, "full", "fsdp", "checkpoint-3/model_state_dict.pt", &whole);
    CHECK_HERE();
    check_type(t, dir, one, t->group, "FULL_STATE_DICT", "fsdp", "checkpoint-3/optim_state_dict.pt",
               &whole);
    CHECK_HERE();
    check_type(t, dir, t->group, t->group, "LOCAL_STATE_DICT", "fsdp",
               "checkpoint-3/local_state_dict_rank1.pt", &whole);
    CHECK_HERE();
    check_type(t, dir, t->group, one, "sharded", "accelerate",
               "checkpoint-3/pytorch_model_fsdp_0/.metadata", &whole);
    CHECK_HERE();
    check_type(t, dir, one, t->group, "full", "accelerate", "checkpoint-3/optimizer.bin", &whole);
    CHECK_HERE();
    check_type(t, dir, t->group, t->group, "3", "accelerate-0.24",
               "checkpoint-3/pytorch_model_0/.metadata", &whole);
    fsdp_destroy_process_group(one);
}

/* Parts of two ranks cannot be read by one rank, nor by two replicas. */
TEST_RANKS(local_state_dicts_are_for_the_ranks_that_wrote_them, 2)
{
    char dir[PATH] = "";
    fsdp_group *one = NULL;
    make_place(t, dir);
    CHECK_HERE();
    ASSERT_OK(fsdp_group_split(t->group, t->rank, t->rank, &one));
    ASSERT_OK(TRAIN(t->group, dir, "--state-dict-type", "local", "--save-steps", "4", "--max-steps",
                    "4"));
    if (t->rank == 0) {
        ASSERT(TRAIN(one, dir, "--resume", "auto") == FSDP_ERR_INVALID);
        ASSERT(strstr(fsdp_last_error(), "LOCAL_STATE_DICT of 2 ranks"));
    }
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT(TRAIN(t->group, dir, "--resume", "auto", "--sharding-strategy", "NO_SHARD") != FSDP_OK);
    ASSERT(strstr(fsdp_last_error(), "local_state_dict_rank"));
    fsdp_destroy_process_group(one);
}

/* A file that was cut or changed is named, and nothing is read from it. */
TEST_RANKS(damaged_full_checkpoints_are_named, 2)
{
    char dir[PATH] = "", path[PATH + 64];
    make_place(t, dir);
    CHECK_HERE();
    ASSERT_OK(
        TRAIN(t->group, dir, "--state-dict-type", "1", "--save-steps", "4", "--max-steps", "4"));
    snprintf(path, sizeof path, "%s/checkpoints/checkpoint-4/optim_state_dict.pt", dir);
    if (t->rank == 0) {
        FILE *file = fopen(path, "r+b");
        ASSERT(file && fseek(file, -3000, SEEK_END) == 0);
        int byte = fgetc(file);
        ASSERT(fseek(file, -1, SEEK_CUR) == 0 && fputc(byte ^ 1, file) != EOF);
        fclose(file);
    }
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT(TRAIN(t->group, dir, "--resume", "auto") == FSDP_ERR_FORMAT);
    ASSERT(strstr(fsdp_last_error(), "optim_state_dict.pt"));
    ASSERT_OK(fsdp_barrier(t->group));
    if (t->rank == 0)
        ASSERT(remove(path) == 0);
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT(TRAIN(t->group, dir, "--resume", "auto") == FSDP_ERR_NOT_FOUND);
    ASSERT(strstr(fsdp_last_error(), "optim_state_dict.pt"));
}

static void assert_same_bytes(fsdp_test *t, const char *dir, const char *name)
{
    static const char *const folders[] = {"checkpoints", "expected"};
    char path[2 * PATH + 128];
    fsdp_mapping m[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", dir, folders[i], name);
        ASSERT_OK(fsdp_file_map(path, &m[i]));
    }
    const bool same =
        m[0].bytes == m[1].bytes && (!m[0].bytes || memcmp(m[0].data, m[1].data, m[0].bytes) == 0);
    fsdp_file_unmap(&m[0]);
    fsdp_file_unmap(&m[1]);
    if (!same)
        FAIL("%s is not what a run writes that waits for it", name);
}

/* Every checkpoint equals that of a run that waits for each; resuming from one in the middle gives
 * the same curve. */
TEST_RANKS(asynchronous_checkpoints_are_those_of_their_step, 2)
{
    static const char *const files[] = {".metadata", "__0_0.distcp", "__1_0.distcp"};
    char dir[PATH] = "", path[PATH + 64], expected[PATH + 64];
    curve whole = {0};
    make_place(t, dir);
    CHECK_HERE();
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    snprintf(expected, sizeof expected, "%s/expected", dir);
    ASSERT_OK(TRAIN(t->group, dir, "--save-steps", "3"));
    if (t->rank == 0) {
        whole = read_curve(dir);
        ASSERT(rename(path, expected) == 0);
    }
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(TRAIN(t->group, dir, "--save-steps", "3", "--async-save"));
    for (int step = 3; step <= 6 && t->rank == 0; step += 3)
        for (int i = 0; i < 3 && !t->failed; i++) {
            snprintf(path, sizeof path, "checkpoint-%d/%s", step, files[i]);
            assert_same_bytes(t, dir, path);
        }
    CHECK_HERE();
    ASSERT_OK(fsdp_barrier(t->group));
    snprintf(path, sizeof path, "%s/checkpoints/checkpoint-3", dir);
    ASSERT_OK(TRAIN(t->group, dir, "--save-steps", "4", "--async-save", "--save-total-limit", "1",
                    "--resume", path));
    if (t->rank == 0)
        assert_same_curve(t, &whole, dir);
    CHECK_HERE();
    ASSERT(exists(dir, "checkpoint-8") && !exists(dir, "checkpoint-6"));
}

/* A run that saves after each step, synchronously or not, while files are limited to `bytes`: an
 * error on both ranks that names the file, and only the checkpoint before it remains. */
static void check_failing_saves(fsdp_test *t, const char *dir, size_t bytes, bool async)
{
    char path[PATH + 64], **names;
    size_t n;
    struct rlimit before, small;
    ASSERT(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = (struct rlimit){.rlim_cur = bytes, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const fsdp_status status = TRAIN(t->group, dir, "--save-steps", "1", "--resume",
                                     async ? "--async-save" : "--no-async-save");
    ASSERT(setrlimit(RLIMIT_FSIZE, &before) == 0);
    ASSERT(status == FSDP_ERR_IO && strstr(fsdp_last_error(), "_0.distcp"));
    ASSERT(strstr(fsdp_last_error(), "File too large"));
    ASSERT_OK(fsdp_barrier(t->group));
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    ASSERT_OK(fsdp_directory_list(path, &names, &n));
    ASSERT(n == 1);
    ASSERT_STR(names[0], "checkpoint-3");
    fsdp_free(names);
    ASSERT(t->rank > 0 || read_curve(dir).n == (async ? 5 : 4));
    ASSERT_OK(fsdp_barrier(t->group));
}

/* Files are limited to half of what a rank writes. A synchronous save fails on both ranks at once,
 * an asynchronous one at the next step. The run resumes from the checkpoint before it. */
TEST_RANKS(a_save_that_fails_ends_the_run, 2)
{
    char dir[PATH] = "", path[PATH + 64];
    curve whole = {0};
    fsdp_mapping file;
    make_place(t, dir);
    CHECK_HERE();
    ASSERT_OK(TRAIN(t->group, dir, "--save-steps", "3"));
    if (t->rank == 0)
        whole = read_curve(dir);
    for (int step = 6; step <= 8; step += 2) {
        snprintf(path, sizeof path, "checkpoint-%d", step);
        remove_checkpoint(t, dir, path);
    }
    CHECK_HERE();
    snprintf(path, sizeof path, "%s/checkpoints/checkpoint-3/__1_0.distcp", dir);
    ASSERT_OK(fsdp_file_map(path, &file));
    const size_t half = file.bytes / 2;
    fsdp_file_unmap(&file);
    check_failing_saves(t, dir, half, false);
    CHECK_HERE();
    check_failing_saves(t, dir, half, true);
    CHECK_HERE();
    ASSERT_OK(TRAIN(t->group, dir, "--save-steps", "3", "--async-save", "--resume"));
    if (t->rank == 0)
        assert_same_curve(t, &whole, dir);
}

/* A run must not resume from an older checkpoint because there was no memory to look at a newer
 * one. Each allocation of the search fails once. */
TEST(without_memory_no_checkpoint_is_overlooked)
{
    static const char *const files[] = {"model_state_dict.pt", "optim_state_dict.pt",
                                        "trainer_state.json"};
    char path[PATH];
    int64_t *steps;
    size_t n;
    for (int step = 3; step <= 7; step += 4)
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            snprintf(path, sizeof path, "%s/checkpoint-%d", fsdp_test_dir(t), step);
            ASSERT_OK(fsdp_directory_make(path));
            snprintf(path, sizeof path, "%s/checkpoint-%d/%s", fsdp_test_dir(t), step, files[i]);
            ASSERT_OK(fsdp_file_write(path, "{}", 2));
        }
    fsdp_status status = FSDP_ERR_NOMEM;
    long allocation = 1;
    for (; status != FSDP_OK && allocation < 100; allocation++) {
        fsdp_alloc_fail_at(allocation);
        status = fsdp_checkpoint_list_steps(fsdp_test_dir(t), false, &steps, &n);
        fsdp_alloc_fail_at(0);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
    }
    ASSERT(allocation > 4 && status == FSDP_OK);
    ASSERT_INT(n, 2);
    ASSERT_INT(steps[0], 3);
    ASSERT_INT(steps[1], 7);
    fsdp_free(steps);
}
