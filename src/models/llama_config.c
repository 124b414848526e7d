/* Reads and writes config.json of Llama, Mistral and Qwen2 (the families). Also has the presets:
 * configurations of published models. */
#include "src/models/llama_config.h"

#include <stddef.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/models/config_json.h"

/* The families, each with its model_type and its defaults for absent keys. */
static const struct {
    const char *model_type;
    int64_t num_key_value_heads; /* 0: equal to num_attention_heads */
    int64_t max_position_embeddings, bos_token_id, eos_token_id;
} families[] = {
    [FSDP_LLAMA] = {"llama", 0, 2048, 1, 2},
    [FSDP_MISTRAL] = {"mistral", 8, 131072, 1, 2},
    [FSDP_QWEN2] = {"qwen2", 32, 32768, -1, -1},
};

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
    return fsdp_config_unsupported(root, "model_type", "\"llama\", \"mistral\" or \"qwen2\"");
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
    if (!fsdp_json_has(root, "head_dim") && c->hidden_size % heads)
        return fsdp_json_mismatch(root, "num_attention_heads",
                                  "a divisor of hidden_size (%lld), or a head_dim",
                                  (long long)c->hidden_size);
    FSDP_TRY(fsdp_config_opt_dim(root, "head_dim", c->hidden_size / heads, &c->head_dim));
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
    if (c->family != FSDP_LLAMA) /* the other families do not have these keys */
        return FSDP_OK;
    FSDP_TRY(fsdp_json_opt_bool(root, "attention_bias", false, &c->attention_bias));
    return fsdp_json_opt_bool(root, "mlp_bias", false, &c->mlp_bias);
}

/* Read layer_types of Qwen2, which lists the kind of each layer. Layers that attend to all tokens
 * must come before layers with a window. */
static fsdp_status read_layer_types(fsdp_json_node root, fsdp_llama_config *c)
{
    fsdp_json_node types;
    int64_t full = 0;
    FSDP_TRY(fsdp_json_opt_array(root, "layer_types", &types));
    if (types.value && fsdp_json_len(types) != (size_t)c->num_hidden_layers)
        return fsdp_json_mismatch(root, "layer_types", "one for each of num_hidden_layers (%lld)",
                                  (long long)c->num_hidden_layers);
    for (size_t i = 0; i < fsdp_json_len(types); i++) {
        const char *type;
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(types, i), NULL, &type));
        const bool is_full = strcmp(type, "full_attention") == 0;
        if ((!is_full && strcmp(type, "sliding_attention") != 0) || (is_full && full != (int64_t)i))
            return fsdp_config_unsupported(root, "layer_types",
                                           "\"full_attention\", then \"sliding_attention\"");
        full += is_full;
    }
    if (types.value)
        c->max_window_layers = full;
    return FSDP_OK;
}

/* Read sliding_window. Mistral has a window, and Qwen2 has one if use_sliding_window is true. If
 * the key is absent, the window is 4096 tokens. null means that there is no window. */
static fsdp_status read_window(fsdp_json_node root, fsdp_llama_config *c)
{
    bool used = c->family == FSDP_MISTRAL;
    if (c->family == FSDP_QWEN2)
        FSDP_TRY(fsdp_json_opt_bool(root, "use_sliding_window", false, &used));
    if (!used || is_null(root, "sliding_window"))
        return FSDP_OK;
    FSDP_TRY(fsdp_config_opt_dim(root, "sliding_window", 4096, &c->sliding_window));
    if (c->family == FSDP_MISTRAL)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_opt_i64(root, "max_window_layers", 0, FSDP_CONFIG_MAX_DIM, 28,
                               &c->max_window_layers));
    return read_layer_types(root, c);
}

/* Read pad_token_id. The id may be negative: old files contain -1. transformers passes the id to
 * nn.Embedding as padding_idx. There, a negative id counts from the end of the embedding: -1 means
 * the last row. */
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
 * accepted: it only splits matrix products into slices, and transformers 5 ignores it. */
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

/* --- rotary positions ---
 *
 * Note [Spellings of rope]. There are two spellings of the parameters of rope. transformers 4 reads
 * and writes rope_theta and the object rope_scaling. transformers 5 writes one object,
 * rope_parameters, but reads both spellings. transformers 5 first looks for the object
 * rope_scaling. If rope_scaling is missing, null or empty, transformers 5 uses the object
 * rope_parameters instead. If the object that it uses contains a rope_theta, this rope_theta
 * overrides that of the root.
 *
 * This program reads the parameters as transformers 5 does. This program always writes the spelling
 * of transformers 4, because both versions understand that spelling. If the document already has
 * rope_parameters, this program updates rope_parameters as well. */

static fsdp_status get_positive(fsdp_json_node node, const char *key, double *value)
{
    FSDP_TRY(fsdp_json_get_f64(node, key, value));
    return *value > 0 ? FSDP_OK : fsdp_json_mismatch(node, key, "a positive number");
}

/* Read original_max_position_embeddings from the root or, if it is missing there, from `rope`, as
 * transformers 5 does. */
static fsdp_status read_original_length(fsdp_json_node root, fsdp_json_node rope,
                                        fsdp_llama_config *c)
{
    static const char key[] = "original_max_position_embeddings";
    return fsdp_config_opt_dim(fsdp_json_has(root, key) ? root : rope, key,
                               c->max_position_embeddings,
                               &c->rope.original_max_position_embeddings);
}

static fsdp_status read_llama3(fsdp_json_node root, fsdp_json_node rope, fsdp_llama_config *c)
{
    FSDP_TRY(get_positive(rope, "factor", &c->rope.factor));
    FSDP_TRY(get_positive(rope, "low_freq_factor", &c->rope.low_freq_factor));
    FSDP_TRY(get_positive(rope, "high_freq_factor", &c->rope.high_freq_factor));
    if (c->rope.high_freq_factor <= c->rope.low_freq_factor)
        return fsdp_json_mismatch(rope, "high_freq_factor",
                                  "a number greater than low_freq_factor (%g)",
                                  c->rope.low_freq_factor);
    return read_original_length(root, rope, c);
}

static fsdp_status read_rope_type(fsdp_json_node root, fsdp_json_node rope, fsdp_llama_config *c)
{
    const char *key = fsdp_json_has(rope, "rope_type") ? "rope_type" : "type", *type;
    FSDP_TRY(fsdp_json_opt_str(rope, key, "default", &type));
    if (strcmp(type, "default") == 0)
        return FSDP_OK;
    if (strcmp(type, "linear") == 0) {
        c->rope.type = FSDP_ROPE_LINEAR;
        return get_positive(rope, "factor", &c->rope.factor);
    }
    if (strcmp(type, "llama3") == 0) {
        c->rope.type = FSDP_ROPE_LLAMA3;
        return read_llama3(root, rope, c);
    }
    return fsdp_config_unsupported(rope, key, "\"default\", \"linear\" or \"llama3\"");
}

static fsdp_status refuse_partial(fsdp_json_node node)
{
    double factor;
    FSDP_TRY(fsdp_json_opt_f64(node, "partial_rotary_factor", 1.0, &factor));
    return factor == 1.0 ? FSDP_OK : fsdp_config_unsupported(node, "partial_rotary_factor", "1.0");
}

/* Refuse `rope` if it contains one object of parameters for each kind of layer. The keys of such a
 * `rope` are the names of the kinds of layers. Without this check, these names would be ignored as
 * unknown keys, and all layers would get the default parameters. */
static fsdp_status refuse_nested(fsdp_json_node rope)
{
    for (fsdp_json_node v = fsdp_json_first(rope); v.value; v = fsdp_json_next(v))
        if (fsdp_json_kind_of(v) == FSDP_JSON_OBJECT)
            return fsdp_config_unsupported(rope, v.key, "the same parameters for all layers");
    return FSDP_OK;
}

/* Return the key of the object from which transformers 5 reads the parameters of rope (Note
 * [Spellings of rope]). transformers 5 chooses it with the Python expression `rope_scaling or
 * rope_parameters`. */
static const char *rope_key(fsdp_json_node root)
{
    fsdp_json_node scaling = fsdp_json_find(root, "rope_scaling");
    const bool is_empty =
        fsdp_json_kind_of(scaling) == FSDP_JSON_OBJECT && fsdp_json_len(scaling) == 0;
    return fsdp_json_has(root, "rope_scaling") && !is_empty ? "rope_scaling" : "rope_parameters";
}

static fsdp_status read_rope(fsdp_json_node root, fsdp_llama_config *c)
{
    const char *key = rope_key(root);
    fsdp_json_node rope;
    FSDP_TRY(fsdp_json_opt_object(root, key, &rope));
    FSDP_TRY(fsdp_config_positive(root, "rope_theta", 10000.0, &c->rope.theta));
    FSDP_TRY(refuse_partial(root));
    c->rope.type = FSDP_ROPE_DEFAULT;
    if (!rope.value)
        return FSDP_OK;
    FSDP_TRY(refuse_nested(rope));
    FSDP_TRY(refuse_partial(rope));
    FSDP_TRY(fsdp_config_positive(rope, "rope_theta", c->rope.theta, &c->rope.theta));
    return read_rope_type(root, rope, c);
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
    FSDP_TRY(read_rope(root, &c));
    FSDP_TRY(read_tokens(root, &c));
    FSDP_TRY(fsdp_config_dtype(root, &c.dtype));
    FSDP_TRY(fsdp_json_opt_bool(root, "tie_word_embeddings", false, &c.tie_word_embeddings));
    *config = c;
    return FSDP_OK;
}

/* --- presets --- */

typedef enum generation {
    LLAMA_2,
    TINY_LLAMA,
    LLAMA_3,
    LLAMA_3_1,
    LLAMA_3_2,
    MISTRAL_0_1,
    MISTRAL_0_3,
    QWEN_2_5
} generation;

/* Values that all sizes of one generation of models (such as Llama 2) have in common. */
static const struct {
    fsdp_llama_family family;
    int64_t vocab_size, max_position_embeddings, bos_token_id, eos_token_id;
    /* rope_factor 0 means that rope_type is "default". Any other rope_factor means that rope_type
     * is "llama3". */
    double rope_theta, rope_factor;
    int64_t sliding_window;
} generations[] = {
    [LLAMA_2] = {FSDP_LLAMA, 32000, 4096, 1, 2, 1e4, 0, 0},
    [TINY_LLAMA] = {FSDP_LLAMA, 32000, 2048, 1, 2, 1e4, 0, 0},
    [LLAMA_3] = {FSDP_LLAMA, 128256, 8192, 128000, 128001, 5e5, 0, 0},
    [LLAMA_3_1] = {FSDP_LLAMA, 128256, 131072, 128000, 128001, 5e5, 8, 0},
    [LLAMA_3_2] = {FSDP_LLAMA, 128256, 131072, 128000, 128001, 5e5, 32, 0},
    [MISTRAL_0_1] = {FSDP_MISTRAL, 32000, 32768, 1, 2, 1e4, 0, 4096},
    [MISTRAL_0_3] = {FSDP_MISTRAL, 32768, 32768, 1, 2, 1e6, 0, 0},
    [QWEN_2_5] = {FSDP_QWEN2, 151936, 32768, 151643, 151643, 1e6, 0, 0},
};

static fsdp_rope_config rope_of(generation g)
{
    const double theta = generations[g].rope_theta, factor = generations[g].rope_factor;
    if (factor == 0)
        return (fsdp_rope_config){.type = FSDP_ROPE_DEFAULT, .theta = theta};
    return (fsdp_rope_config){FSDP_ROPE_LLAMA3, theta, factor, 1.0, 4.0, 8192};
}

/* The first two presets are our own, for pretraining on small machines. The others are from the
 * config.json files of meta-llama, TinyLlama, mistralai and Qwen on Hugging Face. */
static const struct {
    const char *name;
    generation generation;
    int64_t hidden_size, intermediate_size, layers, heads, kv_heads;
    bool tied;
} presets[] = {
    {"llama-58m", LLAMA_2, 512, 1376, 8, 8, 8, false},
    {"llama-134m", LLAMA_2, 768, 2048, 12, 12, 12, false},
    {"TinyLlama-1.1B", TINY_LLAMA, 2048, 5632, 22, 32, 4, false},
    {"Llama-2-7b", LLAMA_2, 4096, 11008, 32, 32, 32, false},
    {"Llama-2-13b", LLAMA_2, 5120, 13824, 40, 40, 40, false},
    {"Llama-2-70b", LLAMA_2, 8192, 28672, 80, 64, 8, false},
    {"Meta-Llama-3-8B", LLAMA_3, 4096, 14336, 32, 32, 8, false},
    {"Meta-Llama-3-70B", LLAMA_3, 8192, 28672, 80, 64, 8, false},
    {"Llama-3.1-8B", LLAMA_3_1, 4096, 14336, 32, 32, 8, false},
    {"Llama-3.1-70B", LLAMA_3_1, 8192, 28672, 80, 64, 8, false},
    {"Llama-3.1-405B", LLAMA_3_1, 16384, 53248, 126, 128, 8, false},
    {"Llama-3.2-1B", LLAMA_3_2, 2048, 8192, 16, 32, 8, true},
    {"Llama-3.2-3B", LLAMA_3_2, 3072, 8192, 28, 24, 8, true},
    {"Mistral-7B-v0.1", MISTRAL_0_1, 4096, 14336, 32, 32, 8, false},
    {"Mistral-7B-v0.3", MISTRAL_0_3, 4096, 14336, 32, 32, 8, false},
    {"Qwen2.5-0.5B", QWEN_2_5, 896, 4864, 24, 14, 2, true},
};

/* Return true if `name` is a name of the preset `preset`. The owner and the ending "-hf" are
 * optional: "meta-llama/Llama-2-7b-hf" is a name of "Llama-2-7b". */
static bool names_preset(const char *name, const char *preset)
{
    static const char *const owners[] = {"meta-llama/", "TinyLlama/", "mistralai/", "Qwen/"};
    for (size_t i = 0; i < FSDP_LENGTH(owners); i++)
        if (strncmp(name, owners[i], strlen(owners[i])) == 0)
            name += strlen(owners[i]);
    const size_t n = strlen(preset);
    return strncmp(name, preset, n) == 0 && (!name[n] || strcmp(name + n, "-hf") == 0);
}

fsdp_status fsdp_llama_config_find_preset(fsdp_llama_family family, const char *name,
                                          fsdp_llama_config *config)
{
    size_t i = 0;
    while (i < FSDP_LENGTH(presets) && (generations[presets[i].generation].family != family ||
                                        !names_preset(name, presets[i].name)))
        i++;
    if (i == FSDP_LENGTH(presets))
        return FSDP_ERR_NOT_FOUND;
    const generation g = presets[i].generation;
    *config = (fsdp_llama_config){
        .family = family,
        .vocab_size = generations[g].vocab_size,
        .hidden_size = presets[i].hidden_size,
        .intermediate_size = presets[i].intermediate_size,
        .num_hidden_layers = presets[i].layers,
        .num_attention_heads = presets[i].heads,
        .num_key_value_heads = presets[i].kv_heads,
        .head_dim = presets[i].hidden_size / presets[i].heads,
        .max_position_embeddings = generations[g].max_position_embeddings,
        .sliding_window = generations[g].sliding_window,
        .rope = rope_of(g),
        .rms_norm_eps = family == FSDP_QWEN2 ? 1e-6 : 1e-5,
        .initializer_range = 0.02,
        .tie_word_embeddings = presets[i].tied,
        .bos_token_id = generations[g].bos_token_id,
        .eos_token_id = generations[g].eos_token_id,
        .pad_token_id = -1,
        .dtype = FSDP_DTYPE_F32,
    };
    return FSDP_OK;
}

/* --- writing --- */

static void set_rope_type(fsdp_json_node rope, const fsdp_rope_config *c)
{
    static const char *const names[] = {"default", "linear", "llama3"};
    fsdp_json_set_str(rope, "rope_type", names[c->type]);
    if (c->type != FSDP_ROPE_DEFAULT)
        fsdp_json_set_f64(rope, "factor", c->factor);
    if (c->type != FSDP_ROPE_LLAMA3)
        return;
    fsdp_json_set_f64(rope, "low_freq_factor", c->low_freq_factor);
    fsdp_json_set_f64(rope, "high_freq_factor", c->high_freq_factor);
    fsdp_json_set_i64(rope, "original_max_position_embeddings",
                      c->original_max_position_embeddings);
}

/* Set the keys of rope, in one or both spellings: see Note [Spellings of rope]. */
static void set_rope(fsdp_json_node root, const fsdp_rope_config *c)
{
    fsdp_json_set_f64(root, "rope_theta", c->theta);
    if (c->type == FSDP_ROPE_DEFAULT)
        fsdp_json_set_str(root, "rope_scaling", NULL);
    else
        set_rope_type(fsdp_json_set_object(root, "rope_scaling"), c);
    if (!fsdp_json_has(root, "rope_parameters"))
        return;
    fsdp_json_node rope = fsdp_json_set_object(root, "rope_parameters");
    fsdp_json_set_f64(rope, "rope_theta", c->theta);
    set_rope_type(rope, c);
}

/* Set the keys that describe the window. For Qwen2, use_sliding_window says whether there is a
 * window. If there is no window, max_window_layers and sliding_window have no effect, so this
 * function does not change them. It never changes layer_types of Qwen2. */
static void set_window(fsdp_json_node root, const fsdp_llama_config *c)
{
    if (c->family == FSDP_QWEN2)
        fsdp_json_set_bool(root, "use_sliding_window", c->sliding_window > 0);
    if (c->family == FSDP_QWEN2 && c->sliding_window)
        fsdp_json_set_i64(root, "max_window_layers", c->max_window_layers);
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
    if (c.family == FSDP_LLAMA) {
        fsdp_json_set_bool(root, "attention_bias", c.attention_bias);
        fsdp_json_set_bool(root, "mlp_bias", c.mlp_bias);
    }
    set_window(root, &c);
    set_rope(root, &c.rope);
    fsdp_config_set_token(root, "bos_token_id", c.bos_token_id);
    fsdp_config_set_token(root, "eos_token_id", c.eos_token_id);
    fsdp_config_set_token(root, "pad_token_id", c.pad_token_id);
    fsdp_json_set_bool(root, "tie_word_embeddings", !has_own_head);
}
