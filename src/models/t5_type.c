/* The model types of T5, mT5 and umT5: see model_type.h. */
#include "src/models/model_type.h"
#include "src/models/t5_config.h"
#include "src/models/t5_decode.h"

static fsdp_status parse(fsdp_json *doc, fsdp_model_config *config)
{
    return fsdp_t5_config_parse(doc, &config->t5);
}

static void write(fsdp_json_node root, const fsdp_model_config *config, bool has_own_head)
{
    fsdp_t5_config_set(root, &config->t5, has_own_head);
}

static fsdp_status preset_of(fsdp_t5_family family, const char *name, fsdp_model_config *config)
{
    fsdp_t5_config c;
    if (fsdp_t5_config_find_preset(name, &c) != FSDP_OK || c.family != family)
        return FSDP_ERR_NOT_FOUND;
    config->t5 = c;
    return FSDP_OK;
}

static fsdp_status preset(const char *name, fsdp_model_config *config)
{
    return preset_of(FSDP_T5, name, config);
}

static fsdp_status mt5_preset(const char *name, fsdp_model_config *config)
{
    return preset_of(FSDP_MT5, name, config);
}

static fsdp_status umt5_preset(const char *name, fsdp_model_config *config)
{
    return preset_of(FSDP_UMT5, name, config);
}

static void info(const fsdp_model_config *config, fsdp_model_info *info)
{
    const fsdp_t5_config *c = &config->t5;
    info->format = (fsdp_batch_format){.task = FSDP_TASK_SEQ2SEQ,
                                       .decoder_start_token_id = (int32_t)c->decoder_start_token_id,
                                       .pad_token_id = (int32_t)c->pad_token_id};
    info->vocab_size = c->vocab_size;
    info->eos_token_id = c->eos_token_id;
    info->pad_token_id = c->pad_token_id;
    info->tie_word_embeddings = c->tie_word_embeddings;
    info->dtype = c->dtype;
}

static void set_dropout(fsdp_model_config *config, double p)
{
    config->t5.dropout_rate = p;
}

static void set_tied(fsdp_model_config *config, bool tied)
{
    config->t5.tie_word_embeddings = tied;
}

/* A tied head must also be saved under the name "lm_head.weight" if the decoder's output is not
 * scaled: see fsdp_t5_config_write(). Return this name if the head must be saved under it,
 * otherwise NULL. */
static const char *tied_head_to_save(const fsdp_model_config *config)
{
    return config->t5.scale_decoder_outputs ? NULL : "lm_head.weight";
}

static fsdp_status create(const fsdp_model_config *config, fsdp_module **model)
{
    return fsdp_t5_create(&config->t5, model);
}

static void get_config(const fsdp_module *model, fsdp_model_config *config)
{
    config->t5 = *fsdp_t5_get_config(model);
}

static fsdp_model_outputs logits(fsdp_scope *s, fsdp_module *model)
{
    fsdp_t5_outputs out = fsdp_t5_logits(s, model);
    return (fsdp_model_outputs){.logits = out.logits,
                                .last_hidden = out.last_hidden,
                                .encoder_last_hidden = out.encoder_last_hidden};
}

static fsdp_model_work work(const fsdp_model_config *config, int64_t rows, int64_t source,
                            int64_t target)
{
    const fsdp_t5_config *c = &config->t5;
    const int64_t width = c->num_heads * c->d_kv;
    double b = (double)rows, s = (double)source, t = (double)target, d = (double)c->d_model;
    double inner = (double)width;
    double encoders = (double)c->num_layers, decoders = (double)c->num_decoder_layers;
    double ff = (c->is_gated_act ? 3.0 : 2.0) * d * (double)c->d_ff;
    double linear = encoders * b * s * (4.0 * d * inner + ff) +
                    decoders * (b * t * (6.0 * d * inner + ff) + b * s * 2.0 * d * inner) +
                    b * t * (double)c->vocab_size * d;
    double pairs = encoders * s * s + decoders * (t * t / 2.0 + t * s);
    return (fsdp_model_work){
        .flops = 6.0 * linear + 12.0 * b * inner * pairs,
        .products = {{c->d_ff, c->d_model}, {c->d_model, c->d_ff}, {width, c->d_model}},
        .n_products = 3};
}

static const char *const block_classes[] = {"T5Block", NULL};
static const char *const mt5_block_classes[] = {"MT5Block", NULL};
static const char *const umt5_block_classes[] = {"UMT5Block", NULL};
static const char *const embeddings[] = {"shared.weight", "encoder.embed_tokens.weight",
                                         "decoder.embed_tokens.weight", NULL};

/* The members of the table that are the same for all families. */
#define SHARED_SLOTS                                                                               \
    .parse = parse, .write = write, .info = info, .set_dropout = set_dropout, .create = create,    \
    .get_config = get_config, .loss = fsdp_t5_loss, .logits = logits, .work = work,                \
    .decoder = &fsdp_t5_decoder, .head = "lm_head.weight", .embeddings = embeddings,               \
    .tied_by_weights = true, .set_tied = set_tied, .tied_head_to_save = tied_head_to_save

const fsdp_model_type fsdp_t5_type = {
    .name = "t5",
    .root_class = "T5ForConditionalGeneration",
    .preset = preset,
    .presets = FSDP_T5_PRESETS,
    .block_classes = block_classes,
    SHARED_SLOTS,
};

const fsdp_model_type fsdp_mt5_type = {
    .name = "mt5",
    .root_class = "MT5ForConditionalGeneration",
    .preset = mt5_preset,
    .block_classes = mt5_block_classes,
    SHARED_SLOTS,
};

const fsdp_model_type fsdp_umt5_type = {
    .name = "umt5",
    .root_class = "UMT5ForConditionalGeneration",
    .preset = umt5_preset,
    .block_classes = umt5_block_classes,
    SHARED_SLOTS,
};
