/* BertForMaskedLM: its tree, its loss on few rows, and sharded. test_bert.c compares it with
 * transformers. */
#include "src/base/assert.h"
#include "tests/models/model_checks.h"

static const fsdp_bert_config odd_shape = {.vocab_size = 17,
                                           .hidden_size = 15,
                                           .num_hidden_layers = 2,
                                           .num_attention_heads = 3,
                                           .intermediate_size = 7,
                                           .max_position_embeddings = 9,
                                           .type_vocab_size = 2,
                                           .num_labels = 2,
                                           .layer_norm_eps = 1e-12,
                                           .initializer_range = 0.5,
                                           .tie_word_embeddings = true};

static fsdp_model_config shape(fsdp_test *t)
{
    fsdp_model_config config = {0};
    if (fsdp_model_config_preset("bert-base-uncased", &config) != FSDP_OK ||
        fsdp_model_config_set_task(&config, FSDP_TASK_MASKED_LM) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "no configuration");
    config.bert = odd_shape;
    return config;
}

TEST(modules_have_hugging_faces_names_and_classes)
{
    static const char *const expected[][2] = {
        {"", "BertForMaskedLM"},
        {"bert", "BertModel"},
        {"bert.encoder.layer.1", "BertLayer"},
        {"cls", "BertOnlyMLMHead"},
        {"cls.predictions", "BertLMPredictionHead"},
        {"cls.predictions.transform", "BertPredictionHeadTransform"},
        {"cls.predictions.transform.dense", "Linear"},
        {"cls.predictions.transform.transform_act_fn", "GELUActivation"},
        {"cls.predictions.transform.LayerNorm", "LayerNorm"},
        {"cls.predictions.decoder", "Linear"},
    };
    const fsdp_model_config config = shape(t);
    fsdp_module *model;
    ASSERT_OK(fsdp_model_create(&config, &model));
    model_check_classes(t, model, expected, FSDP_LENGTH(expected));
    CHECK_HERE();
    ASSERT(!fsdp_module_find(model, "bert.pooler"));
    ASSERT_STR(fsdp_model_config_info(&config).class_name, "BertForMaskedLM");
    fsdp_module_destroy(model);
}

/* The order of named_parameters(); the output embedding and its bias have two names each. */
TEST(the_head_is_tied_to_the_word_embeddings)
{
    static const char *const last[] = {
        "cls.predictions.bias", "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias", "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias"};
    const fsdp_model_config config = shape(t);
    fsdp_module *model;
    fsdp_parameter_list once, all;
    ASSERT_OK(fsdp_model_create(&config, &model));
    ASSERT_OK(fsdp_module_parameters(model, false, &once));
    ASSERT_OK(fsdp_module_parameters(model, true, &all));
    for (size_t i = 0; i < FSDP_LENGTH(last); i++)
        ASSERT_STR(once.items[once.n - FSDP_LENGTH(last) + i].name, last[i]);
    ASSERT_INT(all.n, once.n + 2);
    ASSERT_STR(all.items[all.n - 2].name, "cls.predictions.decoder.weight");
    ASSERT_STR(all.items[all.n - 1].name, "cls.predictions.decoder.bias");
    ASSERT(all.items[all.n - 2].parameter == once.items[0].parameter);
    fsdp_parameter_list_free(&once);
    fsdp_parameter_list_free(&all);
    fsdp_module_destroy(model);
}

TEST(an_output_embedding_of_its_own_is_refused)
{
    fsdp_model_config config = shape(t);
    fsdp_module *model;
    config.bert.tie_word_embeddings = false;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_UNSUPPORTED,
                 "tie_word_embeddings is false");
}

TEST(a_model_without_the_head_is_named)
{
    fsdp_model_config config;
    ASSERT_OK(fsdp_model_config_preset("gpt2", &config));
    ASSERT_ERROR(fsdp_model_config_set_task(&config, FSDP_TASK_MASKED_LM), FSDP_ERR_INVALID,
                 "a GPT2LMHeadModel is for causal-lm, and has no head for masked-lm");
    ASSERT_OK(fsdp_model_config_set_task(&config, FSDP_TASK_CAUSAL_LM));
    ASSERT_OK(fsdp_model_config_preset("bert-base-uncased", &config));
    ASSERT_OK(fsdp_model_config_set_task(&config, FSDP_TASK_MASKED_LM));
    ASSERT_OK(fsdp_model_config_set_task(&config, FSDP_TASK_CLASSIFICATION));
    ASSERT_STR(fsdp_model_config_info(&config).class_name, "BertForSequenceClassification");
    ASSERT_ERROR(fsdp_model_config_set_task(&config, FSDP_TASK_SEQ2SEQ), FSDP_ERR_INVALID,
                 "has no head for seq2seq");
}

/* --- batches --- */

static const int32_t ids[] = {3, 9, 4, 16, 5, 8, 2, 1, 7, 7, 11, 0};
static const int32_t types[] = {0, 0, 1, 1, 1, 0, 1, 0, 0};
static const int32_t labels[] = {-100, 12, -100, -100, 5, -100, -100, 1, -100, -100, 16, 0};
static const fsdp_batch_row three_rows[] = {
    {.source = ids, .labels = labels, .source_len = 9, .labels_len = 9, .token_type_ids = types},
    {.source = ids + 5, .labels = labels + 5, .source_len = 7, .labels_len = 7},
    {.source = ids + 2, .labels = labels + 2, .source_len = 1, .labels_len = 1}};
static const model_rows three = {three_rows, 3};

/* The head of a loss runs on 6 rows of 17; the loss and gradients are those of all logits. Also
 * batches in which every token, or none, has a label. */
TEST(a_loss_has_the_numbers_of_the_logits_of_all_tokens)
{
    static const int32_t every[] = {3, 9, 4, 16, 5};
    static const fsdp_batch_row full[] = {
        {.source = ids, .labels = every, .source_len = 5, .labels_len = 5}};
    const fsdp_model_config config = shape(t);
    model_check_rows_read(t, &config, three, 100);
    CHECK_HERE();
    model_check_rows_read(t, &config, (model_rows){full, 1}, 105);
}

static void check_nothing_to_learn(fsdp_test *t)
{
    const fsdp_batch_row rows[] = {{.source = ids, .source_len = 4},
                                   {.source = ids, .source_len = 1}};
    const fsdp_model_config config = shape(t);
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

TEST(labels_that_are_not_one_for_each_token_are_refused)
{
    const fsdp_batch_format format = {.task = FSDP_TASK_MASKED_LM};
    fsdp_batch_row row = three_rows[0];
    fsdp_batch *batch;
    row.labels_len = 8;
    ASSERT_ERROR(fsdp_batch_create(&row, 1, &format, &batch), FSDP_ERR_INVALID,
                 "row 0: 8 labels for 9 ids");
}

TEST(rows_of_a_batch_do_not_see_each_other)
{
    const fsdp_model_config config = shape(t);
    const fsdp_batch_row first = {.source = ids, .source_len = 5};
    const fsdp_batch_row other = {.source = ids + 7, .source_len = 5};
    model_check_rows_are_apart(t, &config, &first, &other, &three_rows[1]);
}

/* --- sharding --- */

static void check_shapes(fsdp_test *t)
{
    fsdp_model_config configs[2];
    for (int i = 0; i < 2; i++)
        configs[i] = shape(t);
    configs[1].bert.hidden_size = 16;
    configs[1].bert.num_attention_heads = 2;
    configs[1].bert.num_hidden_layers = 1;
    configs[1].bert.hidden_act = FSDP_HIDDEN_ACT_RELU;
    model_check_shapes(t, configs, 2, three);
}

TEST_RANKS(odd_shapes_on_2_ranks_give_one_ranks_numbers_with_dropout_too, 2)
{
    check_shapes(t);
}
TEST_RANKS(odd_shapes_on_4_ranks_give_one_ranks_numbers_with_dropout_too, 4)
{
    check_shapes(t);
}

/* The transform has no tied parameter, so it can be a unit of its own. */
TEST_RANKS(the_transform_may_be_a_unit, 2)
{
    static const char *const units[] = {"bert.encoder.layer.0", "bert.encoder.layer.1",
                                        "cls.predictions.transform", ""};
    const fsdp_model_config config = shape(t);
    model_case c = {0};
    ASSERT_OK(fsdp_device_create(NULL, &c.device));
    ASSERT_OK(fsdp_tape_create(&c.tape));
    ASSERT_OK(fsdp_model_create(&config, &c.model));
    for (size_t i = 0; i < FSDP_LENGTH(units); i++)
        ASSERT_OK(fsdp_fully_shard(fsdp_module_find(c.model, units[i]), t->group, c.device, NULL));
    ASSERT_OK(fsdp_module_init(c.model, 1));
    model_check_sharded(t, &config, three, &c);
}

TEST_RANKS(in_bfloat16_the_loss_is_near_float32s, 2)
{
    const fsdp_model_config config = shape(t);
    model_check_halves(t, &config, three, 0.05);
}

TEST_RANKS(it_asks_for_the_same_bytes_on_meta, 2)
{
    const fsdp_model_config config = shape(t);
    model_check_meta(t, &config, three);
}
