/* What `fsdp bench train` counts, and that a rank's run fills in its result. */
#include "src/base/alloc.h"
#include "src/train/bench.h"
#include "tests/test.h"

static const fsdp_t5_config tiny = {.vocab_size = 101,
                                    .d_model = 48,
                                    .d_ff = 72,
                                    .d_kv = 16,
                                    .num_layers = 2,
                                    .num_decoder_layers = 1,
                                    .num_heads = 3,
                                    .relative_attention_num_buckets = 8,
                                    .relative_attention_max_distance = 16,
                                    .layer_norm_epsilon = 1e-6,
                                    .initializer_factor = 1.0,
                                    .is_gated_act = true,
                                    .tie_word_embeddings = true,
                                    .scale_decoder_outputs = true,
                                    .eos_token_id = 1};

/* By hand, per row of 10 source and 6 target tokens: a linear layer is 2 x tokens x in x out for
 * each of three products, attention 2 x queries x keys x 48 for each of six. */
TEST(flops_are_counted_layer_by_layer)
{
    double projection = 48 * 48, ff = 3 * 48 * 72;
    double encoder = 2 * 10 * (4 * projection + ff);
    double decoder = 6 * (6 * projection + ff) + 10 * 2 * projection;
    double head = 6 * 48 * 101;
    double attention = 2 * 10 * 10 * 48 + 6 * 6 / 2.0 * 48 + 6 * 10 * 48;
    ASSERT_NEAR(fsdp_bench_flops(&tiny, 1, 10, 6), 6 * (encoder + decoder + head) + 12 * attention,
                1.0);
    ASSERT_NEAR(fsdp_bench_flops(&tiny, 5, 10, 6), 5 * fsdp_bench_flops(&tiny, 1, 10, 6), 1.0);
}

typedef struct told {
    fsdp_bench_stage stage[8];
    int n;
} told;

static void tell(void *arg, fsdp_bench_stage stage)
{
    told *x = arg;
    x->stage[x->n++] = stage;
}

static void check_run(fsdp_test *t, fsdp_dtype dtype)
{
    fsdp_bench_config c = {.shape = tiny,
                           .shape_name = "tiny",
                           .dtype = dtype,
                           .threads = 1,
                           .batch = 2,
                           .source = 10,
                           .target = 6,
                           .steps = 3};
    fsdp_bench_result r;
    told x = {.n = 0};
    fsdp_json *doc;
    char *text;
    ASSERT_OK(fsdp_bench_train(&c, t->group, tell, &x, &r));
    if (t->rank == 0) {
        ASSERT_INT(x.n, 3);
        for (int i = 0; i < 3; i++)
            ASSERT_INT(x.stage[i], i);
    } else {
        ASSERT_INT(x.n, 0);
    }
    ASSERT(r.step_s > 0 && r.first_step_after_s >= r.ready_after_s + r.first_step_s);
    ASSERT(r.tokens_per_s > 0 && r.gemm_gflops > 0 && r.mfu > 0);
    ASSERT_NEAR(r.first_loss, log(101.0), 1.5);
    ASSERT(isfinite(r.grad_norm) && r.grad_norm > 0);
    ASSERT_INT(r.memory.tag_peak[FSDP_TAG_OPTIM],
               8 * r.parameters); /* two moments, each row once */
    ASSERT_OK(fsdp_json_create("result", &doc));
    fsdp_bench_report(&c, t->world_size, &r, fsdp_json_root(doc));
    ASSERT_OK(fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL));
    ASSERT(strstr(text, "\"first_step_after_s\": ") && strstr(text, "\"mfu\": "));
    fsdp_free(text);
    fsdp_json_destroy(doc);
}

TEST_RANKS(one_rank_measures_itself, 1)
{
    check_run(t, FSDP_DTYPE_F32);
}
TEST_RANKS(two_ranks_share_a_measurement, 2)
{
    check_run(t, FSDP_DTYPE_BF16);
}

TEST_RANKS(one_step_is_too_few, 1)
{
    fsdp_bench_config c = {.shape = tiny, .steps = 1};
    fsdp_bench_result r;
    ASSERT_ERROR(fsdp_bench_train(&c, t->group, tell, NULL, &r), FSDP_ERR_INVALID, "steps is 1");
}
