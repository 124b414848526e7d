/* Builds the module tree of Llama. Names, classes and initial values are as in transformers'
 * modeling_llama: weights are drawn from N(0, initializer_range), biases are 0, and the weights of
 * norms are 1.
 *
 * Each module's struct points to the parameters that its forward reads, so forwards do not look up
 * names. After a failure, the functions of builder.h do nothing. */
#include <stdio.h>

#include "src/base/assert.h"
#include "src/models/llama.h"
#include "src/models/llama_config.h"

typedef struct builder {
    fsdp_builder base;
    const fsdp_llama_config *config;
    fsdp_llama *llama;
    char class_name[64]; /* the string that the last call of class_of() returned */
} builder;

/* Return a class name of the family, e.g. "LlamaMLP" for the suffix "MLP". The string is valid
 * until the next call. */
static const char *class_of(builder *b, const char *suffix)
{
    static const char *const families[] = {[FSDP_LLAMA] = "Llama",
                                           [FSDP_MISTRAL] = "Mistral",
                                           [FSDP_QWEN2] = "Qwen2",
                                           [FSDP_QWEN3] = "Qwen3"};
    snprintf(b->class_name, sizeof b->class_name, "%s%s", families[b->config->family], suffix);
    return b->class_name;
}

static fsdp_layer add_linear(builder *b, fsdp_module *parent, const char *name, int64_t in,
                             int64_t out, bool bias)
{
    return fsdp_build_linear(&b->base, parent, name, in, out, bias, b->config->initializer_range);
}

static fsdp_parameter *add_norm(builder *b, fsdp_module *parent, const char *name, int64_t width)
{
    return fsdp_build_rms_norm(&b->base, parent, name, class_of(b, "RMSNorm"), width, 1.0,
                               b->config->rms_norm_eps);
}

/* --- layers --- */

static fsdp_module *add_attention(builder *b, fsdp_module *parent, int64_t layer_idx)
{
    const fsdp_llama_config *c = b->config;
    const int64_t q = c->num_attention_heads * c->head_dim,
                  kv = c->num_key_value_heads * c->head_dim;
    const bool qkv_bias = c->attention_bias || c->family == FSDP_QWEN2;
    fsdp_module *m = fsdp_build_module(&b->base, parent, "self_attn", class_of(b, "Attention"));
    fsdp_llama_attention *impl =
        fsdp_build_impl(&b->base, m, fsdp_llama_attention_forward, sizeof *impl);
    if (!impl)
        return NULL;
    impl->root = b->llama;
    impl->layer_idx = layer_idx;
    impl->window = fsdp_llama_window_of(c, layer_idx);
    impl->q_proj = add_linear(b, m, "q_proj", c->hidden_size, q, qkv_bias);
    impl->k_proj = add_linear(b, m, "k_proj", c->hidden_size, kv, qkv_bias);
    impl->v_proj = add_linear(b, m, "v_proj", c->hidden_size, kv, qkv_bias);
    impl->o_proj = add_linear(b, m, "o_proj", q, c->hidden_size, c->attention_bias);
    if (c->family == FSDP_QWEN3) {
        impl->q_norm = add_norm(b, m, "q_norm", c->head_dim);
        impl->k_norm = add_norm(b, m, "k_norm", c->head_dim);
    }
    return m;
}

static fsdp_module *add_mlp(builder *b, fsdp_module *parent)
{
    const fsdp_llama_config *c = b->config;
    const int64_t d = c->hidden_size, f = c->intermediate_size;
    fsdp_module *m = fsdp_build_module(&b->base, parent, "mlp", class_of(b, "MLP"));
    fsdp_llama_mlp *impl = fsdp_build_impl(&b->base, m, fsdp_llama_mlp_forward, sizeof *impl);
    if (!impl)
        return NULL;
    impl->gate_proj = add_linear(b, m, "gate_proj", d, f, c->mlp_bias);
    impl->up_proj = add_linear(b, m, "up_proj", d, f, c->mlp_bias);
    impl->down_proj = add_linear(b, m, "down_proj", f, d, c->mlp_bias);
    fsdp_build_module(&b->base, m, "act_fn", "SiLUActivation");
    return m;
}

static void add_layer(builder *b, fsdp_module *list, int64_t index)
{
    fsdp_module *m = fsdp_build_item(&b->base, list, index, class_of(b, "DecoderLayer"));
    fsdp_llama_layer *impl = fsdp_build_impl(&b->base, m, fsdp_llama_layer_forward, sizeof *impl);
    if (!impl)
        return;
    impl->root = b->llama;
    impl->self_attn = add_attention(b, m, index);
    impl->mlp = add_mlp(b, m);
    const int64_t width = b->config->hidden_size;
    impl->input_layernorm = add_norm(b, m, "input_layernorm", width);
    impl->post_attention_layernorm = add_norm(b, m, "post_attention_layernorm", width);
}

/* --- the model --- */

static fsdp_module *add_embed_tokens(builder *b, fsdp_module *parent)
{
    const fsdp_llama_config *c = b->config;
    const fsdp_init init = {.std = (float)c->initializer_range,
                            .has_zero_row = c->pad_token_id >= 0,
                            .zero_row = c->pad_token_id};
    return fsdp_causal_build_embedding(&b->base, parent, "embed_tokens", &b->llama->lm,
                                       c->vocab_size, c->hidden_size, init);
}

static fsdp_rotary *add_rotary(builder *b, fsdp_module *parent)
{
    const fsdp_llama_config *c = b->config;
    fsdp_module *m =
        fsdp_build_module(&b->base, parent, "rotary_emb", class_of(b, "RotaryEmbedding"));
    fsdp_rotary *rotary = m ? fsdp_rotary_create(&c->rope, c->head_dim) : NULL;
    if (rotary)
        fsdp_module_set_forward(m, NULL, rotary, fsdp_rotary_destroy);
    else if (m)
        b->base.status = FSDP_ERR_NOMEM;
    return rotary;
}

static fsdp_module *add_body(builder *b, fsdp_module *root)
{
    fsdp_module *m = fsdp_build_module(&b->base, root, "model", class_of(b, "Model"));
    fsdp_llama_body *impl = fsdp_build_impl(&b->base, m, fsdp_llama_body_forward, sizeof *impl);
    if (!impl)
        return NULL;
    impl->root = b->llama;
    impl->embed_tokens = add_embed_tokens(b, m);
    impl->layers = fsdp_build_module(&b->base, m, "layers", "ModuleList");
    for (int64_t i = 0; i < b->config->num_hidden_layers && b->base.status == FSDP_OK; i++)
        add_layer(b, impl->layers, i);
    impl->norm = add_norm(b, m, "norm", b->config->hidden_size);
    impl->rotary = add_rotary(b, m);
    return m;
}

static void build(builder *b, fsdp_module *root)
{
    const fsdp_llama_config *c = b->config;
    fsdp_causal_lm *lm = &b->llama->lm;
    lm->n_layers = c->num_hidden_layers;
    lm->body = add_body(b, root);
    lm->read_forward = fsdp_llama_body_of_read_forward;
    fsdp_causal_build_head(&b->base, root, lm, c->tie_word_embeddings, c->vocab_size,
                           c->hidden_size, c->initializer_range);
}

static fsdp_status check_rope_llama3(const fsdp_rope_config *rope)
{
    if (!(rope->low_freq_factor > 0))
        return fsdp_error(FSDP_ERR_INVALID, "Llama: rope.low_freq_factor is %g, not positive",
                          rope->low_freq_factor);
    if (!(rope->high_freq_factor > rope->low_freq_factor))
        return fsdp_error(FSDP_ERR_INVALID,
                          "Llama: rope.high_freq_factor is %g, not greater than "
                          "rope.low_freq_factor, which is %g",
                          rope->high_freq_factor, rope->low_freq_factor);
    return FSDP_OK;
}

static fsdp_status check_rope(const fsdp_llama_config *c)
{
    const fsdp_rope_config *rope = &c->rope;
    if (!(rope->theta > 0))
        return fsdp_error(FSDP_ERR_INVALID, "Llama: rope.theta is %g", rope->theta);
    if (rope->type == FSDP_ROPE_YARN && rope->theta == 1.0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "Llama: rope.theta is 1, so all waves have the same length; YaRN "
                          "treats waves by length");
    if (rope->type != FSDP_ROPE_DEFAULT && !(rope->factor > 0))
        return fsdp_error(FSDP_ERR_INVALID, "Llama: rope.factor is %g", rope->factor);
    if (rope->type != FSDP_ROPE_DEFAULT && rope->type != FSDP_ROPE_LINEAR &&
        rope->original_max_position_embeddings < 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "Llama: rope.original_max_position_embeddings is %lld, not positive",
                          (long long)rope->original_max_position_embeddings);
    if (rope->type == FSDP_ROPE_DYNAMIC && c->head_dim < 4)
        return fsdp_error(FSDP_ERR_INVALID,
                          "Llama: heads of %lld elements have only one frequency, which dynamic "
                          "rope cannot scale",
                          (long long)c->head_dim);
    return rope->type == FSDP_ROPE_LLAMA3 ? check_rope_llama3(rope) : FSDP_OK;
}

/* Check the numbers of the configuration. Numbers from a config.json have been checked when they
 * were read, but a caller may also have set numbers itself. */
static fsdp_status check_numbers(const fsdp_llama_config *c)
{
    FSDP_TRY(check_rope(c));
    if (c->sliding_window < 0)
        return fsdp_error(FSDP_ERR_INVALID, "Llama: sliding_window is %lld",
                          (long long)c->sliding_window);
    if (c->pad_token_id >= c->vocab_size)
        return fsdp_error(FSDP_ERR_INVALID, "Llama: pad_token_id is %lld, vocab_size %lld",
                          (long long)c->pad_token_id, (long long)c->vocab_size);
    return FSDP_OK;
}

static fsdp_status check_config(const fsdp_llama_config *c)
{
    const fsdp_dim dims[] = {{"vocab_size", c->vocab_size},
                             {"hidden_size", c->hidden_size},
                             {"intermediate_size", c->intermediate_size},
                             {"num_hidden_layers", c->num_hidden_layers},
                             {"num_attention_heads", c->num_attention_heads},
                             {"num_key_value_heads", c->num_key_value_heads},
                             {"head_dim", c->head_dim}};
    FSDP_TRY(fsdp_check_dims("Llama", dims, FSDP_LENGTH(dims)));
    if (c->num_attention_heads % c->num_key_value_heads || c->head_dim % 2)
        return fsdp_error(FSDP_ERR_INVALID,
                          "Llama: %lld heads of %lld elements on %lld key/value heads: elements "
                          "come in pairs, heads in groups of one size",
                          (long long)c->num_attention_heads, (long long)c->head_dim,
                          (long long)c->num_key_value_heads);
    return check_numbers(c);
}

fsdp_status fsdp_llama_create(const fsdp_llama_config *config, fsdp_module **model)
{
    FSDP_TRY(check_config(config));
    builder b = {.config = config};
    fsdp_module *root;
    FSDP_TRY(fsdp_module_create(class_of(&b, "ForCausalLM"), &root));
    b.llama = fsdp_build_impl(&b.base, root, NULL, sizeof *b.llama);
    if (b.llama) {
        b.llama->config = *config;
        build(&b, root);
    }
    if (b.base.status != FSDP_OK) {
        fsdp_module_destroy(root);
        return b.base.status;
    }
    *model = root;
    return FSDP_OK;
}
