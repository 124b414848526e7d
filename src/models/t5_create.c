/* Builds the module tree of T5, mT5 or umT5. Names, classes and initial values are as in
 * transformers' modeling_t5, modeling_mt5 and modeling_umt5.
 *
 * Each module's struct points to the parameters that its forward reads, so forwards do not look up
 * names. After a failure, the functions of builder.h do nothing. */
#include <math.h>

#include "src/base/assert.h"
#include "src/models/builder.h"
#include "src/models/hidden_act.h"
#include "src/models/t5.h"

typedef struct builder {
    fsdp_builder base;
    fsdp_t5 *t5;
} builder;

/* Return the name that a class has in this model. `of_umt5` is its name in umT5, e.g. "UMT5Block".
 * The name in mT5 is the same without "U", and the name in T5 is the same without "UM". */
static const char *class_name(const builder *b, const char *of_umt5)
{
    return of_umt5 + (FSDP_UMT5 - b->t5->config.family);
}

static fsdp_layer add_linear(builder *b, fsdp_module *parent, const char *name, int64_t in,
                             int64_t out, double std)
{
    return fsdp_build_linear(&b->base, parent, name, in, out, false, std);
}

static fsdp_parameter *add_embedding(builder *b, fsdp_module *parent, const char *name,
                                     int64_t rows, int64_t width, double std)
{
    const fsdp_init init = {.std = (float)std};
    return fsdp_build_embedding(&b->base, parent, name, rows, width, init);
}

static fsdp_parameter *add_norm(builder *b, fsdp_module *parent, const char *name)
{
    const fsdp_t5_config *c = &b->t5->config;
    return fsdp_build_rms_norm(&b->base, parent, name, class_name(b, "UMT5LayerNorm"), c->d_model,
                               c->initializer_factor, 0.0);
}

/* --- layers --- */

/* Return initializer_factor / sqrt(fan), a standard deviation as in
 * T5PreTrainedModel._init_weights. */
static double init_std(const builder *b, int64_t fan)
{
    return b->t5->config.initializer_factor / sqrt((double)fan);
}

static void add_attention(builder *b, fsdp_module *parent, const char *name, fsdp_t5_layer *layer,
                          bool has_relative_attention_bias)
{
    const fsdp_t5_config *c = &b->t5->config;
    const int64_t inner = c->num_heads * c->d_kv;
    fsdp_module *m = fsdp_build_module(&b->base, parent, name, class_name(b, "UMT5Attention"));
    layer->q = add_linear(b, m, "q", c->d_model, inner, init_std(b, c->d_model * c->d_kv));
    layer->k = add_linear(b, m, "k", c->d_model, inner, init_std(b, c->d_model));
    layer->v = add_linear(b, m, "v", c->d_model, inner, init_std(b, c->d_model));
    layer->o = add_linear(b, m, "o", inner, c->d_model, init_std(b, inner));
    if (has_relative_attention_bias)
        layer->relative_attention_bias =
            add_embedding(b, m, "relative_attention_bias", c->relative_attention_num_buckets,
                          c->num_heads, init_std(b, c->d_model));
}

static void add_dense(builder *b, fsdp_module *parent, fsdp_t5_layer *layer)
{
    const fsdp_t5_config *c = &b->t5->config;
    fsdp_module *m = fsdp_build_module(
        &b->base, parent, "DenseReluDense",
        class_name(b, c->is_gated_act ? "UMT5DenseGatedActDense" : "UMT5DenseActDense"));
    const double std = init_std(b, c->d_model);
    if (c->is_gated_act) {
        layer->wi_0 = add_linear(b, m, "wi_0", c->d_model, c->d_ff, std);
        layer->wi_1 = add_linear(b, m, "wi_1", c->d_model, c->d_ff, std);
    } else {
        layer->wi = add_linear(b, m, "wi", c->d_model, c->d_ff, std);
    }
    layer->wo = add_linear(b, m, "wo", c->d_ff, c->d_model, init_std(b, c->d_ff));
    fsdp_build_dropout(&b->base, m, "dropout", b->t5->config.dropout_rate);
    fsdp_build_module(&b->base, m, "act", fsdp_hidden_act_class(c->dense_act_fn));
}

typedef enum layer_kind {
    SELF_ATTENTION,
    CROSS_ATTENTION,
    FEED_FORWARD
} layer_kind;

static void add_layer(builder *b, fsdp_module *list, fsdp_t5_block *block, layer_kind kind)
{
    static const struct {
        const char *class_name;
        fsdp_forward_fn *forward;
    } kinds[] = {
        [SELF_ATTENTION] = {"UMT5LayerSelfAttention", fsdp_t5_self_attention_forward},
        [CROSS_ATTENTION] = {"UMT5LayerCrossAttention", fsdp_t5_cross_attention_forward},
        [FEED_FORWARD] = {"UMT5LayerFF", fsdp_t5_ff_forward},
    };
    if (b->base.status != FSDP_OK)
        return;
    fsdp_module *m =
        fsdp_build_item(&b->base, list, block->n_layers, class_name(b, kinds[kind].class_name));
    fsdp_t5_layer *layer = fsdp_build_impl(&b->base, m, kinds[kind].forward, sizeof *layer);
    if (!layer)
        return;
    *layer = (fsdp_t5_layer){.root = b->t5, .decoder = block->decoder, .block = block->index};
    if (kind == SELF_ATTENTION)
        add_attention(b, m, "SelfAttention", layer,
                      block->index == 0 || b->t5->config.family == FSDP_UMT5);
    else if (kind == CROSS_ATTENTION)
        add_attention(b, m, "EncDecAttention", layer, false);
    else
        add_dense(b, m, layer);
    layer->layer_norm = add_norm(b, m, "layer_norm");
    fsdp_build_dropout(&b->base, m, "dropout", b->t5->config.dropout_rate);
    block->layers[block->n_layers++] = m;
}

static void add_block(builder *b, fsdp_module *list, bool decoder, int64_t index)
{
    fsdp_module *m = fsdp_build_item(&b->base, list, index, class_name(b, "UMT5Block"));
    fsdp_t5_block *block = fsdp_build_impl(&b->base, m, fsdp_t5_block_forward, sizeof *block);
    if (!block)
        return;
    *block = (fsdp_t5_block){.root = b->t5, .decoder = decoder, .index = index};
    fsdp_module *layers = fsdp_build_module(&b->base, m, "layer", "ModuleList");
    add_layer(b, layers, block, SELF_ATTENTION);
    if (decoder)
        add_layer(b, layers, block, CROSS_ATTENTION);
    add_layer(b, layers, block, FEED_FORWARD);
}

static fsdp_module *add_stack(builder *b, fsdp_module *root, const char *name, bool decoder,
                              int64_t n_blocks)
{
    fsdp_module *m = fsdp_build_module(&b->base, root, name, class_name(b, "UMT5Stack"));
    fsdp_t5_stack *stack = fsdp_build_impl(&b->base, m, fsdp_t5_stack_forward, sizeof *stack);
    if (!stack)
        return NULL;
    *stack = (fsdp_t5_stack){.root = b->t5, .decoder = decoder, .embed_tokens = b->t5->shared};
    fsdp_build_tied(&b->base, m, "embed_tokens", "Embedding", b->t5->shared);
    stack->blocks = fsdp_build_module(&b->base, m, "block", "ModuleList");
    for (int64_t i = 0; i < n_blocks && b->base.status == FSDP_OK; i++)
        add_block(b, stack->blocks, decoder, i);
    stack->final_layer_norm = add_norm(b, m, "final_layer_norm");
    fsdp_build_dropout(&b->base, m, "dropout", b->t5->config.dropout_rate);
    return m;
}

/* --- the model --- */

static fsdp_status check_config(const fsdp_t5_config *c)
{
    const fsdp_dim dims[] = {{"vocab_size", c->vocab_size},
                             {"d_model", c->d_model},
                             {"d_ff", c->d_ff},
                             {"d_kv", c->d_kv},
                             {"num_heads", c->num_heads},
                             {"num_layers", c->num_layers},
                             {"num_decoder_layers", c->num_decoder_layers}};
    FSDP_TRY(fsdp_check_dims("T5", dims, FSDP_LENGTH(dims)));
    /* Otherwise the formula of the buckets would divide by zero. */
    if (c->relative_attention_num_buckets < 4 ||
        c->relative_attention_max_distance <= c->relative_attention_num_buckets / 2)
        return fsdp_error(FSDP_ERR_INVALID,
                          "T5: relative_attention_num_buckets is %lld, "
                          "relative_attention_max_distance is %lld: there must be at least 4 "
                          "buckets, and a distance greater than half their number",
                          (long long)c->relative_attention_num_buckets,
                          (long long)c->relative_attention_max_distance);
    return FSDP_OK;
}

static void build(builder *b, fsdp_module *root)
{
    const fsdp_t5_config *c = &b->t5->config;
    b->t5->shared =
        add_embedding(b, root, "shared", c->vocab_size, c->d_model, c->initializer_factor);
    b->t5->encoder = add_stack(b, root, "encoder", false, c->num_layers);
    b->t5->decoder = add_stack(b, root, "decoder", true, c->num_decoder_layers);
    b->t5->head = b->t5->shared;
    if (c->tie_word_embeddings)
        fsdp_build_tied(&b->base, root, "lm_head", "Linear", b->t5->shared);
    else
        b->t5->head =
            add_linear(b, root, "lm_head", c->d_model, c->vocab_size, c->initializer_factor).weight;
    if (b->base.status != FSDP_OK)
        return;
    b->t5->lm_head = fsdp_module_find(root, "lm_head");
    fsdp_module_set_forward(b->t5->lm_head, fsdp_t5_head_forward, b->t5, NULL);
}

fsdp_status fsdp_t5_create(const fsdp_t5_config *config, fsdp_module **model)
{
    FSDP_TRY(check_config(config));
    fsdp_module *root;
    static const char of_umt5[] = "UMT5ForConditionalGeneration";
    FSDP_TRY(fsdp_module_create(of_umt5 + (FSDP_UMT5 - config->family), &root));
    builder b = {0};
    b.t5 = fsdp_build_impl(&b.base, root, NULL, sizeof *b.t5);
    if (b.t5) {
        b.t5->config = *config;
        build(&b, root);
    }
    if (b.base.status != FSDP_OK) {
        fsdp_module_destroy(root);
        return b.base.status;
    }
    *model = root;
    return FSDP_OK;
}

const fsdp_t5_config *fsdp_t5_get_config(const fsdp_module *model)
{
    const fsdp_t5 *t5 = model->impl;
    return &t5->config;
}
