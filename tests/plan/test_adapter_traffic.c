/* The bytes that a step with an adapter gathers and reduces, as the transport counts them, are
 * those of the plan: the gathers and reductions of units, and the small collectives, such as the
 * sums of squares for the norm of the gradients.
 *
 * A run of three steps and one of four differ by one step. The counters of the process group, which
 * count what every collective moves, are read before and after each run. */
#include <stdio.h>
#include <string.h>

#include <fsdp/lora.h>
#include <fsdp/pretrained.h>

#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/comm/comm.h"
#include "src/plan/plan.h"
#include "src/train/trainer.h"
#include "tests/test.h"

/* Odd sizes: no dimension is a multiple of the number of ranks, and the last blocks of NF4 are
 * short. */
static const char llama_json[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 67,"
    " \"hidden_size\": 21, \"intermediate_size\": 37, \"num_hidden_layers\": 3,"
    " \"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 6,"
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}";
/* Matrices of whole blocks of NF4 for each of four ranks. */
static const char wide_json[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 67,"
    " \"hidden_size\": 256, \"intermediate_size\": 512, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 4,"
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}";

enum {
    PATH = 300,
    TEXT = 2048,
    WORDS = 64,
    LENGTH = 13,
    ROWS = 4 * 3 * 4 /* for the longest run: ranks, micro-steps, steps */
};

/* A vocabulary that is as large for its blocks as that of Llama 3 8B: the head has 6.5 % of the
 * parameters. */
static const char large_vocabulary_json[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 1504,"
    " \"hidden_size\": 256, \"intermediate_size\": 1024, \"num_hidden_layers\": 5,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 4,"
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}";

/* Write weights in `dtype` for the folder's config.json. */
static void write_weights(fsdp_test *t, const char *config_path, const char *dir, fsdp_dtype dtype)
{
    fsdp_model_config config;
    fsdp_module *model;
    fsdp_device *device;
    ASSERT_OK(fsdp_model_config_read(config_path, &config));
    ASSERT_OK(fsdp_model_create(&config, &model));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_module_to_empty(model, device));
    ASSERT_OK(fsdp_module_init(model, 2));
    ASSERT_OK(fsdp_module_save(model, dir, NULL, &(fsdp_save_options){.dtype = dtype}));
    fsdp_module_destroy(model);
    fsdp_device_destroy(device);
}

/* Write an adapter whose layers have different ranks, as rank_pattern says. */
static void write_adapter(fsdp_test *t, const char *config_path, const char *dir)
{
    static const fsdp_lora_pattern ranks[] = {{"q_proj", 5}, {".*1\\..*down_proj", 7}};
    const fsdp_lora_config lora = {
        .r = 3, .target_pattern = "all-linear", .rank_pattern = ranks, .n_rank_pattern = 2};
    const fsdp_lora_about about = {.base_model = "model", .task_type = "CAUSAL_LM"};
    fsdp_model_config config;
    fsdp_module *model;
    fsdp_device *device;
    ASSERT_OK(fsdp_model_config_read(config_path, &config));
    ASSERT_OK(fsdp_model_create(&config, &model));
    ASSERT_OK(fsdp_lora_apply(model, &lora));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_module_to_empty(model, device));
    ASSERT_OK(fsdp_module_init(model, 1));
    ASSERT_OK(fsdp_directory_make(dir));
    ASSERT_OK(fsdp_lora_save(model, &lora, &about, FSDP_DTYPE_F32, dir, NULL));
    fsdp_module_destroy(model);
    fsdp_device_destroy(device);
}

static void write_rows(fsdp_test *t, const char *path)
{
    FILE *file = fopen(path, "w");
    ASSERT(file);
    for (int i = 0; i < ROWS; i++) {
        char ids[LENGTH * 4] = "";
        for (int k = 0, at = 0; k < LENGTH; k++)
            at += snprintf(ids + at, sizeof ids - (size_t)at, "%s%d", k ? ", " : "",
                           2 + (i + k * 5) % 60);
        fprintf(file, "{\"input_ids\": [%s], \"labels\": [%s]}\n", ids, ids);
    }
    fclose(file);
}

static void make_files(fsdp_test *t, const char *json, fsdp_dtype dtype, char dir[PATH])
{
    char path[PATH + 30], adapter[PATH + 30];
    if (t->rank == 0) {
        snprintf(dir, PATH, "%s", fsdp_test_dir(t));
        snprintf(path, sizeof path, "%s/model", dir);
        ASSERT_OK(fsdp_directory_make(path));
        snprintf(path, sizeof path, "%s/model/config.json", dir);
        ASSERT_OK(fsdp_file_write(path, json, strlen(json)));
        snprintf(adapter, sizeof adapter, "%s/model", dir);
        write_weights(t, path, adapter, dtype);
        CHECK_HERE();
        snprintf(adapter, sizeof adapter, "%s/adapter", dir);
        write_adapter(t, path, adapter);
        CHECK_HERE();
        snprintf(path, sizeof path, "%s/train.jsonl", dir);
        write_rows(t, path);
    }
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, dir, PATH, 0));
}

static fsdp_status parse(const char *dir, const char *flags, int steps, char text[TEXT],
                         fsdp_train_config *config, fsdp_options **options)
{
    char *argv[WORDS];
    int argc = 0;
    snprintf(text, TEXT,
             "train --model %s/model --data %s/train.jsonl --no-save-model "
             "--threads-per-rank 1 --num-workers 0 --batch-size 1 --max-seq-length 13 "
             "--max-steps %d %s",
             dir, dir, steps, flags);
    if (strstr(flags, "ADAPTER"))
        snprintf(text + strlen(text), TEXT - strlen(text), " --adapter %s/adapter", dir);
    char *rest = text;
    for (char *word; argc < WORDS - 1 && (word = strsep(&rest, " "));)
        if (*word && strcmp(word, "ADAPTER") != 0)
            argv[argc++] = word;
    argv[argc] = NULL;
    *config = (fsdp_train_config){0};
    return fsdp_options_parse(fsdp_train_options(), argc, argv, config, options);
}

typedef struct traffic {
    uint64_t all, reduced; /* bytes of all collectives, and of the reductions of units */
} traffic;

static traffic counted(const fsdp_group *group)
{
    const fsdp_comm_counters *c = fsdp_group_counters(group);
    const uint64_t reduced = c->logical_bytes[FSDP_KIND_REDUCE_SCATTER];
    return (traffic){c->logical_bytes[FSDP_KIND_ALL_GATHER] + reduced +
                         c->logical_bytes[FSDP_KIND_ALL_REDUCE] +
                         c->logical_bytes[FSDP_KIND_BROADCAST],
                     reduced};
}

/* Train, and set *moved to what the collectives of the run moved. */
static void run(fsdp_test *t, const char *dir, const char *flags, int steps, traffic *moved)
{
    char text[TEXT];
    fsdp_train_config config;
    fsdp_options *options;
    fsdp_train_result result;
    ASSERT_OK(parse(dir, flags, steps, text, &config, &options));
    const traffic before = counted(t->group);
    const fsdp_status status = fsdp_train_run(&config, t->group, NULL, &result);
    if (status != FSDP_OK)
        fsdp_group_abort(t->group, status);
    ASSERT_OK(status);
    const traffic after = counted(t->group);
    *moved = (traffic){after.all - before.all, after.reduced - before.reduced};
    ASSERT_INT(result.steps, steps);
    fsdp_options_destroy(options);
    ASSERT_OK(fsdp_barrier(t->group));
}

static void make_plan(fsdp_test *t, const char *dir, const char *flags, fsdp_plan **plan)
{
    char text[TEXT];
    fsdp_train_config config;
    fsdp_options *options;
    ASSERT_OK(parse(dir, flags, 3, text, &config, &options));
    ASSERT_OK(fsdp_plan_create(&config, t->world_size, t->world_size, plan));
    fsdp_options_destroy(options);
}

static void check_traffic(fsdp_test *t, const char *dir, const char *flags)
{
    traffic three, four, planned = {0};
    fsdp_plan *plan;
    run(t, dir, flags, 3, &three);
    CHECK_HERE();
    run(t, dir, flags, 4, &four);
    CHECK_HERE();
    make_plan(t, dir, flags, &plan);
    CHECK_HERE();
    planned.all = plan->small_bytes;
    for (size_t i = 0; i < plan->n_units; i++) {
        planned.all += plan->units[i].all_gather_bytes + plan->units[i].reduce_scatter_bytes;
        planned.reduced += plan->units[i].reduce_scatter_bytes;
    }
    fsdp_plan_destroy(plan);
    if (four.all - three.all != planned.all)
        FAIL("%s: the collectives of a step have %llu bytes, and the plan says %llu", flags,
             (unsigned long long)(four.all - three.all), (unsigned long long)planned.all);
    if (four.reduced - three.reduced != planned.reduced)
        FAIL("%s: a step reduces %llu bytes, and the plan says %llu", flags,
             (unsigned long long)(four.reduced - three.reduced),
             (unsigned long long)planned.reduced);
    ASSERT((planned.all > planned.reduced) == (t->world_size > 1));
    ASSERT((planned.reduced > 0) == (t->world_size > 1));
}

static void steps_move_what_is_planned(fsdp_test *t)
{
    static const char *const ways[] = {
        "--lora-r 3 --lora-target-modules all-linear",
        "--bf16 --lora-r 5 --lora-target-modules all-linear --use-dora",
        "--bf16 --lora-r 3 --activation-checkpointing --gradient-accumulation-steps 3",
        "--bf16 --reduce-dtype bfloat16 --lora-r 1 --lora-bias all",
        "--sharding-strategy SHARD_GRAD_OP --bf16 --lora-r 3",
        "ADAPTER",
        "ADAPTER --bf16 --load-in-4bit",
        "--bf16 --lora-r 3 --lora-target-modules all-linear --load-in-4bit",
        "--lora-r 3 --load-in-4bit --bnb-4bit-use-double-quant --gradient-accumulation-steps 3",
        "--lora-r 3 --load-in-4bit --activation-checkpointing --use-dora",
    };
    char dir[PATH];
    make_files(t, llama_json, FSDP_DTYPE_F32, dir);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(ways); i++) {
        check_traffic(t, dir, ways[i]);
        CHECK_HERE();
    }
}

TEST_RANKS(a_step_moves_what_is_planned_at_1_rank, 1)
{
    steps_move_what_is_planned(t);
}

TEST_RANKS(a_step_moves_what_is_planned_at_2_ranks, 2)
{
    steps_move_what_is_planned(t);
}

TEST_RANKS(a_step_moves_what_is_planned_at_4_ranks, 4)
{
    if (UNDER_SANITIZER)
        SKIP("as at 2 ranks");
    steps_move_what_is_planned(t);
}

/* A block has two norms of 256 elements, which keep their dtype. Its matrices are in NF4, and the
 * adapter of rank 1 is gathered in bfloat16 in forward and again in backward. */
TEST_RANKS(a_block_in_4_bits_gathers_at_most_0_6_bytes_a_parameter, 4)
{
    static const char flags[] = "--bf16 --lora-r 1 --lora-target-modules q_proj --load-in-4bit "
                                "--bnb-4bit-use-double-quant";
    char dir[PATH];
    fsdp_plan *plan;
    int blocks = 0;
    make_files(t, wide_json, FSDP_DTYPE_F32, dir);
    CHECK_HERE();
    check_traffic(t, dir, flags);
    CHECK_HERE();
    make_plan(t, dir, flags, &plan);
    CHECK_HERE();
    for (size_t i = 0; i < plan->n_units; i++) {
        const fsdp_plan_unit *u = &plan->units[i];
        if (strcmp(u->class_name, "LlamaDecoderLayer") != 0)
            continue;
        blocks++;
        ASSERT(u->all_gather_bytes * 10 <= (uint64_t)u->numel * 6);
    }
    ASSERT_INT(blocks, 2);
    fsdp_plan_destroy(plan);
}

/* The head keeps bfloat16 and is gathered whole. The embedding, which has as many parameters, is
 * not gathered: the ranks read the 13 rows that they look up. */
static void check_bytes_of_all_parameters(fsdp_test *t)
{
    static const char flags[] = "--bf16 --lora-r 1 --lora-target-modules q_proj --load-in-4bit "
                                "--bnb-4bit-use-double-quant";
    char dir[PATH];
    fsdp_plan *plan;
    uint64_t gathered = 0, of_table = 0, numel = 0;
    make_files(t, large_vocabulary_json, FSDP_DTYPE_BF16, dir);
    CHECK_HERE();
    check_traffic(t, dir, flags);
    CHECK_HERE();
    make_plan(t, dir, flags, &plan);
    CHECK_HERE();
    for (size_t i = 0; i < plan->n_units; i++) {
        const fsdp_plan_unit *u = &plan->units[i];
        gathered += u->all_gather_bytes;
        numel += (uint64_t)u->numel;
        if (strcmp(u->class_name, "Embedding") == 0)
            of_table += u->all_gather_bytes;
    }
    fsdp_plan_destroy(plan);
    ASSERT_INT(of_table, LENGTH * 256 * 2);
    ASSERT(gathered * 10 <= numel * 6);
}

TEST_RANKS(a_step_of_qlora_gathers_at_most_0_6_bytes_a_parameter_at_2_ranks, 2)
{
    check_bytes_of_all_parameters(t);
}

TEST_RANKS(a_step_of_qlora_gathers_at_most_0_6_bytes_a_parameter_at_4_ranks, 4)
{
    check_bytes_of_all_parameters(t);
}
