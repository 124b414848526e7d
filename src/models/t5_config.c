/* config.json of T5, and the published sizes. */
#include <stddef.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/models/t5_config.h"

/* Products of two dimensions, times the size of an element, stay far below 2^63. */
static const int64_t MAX_DIM = 1 << 28;

/* ---- reading --------------------------------------------------------------------------------- */

/* Required dimensions; `alias` is transformers' general name for the same (its attribute_map). */
static const struct {
    const char *key, *alias;
    size_t offset;
} dims[] = {
    {"vocab_size", NULL, offsetof(fsdp_t5_config, vocab_size)},
    {"d_model", "hidden_size", offsetof(fsdp_t5_config, d_model)},
    {"d_kv", "head_dim", offsetof(fsdp_t5_config, d_kv)},
    {"d_ff", NULL, offsetof(fsdp_t5_config, d_ff)},
    {"num_layers", "num_hidden_layers", offsetof(fsdp_t5_config, num_layers)},
    {"num_heads", "num_attention_heads", offsetof(fsdp_t5_config, num_heads)},
};

static int64_t *dim_at(fsdp_t5_config *c, size_t i)
{
    return (int64_t *)((char *)c + dims[i].offset);
}

static fsdp_status read_dims(fsdp_json_node root, fsdp_t5_config *c)
{
    for (size_t i = 0; i < FSDP_LENGTH(dims); i++) {
        bool by_alias = dims[i].alias && !fsdp_json_has(root, dims[i].key) &&
                        fsdp_json_has(root, dims[i].alias);
        const char *key = by_alias ? dims[i].alias : dims[i].key;
        FSDP_TRY(fsdp_json_get_i64(root, key, 1, MAX_DIM, dim_at(c, i)));
    }
    if (c->num_heads * c->d_kv > MAX_DIM)
        return fsdp_json_mismatch(root, "num_heads", "at most %lld, with heads of %lld",
                                  (long long)(MAX_DIM / c->d_kv), (long long)c->d_kv);
    return fsdp_json_opt_i64(root, "num_decoder_layers", 1, MAX_DIM, c->num_layers,
                             &c->num_decoder_layers);
}

/* Below 4 buckets, or a distance within the exact ones, the logarithm of the bucket formula
 * divides by zero. */
static fsdp_status read_buckets(fsdp_json_node root, fsdp_t5_config *c)
{
    static const char buckets[] = "relative_attention_num_buckets";
    static const char distance[] = "relative_attention_max_distance";
    FSDP_TRY(fsdp_json_opt_i64(root, buckets, 4, MAX_DIM, 32, &c->relative_attention_num_buckets));
    FSDP_TRY(
        fsdp_json_opt_i64(root, distance, 1, MAX_DIM, 128, &c->relative_attention_max_distance));
    if (c->relative_attention_max_distance <= c->relative_attention_num_buckets / 2)
        return fsdp_json_mismatch(root, fsdp_json_has(root, distance) ? distance : buckets,
                                  "a distance greater than half the buckets (%lld > %lld / 2)",
                                  (long long)c->relative_attention_max_distance,
                                  (long long)c->relative_attention_num_buckets);
    return FSDP_OK;
}

static fsdp_status read_numbers(fsdp_json_node root, fsdp_t5_config *c)
{
    FSDP_TRY(fsdp_json_opt_f64(root, "dropout_rate", 0.1, &c->dropout_rate));
    if (c->dropout_rate < 0 || c->dropout_rate >= 1)
        return fsdp_json_mismatch(root, "dropout_rate", "a number from 0 to below 1");
    FSDP_TRY(fsdp_json_opt_f64(root, "layer_norm_epsilon", 1e-6, &c->layer_norm_epsilon));
    if (c->layer_norm_epsilon <= 0)
        return fsdp_json_mismatch(root, "layer_norm_epsilon", "a positive number");
    FSDP_TRY(fsdp_json_opt_f64(root, "initializer_factor", 1.0, &c->initializer_factor));
    if (c->initializer_factor < 0)
        return fsdp_json_mismatch(root, "initializer_factor", "a number, 0 or more");
    return FSDP_OK;
}

static fsdp_status read_tokens(fsdp_json_node root, fsdp_t5_config *c)
{
    int64_t last = c->vocab_size - 1;
    FSDP_TRY(fsdp_json_opt_i64(root, "pad_token_id", 0, last, 0, &c->pad_token_id));
    FSDP_TRY(
        fsdp_json_get_i64(root, "decoder_start_token_id", 0, last, &c->decoder_start_token_id));
    fsdp_json_node eos = fsdp_json_find(root, "eos_token_id");
    if (fsdp_json_kind_of(eos) == FSDP_JSON_ARRAY && fsdp_json_len(eos) > 0)
        return fsdp_json_get_i64(fsdp_json_at(eos, 0), NULL, 0, last, &c->eos_token_id);
    return fsdp_json_opt_i64(root, "eos_token_id", 0, last, last < 1 ? last : 1, &c->eos_token_id);
}

static fsdp_status unsupported(fsdp_json_node root, const char *key, const char *supported)
{
    /* The getters' message, under the code that says: well-formed, but not here. */
    (void)fsdp_json_mismatch(root, key, "%s (nothing else is supported)", supported);
    return FSDP_ERR_UNSUPPORTED;
}

static fsdp_status read_activation(fsdp_json_node root, fsdp_t5_config *c)
{
    const char *projection, *act;
    bool gated;
    FSDP_TRY(fsdp_json_opt_str(root, "feed_forward_proj", "relu", &projection));
    c->is_gated_act = strcmp(projection, "gated-gelu") == 0;
    if (!c->is_gated_act && strcmp(projection, "relu") != 0)
        return unsupported(root, "feed_forward_proj", "\"relu\" or \"gated-gelu\"");
    /* Derived from it when saved; where a file says otherwise, transformers obeys the file. */
    const char *derived = c->is_gated_act ? "gelu_new" : "relu";
    FSDP_TRY(fsdp_json_opt_str(root, "dense_act_fn", derived, &act));
    if (strcmp(act, derived) != 0)
        return unsupported(root, "dense_act_fn", c->is_gated_act ? "\"gelu_new\"" : "\"relu\"");
    FSDP_TRY(fsdp_json_opt_bool(root, "is_gated_act", c->is_gated_act, &gated));
    if (gated != c->is_gated_act)
        return unsupported(root, "is_gated_act", c->is_gated_act ? "true" : "false");
    return FSDP_OK;
}

static fsdp_status read_dtype(fsdp_json_node root, fsdp_t5_config *c)
{
    const char *key = fsdp_json_has(root, "dtype") ? "dtype" : "torch_dtype", *name;
    FSDP_TRY(fsdp_json_opt_str(root, key, "float32", &name));
    if (fsdp_dtype_from_name(name, &c->dtype) != FSDP_OK || !fsdp_dtype_is_floating(c->dtype))
        return fsdp_json_mismatch(root, key, "float32, bfloat16 or float16");
    return FSDP_OK;
}

/* Keys that change what the model computes, in ways that are refused. */
static fsdp_status refuse_unsupported(fsdp_json_node root)
{
    bool flag;
    if (fsdp_json_has(root, "quantization_config"))
        return unsupported(root, "quantization_config", "null");
    if (fsdp_json_len(fsdp_json_find(root, "pruned_heads")) > 0)
        return unsupported(root, "pruned_heads", "{}");
    FSDP_TRY(fsdp_json_opt_bool(root, "is_encoder_decoder", true, &flag));
    if (!flag)
        return unsupported(root, "is_encoder_decoder", "true");
    FSDP_TRY(fsdp_json_opt_bool(root, "is_decoder", false, &flag));
    if (flag)
        return unsupported(root, "is_decoder", "false");
    FSDP_TRY(fsdp_json_opt_bool(root, "tie_encoder_decoder", false, &flag));
    return flag ? unsupported(root, "tie_encoder_decoder", "false") : FSDP_OK;
}

fsdp_status fsdp_t5_config_parse(fsdp_json *doc, fsdp_t5_config *config)
{
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_t5_config c = {0};
    const char *model_type;
    FSDP_TRY(fsdp_json_get_str(root, "model_type", &model_type));
    if (strcmp(model_type, "t5") != 0)
        return unsupported(root, "model_type", "\"t5\"");
    FSDP_TRY(refuse_unsupported(root));
    FSDP_TRY(read_dims(root, &c));
    FSDP_TRY(read_buckets(root, &c));
    FSDP_TRY(read_numbers(root, &c));
    FSDP_TRY(read_tokens(root, &c));
    FSDP_TRY(read_activation(root, &c));
    FSDP_TRY(read_dtype(root, &c));
    FSDP_TRY(fsdp_json_opt_bool(root, "tie_word_embeddings", true, &c.tie_word_embeddings));
    FSDP_TRY(fsdp_json_opt_bool(root, "scale_decoder_outputs", c.tie_word_embeddings,
                                &c.scale_decoder_outputs));
    *config = c;
    return FSDP_OK;
}

fsdp_status fsdp_t5_config_read(const char *path, fsdp_t5_config *config)
{
    fsdp_json *doc = NULL;
    char *file =
        fsdp_path_is_directory(path) ? fsdp_path_join(path, "config.json") : fsdp_strdup(path);
    fsdp_status status = file ? fsdp_json_read(file, &doc) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_t5_config_parse(doc, config);
    fsdp_json_destroy(doc);
    fsdp_free(file);
    return status;
}

/* ---- published sizes ------------------------------------------------------------------------- */

/* From the config.json files of google-t5/... and google/t5-v1_1-...; FLAN has v1.1's shapes. */
static const struct {
    const char *name;
    int64_t d_model, d_kv, d_ff, num_layers, num_heads;
    bool v1_1;
} presets[] = {
    {"t5-small", 512, 64, 2048, 6, 8, false},      {"t5-base", 768, 64, 3072, 12, 12, false},
    {"t5-large", 1024, 64, 4096, 24, 16, false},   {"t5-3b", 1024, 128, 16384, 24, 32, false},
    {"t5-11b", 1024, 128, 65536, 24, 128, false},  {"t5-v1_1-small", 512, 64, 1024, 8, 6, true},
    {"t5-v1_1-base", 768, 64, 2048, 12, 12, true}, {"t5-v1_1-large", 1024, 64, 2816, 24, 16, true},
    {"t5-v1_1-xl", 2048, 64, 5120, 24, 32, true},  {"t5-v1_1-xxl", 4096, 64, 10240, 24, 64, true},
};

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool names_preset(const char *name, const char *preset)
{
    static const char flan[] = "flan-t5-", v1_1[] = "t5-v1_1-";
    if (starts_with(name, flan) && starts_with(preset, v1_1))
        return strcmp(name + strlen(flan), preset + strlen(v1_1)) == 0;
    return strcmp(name, preset) == 0;
}

fsdp_status fsdp_t5_config_preset(const char *name, fsdp_t5_config *config)
{
    const char *bare = starts_with(name, "google/") || starts_with(name, "google-t5/")
                           ? fsdp_path_name(name)
                           : name;
    for (size_t i = 0; i < FSDP_LENGTH(presets); i++) {
        if (!names_preset(bare, presets[i].name))
            continue;
        *config = (fsdp_t5_config){
            .vocab_size = 32128,
            .d_model = presets[i].d_model,
            .d_ff = presets[i].d_ff,
            .d_kv = presets[i].d_kv,
            .num_layers = presets[i].num_layers,
            .num_decoder_layers = presets[i].num_layers,
            .num_heads = presets[i].num_heads,
            .relative_attention_num_buckets = 32,
            .relative_attention_max_distance = 128,
            .dropout_rate = 0.1,
            .layer_norm_epsilon = 1e-6,
            .initializer_factor = 1.0,
            .is_gated_act = presets[i].v1_1,
            .scale_decoder_outputs = !presets[i].v1_1,
            .tie_word_embeddings = !presets[i].v1_1,
            .eos_token_id = 1,
            .dtype = FSDP_DTYPE_F32,
        };
        return FSDP_OK;
    }
    return fsdp_error(FSDP_ERR_INVALID,
                      "unknown T5 shape '%s' (known: t5-small, t5-base, t5-large, t5-3b, t5-11b, "
                      "t5-v1_1-small, -base, -large, -xl, -xxl, and the same as flan-t5-...)",
                      name);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Where an alias is what the source says, it is the one to change. */
static void set_dims(fsdp_json_node root, const fsdp_t5_config *config)
{
    fsdp_t5_config c = *config;
    for (size_t i = 0; i < FSDP_LENGTH(dims); i++) {
        bool by_alias = dims[i].alias && !fsdp_json_has(root, dims[i].key) &&
                        fsdp_json_has(root, dims[i].alias);
        fsdp_json_set_i64(root, by_alias ? dims[i].alias : dims[i].key, *dim_at(&c, i));
    }
    fsdp_json_set_i64(root, "num_decoder_layers", c.num_decoder_layers);
    fsdp_json_set_i64(root, "relative_attention_num_buckets", c.relative_attention_num_buckets);
    fsdp_json_set_i64(root, "relative_attention_max_distance", c.relative_attention_max_distance);
}

/* transformers 4 knows only tie_word_embeddings, which means both tied and scaled; 5 takes it for
 * scaled unless scale_decoder_outputs is there, and ties by what the weights hold. */
static void set_head(fsdp_json_node root, const fsdp_t5_config *c, bool has_lm_head)
{
    bool tie = c->scale_decoder_outputs || !has_lm_head;
    fsdp_json_set_bool(root, "tie_word_embeddings", tie);
    if (c->scale_decoder_outputs != tie || fsdp_json_has(root, "scale_decoder_outputs"))
        fsdp_json_set_bool(root, "scale_decoder_outputs", c->scale_decoder_outputs);
}

static void set_dtype(fsdp_json_node root, fsdp_dtype dtype)
{
    bool old = fsdp_json_has(root, "torch_dtype");
    if (old)
        fsdp_json_set_str(root, "torch_dtype", fsdp_dtype_name(dtype));
    if (!old || fsdp_json_has(root, "dtype"))
        fsdp_json_set_str(root, "dtype", fsdp_dtype_name(dtype));
}

static void set_all(fsdp_json_node root, const fsdp_t5_config *c, bool has_lm_head,
                    fsdp_dtype dtype)
{
    fsdp_json_append_str(fsdp_json_set_array(root, "architectures"), "T5ForConditionalGeneration");
    fsdp_json_set_str(root, "model_type", "t5");
    fsdp_json_set_bool(root, "is_encoder_decoder", true);
    set_dims(root, c);
    fsdp_json_set_f64(root, "dropout_rate", c->dropout_rate);
    fsdp_json_set_f64(root, "layer_norm_epsilon", c->layer_norm_epsilon);
    fsdp_json_set_f64(root, "initializer_factor", c->initializer_factor);
    fsdp_json_set_str(root, "feed_forward_proj", c->is_gated_act ? "gated-gelu" : "relu");
    fsdp_json_set_str(root, "dense_act_fn", c->is_gated_act ? "gelu_new" : "relu");
    fsdp_json_set_bool(root, "is_gated_act", c->is_gated_act);
    fsdp_json_set_i64(root, "pad_token_id", c->pad_token_id);
    if (fsdp_json_kind_of(fsdp_json_find(root, "eos_token_id")) != FSDP_JSON_ARRAY)
        fsdp_json_set_i64(root, "eos_token_id", c->eos_token_id);
    fsdp_json_set_i64(root, "decoder_start_token_id", c->decoder_start_token_id);
    set_head(root, c, has_lm_head);
    set_dtype(root, dtype);
}

fsdp_status fsdp_t5_config_write(const fsdp_t5_config *config, bool has_lm_head, fsdp_dtype dtype,
                                 const char *source, const char *path)
{
    fsdp_json *doc;
    FSDP_TRY(source ? fsdp_json_read(source, &doc) : fsdp_json_create(path, &doc));
    set_all(fsdp_json_root(doc), config, has_lm_head, dtype);
    fsdp_status status = fsdp_json_write(doc, FSDP_JSON_PRETTY, path);
    fsdp_json_destroy(doc);
    return status;
}
