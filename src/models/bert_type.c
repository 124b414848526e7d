/* The model types of BERT, with its two kinds of heads and without a head: see model_type.h. */
#include "src/models/bert.h"
#include "src/models/bert_config.h"
#include "src/models/model_type.h"

/* --- functions that the types share --- */

static void info(const fsdp_model_config *config, fsdp_model_info *info)
{
    const fsdp_bert_config *c = &config->bert;
    info->format.task = FSDP_TASK_CLASSIFICATION;
    info->vocab_size = c->vocab_size;
    info->type_vocab_size = c->type_vocab_size;
    info->max_positions = c->max_position_embeddings;
    info->pad_token_id = c->pad_token_id;
    info->dtype = c->dtype;
}

static void set_dropout(fsdp_model_config *config, double p)
{
    config->bert.hidden_dropout_prob = p;
    config->bert.attention_probs_dropout_prob = p;
    config->bert.classifier_dropout = p;
}

/* Set the number of labels. If *config is the configuration of a BertModel, change it to that of a
 * BertForSequenceClassification, as transformers' AutoModelForSequenceClassification does. If the
 * number of labels changes between one and several, also set the problem type: regression for one
 * label, single-label classification for several. The problem type of a multi-label classifier
 * never changes. */
static void set_num_labels(fsdp_model_config *config, int64_t n)
{
    fsdp_bert_config *c = &config->bert;
    config->type = &fsdp_bert_classifier_type;
    if (c->problem_type != FSDP_PROBLEM_MULTI_LABEL && (n == 1) != (c->num_labels == 1))
        c->problem_type = n == 1 ? FSDP_PROBLEM_REGRESSION : FSDP_PROBLEM_SINGLE_LABEL;
    c->num_labels = n;
}

static void set_problem_type(fsdp_model_config *config, fsdp_problem_type type)
{
    config->type = &fsdp_bert_classifier_type;
    config->bert.problem_type = type;
}

static bool set_task(fsdp_model_config *config, fsdp_task task)
{
    if (task == FSDP_TASK_MASKED_LM)
        config->type = &fsdp_bert_masked_lm_type;
    else if (task == FSDP_TASK_CLASSIFICATION)
        config->type = &fsdp_bert_classifier_type;
    return task == FSDP_TASK_MASKED_LM || task == FSDP_TASK_CLASSIFICATION;
}

static void get_config(const fsdp_module *model, fsdp_model_config *config)
{
    config->bert = *fsdp_bert_get_config(model);
}

static fsdp_model_work work(const fsdp_model_config *config, int64_t rows, int64_t source,
                            int64_t target)
{
    (void)target;
    const fsdp_bert_config *c = &config->bert;
    const int64_t width = c->hidden_size, wide = c->intermediate_size;
    const double n = (double)rows, s = (double)source, d = (double)width;
    const double before_last = (double)c->num_hidden_layers - 1.0;
    /* kv: number of weights in the key and value projections of a BertLayer. rest: number of
     * weights in its other linear layers. The last BertLayer applies these other linear layers to
     * only one token per sequence (Note [First tokens] in bert.c). */
    const double kv = 2.0 * d * d, rest = 2.0 * d * d + 2.0 * d * (double)wide;
    const double linear = n * s * (before_last * (kv + rest) + kv) + n * rest + n * d * d;
    const double pairs = n * (before_last * s * s + s);
    return (fsdp_model_work){.flops = 6.0 * linear + 12.0 * d * pairs,
                             .products = {{wide, width}, {width, wide}, {width, width}},
                             .n_products = 3};
}

/* transformers' _no_split_modules also lists BertEmbeddings. Here BertEmbeddings belongs to the
 * root's unit. */
static const char *const block_classes[] = {"BertLayer", NULL};

/* --- BertForSequenceClassification --- */

static fsdp_status classifier_parse(fsdp_json *doc, fsdp_model_config *config)
{
    return fsdp_bert_config_parse(doc, true, &config->bert);
}

static void classifier_write(fsdp_json_node root, const fsdp_model_config *config,
                             bool has_own_head)
{
    (void)has_own_head;
    fsdp_bert_config_set(root, &config->bert, true);
}

static fsdp_status preset(const char *name, fsdp_model_config *config)
{
    return fsdp_bert_config_find_preset(name, &config->bert);
}

static void classifier_info(const fsdp_model_config *config, fsdp_model_info *out)
{
    info(config, out);
    out->num_labels = config->bert.num_labels;
    out->format.problem_type = config->bert.problem_type;
    if (out->format.problem_type != FSDP_PROBLEM_SINGLE_LABEL)
        out->format.num_targets = (int32_t)out->num_labels;
}

static fsdp_status classifier_create(const fsdp_model_config *config, fsdp_module **model)
{
    return fsdp_bert_classifier_create(&config->bert, model);
}

/* Paths of modules whose weights may be missing in a file of saved weights. If the saved model was
 * trained for another task, the file has no classifier, and perhaps no pooler. */
static const char *const classifier_fresh_modules[] = {"bert.pooler", "classifier", NULL};

const fsdp_model_type fsdp_bert_classifier_type = {
    .name = "bert",
    .root_class = "BertForSequenceClassification",
    .parse = classifier_parse,
    .write = classifier_write,
    .preset = preset,
    .presets = FSDP_BERT_PRESETS,
    .info = classifier_info,
    .set_dropout = set_dropout,
    .set_num_labels = set_num_labels,
    .set_problem_type = set_problem_type,
    .set_task = set_task,
    .create = classifier_create,
    .get_config = get_config,
    .loss = fsdp_bert_classifier_loss,
    .logits = fsdp_bert_classifier_logits,
    .work = work,
    .block_classes = block_classes,
    .base_prefix = "bert",
    .fresh_modules = classifier_fresh_modules,
};

/* --- BertForMaskedLM --- */

static void masked_lm_write(fsdp_json_node root, const fsdp_model_config *config, bool has_own_head)
{
    (void)has_own_head;
    fsdp_bert_config_set(root, &config->bert, false);
}

static void masked_lm_info(const fsdp_model_config *config, fsdp_model_info *out)
{
    info(config, out);
    out->format.task = FSDP_TASK_MASKED_LM;
    out->tie_word_embeddings = true;
}

static fsdp_status masked_lm_create(const fsdp_model_config *config, fsdp_module **model)
{
    return fsdp_bert_masked_lm_create(&config->bert, model);
}

/* Estimate the work of a step. The head runs only on tokens with a label. The estimate assumes that
 * 15 % of all tokens have a label, as in BERT's pretraining. */
static fsdp_model_work masked_lm_work(const fsdp_model_config *config, int64_t rows, int64_t source,
                                      int64_t target)
{
    (void)target;
    const fsdp_bert_config *c = &config->bert;
    const int64_t width = c->hidden_size, wide = c->intermediate_size;
    const double tokens = (double)rows * (double)source, d = (double)width;
    const double layers = (double)c->num_hidden_layers;
    const double layer = 4.0 * d * d + 2.0 * d * (double)wide;
    const double head = 0.15 * (d * d + d * (double)c->vocab_size);
    const double pairs = layers * tokens * (double)source;
    return (fsdp_model_work){.flops = 6.0 * tokens * (layers * layer + head) + 12.0 * d * pairs,
                             .products = {{wide, width}, {width, wide}, {width, width}},
                             .n_products = 3};
}

static const char *const masked_lm_fresh_modules[] = {"cls", NULL};

const fsdp_model_type fsdp_bert_masked_lm_type = {
    .name = "bert",
    .root_class = "BertForMaskedLM",
    .by_task = true,
    .parse = classifier_parse,
    .write = masked_lm_write,
    .info = masked_lm_info,
    .set_dropout = set_dropout,
    .set_task = set_task,
    .create = masked_lm_create,
    .get_config = get_config,
    .loss = fsdp_bert_masked_lm_loss,
    .logits = fsdp_bert_masked_lm_logits,
    .work = masked_lm_work,
    .block_classes = block_classes,
    .base_prefix = "bert",
    .fresh_modules = masked_lm_fresh_modules,
};

/* --- BertModel --- */

static fsdp_status parse(fsdp_json *doc, fsdp_model_config *config)
{
    return fsdp_bert_config_parse(doc, false, &config->bert);
}

static void write(fsdp_json_node root, const fsdp_model_config *config, bool has_own_head)
{
    (void)has_own_head;
    fsdp_bert_config_set(root, &config->bert, false);
}

static fsdp_status create(const fsdp_model_config *config, fsdp_module **model)
{
    return fsdp_bert_model_create(&config->bert, model);
}

static const char *const fresh_modules[] = {"pooler", NULL};

const fsdp_model_type fsdp_bert_model_type = {
    .name = "bert",
    .root_class = "BertModel",
    .parse = parse,
    .write = write,
    .info = info,
    .set_dropout = set_dropout,
    .set_num_labels = set_num_labels,
    .set_problem_type = set_problem_type,
    .set_task = set_task,
    .create = create,
    .get_config = get_config,
    .loss = fsdp_bert_model_loss,
    .logits = fsdp_bert_model_logits,
    .work = work,
    .block_classes = block_classes,
    .base_prefix = "bert",
    .fresh_modules = fresh_modules,
};
