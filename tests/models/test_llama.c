/* Llama, Mistral, Qwen2 and Qwen3 compared with transformers and PyTorch (tests/golden), on one
 * rank and sharded; the module tree; and packing.
 *
 * golden/llama_bias (biases, a padding id, linear rope, tied), golden/mistral and golden/qwen2 (a
 * window in all layers or in the second) have transformers 5.23's numbers for llama_odd_shape()'s
 * shape with random weights. tools/golden_model.py wrote golden/llama_yarn (type
 * llama-yarn-numbers), golden/llama_dynamic and golden/qwen3_mixed. */
#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "tests/elements.h"
#include "tests/models/golden_checks.h"
#include "tests/models/llama_shape.h"
#include "tests/models/model_checks.h"

/* --- against PyTorch --- */

static void check_all(fsdp_test *t)
{
    static const char *const names[] = {"llama2", "llama3",     "llama_bias",    "mistral",
                                        "qwen2",  "llama_yarn", "llama_dynamic", "qwen3_mixed"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        model_check_golden(t, names[i], "inputs", "expected");
        CHECK_HERE();
    }
    for (int i = 0; i < 2; i++) {
        model_check_golden(t, names[i], "packed_inputs", "packed_expected");
        CHECK_HERE();
    }
}

GOLDEN_TESTS(check_all)

/* --- the tree --- */

static void assert_classes(fsdp_test *t, fsdp_llama_family family, const char *const (*expected)[2],
                           size_t n)
{
    fsdp_module *model;
    const fsdp_model_config config = llama_odd_shape(family);
    ASSERT_OK(fsdp_model_create(&config, &model));
    model_check_classes(t, model, expected, n);
    CHECK_HERE();
    ASSERT(!fsdp_module_find(model, "model.layers.2"));
    ASSERT_STR(fsdp_model_config_info(&config).class_name, expected[0][1]);
    fsdp_module_destroy(model);
}

TEST(modules_have_hugging_faces_names_and_classes)
{
    static const char *const llama[][2] = {
        {"", "LlamaForCausalLM"},
        {"model", "LlamaModel"},
        {"model.embed_tokens", "Embedding"},
        {"model.layers", "ModuleList"},
        {"model.layers.1", "LlamaDecoderLayer"},
        {"model.layers.1.self_attn", "LlamaAttention"},
        {"model.layers.1.self_attn.q_proj", "Linear"},
        {"model.layers.0.self_attn.o_proj", "Linear"},
        {"model.layers.1.mlp", "LlamaMLP"},
        {"model.layers.1.mlp.down_proj", "Linear"},
        {"model.layers.1.mlp.act_fn", "SiLUActivation"},
        {"model.layers.1.input_layernorm", "LlamaRMSNorm"},
        {"model.layers.1.post_attention_layernorm", "LlamaRMSNorm"},
        {"model.norm", "LlamaRMSNorm"},
        {"model.rotary_emb", "LlamaRotaryEmbedding"},
        {"lm_head", "Linear"},
    };
    static const char *const mistral[][2] = {
        {"", "MistralForCausalLM"},
        {"model", "MistralModel"},
        {"model.layers.1", "MistralDecoderLayer"},
        {"model.layers.1.self_attn", "MistralAttention"},
        {"model.layers.1.mlp", "MistralMLP"},
        {"model.layers.1.input_layernorm", "MistralRMSNorm"},
        {"model.rotary_emb", "MistralRotaryEmbedding"},
    };
    static const char *const qwen2[][2] = {
        {"", "Qwen2ForCausalLM"},
        {"model", "Qwen2Model"},
        {"model.layers.1", "Qwen2DecoderLayer"},
        {"model.layers.1.self_attn", "Qwen2Attention"},
        {"model.norm", "Qwen2RMSNorm"},
    };
    assert_classes(t, FSDP_LLAMA, llama, sizeof llama / sizeof *llama);
    CHECK_HERE();
    assert_classes(t, FSDP_MISTRAL, mistral, sizeof mistral / sizeof *mistral);
    CHECK_HERE();
    assert_classes(t, FSDP_QWEN2, qwen2, sizeof qwen2 / sizeof *qwen2);
    CHECK_HERE();
    static const char *const qwen3[][2] = {
        {"", "Qwen3ForCausalLM"},
        {"model.layers.1.self_attn.q_norm", "Qwen3RMSNorm"},
        {"model.layers.0.self_attn.k_norm", "Qwen3RMSNorm"},
    };
    assert_classes(t, FSDP_QWEN3, qwen3, sizeof qwen3 / sizeof *qwen3);
}

/* The order of named_parameters(); Qwen2 has biases only on q, k and v. */
TEST(parameters_come_in_pytorchs_order)
{
    static const char *const expected[] = {
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.k_proj.bias",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.v_proj.bias",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.norm.weight",
        "lm_head.weight",
    };
    fsdp_model_config config = llama_odd_shape(FSDP_QWEN2);
    fsdp_module *model;
    fsdp_parameter_list list;
    config.llama.num_hidden_layers = 1;
    for (int tied = 0; tied < 2; tied++) {
        config.llama.tie_word_embeddings = tied;
        ASSERT_OK(fsdp_model_create(&config, &model));
        ASSERT_OK(fsdp_module_parameters(model, false, &list));
        ASSERT_INT(list.n, sizeof expected / sizeof *expected - (size_t)tied);
        for (size_t i = 0; i < list.n; i++)
            ASSERT_STR(list.items[i].name, expected[i]);
        fsdp_parameter_list_free(&list);
        ASSERT_OK(fsdp_module_parameters(model, true, &list));
        ASSERT_INT(list.n, sizeof expected / sizeof *expected);
        fsdp_parameter_list_free(&list);
        fsdp_module_destroy(model);
    }
}

TEST(the_row_of_the_padding_id_begins_at_0)
{
    model_case c;
    const fsdp_model_config config = llama_odd_shape(FSDP_MISTRAL);
    model_case_create(t, &config, &c);
    CHECK_HERE();
    fsdp_module *m = fsdp_module_find(c.model, "model.embed_tokens");
    const float *rows = elements_of(fsdp_parameter_data(fsdp_module_parameter(m, "weight")));
    for (int i = 0; i < 15; i++) {
        ASSERT_F32(rows[3 * 15 + i], 0.0);
        ASSERT(rows[4 * 15 + i] != 0.0f);
    }
    model_case_close(&c);
}

TEST(a_shape_that_cannot_be_is_refused)
{
    fsdp_module *model;
    fsdp_model_config config = llama_odd_shape(FSDP_LLAMA);
    config.llama.intermediate_size = 0;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "intermediate_size is 0");
    config = llama_odd_shape(FSDP_LLAMA);
    config.llama.num_key_value_heads = 2;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "2 key/value heads");
    config = llama_odd_shape(FSDP_LLAMA);
    config.llama.head_dim = 5;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "heads of 5 elements");
}

TEST(numbers_that_cannot_be_are_refused)
{
    fsdp_module *model;
    fsdp_model_config config = llama_odd_shape(FSDP_LLAMA);
    config.llama.rope.theta = 0;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "rope.theta is 0");
    config = llama_odd_shape(FSDP_LLAMA);
    config.llama.rope.type = FSDP_ROPE_LINEAR;
    config.llama.rope.factor = -2;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "rope.factor is -2");
    config = llama_odd_shape(FSDP_LLAMA);
    config.llama.rope = (fsdp_rope_config){
        .type = FSDP_ROPE_YARN, .theta = 1, .factor = 2, .original_max_position_embeddings = 8};
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "rope.theta is 1, so");
    config.llama.rope = (fsdp_rope_config){.type = FSDP_ROPE_LLAMA3,
                                           .theta = 10000,
                                           .factor = 2,
                                           .low_freq_factor = 4,
                                           .high_freq_factor = 4,
                                           .original_max_position_embeddings = 8};
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID,
                 "rope.high_freq_factor is 4, not greater than rope.low_freq_factor, which is 4");
    config.llama.rope.low_freq_factor = 0;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID,
                 "rope.low_freq_factor is 0, not positive");
    config.llama.rope.low_freq_factor = 1;
    config.llama.rope.original_max_position_embeddings = 0;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID,
                 "rope.original_max_position_embeddings is 0, not positive");
    config = llama_odd_shape(FSDP_MISTRAL);
    config.llama.sliding_window = -1;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "sliding_window is -1");
    config = llama_odd_shape(FSDP_LLAMA);
    config.llama.pad_token_id = config.llama.vocab_size;
    ASSERT_ERROR(fsdp_model_create(&config, &model), FSDP_ERR_INVALID, "pad_token_id is ");
}

TEST(a_tree_that_runs_out_of_memory_leaves_nothing)
{
    const fsdp_model_config config = llama_odd_shape(FSDP_QWEN2);
    fsdp_module *model;
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK; n++) {
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_alloc_fail_at(n);
        status = fsdp_model_create(&config, &model);
        fsdp_alloc_fail_at(0);
    }
    fsdp_module_destroy(model);
}

/* --- packing --- */

static const int32_t ids[] = {3, 9, 4, 16, 5, 1, 1, 6, 0, 12, 8, 2, 3, 7, 7, 11, 1};

/* Another first document changes no bit of the second one's logits. */
TEST(documents_of_a_batch_do_not_see_each_other)
{
    const fsdp_batch_row first = {.source = ids, .source_len = 5};
    const fsdp_batch_row other = {.source = ids + 5, .source_len = 5};
    const fsdp_batch_row second = {.source = ids + 10, .source_len = 7};
    for (int family = FSDP_LLAMA; family <= FSDP_QWEN3; family++) {
        const fsdp_model_config config = llama_odd_shape((fsdp_llama_family)family);
        model_check_rows_are_apart(t, &config, &first, &other, &second);
        CHECK_HERE();
    }
}

static void logits_of(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                      float **logits)
{
    model_case c;
    model_case_create(t, config, &c);
    CHECK_HERE();
    model_make_batch(t, config, rows, &c.batch);
    CHECK_HERE();
    model_case_logits(t, &c, logits);
    model_case_close(&c);
}

/* A token does not depend on those after it or on its place in the batch: logits of the beginning
 * of a document, alone and after others. */
TEST(a_beginning_alone_gives_what_it_gives_in_a_batch)
{
    const fsdp_model_config config = llama_odd_shape(FSDP_LLAMA);
    const fsdp_batch_row rows[] = {{.source = ids, .source_len = 5},
                                   {.source = ids + 5, .source_len = 1},
                                   {.source = ids + 10, .source_len = 7}};
    const fsdp_batch_row beginning = {.source = ids + 10, .source_len = 3};
    float *x, *y;
    logits_of(t, &config, (model_rows){&beginning, 1}, &x);
    logits_of(t, &config, (model_rows){rows, 3}, &y);
    CHECK_HERE();
    for (int i = 0; i < 3 * 17; i++)
        ASSERT_NEAR(x[i], y[6 * 17 + i], 1e-5);
    fsdp_free(x);
    fsdp_free(y);
}

/* The model was made for 8 positions; rotations continue. */
TEST(rows_may_be_longer_than_max_position_embeddings)
{
    const fsdp_model_config config = llama_odd_shape(FSDP_LLAMA);
    const fsdp_batch_row row = {.source = ids, .source_len = 17};
    float *logits;
    logits_of(t, &config, (model_rows){&row, 1}, &logits);
    CHECK_HERE();
    for (int i = 0; i < 17 * 17; i++)
        ASSERT(isfinite(logits[i]));
    fsdp_free(logits);
}

TEST(a_forward_without_a_batch_is_refused)
{
    const fsdp_model_config config = llama_odd_shape(FSDP_LLAMA);
    model_check_needs_batch(t, &config);
}
