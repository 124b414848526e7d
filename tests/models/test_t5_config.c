/* config.json and generation_config.json of T5. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/models/generation_config.h"
#include "src/models/t5_config.h"
#include "tests/test.h"

static const char *fixture(const char *name)
{
    static char paths[4][600];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", fsdp_test_path("fixtures/hf"), name);
    return paths[next];
}

static const char *in_dir(fsdp_test *t, const char *name)
{
    static char paths[4][300];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", fsdp_test_dir(t), name);
    return paths[next];
}

TEST(v1_0_is_read)
{
    fsdp_t5_config c;
    ASSERT_OK(fsdp_t5_config_read(fixture("t5_v10"), &c));
    ASSERT_INT(c.vocab_size, 11);
    ASSERT_INT(c.d_model, 8);
    ASSERT_INT(c.d_kv, 4);
    ASSERT_INT(c.d_ff, 12);
    ASSERT_INT(c.num_layers, 2);
    ASSERT_INT(c.num_decoder_layers, 2);
    ASSERT_INT(c.num_heads, 2);
    ASSERT_INT(c.relative_attention_num_buckets, 4);
    ASSERT_INT(c.relative_attention_max_distance, 8);
    ASSERT(c.dropout_rate == 0.1 && c.layer_norm_epsilon == 1e-6 && c.initializer_factor == 1.0);
    ASSERT(!c.is_gated_act && c.scale_decoder_outputs && c.tie_word_embeddings);
    ASSERT_INT(c.pad_token_id, 0);
    ASSERT_INT(c.eos_token_id, 1);
    ASSERT_INT(c.decoder_start_token_id, 0);
    ASSERT_INT(c.dtype, FSDP_DTYPE_F32);
}

/* `tie_word_embeddings: false` (the Hub) and `scale_decoder_outputs: false` (transformers 5). */
TEST(both_spellings_of_v1_1_are_unscaled)
{
    fsdp_t5_config hub, resaved;
    ASSERT_OK(fsdp_t5_config_read(fixture("t5_v11/config.json"), &hub));
    ASSERT_OK(fsdp_t5_config_read(fixture("t5_v11_resaved"), &resaved));
    ASSERT(hub.is_gated_act && resaved.is_gated_act);
    ASSERT(!hub.scale_decoder_outputs && !resaved.scale_decoder_outputs);
    ASSERT(!hub.tie_word_embeddings && resaved.tie_word_embeddings);
}

#define REQUIRED                                                                                   \
    "\"model_type\":\"t5\",\"vocab_size\":100,\"d_model\":6,\"d_kv\":5,\"d_ff\":7,"                \
    "\"num_layers\":3,\"num_heads\":2"
#define MINIMAL REQUIRED ",\"decoder_start_token_id\":0"

static fsdp_status parse(const char *text, fsdp_t5_config *c)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_parse("config.json", 1, text, strlen(text), &doc));
    fsdp_status status = fsdp_t5_config_parse(doc, c);
    fsdp_json_destroy(doc);
    return status;
}

/* Keys missing in an MT5Config have v1.1's values, and its output is not scaled, tied or not. */
TEST(mt5_is_v1_1)
{
    static const char *const tied[] = {"", ",\"tie_word_embeddings\":true",
                                       ",\"tie_word_embeddings\":false",
                                       ",\"scale_decoder_outputs\":false"};
    char text[512];
    fsdp_t5_config c;
    for (size_t i = 0; i < FSDP_LENGTH(tied); i++) {
        snprintf(text, sizeof text,
                 "{\"model_type\":\"mt5\",\"vocab_size\":11,\"d_model\":8,\"d_kv\":4,\"d_ff\":12,"
                 "\"num_layers\":2,\"num_heads\":2%s}",
                 tied[i]);
        ASSERT_OK(parse(text, &c));
        ASSERT(c.family == FSDP_MT5 && c.is_gated_act && !c.scale_decoder_outputs);
        ASSERT_INT(c.decoder_start_token_id, 0);
    }
    ASSERT_ERROR(parse("{\"model_type\":\"mt5\",\"vocab_size\":11,\"d_model\":8,\"d_kv\":4,"
                       "\"d_ff\":12,\"num_layers\":2,\"num_heads\":2,"
                       "\"scale_decoder_outputs\":true}",
                       &c),
                 FSDP_ERR_UNSUPPORTED, "scale_decoder_outputs: expected false");
}

/* transformers 5.23 reads these texts so: is_gated_act, and the class of DenseReluDense.act. */
TEST(feed_forwards_are_read_as_transformers_reads_them)
{
    static const struct {
        const char *text;
        bool gated;
        fsdp_hidden_act act;
    } rows[] = {
        {"\"feed_forward_proj\":\"gated-gelu\"", true, FSDP_HIDDEN_ACT_GELU_NEW},
        {"\"feed_forward_proj\":\"gated-gelu_new\"", true, FSDP_HIDDEN_ACT_GELU_NEW},
        {"\"feed_forward_proj\":\"gated-gelu_pytorch_tanh\"", true, FSDP_HIDDEN_ACT_GELU_NEW},
        {"\"feed_forward_proj\":\"gated-gelu_python\"", true, FSDP_HIDDEN_ACT_GELU},
        {"\"feed_forward_proj\":\"gated-silu\"", true, FSDP_HIDDEN_ACT_SILU},
        {"\"feed_forward_proj\":\"gated-swish\"", true, FSDP_HIDDEN_ACT_SILU},
        {"\"feed_forward_proj\":\"gated-relu\"", true, FSDP_HIDDEN_ACT_RELU},
        {"\"feed_forward_proj\":\"gelu\"", false, FSDP_HIDDEN_ACT_GELU},
        {"\"feed_forward_proj\":\"gelu_fast\"", false, FSDP_HIDDEN_ACT_GELU_NEW},
        {"\"feed_forward_proj\":\"silu\"", false, FSDP_HIDDEN_ACT_SILU},
        {"\"feed_forward_proj\":\"tanh\"", false, FSDP_HIDDEN_ACT_TANH},
        {"\"feed_forward_proj\":\"gated-gelu\",\"dense_act_fn\":\"gelu_fast\"", true,
         FSDP_HIDDEN_ACT_GELU_NEW},
        {"\"feed_forward_proj\":\"gated-gelu\",\"dense_act_fn\":\"gelu\"", true,
         FSDP_HIDDEN_ACT_GELU},
        {"\"dense_act_fn\":\"gelu\"", false, FSDP_HIDDEN_ACT_GELU},
        {"\"is_gated_act\":true", true, FSDP_HIDDEN_ACT_RELU},
    };
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        fsdp_t5_config c;
        char text[512];
        snprintf(text, sizeof text, "{" MINIMAL ",%s}", rows[i].text);
        ASSERT_OK(parse(text, &c));
        ASSERT_INT(c.is_gated_act, rows[i].gated);
        ASSERT_INT(c.dense_act_fn, rows[i].act);
    }
}

/* umT5 has mT5's defaults, but T5's rule for the scale of the head's input. */
TEST(umt5_is_scaled_as_t5)
{
    static const char shape[] =
        "{\"model_type\":\"umt5\",\"vocab_size\":11,\"d_model\":8,\"d_kv\":4,\"d_ff\":12,"
        "\"num_layers\":2,\"num_heads\":2%s}";
    static const struct {
        const char *text;
        bool scaled;
    } rows[] = {{"", true},
                {",\"tie_word_embeddings\":true", true},
                {",\"tie_word_embeddings\":false", false},
                {",\"tie_word_embeddings\":true,\"scale_decoder_outputs\":false", false}};
    char text[512];
    fsdp_t5_config c;
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        snprintf(text, sizeof text, shape, rows[i].text);
        ASSERT_OK(parse(text, &c));
        ASSERT(c.family == FSDP_UMT5 && c.is_gated_act);
        ASSERT_INT(c.dense_act_fn, FSDP_HIDDEN_ACT_GELU_NEW);
        ASSERT_INT(c.scale_decoder_outputs, rows[i].scaled);
        ASSERT_INT(c.decoder_start_token_id, 0);
    }
}

TEST(absent_keys_have_transformers_defaults)
{
    fsdp_t5_config c;
    ASSERT_OK(parse("{" MINIMAL "}", &c));
    ASSERT_INT(c.num_decoder_layers, 3);
    ASSERT_INT(c.relative_attention_num_buckets, 32);
    ASSERT_INT(c.relative_attention_max_distance, 128);
    ASSERT(c.dropout_rate == 0.1 && c.layer_norm_epsilon == 1e-6 && c.initializer_factor == 1.0);
    ASSERT(!c.is_gated_act && c.scale_decoder_outputs && c.tie_word_embeddings);
    ASSERT(c.pad_token_id == 0 && c.eos_token_id == 1 && c.dtype == FSDP_DTYPE_F32);
    ASSERT_OK(parse("{" MINIMAL ",\"num_decoder_layers\":null,\"torch_dtype\":\"bfloat16\","
                    "\"eos_token_id\":[7,8],\"dropout_rate\":0,\"quantization_config\":null,"
                    "\"pruned_heads\":{},\"model_max_length\":1000000000000000019884624838656}",
                    &c));
    ASSERT(c.num_decoder_layers == 3 && c.dtype == FSDP_DTYPE_BF16 && c.eos_token_id == 7);
    ASSERT_OK(parse("{" MINIMAL ",\"eos_token_id\":null}", &c));
    ASSERT_INT(c.eos_token_id, -1);
    ASSERT_OK(parse("{" MINIMAL ",\"eos_token_id\":[100]}", &c));
    ASSERT_INT(c.eos_token_id, 100);
    ASSERT_OK(parse("{\"model_type\":\"t5\",\"vocab_size\":100,\"hidden_size\":6,\"head_dim\":5,"
                    "\"d_ff\":7,\"num_hidden_layers\":3,\"num_attention_heads\":2,"
                    "\"decoder_start_token_id\":9}",
                    &c));
    ASSERT(c.d_model == 6 && c.d_kv == 5 && c.num_layers == 3 && c.num_heads == 2);
    ASSERT_INT(c.decoder_start_token_id, 9);
}

TEST(what_cannot_be_is_refused_by_name)
{
    static const struct {
        const char *text;
        fsdp_status status;
        const char *error;
    } cases[] = {
        {"{" REQUIRED "}", FSDP_ERR_NOT_FOUND, "config.json: decoder_start_token_id: missing"},
        {"{\"model_type\":\"t5\"}", FSDP_ERR_NOT_FOUND, "config.json: vocab_size: missing"},
        {"{\"vocab_size\":3}", FSDP_ERR_NOT_FOUND, "config.json: model_type: missing"},
        {"{\"model_type\":\"llama\"}", FSDP_ERR_UNSUPPORTED,
         "config.json: model_type: expected \"t5\", \"mt5\" or \"umt5\" (nothing else is "
         "supported), found "
         "\"llama\""},
        {"{\"model_type\":5}", FSDP_ERR_FORMAT, "model_type: expected a string, found 5"},
        {"[1]", FSDP_ERR_FORMAT, "config.json: expected an object, found a list"},
        {"{" MINIMAL ",\"d_model\":\"abc\"}", FSDP_ERR_FORMAT,
         "config.json: d_model: expected a positive integer, found \"abc\""},
        {"{" MINIMAL ",\"num_heads\":0}", FSDP_ERR_FORMAT,
         "num_heads: expected a positive integer"},
        {"{" MINIMAL ",\"d_ff\":-8}", FSDP_ERR_FORMAT,
         "d_ff: expected a positive integer, found -8"},
        {"{" MINIMAL ",\"d_kv\":1e2}", FSDP_ERR_FORMAT,
         "d_kv: expected a positive integer, found 100.0"},
        {"{" MINIMAL ",\"vocab_size\":99999999999}", FSDP_ERR_FORMAT,
         "vocab_size: expected an integer from"},
        {"{" MINIMAL ",\"num_decoder_layers\":0}", FSDP_ERR_FORMAT,
         "num_decoder_layers: expected a positive"},
        {"{" MINIMAL ",\"num_heads\":200000000,\"d_kv\":64}", FSDP_ERR_FORMAT,
         "num_heads: expected at most"},
        {"{" MINIMAL ",\"layer_norm_epsilon\":0}", FSDP_ERR_FORMAT,
         "layer_norm_epsilon: expected a positive number, found 0"},
        {"{" MINIMAL ",\"layer_norm_epsilon\":NaN}", FSDP_ERR_FORMAT,
         "layer_norm_epsilon: expected a finite number"},
        {"{" MINIMAL ",\"dropout_rate\":1.0}", FSDP_ERR_FORMAT,
         "dropout_rate: expected a number from 0 to below 1, found 1.0"},
        {"{" MINIMAL ",\"dropout_rate\":-0.1}", FSDP_ERR_FORMAT, "dropout_rate"},
        {"{" MINIMAL ",\"initializer_factor\":-1}", FSDP_ERR_FORMAT, "initializer_factor"},
        {"{" MINIMAL ",\"relative_attention_num_buckets\":2}", FSDP_ERR_FORMAT,
         "relative_attention_num_buckets"},
        {"{" MINIMAL ",\"relative_attention_max_distance\":16}", FSDP_ERR_FORMAT,
         "relative_attention_max_distance: expected a distance greater than half the buckets"},
        {"{" MINIMAL ",\"pad_token_id\":100}", FSDP_ERR_FORMAT,
         "pad_token_id: expected an integer from 0 to 99, found 100"},
        {"{" MINIMAL ",\"eos_token_id\":-2}", FSDP_ERR_FORMAT, "eos_token_id"},
        {"{" REQUIRED ",\"decoder_start_token_id\":null}", FSDP_ERR_FORMAT,
         "decoder_start_token_id: expected an integer, 0 or more, found null"},
        {"{" MINIMAL ",\"tie_word_embeddings\":\"no\"}", FSDP_ERR_FORMAT,
         "tie_word_embeddings: expected true or false, found \"no\""},
        {"{" MINIMAL ",\"feed_forward_proj\":\"gated-quick_gelu\"}", FSDP_ERR_UNSUPPORTED,
         "feed_forward_proj: expected \"gelu\", \"gelu_new\", \"relu\", \"silu\" or \"tanh\", "
         "perhaps after \"gated-\" (nothing else is supported), found \"gated-quick_gelu\""},
        {"{" MINIMAL ",\"feed_forward_proj\":\"gated-silu-relu\"}", FSDP_ERR_UNSUPPORTED,
         "found \"gated-silu-relu\""},
        {"{" MINIMAL ",\"feed_forward_proj\":\"gated-\"}", FSDP_ERR_UNSUPPORTED,
         "feed_forward_proj: expected"},
        {"{" MINIMAL ",\"dense_act_fn\":\"gelu_10\"}", FSDP_ERR_UNSUPPORTED,
         "dense_act_fn: expected \"gelu\", \"gelu_new\""},
        {"{" MINIMAL ",\"is_gated_act\":1}", FSDP_ERR_FORMAT,
         "is_gated_act: expected true or false"},
        {"{" MINIMAL ",\"dtype\":\"int8\"}", FSDP_ERR_FORMAT,
         "dtype: expected float32, bfloat16 or float16, found \"int8\""},
        {"{" MINIMAL ",\"torch_dtype\":\"int64\"}", FSDP_ERR_FORMAT,
         "torch_dtype: expected float32"},
        {"{" MINIMAL ",\"is_decoder\":true}", FSDP_ERR_UNSUPPORTED, "is_decoder: expected false"},
        {"{" MINIMAL ",\"is_encoder_decoder\":false}", FSDP_ERR_UNSUPPORTED, "is_encoder_decoder"},
        {"{" MINIMAL ",\"tie_encoder_decoder\":true}", FSDP_ERR_UNSUPPORTED, "tie_encoder_decoder"},
        {"{" MINIMAL ",\"pruned_heads\":{\"0\":[1]}}", FSDP_ERR_UNSUPPORTED, "pruned_heads"},
        {"{" MINIMAL ",\"quantization_config\":{\"bits\":4}}", FSDP_ERR_UNSUPPORTED,
         "quantization_config"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_t5_config c = {.d_model = -1};
        fsdp_status status = parse(cases[i].text, &c);
        if (status != cases[i].status || !strstr(fsdp_last_error(), cases[i].error))
            FAIL("%s: %s: %s", cases[i].text, fsdp_status_name(status),
                 status ? fsdp_last_error() : "");
        ASSERT_INT(c.d_model, -1);
    }
    fsdp_t5_config c;
    ASSERT_ERROR(fsdp_t5_config_read(fsdp_test_dir(t), &c), FSDP_ERR_NOT_FOUND,
                 "/config.json: cannot open");
}

TEST(published_sizes_are_known)
{
    fsdp_t5_config c, flan;
    ASSERT_OK(fsdp_t5_config_preset("t5-small", &c));
    ASSERT(c.d_model == 512 && c.d_kv == 64 && c.d_ff == 2048 && c.num_layers == 6 &&
           c.num_heads == 8 && c.vocab_size == 32128 && c.scale_decoder_outputs && !c.is_gated_act);
    ASSERT_OK(fsdp_t5_config_preset("google-t5/t5-large", &c));
    ASSERT(c.d_model == 1024 && c.num_layers == 24 && c.num_heads == 16);
    ASSERT_OK(fsdp_t5_config_preset("google/t5-v1_1-base", &c));
    ASSERT_OK(fsdp_t5_config_preset("google/flan-t5-base", &flan));
    ASSERT(c.d_ff == 2048 && c.is_gated_act && !c.scale_decoder_outputs && !c.tie_word_embeddings);
    ASSERT(memcmp(&c, &flan, sizeof c) == 0);
    ASSERT_OK(fsdp_t5_config_preset("google/mt5-small", &c));
    ASSERT(c.family == FSDP_MT5 && c.vocab_size == 250112 && c.d_ff == 1024 && c.num_layers == 8);
    ASSERT_OK(fsdp_t5_config_preset("google/umt5-base", &c));
    ASSERT(c.family == FSDP_UMT5 && c.vocab_size == 256384 && c.d_model == 768);
    ASSERT_ERROR(fsdp_t5_config_preset("mt5-3b", &c), FSDP_ERR_INVALID, "mt5-3b");
    ASSERT_ERROR(fsdp_t5_config_preset("t5-huge", &c), FSDP_ERR_INVALID, "t5-huge");
    ASSERT_ERROR(fsdp_t5_config_preset("flan-t5-3b", &c), FSDP_ERR_INVALID, "flan-t5-3b");
}

static bool same_config(const fsdp_t5_config *a, const fsdp_t5_config *b)
{
    return a->vocab_size == b->vocab_size && a->d_model == b->d_model && a->d_kv == b->d_kv &&
           a->d_ff == b->d_ff && a->num_layers == b->num_layers &&
           a->num_decoder_layers == b->num_decoder_layers && a->num_heads == b->num_heads &&
           a->relative_attention_num_buckets == b->relative_attention_num_buckets &&
           a->relative_attention_max_distance == b->relative_attention_max_distance &&
           a->dropout_rate == b->dropout_rate && a->layer_norm_epsilon == b->layer_norm_epsilon &&
           a->family == b->family && a->is_gated_act == b->is_gated_act &&
           a->dense_act_fn == b->dense_act_fn &&
           a->scale_decoder_outputs == b->scale_decoder_outputs &&
           a->pad_token_id == b->pad_token_id && a->eos_token_id == b->eos_token_id &&
           a->decoder_start_token_id == b->decoder_start_token_id;
}

TEST(a_written_config_is_read_back_the_same)
{
    static const char *const names[] = {"t5-3b", "t5-v1_1-small"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        fsdp_t5_config c, again;
        ASSERT_OK(fsdp_t5_config_preset(names[i], &c));
        c.decoder_start_token_id = 5;
        c.num_decoder_layers = 2;
        c.dropout_rate = 0.05;
        ASSERT_OK(fsdp_t5_config_write(&c, !c.scale_decoder_outputs, FSDP_DTYPE_BF16, NULL,
                                       in_dir(t, "config.json")));
        ASSERT_OK(fsdp_t5_config_read(fsdp_test_dir(t), &again));
        ASSERT(same_config(&c, &again));
        ASSERT_INT(again.tie_word_embeddings, c.scale_decoder_outputs);
        ASSERT_INT(again.dtype, FSDP_DTYPE_BF16);
    }
}

/* Every pair of gate and function, once without an old file and once over one of another pair. */
TEST(every_feed_forward_is_written)
{
    for (int act = FSDP_HIDDEN_ACT_GELU; act <= FSDP_HIDDEN_ACT_TANH; act++)
        for (int gated = 0; gated < 2; gated++)
            for (int over = 0; over < 2; over++) {
                fsdp_t5_config c, again;
                const char *path = in_dir(t, "config.json");
                ASSERT_OK(fsdp_t5_config_preset("umt5-small", &c));
                c.dense_act_fn = (fsdp_hidden_act)act;
                c.is_gated_act = gated;
                ASSERT_OK(fsdp_t5_config_write(&c, true, FSDP_DTYPE_F32, over ? path : NULL, path));
                ASSERT_OK(fsdp_t5_config_read(path, &again));
                ASSERT(same_config(&c, &again));
            }
}

/* A name that means the same function stays. */
TEST(the_spelling_of_a_feed_forward_is_kept)
{
    static const char text[] = "{" MINIMAL ",\"feed_forward_proj\":\"gated-gelu_pytorch_tanh\"}";
    const char *path = in_dir(t, "config.json");
    fsdp_t5_config c;
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
    ASSERT_OK(fsdp_t5_config_read(path, &c));
    ASSERT_OK(fsdp_t5_config_write(&c, true, FSDP_DTYPE_F32, path, path));
    fsdp_json *doc;
    const char *name;
    ASSERT_OK(fsdp_json_read(path, &doc));
    ASSERT_OK(fsdp_json_get_str(fsdp_json_root(doc), "feed_forward_proj", &name));
    ASSERT_STR(name, "gated-gelu_pytorch_tanh");
    ASSERT_OK(fsdp_json_get_str(fsdp_json_root(doc), "dense_act_fn", &name));
    ASSERT_STR(name, "gelu_new");
    fsdp_json_destroy(doc);
}

/* Unscaled and without a separate head: only scale_decoder_outputs can express that. */
TEST(every_kind_of_head_is_written)
{
    for (int scale = 0; scale < 2; scale++) {
        for (int head = 0; head < 2; head++) {
            fsdp_t5_config c, again;
            ASSERT_OK(fsdp_t5_config_preset("t5-small", &c));
            c.scale_decoder_outputs = scale;
            ASSERT_OK(
                fsdp_t5_config_write(&c, head, FSDP_DTYPE_F32, NULL, in_dir(t, "config.json")));
            ASSERT_OK(fsdp_t5_config_read(fsdp_test_dir(t), &again));
            ASSERT_INT(again.scale_decoder_outputs, scale);
            ASSERT_INT(again.tie_word_embeddings, scale || !head);
        }
    }
}

static char *text_of(const char *path)
{
    char *text = NULL;
    size_t bytes;
    return fsdp_file_read(path, 100000, &text, &bytes) == FSDP_OK ? text : NULL;
}

/* Writing over a file of transformers changes only what has changed. */
TEST(a_source_keeps_its_other_keys)
{
    static const char *const names[] = {"t5_v10/config.json", "t5_v11/config.json"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        fsdp_t5_config c;
        ASSERT_OK(fsdp_t5_config_read(fixture(names[i]), &c));
        ASSERT_OK(fsdp_t5_config_write(&c, !c.tie_word_embeddings, c.dtype, fixture(names[i]),
                                       in_dir(t, "config.json")));
        char *before = text_of(fixture(names[i])), *after = text_of(in_dir(t, "config.json"));
        ASSERT(before && after);
        ASSERT_STR(after, before);
        fsdp_free(before);
        fsdp_free(after);
    }
    fsdp_t5_config c;
    const char *source =
        "{" MINIMAL ",\"torch_dtype\":\"float32\",\"hidden_size\":6,\"x\":{\"y\":[1]},"
        "\"scale_decoder_outputs\":false}";
    ASSERT_OK(fsdp_file_write(in_dir(t, "source.json"), source, strlen(source)));
    ASSERT_OK(parse(source, &c));
    ASSERT_OK(fsdp_t5_config_write(&c, true, FSDP_DTYPE_BF16, in_dir(t, "source.json"),
                                   in_dir(t, "config.json")));
    char *text = text_of(in_dir(t, "config.json"));
    ASSERT(text != NULL);
    ASSERT(strstr(text, "\"torch_dtype\": \"bfloat16\"") && !strstr(text, "\"dtype\""));
    ASSERT(strstr(text, "\"scale_decoder_outputs\": false") &&
           strstr(text, "\"tie_word_embeddings\": false"));
    ASSERT(strstr(text, "\"x\": {\n    \"y\": [\n      1\n    ]\n  }") != NULL);
    fsdp_free(text);
}

TEST(generation_configs_are_read_and_written)
{
    fsdp_generation_config g;
    ASSERT_OK(fsdp_generation_config_read(fixture("t5_v10"), &g));
    ASSERT(g.decoder_start_token_id == 0 && g.n_eos == 1 && g.eos_token_ids[0] == 1 &&
           g.pad_token_id == 0 && g.max_length == 0 && g.max_new_tokens == 0 && g.num_beams == 1);
    /* There is no such file, so the keys of config.json are read. */
    ASSERT_OK(fsdp_generation_config_read(fixture("t5_v11"), &g));
    ASSERT(g.decoder_start_token_id == 0 && g.n_eos == 1 && g.pad_token_id == 0);
}

TEST(a_generation_config_that_names_all_ids_is_kept_as_it_is)
{
    fsdp_model_config c;
    ASSERT_OK(fsdp_model_config_read(fixture("t5_v10"), &c));
    const fsdp_model_info info = fsdp_model_config_info(&c);
    ASSERT_OK(fsdp_generation_config_write(&info, fixture("t5_v10"),
                                           in_dir(t, "generation_config.json")));
    char *before = text_of(fixture("t5_v10/generation_config.json"));
    char *after = text_of(in_dir(t, "generation_config.json"));
    ASSERT(before && after);
    ASSERT_STR(after, before);
    fsdp_free(before);
    fsdp_free(after);
}

/* The file that is written for a model from a directory with these two files. */
static char *rewritten(fsdp_test *t, const char *config, const char *generation)
{
    const fsdp_model_info info = {.format = {.task = FSDP_TASK_CAUSAL_LM},
                                  .bos_token_id = 1,
                                  .eos_token_id = 7,
                                  .pad_token_id = -1};
    const char *source = in_dir(t, "generation_config.json");
    if (fsdp_file_write(in_dir(t, "config.json"), config, strlen(config)) != FSDP_OK ||
        fsdp_tree_remove(source) != FSDP_OK ||
        (generation && fsdp_file_write(source, generation, strlen(generation)) != FSDP_OK) ||
        fsdp_generation_config_write(&info, fsdp_test_dir(t), in_dir(t, "new.json")) != FSDP_OK)
        return NULL;
    return text_of(in_dir(t, "new.json"));
}

TEST(what_cannot_be_generated_with_can_be_saved)
{
#define FRESH                                                                                      \
    "{\n  \"_from_model_config\": true,\n  \"bos_token_id\": 1,\n  \"eos_token_id\": 7\n}\n"
    static const struct {
        const char *config, *generation, *written;
    } cases[] = {
        {"{}",
         "{\"temperature\":0.0,\"top_k\":-1,\"top_p\":0,\"max_length\":0,\"pad_token_id\":-1}",
         "{\n  \"bos_token_id\": 1,\n  \"eos_token_id\": 7,\n  \"max_length\": 0,\n"
         "  \"pad_token_id\": -1,\n  \"temperature\": 0.0,\n  \"top_k\": -1,\n  \"top_p\": 0\n}\n"},
        {"{\"eos_token_id\":[7,8]}", "{\"bos_token_id\":null,\"eos_token_id\":\"a\"}",
         "{\n  \"bos_token_id\": null,\n  \"eos_token_id\": \"a\"\n}\n"},
        {"{\"eos_token_id\":[7,-1]}", NULL,
         "{\n  \"_from_model_config\": true,\n  \"bos_token_id\": 1,\n"
         "  \"eos_token_id\": [\n    7,\n    -1\n  ]\n}\n"},
        {"{\"eos_token_id\":[7,\"a\"]}", NULL, FRESH},
        {"{}", "{\"temperature\":", FRESH},
        {"{}", "[1]", FRESH},
        {"{", NULL, FRESH},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        char *text = rewritten(t, cases[i].config, cases[i].generation);
        ASSERT(text != NULL);
        ASSERT_STR(text, cases[i].written);
        fsdp_free(text);
    }
}

/* More ids than generation uses. */
TEST(every_end_of_a_config_is_saved)
{
    char *text = rewritten(
        t, "{\"eos_token_id\":[7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24]}", NULL);
    ASSERT(text && strstr(text, "    7,\n    8,\n") && strstr(text, "    24\n  ]\n}"));
    fsdp_free(text);
}

static void parse_generation(fsdp_test *t, const char *text, fsdp_generation_config *g)
{
    fsdp_json *doc;
    ASSERT_OK(fsdp_json_parse("g.json", 1, text, strlen(text), &doc));
    ASSERT_OK(fsdp_generation_config_parse(doc, g));
    fsdp_json_destroy(doc);
}

TEST(generation_settings_are_read)
{
    fsdp_generation_config g;
    parse_generation(t,
                     "{\"num_beams\":4,\"early_stopping\":\"never\",\"length_penalty\":-1,"
                     "\"num_return_sequences\":2,\"min_new_tokens\":3,\"min_p\":0.1,\"top_k\":0,"
                     "\"typical_p\":1.0,\"bad_words_ids\":null,\"suppress_tokens\":[],"
                     "\"renormalize_logits\":false}",
                     &g);
    CHECK_HERE();
    ASSERT(g.num_beams == 4 && g.early_stopping == FSDP_EARLY_STOPPING_NEVER);
    ASSERT(g.length_penalty == -1 && g.num_return_sequences == 2 && g.min_new_tokens == 3);
    ASSERT(g.min_p == 0.1 && g.top_k == 0 && g.top_p == 1 && g.temperature == 1);
    ASSERT_STR(g.unsupported, "");
    parse_generation(t, "{\"early_stopping\":true,\"typical_p\":0.9}", &g);
    CHECK_HERE();
    ASSERT(g.early_stopping == FSDP_EARLY_STOPPING_TRUE && g.num_beams == 1 && g.top_k == 50);
    ASSERT(g.typical_p == 0.9);
    ASSERT_STR(g.unsupported, "");
    parse_generation(t, "{\"min_length\":9,\"min_new_tokens\":0}", &g);
    ASSERT(g.min_length == 0 && g.min_new_tokens == 0);
    parse_generation(t, "{\"min_length\":9,\"min_new_tokens\":null}", &g);
    ASSERT(g.min_length == 9 && g.min_new_tokens == 0);
    parse_generation(t, "{\"forced_bos_token_id\":0}", &g);
    ASSERT(g.forced_bos_token_id.n == 1 && g.forced_bos_token_id.ids[0] == 0);
    parse_generation(
        t,
        "{\"forced_eos_token_id\":[1,2],\"bad_words_ids\":[[3,4],[5]],"
        "\"exponential_decay_length_penalty\":[6,1.5],\"stop_strings\":[\"a\",\"bc\"]}",
        &g);
    CHECK_HERE();
    ASSERT(g.forced_eos_token_id.n == 2 && g.forced_eos_token_id.ids[1] == 2);
    ASSERT(g.bad_words_ids.n == 5 && g.bad_words_ids.ids[2] == FSDP_END_OF_WORD);
    ASSERT(g.exponential_decay_length_penalty.start == 6);
    ASSERT(g.exponential_decay_length_penalty.factor == 1.5);
    ASSERT(g.stop_strings.n_bytes == 5 && memcmp(g.stop_strings.bytes, "a\0bc", 5) == 0);
    ASSERT(g.guidance_scale == 1 && g.encoder_repetition_penalty == 1 && g.max_time == 0);
    ASSERT(g.sequence_bias.n == 0 && g.encoder_no_repeat_ngram_size == 0);
    parse_generation(t,
                     "{\"sequence_bias\":[[[3,4],-1.5],[[5],2],[[3],0],[[3,4],7]],\"max_time\":0.5,"
                     "\"guidance_scale\":-0.5,\"encoder_repetition_penalty\":2,\"top_h\":0.4,"
                     "\"encoder_no_repeat_ngram_size\":3,\"remove_invalid_values\":true}",
                     &g);
    CHECK_HERE();
    /* the second number of [3, 4] replaces the first one */
    ASSERT(g.sequence_bias.n == 3 && g.sequence_bias.words.n == 7);
    ASSERT(g.sequence_bias.biases[0] == 7 && g.sequence_bias.biases[1] == 2);
    ASSERT(g.guidance_scale == -0.5 && g.encoder_repetition_penalty == 2 && g.max_time == 0.5);
    ASSERT(g.encoder_no_repeat_ngram_size == 3 && g.remove_invalid_values && g.top_h == 0.4);
    ASSERT_STR(g.unsupported, "");
    parse_generation(t, "{\"force_words_ids\":[[3]],\"dola_layers\":\"low\"}", &g);
    ASSERT_STR(g.unsupported, "dola_layers, force_words_ids");
}

TEST(bad_generation_configs_are_refused)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{\"eos_token_id\":[1,\"a\"]}", "g.json: eos_token_id[1]: expected"},
        {"{\"eos_token_id\":\"a\"}", "g.json: eos_token_id: expected"},
        {"{\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "at most 16"},
        {"{\"bad_words_ids\":[3]}", "g.json: bad_words_ids[0]: expected a list of token ids"},
        {"{\"bad_words_ids\":[[]]}", "g.json: bad_words_ids[0]: expected a list of token ids"},
        {"{\"suppress_tokens\":[-1]}", "g.json: suppress_tokens[0]: expected"},
        {"{\"forced_bos_token_id\":[1,2]}", "g.json: forced_bos_token_id: expected one token id"},
        {"{\"stop_strings\":\"\"}", "g.json: stop_strings: expected a text that is not empty"},
        {"{\"exponential_decay_length_penalty\":[1]}", "expected two numbers"},
        {"{\"exponential_decay_length_penalty\":[1,0]}", "a number above 0"},
        {"{\"max_new_tokens\":0}", "max_new_tokens: expected a positive integer"},
        {"{\"num_beams\":0}", "num_beams"},
        {"{\"do_sample\":1}", "do_sample: expected true or false"},
        {"{\"early_stopping\":\"soon\"}", "early_stopping: expected true, false or \"never\""},
        {"{\"num_return_sequences\":0}", "num_return_sequences"},
        {"{\"sequence_bias\":[[3,1]]}", "sequence_bias[0][0]: expected a list of token ids"},
        {"{\"sequence_bias\":[[[3]]]}", "sequence_bias[0]: expected a list of token ids and a"},
        {"{\"sequence_bias\":[[[3],\"a\"]]}", "sequence_bias[0][1]: expected"},
        {"{\"sequence_bias\":{\"3\":1}}", "sequence_bias: expected"},
        {"{\"max_time\":0}", "max_time: expected a positive number"},
        {"{\"encoder_repetition_penalty\":0}", "encoder_repetition_penalty: expected a positive"},
        {"{\"guidance_scale\":\"a\"}", "guidance_scale: expected"},
        {"{\"repetition_penalty\":0}", "repetition_penalty: expected a positive number"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_json *doc;
        fsdp_generation_config g;
        ASSERT_OK(fsdp_json_parse("g.json", 1, cases[i].text, strlen(cases[i].text), &doc));
        fsdp_status status = fsdp_generation_config_parse(doc, &g);
        fsdp_json_destroy(doc);
        if (status != FSDP_ERR_FORMAT || !strstr(fsdp_last_error(), cases[i].error))
            FAIL("%s: %s: %s", cases[i].text, fsdp_status_name(status), fsdp_last_error());
    }
}
