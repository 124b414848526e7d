/* config.json of Llama and its relatives. */
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/models/llama_config.h"
#include "src/models/model_type.h"
#include "tests/test.h"

#define DIMS                                                                                       \
    "\"vocab_size\":100,\"hidden_size\":24,\"intermediate_size\":7,\"num_hidden_layers\":3,"       \
    "\"num_attention_heads\":6"
#define LLAMA "{\"model_type\":\"llama\"," DIMS
#define MISTRAL "{\"model_type\":\"mistral\"," DIMS
#define QWEN2 "{\"model_type\":\"qwen2\"," DIMS ",\"num_key_value_heads\":2"

static fsdp_status parse(const char *text, fsdp_llama_config *c)
{
    fsdp_json *doc;
    fsdp_model_config config;
    FSDP_TRY(fsdp_json_parse("config.json", 1, text, strlen(text), &doc));
    fsdp_status status = fsdp_model_config_parse(doc, &config);
    if (status == FSDP_OK)
        *c = config.llama;
    fsdp_json_destroy(doc);
    return status;
}

static bool same_rope(const fsdp_rope_config *a, const fsdp_rope_config *b)
{
    return a->type == b->type && a->theta == b->theta && a->factor == b->factor &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           a->original_max_position_embeddings == b->original_max_position_embeddings &&
           a->attention_factor == b->attention_factor && a->beta_fast == b->beta_fast &&
           a->beta_slow == b->beta_slow && a->mscale == b->mscale &&
           a->mscale_all_dim == b->mscale_all_dim && a->truncate == b->truncate;
}

static bool same_config(const fsdp_llama_config *a, const fsdp_llama_config *b)
{
    return a->family == b->family && a->vocab_size == b->vocab_size &&
           a->hidden_size == b->hidden_size && a->intermediate_size == b->intermediate_size &&
           a->num_hidden_layers == b->num_hidden_layers &&
           a->num_attention_heads == b->num_attention_heads &&
           a->num_key_value_heads == b->num_key_value_heads && a->head_dim == b->head_dim &&
           a->max_position_embeddings == b->max_position_embeddings &&
           a->sliding_window == b->sliding_window && a->max_window_layers == b->max_window_layers &&
           memcmp(a->full_attention, b->full_attention, sizeof a->full_attention) == 0 &&
           same_rope(&a->rope, &b->rope) && a->rms_norm_eps == b->rms_norm_eps &&
           a->initializer_range == b->initializer_range &&
           a->attention_dropout == b->attention_dropout && a->attention_bias == b->attention_bias &&
           a->mlp_bias == b->mlp_bias && a->tie_word_embeddings == b->tie_word_embeddings &&
           a->bos_token_id == b->bos_token_id && a->eos_token_id == b->eos_token_id &&
           a->pad_token_id == b->pad_token_id && a->dtype == b->dtype;
}

/* --- reading --- */

/* rope_theta and rope_scaling, or rope_parameters; torch_dtype or dtype; silu or swish. */
TEST(both_spellings_in_circulation_are_read_alike)
{
    static const char *const names[] = {"llama2", "llama3"};
    for (int i = 0; i < 2; i++) {
        char path[128];
        fsdp_model_config a, b;
        snprintf(path, sizeof path, "golden/%s/model", names[i]);
        ASSERT_OK(fsdp_model_config_read(fsdp_test_path(path), &a));
        snprintf(path, sizeof path, "golden/%s/config_other_form.json", names[i]);
        ASSERT_OK(fsdp_model_config_read(fsdp_test_path(path), &b));
        ASSERT(same_config(&a.llama, &b.llama));
        ASSERT_INT(a.llama.rope.type, i == 0 ? FSDP_ROPE_DEFAULT : FSDP_ROPE_LLAMA3);
    }
    fsdp_llama_config silu, swish;
    ASSERT_OK(parse(LLAMA ",\"hidden_act\":\"silu\"}", &silu));
    ASSERT_OK(parse(LLAMA ",\"hidden_act\":\"swish\"}", &swish));
    ASSERT(same_config(&silu, &swish));
}

TEST(absent_keys_have_transformers_defaults)
{
    fsdp_llama_config c;
    ASSERT_OK(parse(LLAMA "}", &c));
    ASSERT(c.num_key_value_heads == 6 && c.head_dim == 4 && c.max_position_embeddings == 2048);
    ASSERT(c.rms_norm_eps == 1e-6 && c.initializer_range == 0.02 && c.attention_dropout == 0.0);
    ASSERT(!c.attention_bias && !c.mlp_bias && !c.tie_word_embeddings && !c.sliding_window);
    ASSERT(c.rope.type == FSDP_ROPE_DEFAULT && c.rope.theta == 10000.0);
    ASSERT(c.bos_token_id == 1 && c.eos_token_id == 2 && c.pad_token_id == -1);
    ASSERT_OK(parse(MISTRAL ",\"num_key_value_heads\":null}", &c));
    ASSERT(c.family == FSDP_MISTRAL && c.num_key_value_heads == 6 && c.sliding_window == 4096);
    ASSERT(c.max_position_embeddings == 131072 && c.eos_token_id == 2);
    ASSERT_OK(parse(QWEN2 "}", &c));
    ASSERT(c.family == FSDP_QWEN2 && c.num_key_value_heads == 2 && c.sliding_window == 0);
    ASSERT(c.max_position_embeddings == 32768 && c.bos_token_id == -1 && c.eos_token_id == -1);
    /* the defaults are 8 and 32, which 6 heads cannot share */
    ASSERT_ERROR(parse(MISTRAL "}", &c), FSDP_ERR_NOT_FOUND, "num_key_value_heads: missing");
}

TEST(tokens_may_be_null_or_a_list)
{
    fsdp_llama_config c;
    ASSERT_OK(parse(LLAMA ",\"bos_token_id\":null,\"eos_token_id\":[7,9],\"pad_token_id\":0}", &c));
    ASSERT(c.bos_token_id == -1 && c.eos_token_id == 7 && c.pad_token_id == 0);
    ASSERT_OK(
        parse(LLAMA ",\"bos_token_id\":[],\"eos_token_id\":[100,9],\"pad_token_id\":-2}", &c));
    ASSERT(c.bos_token_id == -1 && c.eos_token_id == 100 && c.pad_token_id == 98);
    ASSERT_OK(parse(LLAMA ",\"bos_token_id\":32000}", &c));
    ASSERT(c.bos_token_id == 32000 && c.eos_token_id == 2);
    ASSERT_OK(parse("{\"model_type\":\"llama\",\"vocab_size\":2,\"hidden_size\":2,"
                    "\"intermediate_size\":1,\"num_hidden_layers\":1,\"num_attention_heads\":1}",
                    &c));
    ASSERT(c.bos_token_id == 1 && c.eos_token_id == -1);
}

#define LLAMA3_ROPE(its_theta, its_factor, length)                                                 \
    {                                                                                              \
        .type = FSDP_ROPE_LLAMA3, .theta = (its_theta), .factor = (its_factor),                    \
        .low_freq_factor = 1.0, .high_freq_factor = 4.0,                                           \
        .original_max_position_embeddings = (length)                                               \
    }

TEST(every_spelling_of_rope_is_read)
{
    static const struct {
        const char *text;
        fsdp_rope_config want;
    } cases[] = {
        {",\"rope_theta\":5e5,\"rope_scaling\":null}", {.theta = 5e5}},
        {",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7.0}}", {.theta = 7.0}},
        {",\"rope_theta\":5.0,\"rope_parameters\":{\"rope_type\":\"default\"}}", {.theta = 5.0}},
        {",\"rope_theta\":5.0,\"rope_parameters\":{}}", {.theta = 5.0}},
        {",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
         {.type = FSDP_ROPE_LINEAR, .theta = 1e4, .factor = 2.0}},
        {",\"rope_scaling\":{\"rope_type\":\"linear\",\"type\":\"linear\",\"factor\":2.5},"
         "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":3.0},\"rope_theta\":9.0}",
         {.type = FSDP_ROPE_LINEAR, .theta = 9.0, .factor = 2.5}},
        {",\"rope_theta\":9.0,\"rope_scaling\":{\"rope_theta\":8.0,\"rope_type\":\"llama3\","
         "\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
         "\"original_max_position_embeddings\":64,\"partial_rotary_factor\":1.0}}",
         LLAMA3_ROPE(8.0, 32.0, 64)},
        {",\"max_position_embeddings\":77,\"rope_parameters\":{\"rope_type\":\"llama3\","
         "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}}",
         LLAMA3_ROPE(1e4, 8.0, 77)},
        {",\"original_max_position_embeddings\":32,\"rope_scaling\":{\"rope_type\":\"llama3\","
         "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
         "\"original_max_position_embeddings\":64}}",
         LLAMA3_ROPE(1e4, 8.0, 32)},
        {",\"original_max_position_embeddings\":32,\"rope_parameters\":{\"rope_type\":\"llama3\","
         "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}}",
         LLAMA3_ROPE(1e4, 8.0, 32)},
        {",\"rope_theta\":9.0,\"rope_scaling\":{},\"rope_parameters\":"
         "{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":3.0}}",
         {.type = FSDP_ROPE_LINEAR, .theta = 3.0, .factor = 2.0}},
        {",\"rope_theta\":9.0,\"rope_scaling\":{}}", {.theta = 9.0}},
        {",\"max_position_embeddings\":77,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2,"
         "\"original_max_position_embeddings\":5}}",
         {.type = FSDP_ROPE_DYNAMIC,
          .theta = 1e4,
          .factor = 2.0,
          .original_max_position_embeddings = 77}},
        {",\"rope_theta\":1e6,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
         "\"original_max_position_embeddings\":32768}}",
         {.type = FSDP_ROPE_YARN,
          .theta = 1e6,
          .factor = 4.0,
          .original_max_position_embeddings = 32768,
          .truncate = true}},
        {",\"max_position_embeddings\":96,\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":"
         "null,\"original_max_position_embeddings\":64,\"attention_factor\":0.5,\"beta_fast\":16,"
         "\"beta_slow\":2,\"mscale\":0.7,\"mscale_all_dim\":1,\"truncate\":false}}",
         {.type = FSDP_ROPE_YARN,
          .theta = 1e4,
          .factor = 1.5,
          .original_max_position_embeddings = 64,
          .attention_factor = 0.5,
          .beta_fast = 16.0,
          .beta_slow = 2.0,
          .mscale = 0.7,
          .mscale_all_dim = 1.0}},
        {",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2,\"attention_factor\":null,"
         "\"beta_fast\":null,\"truncate\":null}}",
         {.type = FSDP_ROPE_YARN,
          .theta = 1e4,
          .factor = 2.0,
          .original_max_position_embeddings = 2048,
          .truncate = true}},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        char text[1000];
        fsdp_llama_config c;
        snprintf(text, sizeof text, "%s%s", LLAMA, cases[i].text);
        ASSERT_OK(parse(text, &c));
        if (!same_rope(&c.rope, &cases[i].want))
            FAIL("%s: another rope", text);
    }
}

TEST(windows_are_read_where_they_are_used)
{
    static const struct {
        const char *text;
        int64_t sliding_window, max_window_layers;
    } cases[] = {
        {MISTRAL ",\"num_key_value_heads\":2,\"sliding_window\":5}", 5, 0},
        {MISTRAL ",\"num_key_value_heads\":2,\"sliding_window\":null}", 0, 0},
        {LLAMA ",\"sliding_window\":5}", 0, 0},
        {QWEN2 ",\"sliding_window\":5,\"max_window_layers\":1}", 0, 0},
        {QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":null}", 0, 0},
        {QWEN2 ",\"use_sliding_window\":true}", 4096, 28},
        {QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":5,\"max_window_layers\":0}", 5, 0},
        {QWEN2 ",\"use_sliding_window\":true,\"max_window_layers\":0,\"layer_types\":"
               "[\"full_attention\",\"full_attention\",\"sliding_attention\"]}",
         4096, 2},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_llama_config c;
        ASSERT_OK(parse(cases[i].text, &c));
        ASSERT_INT(c.sliding_window, cases[i].sliding_window);
        ASSERT_INT(c.max_window_layers, cases[i].max_window_layers);
    }
}

/* Layers in any order; a list over more layers than the configuration can mix. */
TEST(layers_with_and_without_a_window_are_mixed)
{
    static const char mixed[] =
        "{\"model_type\":\"qwen3\"," DIMS ",\"num_key_value_heads\":2,\"use_sliding_window\":true,"
        "\"sliding_window\":9,\"layer_types\":[\"sliding_attention\",\"full_attention\","
        "\"sliding_attention\"]}";
    fsdp_llama_config c, again;
    ASSERT_OK(parse(mixed, &c));
    ASSERT(c.family == FSDP_QWEN3 && c.head_dim == 128 && c.max_window_layers == 0);
    for (int64_t i = 0; i < 3; i++)
        ASSERT_INT(fsdp_llama_window_of(&c, i), i == 1 ? 0 : 9);
    fsdp_json *doc;
    ASSERT_OK(fsdp_json_create("config.json", &doc));
    fsdp_json_set_str(fsdp_json_root(doc), "model_type", "qwen3");
    fsdp_llama_config_set(fsdp_json_root(doc), &c, true);
    ASSERT_OK(fsdp_llama_config_parse(doc, &again));
    ASSERT(same_config(&c, &again));
    fsdp_json_node root = fsdp_json_root(doc), types = fsdp_json_set_array(root, "layer_types");
    fsdp_json_set_i64(root, "num_hidden_layers", 520);
    for (int i = 0; i < 520; i++)
        fsdp_json_append_str(types, i == 1 || i == 511 ? "full_attention" : "sliding_attention");
    ASSERT_OK(fsdp_llama_config_parse(doc, &c));
    ASSERT(fsdp_llama_window_of(&c, 511) == 0 && fsdp_llama_window_of(&c, 519) == 9);
    types = fsdp_json_set_array(root, "layer_types");
    for (int i = 0; i < 520; i++)
        fsdp_json_append_str(types, i == 515 ? "full_attention" : "sliding_attention");
    ASSERT_ERROR(
        fsdp_llama_config_parse(doc, &c), FSDP_ERR_FORMAT,
        "layer_types: expected no \"full_attention\" after \"sliding_attention\" in layers 512");
    fsdp_json_destroy(doc);
}

/* transformers' Mistral does not read layer_types. */
TEST(layer_types_of_a_mistral_have_no_effect)
{
    fsdp_llama_config c;
    ASSERT_OK(parse(MISTRAL ",\"num_key_value_heads\":2,\"sliding_window\":5,\"layer_types\":"
                            "[\"full_attention\",\"sliding_attention\",\"full_attention\"]}",
                    &c));
    for (int64_t i = 0; i < 3; i++)
        ASSERT_INT(fsdp_llama_window_of(&c, i), 5);
}

TEST(what_cannot_be_is_refused_by_name)
{
    static const struct {
        const char *text;
        fsdp_status status;
        const char *error;
    } cases[] = {
        {"{\"model_type\":\"llama\"}", FSDP_ERR_NOT_FOUND, "config.json: vocab_size: missing"},
        {LLAMA ",\"hidden_size\":0}", FSDP_ERR_FORMAT, "hidden_size: expected a positive integer"},
        {LLAMA ",\"num_key_value_heads\":4}", FSDP_ERR_FORMAT,
         "num_key_value_heads: expected a divisor of num_attention_heads (6), found 4"},
        {LLAMA ",\"num_key_value_heads\":0}", FSDP_ERR_FORMAT,
         "num_key_value_heads: expected a po"},
        {LLAMA ",\"num_attention_heads\":5}", FSDP_ERR_FORMAT,
         "num_attention_heads: expected a divisor of hidden_size (24), or a head_dim, found 5"},
        {LLAMA ",\"head_dim\":3}", FSDP_ERR_FORMAT, "head_dim: expected heads of an even width"},
        {LLAMA ",\"hidden_size\":18}", FSDP_ERR_FORMAT, "hidden_size: expected heads of an even"},
        {LLAMA ",\"head_dim\":100000000}", FSDP_ERR_FORMAT,
         "num_attention_heads: expected at most"},
        {LLAMA ",\"hidden_act\":\"gelu\"}", FSDP_ERR_UNSUPPORTED,
         "hidden_act: expected \"silu\" or \"swish\" (nothing else is supported), found \"gelu\""},
        {LLAMA ",\"attention_bias\":1}", FSDP_ERR_FORMAT, "attention_bias: expected true or false"},
        {LLAMA ",\"attention_dropout\":1.0}", FSDP_ERR_FORMAT,
         "attention_dropout: expected a numb"},
        {LLAMA ",\"rms_norm_eps\":0}", FSDP_ERR_FORMAT, "rms_norm_eps: expected a positive number"},
        {LLAMA ",\"pad_token_id\":-101}", FSDP_ERR_FORMAT, "pad_token_id: expected"},
        {LLAMA ",\"pad_token_id\":100}", FSDP_ERR_FORMAT, "pad_token_id: expected"},
        {LLAMA ",\"eos_token_id\":-2}", FSDP_ERR_FORMAT, "eos_token_id: expected"},
        {LLAMA ",\"bos_token_id\":[\"a\"]}", FSDP_ERR_FORMAT, "bos_token_id[0]: expected"},
        {LLAMA ",\"rope_theta\":0}", FSDP_ERR_FORMAT, "rope_theta: expected a positive number"},
        {LLAMA ",\"partial_rotary_factor\":0.5}", FSDP_ERR_UNSUPPORTED, "partial_rotary_factor"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", FSDP_ERR_NOT_FOUND,
         "rope_scaling.factor: missing"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":-2}}", FSDP_ERR_FORMAT,
         "rope_scaling.factor: expected a positive number"},
        {LLAMA ",\"rope_parameters\":{\"rope_type\":\"longrope\"}}", FSDP_ERR_UNSUPPORTED,
         "rope_parameters.rope_type: expected \"default\", \"linear\", \"llama3\", \"dynamic\" or "
         "\"yarn\" (nothing else is supported), found \"longrope\""},
        {LLAMA ",\"rope_scaling\":{\"type\":\"ntk\",\"factor\":2}}", FSDP_ERR_UNSUPPORTED,
         "rope_scaling.type: expected \"default\""},
        {LLAMA ",\"rope_scaling\":{\"type\":\"yarn\"}}", FSDP_ERR_NOT_FOUND,
         "rope_scaling.factor: missing"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":0}}", FSDP_ERR_FORMAT,
         "rope_scaling.factor: expected a positive number"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"beta_fast\":-1}}",
         FSDP_ERR_FORMAT, "rope_scaling.beta_fast: expected a number, 0 or more"},
        {LLAMA ",\"rope_theta\":1,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2}}",
         FSDP_ERR_FORMAT, "rope_theta: expected a number other than 1"},
        {LLAMA ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2,"
               "\"partial_rotary_factor\":0.25}}",
         FSDP_ERR_UNSUPPORTED, "rope_parameters.partial_rotary_factor"},
        {LLAMA ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":5}}}",
         FSDP_ERR_UNSUPPORTED, "rope_parameters.full_attention: expected the same"},
        {LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
               "\"high_freq_factor\":4}}",
         FSDP_ERR_FORMAT, "rope_scaling.high_freq_factor: expected a number greater than low_freq"},
        {LLAMA ",\"rope_scaling\":\"linear\"}", FSDP_ERR_FORMAT,
         "rope_scaling: expected an object"},
        {LLAMA ",\"quantization_config\":{\"bits\":4}}", FSDP_ERR_UNSUPPORTED,
         "quantization_config"},
        {LLAMA ",\"is_encoder_decoder\":true}", FSDP_ERR_UNSUPPORTED, "is_encoder_decoder"},
        {LLAMA ",\"dtype\":\"int8\"}", FSDP_ERR_FORMAT, "dtype: expected float32"},
        {MISTRAL ",\"num_key_value_heads\":2,\"sliding_window\":0}", FSDP_ERR_FORMAT,
         "sliding_window: expected a positive integer"},
        {QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\"]}",
         FSDP_ERR_FORMAT, "layer_types: expected one for each of num_hidden_layers (3)"},
        {QWEN2 ",\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\"]}",
         FSDP_ERR_FORMAT,
         "layer_types: expected \"full_attention\" for layer 1, since there is no"},
        {QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\","
               "\"linear_attention\",\"full_attention\"]}",
         FSDP_ERR_FORMAT,
         "layer_types: expected \"full_attention\" or \"sliding_attention\" for layer 1"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_llama_config c = {.hidden_size = -1};
        fsdp_status status = parse(cases[i].text, &c);
        if (status != cases[i].status || !strstr(fsdp_last_error(), cases[i].error))
            FAIL("%s: %s: %s", cases[i].text, fsdp_status_name(status),
                 status ? fsdp_last_error() : "");
        ASSERT_INT(c.hidden_size, -1);
    }
}

/* --- published shapes --- */

TEST(published_sizes_are_known)
{
    fsdp_model_config c, hf;
    ASSERT_OK(fsdp_model_config_preset("llama-58m", &c));
    ASSERT(c.llama.hidden_size == 512 && c.llama.num_hidden_layers == 8 &&
           c.llama.num_attention_heads == 8 && c.llama.intermediate_size == 1376 &&
           c.llama.vocab_size == 32000 && c.llama.head_dim == 64);
    ASSERT_OK(fsdp_model_config_preset("meta-llama/Llama-2-7b-hf", &hf));
    ASSERT_OK(fsdp_model_config_preset("Llama-2-7b", &c));
    ASSERT(same_config(&c.llama, &hf.llama) && c.llama.intermediate_size == 11008);
    ASSERT_OK(fsdp_model_config_preset("meta-llama/Llama-3.2-1B", &c));
    ASSERT(c.llama.rope.factor == 32.0 && c.llama.tie_word_embeddings && c.llama.head_dim == 64);
    ASSERT_OK(fsdp_model_config_preset("Llama-3.1-8B", &c));
    ASSERT(c.llama.rope.type == FSDP_ROPE_LLAMA3 && c.llama.rope.factor == 8.0 &&
           c.llama.num_key_value_heads == 8 && !c.llama.tie_word_embeddings);
    ASSERT_OK(fsdp_model_config_preset("mistralai/Mistral-7B-v0.1", &c));
    ASSERT_STR(fsdp_model_config_info(&c).class_name, "MistralForCausalLM");
    ASSERT(c.llama.sliding_window == 4096 && c.llama.rope.theta == 1e4);
    ASSERT_OK(fsdp_model_config_preset("Qwen/Qwen2.5-0.5B", &c));
    ASSERT_STR(fsdp_model_config_info(&c).block_classes[0], "Qwen2DecoderLayer");
    ASSERT(c.llama.hidden_size == 896 && c.llama.rms_norm_eps == 1e-6 && c.llama.head_dim == 64);
    ASSERT_ERROR(fsdp_model_config_preset("Llama-2-7b-chat", &c), FSDP_ERR_INVALID, "Llama-2-7b");
}

/* --- writing --- */

static const char *in_dir(fsdp_test *t, const char *name)
{
    static char paths[4][300];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", fsdp_test_dir(t), name);
    return paths[next];
}

static char *text_of(const char *path)
{
    char *text = NULL;
    size_t bytes;
    return fsdp_file_read(path, 100000, &text, &bytes) == FSDP_OK ? text : NULL;
}

TEST(a_written_config_is_read_back_the_same)
{
    static const char *const names[] = {"llama-134m",      "Llama-3.2-3B", "Mistral-7B-v0.1",
                                        "Mistral-7B-v0.3", "Qwen2.5-0.5B", "Qwen3-0.6B"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        fsdp_model_config c, again;
        ASSERT_OK(fsdp_model_config_preset(names[i], &c));
        if (c.llama.family == FSDP_QWEN3)
            c.llama.rope = (fsdp_rope_config){.type = FSDP_ROPE_YARN,
                                              .theta = 1e6,
                                              .factor = 4.0,
                                              .original_max_position_embeddings = 40,
                                              .attention_factor = 0.9,
                                              .beta_fast = 17.0,
                                              .beta_slow = 3.0,
                                              .mscale = 0.5,
                                              .mscale_all_dim = 0.25};
        if (c.llama.family == FSDP_QWEN2)
            c.llama.rope = (fsdp_rope_config){.type = FSDP_ROPE_DYNAMIC,
                                              .theta = 1e6,
                                              .factor = 4.0,
                                              .original_max_position_embeddings = 32768};
        c.llama.attention_dropout = 0.05;
        c.llama.attention_bias = c.llama.family == FSDP_LLAMA;
        c.llama.dtype = FSDP_DTYPE_BF16;
        c.llama.rope.type = i ? c.llama.rope.type : FSDP_ROPE_LINEAR;
        c.llama.rope.factor = i ? c.llama.rope.factor : 1.5;
        ASSERT_OK(fsdp_model_config_write(&c, !c.llama.tie_word_embeddings, FSDP_DTYPE_BF16, NULL,
                                          in_dir(t, "config.json")));
        ASSERT_OK(fsdp_model_config_read(fsdp_test_dir(t), &again));
        ASSERT(c.type == again.type && same_config(&c.llama, &again.llama));
    }
}

TEST(tokens_of_a_source_are_written_as_they_were)
{
    static const char text[] =
        LLAMA ",\"bos_token_id\":[],\"eos_token_id\":100,\"pad_token_id\":-1}";
    fsdp_model_config c, again;
    ASSERT_OK(fsdp_file_write(in_dir(t, "source.json"), text, sizeof text - 1));
    ASSERT_OK(fsdp_model_config_read(in_dir(t, "source.json"), &c));
    ASSERT_OK(fsdp_model_config_write(&c, true, FSDP_DTYPE_F32, in_dir(t, "source.json"),
                                      in_dir(t, "config.json")));
    ASSERT_OK(fsdp_model_config_read(fsdp_test_dir(t), &again));
    ASSERT(same_config(&c.llama, &again.llama) && again.llama.pad_token_id == 99);
    char *written = text_of(in_dir(t, "config.json"));
    ASSERT(written && strstr(written, "\"pad_token_id\": -1,") &&
           strstr(written, "\"bos_token_id\": [],") && strstr(written, "\"eos_token_id\": 100,"));
    fsdp_free(written);
}

/* Writing over a file of transformers 4 changes nothing. Writing over a file of transformers 5 adds
 * the old spelling of rope. */
TEST(a_source_keeps_its_other_keys)
{
    static const char *const names[] = {"llama2/config_other_form.json", "llama3/model/config.json",
                                        "llama3/config_other_form.json",
                                        "mistral/model/config.json", "qwen2/model/config.json"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        char golden[200], source[600];
        fsdp_model_config c, again;
        snprintf(golden, sizeof golden, "golden/%s", names[i]);
        snprintf(source, sizeof source, "%s", fsdp_test_path(golden));
        ASSERT_OK(fsdp_model_config_read(source, &c));
        ASSERT_OK(fsdp_model_config_write(&c, !c.llama.tie_word_embeddings, c.llama.dtype, source,
                                          in_dir(t, "config.json")));
        ASSERT_OK(fsdp_model_config_read(fsdp_test_dir(t), &again));
        ASSERT(same_config(&c.llama, &again.llama));
        char *before = text_of(source), *after = text_of(in_dir(t, "config.json"));
        ASSERT(before && after);
        const bool is_new = strstr(before, "rope_parameters") != NULL;
        ASSERT(is_new || strcmp(before, after) == 0);
        ASSERT(strstr(after, "\"rope_theta\": ") && strstr(after, "\"rope_scaling\": "));
        ASSERT_INT(is_new, strstr(after, "rope_parameters") != NULL);
        ASSERT((strstr(before, "layer_types") != NULL) == (strstr(after, "layer_types") != NULL));
        fsdp_free(before);
        fsdp_free(after);
    }
}
