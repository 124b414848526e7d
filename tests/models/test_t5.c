/* T5 and umT5 compared with transformers and PyTorch (tests/golden), on one rank and sharded; and
 * packing. tools/golden_model.py wrote golden/t5_gated_silu and golden/umt5. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "tests/models/golden_checks.h"
#include "tests/models/model_checks.h"
#include "tests/models/t5_shape.h"

/* --- against PyTorch --- */

static void check_all(fsdp_test *t)
{
    static const char *const names[] = {"t5_v1_0", "t5_v1_1", "t5_gated_silu", "umt5"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        model_check_golden(t, names[i], "inputs", "expected");
        CHECK_HERE();
    }
}

GOLDEN_TESTS(check_all)

/* --- the tree --- */

TEST(modules_have_hugging_faces_names_and_classes)
{
    static const char *const expected[][2] = {
        {"", "T5ForConditionalGeneration"},
        {"shared", "Embedding"},
        {"encoder", "T5Stack"},
        {"encoder.embed_tokens", "Embedding"},
        {"encoder.block", "ModuleList"},
        {"encoder.block.1", "T5Block"},
        {"encoder.block.1.layer.0", "T5LayerSelfAttention"},
        {"encoder.block.1.layer.0.SelfAttention", "T5Attention"},
        {"encoder.block.1.layer.0.SelfAttention.q", "Linear"},
        {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias", "Embedding"},
        {"encoder.block.1.layer.0.layer_norm", "T5LayerNorm"},
        {"encoder.block.1.layer.0.dropout", "Dropout"},
        {"encoder.block.1.layer.1", "T5LayerFF"},
        {"encoder.block.1.layer.1.DenseReluDense", "T5DenseGatedActDense"},
        {"encoder.final_layer_norm", "T5LayerNorm"},
        {"decoder.block.0.layer.1", "T5LayerCrossAttention"},
        {"decoder.block.0.layer.1.EncDecAttention.o", "Linear"},
        {"decoder.block.0.layer.2.DenseReluDense.wi_1", "Linear"},
        {"lm_head", "Linear"},
    };
    fsdp_module *model;
    const fsdp_model_config config = t5_odd_shape();
    ASSERT_OK(fsdp_model_create(&config, &model));
    model_check_classes(t, model, expected, FSDP_LENGTH(expected));
    CHECK_HERE();
    ASSERT(
        !fsdp_module_find(model, "encoder.block.1.layer.0.SelfAttention.relative_attention_bias"));
    ASSERT(!fsdp_module_find(model, "encoder.block.2"));
    ASSERT(!fsdp_module_find(model, "decoder.block.1"));
    fsdp_module_destroy(model);
}

TEST(umt5_has_a_position_bias_in_every_self_attention)
{
    static const char *const expected[][2] = {
        {"", "UMT5ForConditionalGeneration"},
        {"encoder", "UMT5Stack"},
        {"encoder.block.1", "UMT5Block"},
        {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias", "Embedding"},
        {"encoder.block.1.layer.0", "UMT5LayerSelfAttention"},
        {"encoder.block.1.layer.0.SelfAttention", "UMT5Attention"},
        {"encoder.block.1.layer.0.SelfAttention.relative_attention_bias", "Embedding"},
        {"encoder.block.1.layer.1.DenseReluDense", "UMT5DenseActDense"},
        {"encoder.block.1.layer.1.DenseReluDense.act", "SiLUActivation"},
        {"decoder.block.1.layer.0.SelfAttention.relative_attention_bias", "Embedding"},
        {"decoder.block.1.layer.1", "UMT5LayerCrossAttention"},
        {"decoder.block.1.layer.2", "UMT5LayerFF"},
    };
    fsdp_module *model;
    fsdp_model_config config = t5_odd_shape();
    config.t5.family = FSDP_UMT5;
    config.t5.num_decoder_layers = 2;
    config.t5.is_gated_act = false;
    config.t5.dense_act_fn = FSDP_HIDDEN_ACT_SILU;
    ASSERT_OK(fsdp_model_create(&config, &model));
    model_check_classes(t, model, expected, FSDP_LENGTH(expected));
    CHECK_HERE();
    ASSERT(!fsdp_module_find(model,
                             "decoder.block.1.layer.1.EncDecAttention.relative_attention_bias"));
    fsdp_module_destroy(model);
}

TEST(the_embedding_is_one_parameter_under_its_names)
{
    fsdp_model_config config = t5_odd_shape();
    fsdp_module *model;
    fsdp_parameter_list once, all;
    for (int tied = 0; tied < 2; tied++) {
        config.t5.tie_word_embeddings = tied;
        ASSERT_OK(fsdp_model_create(&config, &model));
        ASSERT_OK(fsdp_module_parameters(model, false, &once));
        ASSERT_OK(fsdp_module_parameters(model, true, &all));
        ASSERT_STR(once.items[0].name, "shared.weight");
        ASSERT_INT(all.n - once.n, tied ? 3 : 2);
        fsdp_parameter_list_free(&once);
        fsdp_parameter_list_free(&all);
        fsdp_module_destroy(model);
    }
}

TEST(a_shape_that_cannot_be_is_refused)
{
    fsdp_model_config config = t5_odd_shape();
    fsdp_module *model;
    config.t5.num_heads = 0;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "num_heads is 0");
    /* The formula of the buckets would divide by zero. */
    config = t5_odd_shape();
    config.t5.relative_attention_num_buckets = 2;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID,
                 "relative_attention_num_buckets is 2");
    config.t5.relative_attention_num_buckets = 8;
    config.t5.relative_attention_max_distance = 4;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID,
                 "relative_attention_max_distance is 4");
    config.t5.relative_attention_max_distance = 5;
    ASSERT_OK(fsdp_model_create(&config, &model));
    fsdp_module_destroy(model);
}

TEST(a_forward_without_a_batch_is_refused)
{
    const fsdp_model_config config = t5_odd_shape();
    model_check_needs_batch(t, &config);
}

/* --- packing --- */

static const int32_t source[] = {3, 9, 4, 16, 5, 8, 2, 1, 7, 7, 11, 1};
static const int32_t labels[] = {5, 2, 14, 1, -100, 6, 1};

/* Another first document changes no bit of the second one's logits. */
TEST(documents_of_a_batch_do_not_see_each_other)
{
    const fsdp_model_config config = t5_odd_shape();
    const fsdp_batch_row first = {
        .source = source, .labels = labels, .source_len = 5, .labels_len = 3};
    const fsdp_batch_row other = {
        .source = source + 7, .labels = labels + 1, .source_len = 5, .labels_len = 3};
    const fsdp_batch_row second = {
        .source = source + 5, .labels = labels + 3, .source_len = 7, .labels_len = 4};
    model_check_rows_are_apart(t, &config, &first, &other, &second);
}

/* A document's numbers do not depend on the lengths of other documents, although the position bias
 * is as large as the longest needs and rows of a product may be at other places. */
TEST(a_document_alone_gives_what_it_gives_in_a_batch)
{
    const fsdp_model_config config = t5_odd_shape();
    const fsdp_batch_row rows[] = {
        {.source = source, .labels = labels, .source_len = 12, .labels_len = 7},
        {.source = source, .labels = labels, .source_len = 3, .labels_len = 2},
        {.source = source, .labels = NULL, .source_len = 4, .labels_len = 0}};
    model_case c;
    float *alone, *among;
    model_case_create(t, &config, &c);
    CHECK_HERE();
    model_make_batch(t, &config, (model_rows){&rows[1], 1}, &c.batch);
    model_case_logits(t, &c, &alone);
    CHECK_HERE();
    fsdp_batch_release(c.batch);
    model_make_batch(t, &config, (model_rows){rows, 3}, &c.batch);
    model_case_logits(t, &c, &among);
    CHECK_HERE();
    for (int i = 0; i < 2 * 17; i++)
        ASSERT_NEAR(alone[i], among[7 * 17 + i], 1e-5);
    fsdp_free(alone);
    fsdp_free(among);
    model_case_close(&c);
}
