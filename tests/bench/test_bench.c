/* The counts of `fsdp bench train`, and that a rank's run fills in its result. */
#include "src/base/alloc.h"
#include "src/bench/bench.h"
#include "src/models/model_type.h"
#include "tests/test.h"
#include "tests/train/odd_models.h"

/* `flops` is for one row of 10 source tokens; five rows have five times as much. */
static void assert_flops(fsdp_test *t, const fsdp_model_config *shape, int64_t target, double flops)
{
    ASSERT_NEAR(shape->type->work(shape, 1, 10, target).flops, flops, 1.0);
    ASSERT_NEAR(shape->type->work(shape, 5, 10, target).flops, 5 * flops, 1.0);
}

/* Computed by hand, per row of 10 source and 6 target tokens. A linear layer has 2 x tokens x in x
 * out for each of three products; attention has 2 x queries x keys x width of all heads for each of
 * six. */
TEST(flops_of_t5_are_counted_layer_by_layer)
{
    double projection = 24 * 45, ff = 3 * 24 * 40;
    double encoder = 2 * 10 * (4 * projection + ff);
    double decoder = 6 * (6 * projection + ff) + 10 * 2 * projection;
    double head = 6 * 24 * 97;
    double attention = 2 * 10 * 10 * 45 + 6 * 6 / 2.0 * 45 + 6 * 10 * 45;
    assert_flops(t, &odd_t5, 6, 6 * (encoder + decoder + head) + 12 * attention);
}

TEST(flops_of_llama_are_counted_layer_by_layer)
{
    double q_and_o = 2 * 23 * 60, k_and_v = 2 * 23 * 30, mlp = 3 * 23 * 37;
    double linear = 10 * (2 * (q_and_o + k_and_v + mlp) + 23 * 89);
    double attention = 2 * 10 * 10 / 2.0 * 60;
    assert_flops(t, &odd_llama, 0, 6 * linear + 12 * attention);
}

/* 10 tokens, each of which sees at most 5: half of 5 x 5, then 5 x 5. */
TEST(flops_of_mistral_are_those_of_its_window)
{
    double linear = 10 * (2 * (2 * 26 * 24 + 2 * 26 * 12 + 3 * 26 * 39) + 26 * 79);
    assert_flops(t, &odd_mistral, 0, 6 * linear + 12 * 2 * (5 * 5 / 2.0 + 5 * 5) * 24);
}

TEST(flops_of_gpt2_are_counted_layer_by_layer)
{
    double linear = 10 * (3 * (4 * 25 * 25 + 2 * 25 * 43) + 25 * 71);
    assert_flops(t, &odd_gpt2, 0, 6 * linear + 12 * 3 * 10 * 10 / 2.0 * 25);
}

/* The pooler sees one token of the row, and so does the second layer except for keys and values.
 * The classifier is too small to count. */
TEST(flops_of_bert_are_counted_layer_by_layer)
{
    double kv = 2 * 21 * 21, rest = 2 * 21 * 21 + 2 * 21 * 35;
    double linear = 10 * (kv + rest) + 10 * kv + rest + 21 * 21;
    double attention = 10 * 10 * 21 + 10 * 21;
    assert_flops(t, &odd_bert, 0, 6 * linear + 12 * attention);
}

typedef struct stages {
    fsdp_bench_stage stage[8];
    int n;
} stages;

static void record_stage(void *arg, fsdp_bench_stage stage)
{
    stages *x = arg;
    x->stage[x->n++] = stage;
}

static void check_run(fsdp_test *t, const fsdp_model_config *shape, fsdp_dtype dtype)
{
    const fsdp_model_info info = fsdp_model_config_info(shape);
    const double chance = log((double)(info.num_labels ? info.num_labels : info.vocab_size));
    fsdp_bench_config c = {.shape = *shape,
                           .shape_name = "tiny",
                           .dtype = dtype,
                           .threads = 1,
                           .batch = 2,
                           .source = 10,
                           .target = info.format.task == FSDP_TASK_SEQ2SEQ ? 6 : 0,
                           .breakdown = true,
                           .steps = 2};
    fsdp_bench_result r;
    stages x = {.n = 0};
    fsdp_json *doc;
    char *text;
    ASSERT_OK(fsdp_bench_train(&c, t->group, record_stage, &x, &r));
    if (t->rank == 0) {
        ASSERT_INT(x.n, 3);
        for (int i = 0; i < 3; i++)
            ASSERT_INT(x.stage[i], i);
    } else {
        ASSERT_INT(x.n, 0);
    }
    ASSERT(r.step_s > 0 && r.first_step_after_s >= r.ready_after_s + r.first_step_s);
    ASSERT(r.tokens_per_s > 0 && r.gemm_gflops > 0 && r.mfu > 0);
    ASSERT(r.first_loss > 0.5 * chance && r.first_loss < 2.0 * chance);
    ASSERT(isfinite(r.grad_norm) && r.grad_norm > 0);
    ASSERT_INT(r.memory.tag_peak[FSDP_TAG_OPTIM],
               8 * r.parameters); /* two moments, each row stored once */
    ASSERT_INT(r.n_where, FSDP_PROFILE_ROWS);
    ASSERT(strcmp(r.where[0].name, "matmul") == 0 && r.where[0].ms > 0);
    ASSERT(r.n_names > 3 && r.names[0].ms >= r.names[1].ms && r.names[1].ms > 0);
    ASSERT_OK(fsdp_json_create("result", &doc));
    fsdp_bench_report(&c, t->world_size, &r, fsdp_json_root(doc));
    ASSERT_OK(fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL));
    ASSERT(strstr(text, "\"first_step_after_s\": ") && strstr(text, "\"mfu\": ") &&
           strstr(text, "\"unexplained_rest\": "));
    fsdp_free(text);
    fsdp_json_destroy(doc);
}

static void check_runs(fsdp_test *t, fsdp_dtype dtype)
{
    for (const fsdp_model_config *const *c = odd_models; *c; c++) {
        check_run(t, *c, dtype);
        CHECK_HERE();
    }
}

TEST_RANKS(one_rank_measures_any_model, 1)
{
    check_runs(t, FSDP_DTYPE_F32);
}
TEST_RANKS(two_ranks_share_a_measurement, 2)
{
    check_runs(t, FSDP_DTYPE_BF16);
    CHECK_HERE();
    check_runs(t, FSDP_DTYPE_F16);
}

static fsdp_status measure(fsdp_test *t, fsdp_model_config shape, int steps)
{
    fsdp_bench_config c = {.shape = shape, .steps = steps, .batch = 1, .source = 3, .target = 3};
    fsdp_bench_result r;
    return fsdp_bench_train(&c, t->group, record_stage, NULL, &r);
}

TEST_RANKS(what_cannot_be_measured_is_refused, 1)
{
    fsdp_model_config two_words = odd_t5, few_positions = odd_bert;
    ASSERT_ERROR(measure(t, odd_t5, 1), FSDP_ERR_INVALID, "steps is 1");
    two_words.t5.vocab_size = 2;
    ASSERT_ERROR(measure(t, two_words, 2), FSDP_ERR_INVALID, "vocab_size is 2");
    few_positions.bert.max_position_embeddings = 2;
    ASSERT_ERROR(measure(t, few_positions, 2), FSDP_ERR_INVALID,
                 "seq is 3, but BertForSequenceClassification of this shape has only 2 positions");
}
