/* GPT-2 compared with transformers and PyTorch (tests/golden), on one rank and sharded; its module
 * tree; packing; and decoding one token at a time. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/models/model_type.h"
#include "tests/elements.h"
#include "tests/models/golden_checks.h"
#include "tests/models/model_checks.h"

/* --- against PyTorch --- */

static void check_all(fsdp_test *t)
{
    model_check_golden(t, "gpt2", "inputs", "expected");
}

GOLDEN_TESTS(check_all)

/* --- the tree --- */

enum {
    VOCAB = 17
};

static const fsdp_gpt2_config odd_shape = {.vocab_size = VOCAB,
                                           .n_embd = 15,
                                           .n_layer = 1,
                                           .n_head = 3,
                                           .n_positions = 9,
                                           .n_inner = 7,
                                           .layer_norm_epsilon = 1e-5,
                                           .initializer_range = 0.5,
                                           .activation_function = FSDP_HIDDEN_ACT_GELU_NEW,
                                           .scale_attn_weights = true,
                                           .tie_word_embeddings = true,
                                           .bos_token_id = -1,
                                           .eos_token_id = -1,
                                           .pad_token_id = -1};

static fsdp_model_config of_shape(const fsdp_gpt2_config *shape)
{
    return (fsdp_model_config){.type = &fsdp_gpt2_type, .gpt2 = *shape};
}

TEST(modules_have_hugging_faces_names_and_classes)
{
    static const char *const expected[][2] = {
        {"", "GPT2LMHeadModel"},
        {"transformer", "GPT2Model"},
        {"transformer.wte", "Embedding"},
        {"transformer.wpe", "Embedding"},
        {"transformer.drop", "Dropout"},
        {"transformer.h", "ModuleList"},
        {"transformer.h.0", "GPT2Block"},
        {"transformer.h.0.ln_1", "LayerNorm"},
        {"transformer.h.0.attn", "GPT2Attention"},
        {"transformer.h.0.attn.c_attn", "Conv1D"},
        {"transformer.h.0.attn.c_proj", "Conv1D"},
        {"transformer.h.0.attn.resid_dropout", "Dropout"},
        {"transformer.h.0.ln_2", "LayerNorm"},
        {"transformer.h.0.mlp", "GPT2MLP"},
        {"transformer.h.0.mlp.c_fc", "Conv1D"},
        {"transformer.h.0.mlp.act", "NewGELUActivation"},
        {"transformer.ln_f", "LayerNorm"},
        {"lm_head", "Linear"},
    };
    fsdp_module *model;
    const fsdp_model_config config = of_shape(&odd_shape);
    ASSERT_OK(fsdp_model_create(&config, &model));
    model_check_classes(t, model, expected, FSDP_LENGTH(expected));
    CHECK_HERE();
    ASSERT(!fsdp_module_find(model, "transformer.h.1"));
    const fsdp_parameter *c_attn =
        fsdp_module_parameter(fsdp_module_find(model, "transformer.h.0.attn.c_attn"), "weight");
    ASSERT_INT(fsdp_parameter_shape(c_attn)[0], 15);
    ASSERT_INT(fsdp_parameter_shape(c_attn)[1], 45);
    fsdp_module_destroy(model);
}

TEST(the_head_is_the_embedding_unless_it_is_untied)
{
    fsdp_model_config config = of_shape(&odd_shape);
    fsdp_module *model;
    fsdp_parameter_list once, all;
    for (int tied = 0; tied < 2; tied++) {
        config.gpt2.tie_word_embeddings = tied;
        ASSERT_OK(fsdp_model_create(&config, &model));
        ASSERT_OK(fsdp_module_parameters(model, false, &once));
        ASSERT_OK(fsdp_module_parameters(model, true, &all));
        ASSERT_STR(once.items[0].name, "transformer.wte.weight");
        ASSERT_INT(once.n, tied ? 16 : 17);
        ASSERT_INT(all.n, 17);
        fsdp_parameter_list_free(&once);
        fsdp_parameter_list_free(&all);
        fsdp_module_destroy(model);
    }
}

/* sqrt of the mean square of all elements of parameter `name` of module `path`. */
static double rms(const model_case *c, const char *path, const char *name)
{
    const fsdp_parameter *p = fsdp_module_parameter(fsdp_module_find(c->model, path), name);
    const float *x = elements_of(fsdp_parameter_data(p));
    const int64_t n = fsdp_parameter_numel(p);
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += (double)(x[i] * x[i]);
    return sqrt(squares / (double)n);
}

/* As in transformers: weights that end in the residual stream are smaller by a factor of sqrt(2
 * n_layer). */
TEST(a_fresh_model_is_drawn_as_transformers_draws_it)
{
    model_case c;
    fsdp_model_config config = of_shape(&odd_shape);
    config.gpt2.n_embd = config.gpt2.n_inner = 60;
    config.gpt2.n_layer = 2;
    config.gpt2.initializer_range = 0.2;
    model_case_create(t, &config, &c);
    CHECK_HERE();
    ASSERT_NEAR(rms(&c, "transformer.wte", "weight"), 0.2, 0.02);
    ASSERT_NEAR(rms(&c, "transformer.h.1.attn.c_attn", "weight"), 0.2, 0.01);
    ASSERT_NEAR(rms(&c, "transformer.h.1.mlp.c_fc", "weight"), 0.2, 0.01);
    ASSERT_NEAR(rms(&c, "transformer.h.1.attn.c_proj", "weight"), 0.1, 0.01);
    ASSERT_NEAR(rms(&c, "transformer.h.0.mlp.c_proj", "weight"), 0.1, 0.01);
    ASSERT_F32(rms(&c, "transformer.h.1.attn.c_attn", "bias"), 0);
    ASSERT_F32(rms(&c, "transformer.ln_f", "bias"), 0);
    ASSERT_F32(rms(&c, "transformer.ln_f", "weight"), 1);
    model_case_close(&c);
}

TEST(a_shape_that_cannot_be_is_refused)
{
    fsdp_module *model;
    fsdp_model_config config = of_shape(&odd_shape);
    config.gpt2.n_positions = 0;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "n_positions is 0");
    config = of_shape(&odd_shape);
    config.gpt2.n_head = 4;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID,
                 "n_embd 15 is not a multiple of 4 heads");
}

/* --- batches --- */

static const int32_t ids[] = {3, 9, 4, 16, 5, 8, 2, 1, 7, 7, 11, 0};
static const int32_t some_labels[] = {-100, 2, 14, -100, 6, 1, 3};
static const fsdp_batch_row three_rows[] = {
    {.source = ids, .source_len = 9},
    {.source = ids + 5, .labels = some_labels, .source_len = 7, .labels_len = 7},
    {.source = ids + 2, .source_len = 1}};
static const model_rows three = {three_rows, 3};

/* Checks that the loss of a batch of `row` is refused. */
static void check_refused(fsdp_test *t, fsdp_batch_row row, const char *error)
{
    const fsdp_model_config config = of_shape(&odd_shape);
    model_case c;
    fsdp_scope *s;
    model_case_create(t, &config, &c);
    CHECK_HERE();
    model_make_batch(t, &config, (model_rows){&row, 1}, &c.batch);
    CHECK_HERE();
    ASSERT_OK(fsdp_scope_open(c.device, c.tape, &(fsdp_scope_options){.batch = c.batch}, &s));
    ASSERT(!fsdp_model_loss(s, c.model, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, error);
    fsdp_scope_close(s);
    model_case_close(&c);
}

TEST(a_sequence_beyond_n_positions_is_refused)
{
    check_refused(t, (fsdp_batch_row){.source = ids, .source_len = 10},
                  "GPT-2: a sequence of 10 tokens, n_positions is 9");
}

TEST(token_types_are_refused)
{
    const int32_t types[] = {0, 0, 1};
    check_refused(t, (fsdp_batch_row){.source = ids, .token_type_ids = types, .source_len = 3},
                  "GPT-2: a batch with token_type_ids");
}

TEST(rows_of_a_batch_do_not_see_each_other)
{
    const fsdp_model_config config = of_shape(&odd_shape);
    const fsdp_batch_row first = {.source = ids, .source_len = 5};
    const fsdp_batch_row other = {.source = ids + 7, .source_len = 5};
    model_check_rows_are_apart(t, &config, &first, &other, &three_rows[1]);
}

/* Two documents in one row give the same results as in separate rows. */
TEST(documents_of_a_row_do_not_see_each_other)
{
    static const int32_t positions[] = {0, 1, 2, 3, 0, 1, 2};
    const fsdp_model_config config = of_shape(&odd_shape);
    const fsdp_batch_row packed = {.source = ids, .source_len = 7, .position_ids = positions};
    const fsdp_batch_row apart[] = {{.source = ids, .source_len = 4},
                                    {.source = ids + 4, .source_len = 3}};
    model_case c;
    float *x, *y;
    model_case_create(t, &config, &c);
    CHECK_HERE();
    model_make_batch(t, &config, (model_rows){&packed, 1}, &c.batch);
    model_case_logits(t, &c, &x);
    CHECK_HERE();
    fsdp_batch_release(c.batch);
    model_make_batch(t, &config, (model_rows){apart, 2}, &c.batch);
    model_case_logits(t, &c, &y);
    CHECK_HERE();
    ASSERT(memcmp(x, y, 7 * VOCAB * sizeof *x) == 0);
    fsdp_free(x);
    fsdp_free(y);
    model_case_close(&c);
}

TEST(dropout_is_drawn_by_step_and_leaf_and_off_outside_of_training)
{
    const fsdp_model_config config = of_shape(&odd_shape);
    model_check_dropout(t, &config, three);
}

static void check_nothing_to_learn(fsdp_test *t)
{
    static const int32_t ignored[] = {-100, -100, -100};
    const fsdp_batch_row rows[] = {
        {.source = ids, .source_len = 1},
        {.source = ids, .labels = ignored, .source_len = 3, .labels_len = 3}};
    const fsdp_model_config config = of_shape(&odd_shape);
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

/* Sets weights to a function of their index. */
static void fill(fsdp_module *model)
{
    fsdp_parameter_list list;
    if (fsdp_module_parameters(model, false, &list) != FSDP_OK)
        return;
    for (size_t i = 0; i < list.n; i++) {
        fsdp_tensor *local = fsdp_parameter_local(list.items[i].parameter);
        float *w = elements_of(local);
        for (int64_t k = 0; k < fsdp_parameter_numel(list.items[i].parameter); k++)
            w[k] = 0.5f * (float)sin((double)(k * 7 + (int64_t)i * 3 + 1));
        elements_changed(local, w);
    }
    fsdp_parameter_list_free(&list);
}

/* Each switch changes the logits. The numbers are from transformers 5.23. */
TEST(attention_is_scaled_as_transformers_scales_it)
{
    static const struct {
        bool weights, inverse;
        double last_logits[2];
    } cases[] = {{true, false, {1.329968, 0.8440809}},
                 {true, true, {1.32993, 0.843915}},
                 {false, false, {1.328667, 0.837759}},
                 {false, true, {1.328605, 0.8374264}}};
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_model_config config = of_shape(&odd_shape);
        model_case c;
        float *logits;
        config.gpt2.n_layer = 2;
        config.gpt2.scale_attn_weights = cases[i].weights;
        config.gpt2.scale_attn_by_inverse_layer_idx = cases[i].inverse;
        model_case_create(t, &config, &c);
        CHECK_HERE();
        fill(c.model);
        model_make_batch(t, &config, (model_rows){three_rows, 1}, &c.batch);
        model_case_logits(t, &c, &logits);
        CHECK_HERE();
        for (int k = 0; k < 2; k++)
            ASSERT_NEAR(logits[8 * VOCAB + k], cases[i].last_logits[k], 2e-5);
        fsdp_free(logits);
        model_case_close(&c);
    }
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
        configs[i] = of_shape(&odd_shape);
        configs[i].gpt2.n_embd = shapes[i][0];
        configs[i].gpt2.n_head = shapes[i][1];
        configs[i].gpt2.n_inner = shapes[i][2];
        configs[i].gpt2.n_layer = shapes[i][3];
        configs[i].gpt2.tie_word_embeddings = i != 1;
        configs[i].gpt2.activation_function = (fsdp_hidden_act)i;
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
    const fsdp_model_config config = of_shape(&odd_shape);
    model_check_halves(t, &config, three, 0.05);
}

static void check_meta(fsdp_test *t)
{
    fsdp_model_config config = of_shape(&odd_shape);
    config.gpt2.n_layer = 2;
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

/* --- one token at a time --- */

/* Prompts of 4, 1 and 2 ids, which all continue up to 9 ids. */
static const int32_t prompt_length[3] = {4, 1, 2};
static const int32_t *const sequences[3] = {ids, ids + 3, ids + 1};

/* Logits [3, 9, V] of the whole sequences, owned by the caller. */
static void whole_logits(fsdp_test *t, const fsdp_model_config *config, model_case *c,
                         float **logits)
{
    fsdp_batch_row rows[3];
    for (int i = 0; i < 3; i++)
        rows[i] = (fsdp_batch_row){.source = sequences[i], .source_len = 9};
    model_make_batch(t, config, (model_rows){rows, 3}, &c->batch);
    CHECK_HERE();
    model_case_logits(t, c, logits);
    fsdp_batch_release(c->batch);
    c->batch = NULL;
}

/* Checks logits [n, V]: row i follows `fed[i]` ids of sequence live[i]. */
static void compare(fsdp_test *t, fsdp_scope *s, const fsdp_tensor *logits, const int32_t *live,
                    const int32_t *fed, int n, const float *whole)
{
    float got[3 * VOCAB];
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_INT(fsdp_tensor_size(logits, 0), n);
    ASSERT_OK(fsdp_tensor_to_floats(logits, got));
    for (int i = 0; i < n * VOCAB; i++) {
        const int row = i / VOCAB;
        ASSERT_NEAR(got[i], whole[(live[row] * 9 + fed[row] - 1) * VOCAB + i % VOCAB], 2e-5);
    }
}

static void prompt(fsdp_test *t, const fsdp_model_config *config, model_case *c,
                   fsdp_decode_cache *cache, const float *whole)
{
    static const int32_t all[] = {0, 1, 2};
    fsdp_batch_row rows[3];
    fsdp_scope *s;
    for (int i = 0; i < 3; i++)
        rows[i] = (fsdp_batch_row){.source = sequences[i], .source_len = prompt_length[i]};
    model_make_batch(t, config, (model_rows){rows, 3}, &c->batch);
    CHECK_HERE();
    ASSERT_OK(fsdp_scope_open(c->device, NULL, &(fsdp_scope_options){.batch = c->batch}, &s));
    const fsdp_tensor *logits = fsdp_gpt2_type.decoder->prompt(s, c->model, cache);
    compare(t, s, logits, all, prompt_length, 3, whole);
    fsdp_scope_close(s);
}

/* The first sequence ends after its 7th id; the others are reordered and continue to their 9th. */
static void check_decoding(fsdp_test *t)
{
    const fsdp_decoder *decoder = fsdp_gpt2_type.decoder;
    fsdp_model_config config = of_shape(&odd_shape);
    fsdp_decode_cache *cache;
    model_case c;
    float *whole;
    config.gpt2.n_layer = 2;
    config.gpt2.scale_attn_by_inverse_layer_idx = true;
    model_case_create(t, &config, &c);
    whole_logits(t, &config, &c, &whole);
    CHECK_HERE();
    ASSERT_OK(decoder->create(c.model, &cache));
    prompt(t, &config, &c, cache, whole);
    CHECK_HERE();
    int32_t live[3] = {0, 1, 2}, fed[3] = {4, 1, 2};
    for (int step = 0, n = 3; step < 7; step++) {
        static const int32_t others[] = {2, 1};
        int32_t next[3];
        fsdp_scope *s;
        ASSERT_OK(fsdp_scope_open(c.device, NULL, NULL, &s));
        for (int i = 0; i < n; i++)
            next[i] = sequences[live[i]][fed[i]++];
        const fsdp_tensor *logits = decoder->step(s, c.model, cache, next);
        compare(t, s, logits, live, fed, n, whole);
        CHECK_HERE();
        if (step == 2) {
            decoder->select(s, cache, others, n = 2);
            live[0] = 2;
            fed[0] = fed[2];
        }
        ASSERT_OK(fsdp_scope_status(s));
        fsdp_scope_close(s);
    }
    ASSERT_INT(fed[0], 9);
    decoder->destroy(cache);
    fsdp_free(whole);
    model_case_close(&c);
}

TEST(decoding_step_by_step_gives_the_logits_of_the_whole)
{
    check_decoding(t);
}
TEST_RANKS(decoding_step_by_step_gives_the_logits_of_the_whole_on_3_ranks, 3)
{
    check_decoding(t);
}

TEST(decoding_beyond_n_positions_is_refused)
{
    const fsdp_decoder *decoder = fsdp_gpt2_type.decoder;
    const fsdp_model_config config = of_shape(&odd_shape);
    const fsdp_batch_row row = {.source = ids, .source_len = 9};
    fsdp_decode_cache *cache;
    model_case c;
    fsdp_scope *s;
    model_case_create(t, &config, &c);
    CHECK_HERE();
    model_make_batch(t, &config, (model_rows){&row, 1}, &c.batch);
    CHECK_HERE();
    ASSERT_OK(decoder->create(c.model, &cache));
    ASSERT_OK(fsdp_scope_open(c.device, NULL, &(fsdp_scope_options){.batch = c.batch}, &s));
    ASSERT(decoder->prompt(s, c.model, cache));
    ASSERT(!decoder->step(s, c.model, cache, ids));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "n_positions is 9");
    fsdp_scope_close(s);
    decoder->destroy(cache);
    model_case_close(&c);
}
