/* Sentence embeddings: the mean of BERT's last hidden states, for both kinds of roots. */
#include <fsdp/bert.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/models/model_type.h"
#include "tests/models/model_checks.h"

enum {
    ROWS = 3,
    WIDTH = 64
};

/* Opens the golden classifier, or only the BertModel in it. The batch is borrowed from a case
 * opened by model_case_open(). */
static void open_root(fsdp_test *t, const fsdp_model_type *type, fsdp_batch *batch, model_case *c)
{
    fsdp_model_config config;
    fsdp_checkpoint_reader *reader;
    const fsdp_load_options options = {.base_prefix = type->base_prefix};
    const char *dir = fsdp_test_path("golden/bert/model");
    ASSERT_OK(fsdp_model_config_read(dir, &config));
    config.type = type;
    model_case_create(t, &config, c);
    CHECK_HERE();
    ASSERT_OK(fsdp_checkpoint_open(dir, &reader));
    ASSERT_OK(fsdp_module_load(c->model, reader, t->group, &options, NULL));
    fsdp_checkpoint_close(reader);
    c->batch = fsdp_batch_retain(batch);
}

static void embed(fsdp_test *t, model_case *c, float *values)
{
    fsdp_scope *s;
    ASSERT_OK(fsdp_scope_open(c->device, NULL, &(fsdp_scope_options){.batch = c->batch}, &s));
    fsdp_tensor *x = fsdp_bert_embed(s, c->model);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_INT(fsdp_tensor_size(x, 0), ROWS);
    ASSERT_INT(fsdp_tensor_size(x, 1), WIDTH);
    ASSERT_OK(fsdp_tensor_to_floats(x, values));
    fsdp_scope_close(s);
}

/* Means of the values from transformers, over the positions that are not padding. */
static void expected_means(fsdp_test *t, const fsdp_batch *batch, float *means)
{
    fsdp_checkpoint_reader *expected;
    model_case_expected(t, "bert", "expected", &expected);
    CHECK_HERE();
    const fsdp_checkpoint_entry *hidden = fsdp_checkpoint_find(expected, "last_hidden");
    ASSERT(hidden && hidden->ndim == 3 && hidden->shape[0] == ROWS && hidden->shape[2] == WIDTH);
    for (int row = 0; row < ROWS; row++) {
        const int32_t begin = batch->source_offsets[row], end = batch->source_offsets[row + 1];
        for (int k = 0; k < WIDTH; k++) {
            double sum = 0;
            for (int32_t i = begin; i < end; i++)
                sum +=
                    (double)((const float *)hidden->data)[batch->source_positions[i] * WIDTH + k];
            means[row * WIDTH + k] = (float)(sum / (end - begin));
        }
    }
    fsdp_checkpoint_close(expected);
}

static void check_means(fsdp_test *t)
{
    const fsdp_model_type *const types[] = {&fsdp_bert_model_type, &fsdp_bert_classifier_type};
    float want[ROWS * WIDTH], got[ROWS * WIDTH];
    model_case golden, c;
    fsdp_test single = {.rank = t->rank, .world_size = 1};
    model_case_open(&single, "bert", "inputs", NULL, &golden);
    ASSERT(!single.failed);
    expected_means(t, golden.batch, want);
    CHECK_HERE();
    for (int i = 0; i < 2; i++) {
        open_root(t, types[i], golden.batch, &c);
        CHECK_HERE();
        embed(t, &c, got);
        CHECK_HERE();
        for (int k = 0; k < ROWS * WIDTH; k++)
            ASSERT_NEAR(got[k], want[k], 1e-5);
        model_case_close(&c);
    }
    model_case_close(&golden);
}

TEST(embeddings_are_means_of_transformers_hidden_states)
{
    check_means(t);
}
TEST_RANKS(embeddings_are_means_of_transformers_hidden_states_on_3_ranks, 3)
{
    check_means(t);
}

static const fsdp_bert_config shape = {.vocab_size = 17,
                                       .hidden_size = 15,
                                       .num_hidden_layers = 2,
                                       .num_attention_heads = 3,
                                       .intermediate_size = 7,
                                       .max_position_embeddings = 9,
                                       .type_vocab_size = 1,
                                       .num_labels = 2,
                                       .layer_norm_eps = 1e-12,
                                       .initializer_range = 0.4,
                                       .pad_token_id = -1};
static const int32_t ids[] = {3, 9, 4, 16, 5, 8, 2, 1};
static const fsdp_batch_row rows[] = {{.source = ids, .source_len = 8},
                                      {.source = ids + 3, .source_len = 1}};

/* Half the sum of squares of all embeddings, and its gradients if `gradients`. */
static void energy(fsdp_test *t, model_case *c, bool gradients, double *value)
{
    float x[2 * 15];
    fsdp_scope *s;
    ASSERT_OK(fsdp_scope_open(c->device, gradients ? c->tape : NULL,
                              &(fsdp_scope_options){.batch = c->batch}, &s));
    fsdp_tensor *y = fsdp_bert_embed(s, c->model);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_to_floats(y, x));
    *value = 0;
    for (int i = 0; i < 2 * 15; i++)
        *value += (double)(x[i] * x[i]) / 2;
    if (gradients)
        ASSERT_OK(fsdp_backward(c->tape, &y, &y, 1)); /* dE/dy = y */
    fsdp_scope_close(s);
}

TEST(a_model_of_another_kind_has_no_embeddings)
{
    fsdp_device *device;
    fsdp_module *other;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_module_create("GPT2LMHeadModel", &other));
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_bert_embed(s, other));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "a GPT2LMHeadModel is not a BertModel");
    fsdp_scope_close(s);
    fsdp_module_destroy(other);
    fsdp_device_destroy(device);
}

/* The pooler is not used and gets no gradient. */
TEST(gradients_of_embeddings_are_those_of_differences)
{
    static const char *const probed[] = {"embeddings.word_embeddings",
                                         "encoder.layer.1.output.dense",
                                         "encoder.layer.0.attention.self.value"};
    static const int element[] = {3 * 15 + 2, 4, 4};
    const fsdp_model_config config = {.type = &fsdp_bert_model_type, .bert = shape};
    model_case c;
    double value;
    model_case_create(t, &config, &c);
    model_make_batch(t, &config, (model_rows){rows, 2}, &c.batch);
    CHECK_HERE();
    energy(t, &c, true, &value);
    CHECK_HERE();
    for (size_t i = 0; i < FSDP_LENGTH(probed); i++) {
        fsdp_parameter *p = fsdp_module_parameter(fsdp_module_find(c.model, probed[i]), "weight");
        float *w = (float *)fsdp_tensor_data(fsdp_parameter_local(p)) + element[i], before = *w;
        double up, down, step = 1e-2;
        *w = before + (float)step;
        energy(t, &c, false, &up);
        *w = before - (float)step;
        energy(t, &c, false, &down);
        CHECK_HERE();
        *w = before;
        const float *grad = fsdp_tensor_data(fsdp_parameter_grad(p));
        ASSERT_NEAR(grad[element[i]], (up - down) / (2 * step), 3e-3);
        ASSERT(fabsf(grad[element[i]]) > 1e-2f);
    }
    ASSERT(!fsdp_parameter_grad(
        fsdp_module_parameter(fsdp_module_find(c.model, "pooler.dense"), "weight")));
    model_case_close(&c);
}

TEST(a_model_without_a_head_has_hidden_states_and_no_loss)
{
    const fsdp_model_config config = {.type = &fsdp_bert_model_type, .bert = shape};
    fsdp_model_config again;
    model_case c;
    fsdp_scope *s;
    model_case_create(t, &config, &c);
    model_make_batch(t, &config, (model_rows){rows, 2}, &c.batch);
    CHECK_HERE();
    ASSERT_STR(fsdp_module_class(c.model), "BertModel");
    ASSERT(fsdp_module_find(c.model, "encoder.layer.1") &&
           !fsdp_module_find(c.model, "classifier"));
    ASSERT_OK(fsdp_model_get_config(c.model, &again));
    ASSERT(again.type == config.type && again.bert.hidden_size == 15);
    ASSERT_OK(fsdp_scope_open(c.device, NULL, &(fsdp_scope_options){.batch = c.batch}, &s));
    fsdp_model_outputs out = fsdp_model_logits(s, c.model);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT(!out.logits && !out.encoder_last_hidden);
    ASSERT_INT(fsdp_tensor_size(out.last_hidden, 0), 9);
    ASSERT(!fsdp_model_loss(s, c.model, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID,
                 "BertModel: this model has no head, so it has no loss");
    fsdp_scope_close(s);
    model_case_close(&c);
}

TEST(embedding_without_a_batch_or_of_too_long_a_row_is_refused)
{
    static const int32_t long_row[10] = {0};
    const fsdp_model_config config = {.type = &fsdp_bert_model_type, .bert = shape};
    const fsdp_batch_row row = {.source = long_row, .source_len = 10};
    model_case c;
    fsdp_scope *s;
    model_case_create(t, &config, &c);
    CHECK_HERE();
    ASSERT_OK(fsdp_scope_open(c.device, NULL, NULL, &s));
    ASSERT(!fsdp_bert_embed(s, c.model));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "no batch");
    fsdp_scope_close(s);
    model_make_batch(t, &config, (model_rows){&row, 1}, &c.batch);
    CHECK_HERE();
    ASSERT_OK(fsdp_scope_open(c.device, NULL, &(fsdp_scope_options){.batch = c.batch}, &s));
    ASSERT(!fsdp_bert_embed(s, c.model));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "max_position_embeddings is 9");
    fsdp_scope_close(s);
    model_case_close(&c);
}
