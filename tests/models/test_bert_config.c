/* config.json of BERT. */
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/models/model_type.h"
#include "tests/models/config_checks.h"

#define MINIMAL                                                                                    \
    "\"model_type\":\"bert\",\"vocab_size\":100,\"hidden_size\":6,\"num_hidden_layers\":3,"        \
    "\"num_attention_heads\":2,\"intermediate_size\":7,\"max_position_embeddings\":11"

TEST(what_transformers_wrote_is_read)
{
    fsdp_model_config c;
    ASSERT_OK(fsdp_model_config_read(fsdp_test_path("golden/bert/model"), &c));
    ASSERT(c.bert.vocab_size == 320 && c.bert.hidden_size == 64 && c.bert.num_hidden_layers == 2 &&
           c.bert.num_attention_heads == 4 && c.bert.intermediate_size == 96 &&
           c.bert.max_position_embeddings == 48 && c.bert.type_vocab_size == 2);
    ASSERT(c.bert.hidden_dropout_prob == 0 && c.bert.attention_probs_dropout_prob == 0 &&
           c.bert.classifier_dropout == 0 && c.bert.layer_norm_eps == 1e-12);
    ASSERT_INT(c.bert.num_labels, 2);
    const fsdp_model_info info = fsdp_model_config_info(&c);
    ASSERT_STR(info.model_type, "bert");
    ASSERT_STR(info.class_name, "BertForSequenceClassification");
    ASSERT_STR(info.block_classes[0], "BertLayer");
    ASSERT(info.format.task == FSDP_TASK_CLASSIFICATION && info.num_labels == 2 &&
           info.max_positions == 48 && info.vocab_size == 320 && info.pad_token_id == 0 &&
           info.eos_token_id == -1 && info.dtype == FSDP_DTYPE_F32);
}

TEST(absent_keys_have_transformers_defaults)
{
    fsdp_model_config c;
    ASSERT_OK(config_parse("{" MINIMAL "}", &c));
    ASSERT(c.bert.hidden_dropout_prob == 0.1 && c.bert.attention_probs_dropout_prob == 0.1 &&
           c.bert.classifier_dropout == 0.1 && c.bert.layer_norm_eps == 1e-12 &&
           c.bert.initializer_range == 0.02);
    ASSERT(c.bert.type_vocab_size == 2 && c.bert.num_labels == 2 && c.bert.pad_token_id == 0 &&
           c.bert.hidden_act == FSDP_HIDDEN_ACT_GELU && c.bert.dtype == FSDP_DTYPE_F32);
    ASSERT_OK(config_parse(
        "{" MINIMAL ",\"hidden_dropout_prob\":0.25,\"classifier_dropout\":null,"
        "\"pad_token_id\":null,\"hidden_act\":\"gelu_new\",\"torch_dtype\":\"bfloat16\","
        "\"problem_type\":null,\"position_embedding_type\":\"absolute\"}",
        &c));
    ASSERT(c.bert.classifier_dropout == 0.25 && c.bert.pad_token_id == -1 &&
           c.bert.hidden_act == FSDP_HIDDEN_ACT_GELU_NEW && c.bert.dtype == FSDP_DTYPE_BF16);
}

TEST(labels_are_counted)
{
    static const struct {
        const char *text;
        int64_t n;
    } cases[] = {
        {"{" MINIMAL ",\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"}}", 3},
        {"{" MINIMAL ",\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"},\"num_labels\":3}", 3},
        {"{" MINIMAL ",\"num_labels\":5}", 5},
        {"{" MINIMAL ",\"id2label\":{\"0\":\"a\"},\"num_labels\":3}", 3}, /* as in transformers */
        {"{" MINIMAL ",\"id2label\":null,\"problem_type\":\"single_label_classification\"}", 2},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_model_config c;
        ASSERT_OK(config_parse(cases[i].text, &c));
        ASSERT_INT(c.bert.num_labels, cases[i].n);
    }
}

/* The classifier is used for fine-tuning other heads; the bare model has no classes. */
TEST(architectures_say_which_model_it_is)
{
    static const struct {
        const char *text, *class_name;
        int64_t num_labels;
    } cases[] = {
        {"{" MINIMAL "}", "BertForSequenceClassification", 2},
        {"{" MINIMAL ",\"architectures\":[\"BertForMaskedLM\"]}", "BertForSequenceClassification",
         2},
        {"{" MINIMAL ",\"architectures\":[7,\"BertForSequenceClassification\"]}",
         "BertForSequenceClassification", 2},
        {"{" MINIMAL ",\"architectures\":[\"BertModel\"]}", "BertModel", 0},
        {"{" MINIMAL ",\"architectures\":[\"BertModel\"],\"problem_type\":\"regression\"}",
         "BertModel", 0},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_model_config c;
        ASSERT_OK(config_parse(cases[i].text, &c));
        const fsdp_model_info info = fsdp_model_config_info(&c);
        ASSERT_STR(info.class_name, cases[i].class_name);
        ASSERT_INT(info.num_labels, cases[i].num_labels);
    }
}

/* As in transformers, one label means regression. */
TEST(problem_types_are_read_and_written)
{
    static const struct {
        const char *text;
        fsdp_problem_type type;
        int32_t num_targets;
        const char *written;
    } cases[] = {
        {"{" MINIMAL "}", FSDP_PROBLEM_SINGLE_LABEL, 0, NULL},
        {"{" MINIMAL ",\"num_labels\":1}", FSDP_PROBLEM_REGRESSION, 1, "regression"},
        {"{" MINIMAL ",\"id2label\":{\"0\":\"a\"}}", FSDP_PROBLEM_REGRESSION, 1, "regression"},
        {"{" MINIMAL ",\"num_labels\":3,\"problem_type\":\"regression\"}", FSDP_PROBLEM_REGRESSION,
         3, "regression"},
        {"{" MINIMAL ",\"problem_type\":\"multi_label_classification\"}", FSDP_PROBLEM_MULTI_LABEL,
         2, "multi_label_classification"},
        {"{" MINIMAL ",\"problem_type\":\"single_label_classification\"}",
         FSDP_PROBLEM_SINGLE_LABEL, 0, NULL},
    };
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", fsdp_test_dir(t));
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_model_config c, again;
        fsdp_json *doc;
        const char *written;
        ASSERT_OK(config_parse(cases[i].text, &c));
        const fsdp_batch_format format = fsdp_model_config_info(&c).format;
        ASSERT_INT(format.problem_type, cases[i].type);
        ASSERT_INT(format.num_targets, cases[i].num_targets);
        ASSERT_OK(fsdp_model_config_write(&c, false, FSDP_DTYPE_F32, NULL, path));
        ASSERT_OK(fsdp_model_config_read(path, &again));
        ASSERT_INT(again.bert.problem_type, cases[i].type);
        ASSERT_INT(again.bert.num_labels, c.bert.num_labels);
        ASSERT_OK(fsdp_json_read(path, &doc));
        ASSERT_OK(fsdp_json_opt_str(fsdp_json_root(doc), "problem_type", NULL, &written));
        ASSERT(!written == !cases[i].written);
        if (written)
            ASSERT_STR(written, cases[i].written);
        fsdp_json_destroy(doc);
    }
}

TEST(what_cannot_be_is_refused_by_name)
{
    static const config_refusal cases[] = {
        {"{\"model_type\":\"bert\"}", FSDP_ERR_NOT_FOUND, "config.json: vocab_size: missing"},
        {"{\"model_type\":\"roberta\"}", FSDP_ERR_UNSUPPORTED, "\"bert\""},
        {"{" MINIMAL ",\"num_attention_heads\":4}", FSDP_ERR_FORMAT,
         "num_attention_heads: expected a divisor of hidden_size 6, found 4"},
        {"{" MINIMAL ",\"hidden_size\":0}", FSDP_ERR_FORMAT, "hidden_size: expected a positive"},
        {"{" MINIMAL ",\"type_vocab_size\":0}", FSDP_ERR_FORMAT, "type_vocab_size"},
        {"{" MINIMAL ",\"hidden_dropout_prob\":1}", FSDP_ERR_FORMAT,
         "hidden_dropout_prob: expected a number from 0 to below 1"},
        {"{" MINIMAL ",\"attention_probs_dropout_prob\":-1}", FSDP_ERR_FORMAT,
         "attention_probs_dropout_prob"},
        {"{" MINIMAL ",\"classifier_dropout\":2}", FSDP_ERR_FORMAT, "classifier_dropout"},
        {"{" MINIMAL ",\"layer_norm_eps\":0}", FSDP_ERR_FORMAT, "layer_norm_eps"},
        {"{" MINIMAL ",\"pad_token_id\":100}", FSDP_ERR_FORMAT,
         "pad_token_id: expected an integer from 0 to 99, found 100"},
        {"{" MINIMAL ",\"id2label\":[]}", FSDP_ERR_FORMAT, "id2label: expected an object"},
        {"{" MINIMAL ",\"num_labels\":1,\"problem_type\":\"single_label_classification\"}",
         FSDP_ERR_UNSUPPORTED, "problem_type: expected \"regression\": one label does not choose"},
        {"{" MINIMAL ",\"problem_type\":\"ranking\"}", FSDP_ERR_UNSUPPORTED,
         "\"multi_label_classification\" (nothing else is supported), found \"ranking\""},
        {"{" MINIMAL ",\"hidden_act\":\"quick_gelu\"}", FSDP_ERR_UNSUPPORTED,
         "hidden_act: expected \"gelu\", \"gelu_new\", \"relu\", \"silu\" or"},
        {"{" MINIMAL ",\"position_embedding_type\":\"relative_key\"}", FSDP_ERR_UNSUPPORTED,
         "position_embedding_type: expected \"absolute\""},
        {"{" MINIMAL ",\"is_decoder\":true}", FSDP_ERR_UNSUPPORTED, "is_decoder: expected false"},
        {"{" MINIMAL ",\"add_cross_attention\":true}", FSDP_ERR_UNSUPPORTED,
         "add_cross_attention: expected false"},
        {"{" MINIMAL ",\"pruned_heads\":{\"0\":[1]}}", FSDP_ERR_UNSUPPORTED, "pruned_heads"},
        {"{" MINIMAL ",\"dtype\":\"int8\"}", FSDP_ERR_FORMAT, "dtype"},
    };
    config_check_refused(t, cases, FSDP_LENGTH(cases));
}

TEST(published_sizes_are_known)
{
    fsdp_model_config c;
    ASSERT_OK(fsdp_model_config_preset("bert-base-uncased", &c));
    ASSERT(c.bert.vocab_size == 30522 && c.bert.hidden_size == 768 &&
           c.bert.num_hidden_layers == 12 && c.bert.num_attention_heads == 12 &&
           c.bert.intermediate_size == 3072 && c.bert.max_position_embeddings == 512);
    ASSERT_OK(fsdp_model_config_preset("google-bert/bert-large-uncased", &c));
    ASSERT(c.bert.hidden_size == 1024 && c.bert.num_hidden_layers == 24 &&
           c.bert.num_attention_heads == 16 && c.bert.intermediate_size == 4096);
    ASSERT_OK(fsdp_model_config_preset("bert-base-cased", &c));
    ASSERT(c.bert.vocab_size == 28996);
    ASSERT_ERROR(fsdp_model_config_preset("bert-huge", &c), FSDP_ERR_INVALID, "bert-base-uncased");
}

TEST(a_written_config_is_read_back_the_same)
{
    const fsdp_model_type *const types[] = {&fsdp_bert_classifier_type, &fsdp_bert_model_type};
    for (int i = 0; i < 2; i++) {
        fsdp_model_config c, again;
        ASSERT_OK(fsdp_model_config_preset("bert-base-cased", &c));
        c.type = types[i];
        c.bert.num_labels = i ? 2 : 3;
        c.bert.type_vocab_size = 1;
        c.bert.hidden_act = FSDP_HIDDEN_ACT_RELU;
        c.bert.classifier_dropout = 0.05;
        c.bert.hidden_dropout_prob = 0.15;
        c.bert.pad_token_id = -1;
        c.bert.dtype = FSDP_DTYPE_BF16;
        ASSERT_OK(fsdp_model_config_write(&c, false, FSDP_DTYPE_BF16, NULL,
                                          config_path(t, "config.json")));
        ASSERT_OK(fsdp_model_config_read(fsdp_test_dir(t), &again));
        ASSERT(again.type == c.type);
        ASSERT(memcmp(&again.bert, &c.bert, sizeof c.bert) == 0);
        char *text = config_text(config_path(t, "config.json"));
        ASSERT(text);
        ASSERT((strstr(text, "\"2\": \"LABEL_2\"") && strstr(text, "\"LABEL_2\": 2")) == !i);
        fsdp_free(text);
    }
}

/* Writing over a file of transformers changes nothing; names of labels are kept. */
TEST(a_source_keeps_its_other_keys)
{
    static const char *const sources[] = {
        NULL, /* the golden file */
        "{" MINIMAL ",\"id2label\":{\"0\":\"bad\",\"1\":\"good\",\"2\":\"ugly\"},\"x\":[1]}",
        "{" MINIMAL ",\"num_labels\":3}",
    };
    for (size_t i = 0; i < FSDP_LENGTH(sources); i++) {
        fsdp_model_config c;
        const char *source = config_path(t, "source.json");
        if (sources[i])
            ASSERT_OK(fsdp_file_write(source, sources[i], strlen(sources[i])));
        else
            source = fsdp_test_path("golden/bert/model/config.json");
        ASSERT_OK(fsdp_model_config_read(source, &c));
        ASSERT_OK(fsdp_model_config_write(&c, false, c.bert.dtype, source,
                                          config_path(t, "config.json")));
        char *after = config_text(config_path(t, "config.json"));
        ASSERT(after);
        if (i == 0) {
            config_check_same_text(t, config_path(t, "config.json"), source);
        } else if (i == 1) {
            ASSERT(strstr(after, "\"2\": \"ugly\"") && strstr(after, "\"x\": ["));
            ASSERT(!strstr(after, "LABEL"));
        } else {
            ASSERT(strstr(after, "\"num_labels\": 3") && strstr(after, "LABEL_2"));
        }
        fsdp_free(after);
    }
}

/* The number of labels decides between classes and regression, but not whether a row may have
 * several classes. */
TEST(another_number_of_labels_keeps_several_classes_a_row)
{
    static const struct {
        const char *text;
        int64_t num_labels;
        fsdp_problem_type type;
    } cases[] = {
        {"\"num_labels\":1,\"problem_type\":\"multi_label_classification\"", 3,
         FSDP_PROBLEM_MULTI_LABEL},
        {"\"num_labels\":3,\"problem_type\":\"multi_label_classification\"", 1,
         FSDP_PROBLEM_MULTI_LABEL},
        {"\"num_labels\":1", 3, FSDP_PROBLEM_SINGLE_LABEL},
        {"\"num_labels\":3", 1, FSDP_PROBLEM_REGRESSION},
        {"\"num_labels\":3,\"problem_type\":\"regression\"", 2, FSDP_PROBLEM_REGRESSION},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        char text[400];
        fsdp_model_config c;
        snprintf(text, sizeof text, "{" MINIMAL ",%s}", cases[i].text);
        ASSERT_OK(config_parse(text, &c));
        c.type->set_num_labels(&c, cases[i].num_labels);
        ASSERT_INT(c.bert.num_labels, cases[i].num_labels);
        ASSERT_INT(c.bert.problem_type, cases[i].type);
    }
}
