/* BERT compared with transformers and PyTorch (tests/golden), on one rank and sharded; its module
 * tree; and packing. */
#include <fsdp/bert.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "tests/elements.h"
#include "tests/models/golden_checks.h"
#include "tests/models/model_checks.h"

/* --- against PyTorch --- */

static void check_all(fsdp_test *t)
{
    model_check_golden(t, "bert", "inputs", "expected");
    CHECK_HERE();
    model_check_golden(t, "bert_mlm", "inputs", "expected");
}

GOLDEN_TESTS(check_all)

/* --- the tree --- */

static const fsdp_bert_config odd_shape = {.vocab_size = 17,
                                           .hidden_size = 15,
                                           .num_hidden_layers = 1,
                                           .num_attention_heads = 3,
                                           .intermediate_size = 7,
                                           .max_position_embeddings = 9,
                                           .type_vocab_size = 2,
                                           .num_labels = 3,
                                           .layer_norm_eps = 1e-12,
                                           .initializer_range = 0.5};

/* A configuration of the preset's type with this shape. */
static fsdp_model_config classifier(const fsdp_bert_config *shape)
{
    fsdp_model_config config = {0};
    if (fsdp_model_config_preset("bert-base-uncased", &config) == FSDP_OK)
        config.bert = *shape;
    return config;
}

TEST(modules_have_hugging_faces_names_and_classes)
{
    static const char *const expected[][2] = {
        {"", "BertForSequenceClassification"},
        {"bert", "BertModel"},
        {"bert.embeddings", "BertEmbeddings"},
        {"bert.embeddings.word_embeddings", "Embedding"},
        {"bert.embeddings.position_embeddings", "Embedding"},
        {"bert.embeddings.token_type_embeddings", "Embedding"},
        {"bert.embeddings.LayerNorm", "LayerNorm"},
        {"bert.embeddings.dropout", "Dropout"},
        {"bert.encoder", "BertEncoder"},
        {"bert.encoder.layer", "ModuleList"},
        {"bert.encoder.layer.0", "BertLayer"},
        {"bert.encoder.layer.0.attention", "BertAttention"},
        {"bert.encoder.layer.0.attention.self", "BertSelfAttention"},
        {"bert.encoder.layer.0.attention.self.value", "Linear"},
        {"bert.encoder.layer.0.attention.self.dropout", "Dropout"},
        {"bert.encoder.layer.0.attention.output", "BertSelfOutput"},
        {"bert.encoder.layer.0.attention.output.LayerNorm", "LayerNorm"},
        {"bert.encoder.layer.0.intermediate", "BertIntermediate"},
        {"bert.encoder.layer.0.intermediate.intermediate_act_fn", "GELUActivation"},
        {"bert.encoder.layer.0.output", "BertOutput"},
        {"bert.encoder.layer.0.output.dense", "Linear"},
        {"bert.pooler", "BertPooler"},
        {"bert.pooler.activation", "Tanh"},
        {"dropout", "Dropout"},
        {"classifier", "Linear"},
    };
    fsdp_module *model;
    fsdp_model_config config = classifier(&odd_shape);
    ASSERT_OK(fsdp_model_create(&config, &model));
    model_check_classes(t, model, expected, FSDP_LENGTH(expected));
    CHECK_HERE();
    ASSERT(!fsdp_module_find(model, "bert.encoder.layer.1"));
    fsdp_module_destroy(model);
}

/* As in transformers: weights around 0, biases and the padding row 0, norms 1. */
TEST(a_fresh_model_is_drawn_as_transformers_draws_it)
{
    model_case c;
    fsdp_bert_config shape = odd_shape;
    shape.pad_token_id = 2;
    shape.hidden_size = 60;
    fsdp_model_config config = classifier(&shape);
    model_case_create(t, &config, &c);
    CHECK_HERE();
    fsdp_module *embeddings = fsdp_module_find(c.model, "bert.embeddings");
    const float *word = elements_of(fsdp_parameter_data(
        fsdp_module_parameter(fsdp_module_find(embeddings, "word_embeddings"), "weight")));
    double sum = 0, squares = 0;
    for (int i = 0; i < 17 * 60; i++) {
        ASSERT((word[i] == 0) == (i / 60 == 2));
        sum += (double)word[i];
        squares += (double)(word[i] * word[i]);
    }
    ASSERT_NEAR(sum / (16 * 60), 0.0, 0.08);
    ASSERT_NEAR(sqrt(squares / (16 * 60)), 0.5, 0.05);
    const fsdp_module *norm = fsdp_module_find(embeddings, "LayerNorm");
    const float *w = elements_of(fsdp_parameter_data(fsdp_module_parameter(norm, "weight")));
    const float *b = elements_of(fsdp_parameter_data(fsdp_module_parameter(norm, "bias")));
    for (int i = 0; i < 60; i++)
        ASSERT(w[i] == 1 && b[i] == 0);
    model_case_close(&c);
}

TEST(a_shape_that_cannot_be_is_refused)
{
    fsdp_module *model;
    fsdp_model_config config = classifier(&odd_shape);
    config.bert.num_labels = 0;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "num_labels is 0");
    config = classifier(&odd_shape);
    config.bert.num_attention_heads = 4;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID,
                 "hidden_size 15 is not a multiple of 4 heads");
    config = classifier(&odd_shape);
    config.bert.pad_token_id = 17;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "pad_token_id is 17");
}

/* --- batches --- */

static const int32_t ids[] = {3, 9, 4, 16, 5, 8, 2, 1, 7, 7, 11, 0};
static const int32_t types[] = {0, 0, 1, 1, 1, 0, 1, 0, 0};
static const int32_t class_0[] = {0}, class_2[] = {2};
static const fsdp_batch_row three_rows[] = {
    {.source = ids, .labels = class_2, .source_len = 9, .labels_len = 1, .token_type_ids = types},
    {.source = ids + 5, .labels = class_0, .source_len = 7, .labels_len = 1},
    {.source = ids + 2, .labels = class_2, .source_len = 1, .labels_len = 1}};
static const model_rows three = {three_rows, 3};

static void assert_refused(fsdp_test *t, const fsdp_batch_row *row, const char *message)
{
    model_case c;
    fsdp_scope *s;
    fsdp_model_config config = classifier(&odd_shape);
    model_case_create(t, &config, &c);
    CHECK_HERE();
    if (row)
        model_make_batch(t, &config, (model_rows){row, 1}, &c.batch);
    CHECK_HERE();
    ASSERT_OK(fsdp_scope_open(c.device, c.tape, &(fsdp_scope_options){.batch = c.batch}, &s));
    ASSERT(!fsdp_model_loss(s, c.model, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, message);
    fsdp_scope_close(s);
    model_case_close(&c);
}

TEST(batches_that_do_not_fit_are_refused)
{
    static const int32_t segments[] = {0, 1, 2}, class_3[] = {3};
    assert_refused(t, NULL, "no batch");
    CHECK_HERE();
    assert_refused(
        t, &(fsdp_batch_row){.source = ids, .labels = class_0, .source_len = 10, .labels_len = 1},
        "a sequence of 10 tokens, max_position_embeddings is 9");
    CHECK_HERE();
    assert_refused(t,
                   &(fsdp_batch_row){.source = ids,
                                     .labels = class_0,
                                     .source_len = 3,
                                     .labels_len = 1,
                                     .token_type_ids = segments},
                   "token_type_ids[2] is 2, type_vocab_size is 2");
    CHECK_HERE();
    assert_refused(t, &(fsdp_batch_row){.source = ids, .labels = class_0, .labels_len = 1},
                   "BertPooler: sequence 0 has no tokens");
    CHECK_HERE();
    assert_refused(
        t, &(fsdp_batch_row){.source = ids, .labels = class_3, .source_len = 3, .labels_len = 1},
        "label 3");
}

TEST(rows_of_a_batch_do_not_see_each_other)
{
    const fsdp_model_config config = classifier(&odd_shape);
    const fsdp_batch_row first = {.source = ids, .source_len = 5};
    const fsdp_batch_row other = {.source = ids + 7, .source_len = 5};
    model_check_rows_are_apart(t, &config, &first, &other, &three_rows[1]);
}

TEST(dropout_is_drawn_by_step_and_leaf_and_off_outside_of_training)
{
    const fsdp_model_config config = classifier(&odd_shape);
    model_check_dropout(t, &config, three);
}

static void check_nothing_to_learn(fsdp_test *t)
{
    const fsdp_batch_row rows[] = {{.source = ids, .source_len = 4},
                                   {.source = ids, .source_len = 1}};
    const fsdp_model_config config = classifier(&odd_shape);
    model_check_nothing_to_learn(t, &config, (model_rows){rows, 2});
}

TEST(a_batch_without_labels_has_loss_0_and_gradients_0)
{
    check_nothing_to_learn(t);
}
TEST_RANKS(a_batch_without_labels_has_loss_0_and_gradients_0_on_2_ranks, 2)
{
    check_nothing_to_learn(t);
}

/* --- what a loss computes (Note [First tokens] in bert.c) --- */

static const int32_t long_ids[] = {3, 9, 4, 16, 5, 8, 2, 1, 7};
static const fsdp_batch_row long_rows[] = {
    {.source = long_ids, .labels = class_2, .source_len = 9, .labels_len = 1},
    {.source = long_ids + 1, .labels = class_0, .source_len = 8, .labels_len = 1},
    {.source = ids + 2, .labels = class_2, .source_len = 1, .labels_len = 1},
    {.source = long_ids + 2, .labels = class_0, .source_len = 7, .labels_len = 1}};

TEST(a_loss_that_computes_first_tokens_alone_has_the_numbers_of_all)
{
    fsdp_model_config config = classifier(&odd_shape);
    config.bert.num_hidden_layers = 2;
    model_check_rows_read(t, &config, (model_rows){long_rows, 4}, 90);
}

/* --- sharding --- */

static void check_shapes(fsdp_test *t)
{
    static const int64_t shapes[][4] = {
        /* D, heads, F, layers */
        {15, 3, 7, 1},
        {16, 2, 16, 2},
        {1, 1, 1, 1},
    };
    fsdp_model_config configs[FSDP_LENGTH(shapes)];
    for (size_t i = 0; i < FSDP_LENGTH(shapes); i++) {
        configs[i] = classifier(&odd_shape);
        configs[i].bert.hidden_size = shapes[i][0];
        configs[i].bert.num_attention_heads = shapes[i][1];
        configs[i].bert.intermediate_size = shapes[i][2];
        configs[i].bert.num_hidden_layers = shapes[i][3];
        configs[i].bert.hidden_act = (fsdp_hidden_act)i;
    }
    model_check_shapes(t, configs, FSDP_LENGTH(shapes), three);
}

TEST_RANKS(odd_shapes_on_2_ranks_give_one_ranks_numbers_with_dropout_too, 2)
{
    check_shapes(t);
}
TEST_RANKS(odd_shapes_on_3_ranks_give_one_ranks_numbers_with_dropout_too, 3)
{
    check_shapes(t);
}

TEST_RANKS(in_bfloat16_the_loss_is_near_float32s, 2)
{
    const fsdp_model_config config = classifier(&odd_shape);
    model_check_halves(t, &config, three, 0.05);
}

static void check_meta(fsdp_test *t)
{
    fsdp_model_config config = classifier(&odd_shape);
    config.bert.num_hidden_layers = 2;
    model_check_meta(t, &config, three);
}

TEST_RANKS(it_asks_for_the_same_bytes_on_meta_at_1_rank, 1)
{
    check_meta(t);
}
TEST_RANKS(it_asks_for_the_same_bytes_on_meta_at_2_ranks, 2)
{
    check_meta(t);
}
