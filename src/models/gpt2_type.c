/* The model type of GPT-2: see model_type.h. */
#include "src/models/gpt2.h"
#include "src/models/gpt2_config.h"

static fsdp_status parse(fsdp_json *doc, fsdp_model_config *config)
{
    return fsdp_gpt2_config_parse(doc, &config->gpt2);
}

static void write(fsdp_json_node root, const fsdp_model_config *config, bool has_own_head)
{
    fsdp_gpt2_config_set(root, &config->gpt2, has_own_head);
}

static fsdp_status preset(const char *name, fsdp_model_config *config)
{
    return fsdp_gpt2_config_find_preset(name, &config->gpt2);
}

static void info(const fsdp_model_config *config, fsdp_model_info *info)
{
    const fsdp_gpt2_config *c = &config->gpt2;
    info->format.task = FSDP_TASK_CAUSAL_LM;
    info->vocab_size = c->vocab_size;
    info->max_positions = c->n_positions;
    info->bos_token_id = c->bos_token_id;
    info->eos_token_id = c->eos_token_id;
    info->pad_token_id = c->pad_token_id;
    info->tie_word_embeddings = c->tie_word_embeddings;
    info->dtype = c->dtype;
}

static void set_dropout(fsdp_model_config *config, double p)
{
    config->gpt2.resid_pdrop = p;
    config->gpt2.embd_pdrop = p;
    config->gpt2.attn_pdrop = p;
}

static void set_tied(fsdp_model_config *config, bool tied)
{
    config->gpt2.tie_word_embeddings = tied;
}

static fsdp_status create(const fsdp_model_config *config, fsdp_module **model)
{
    return fsdp_gpt2_create(&config->gpt2, model);
}

static void get_config(const fsdp_module *model, fsdp_model_config *config)
{
    const fsdp_gpt2 *gpt2 = model->impl;
    config->gpt2 = gpt2->config;
}

static fsdp_model_work work(const fsdp_model_config *config, int64_t rows, int64_t source,
                            int64_t target)
{
    (void)target;
    const fsdp_gpt2_config *c = &config->gpt2;
    const double tokens = (double)rows * (double)source, d = (double)c->n_embd;
    const double layers = (double)c->n_layer;
    const double layer = d * (4.0 * d + 2.0 * (double)c->n_inner);
    const double linear = tokens * (layers * layer + (double)c->vocab_size * d);
    const double pairs = layers * tokens * (double)source / 2.0;
    return (fsdp_model_work){
        .flops = 6.0 * linear + 12.0 * d * pairs,
        .products = {{c->n_inner, c->n_embd}, {c->n_embd, c->n_inner}, {3 * c->n_embd, c->n_embd}},
        .n_products = 3};
}

static const char *const block_classes[] = {"GPT2Block", NULL};
static const char *const embeddings[] = {"transformer.wte.weight", NULL};

const fsdp_model_type fsdp_gpt2_type = {
    .name = "gpt2",
    .root_class = "GPT2LMHeadModel",
    .parse = parse,
    .write = write,
    .preset = preset,
    .presets = FSDP_GPT2_PRESETS,
    .info = info,
    .set_dropout = set_dropout,
    .create = create,
    .get_config = get_config,
    .loss = fsdp_causal_loss,
    .logits = fsdp_causal_logits,
    .decoder = &fsdp_causal_decoder,
    .work = work,
    .block_classes = block_classes,
    .base_prefix = "transformer",
    .head = "lm_head.weight",
    .embeddings = embeddings,
    .set_tied = set_tied,
};
