/* Estimates of steps on many hosts: exact times of steps that are made by hand, bytes that were
 * computed independently, and the operations of real models. */
#include "src/plan/scale.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "tests/test.h"

/* A host sends 1000 bytes per second, and a message takes 1 s. A rank computes 1 operation per
 * second. So all times below are whole numbers of seconds. */
static const fsdp_scale_options slow = {.interconnect = {.bytes_per_s = 1000.0, .latency_s = 1.0},
                                        .flops_per_s = 1.0};

enum {
    PATH = 300,
    WORDS = 64
};

static bool is_near(double actual, double expected)
{
    return fabs(actual - expected) <= 1e-9 * fmax(1.0, fabs(expected));
}

#define ASSERT_SAME(actual, expected)                                                              \
    do {                                                                                           \
        double actual_ = (actual), expected_ = (expected);                                         \
        if (!is_near(actual_, expected_))                                                          \
            FAIL("%s is %.12g, not %.12g", #actual, actual_, expected_);                           \
    } while (0)

/* --- steps made by hand --- */

static fsdp_plan_unit unit_over(int ranks, int local)
{
    return (fsdp_plan_unit){.name = (char *)"",
                            .class_name = (char *)"Root",
                            .shard_ranks = ranks,
                            .shard_local_ranks = local,
                            .replicas = 1,
                            .local_replicas = 1};
}

static fsdp_plan plan_over(int ranks, int local, fsdp_plan_unit *units, size_t n_units,
                           fsdp_plan_event *events, size_t n, double flops)
{
    return (fsdp_plan){.class_name = (char *)"Root",
                       .world_size = ranks,
                       .local_world_size = local,
                       .rows = 1,
                       .source_length = 100,
                       .micro_steps = 1,
                       .units = units,
                       .n_units = n_units,
                       .timeline = events,
                       .n_timeline = n,
                       .flops = flops};
}

#define EVENT(its_kind, its_phase, its_bytes, its_flops)                                           \
    {                                                                                              \
        .kind = FSDP_PLAN_##its_kind, .unit = 0, .phase = FSDP_PLAN_##its_phase,                   \
        .bytes = (its_bytes), .flops = (its_flops)                                                 \
    }

/* One unit, gathered without prefetch, computed for 10 s, gathered again, computed for 20 s,
 * reduced. Nothing overlaps, so the step is the sum. On H hosts an all-gather of 8000 bytes takes
 * (H - 1) messages of 1 s, and 8 s x (H - 1) / H. The ranks of a host
 * together send 16000 bytes of gradients. */
static void check_one_unit(fsdp_test *t, int hosts, int local)
{
    fsdp_plan_event events[] = {
        EVENT(UNSHARD, FORWARD, 8000, 0),   EVENT(BEGIN, FORWARD, 0, 0),
        EVENT(END, FORWARD, 0, 10),         EVENT(RESHARD, FORWARD, 0, 10),
        EVENT(UNSHARD, BACKWARD, 8000, 10), EVENT(BEGIN, BACKWARD, 0, 10),
        EVENT(END, BACKWARD, 0, 30),        EVENT(POST, BACKWARD, 16000 / local, 30),
        EVENT(RESHARD, BACKWARD, 0, 30),    EVENT(REDUCE, BACKWARD, 32000, 30),
    };
    fsdp_plan_unit unit = unit_over(hosts * local, local);
    fsdp_plan p = plan_over(hosts * local, local, &unit, 1, events, FSDP_LENGTH(events), 30);
    fsdp_scale_estimate e;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    const double part = (double)(hosts - 1) / hosts, messages = hosts - 1;
    ASSERT_INT(e.hosts, hosts);
    ASSERT_SAME(e.compute_s, 30);
    ASSERT_SAME(e.exposed_gather_s, 2 * (messages + 8 * part));
    ASSERT_SAME(e.exposed_reduce_s, hosts > 1 ? messages + 16 : 0);
    ASSERT_SAME(e.step_s, 30 + 2 * (messages + 8 * part) + e.exposed_reduce_s);
    ASSERT_SAME(e.host_sent_bytes, hosts > 1 ? 16000 * part + 16000 : 0);
    ASSERT_SAME(e.efficiency, 30 / e.step_s);
    ASSERT_SAME(e.tokens_per_s, 100 * hosts * local / e.step_s);
    ASSERT(e.exposed_all_reduce_s == 0 && e.exposed_small_s == 0);
}

TEST(a_step_without_overlap_is_the_sum_of_its_parts)
{
    check_one_unit(t, 1, 4);
    check_one_unit(t, 2, 1);
    check_one_unit(t, 2, 2);
    check_one_unit(t, 8, 4);
}

/* The gather begins 10 s before the unit is needed, and takes 1 s + 4 s. */
TEST(a_gather_behind_longer_computation_costs_nothing)
{
    fsdp_plan_event events[] = {EVENT(GATHER, FORWARD, 8000, 0), EVENT(UNSHARD, FORWARD, 8000, 10)};
    fsdp_plan_unit unit = unit_over(2, 1);
    fsdp_plan p = plan_over(2, 1, &unit, 1, events, FSDP_LENGTH(events), 10);
    fsdp_scale_estimate e;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.step_s, 10);
    ASSERT_SAME(e.exposed_gather_s, 0);
    events[1].flops = p.flops = 3; /* 3 of the 5 seconds are hidden */
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.exposed_gather_s, 2);
    ASSERT_SAME(e.step_s, 5);
}

/* A gather of 8 s and a reduce of 4 s (without latency) begin together. Both send at half the rate
 * until the reduce has ended after 8 s; the gather's other half ends 4 s later. */
TEST(gathers_and_reduces_share_the_link)
{
    fsdp_plan_event events[] = {EVENT(POST, BACKWARD, 4000, 0), EVENT(GATHER, BACKWARD, 16000, 0),
                                EVENT(REDUCE, BACKWARD, 8000, 0),
                                EVENT(UNSHARD, BACKWARD, 16000, 0)};
    fsdp_plan_unit unit = unit_over(2, 1);
    fsdp_plan p = plan_over(2, 1, &unit, 1, events, FSDP_LENGTH(events), 0);
    fsdp_scale_options o = slow;
    fsdp_scale_estimate e;
    o.interconnect.latency_s = 0.0;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &o, &e));
    ASSERT_SAME(e.exposed_reduce_s, 8);
    ASSERT_SAME(e.exposed_gather_s, 4);
    ASSERT_SAME(e.step_s, 12);
}

/* While one transfer waits for its message, the other has the whole link: the reduce (latency 1 s,
 * 4 s) and a gather that begins 1 s later. The reduce is alone from 1 s to 2 s, then shares. */
TEST(latency_does_not_use_the_link)
{
    fsdp_plan_event events[] = {EVENT(POST, BACKWARD, 4000, 0), EVENT(GATHER, BACKWARD, 6000, 1),
                                EVENT(REDUCE, BACKWARD, 8000, 1),
                                EVENT(UNSHARD, BACKWARD, 6000, 1)};
    fsdp_plan_unit unit = unit_over(2, 1);
    fsdp_plan p = plan_over(2, 1, &unit, 1, events, FSDP_LENGTH(events), 1);
    fsdp_scale_estimate e;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    /* At 2 s 3000 bytes are left of each; both end at 8 s. */
    ASSERT_SAME(e.exposed_reduce_s, 7);
    ASSERT_SAME(e.exposed_gather_s, 0);
    ASSERT_SAME(e.step_s, 8);
}

/* Two posts of a unit are sent one after the other, and each is waited for by its own reduce. */
TEST(sections_of_a_unit_are_sent_in_order)
{
    fsdp_plan_event events[] = {EVENT(POST, BACKWARD, 4000, 0), EVENT(POST, BACKWARD, 1000, 2),
                                EVENT(REDUCE, BACKWARD, 8000, 2), EVENT(REDUCE, BACKWARD, 2000, 2)};
    fsdp_plan_unit unit = unit_over(2, 1);
    fsdp_plan p = plan_over(2, 1, &unit, 1, events, FSDP_LENGTH(events), 2);
    fsdp_scale_estimate e;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.step_s, 5 + 2); /* (1 s + 4 s), then (1 s + 1 s) */
    events[2].kind = FSDP_PLAN_BEGIN;
    events[0].bytes = 1000;
    events[3].kind = FSDP_PLAN_REDUCE; /* now only the first post is reduced, with 1000 bytes */
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.step_s, 2);
    events[0].kind = events[1].kind = FSDP_PLAN_BEGIN;
    ASSERT_ERROR(fsdp_scale_estimate_step(&p, &slow, &e), FSDP_ERR_STATE, "did not post");
}

/* A shard group inside a host sends nothing. Each of the host's 4 ranks sends 375 bytes to the
 * other 3 hosts, and later as many: 3 messages and 1.5 s each time. The unit computes for 2 s
 * between the two, and for 6 s after them, so 2.5 s are exposed. */
TEST(sums_over_replicas_are_sent_while_other_units_compute)
{
    fsdp_plan_event events[] = {
        EVENT(UNSHARD, FORWARD, 8000, 0),   EVENT(POST, BACKWARD, 0, 5),
        EVENT(REDUCE, BACKWARD, 2000, 5),   EVENT(POST_LANES, BACKWARD, 375, 5),
        EVENT(SUM_LANES, BACKWARD, 375, 7), EVENT(ALL_REDUCE, BACKWARD, 500, 13)};
    fsdp_plan_unit unit = unit_over(4, 4);
    unit.replicas = 4;
    fsdp_plan p = plan_over(16, 4, &unit, 1, events, FSDP_LENGTH(events), 13);
    fsdp_scale_estimate e;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.exposed_gather_s + e.exposed_reduce_s, 0);
    ASSERT_SAME(e.exposed_all_reduce_s, 2.5);
    ASSERT_SAME(e.host_sent_bytes, 3000);
    ASSERT_SAME(e.step_s, 13 + 2.5);
    events[5].flops = p.flops = 8; /* the second transfer is exposed, too: 3.5 of its 4.5 s */
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.exposed_all_reduce_s, 2.5 + 3.5);
    /* With two hosts, the lanes are exchanged at once. */
    unit.replicas = 2;
    events[3].bytes = 500;
    events[4].kind = FSDP_PLAN_BEGIN;
    p.world_size = 8;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.host_sent_bytes, 2000);
    ASSERT_SAME(e.exposed_all_reduce_s, 0); /* 1 s + 2 s of the 3 s from 5 s to 8 s */
}

/* After forward, a host keeps the unit: the second gather stays inside it. The next micro-step
 * gathers from all hosts again. */
TEST(a_unit_that_a_host_keeps_is_not_gathered_twice)
{
    fsdp_plan_event events[] = {EVENT(UNSHARD, FORWARD, 8000, 0),  EVENT(RESHARD, FORWARD, 0, 0),
                                EVENT(UNSHARD, BACKWARD, 8000, 0), EVENT(RESHARD, BACKWARD, 0, 0),
                                EVENT(UNSHARD, FORWARD, 8000, 0),  EVENT(RESHARD, FORWARD, 0, 0),
                                EVENT(UNSHARD, BACKWARD, 8000, 0), EVENT(RESHARD, BACKWARD, 0, 0)};
    fsdp_plan_unit unit = unit_over(8, 2);
    fsdp_plan p = plan_over(8, 2, &unit, 1, events, FSDP_LENGTH(events), 0);
    fsdp_scale_estimate e;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.host_sent_bytes, 4 * 6000);
    unit.kept_ranks = 2;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.host_sent_bytes, 2 * 6000);
    ASSERT_SAME(e.backward_gather_bytes, 0);
    unit.kept_ranks = 4; /* two hosts keep it together */
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.host_sent_bytes, 2 * 6000 + 2 * 4000);
    ASSERT_SAME(e.backward_gather_bytes, 2 * 4000);
}

/* On 2 hosts of 2 ranks, a rank sends a quarter of the unit to its peer. */
TEST(long_rows_are_several_messages)
{
    fsdp_plan_event events[] = {EVENT(UNSHARD, FORWARD, (uint64_t)FSDP_MESSAGE_BYTES * 4, 0)};
    fsdp_plan_unit unit = unit_over(4, 2);
    fsdp_plan p = plan_over(4, 2, &unit, 1, events, 1, 0);
    fsdp_scale_estimate e;
    const double sent = 2.0 * FSDP_MESSAGE_BYTES;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.step_s, 1 + sent / 1000);
    events[0].bytes += 4;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.step_s, 2 + (sent + 2) / 1000);
}

/* 3 collectives over 8 hosts are 3 x 3 messages, and 800 bytes arrive from 7 of 8 hosts. */
TEST(small_collectives_are_counted_at_the_end)
{
    fsdp_plan_unit unit = unit_over(8, 1);
    fsdp_plan p = plan_over(8, 1, &unit, 1, NULL, 0, 5);
    fsdp_scale_estimate e;
    p.small_collectives = 3;
    p.small_bytes = 800;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &slow, &e));
    ASSERT_SAME(e.exposed_small_s, 9 + 0.7);
    ASSERT_SAME(e.step_s, 5 + 9.7);
    ASSERT_SAME(e.host_sent_bytes, 700);
}

/* --- stragglers --- */

/* Without communication, the step is the factor of the slowest rank. For one rank, the quantiles
 * are those of the normal distribution: 0, 1.2816 and 2.3263 standard deviations. The median of the
 * largest of 1024 is 3.2048: Phi(3.2048) = 0.5^(1/1024). */
TEST(the_slowest_rank_sets_the_pace)
{
    fsdp_plan_unit unit = unit_over(1, 1);
    fsdp_plan p = plan_over(1, 1, &unit, 1, NULL, 0, 100);
    fsdp_scale_options o = slow;
    fsdp_scale_estimate e;
    o.straggler = 0.05;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &o, &e));
    ASSERT(fabs(e.straggler_quantile_s[0] - 100) < 1e-6);
    ASSERT(fabs(e.straggler_quantile_s[1] - (100 + 5 * 1.281552)) < 1e-4);
    ASSERT(fabs(e.straggler_quantile_s[2] - (100 + 5 * 2.326348)) < 1e-4);
    ASSERT(fabs(e.straggler_step_s - 100) < 1e-6);
    ASSERT_SAME(e.step_s, 100);
    p.world_size = p.local_world_size = 1024;
    unit.shard_ranks = unit.shard_local_ranks = 1024;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &o, &e));
    const double z = (e.straggler_quantile_s[0] - 100) / 5;
    ASSERT(fabs(0.5 * erfc(z / sqrt(2.0)) - (1 - pow(0.5, 1.0 / 1024))) < 1e-9);
    ASSERT(fabs(z - 3.2048) < 1e-3);
    ASSERT(e.straggler_quantile_s[2] > e.straggler_quantile_s[1] &&
           e.straggler_quantile_s[1] > e.straggler_quantile_s[0]);
    ASSERT_SAME(e.efficiency, 100 / e.straggler_step_s);
    fsdp_scale_estimate again;
    ASSERT_OK(fsdp_scale_estimate_step(&p, &o, &again));
    ASSERT(memcmp(&again, &e, sizeof e) == 0);
}

/* --- errors --- */

TEST(impossible_options_are_refused)
{
    fsdp_plan_unit unit = unit_over(12, 8);
    fsdp_plan p = plan_over(24, 8, &unit, 1, NULL, 0, 1);
    fsdp_scale_estimate e = {.step_s = -1};
    fsdp_scale_options o = slow;
    ASSERT_ERROR(fsdp_scale_estimate_step(&p, &o, &e), FSDP_ERR_INVALID, "--shard-size 12");
    unit = unit_over(24, 8);
    o.flops_per_s = 0.0;
    ASSERT_ERROR(fsdp_scale_estimate_step(&p, &o, &e), FSDP_ERR_INVALID, "operations per second");
    o = slow;
    o.interconnect.bytes_per_s = 0.0;
    ASSERT_ERROR(fsdp_scale_estimate_step(&p, &o, &e), FSDP_ERR_INVALID, "interconnect");
    o = slow;
    o.straggler = 1.5;
    ASSERT_ERROR(fsdp_scale_estimate_step(&p, &o, &e), FSDP_ERR_INVALID, "straggler");
    ASSERT(e.step_s == -1); /* outputs are written only on success */
}

/* --- real models --- */

static void write_config(fsdp_test *t, const char *json, char dir[PATH])
{
    char path[PATH + 20];
    snprintf(dir, PATH, "%s", fsdp_test_dir(t));
    snprintf(path, sizeof path, "%s/config.json", dir);
    ASSERT_OK(fsdp_file_write(path, json, strlen(json)));
}

static fsdp_plan *plan_of(fsdp_test *t, const char *dir, const char *flags, int ranks, int local)
{
    char text[2048], *argv[WORDS], *rest = text;
    int argc = 0;
    fsdp_train_config config = {0};
    fsdp_options *options;
    fsdp_plan *plan = NULL;
    snprintf(text, sizeof text, "train --model %s --from-config --data x.jsonl --no-save-model %s",
             dir, flags);
    for (char *word; argc < WORDS - 1 && (word = strsep(&rest, " "));)
        if (*word)
            argv[argc++] = word;
    argv[argc] = NULL;
    fsdp_status status = fsdp_options_parse(fsdp_train_options(), argc, argv, &config, &options);
    if (status == FSDP_OK) {
        status = fsdp_plan_create(&config, ranks, local, &plan);
        fsdp_options_destroy(options);
    }
    if (status != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s", flags, fsdp_last_error());
    return plan;
}

static const char llama_58m[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 32000,"
    " \"hidden_size\": 512, \"intermediate_size\": 1376, \"num_hidden_layers\": 8,"
    " \"num_attention_heads\": 8, \"num_key_value_heads\": 8, \"max_position_embeddings\": 1024,"
    " \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\","
    " \"tie_word_embeddings\": false}";
static const char t5_small[] =
    "{\"model_type\": \"t5\", \"architectures\": [\"T5ForConditionalGeneration\"],"
    " \"is_encoder_decoder\": true, \"d_model\": 512, \"d_kv\": 64, \"num_heads\": 8,"
    " \"d_ff\": 2048, \"num_layers\": 6, \"num_decoder_layers\": 6, \"vocab_size\": 32128,"
    " \"relative_attention_num_buckets\": 32, \"dropout_rate\": 0.0, \"layer_norm_epsilon\": 1e-6,"
    " \"feed_forward_proj\": \"relu\", \"tie_word_embeddings\": true,"
    " \"pad_token_id\": 0, \"eos_token_id\": 1, \"decoder_start_token_id\": 0}";
static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"vocab_size\": 67,"
    " \"n_embd\": 24, \"n_layer\": 3, \"n_head\": 3, \"n_positions\": 64,"
    " \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-5}";
static const char bert[] =
    "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"],"
    " \"vocab_size\": 67, \"hidden_size\": 24, \"intermediate_size\": 37, \"num_hidden_layers\": 3,"
    " \"num_attention_heads\": 3, \"max_position_embeddings\": 40, \"type_vocab_size\": 2,"
    " \"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-12, \"pad_token_id\": 0,"
    " \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"},"
    " \"label2id\": {\"a\": 0, \"b\": 1, \"c\": 2}}";

/* Bytes that a host sends, in MB. They were computed from the numbers of parameters of PyTorch's
 * models: (H - 1) / H of bfloat16 all-gathers of all blocks twice and the rest once, and of float32
 * or bfloat16 gradients. But of the gradient of an embedding with `numel` elements that is not tied
 * to a head, each rank sends only the 512 rows of width 512 that it has looked up, with their
 * numbers and a row of zeros. */
static void check_bytes(fsdp_test *t, const char *json, const char *lengths, double numel,
                        const double mb[4])
{
    static const char *const strategies[] = {"", "--sharding-strategy SHARD_GRAD_OP",
                                             "--internode-reduce-dtype bf16", ""};
    char dir[PATH], flags[400];
    write_config(t, json, dir);
    CHECK_HERE();
    for (int i = 0; i < 4; i++) {
        fsdp_scale_estimate e = {0};
        const int hosts = i == 3 ? 4 : 2;
        const double others = hosts - 1;
        snprintf(flags, sizeof flags, "--bf16 --batch-size 2 %s %s", lengths, strategies[i]);
        for (int local = 1; local <= 4; local *= 2) { /* a byte crosses once for each host */
            fsdp_plan *p = plan_of(t, dir, flags, hosts * local, local);
            fsdp_status status = p ? fsdp_scale_estimate_step(p, &slow, &e) : FSDP_ERR_STATE;
            fsdp_plan_destroy(p);
            ASSERT_OK(status);
            const double whole = numel * (i == 2 ? 2 : 4) * others / hosts;
            const double rows = local * others * (512 * 2048.0 / hosts + 2048 + 513 * 4.0);
            const double expected = mb[i] + (numel > 0 ? rows - whole : 0) * 1e-6;
            if (fabs(e.host_sent_bytes * 1e-6 - expected) > 0.06)
                FAIL("case %d with %d ranks a host: %.3f MB, not %.1f", i, local,
                     e.host_sent_bytes * 1e-6, expected);
        }
    }
}

TEST(hosts_send_what_was_computed_from_the_parameters)
{
    check_bytes(t, llama_58m, "--max-seq-length 256", 32000 * 512.0,
                (const double[]){199.5, 174.2, 141.4, 299.3});
    CHECK_HERE();
    check_bytes(t, t5_small, "--max-source-length 256 --max-target-length 64", 0,
                (const double[]){225.6, 181.5, 165.1, 338.4});
}

/* The bytes of the gradients that a host sends, compared with those of one rank a host. A host of 8
 * ranks has two blocks of the order of additions, and a host of 3 two terms, unless the sum of a
 * host may have any order. */
TEST(hosts_send_a_sum_for_each_subtree_of_the_order_of_additions)
{
    static const struct {
        const char *flags;
        int hosts, local;
        double times;
    } cases[] = {
        {"", 4, 2, 1},
        {"", 4, 4, 1},
        {"", 4, 8, 2},
        {"", 2, 3, 2},
        {"--internode-reduce-dtype float32", 4, 8, 1},
        {"--internode-reduce-dtype float32", 2, 3, 1},
        {"--internode-reduce-dtype bf16", 4, 8, 0.5},
        {"--internode-reduce-dtype bf16", 4, 1, 0.5},
        /* The shards are inside a host, so gathers send nothing. 4 hosts send each row twice, for
         * 3 of 4 hosts, and 2 hosts once. The gradient of the embedding is a table in the sum
         * inside a host only. */
        {"--sharding-strategy HYBRID_SHARD --shard-size 2", 4, 2, 2},
        {"--sharding-strategy HYBRID_SHARD --shard-size 2", 2, 2, 2},
        {"--sharding-strategy HYBRID_SHARD --shard-size 2", 2, 4, 2},
        {"--sharding-strategy HYBRID_SHARD --shard-size 2 --internode-reduce-dtype bf16", 4, 2,
         1.5},
    };
    char dir[PATH], flags[400];
    write_config(t, t5_small, dir);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        const int hosts = cases[i].hosts, local = cases[i].local;
        fsdp_scale_estimate e = {0};
        snprintf(flags, sizeof flags,
                 "--batch-size 2 --max-source-length 64 --max-target-length 64 %s", cases[i].flags);
        fsdp_plan *p = plan_of(t, dir, flags, hosts * local, local);
        CHECK_HERE();
        double gathered = 0, reduced = 0;
        for (size_t u = 0; u < p->n_units; u++) {
            gathered += p->units[u].shard_ranks > local ? (double)p->units[u].all_gather_bytes : 0;
            reduced += (double)p->units[u].reduce_scatter_bytes;
        }
        const fsdp_status status = fsdp_scale_estimate_step(p, &slow, &e);
        const double small = (double)p->small_bytes;
        fsdp_plan_destroy(p);
        ASSERT_OK(status);
        const double part = (hosts - 1.0) / hosts;
        const double expected = (gathered + small + cases[i].times * reduced) * part;
        if (fabs(e.host_sent_bytes - expected) > 1e-4 * expected)
            FAIL("'%s' on %d hosts of %d ranks: %.0f bytes, not %.0f", cases[i].flags, hosts, local,
                 e.host_sent_bytes, expected);
    }
}

/* The products that the plan counts are those of the model's own formula (fsdp_model_type.work),
 * with two differences. For causal attention, the formula takes half of T x T pairs, and there are
 * half of T x (T + 1): `more` x width more products of 6 times 2 operations. For a causal model it
 * counts the logits of the last token of a row, which has no label: `unlabelled` weights of the
 * head are not used in three products. */
static void check_flops(fsdp_test *t, const char *json, const char *flags, double more,
                        double unlabelled)
{
    char dir[PATH];
    write_config(t, json, dir);
    CHECK_HERE();
    fsdp_plan *p = plan_of(t, dir, flags, 2, 2);
    CHECK_HERE();
    const double expected = p->work.flops + 12.0 * more - 6.0 * unlabelled, counted = p->flops;
    fsdp_plan_destroy(p);
    if (!is_near(counted, expected))
        FAIL("%s: %.10g operations, not %.10g", flags, counted, expected);
}

TEST(a_plan_counts_the_products_of_the_model)
{
    const double llama_more = 3 * 8 * 8.0 * 512, llama_head = 3 * 32000.0 * 512;
    check_flops(t, llama_58m, "--batch-size 3 --max-seq-length 16", llama_more, llama_head);
    CHECK_HERE();
    check_flops(t, llama_58m, "--batch-size 3 --max-seq-length 16 --bf16", llama_more, llama_head);
    CHECK_HERE();
    check_flops(t, gpt2, "--batch-size 2 --max-seq-length 16", 2 * 3 * 8.0 * 24, 2 * 67.0 * 24);
    CHECK_HERE();
    check_flops(t, t5_small, "--batch-size 2 --max-source-length 12 --max-target-length 8",
                2 * 6 * 4.0 * 512, 0);
    CHECK_HERE();
    /* The formula leaves out the classifier: 3 classes of width 24, for two rows. */
    check_flops(t, bert, "--batch-size 2 --max-seq-length 16", 0, -2 * 3.0 * 24);
}

/* Every micro-step computes the same, and a checkpointed block computes its forward again. The
 * products of 58 M Llama's blocks are less than the head's three, which run once. */
TEST(recomputation_and_micro_steps_are_counted)
{
    char dir[PATH];
    static const char *const flags[] = {
        "--batch-size 1 --max-seq-length 16",
        "--batch-size 1 --max-seq-length 16 --gradient-accumulation-steps 3",
        "--batch-size 1 --max-seq-length 16 --activation-checkpointing"};
    double flops[FSDP_LENGTH(flags)] = {0};
    write_config(t, llama_58m, dir);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(flags); i++) {
        fsdp_plan *p = plan_of(t, dir, flags[i], 2, 2);
        CHECK_HERE();
        flops[i] = p->flops;
        fsdp_plan_destroy(p);
    }
    ASSERT_SAME(flops[1], 3 * flops[0]);
    /* The last product of a block's forward is not needed again (Note [Early stop] in
     * src/autograd/early_stop.h). */
    const double block = 2.0 * 16 * (4 * 512 * 512 + 2 * 512 * 1376) + 4.0 * 512 * 16 * 17 / 2,
                 down = 2.0 * 16 * 512 * 1376;
    ASSERT(flops[2] >= flops[0] + 8 * block - 1 && flops[2] <= flops[0] + 8 * (block + down) + 1);
}

/* An estimate returns FSDP_ERR_NOMEM at each allocation that fails, and leaks nothing. */
TEST(an_estimate_survives_a_failing_allocation)
{
    fsdp_plan_event events[] = {EVENT(UNSHARD, FORWARD, 8000, 0), EVENT(POST, BACKWARD, 8000, 1),
                                EVENT(REDUCE, BACKWARD, 16000, 1)};
    fsdp_plan_unit unit = unit_over(2, 1);
    fsdp_plan p = plan_over(2, 1, &unit, 1, events, FSDP_LENGTH(events), 1);
    fsdp_scale_estimate e;
    int failures = 0;
    for (long n = 1;; n++) {
        fsdp_alloc_fail_at(n);
        const fsdp_status status = fsdp_scale_estimate_step(&p, &slow, &e);
        fsdp_alloc_fail_at(0);
        if (status == FSDP_OK)
            break;
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        failures++;
    }
    ASSERT(failures >= 4); /* units, sent, and a queue of each kind */
}
