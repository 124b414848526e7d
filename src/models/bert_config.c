/* Reads and writes config.json of BERT. Also has the presets: configurations of published
 * models. */
#include "src/models/bert_config.h"

#include <stdio.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/models/config_json.h"
#include "src/models/hidden_act.h"

/* ---- reading --------------------------------------------------------------------------------- */

static const fsdp_config_field dims[] = {
    {"vocab_size", NULL, offsetof(fsdp_bert_config, vocab_size)},
    {"hidden_size", NULL, offsetof(fsdp_bert_config, hidden_size)},
    {"num_hidden_layers", NULL, offsetof(fsdp_bert_config, num_hidden_layers)},
    {"num_attention_heads", NULL, offsetof(fsdp_bert_config, num_attention_heads)},
    {"intermediate_size", NULL, offsetof(fsdp_bert_config, intermediate_size)},
    {"max_position_embeddings", NULL, offsetof(fsdp_bert_config, max_position_embeddings)},
};

static fsdp_status read_dims(fsdp_json_node root, fsdp_bert_config *c)
{
    FSDP_TRY(fsdp_config_read_dims(root, dims, FSDP_LENGTH(dims), c));
    if (c->hidden_size % c->num_attention_heads != 0)
        return fsdp_json_mismatch(root, "num_attention_heads", "a divisor of hidden_size %lld",
                                  (long long)c->hidden_size);
    return fsdp_config_opt_dim(root, "type_vocab_size", 2, &c->type_vocab_size);
}

static fsdp_status read_numbers(fsdp_json_node root, fsdp_bert_config *c)
{
    FSDP_TRY(fsdp_config_probability(root, "hidden_dropout_prob", 0.1, &c->hidden_dropout_prob));
    FSDP_TRY(fsdp_config_probability(root, "attention_probs_dropout_prob", 0.1,
                                     &c->attention_probs_dropout_prob));
    FSDP_TRY(fsdp_config_probability(root, "classifier_dropout", c->hidden_dropout_prob,
                                     &c->classifier_dropout));
    FSDP_TRY(fsdp_config_positive(root, "layer_norm_eps", 1e-12, &c->layer_norm_eps));
    return fsdp_config_not_negative(root, "initializer_range", 0.02, &c->initializer_range);
}

/* Read the number of labels as transformers does. If the key num_labels is present, its value is
 * the number. Otherwise it is the number of entries of id2label. If id2label is also missing, or is
 * empty, the number of labels is 2. */
static fsdp_status read_num_labels(fsdp_json_node root, fsdp_bert_config *c)
{
    fsdp_json_node names;
    FSDP_TRY(fsdp_json_opt_object(root, "id2label", &names));
    const int64_t counted = (int64_t)fsdp_json_len(names);
    return fsdp_config_opt_dim(root, "num_labels", counted ? counted : 2, &c->num_labels);
}

const char *const fsdp_problem_type_names[] = {
    [FSDP_PROBLEM_SINGLE_LABEL] = "single_label_classification",
    [FSDP_PROBLEM_REGRESSION] = "regression",
    [FSDP_PROBLEM_MULTI_LABEL] = "multi_label_classification",
    NULL};

/* Read problem_type. If the key is missing, a model with a single label does regression, as in
 * transformers. If `classifier` is false, an unknown value is not an error. */
static fsdp_status read_problem_type(fsdp_json_node root, bool classifier, fsdp_bert_config *c)
{
    const char *type;
    c->problem_type = c->num_labels == 1 ? FSDP_PROBLEM_REGRESSION : FSDP_PROBLEM_SINGLE_LABEL;
    FSDP_TRY(fsdp_json_opt_str(root, "problem_type", NULL, &type));
    if (!type)
        return FSDP_OK;
    for (int i = 0; fsdp_problem_type_names[i]; i++)
        if (strcmp(type, fsdp_problem_type_names[i]) == 0) {
            c->problem_type = (fsdp_problem_type)i;
            if (!classifier || i != FSDP_PROBLEM_SINGLE_LABEL || c->num_labels > 1)
                return FSDP_OK;
            return fsdp_config_unsupported(
                root, "problem_type", "\"regression\": one label does not choose between classes");
        }
    return classifier ? fsdp_config_unsupported(root, "problem_type",
                                                "\"single_label_classification\", "
                                                "\"regression\" or "
                                                "\"multi_label_classification\"")
                      : FSDP_OK;
}

/* Refuse unsupported features that would change what the model computes. */
static fsdp_status refuse_unsupported(fsdp_json_node root)
{
    const char *positions;
    FSDP_TRY(fsdp_config_refuse_unsupported(root));
    FSDP_TRY(fsdp_config_must_be(root, "is_decoder", false));
    FSDP_TRY(fsdp_config_must_be(root, "add_cross_attention", false));
    FSDP_TRY(fsdp_json_opt_str(root, "position_embedding_type", "absolute", &positions));
    if (strcmp(positions, "absolute") != 0)
        return fsdp_config_unsupported(root, "position_embedding_type", "\"absolute\"");
    return FSDP_OK;
}

static bool has_lm_head(fsdp_json_node root)
{
    const fsdp_json_node list = fsdp_json_find(root, "architectures");
    for (size_t i = 0; i < fsdp_json_len(list); i++) {
        const char *name;
        if (fsdp_json_get_str(fsdp_json_at(list, i), NULL, &name) == FSDP_OK &&
            (strcmp(name, "BertForMaskedLM") == 0 || strcmp(name, "BertForPreTraining") == 0))
            return true;
    }
    return false;
}

fsdp_status fsdp_bert_config_parse(fsdp_json *doc, bool classifier, fsdp_bert_config *config)
{
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_bert_config c = {0};
    FSDP_TRY(refuse_unsupported(root));
    FSDP_TRY(read_dims(root, &c));
    FSDP_TRY(read_numbers(root, &c));
    FSDP_TRY(fsdp_config_nullable_token(root, "pad_token_id", c.vocab_size, 0, &c.pad_token_id));
    FSDP_TRY(read_num_labels(root, &c));
    FSDP_TRY(read_problem_type(root, classifier, &c));
    FSDP_TRY(fsdp_config_hidden_act(root, "hidden_act", FSDP_HIDDEN_ACT_GELU, &c.hidden_act));
    FSDP_TRY(fsdp_json_opt_bool(root, "tie_word_embeddings", true, &c.tie_word_embeddings));
    c.has_lm_head = has_lm_head(root);
    FSDP_TRY(fsdp_config_dtype(root, &c.dtype));
    *config = c;
    return FSDP_OK;
}

/* ---- presets --------------------------------------------------------------------------------- */

/* These values are from the config.json files of google-bert's models on Hugging Face. */
static const struct {
    const char *name;
    int64_t vocab_size, hidden_size, num_hidden_layers, num_attention_heads;
} presets[] = {
    {"bert-base-uncased", 30522, 768, 12, 12},
    {"bert-large-uncased", 30522, 1024, 24, 16},
    {"bert-base-cased", 28996, 768, 12, 12},
    {"bert-base", 30522, 768, 12, 12}, /* a short name, which benchmarks use */
};

fsdp_status fsdp_bert_config_find_preset(const char *name, fsdp_bert_config *config)
{
    const char *bare = fsdp_config_bare_name(name, "google-bert");
    for (size_t i = 0; i < FSDP_LENGTH(presets); i++) {
        if (strcmp(bare, presets[i].name) != 0)
            continue;
        *config = (fsdp_bert_config){
            .vocab_size = presets[i].vocab_size,
            .hidden_size = presets[i].hidden_size,
            .num_hidden_layers = presets[i].num_hidden_layers,
            .num_attention_heads = presets[i].num_attention_heads,
            .intermediate_size = 4 * presets[i].hidden_size,
            .max_position_embeddings = 512,
            .type_vocab_size = 2,
            .num_labels = 2,
            .hidden_act = FSDP_HIDDEN_ACT_GELU,
            .hidden_dropout_prob = 0.1,
            .attention_probs_dropout_prob = 0.1,
            .classifier_dropout = 0.1,
            .layer_norm_eps = 1e-12,
            .initializer_range = 0.02,
            .pad_token_id = 0,
            .tie_word_embeddings = true,
            .dtype = FSDP_DTYPE_F32,
        };
        return FSDP_OK;
    }
    return FSDP_ERR_NOT_FOUND;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Set id2label and label2id to the names LABEL_0, LABEL_1, ... of n labels, as transformers
 * does. */
static void name_labels(fsdp_json_node root, int64_t n)
{
    fsdp_json_node names = fsdp_json_set_object(root, "id2label");
    fsdp_json_node ids = fsdp_json_set_object(root, "label2id");
    for (int64_t i = 0; i < n; i++) {
        char id[24], name[32];
        snprintf(id, sizeof id, "%lld", (long long)i);
        snprintf(name, sizeof name, "LABEL_%lld", (long long)i);
        fsdp_json_set_str(names, id, name);
        fsdp_json_set_i64(ids, name, i);
    }
}

/* Set the number of labels to n. Also write names for the labels (name_labels()), with two
 * exceptions. If `root` already has n names, they are kept. If `root` has no names and n is 2, no
 * names are written, because transformers assumes 2 labels by default. */
static void set_labels(fsdp_json_node root, int64_t n)
{
    const int64_t named = (int64_t)fsdp_json_len(fsdp_json_find(root, "id2label"));
    if (named != n && (named != 0 || n != 2))
        name_labels(root, n);
    if (fsdp_json_has(root, "num_labels"))
        fsdp_json_set_i64(root, "num_labels", n);
}

void fsdp_bert_config_set(fsdp_json_node root, const fsdp_bert_config *c, bool classifier)
{
    fsdp_config_set_dims(root, dims, FSDP_LENGTH(dims), c);
    fsdp_json_set_i64(root, "type_vocab_size", c->type_vocab_size);
    fsdp_config_set_hidden_act(root, "hidden_act", c->hidden_act);
    fsdp_json_set_f64(root, "hidden_dropout_prob", c->hidden_dropout_prob);
    fsdp_json_set_f64(root, "attention_probs_dropout_prob", c->attention_probs_dropout_prob);
    if (c->classifier_dropout != c->hidden_dropout_prob ||
        fsdp_json_has(root, "classifier_dropout"))
        fsdp_json_set_f64(root, "classifier_dropout", c->classifier_dropout);
    else
        fsdp_json_set_str(root, "classifier_dropout", NULL);
    fsdp_json_set_f64(root, "layer_norm_eps", c->layer_norm_eps);
    fsdp_json_set_f64(root, "initializer_range", c->initializer_range);
    fsdp_config_set_token(root, "pad_token_id", c->pad_token_id);
    if (classifier) {
        set_labels(root, c->num_labels);
        if (c->problem_type != FSDP_PROBLEM_SINGLE_LABEL || fsdp_json_has(root, "problem_type"))
            fsdp_json_set_str(root, "problem_type", fsdp_problem_type_names[c->problem_type]);
    }
}
