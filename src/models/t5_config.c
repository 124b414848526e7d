/* Reads and writes config.json of T5, mT5 and umT5. Also has the presets: configurations of
 * published models. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/models/config_json.h"
#include "src/models/hidden_act.h"
#include "src/models/t5_config.h"

/* ---- reading --------------------------------------------------------------------------------- */

static const fsdp_config_field dims[] = {
    {"vocab_size", NULL, offsetof(fsdp_t5_config, vocab_size)},
    {"d_model", "hidden_size", offsetof(fsdp_t5_config, d_model)},
    {"d_kv", "head_dim", offsetof(fsdp_t5_config, d_kv)},
    {"d_ff", NULL, offsetof(fsdp_t5_config, d_ff)},
    {"num_layers", "num_hidden_layers", offsetof(fsdp_t5_config, num_layers)},
    {"num_heads", "num_attention_heads", offsetof(fsdp_t5_config, num_heads)},
};

static fsdp_status read_dims(fsdp_json_node root, fsdp_t5_config *c)
{
    FSDP_TRY(fsdp_config_read_dims(root, dims, FSDP_LENGTH(dims), c));
    if (c->num_heads * c->d_kv > FSDP_CONFIG_MAX_DIM)
        return fsdp_json_mismatch(root, "num_heads", "at most %lld, with heads of %lld",
                                  (long long)(FSDP_CONFIG_MAX_DIM / c->d_kv), (long long)c->d_kv);
    return fsdp_config_opt_dim(root, "num_decoder_layers", c->num_layers, &c->num_decoder_layers);
}

/* Read the sizes of the position bias. There must be at least 4 buckets, and the maximum distance
 * must be above half the number of buckets. Otherwise the bucket formula could divide by zero. */
static fsdp_status read_buckets(fsdp_json_node root, fsdp_t5_config *c)
{
    static const char buckets[] = "relative_attention_num_buckets";
    static const char distance[] = "relative_attention_max_distance";
    FSDP_TRY(fsdp_json_opt_i64(root, buckets, 4, FSDP_CONFIG_MAX_DIM, 32,
                               &c->relative_attention_num_buckets));
    FSDP_TRY(fsdp_json_opt_i64(root, distance, 1, FSDP_CONFIG_MAX_DIM, 128,
                               &c->relative_attention_max_distance));
    if (c->relative_attention_max_distance <= c->relative_attention_num_buckets / 2)
        return fsdp_json_mismatch(root, fsdp_json_has(root, distance) ? distance : buckets,
                                  "a distance greater than half the buckets (%lld > %lld / 2)",
                                  (long long)c->relative_attention_max_distance,
                                  (long long)c->relative_attention_num_buckets);
    return FSDP_OK;
}

static fsdp_status read_numbers(fsdp_json_node root, fsdp_t5_config *c)
{
    FSDP_TRY(fsdp_config_probability(root, "dropout_rate", 0.1, &c->dropout_rate));
    FSDP_TRY(fsdp_config_positive(root, "layer_norm_epsilon", 1e-6, &c->layer_norm_epsilon));
    return fsdp_config_not_negative(root, "initializer_factor", 1.0, &c->initializer_factor);
}

static fsdp_status read_tokens(fsdp_json_node root, fsdp_t5_config *c)
{
    int64_t last = c->vocab_size - 1;
    FSDP_TRY(fsdp_config_token(root, "pad_token_id", c->vocab_size, 0, &c->pad_token_id));
    /* T5 requires this key; mT5 and umT5 have a default */
    const char *start = "decoder_start_token_id";
    if (c->family == FSDP_T5 || fsdp_json_has(root, start))
        FSDP_TRY(fsdp_json_get_i64(root, start, 0, last, &c->decoder_start_token_id));
    return fsdp_config_end_token(root, "eos_token_id", c->vocab_size, last < 1 ? last : 1,
                                 &c->eos_token_id);
}

/* `projection` is the value of feed_forward_proj: the name of an activation function, perhaps after
 * "gated-". Set *act to the function, and *gated to whether `projection` begins with "gated-".
 * "gated-gelu" means gelu_new. Return false for any other text. */
static bool parse_projection(const char *projection, bool *gated, fsdp_hidden_act *act)
{
    static const char prefix[] = "gated-";
    *gated = strncmp(projection, prefix, strlen(prefix)) == 0;
    if (strcmp(projection, "gated-gelu") == 0) {
        *act = FSDP_HIDDEN_ACT_GELU_NEW;
        return true;
    }
    return fsdp_hidden_act_find(projection + (*gated ? strlen(prefix) : 0), act);
}

/* Read the feed-forward. transformers derives is_gated_act and dense_act_fn from feed_forward_proj.
 * But if the file has a key with one of these two names, the value of that key is used instead. */
static fsdp_status read_activation(fsdp_json_node root, fsdp_t5_config *c)
{
    const char *projection;
    FSDP_TRY(fsdp_json_opt_str(root, "feed_forward_proj",
                               c->family == FSDP_T5 ? "relu" : "gated-gelu", &projection));
    if (!parse_projection(projection, &c->is_gated_act, &c->dense_act_fn))
        return fsdp_config_unsupported(root, "feed_forward_proj",
                                       FSDP_HIDDEN_ACT_NAMES ", perhaps after \"gated-\"");
    FSDP_TRY(fsdp_config_hidden_act(root, "dense_act_fn", c->dense_act_fn, &c->dense_act_fn));
    return fsdp_json_opt_bool(root, "is_gated_act", c->is_gated_act, &c->is_gated_act);
}

static const char *const families[] = {[FSDP_T5] = "t5", [FSDP_MT5] = "mt5", [FSDP_UMT5] = "umt5"};

static fsdp_status read_family(fsdp_json_node root, fsdp_t5_config *c)
{
    const char *model_type;
    FSDP_TRY(fsdp_json_get_str(root, "model_type", &model_type));
    for (size_t i = 0; i < FSDP_LENGTH(families); i++) {
        if (strcmp(families[i], model_type) != 0)
            continue;
        c->family = (fsdp_t5_family)i;
        return FSDP_OK;
    }
    return fsdp_config_unsupported(root, "model_type", "\"t5\", \"mt5\" or \"umt5\"");
}

/* Read whether the head is tied, and whether the decoder's output is scaled before the head. For
 * mT5, transformers 5 never scales this output, even if tie_word_embeddings is true. */
static fsdp_status read_head(fsdp_json_node root, fsdp_t5_config *c)
{
    const bool is_mt5 = c->family == FSDP_MT5;
    FSDP_TRY(fsdp_json_opt_bool(root, "tie_word_embeddings", true, &c->tie_word_embeddings));
    FSDP_TRY(fsdp_json_opt_bool(root, "scale_decoder_outputs", c->tie_word_embeddings && !is_mt5,
                                &c->scale_decoder_outputs));
    if (is_mt5 && c->scale_decoder_outputs)
        return fsdp_config_unsupported(root, "scale_decoder_outputs", "false");
    return FSDP_OK;
}

/* Refuse unsupported features that would change what the model computes. */
static fsdp_status refuse_unsupported(fsdp_json_node root)
{
    FSDP_TRY(fsdp_config_refuse_unsupported(root));
    FSDP_TRY(fsdp_config_must_be(root, "is_encoder_decoder", true));
    FSDP_TRY(fsdp_config_must_be(root, "is_decoder", false));
    return fsdp_config_must_be(root, "tie_encoder_decoder", false);
}

fsdp_status fsdp_t5_config_parse(fsdp_json *doc, fsdp_t5_config *config)
{
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_t5_config c = {0};
    FSDP_TRY(read_family(root, &c));
    FSDP_TRY(refuse_unsupported(root));
    FSDP_TRY(read_dims(root, &c));
    FSDP_TRY(read_buckets(root, &c));
    FSDP_TRY(read_numbers(root, &c));
    FSDP_TRY(read_tokens(root, &c));
    FSDP_TRY(read_activation(root, &c));
    FSDP_TRY(fsdp_config_dtype(root, &c.dtype));
    FSDP_TRY(read_head(root, &c));
    *config = c;
    return FSDP_OK;
}

fsdp_status fsdp_t5_config_read(const char *path, fsdp_t5_config *config)
{
    fsdp_json *doc = NULL;
    FSDP_TRY(fsdp_config_open(path, &doc));
    fsdp_status status = fsdp_t5_config_parse(doc, config);
    fsdp_json_destroy(doc);
    return status;
}

/* ---- presets --------------------------------------------------------------------------------- */

/* These values are from the config.json files of google-t5/... and google/t5-v1_1-... on Hugging
 * Face. FLAN-T5, mT5 and umT5 have the dimensions of v1.1. */
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

/* Models that have the dimensions of v1.1. The name of such a model is the name of a preset, with
 * `start` in place of "t5-v1_1-". */
static const struct {
    const char *start;
    fsdp_t5_family family;
    int64_t vocab_size;
} relatives[] = {
    {"t5-v1_1-", FSDP_T5, 32128},
    {"flan-t5-", FSDP_T5, 32128},
    {"mt5-", FSDP_MT5, 250112},
    {"umt5-", FSDP_UMT5, 256384},
};

/* Return true if `name` is the name of presets[i], or of the model with the same dimensions in one
 * of the families in relatives[]. In this case, set *family and *vocab_size to those of the model
 * `name`. */
static bool names_preset(const char *name, size_t i, fsdp_t5_family *family, int64_t *vocab_size)
{
    const char *preset = presets[i].name;
    *family = FSDP_T5;
    *vocab_size = 32128;
    if (!presets[i].v1_1)
        return strcmp(name, preset) == 0;
    for (size_t k = 0; k < FSDP_LENGTH(relatives); k++) {
        const size_t n = strlen(relatives[k].start);
        *family = relatives[k].family;
        *vocab_size = relatives[k].vocab_size;
        if (strncmp(name, relatives[k].start, n) == 0 &&
            strcmp(name + n, preset + strlen("t5-v1_1-")) == 0)
            return true;
    }
    return false;
}

/* Return the configuration of presets[i]. */
static fsdp_t5_config config_of_preset(size_t i, fsdp_t5_family family, int64_t vocab_size)
{
    const bool v1_1 = presets[i].v1_1;
    return (fsdp_t5_config){
        .family = family,
        .vocab_size = vocab_size,
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
        .is_gated_act = v1_1,
        .dense_act_fn = v1_1 ? FSDP_HIDDEN_ACT_GELU_NEW : FSDP_HIDDEN_ACT_RELU,
        .scale_decoder_outputs = !v1_1,
        .tie_word_embeddings = !v1_1,
        .eos_token_id = 1,
        .dtype = FSDP_DTYPE_F32,
    };
}

fsdp_status fsdp_t5_config_find_preset(const char *name, fsdp_t5_config *config)
{
    const char *bare = fsdp_config_bare_name(fsdp_config_bare_name(name, "google"), "google-t5");
    for (size_t i = 0; i < FSDP_LENGTH(presets); i++) {
        fsdp_t5_family family;
        int64_t vocab_size;
        if (!names_preset(bare, i, &family, &vocab_size))
            continue;
        *config = config_of_preset(i, family, vocab_size);
        return FSDP_OK;
    }
    return FSDP_ERR_NOT_FOUND;
}

fsdp_status fsdp_t5_config_preset(const char *name, fsdp_t5_config *config)
{
    if (fsdp_t5_config_find_preset(name, config) == FSDP_OK)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "unknown T5 shape '%s' (known: %s)", name, FSDP_T5_PRESETS);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void set_dims(fsdp_json_node root, const fsdp_t5_config *c)
{
    fsdp_config_set_dims(root, dims, FSDP_LENGTH(dims), c);
    fsdp_json_set_i64(root, "num_decoder_layers", c->num_decoder_layers);
    fsdp_json_set_i64(root, "relative_attention_num_buckets", c->relative_attention_num_buckets);
    fsdp_json_set_i64(root, "relative_attention_max_distance", c->relative_attention_max_distance);
}

/* Set tie_word_embeddings and scale_decoder_outputs. transformers 4 reads only tie_word_embeddings.
 * If tie_word_embeddings is true, transformers 4 ties the head and scales the decoder's output.
 * transformers 5 uses tie_word_embeddings only as the default of scale_decoder_outputs, and the
 * weights decide whether the head is tied. */
static void set_head(fsdp_json_node root, const fsdp_t5_config *c, bool has_lm_head)
{
    bool tie = c->scale_decoder_outputs || !has_lm_head;
    fsdp_json_set_bool(root, "tie_word_embeddings", tie);
    if (c->scale_decoder_outputs != tie || fsdp_json_has(root, "scale_decoder_outputs"))
        fsdp_json_set_bool(root, "scale_decoder_outputs", c->scale_decoder_outputs);
}

/* Set the keys of the feed-forward. An activation function may have several names. If the document
 * already has a name of the function in *c, this name is kept. */
static void set_activation(fsdp_json_node root, const fsdp_t5_config *c)
{
    const char *old;
    bool gated;
    fsdp_hidden_act act;
    if (fsdp_json_opt_str(root, "feed_forward_proj", "", &old) != FSDP_OK ||
        !parse_projection(old, &gated, &act) || gated != c->is_gated_act ||
        act != c->dense_act_fn) {
        char text[64];
        const char *name = fsdp_hidden_act_name(c->dense_act_fn);
        if (c->is_gated_act && c->dense_act_fn == FSDP_HIDDEN_ACT_GELU_NEW)
            name = "gelu";
        else if (c->is_gated_act && c->dense_act_fn == FSDP_HIDDEN_ACT_GELU)
            name = "gelu_python"; /* not "gelu", because "gated-gelu" would mean gelu_new */
        snprintf(text, sizeof text, "%s%s", c->is_gated_act ? "gated-" : "", name);
        fsdp_json_set_str(root, "feed_forward_proj", text);
    }
    fsdp_config_set_hidden_act(root, "dense_act_fn", c->dense_act_fn);
    fsdp_json_set_bool(root, "is_gated_act", c->is_gated_act);
}

void fsdp_t5_config_set(fsdp_json_node root, const fsdp_t5_config *c, bool has_lm_head)
{
    fsdp_json_set_bool(root, "is_encoder_decoder", true);
    set_dims(root, c);
    fsdp_json_set_f64(root, "dropout_rate", c->dropout_rate);
    fsdp_json_set_f64(root, "layer_norm_epsilon", c->layer_norm_epsilon);
    fsdp_json_set_f64(root, "initializer_factor", c->initializer_factor);
    set_activation(root, c);
    fsdp_config_set_token(root, "pad_token_id", c->pad_token_id);
    fsdp_config_set_token(root, "eos_token_id", c->eos_token_id);
    fsdp_json_set_i64(root, "decoder_start_token_id", c->decoder_start_token_id);
    set_head(root, c, has_lm_head);
}
