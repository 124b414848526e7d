/* T5 against what transformers and PyTorch compute (tests/golden), alone and sharded; and what
 * packing promises. */
#include <stdio.h>

#include <fsdp/ckpt.h>

#include "src/base/alloc.h"
#include "tests/models/t5_case.h"

static const char *const names[] = {"t5_v1_0", "t5_v1_1"};

/* --- against PyTorch --- */

static void open_expected(fsdp_test *t, const char *name, fsdp_checkpoint_reader **reader)
{
    char path[256];
    snprintf(path, sizeof path, "golden/%s/expected.safetensors", name);
    ASSERT_OK(fsdp_checkpoint_open(fsdp_test_path(path), reader));
}

/* Packed rows [tokens, width] of `actual` stand at `positions` of the padded rows of `name`. */
static void compare_rows(fsdp_test *t, const fsdp_checkpoint_reader *expected, const char *name,
                         const fsdp_tensor *actual, const int64_t *positions, double tolerance)
{
    const fsdp_checkpoint_entry *entry = fsdp_checkpoint_find(expected, name);
    ASSERT(entry && entry->ndim == 3 && actual);
    int64_t tokens = fsdp_tensor_size(actual, 0), width = entry->shape[2];
    ASSERT_INT(fsdp_tensor_size(actual, 1), width);
    float *values = fsdp_calloc((size_t)(tokens * width), sizeof *values);
    ASSERT(values);
    ASSERT_OK(fsdp_tensor_to_floats(actual, values));
    const float *want = entry->data;
    for (int64_t i = 0; i < tokens * width; i++)
        ASSERT_NEAR(values[i], want[positions[i / width] * width + i % width], tolerance);
    fsdp_free(values);
}

static void check_forward(fsdp_test *t, const char *name)
{
    t5_case c;
    fsdp_checkpoint_reader *expected;
    t5_case_open(t, name, NULL, &c);
    CHECK_HERE();
    open_expected(t, name, &expected);
    CHECK_HERE();
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = c.batch};
    ASSERT_OK(fsdp_scope_open(c.device, NULL, &options, &s));
    fsdp_t5_outputs out = fsdp_t5_logits(s, c.model);
    ASSERT_OK(fsdp_scope_status(s));
    compare_rows(t, expected, "logits", out.logits, c.batch->target_positions, 2e-5);
    compare_rows(t, expected, "last_hidden", out.last_hidden, c.batch->target_positions, 2e-5);
    compare_rows(t, expected, "encoder_last_hidden", out.encoder_last_hidden,
                 c.batch->source_positions, 2e-5);
    fsdp_scope_close(s);
    fsdp_checkpoint_close(expected);
    t5_case_close(&c);
}

/* Every rank runs the same batch: the mean over ranks is its gradient, rounded once. */
static void check_gradients(fsdp_test *t, const char *name)
{
    t5_case c;
    fsdp_checkpoint_reader *expected;
    t5_case_open(t, name, NULL, &c);
    CHECK_HERE();
    open_expected(t, name, &expected);
    CHECK_HERE();
    double loss;
    t5_case_step(t, &c, &loss);
    CHECK_HERE();
    ASSERT_NEAR(loss, *(const float *)fsdp_checkpoint_find(expected, "loss")->data, 1e-5);
    int compared = 0;
    for (size_t i = 0; i < fsdp_checkpoint_count(expected); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(expected, i);
        if (strncmp(entry->name, "grad.", 5) != 0)
            continue;
        const float *want = entry->data;
        float *got, largest = 0;
        t5_case_gradient(t, &c, entry->name + 5, &got);
        CHECK_HERE();
        for (int64_t k = 0; k < entry->numel; k++)
            largest = fmaxf(largest, fabsf(want[k]));
        for (int64_t k = 0; k < entry->numel; k++)
            if (!(fabsf(got[k] - want[k]) <= 3e-5f * largest))
                FAIL("%s[%lld] is %g, not %g", entry->name, (long long)k, (double)got[k],
                     (double)want[k]);
        fsdp_free(got);
        compared++;
    }
    ASSERT(compared > 40);
    fsdp_checkpoint_close(expected);
    t5_case_close(&c);
}

static void check_all(fsdp_test *t)
{
    for (int i = 0; i < 2; i++) {
        check_forward(t, names[i]);
        CHECK_HERE();
        check_gradients(t, names[i]);
        CHECK_HERE();
    }
}

TEST(without_fsdp_it_computes_pytorchs_numbers)
{
    check_all(t);
}
TEST_RANKS(on_1_rank_it_computes_pytorchs_numbers, 1)
{
    check_all(t);
}
TEST_RANKS(on_2_ranks_it_computes_pytorchs_numbers, 2)
{
    check_all(t);
}
TEST_RANKS(on_3_ranks_it_computes_pytorchs_numbers, 3)
{
    check_all(t);
}
TEST_RANKS(on_4_ranks_it_computes_pytorchs_numbers, 4)
{
    check_all(t);
}

/* --- the tree --- */

static const fsdp_t5_config odd_shape = {.vocab_size = 17,
                                         .d_model = 15,
                                         .d_ff = 7,
                                         .d_kv = 5,
                                         .num_layers = 2,
                                         .num_decoder_layers = 1,
                                         .num_heads = 3,
                                         .relative_attention_num_buckets = 8,
                                         .relative_attention_max_distance = 20,
                                         .layer_norm_epsilon = 1e-6,
                                         .initializer_factor = 1.0,
                                         .is_gated_act = true,
                                         .eos_token_id = 1};

static void assert_class(fsdp_test *t, fsdp_module *model, const char *path, const char *class_name)
{
    fsdp_module *m = fsdp_module_find(model, path);
    if (!m)
        FAIL("there is no %s", path);
    ASSERT_STR(fsdp_module_class(m), class_name);
}

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
    ASSERT_OK(fsdp_t5_create(&odd_shape, &model));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_class(t, model, expected[i][0], expected[i][1]);
        CHECK_HERE();
    }
    ASSERT(
        !fsdp_module_find(model, "encoder.block.1.layer.0.SelfAttention.relative_attention_bias"));
    ASSERT(!fsdp_module_find(model, "encoder.block.2"));
    ASSERT(!fsdp_module_find(model, "decoder.block.1"));
    fsdp_module_destroy(model);
}

TEST(the_embedding_is_one_parameter_under_its_names)
{
    fsdp_t5_config config = odd_shape;
    fsdp_module *model;
    fsdp_parameter_list once, all;
    for (int tied = 0; tied < 2; tied++) {
        config.tie_word_embeddings = tied;
        ASSERT_OK(fsdp_t5_create(&config, &model));
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
    fsdp_t5_config config = odd_shape;
    fsdp_module *model;
    config.num_heads = 0;
    ASSERT_ERROR(fsdp_t5_create(&config, &model), FSDP_ERR_INVALID, "num_heads is 0");
}

TEST(a_forward_without_a_batch_is_refused)
{
    t5_case c;
    t5_case_create(t, &odd_shape, NULL, &c);
    CHECK_HERE();
    fsdp_scope *s;
    ASSERT_OK(fsdp_scope_open(c.device, NULL, NULL, &s));
    ASSERT(!fsdp_t5_loss(s, c.model, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "no batch");
    fsdp_scope_close(s);
    t5_case_close(&c);
}

/* --- packing --- */

static const int32_t source[] = {3, 9, 4, 16, 5, 8, 2, 1, 7, 7, 11, 1};
static const int32_t labels[] = {5, 2, 14, 1, -100, 6, 1};

static void make_batch(fsdp_test *t, const fsdp_batch_row *rows, int n, fsdp_batch **batch)
{
    ASSERT_OK(fsdp_batch_create(rows, n, NULL, batch));
}

/* Logits of a batch, the caller's (fsdp_free). */
static void logits_of(fsdp_test *t, t5_case *c, fsdp_batch *batch, float **values)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = batch};
    ASSERT_OK(fsdp_scope_open(c->device, NULL, &options, &s));
    fsdp_t5_outputs out = fsdp_t5_logits(s, c->model);
    ASSERT_OK(fsdp_scope_status(s));
    *values = fsdp_calloc((size_t)fsdp_tensor_numel(out.logits) + 1, sizeof **values);
    ASSERT(*values);
    ASSERT_OK(fsdp_tensor_to_floats(out.logits, *values));
    fsdp_scope_close(s);
}

/* Another first document changes no bit of the second one's logits. */
TEST(documents_of_a_batch_do_not_see_each_other)
{
    t5_case c;
    fsdp_batch *a, *b;
    float *x, *y;
    const fsdp_batch_row second = {
        .source = source + 5, .labels = labels + 3, .source_len = 7, .labels_len = 4};
    t5_case_create(t, &odd_shape, NULL, &c);
    CHECK_HERE();
    make_batch(t,
               (fsdp_batch_row[]){
                   {.source = source, .labels = labels, .source_len = 5, .labels_len = 3}, second},
               2, &a);
    make_batch(
        t,
        (fsdp_batch_row[]){
            {.source = source + 7, .labels = labels + 1, .source_len = 5, .labels_len = 3}, second},
        2, &b);
    CHECK_HERE();
    logits_of(t, &c, a, &x);
    logits_of(t, &c, b, &y);
    CHECK_HERE();
    ASSERT(memcmp(x, y, 3 * 17 * sizeof *x) != 0);
    ASSERT(memcmp(x + 3 * 17, y + 3 * 17, 4 * 17 * sizeof *x) == 0);
    fsdp_free(x);
    fsdp_free(y);
    fsdp_batch_release(a);
    fsdp_batch_release(b);
    t5_case_close(&c);
}

/* A document's numbers do not depend on how long the others are: the bias by distance is sized by
 * the longest, and rows of a product may lie elsewhere. */
TEST(a_document_alone_gives_what_it_gives_in_a_batch)
{
    t5_case c;
    fsdp_batch *alone, *among;
    float *x, *y;
    const fsdp_batch_row row = {
        .source = source, .labels = labels, .source_len = 3, .labels_len = 2};
    t5_case_create(t, &odd_shape, NULL, &c);
    CHECK_HERE();
    make_batch(t, &row, 1, &alone);
    make_batch(
        t,
        (fsdp_batch_row[]){{.source = source, .labels = labels, .source_len = 12, .labels_len = 7},
                           row,
                           {.source = source, .labels = NULL, .source_len = 4, .labels_len = 0}},
        3, &among);
    CHECK_HERE();
    logits_of(t, &c, alone, &x);
    logits_of(t, &c, among, &y);
    CHECK_HERE();
    for (int i = 0; i < 2 * 17; i++)
        ASSERT_NEAR(x[i], y[7 * 17 + i], 1e-5);
    fsdp_free(x);
    fsdp_free(y);
    fsdp_batch_release(alone);
    fsdp_batch_release(among);
    t5_case_close(&c);
}
