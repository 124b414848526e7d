/* Reads and writes config.json of Llama, Mistral, Qwen2 and Qwen3, the families that share the code
 * of llama.c. */
#include "src/models/llama_config.h"

#include <stddef.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/log.h"
#include "src/models/config_json.h"
#include "src/models/rope_config.h"

/* The families, each with its model_type and its defaults for absent keys. */
static const struct {
    const char *model_type;
    int64_t num_key_value_heads; /* 0: equal to num_attention_heads */
    int64_t max_position_embeddings, bos_token_id, eos_token_id;
    int64_t head_dim; /* 0: hidden_size / num_attention_heads */
} families[] = {
    [FSDP_LLAMA] = {"llama", 0, 2048, 1, 2, 0},
    [FSDP_MISTRAL] = {"mistral", 8, 131072, 1, 2, 0},
    [FSDP_QWEN2] = {"qwen2", 32, 32768, -1, -1, 0},
    [FSDP_QWEN3] = {"qwen3", 32, 32768, -1, -1, 128},
};

static bool is_qwen(const fsdp_llama_config *c)
{
    return c->family == FSDP_QWEN2 || c->family == FSDP_QWEN3;
}

/* --- reading --- */

static fsdp_status read_family(fsdp_json_node root, fsdp_llama_family *family)
{
    const char *name;
    FSDP_TRY(fsdp_json_get_str(root, "model_type", &name));
    for (size_t i = 0; i < FSDP_LENGTH(families); i++) {
        if (strcmp(families[i].model_type, name) != 0)
            continue;
        *family = (fsdp_llama_family)i;
        return FSDP_OK;
    }
    return fsdp_config_unsupported(root, "model_type",
                                   "\"llama\", \"mistral\", \"qwen2\" or \"qwen3\"");
}

static bool is_null(fsdp_json_node root, const char *key)
{
    return fsdp_json_kind_of(fsdp_json_find(root, key)) == FSDP_JSON_NULL;
}

static const fsdp_config_field dims[] = {
    {"vocab_size", NULL, offsetof(fsdp_llama_config, vocab_size)},
    {"hidden_size", NULL, offsetof(fsdp_llama_config, hidden_size)},
    {"intermediate_size", NULL, offsetof(fsdp_llama_config, intermediate_size)},
    {"num_hidden_layers", NULL, offsetof(fsdp_llama_config, num_hidden_layers)},
    {"num_attention_heads", NULL, offsetof(fsdp_llama_config, num_attention_heads)},
};

static fsdp_status read_heads(fsdp_json_node root, fsdp_llama_config *c)
{
    const int64_t heads = c->num_attention_heads, absent = families[c->family].num_key_value_heads;
    FSDP_TRY(fsdp_config_opt_dim(root, "num_key_value_heads",
                                 absent && !is_null(root, "num_key_value_heads") ? absent : heads,
                                 &c->num_key_value_heads));
    if (heads % c->num_key_value_heads)
        return fsdp_json_mismatch(root, "num_key_value_heads",
                                  "a divisor of num_attention_heads (%lld)", (long long)heads);
    const int64_t head_dim = families[c->family].head_dim;
    if (!head_dim && !fsdp_json_has(root, "head_dim") && c->hidden_size % heads)
        return fsdp_json_mismatch(root, "num_attention_heads",
                                  "a divisor of hidden_size (%lld), or a head_dim",
                                  (long long)c->hidden_size);
    FSDP_TRY(fsdp_config_opt_dim(root, "head_dim", head_dim ? head_dim : c->hidden_size / heads,
                                 &c->head_dim));
    if (c->head_dim % 2)
        return fsdp_json_mismatch(root,
                                  fsdp_json_has(root, "head_dim") ? "head_dim" : "hidden_size",
                                  "heads of an even width, not of %lld, since their elements are "
                                  "rotated in pairs",
                                  (long long)c->head_dim);
    if (heads * c->head_dim > FSDP_CONFIG_MAX_DIM)
        return fsdp_json_mismatch(root, "num_attention_heads", "at most %lld, with heads of %lld",
                                  (long long)(FSDP_CONFIG_MAX_DIM / c->head_dim),
                                  (long long)c->head_dim);
    return FSDP_OK;
}

static fsdp_status read_dims(fsdp_json_node root, fsdp_llama_config *c)
{
    FSDP_TRY(fsdp_config_read_dims(root, dims, FSDP_LENGTH(dims), c));
    FSDP_TRY(fsdp_config_opt_dim(root, "max_position_embeddings",
                                 families[c->family].max_position_embeddings,
                                 &c->max_position_embeddings));
    return read_heads(root, c);
}

static fsdp_status read_numbers(fsdp_json_node root, fsdp_llama_config *c)
{
    FSDP_TRY(fsdp_config_positive(root, "rms_norm_eps", 1e-6, &c->rms_norm_eps));
    FSDP_TRY(fsdp_config_not_negative(root, "initializer_range", 0.02, &c->initializer_range));
    FSDP_TRY(fsdp_config_probability(root, "attention_dropout", 0.0, &c->attention_dropout));
    /* Only Llama and Qwen3 have the key attention_bias, and only Llama has mlp_bias. */
    if (c->family == FSDP_LLAMA || c->family == FSDP_QWEN3)
        FSDP_TRY(fsdp_json_opt_bool(root, "attention_bias", false, &c->attention_bias));
    if (c->family == FSDP_LLAMA)
        FSDP_TRY(fsdp_json_opt_bool(root, "mlp_bias", false, &c->mlp_bias));
    return FSDP_OK;
}

/* Set *full to true if element i of the array layer_types is "full_attention", or to false if it is
 * "sliding_attention". */
static fsdp_status read_layer_type(fsdp_json_node types, size_t i, bool *full)
{
    const char *type;
    FSDP_TRY(fsdp_json_get_str(fsdp_json_at(types, i), NULL, &type));
    *full = strcmp(type, "full_attention") == 0;
    if (*full || strcmp(type, "sliding_attention") == 0)
        return FSDP_OK;
    return fsdp_json_mismatch(types, NULL,
                              "\"full_attention\" or \"sliding_attention\" for layer %zu", i);
}

/* Record that layer i uses full attention although an earlier layer has a window. */
static fsdp_status add_full_layer(fsdp_json_node types, size_t i, fsdp_llama_config *c)
{
    if (i >= FSDP_LLAMA_MAX_MIXED_LAYERS)
        return fsdp_json_mismatch(
            types, NULL,
            "no \"full_attention\" after \"sliding_attention\" in layers %d and "
            "above",
            (int)FSDP_LLAMA_MAX_MIXED_LAYERS);
    c->full_attention[i / 64] |= (uint64_t)1 << i % 64;
    return FSDP_OK;
}

/* Read layer_types, which gives the kind of attention of each layer. It overrides
 * max_window_layers. */
static fsdp_status read_layer_types(fsdp_json_node root, fsdp_json_node types, fsdp_llama_config *c)
{
    const size_t n = fsdp_json_len(types);
    if (n != (size_t)c->num_hidden_layers)
        return fsdp_json_mismatch(root, "layer_types", "one for each of num_hidden_layers (%lld)",
                                  (long long)c->num_hidden_layers);
    c->max_window_layers = 0;
    for (size_t i = 0; i < n; i++) {
        bool full;
        FSDP_TRY(read_layer_type(types, i, &full));
        if (!full && c->sliding_window == 0)
            return fsdp_json_mismatch(root, "layer_types",
                                      "\"full_attention\" for layer %zu, since there is no "
                                      "sliding_window (use_sliding_window is false or absent, or "
                                      "sliding_window is null)",
                                      i);
        if (full && c->max_window_layers == (int64_t)i)
            c->max_window_layers++;
        else if (full)
            FSDP_TRY(add_full_layer(types, i, c));
    }
    return FSDP_OK;
}

/* transformers ignores layer_types for Mistral, where either all layers or no layers have the
 * window. Report a warning if layer_types contradicts this. */
static fsdp_status check_mistral_layer_types(fsdp_json_node root, const fsdp_llama_config *c)
{
    fsdp_json_node types;
    FSDP_TRY(fsdp_json_opt_array(root, "layer_types", &types));
    for (size_t i = 0; i < fsdp_json_len(types); i++) {
        bool full;
        FSDP_TRY(read_layer_type(types, i, &full));
        if (full == (c->sliding_window == 0))
            continue;
        fsdp_log("models", FSDP_LOG_WARN, -1, 0,
                 "%s: layer_types has no effect in a mistral: as in transformers, %s",
                 fsdp_json_name(root.doc),
                 c->sliding_window ? "all layers have the window" : "no layer has a window");
        break;
    }
    return FSDP_OK;
}

/* Read sliding_window. The key is read for Mistral, and for Qwen if use_sliding_window is true;
 * otherwise there is no window. If the key is absent, the window is 4096 tokens. If its value is
 * null, there is no window. */
static fsdp_status read_window(fsdp_json_node root, fsdp_llama_config *c)
{
    bool used = c->family == FSDP_MISTRAL;
    if (is_qwen(c))
        FSDP_TRY(fsdp_json_opt_bool(root, "use_sliding_window", false, &used));
    if (used && !is_null(root, "sliding_window"))
        FSDP_TRY(fsdp_config_opt_dim(root, "sliding_window", 4096, &c->sliding_window));
    if (c->family == FSDP_MISTRAL)
        return check_mistral_layer_types(root, c);
    if (!is_qwen(c))
        return FSDP_OK;
    fsdp_json_node types;
    FSDP_TRY(fsdp_json_opt_array(root, "layer_types", &types));
    if (types.value)
        return read_layer_types(root, types, c);
    if (c->sliding_window == 0)
        return FSDP_OK;
    return fsdp_json_opt_i64(root, "max_window_layers", 0, FSDP_CONFIG_MAX_DIM, 28,
                             &c->max_window_layers);
}

/* Read pad_token_id. The id may be negative, and old files contain -1. transformers passes the id
 * to nn.Embedding as padding_idx, for which -1 means the last row of the embedding, -2 the row
 * before it, and so on. */
static fsdp_status read_pad(fsdp_json_node root, fsdp_llama_config *c)
{
    int64_t pad;
    c->pad_token_id = -1;
    if (!fsdp_json_has(root, "pad_token_id"))
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_i64(root, "pad_token_id", -c->vocab_size, c->vocab_size - 1, &pad));
    c->pad_token_id = pad < 0 ? pad + c->vocab_size : pad;
    return FSDP_OK;
}

static fsdp_status read_tokens(fsdp_json_node root, fsdp_llama_config *c)
{
    FSDP_TRY(fsdp_config_end_token(root, "bos_token_id", c->vocab_size,
                                   families[c->family].bos_token_id, &c->bos_token_id));
    FSDP_TRY(fsdp_config_end_token(root, "eos_token_id", c->vocab_size,
                                   families[c->family].eos_token_id, &c->eos_token_id));
    return read_pad(root, c);
}

/* Refuse unsupported features that would change what the model computes. pretraining_tp is
 * accepted, because it only splits matrix products into slices; transformers 5 ignores it, too. */
static fsdp_status refuse_unsupported(fsdp_json_node root)
{
    const char *act;
    FSDP_TRY(fsdp_config_refuse_unsupported(root));
    FSDP_TRY(fsdp_config_must_be(root, "is_encoder_decoder", false));
    FSDP_TRY(fsdp_json_opt_str(root, "hidden_act", "silu", &act));
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        return fsdp_config_unsupported(root, "hidden_act", "\"silu\" or \"swish\"");
    return FSDP_OK;
}

fsdp_status fsdp_llama_config_parse(fsdp_json *doc, fsdp_llama_config *config)
{
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_llama_config c = {0};
    FSDP_TRY(read_family(root, &c.family));
    FSDP_TRY(refuse_unsupported(root));
    FSDP_TRY(read_dims(root, &c));
    FSDP_TRY(read_numbers(root, &c));
    FSDP_TRY(read_window(root, &c));
    FSDP_TRY(fsdp_rope_config_read(root, c.max_position_embeddings, &c.rope));
    FSDP_TRY(read_tokens(root, &c));
    FSDP_TRY(fsdp_config_dtype(root, &c.dtype));
    FSDP_TRY(fsdp_json_opt_bool(root, "tie_word_embeddings", false, &c.tie_word_embeddings));
    *config = c;
    return FSDP_OK;
}

/* --- writing --- */

int64_t fsdp_llama_window_of(const fsdp_llama_config *c, int64_t layer)
{
    const bool listed =
        layer < FSDP_LLAMA_MAX_MIXED_LAYERS && c->full_attention[layer / 64] >> layer % 64 & 1;
    return layer < c->max_window_layers || listed ? 0 : c->sliding_window;
}

/* Set layer_types. Do nothing if the document already has layer_types, or if max_window_layers is
 * sufficient to describe all layers. */
static void set_layer_types(fsdp_json_node root, const fsdp_llama_config *c)
{
    bool mixed = false;
    for (size_t i = 0; i < FSDP_LENGTH(c->full_attention); i++)
        mixed = mixed || c->full_attention[i];
    if (!mixed || fsdp_json_has(root, "layer_types"))
        return;
    fsdp_json_node types = fsdp_json_set_array(root, "layer_types");
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        fsdp_json_append_str(types, fsdp_llama_window_of(c, i) == 0 ? "full_attention"
                                                                    : "sliding_attention");
}

/* Set the keys that describe the window. For Qwen, use_sliding_window says whether there is a
 * window. If there is no window, max_window_layers and sliding_window have no effect, so this
 * function does not change them. An existing layer_types is never changed. */
static void set_window(fsdp_json_node root, const fsdp_llama_config *c)
{
    if (is_qwen(c))
        fsdp_json_set_bool(root, "use_sliding_window", c->sliding_window > 0);
    if (is_qwen(c) && c->sliding_window) {
        fsdp_json_set_i64(root, "max_window_layers", c->max_window_layers);
        set_layer_types(root, c);
    }
    if (c->sliding_window)
        fsdp_json_set_i64(root, "sliding_window", c->sliding_window);
    else if (c->family == FSDP_MISTRAL)
        fsdp_json_set_str(root, "sliding_window", NULL);
}

void fsdp_llama_config_set(fsdp_json_node root, const fsdp_llama_config *config, bool has_own_head)
{
    fsdp_llama_config c = *config;
    fsdp_config_set_dims(root, dims, FSDP_LENGTH(dims), &c);
    fsdp_json_set_i64(root, "num_key_value_heads", c.num_key_value_heads);
    fsdp_json_set_i64(root, "head_dim", c.head_dim);
    fsdp_json_set_i64(root, "max_position_embeddings", c.max_position_embeddings);
    fsdp_json_set_str(root, "hidden_act", "silu");
    fsdp_json_set_f64(root, "rms_norm_eps", c.rms_norm_eps);
    fsdp_json_set_f64(root, "initializer_range", c.initializer_range);
    fsdp_json_set_f64(root, "attention_dropout", c.attention_dropout);
    if (c.family == FSDP_LLAMA || c.family == FSDP_QWEN3)
        fsdp_json_set_bool(root, "attention_bias", c.attention_bias);
    if (c.family == FSDP_LLAMA)
        fsdp_json_set_bool(root, "mlp_bias", c.mlp_bias);
    set_window(root, &c);
    fsdp_rope_config_set(root, &c.rope);
    fsdp_config_set_token(root, "bos_token_id", c.bos_token_id);
    fsdp_config_set_token(root, "eos_token_id", c.eos_token_id);
    fsdp_config_set_token(root, "pad_token_id", c.pad_token_id);
    fsdp_json_set_bool(root, "tie_word_embeddings", !has_own_head);
}
