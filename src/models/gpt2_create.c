/* Builds the module tree of GPT-2. Names, classes and initial values are as in transformers'
 * modeling_gpt2: weights are drawn from N(0, initializer_range), biases are 0, and the weights of
 * norms are 1. For residual projections, initializer_range is divided by the square root of the
 * number of residual projections in the model. */
#include <math.h>

#include "src/base/assert.h"
#include "src/models/gpt2.h"
#include "src/models/hidden_act.h"

typedef struct builder {
    fsdp_builder base;
    fsdp_gpt2 *gpt2;
} builder;

static fsdp_layer add_conv1d(builder *b, fsdp_module *parent, const char *name, int64_t in,
                             int64_t out, double std)
{
    const int64_t shape[2] = {in, out};
    fsdp_module *m = fsdp_build_module(&b->base, parent, name, "Conv1D");
    const fsdp_init init = {.std = (float)std}, zeros = {0};
    return (fsdp_layer){fsdp_build_parameter(&b->base, m, "weight", 2, shape, init),
                        fsdp_build_parameter(&b->base, m, "bias", 1, &out, zeros)};
}

/* Add a residual projection: a Conv1D whose result is added to the residual stream. A block has two
 * of them, at the end of attention and at the end of the feed-forward. */
static fsdp_layer add_projection(builder *b, fsdp_module *parent, int64_t in)
{
    const fsdp_gpt2_config *c = &b->gpt2->config;
    return add_conv1d(b, parent, "c_proj", in, c->n_embd,
                      c->initializer_range / sqrt(2.0 * (double)c->n_layer));
}

static fsdp_module *add_attention(builder *b, fsdp_module *parent, int64_t layer_idx)
{
    const fsdp_gpt2_config *c = &b->gpt2->config;
    fsdp_module *m = fsdp_build_module(&b->base, parent, "attn", "GPT2Attention");
    fsdp_gpt2_attention *impl =
        fsdp_build_impl(&b->base, m, fsdp_gpt2_attention_forward, sizeof *impl);
    if (!impl)
        return NULL;
    impl->root = b->gpt2;
    impl->layer_idx = layer_idx;
    impl->c_attn = add_conv1d(b, m, "c_attn", c->n_embd, 3 * c->n_embd, c->initializer_range);
    impl->c_proj = add_projection(b, m, c->n_embd);
    fsdp_build_dropout(&b->base, m, "attn_dropout", c->attn_pdrop);
    fsdp_build_dropout(&b->base, m, "resid_dropout", c->resid_pdrop);
    return m;
}

static fsdp_module *add_mlp(builder *b, fsdp_module *parent)
{
    const fsdp_gpt2_config *c = &b->gpt2->config;
    fsdp_module *m = fsdp_build_module(&b->base, parent, "mlp", "GPT2MLP");
    fsdp_gpt2_mlp *impl = fsdp_build_impl(&b->base, m, fsdp_gpt2_mlp_forward, sizeof *impl);
    if (!impl)
        return NULL;
    impl->root = b->gpt2;
    impl->c_fc = add_conv1d(b, m, "c_fc", c->n_embd, c->n_inner, c->initializer_range);
    impl->c_proj = add_projection(b, m, c->n_inner);
    fsdp_build_module(&b->base, m, "act", fsdp_hidden_act_class(c->activation_function));
    fsdp_build_dropout(&b->base, m, "dropout", c->resid_pdrop);
    return m;
}

static void add_block(builder *b, fsdp_module *list, int64_t index)
{
    const int64_t width = b->gpt2->config.n_embd;
    const double eps = b->gpt2->config.layer_norm_epsilon;
    fsdp_module *m = fsdp_build_item(&b->base, list, index, "GPT2Block");
    fsdp_gpt2_block *impl = fsdp_build_impl(&b->base, m, fsdp_gpt2_block_forward, sizeof *impl);
    if (!impl)
        return;
    impl->root = b->gpt2;
    impl->ln_1 = fsdp_build_layer_norm(&b->base, m, "ln_1", width, eps);
    impl->attn = add_attention(b, m, index);
    impl->ln_2 = fsdp_build_layer_norm(&b->base, m, "ln_2", width, eps);
    impl->mlp = add_mlp(b, m);
}

static fsdp_module *add_body(builder *b, fsdp_module *root)
{
    const fsdp_gpt2_config *c = &b->gpt2->config;
    const fsdp_init init = {.std = (float)c->initializer_range};
    fsdp_module *m = fsdp_build_module(&b->base, root, "transformer", "GPT2Model");
    fsdp_gpt2_body *impl = fsdp_build_impl(&b->base, m, fsdp_gpt2_body_forward, sizeof *impl);
    if (!impl)
        return NULL;
    impl->root = b->gpt2;
    impl->wte = fsdp_causal_build_embedding(&b->base, m, "wte", &b->gpt2->lm, c->vocab_size,
                                            c->n_embd, init);
    impl->wpe = fsdp_build_embedding(&b->base, m, "wpe", c->n_positions, c->n_embd, init);
    fsdp_build_dropout(&b->base, m, "drop", c->embd_pdrop);
    impl->h = fsdp_build_module(&b->base, m, "h", "ModuleList");
    for (int64_t i = 0; i < c->n_layer && b->base.status == FSDP_OK; i++)
        add_block(b, impl->h, i);
    impl->ln_f = fsdp_build_layer_norm(&b->base, m, "ln_f", c->n_embd, c->layer_norm_epsilon);
    return m;
}

static void build(builder *b, fsdp_module *root)
{
    const fsdp_gpt2_config *c = &b->gpt2->config;
    fsdp_causal_lm *lm = &b->gpt2->lm;
    lm->n_layers = c->n_layer;
    lm->body = add_body(b, root);
    lm->read_forward = fsdp_gpt2_body_of_read_forward;
    fsdp_causal_build_head(&b->base, root, lm, c->tie_word_embeddings, c->vocab_size, c->n_embd,
                           c->initializer_range);
}

static fsdp_status check_config(const fsdp_gpt2_config *c)
{
    const fsdp_dim dims[] = {{"vocab_size", c->vocab_size}, {"n_positions", c->n_positions},
                             {"n_embd", c->n_embd},         {"n_layer", c->n_layer},
                             {"n_head", c->n_head},         {"n_inner", c->n_inner}};
    FSDP_TRY(fsdp_check_dims("GPT-2", dims, FSDP_LENGTH(dims)));
    if (c->n_embd % c->n_head != 0)
        return fsdp_error(FSDP_ERR_INVALID, "GPT-2: n_embd %lld is not a multiple of %lld heads",
                          (long long)c->n_embd, (long long)c->n_head);
    return FSDP_OK;
}

fsdp_status fsdp_gpt2_create(const fsdp_gpt2_config *config, fsdp_module **model)
{
    FSDP_TRY(check_config(config));
    builder b = {0};
    fsdp_module *root;
    FSDP_TRY(fsdp_module_create("GPT2LMHeadModel", &root));
    b.gpt2 = fsdp_build_impl(&b.base, root, NULL, sizeof *b.gpt2);
    if (b.gpt2) {
        b.gpt2->config = *config;
        build(&b, root);
    }
    if (b.base.status != FSDP_OK) {
        fsdp_module_destroy(root);
        return b.base.status;
    }
    *model = root;
    return FSDP_OK;
}
