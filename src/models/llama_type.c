/* The model types llama, mistral, qwen2 and qwen3: see model_type.h. */
#include <string.h>

#include "src/models/llama.h"
#include "src/models/llama_config.h"

static fsdp_status parse(fsdp_json *doc, fsdp_model_config *config)
{
    return fsdp_llama_config_parse(doc, &config->llama);
}

static void write(fsdp_json_node root, const fsdp_model_config *config, bool has_own_head)
{
    fsdp_llama_config_set(root, &config->llama, has_own_head);
}

static fsdp_status llama_preset(const char *name, fsdp_model_config *config)
{
    return fsdp_llama_config_find_preset(FSDP_LLAMA, name, &config->llama);
}

static fsdp_status mistral_preset(const char *name, fsdp_model_config *config)
{
    return fsdp_llama_config_find_preset(FSDP_MISTRAL, name, &config->llama);
}

static fsdp_status qwen2_preset(const char *name, fsdp_model_config *config)
{
    return fsdp_llama_config_find_preset(FSDP_QWEN2, name, &config->llama);
}

static fsdp_status qwen3_preset(const char *name, fsdp_model_config *config)
{
    return fsdp_llama_config_find_preset(FSDP_QWEN3, name, &config->llama);
}

/* Set all members of *info except max_positions. It stays 0 (unlimited), because rotary positions
 * also exist beyond the length for which the model was trained. */
static void info(const fsdp_model_config *config, fsdp_model_info *info)
{
    const fsdp_llama_config *c = &config->llama;
    info->format = (fsdp_batch_format){.task = FSDP_TASK_CAUSAL_LM};
    info->vocab_size = c->vocab_size;
    info->bos_token_id = c->bos_token_id;
    info->eos_token_id = c->eos_token_id;
    info->pad_token_id = c->pad_token_id;
    info->tie_word_embeddings = c->tie_word_embeddings;
    info->dtype = c->dtype;
}

static void set_dropout(fsdp_model_config *config, double p)
{
    config->llama.attention_dropout = p;
}

static void set_tied(fsdp_model_config *config, bool tied)
{
    config->llama.tie_word_embeddings = tied;
}

static fsdp_status create(const fsdp_model_config *config, fsdp_module **model)
{
    return fsdp_llama_create(&config->llama, model);
}

static void get_config(const fsdp_module *model, fsdp_model_config *config)
{
    const fsdp_llama *llama = model->impl;
    config->llama = llama->config;
}

/* Return the number of pairs (token, token that it sees) in one layer, for one sequence of `length`
 * tokens. */
static double pairs_of(int64_t window_of_layer, double length)
{
    double window = (double)window_of_layer;
    if (window_of_layer == 0 || window >= length)
        return length * length / 2.0;
    return length * window - window * window / 2.0;
}

static fsdp_model_work work(const fsdp_model_config *config, int64_t rows, int64_t source,
                            int64_t target)
{
    (void)target;
    const fsdp_llama_config *c = &config->llama;
    const int64_t inner = c->num_attention_heads * c->head_dim;
    const double width = (double)inner, kv = (double)(c->num_key_value_heads * c->head_dim);
    const double tokens = (double)rows * (double)source, d = (double)c->hidden_size;
    const double layers = (double)c->num_hidden_layers;
    double layer = d * (2.0 * width + 2.0 * kv + 3.0 * (double)c->intermediate_size);
    double linear = tokens * (layers * layer + (double)c->vocab_size * d);
    double pairs = 0.0;
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        pairs += (double)rows * pairs_of(fsdp_llama_window_of(c, i), (double)source);
    return (fsdp_model_work){.flops = 6.0 * linear + 12.0 * width * pairs,
                             .products = {{c->intermediate_size, c->hidden_size},
                                          {c->hidden_size, c->intermediate_size},
                                          {inner, c->hidden_size}},
                             .n_products = 3};
}

static const float *buffer(const fsdp_module *model, const char *name, int64_t *n)
{
    const fsdp_llama *llama = model->impl;
    const fsdp_llama_body *body = llama->lm.body->impl;
    if (strcmp(name, "inv_freq") != 0)
        return NULL;
    *n = llama->config.head_dim / 2;
    return fsdp_rotary_inv_freq(body->rotary);
}

static const char *const llama_blocks[] = {"LlamaDecoderLayer", NULL};
static const char *const mistral_blocks[] = {"MistralDecoderLayer", NULL};
static const char *const qwen2_blocks[] = {"Qwen2DecoderLayer", NULL};
static const char *const qwen3_blocks[] = {"Qwen3DecoderLayer", NULL};
static const char *const embeddings[] = {"model.embed_tokens.weight", NULL};

/* The members of the table that are the same for all families. */
#define SHARED_SLOTS                                                                               \
    .parse = parse, .write = write, .info = info, .set_dropout = set_dropout, .create = create,    \
    .get_config = get_config, .loss = fsdp_causal_loss, .logits = fsdp_causal_logits,              \
    .decoder = &fsdp_causal_decoder, .work = work, .buffer = buffer, .base_prefix = "model",       \
    .head = "lm_head.weight", .embeddings = embeddings, .set_tied = set_tied

const fsdp_model_type fsdp_llama_type = {
    .name = "llama",
    .root_class = "LlamaForCausalLM",
    .preset = llama_preset,
    .presets = FSDP_LLAMA_PRESETS,
    .block_classes = llama_blocks,
    SHARED_SLOTS,
};

const fsdp_model_type fsdp_mistral_type = {
    .name = "mistral",
    .root_class = "MistralForCausalLM",
    .preset = mistral_preset,
    .presets = FSDP_MISTRAL_PRESETS,
    .block_classes = mistral_blocks,
    SHARED_SLOTS,
};

const fsdp_model_type fsdp_qwen2_type = {
    .name = "qwen2",
    .root_class = "Qwen2ForCausalLM",
    .preset = qwen2_preset,
    .presets = FSDP_QWEN2_PRESETS,
    .block_classes = qwen2_blocks,
    SHARED_SLOTS,
};

const fsdp_model_type fsdp_qwen3_type = {
    .name = "qwen3",
    .root_class = "Qwen3ForCausalLM",
    .preset = qwen3_preset,
    .presets = FSDP_QWEN3_PRESETS,
    .block_classes = qwen3_blocks,
    SHARED_SLOTS,
};
