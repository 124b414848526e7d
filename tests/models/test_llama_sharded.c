/* Llama, Mistral and Qwen2 sharded compared with one rank, for shapes that divide badly, empty
 * batches, dropout, mixed precision, and on the meta device. */
#include "src/base/assert.h"
#include "tests/models/llama_shape.h"
#include "tests/models/model_checks.h"

static const int32_t ids[] = {3, 9, 4, 16, 5, 1, 1, 6, 0, 12, 8, 2, 3, 7, 7, 11, 1};
static const int32_t labels[] = {3, -100, 4, 16, 5, 1, -100};

static const fsdp_batch_row three_rows[] = {
    {.source = ids, .labels = labels, .source_len = 7, .labels_len = 7},
    {.source = ids + 9, .source_len = 1},
    {.source = ids + 5, .source_len = 12}};
static const model_rows rows = {three_rows, 3};

static void check_shapes(fsdp_test *t)
{
    static const int64_t dims[][6] = {
        /* D, F, heads, key/value heads, K, layers */
        {15, 7, 3, 1, 6, 1},
        {16, 16, 4, 2, 4, 2},
        {1, 1, 1, 1, 2, 1},
        {20, 5, 3, 3, 2, 2},
    };
    fsdp_model_config configs[FSDP_LENGTH(dims) + 1];
    for (size_t i = 0; i < FSDP_LENGTH(dims); i++) {
        configs[i] = llama_odd_shape(i % 2 ? FSDP_MISTRAL : FSDP_LLAMA);
        configs[i].llama.hidden_size = dims[i][0];
        configs[i].llama.intermediate_size = dims[i][1];
        configs[i].llama.num_attention_heads = dims[i][2];
        configs[i].llama.num_key_value_heads = dims[i][3];
        configs[i].llama.head_dim = dims[i][4];
        configs[i].llama.num_hidden_layers = dims[i][5];
    }
    configs[FSDP_LENGTH(dims)] = llama_odd_shape(FSDP_QWEN3);
    model_check_shapes(t, configs, FSDP_LENGTH(configs), rows);
}

TEST_RANKS(odd_shapes_on_2_ranks_give_one_ranks_numbers, 2)
{
    check_shapes(t);
}
TEST_RANKS(odd_shapes_on_3_ranks_give_one_ranks_numbers, 3)
{
    check_shapes(t);
}
TEST_RANKS(odd_shapes_on_4_ranks_give_one_ranks_numbers, 4)
{
    check_shapes(t);
}

static void check_nothing(fsdp_test *t)
{
    static const int32_t ignored[] = {-100, -100, -100};
    /* a single token has no next token */
    static const fsdp_batch_row unlabelled[] = {
        {.source = ids, .source_len = 1},
        {.source = ids, .labels = ignored, .source_len = 3, .labels_len = 3}};
    const fsdp_model_config config = llama_odd_shape(FSDP_LLAMA);
    model_check_nothing_to_learn(t, &config, (model_rows){unlabelled, 2});
}

TEST(a_batch_without_labels_has_loss_0_and_gradients_0)
{
    check_nothing(t);
}
TEST_RANKS(a_batch_without_labels_has_loss_0_and_gradients_0_on_2_ranks, 2)
{
    check_nothing(t);
}

TEST(dropout_is_drawn_by_step_and_off_outside_of_training)
{
    const fsdp_model_config config = llama_odd_shape(FSDP_QWEN2);
    model_check_dropout(t, &config, rows);
}

TEST_RANKS(in_bfloat16_the_loss_is_near_that_of_float32, 2)
{
    for (int family = FSDP_LLAMA; family <= FSDP_QWEN3; family++) {
        fsdp_model_config config = llama_odd_shape((fsdp_llama_family)family);
        config.llama.initializer_range = 0.2;
        model_check_halves(t, &config, rows, 2e-2);
        CHECK_HERE();
    }
}

/* --- the meta device --- */

static void check_meta(fsdp_test *t)
{
    int32_t many[700]; /* more than the head's chunk of 512 rows */
    for (int i = 0; i < 700; i++)
        many[i] = i * 7 % 17;
    const fsdp_batch_row long_rows[] = {{.source = many, .source_len = 600},
                                        {.source = many + 600, .source_len = 100}};
    for (int family = FSDP_LLAMA; family <= (UNDER_SANITIZER ? FSDP_LLAMA : FSDP_QWEN3); family++) {
        const fsdp_model_config config = llama_odd_shape((fsdp_llama_family)family);
        model_check_meta(t, &config, (model_rows){long_rows, 2});
        CHECK_HERE();
    }
}

TEST_RANKS(it_asks_for_the_same_bytes_on_meta_at_1_rank, 1)
{
    if (UNDER_SANITIZER)
        SKIP("two ranks make the same accesses");
    check_meta(t);
}
TEST_RANKS(it_asks_for_the_same_bytes_on_meta_at_2_ranks, 2)
{
    check_meta(t);
}
