/* Compares the plan of a run with the run: requested bytes by purpose, allocated memory, the bounds
 * of fully sharded training, and the verdict on a limit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/plan/memory_limit.h"
#include "src/plan/plan.h"
#include "src/train/trainer.h"
#include "tests/test.h"

/* Models whose dimensions are all uneven. */
static const char t5_json[] =
    "{\"model_type\": \"t5\", \"architectures\": [\"T5ForConditionalGeneration\"],"
    " \"is_encoder_decoder\": true, \"d_model\": 21, \"d_kv\": 5, \"num_heads\": 3, \"d_ff\": 37,"
    " \"num_layers\": 2, \"num_decoder_layers\": 2, \"vocab_size\": 67,"
    " \"relative_attention_num_buckets\": 8, \"dropout_rate\": 0.1, \"layer_norm_epsilon\": 1e-6,"
    " \"feed_forward_proj\": \"gated-gelu\", \"tie_word_embeddings\": false,"
    " \"pad_token_id\": 0, \"eos_token_id\": 1, \"decoder_start_token_id\": 0}";
/* Tied, so the embedding belongs to the root: gradient buffers of few and unequal units. */
static const char tied_json[] =
    "{\"model_type\": \"t5\", \"architectures\": [\"T5ForConditionalGeneration\"],"
    " \"is_encoder_decoder\": true, \"d_model\": 48, \"d_kv\": 12, \"num_heads\": 4, \"d_ff\": 80,"
    " \"num_layers\": 2, \"num_decoder_layers\": 2, \"vocab_size\": 320,"
    " \"relative_attention_num_buckets\": 32, \"dropout_rate\": 0.0, \"layer_norm_epsilon\": 1e-6,"
    " \"feed_forward_proj\": \"relu\", \"tie_word_embeddings\": true,"
    " \"pad_token_id\": 0, \"eos_token_id\": 1, \"decoder_start_token_id\": 0}";
static const char llama_json[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 67,"
    " \"hidden_size\": 21, \"intermediate_size\": 37, \"num_hidden_layers\": 3,"
    " \"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 6,"
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}";
static const char gpt2_json[] =
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"vocab_size\": 67,"
    " \"n_embd\": 21, \"n_layer\": 3, \"n_head\": 3, \"n_positions\": 64,"
    " \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-5}";
static const char bert_json[] =
    "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"],"
    " \"vocab_size\": 67, \"hidden_size\": 21, \"intermediate_size\": 37, \"num_hidden_layers\": 3,"
    " \"num_attention_heads\": 3, \"max_position_embeddings\": 40, \"type_vocab_size\": 2,"
    " \"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-12, \"pad_token_id\": 0,"
    " \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"},"
    " \"label2id\": {\"a\": 0, \"b\": 1, \"c\": 2}}";
/* The blocks are most of the model. */
static const char deep_json[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 32,"
    " \"hidden_size\": 32, \"intermediate_size\": 96, \"num_hidden_layers\": 16,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-6,"
    " \"max_position_embeddings\": 64, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\","
    " \"tie_word_embeddings\": false}";

enum {
    PATH = 300,
    SOURCE = 13,
    TARGET = 7,
    ROWS = 4 * 64 * 3, /* for the longest run: ranks, micro-steps, steps */
    WORDS = 64
};

/* A model with rows of full length, and the flags for them. */
typedef struct subject {
    const char *config;
    int labels;
    const char *flags;
} subject;

static const subject subjects[] = {
    {t5_json, TARGET, "--max-source-length 13 --max-target-length 7"},
    {llama_json, SOURCE, "--max-seq-length 13"},
    {gpt2_json, SOURCE, "--max-seq-length 13"},
    {bert_json, 1, "--max-seq-length 13"},
};

static const subject deep = {deep_json, SOURCE, ""};

static void write_rows(fsdp_test *t, const char *path, const subject *s)
{
    FILE *file = fopen(path, "w");
    ASSERT(file);
    for (int i = 0; i < ROWS; i++) {
        fputs("{\"input_ids\": [", file);
        for (int k = 0; k < SOURCE; k++)
            fprintf(file, "%s%d", k ? ", " : "", 2 + (i + k * 5) % 60);
        if (s->labels == 1)
            fprintf(file, "], \"label\": %d}\n", i % 3);
        else {
            fputs("], \"labels\": [", file);
            for (int k = 0; k < s->labels; k++)
                fprintf(file, "%s%d", k ? ", " : "", 2 + (i + k * 5) % 60);
            fputs("]}\n", file);
        }
    }
    fclose(file);
}

static void make_files(fsdp_test *t, const subject *s, char dir[PATH])
{
    char path[PATH + 20];
    if (t->rank == 0) {
        snprintf(dir, PATH, "%s", fsdp_test_dir(t));
        snprintf(path, sizeof path, "%s/model", dir);
        ASSERT_OK(fsdp_directory_make(path));
        snprintf(path, sizeof path, "%s/model/config.json", dir);
        ASSERT_OK(fsdp_file_write(path, s->config, strlen(s->config)));
        snprintf(path, sizeof path, "%s/train.jsonl", dir);
        write_rows(t, path, s);
    }
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, dir, PATH, 0));
}

/* Options of `fsdp train` for the files in `dir`, with the words of two more texts appended. */
static fsdp_status parse(const char *dir, const char *flags, const char *more, char text[2048],
                         fsdp_train_config *config, fsdp_options **options)
{
    char *argv[WORDS];
    int argc = 0;
    snprintf(text, 2048,
             "train --model %s/model --from-config --data %s/train.jsonl --no-save-model "
             "--threads-per-rank 1 --num-workers 0 --batch-size 1 --max-steps 3 --metrics "
             "%s/metrics.jsonl %s %s",
             dir, dir, dir, flags, more);
    char *rest = text;
    for (char *word; argc < WORDS - 1 && (word = strsep(&rest, " "));)
        if (*word)
            argv[argc++] = word;
    argv[argc] = NULL;
    *config = (fsdp_train_config){0};
    return fsdp_options_parse(fsdp_train_options(), argc, argv, config, options);
}

/* --- the run --- */

typedef struct held {
    fsdp_plan_memory most;
    int64_t reserved;
} held;

/* Reads the peaks of each rank from the last line of the run's metrics. */
static fsdp_status read_metrics(const char *dir, int ranks, held *all)
{
    char path[PATH + 20], line[16384], last[16384] = "";
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *file = fopen(path, "r");
    if (!file)
        return fsdp_error(FSDP_ERR_IO, "%s cannot be read", path);
    while (fgets(line, sizeof line, file))
        memcpy(last, line, sizeof last);
    fclose(file);
    fsdp_json *doc;
    fsdp_json_node list;
    FSDP_TRY(fsdp_json_parse(path, 1, last, strlen(last), &doc));
    fsdp_status status = fsdp_json_get_array(fsdp_json_root(doc), "memory_peak_by_rank", &list);
    for (int r = 0; r < ranks && status == FSDP_OK; r++) {
        fsdp_json_node rank = fsdp_json_at(list, (size_t)r);
        for (int tag = 0; tag < FSDP_TAG_COUNT && status == FSDP_OK; tag++)
            status = fsdp_json_get_i64(rank, fsdp_tag_name((fsdp_tag)tag), 0, INT64_MAX,
                                       &all[r].most.tag[tag]);
        if (status == FSDP_OK)
            status = fsdp_json_get_i64(rank, "allocated", 0, INT64_MAX, &all[r].most.total);
        if (status == FSDP_OK)
            status = fsdp_json_get_i64(rank, "reserved", 0, INT64_MAX, &all[r].reserved);
    }
    fsdp_json_destroy(doc);
    return status;
}

/* Rank 0 has the most rows. The plan describes rank 0, to the byte; the other ranks use no more. */
static void compare(fsdp_test *t, const char *what, const fsdp_plan *plan, const held *all)
{
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++) {
        if (plan->most.tag[tag] != all[0].most.tag[tag])
            FAIL("%s: %s of %lld planned, %lld asked for", what, fsdp_tag_name((fsdp_tag)tag),
                 (long long)plan->most.tag[tag], (long long)all[0].most.tag[tag]);
        for (int r = 1; r < t->world_size; r++)
            ASSERT(all[r].most.tag[tag] <= plan->most.tag[tag]);
    }
    ASSERT_INT(plan->most.total, all[0].most.total);
    ASSERT_INT(plan->reserved, all[0].reserved);
    ASSERT_INT(plan->peak.total, plan->most.total);
}

static void check_run(fsdp_test *t, const char *dir, const subject *s, const char *more)
{
    char text[2048], copy[PATH];
    fsdp_train_config config;
    fsdp_options *options;
    fsdp_train_result result;
    held all[16];
    ASSERT_OK(parse(dir, s->flags, more, text, &config, &options));
    fsdp_status status = fsdp_train_run(&config, t->group, NULL, &result);
    if (status != FSDP_OK)
        fsdp_group_abort(t->group, status);
    ASSERT_OK(status);
    ASSERT_INT(result.steps, config.max_steps);
    if (t->rank == 0) {
        fsdp_plan *plan;
        snprintf(copy, sizeof copy, "%s", dir);
        ASSERT_OK(read_metrics(copy, t->world_size, all));
        ASSERT_OK(fsdp_plan_create(&config, t->world_size, t->world_size, &plan));
        compare(t, more, plan, all);
        fsdp_plan_destroy(plan);
    }
    fsdp_options_destroy(options);
    ASSERT_OK(fsdp_barrier(t->group)); /* the next run overwrites the metrics */
}

/* Every way to shard, and the options that save memory or change dtypes, with every model. */
static void plans_are_what_runs_ask_for(fsdp_test *t)
{
    static const char *const ways[] = {
        "",
        "--bf16",
        "--sharding-strategy SHARD_GRAD_OP --bf16",
        "--sharding-strategy SHARD_GRAD_OP --fp16 --init-scale 1",
        "--bf16 --optimizer adafactor",
        "--sharding-strategy NO_SHARD",
        "--activation-checkpointing",
        "--bf16 --reduce-dtype bfloat16 --activation-checkpointing --gradient-accumulation-steps 3",
        "--master-dtype bfloat16 --bf16 --optimizer adafactor --max-grad-norm 1",
        "--auto-wrap-policy NO_WRAP --optimizer sgd --momentum 0.9",
        "--optimizer adamw_8bit --bf16",
        "--optimizer schedule_free_adamw --lr-schedule constant --bf16",
        "--optimizer-state-dtype bf16 --master-dtype bf16 --bf16 --bf16-stochastic-round",
        "--fp16 --init-scale 1 --gradient-accumulation-steps 3 --sync-each-batch false",
        "--activation-checkpointing --activation-checkpointing-every 2 --bf16",
        "--activation-checkpointing --activation-checkpointing-kind op",
        "--activation-checkpointing --activation-offload --bf16",
        "--offload-dir /tmp --bf16",
        "--cpu-offload --offload-dir /tmp --optimizer adafactor",
        "--bf16 --backward-prefetch BACKWARD_POST --forward-prefetch",
    };
    for (size_t i = 0; i < FSDP_LENGTH(subjects); i++) {
        char dir[PATH];
        make_files(t, &subjects[i], dir);
        CHECK_HERE();
        for (size_t k = 0; k < FSDP_LENGTH(ways); k++) {
            check_run(t, dir, &subjects[i], ways[k]);
            CHECK_HERE();
        }
    }
}

TEST_RANKS(a_plan_is_what_the_run_asks_for_at_1_rank, 1)
{
    if (UNDER_SANITIZER)
        SKIP("as at 2 ranks");
    plans_are_what_runs_ask_for(t);
}

TEST_RANKS(a_plan_is_what_the_run_asks_for_at_2_ranks, 2)
{
    plans_are_what_runs_ask_for(t);
}

TEST_RANKS(a_plan_is_what_the_run_asks_for_at_4_ranks, 4)
{
    if (UNDER_SANITIZER)
        SKIP("as at 2 ranks");
    plans_are_what_runs_ask_for(t);
}

/* Frozen parameters are stored once for all ranks, whatever the strategy. */
TEST_RANKS(a_plan_of_frozen_parameters_is_what_the_run_asks_for, 2)
{
    char dir[PATH];
    make_files(t, &subjects[0], dir);
    CHECK_HERE();
    check_run(t, dir, &subjects[0], "--frozen-prefixes encoder --bf16");
    CHECK_HERE();
    check_run(t, dir, &subjects[0], "--frozen-prefixes encoder --sharding-strategy NO_SHARD");
}

/* More ranks than cores; idle memory is discarded after each step. */
TEST_RANKS(a_plan_is_what_the_run_asks_for_at_16_ranks, 16)
{
    char dir[PATH];
    make_files(t, &subjects[1], dir);
    CHECK_HERE();
    check_run(t, dir, &subjects[1], "");
    check_run(t, dir, &subjects[1], "--bf16 --gradient-accumulation-steps 3");
}

/* Partial sums of many micro-steps form a stack. */
TEST_RANKS(a_plan_of_64_micro_steps_is_what_the_run_asks_for, 4)
{
    char dir[PATH];
    make_files(t, &subjects[0], dir);
    CHECK_HERE();
    check_run(t, dir, &subjects[0], "--gradient-accumulation-steps 64 --bf16");
}

TEST_RANKS(a_plan_over_replicas_is_what_the_run_asks_for, 4)
{
    static const char *const ways[] = {
        "--sharding-strategy HYBRID_SHARD --shard-size 2",
        "--sharding-strategy HYBRID_SHARD_ZERO2 --shard-size 2 --bf16",
        ("--sharding-strategy HYBRID_SHARD --shard-size 2 --gradient-accumulation-steps 3 "
         "--gradient-accumulation-mode reduce-scatter"),
        "--reshard-after-forward 2 --bf16",
        "--frozen-prefixes model.layers.0.,model.embed --bf16",
    };
    char dir[PATH];
    make_files(t, &subjects[1], dir);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(ways); i++) {
        check_run(t, dir, &subjects[1], ways[i]);
        CHECK_HERE();
    }
}

/* Which gradient buffers stay allocated between steps is settled in the third step: the second
 * step's peak is too low. */
TEST_RANKS(a_plan_goes_on_until_what_waits_has_settled, 4)
{
    static const subject tied = {tied_json, TARGET, "--max-source-length 13 --max-target-length 7"};
    char dir[PATH];
    make_files(t, &tied, dir);
    CHECK_HERE();
    check_run(t, dir, &tied,
              "--sharding-strategy HYBRID_SHARD_ZERO2 --shard-size 2 --bf16 --max-steps 5");
    CHECK_HERE();
    check_run(t, dir, &tied,
              "--gradient-accumulation-steps 2 --gradient-accumulation-mode no-sync --max-steps 5");
}

/* Flags for single units and parameters, and for no-sync and similar controls. */
TEST_RANKS(a_plan_heeds_flags_as_the_run_does, 2)
{
    static const char *const ways[] = {
        "--bf16 --explicit-prefetching --no-limit-all-gathers",
        "--bf16 --blocks-per-unit 2",
        "--bf16 --joint-units model.embed_tokens,lm_head",
        "--shard-placement *_proj.weight:-1 --bf16",
        "--frozen-prefixes lm_head,model.layers.1.mlp --ignored-modules lm_head,*.1.mlp --bf16",
        "--unit-mp-policy model.layers.1:bf16:bf16:float32",
        "--bf16 --no-reshard-after-backward --gradient-accumulation-steps 3",
        "--bf16 --set-is-last-backward --gradient-accumulation-steps 3",
        "--no-decay auto --optimizer adafactor --relative-step --adafactor-beta1 0.9",
        "--min-num-params 1000 --force-leaf-modules LlamaMLP",
    };
    char dir[PATH];
    make_files(t, &subjects[1], dir);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(ways); i++) {
        check_run(t, dir, &subjects[1], ways[i]);
        CHECK_HERE();
    }
}

/* Batches of validation may be larger than those of a step. A save gathers whole parameters. */
TEST_RANKS(a_plan_has_validation_and_save_in_it, 2)
{
    for (size_t i = 0; i < FSDP_LENGTH(subjects); i++) {
        char dir[PATH], more[3 * PATH];
        make_files(t, &subjects[i], dir);
        CHECK_HERE();
        snprintf(more, sizeof more,
                 "--validation-data %s/train.jsonl --validation-batch-size 32 "
                 "--max-validation-samples 64 --save-model --output %s/out --overwrite-output",
                 dir, dir);
        check_run(t, dir, &subjects[i], more);
        CHECK_HERE();
    }
}

/* --- bounds --- */

static fsdp_plan *plan_of(fsdp_test *t, const char *dir, const char *flags, int ranks, int local)
{
    char text[2048];
    fsdp_train_config config;
    fsdp_options *options;
    fsdp_plan *plan = NULL;
    fsdp_status status = parse(dir, "--max-seq-length 13", flags, text, &config, &options);
    if (status == FSDP_OK)
        status = fsdp_plan_create(&config, ranks, local, &plan);
    if (status == FSDP_OK)
        fsdp_options_destroy(options);
    else
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s", flags, fsdp_last_error());
    return plan;
}

typedef struct bars {
    int64_t shard, unit, rest; /* bytes: rank 0's rows, the largest unit, outside of units */
} bars;

static bars bars_of(const fsdp_plan *p)
{
    bars b = {.rest = p->units[0].numel * 4};
    for (size_t i = 0; i < p->n_units; i++) {
        b.shard += p->units[i].local_numel * 4;
        if (i && p->units[i].numel * 4 > b.unit)
            b.unit = p->units[i].numel * 4;
    }
    return b;
}

/* The peak of parameters and gradients, including buffers that wait for the next unit or step. */
static int64_t most_sharded(const fsdp_plan *p, fsdp_plan_phase phase)
{
    return p->most_in[phase].tag[FSDP_TAG_PARAM] + p->most_in[phase].tag[FSDP_TAG_GRAD];
}

static void at_most(fsdp_test *t, const char *what, const char *flags, int ranks, int64_t bytes,
                    int64_t bar)
{
    if (bytes > bar)
        FAIL("%s with '%s' at %d ranks: %lld bytes, the bar is %lld", what, flags, ranks,
             (long long)bytes, (long long)bar);
}

/* PyTorch's bounds (test_fully_shard_memory.py): the sharded parameters and gradients, plus three
 * working units and the parameters outside of units. Sums of earlier micro-steps are a stack of up
 * to `sums` shards. */
static void check_bars(fsdp_test *t, const char *dir, const char *flags, int ranks, int sums)
{
    fsdp_plan *p = plan_of(t, dir, flags, ranks, ranks);
    CHECK_HERE();
    const bars b = bars_of(p);
    const int64_t slack = 32 * 128; /* buffers are padded to 32 elements for each tensor */
    const int64_t work = 3 * b.unit + b.rest + sums * b.shard + slack;
    at_most(t, "init", flags, ranks, p->init.total, b.shard + b.unit);
    at_most(t, "forward", flags, ranks, most_sharded(p, FSDP_PLAN_FORWARD), b.shard + work);
    at_most(t, "backward", flags, ranks, most_sharded(p, FSDP_PLAN_BACKWARD), 2 * b.shard + work);
    at_most(t, "recomputation", flags, ranks, most_sharded(p, FSDP_PLAN_RECOMPUTATION),
            2 * b.shard + work);
    at_most(t, "the step", flags, ranks, p->step.total, 4 * b.shard);
    fsdp_plan_destroy(p);
}

TEST(memory_at_each_moment_is_shards_and_few_units)
{
    char dir[PATH];
    make_files(t, &deep, dir);
    CHECK_HERE();
    for (int ranks = 2; ranks <= 64; ranks *= 2) {
        check_bars(t, dir, "", ranks, 0);
        CHECK_HERE();
        check_bars(t, dir, "--bf16", ranks, 0);
        CHECK_HERE();
        check_bars(t, dir, "--fp16", ranks, 0);
        CHECK_HERE();
        check_bars(t, dir, "--bf16 --activation-checkpointing", ranks, 0);
        CHECK_HERE();
        check_bars(t, dir, "--gradient-accumulation-steps 64", ranks, 6);
        CHECK_HERE();
    }
}

/* Frozen parameters have no gradients, moments or gradient buffers. Trained parameters may leave
 * the same amount of idle memory. */
TEST(what_is_frozen_costs_its_shard_only)
{
    char dir[PATH];
    make_files(t, &deep, dir);
    CHECK_HERE();
    for (int ranks = 2; ranks <= 64; ranks *= 4) {
        fsdp_plan *p = plan_of(t, dir, "--frozen-prefixes model.layers.", ranks, ranks);
        CHECK_HERE();
        const bars b = bars_of(p);
        int64_t trained = 0;
        for (size_t i = 0; i < p->n_units; i++)
            if (strcmp(p->units[i].class_name, "LlamaDecoderLayer") != 0)
                trained += p->units[i].local_numel * 4;
        ASSERT(trained > 0 && trained < b.shard / 10);
        ASSERT(p->init.total <= b.shard);
        ASSERT(p->most.tag[FSDP_TAG_PARAM] <= b.shard);
        ASSERT(p->step.total <= b.shard + 3 * trained);
        fsdp_plan_destroy(p);
    }
}

/* --- collectives and their order --- */

/* FULL_SHARD gathers a block for forward and for backward. It gathers a unit once if backward
 * begins with it (the root, the head) or does not read it (the embedding). SHARD_GRAD_OP gathers
 * each unit once. Bytes are those of all ranks' rows. */
TEST(collectives_are_counted_by_unit)
{
    char dir[PATH];
    make_files(t, &subjects[1], dir);
    CHECK_HERE();
    fsdp_plan *full = plan_of(t, dir, "--bf16 --gradient-accumulation-steps 2", 8, 8);
    fsdp_plan *kept = plan_of(t, dir, "--bf16 --sharding-strategy SHARD_GRAD_OP", 8, 8);
    CHECK_HERE();
    ASSERT_INT(full->n_units, 6);
    for (int i = 0; i < 6; i++) {
        const fsdp_plan_unit *u = &full->units[i], *k = &kept->units[i];
        const int times = strcmp(u->class_name, "LlamaDecoderLayer") == 0 ? 2 : 1;
        ASSERT_INT(u->all_gathers, 2 * times);
        ASSERT_INT(u->all_gather_bytes, 2 * times * u->numel * 2);
        ASSERT_INT(u->reduce_scatters, 2);
        ASSERT_INT(u->reduce_scatter_bytes, 2 * u->numel * 4);
        ASSERT_INT(u->all_reduces, 0);
        ASSERT_INT(k->all_gathers, 1);
        ASSERT_INT(k->reduce_scatters, 1);
    }
    fsdp_plan *alone = plan_of(t, dir, "--bf16", 1, 1);
    CHECK_HERE();
    ASSERT_INT(alone->units[1].all_gathers, 0);
    fsdp_plan_destroy(alone);
    fsdp_plan_destroy(full);
    fsdp_plan_destroy(kept);
}

/* Units by default, or exactly those that the user names. A tied embedding belongs to the root. */
TEST(embedding_and_head_are_units_unless_the_user_names_others)
{
    static const char *const names[] = {
        "", "model.embed_tokens", "model.layers.0", "model.layers.1", "model.layers.2", "lm_head"};
    char dir[PATH];
    make_files(t, &subjects[1], dir);
    CHECK_HERE();
    fsdp_plan *p = plan_of(t, dir, "", 2, 2);
    fsdp_plan *named =
        plan_of(t, dir, "--fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer", 2, 2);
    CHECK_HERE();
    ASSERT_INT(p->n_units, FSDP_LENGTH(names));
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        ASSERT_STR(p->units[i].name, names[i]);
    ASSERT_INT(named->n_units, 4);
    ASSERT_STR(named->units[1].name, "model.layers.0");
    fsdp_plan_destroy(p);
    fsdp_plan_destroy(named);
    make_files(t, &subjects[2], dir); /* GPT-2's is tied */
    CHECK_HERE();
    p = plan_of(t, dir, "", 2, 2);
    CHECK_HERE();
    ASSERT_INT(p->n_units, 4);
    fsdp_plan_destroy(p);
}

/* Two numbers of the names count up, one after the other. */
TEST(units_share_a_row_while_one_number_of_their_names_counts_up)
{
    static const char *const names[] = {"a.0.0", "a.0.1", "a.1.1", "a.2.1", "a.2.2"};
    fsdp_plan_unit units[FSDP_LENGTH(names)] = {{0}};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        units[i].name = (char *)(uintptr_t)names[i];
        units[i].class_name = (char *)(uintptr_t) "Block";
        units[i].numel = 7;
    }
    const fsdp_plan p = {.class_name = units[0].class_name,
                         .world_size = 1,
                         .local_world_size = 1,
                         .micro_steps = 1,
                         .units = units,
                         .n_units = FSDP_LENGTH(names)};
    char text[8192] = "";
    FILE *out = fmemopen(text, sizeof text - 1, "w");
    ASSERT(out != NULL);
    const fsdp_status status = fsdp_plan_print(&p, out, false);
    fclose(out);
    ASSERT_OK(status);
    ASSERT(strstr(text, " a.0.0-1 ") != NULL);
    ASSERT(strstr(text, " a.1-2.1 ") != NULL);
    ASSERT(strstr(text, " a.2.2 ") != NULL);
}

/* Finds an event of `kind` of `unit` after index `from`. Returns its index, or -1. */
static int find_event(const fsdp_plan *p, int from, fsdp_plan_event_kind kind, int unit,
                      fsdp_plan_phase phase)
{
    for (int i = from; i < (int)p->n_events; i++)
        if (p->events[i].kind == kind && p->events[i].unit == unit && p->events[i].phase == phase)
            return i;
    return -1;
}

/* Units are the root, the embedding, blocks, the head. The all-gather of block 1 is in progress
 * while block 0 computes, and in backward while block 2 computes. A unit is reduced after the one
 * before it has finished. */
TEST(the_schedule_names_what_is_in_progress)
{
    char dir[PATH];
    make_files(t, &subjects[1], dir);
    CHECK_HERE();
    fsdp_plan *p = plan_of(t, dir, "--fp16", 4, 4);
    CHECK_HERE();
    int begin = find_event(p, 0, FSDP_PLAN_BEGIN, 2, FSDP_PLAN_FORWARD);
    int gather = find_event(p, 0, FSDP_PLAN_GATHER, 3, FSDP_PLAN_FORWARD);
    int unshard = find_event(p, 0, FSDP_PLAN_UNSHARD, 3, FSDP_PLAN_FORWARD);
    ASSERT(gather >= 0 && gather < begin && begin < unshard);
    begin = find_event(p, 0, FSDP_PLAN_BEGIN, 4, FSDP_PLAN_BACKWARD);
    gather = find_event(p, unshard, FSDP_PLAN_GATHER, 3, FSDP_PLAN_BACKWARD);
    unshard = find_event(p, begin, FSDP_PLAN_UNSHARD, 3, FSDP_PLAN_BACKWARD);
    ASSERT(gather >= 0 && gather < begin && begin < unshard);
    int published = find_event(p, begin, FSDP_PLAN_POST, 3, FSDP_PLAN_BACKWARD);
    int reduced = find_event(p, begin, FSDP_PLAN_REDUCE, 4, FSDP_PLAN_BACKWARD);
    ASSERT(published >= 0 && published < reduced);
    fsdp_plan *last = plan_of(t, dir, "--fp16 --gradient-accumulation-steps 3", 4, 4);
    CHECK_HERE();
    ASSERT_INT(last->n_events, p->n_events); /* the events of the whole last micro-step */
    for (size_t i = 0; i < p->n_events; i++)
        ASSERT(last->events[i].kind == p->events[i].kind &&
               last->events[i].unit == p->events[i].unit);
    fsdp_plan_destroy(last);
    fsdp_plan_destroy(p);
}

/* --- hosts --- */

/* Hosts do not share master weights: float32 parameters are gathered into a buffer too, and a
 * rank's part of what a host shares is 1/L. */
TEST(ranks_of_several_hosts_hold_their_own_rows)
{
    char dir[PATH];
    make_files(t, &deep, dir);
    CHECK_HERE();
    fsdp_plan *one = plan_of(t, dir, "", 8, 8), *two = plan_of(t, dir, "", 8, 4);
    CHECK_HERE();
    ASSERT(two->init.total <= one->init.total);
    ASSERT(two->peak.tag[FSDP_TAG_PARAM] > one->peak.tag[FSDP_TAG_PARAM]);
    ASSERT_INT(two->units[1].all_gathers, one->units[1].all_gathers);
    ASSERT_INT(fsdp_plan_host_bytes(two), 4 * (two->reserved + FSDP_BESIDE_TENSORS_BYTES));
    fsdp_plan_destroy(one);
    fsdp_plan_destroy(two);
}

TEST(what_makes_no_plan_is_an_error)
{
    char dir[PATH], text[2048];
    fsdp_train_config config;
    fsdp_options *options;
    fsdp_plan *plan;
    make_files(t, &subjects[2], dir);
    CHECK_HERE();
    ASSERT_OK(parse(dir, "--batch-size 1048576", "", text, &config, &options));
    ASSERT_ERROR(fsdp_plan_create(&config, 6, 4, &plan), FSDP_ERR_INVALID, "local_world_size");
    config.max_seq_length = 65;
    ASSERT_ERROR(fsdp_plan_create(&config, 2, 2, &plan), FSDP_ERR_INVALID, "max-seq-length");
    config.max_seq_length = 64;
    config.batch_size = 1 << 30;
    ASSERT_ERROR(fsdp_plan_create(&config, 2, 2, &plan), FSDP_ERR_INVALID, "too large");
    fsdp_options_destroy(options);
}

/* --- limits --- */

static fsdp_status check_limit(const char *dir, const char *flags, int64_t limit)
{
    char text[2048];
    fsdp_train_config config;
    fsdp_options *options;
    FSDP_TRY(parse(dir, flags, "", text, &config, &options));
    config.memory_limit = limit;
    fsdp_status status = fsdp_memory_limit_check(&config, 2, 2);
    fsdp_options_destroy(options);
    return status;
}

/* The figure at the end of a verdict, as printed. */
static const char *figure(void)
{
    return strrchr(fsdp_last_error(), ':') + 2;
}

TEST(a_limit_below_the_plan_names_what_would_fit)
{
    const char *flags = "--max-seq-length 64 --batch-size 64 --sharding-strategy SHARD_GRAD_OP";
    char dir[PATH];
    make_files(t, &subjects[1], dir);
    CHECK_HERE();
    fsdp_plan *p = plan_of(t, dir, flags, 2, 2);
    CHECK_HERE();
    const int64_t needed = fsdp_plan_host_bytes(p);
    ASSERT_OK(check_limit(dir, flags, 0));
    ASSERT_OK(check_limit(dir, flags, needed));
    ASSERT_ERROR(check_limit(dir, flags, needed - 1), FSDP_ERR_NOMEM,
                 "it fits with --activation-checkpointing");
    ASSERT(strstr(fsdp_last_error(), "activation") && strstr(fsdp_last_error(), "most in "));
    ASSERT(strlen(figure()) > 3);
    ASSERT_ERROR(check_limit(dir, flags, 1 << 20), FSDP_ERR_NOMEM, "too much even with");
    fsdp_plan_destroy(p);
}

/* A small model's copies hold all that it keeps: what is allocated after the step, without
 * gradients. */
TEST(copies_beside_a_save_are_planned)
{
    const char *flags = "--max-seq-length 64 --save-steps 5 --checkpoint-dir none";
    char dir[PATH], more[200];
    make_files(t, &subjects[1], dir);
    CHECK_HERE();
    fsdp_plan *without = plan_of(t, dir, flags, 2, 2);
    snprintf(more, sizeof more, "%s --async-save", flags);
    fsdp_plan *with = plan_of(t, dir, more, 2, 2);
    CHECK_HERE();
    const int64_t kept = without->step.tag[FSDP_TAG_PARAM] + without->step.tag[FSDP_TAG_OPTIM];
    ASSERT_INT(without->staging, 0);
    ASSERT(kept > 0);
    ASSERT_INT(with->staging, kept);
    ASSERT_INT(fsdp_plan_host_bytes(with), fsdp_plan_host_bytes(without) + 2 * kept);
    ASSERT_ERROR(check_limit(dir, more, fsdp_plan_host_bytes(without)), FSDP_ERR_NOMEM,
                 "copies for --async-save");
    fsdp_plan_destroy(without);
    fsdp_plan_destroy(with);
}

/* The setting that the verdict recommends is planned within the limit. */
TEST(a_micro_batch_that_fits_is_found)
{
    const char *flags = "--max-seq-length 64 --batch-size 64 --activation-checkpointing";
    char dir[PATH];
    make_files(t, &subjects[1], dir);
    CHECK_HERE();
    fsdp_plan *p = plan_of(t, dir,
                           "--max-seq-length 64 --batch-size 16 --gradient-accumulation-steps 4 "
                           "--activation-checkpointing",
                           2, 2);
    CHECK_HERE();
    ASSERT_ERROR(check_limit(dir, flags, fsdp_plan_host_bytes(p)), FSDP_ERR_NOMEM,
                 "it fits with --batch-size 16 --gradient-accumulation-steps 4:");
    fsdp_plan_destroy(p);
}

/* Llama does not bound the length. A run whose rows have no bound has no plan. */
TEST(a_limit_needs_rows_of_bounded_length)
{
    char dir[PATH];
    make_files(t, &subjects[1], dir);
    CHECK_HERE();
    ASSERT_ERROR(check_limit(dir, "", INT64_MAX), FSDP_ERR_INVALID, "max_position_embeddings");
    make_files(t, &subjects[2], dir);
    CHECK_HERE();
    ASSERT_OK(check_limit(dir, "", INT64_MAX)); /* GPT-2 bounds the length */
}

/* Adafactor replaces states in 8 bits where they are not enough, and is left out if the command
 * line has an option that it does not have. */
TEST(a_verdict_tries_both_optimizers_with_small_states)
{
    static const char flags[] = "--max-seq-length 2048 --batch-size 1 --bf16";
    char dir[PATH], path[2 * PATH], all[256];
    static const char row[] = "{\"input_ids\": [1, 2, 3]}\n";
    snprintf(dir, sizeof dir, "%s", fsdp_test_dir(t));
    snprintf(path, sizeof path, "%s/train.jsonl", dir);
    ASSERT_OK(fsdp_file_write(path, row, strlen(row)));
    snprintf(path, sizeof path, "%s/model", dir);
    char *model = realpath(fsdp_test_path("fixtures/plan/llama3-1b"), NULL);
    ASSERT(model && symlink(model, path) == 0);
    free(model);
    snprintf(all, sizeof all, "%s --optimizer adafactor --cpu-offload --offload-dir d", flags);
    fsdp_plan *p = plan_of(t, dir, all, 2, 2);
    CHECK_HERE();
    const int64_t least = fsdp_plan_host_bytes(p);
    fsdp_plan_destroy(p);
    ASSERT_ERROR(check_limit(dir, flags, least), FSDP_ERR_NOMEM,
                 "it fits with --optimizer adafactor --cpu-offload --offload-dir DIR");
    snprintf(all, sizeof all, "%s --beta2 0.95", flags);
    ASSERT_ERROR(check_limit(dir, all, least), FSDP_ERR_NOMEM, "too much even with");
    ASSERT(!strstr(fsdp_last_error(), "adafactor"));
}

/* All ranks refuse in the same way, before anything is allocated. A run that fits continues. */
TEST_RANKS(a_run_within_its_limit_goes_on_and_one_beyond_fails_on_all_ranks, 2)
{
    char dir[PATH], text[2048];
    fsdp_train_config config;
    fsdp_options *options;
    fsdp_train_result result;
    make_files(t, &subjects[1], dir);
    CHECK_HERE();
    ASSERT_OK(parse(dir, subjects[1].flags, "--memory-limit 200MiB", text, &config, &options));
    ASSERT_OK(fsdp_memory_limit_check_job(&config, t->group));
    ASSERT_OK(fsdp_train_run(&config, t->group, NULL, &result));
    config.memory_limit = 100 << 20;
    ASSERT_ERROR(fsdp_memory_limit_check_job(&config, t->group), FSDP_ERR_NOMEM,
                 "--memory-limit 100.0 MiB");
    fsdp_options_destroy(options);
}
