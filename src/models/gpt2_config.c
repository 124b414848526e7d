/* Reads and writes config.json of GPT-2. Also has the presets: configurations of published
 * models. */
#include "src/models/gpt2_config.h"

#include <string.h>

#include "src/base/assert.h"
#include "src/models/config_json.h"
#include "src/models/hidden_act.h"

enum {
    END_OF_TEXT = 50256 /* the id of "<|endoftext|>", which both begins and ends a text */
};

/* ---- reading --------------------------------------------------------------------------------- */

static const fsdp_config_field dims[] = {
    {"vocab_size", NULL, offsetof(fsdp_gpt2_config, vocab_size)},
    {"n_positions", "max_position_embeddings", offsetof(fsdp_gpt2_config, n_positions)},
    {"n_embd", "hidden_size", offsetof(fsdp_gpt2_config, n_embd)},
    {"n_layer", "num_hidden_layers", offsetof(fsdp_gpt2_config, n_layer)},
    {"n_head", "num_attention_heads", offsetof(fsdp_gpt2_config, n_head)},
};

static fsdp_status read_dims(fsdp_json_node root, fsdp_gpt2_config *c)
{
    FSDP_TRY(fsdp_config_read_dims(root, dims, FSDP_LENGTH(dims), c));
    if (c->n_embd % c->n_head != 0)
        return fsdp_json_mismatch(root,
                                  fsdp_json_has(root, "n_head") ? "n_head" : "num_attention_heads",
                                  "a divisor of n_embd %lld", (long long)c->n_embd);
    return fsdp_config_opt_dim(root, "n_inner", 4 * c->n_embd, &c->n_inner);
}

static fsdp_status read_numbers(fsdp_json_node root, fsdp_gpt2_config *c)
{
    FSDP_TRY(fsdp_config_probability(root, "resid_pdrop", 0.1, &c->resid_pdrop));
    FSDP_TRY(fsdp_config_probability(root, "embd_pdrop", 0.1, &c->embd_pdrop));
    FSDP_TRY(fsdp_config_probability(root, "attn_pdrop", 0.1, &c->attn_pdrop));
    FSDP_TRY(fsdp_config_positive(root, "layer_norm_epsilon", 1e-5, &c->layer_norm_epsilon));
    return fsdp_config_not_negative(root, "initializer_range", 0.02, &c->initializer_range);
}

static fsdp_status read_switches(fsdp_json_node root, fsdp_gpt2_config *c)
{
    FSDP_TRY(fsdp_json_opt_bool(root, "scale_attn_weights", true, &c->scale_attn_weights));
    FSDP_TRY(fsdp_json_opt_bool(root, "scale_attn_by_inverse_layer_idx", false,
                                &c->scale_attn_by_inverse_layer_idx));
    return fsdp_json_opt_bool(root, "tie_word_embeddings", true, &c->tie_word_embeddings);
}

static fsdp_status read_tokens(fsdp_json_node root, fsdp_gpt2_config *c)
{
    const int64_t v = c->vocab_size;
    FSDP_TRY(fsdp_config_end_token(root, "bos_token_id", v, END_OF_TEXT, &c->bos_token_id));
    FSDP_TRY(fsdp_config_end_token(root, "eos_token_id", v, END_OF_TEXT, &c->eos_token_id));
    return fsdp_config_nullable_token(root, "pad_token_id", v, -1, &c->pad_token_id);
}

/* Refuse unsupported features that would change what the model computes. reorder_and_upcast_attn is
 * accepted, because this program always computes scores and softmax in float32. */
static fsdp_status refuse_unsupported(fsdp_json_node root)
{
    FSDP_TRY(fsdp_config_refuse_unsupported(root));
    FSDP_TRY(fsdp_config_must_be(root, "is_encoder_decoder", false));
    return fsdp_config_must_be(root, "add_cross_attention", false);
}

fsdp_status fsdp_gpt2_config_parse(fsdp_json *doc, fsdp_gpt2_config *config)
{
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_gpt2_config c = {0};
    FSDP_TRY(refuse_unsupported(root));
    FSDP_TRY(read_dims(root, &c));
    FSDP_TRY(read_numbers(root, &c));
    FSDP_TRY(read_switches(root, &c));
    FSDP_TRY(read_tokens(root, &c));
    FSDP_TRY(fsdp_config_hidden_act(root, "activation_function", FSDP_HIDDEN_ACT_GELU_NEW,
                                    &c.activation_function));
    FSDP_TRY(fsdp_config_dtype(root, &c.dtype));
    *config = c;
    return FSDP_OK;
}

/* ---- presets --------------------------------------------------------------------------------- */

/* These values are from the config.json files of openai-community's models and of
 * distilbert/distilgpt2 on Hugging Face. */
static const struct {
    const char *name;
    int64_t n_embd, n_layer, n_head;
} presets[] = {
    {"gpt2", 768, 12, 12},     {"gpt2-medium", 1024, 24, 16}, {"gpt2-large", 1280, 36, 20},
    {"gpt2-xl", 1600, 48, 25}, {"distilgpt2", 768, 6, 12},
};

fsdp_status fsdp_gpt2_config_find_preset(const char *name, fsdp_gpt2_config *config)
{
    const char *bare =
        fsdp_config_bare_name(fsdp_config_bare_name(name, "openai-community"), "distilbert");
    for (size_t i = 0; i < FSDP_LENGTH(presets); i++) {
        if (strcmp(bare, presets[i].name) != 0)
            continue;
        *config = (fsdp_gpt2_config){
            .vocab_size = 50257,
            .n_embd = presets[i].n_embd,
            .n_layer = presets[i].n_layer,
            .n_head = presets[i].n_head,
            .n_positions = 1024,
            .n_inner = 4 * presets[i].n_embd,
            .resid_pdrop = 0.1,
            .embd_pdrop = 0.1,
            .attn_pdrop = 0.1,
            .layer_norm_epsilon = 1e-5,
            .initializer_range = 0.02,
            .activation_function = FSDP_HIDDEN_ACT_GELU_NEW,
            .scale_attn_weights = true,
            .tie_word_embeddings = true,
            .bos_token_id = END_OF_TEXT,
            .eos_token_id = END_OF_TEXT,
            .pad_token_id = -1,
            .dtype = FSDP_DTYPE_F32,
        };
        return FSDP_OK;
    }
    return FSDP_ERR_NOT_FOUND;
}

/* ---- writing --------------------------------------------------------------------------------- */

void fsdp_gpt2_config_set(fsdp_json_node root, const fsdp_gpt2_config *c, bool has_own_head)
{
    fsdp_config_set_dims(root, dims, FSDP_LENGTH(dims), c);
    if (c->n_inner != 4 * c->n_embd || fsdp_json_has(root, "n_inner"))
        fsdp_json_set_i64(root, "n_inner", c->n_inner);
    else
        fsdp_json_set_str(root, "n_inner", NULL);
    fsdp_config_set_hidden_act(root, "activation_function", c->activation_function);
    fsdp_json_set_f64(root, "resid_pdrop", c->resid_pdrop);
    fsdp_json_set_f64(root, "embd_pdrop", c->embd_pdrop);
    fsdp_json_set_f64(root, "attn_pdrop", c->attn_pdrop);
    fsdp_json_set_f64(root, "layer_norm_epsilon", c->layer_norm_epsilon);
    fsdp_json_set_f64(root, "initializer_range", c->initializer_range);
    fsdp_json_set_bool(root, "scale_attn_weights", c->scale_attn_weights);
    fsdp_json_set_bool(root, "scale_attn_by_inverse_layer_idx", c->scale_attn_by_inverse_layer_idx);
    fsdp_config_set_token(root, "bos_token_id", c->bos_token_id);
    fsdp_config_set_token(root, "eos_token_id", c->eos_token_id);
    fsdp_config_set_token(root, "pad_token_id", c->pad_token_id);
    fsdp_json_set_bool(root, "tie_word_embeddings", !has_own_head);
}
