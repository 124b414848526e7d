/* config.json of GPT-2. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/models/model_type.h"
#include "tests/models/config_checks.h"

#define MINIMAL                                                                                    \
    "\"model_type\":\"gpt2\",\"vocab_size\":100,\"n_positions\":11,\"n_embd\":6,\"n_layer\":3,"    \
    "\"n_head\":2"

TEST(what_transformers_wrote_is_read)
{
    fsdp_model_config c;
    ASSERT_OK(fsdp_model_config_read(fsdp_test_path("golden/gpt2/model"), &c));
    ASSERT(c.gpt2.vocab_size == 320 && c.gpt2.n_embd == 64 && c.gpt2.n_layer == 2 &&
           c.gpt2.n_head == 4 && c.gpt2.n_inner == 256 && c.gpt2.n_positions == 48);
    ASSERT(c.gpt2.resid_pdrop == 0 && c.gpt2.embd_pdrop == 0 && c.gpt2.attn_pdrop == 0);
    const fsdp_model_info info = fsdp_model_config_info(&c);
    ASSERT_STR(info.model_type, "gpt2");
    ASSERT_STR(info.class_name, "GPT2LMHeadModel");
    ASSERT_STR(info.block_classes[0], "GPT2Block");
    ASSERT(info.format.task == FSDP_TASK_CAUSAL_LM && info.max_positions == 48 &&
           info.num_labels == 0 && info.bos_token_id == 319 && info.eos_token_id == 319 &&
           info.pad_token_id == -1 && info.tie_word_embeddings);
}

TEST(absent_keys_have_transformers_defaults)
{
    fsdp_model_config c;
    ASSERT_OK(config_parse("{" MINIMAL "}", &c));
    ASSERT(c.gpt2.n_inner == 24 && c.gpt2.resid_pdrop == 0.1 && c.gpt2.embd_pdrop == 0.1 &&
           c.gpt2.attn_pdrop == 0.1 && c.gpt2.layer_norm_epsilon == 1e-5 &&
           c.gpt2.initializer_range == 0.02);
    ASSERT(c.gpt2.activation_function == FSDP_HIDDEN_ACT_GELU_NEW && c.gpt2.scale_attn_weights &&
           !c.gpt2.scale_attn_by_inverse_layer_idx && c.gpt2.tie_word_embeddings);
    /* 50256 is not an id of such a small vocabulary */
    ASSERT(c.gpt2.bos_token_id == -1 && c.gpt2.eos_token_id == -1 && c.gpt2.pad_token_id == -1);
    ASSERT_OK(
        config_parse("{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"max_position_embeddings\":11,"
                     "\"hidden_size\":6,\"num_hidden_layers\":3,\"num_attention_heads\":2,"
                     "\"n_inner\":5,\"reorder_and_upcast_attn\":true,\"activation_function\":"
                     "\"relu\",\"tie_word_embeddings\":false,\"pad_token_id\":7}",
                     &c));
    ASSERT(c.gpt2.n_positions == 11 && c.gpt2.n_embd == 6 && c.gpt2.n_layer == 3 &&
           c.gpt2.n_head == 2 && c.gpt2.n_inner == 5 && !c.gpt2.tie_word_embeddings);
    ASSERT(c.gpt2.bos_token_id == 50256 && c.gpt2.eos_token_id == 50256 &&
           c.gpt2.pad_token_id == 7 && c.gpt2.activation_function == FSDP_HIDDEN_ACT_RELU);
}

/* transformers has several implementations of each; the name in the file is kept. */
TEST(activations_have_several_names)
{
    static const struct {
        const char *name;
        fsdp_hidden_act act;
    } rows[] = {{"gelu_new", FSDP_HIDDEN_ACT_GELU_NEW},
                {"gelu_fast", FSDP_HIDDEN_ACT_GELU_NEW},
                {"gelu_pytorch_tanh", FSDP_HIDDEN_ACT_GELU_NEW},
                {"gelu_python_tanh", FSDP_HIDDEN_ACT_GELU_NEW},
                {"gelu_accurate", FSDP_HIDDEN_ACT_GELU_NEW},
                {"gelu", FSDP_HIDDEN_ACT_GELU},
                {"gelu_python", FSDP_HIDDEN_ACT_GELU},
                {"relu", FSDP_HIDDEN_ACT_RELU}};
    char text[512], key[64];
    fsdp_model_config c;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "{" MINIMAL ",\"activation_function\":\"%s\"}", rows[i].name);
        ASSERT_OK(config_parse(text, &c));
        ASSERT_INT(c.gpt2.activation_function, rows[i].act);
        const char *source = config_path(t, "source.json"), *path = config_path(t, "out.json");
        ASSERT_OK(fsdp_file_write(source, text, strlen(text)));
        ASSERT_OK(fsdp_model_config_write(&c, false, FSDP_DTYPE_F32, source, path));
        char *written = config_text(path);
        snprintf(key, sizeof key, "\"activation_function\": \"%s\"", rows[i].name);
        const bool kept = written && strstr(written, key);
        fsdp_free(written);
        ASSERT(kept);
    }
    ASSERT_ERROR(config_parse("{" MINIMAL ",\"activation_function\":\"gelu_10\"}", &c),
                 FSDP_ERR_UNSUPPORTED, "activation_function"); /* gelu_10 clips */
}

TEST(ends_beyond_the_vocabulary_never_come)
{
    fsdp_model_config c;
    ASSERT_OK(config_parse("{" MINIMAL ",\"bos_token_id\":[],\"eos_token_id\":50256}", &c));
    ASSERT(c.gpt2.bos_token_id == -1 && c.gpt2.eos_token_id == 50256);
    ASSERT_OK(config_parse("{" MINIMAL ",\"eos_token_id\":-1,\"pad_token_id\":-1}", &c));
    ASSERT(c.gpt2.eos_token_id == -1 && c.gpt2.pad_token_id == -1);
}

TEST(what_cannot_be_is_refused_by_name)
{
    static const config_refusal cases[] = {
        {"{\"model_type\":\"gpt2\"}", FSDP_ERR_NOT_FOUND, "config.json: vocab_size: missing"},
        {"{" MINIMAL ",\"n_head\":4}", FSDP_ERR_FORMAT,
         "n_head: expected a divisor of n_embd 6, found 4"},
        {"{" MINIMAL ",\"n_layer\":0}", FSDP_ERR_FORMAT, "n_layer: expected a positive"},
        {"{" MINIMAL ",\"num_hidden_layers\":77}", FSDP_ERR_FORMAT,
         "n_layer: expected the same as num_hidden_layers, another name of it (77), found"},
        {"{" MINIMAL ",\"num_hidden_layers\":\"a\"}", FSDP_ERR_FORMAT, "num_hidden_layers: expe"},
        {"{" MINIMAL ",\"n_inner\":-1}", FSDP_ERR_FORMAT, "n_inner"},
        {"{" MINIMAL ",\"resid_pdrop\":1}", FSDP_ERR_FORMAT,
         "resid_pdrop: expected a number from 0 to below 1"},
        {"{" MINIMAL ",\"embd_pdrop\":-1}", FSDP_ERR_FORMAT, "embd_pdrop"},
        {"{" MINIMAL ",\"attn_pdrop\":\"a\"}", FSDP_ERR_FORMAT, "attn_pdrop"},
        {"{" MINIMAL ",\"layer_norm_epsilon\":0}", FSDP_ERR_FORMAT, "layer_norm_epsilon"},
        {"{" MINIMAL ",\"initializer_range\":-1}", FSDP_ERR_FORMAT, "initializer_range"},
        {"{" MINIMAL ",\"eos_token_id\":-2}", FSDP_ERR_FORMAT, "eos_token_id: expected"},
        {"{" MINIMAL ",\"pad_token_id\":100}", FSDP_ERR_FORMAT,
         "pad_token_id: expected an integer from 0 to 99, found 100"},
        {"{" MINIMAL ",\"scale_attn_weights\":1}", FSDP_ERR_FORMAT,
         "scale_attn_weights: expected true or false"},
        {"{" MINIMAL ",\"activation_function\":\"quick_gelu\"}", FSDP_ERR_UNSUPPORTED,
         "activation_function: expected \"gelu\", \"gelu_new\", \"relu\", \"silu\" or"},
        {"{" MINIMAL ",\"add_cross_attention\":true}", FSDP_ERR_UNSUPPORTED,
         "add_cross_attention: expected false"},
        {"{" MINIMAL ",\"is_encoder_decoder\":true}", FSDP_ERR_UNSUPPORTED, "is_encoder_decoder"},
        {"{" MINIMAL ",\"quantization_config\":{\"bits\":4}}", FSDP_ERR_UNSUPPORTED,
         "quantization_config"},
    };
    config_check_refused(t, cases, FSDP_LENGTH(cases));
}

TEST(published_sizes_are_known)
{
    static const struct {
        const char *name;
        int64_t n_embd, n_layer, n_head;
    } sizes[] = {{"gpt2", 768, 12, 12},
                 {"openai-community/gpt2-medium", 1024, 24, 16},
                 {"gpt2-large", 1280, 36, 20},
                 {"openai-community/gpt2-xl", 1600, 48, 25},
                 {"distilbert/distilgpt2", 768, 6, 12}};
    for (size_t i = 0; i < FSDP_LENGTH(sizes); i++) {
        fsdp_model_config c;
        ASSERT_OK(fsdp_model_config_preset(sizes[i].name, &c));
        ASSERT(c.type == &fsdp_gpt2_type && c.gpt2.n_embd == sizes[i].n_embd &&
               c.gpt2.n_layer == sizes[i].n_layer && c.gpt2.n_head == sizes[i].n_head);
        ASSERT(c.gpt2.vocab_size == 50257 && c.gpt2.n_positions == 1024 &&
               c.gpt2.n_inner == 4 * sizes[i].n_embd && c.gpt2.eos_token_id == 50256);
    }
    fsdp_model_config c;
    ASSERT_ERROR(fsdp_model_config_preset("gpt2-huge", &c), FSDP_ERR_INVALID, "gpt2-xl");
}

TEST(a_written_config_is_read_back_the_same)
{
    for (int own_head = 0; own_head < 2; own_head++) {
        fsdp_model_config c, again;
        ASSERT_OK(fsdp_model_config_preset("gpt2-xl", &c));
        c.gpt2.n_inner = 99;
        c.gpt2.resid_pdrop = 0.25;
        c.gpt2.embd_pdrop = 0.5;
        c.gpt2.attn_pdrop = 0.75;
        c.gpt2.activation_function = FSDP_HIDDEN_ACT_GELU;
        c.gpt2.scale_attn_weights = false;
        c.gpt2.scale_attn_by_inverse_layer_idx = true;
        c.gpt2.bos_token_id = -1;
        c.gpt2.eos_token_id = 3;
        c.gpt2.pad_token_id = 4;
        ASSERT_OK(fsdp_model_config_write(&c, own_head, FSDP_DTYPE_BF16, NULL,
                                          config_path(t, "config.json")));
        ASSERT_OK(fsdp_model_config_read(fsdp_test_dir(t), &again));
        ASSERT(again.gpt2.n_inner == 99 && again.gpt2.resid_pdrop == 0.25 &&
               again.gpt2.embd_pdrop == 0.5 && again.gpt2.attn_pdrop == 0.75 &&
               again.gpt2.activation_function == FSDP_HIDDEN_ACT_GELU);
        ASSERT(!again.gpt2.scale_attn_weights && again.gpt2.scale_attn_by_inverse_layer_idx &&
               again.gpt2.tie_word_embeddings == !own_head && again.gpt2.bos_token_id == -1 &&
               again.gpt2.eos_token_id == 3 && again.gpt2.pad_token_id == 4 &&
               again.gpt2.dtype == FSDP_DTYPE_BF16);
        ASSERT_OK(fsdp_model_config_write(&again, own_head, FSDP_DTYPE_BF16, NULL,
                                          config_path(t, "again.json")));
        config_check_same_text(t, config_path(t, "again.json"), config_path(t, "config.json"));
        CHECK_HERE();
    }
}

/* Writing over a file of transformers changes nothing. */
TEST(a_source_keeps_its_other_keys)
{
    fsdp_model_config c;
    const char *source = fsdp_test_path("golden/gpt2/model/config.json");
    ASSERT_OK(fsdp_model_config_read(source, &c));
    ASSERT_OK(
        fsdp_model_config_write(&c, false, c.gpt2.dtype, source, config_path(t, "config.json")));
    config_check_same_text(t, config_path(t, "config.json"), source);
}
