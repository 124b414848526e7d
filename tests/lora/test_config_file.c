/* adapter_config.json is read as PEFT writes it, and written so that PEFT reads it. */
#include <stdio.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/lora/targets.h"
#include "src/models/model_type.h"
#include "tests/test.h"

static fsdp_status read_text(fsdp_test *t, const char *text, fsdp_lora_file **file)
{
    char path[400];
    snprintf(path, sizeof path, "%s/adapter_config.json", fsdp_test_dir(t));
    FSDP_TRY(fsdp_file_write(path, text, strlen(text)));
    return fsdp_lora_file_read(fsdp_test_dir(t), file);
}

TEST(every_option_is_read)
{
    fsdp_lora_file *file;
    ASSERT_OK(read_text(
        t,
        "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 7.5, \"lora_dropout\": 0.25,"
        " \"use_rslora\": true, \"bias\": \"lora_only\", \"target_modules\": [\"q\", \"wi\"],"
        " \"exclude_modules\": \".*v\", \"modules_to_save\": [\"lm\"],"
        " \"layers_to_transform\": 4, \"layers_pattern\": \"block\","
        " \"rank_pattern\": {\"q\": 5}, \"alpha_pattern\": {\"a.*\": 2, \"b\": 2.5},"
        " \"init_lora_weights\": \"gaussian\", \"base_model_name_or_path\": \"t5-base\","
        " \"use_dora\": false, \"layer_replication\": null, \"loftq_config\": {}}",
        &file));
    const fsdp_lora_config *c = fsdp_lora_file_config(file);
    ASSERT(c->r == 3 && c->lora_alpha == 7.5 && c->lora_dropout == 0.25 && c->use_rslora);
    ASSERT_INT(c->bias, FSDP_LORA_BIAS_LORA_ONLY);
    ASSERT_STR(c->target_modules[1], "wi");
    ASSERT(!c->target_modules[2] && !c->target_pattern && !c->exclude_modules);
    ASSERT_STR(c->exclude_pattern, ".*v");
    ASSERT_STR(c->modules_to_save[0], "lm");
    ASSERT(c->n_layers_to_transform == 1 && c->layers_to_transform[0] == 4);
    ASSERT_STR(c->layers_pattern[0], "block");
    ASSERT(c->n_rank_pattern == 1 && c->rank_pattern[0].value == 5);
    ASSERT_INT(c->n_alpha_pattern, 2);
    ASSERT_STR(c->alpha_pattern[0].key, "a.*");
    ASSERT_INT(c->init_lora_weights, FSDP_LORA_INIT_GAUSSIAN);
    ASSERT_STR(fsdp_lora_file_base_model(file), "t5-base");
    fsdp_lora_file_destroy(file);
}

TEST(what_would_change_the_results_is_refused_by_name)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\"r\": 4}", "peft_type"},
        {"{\"peft_type\": \"IA3\"}", "peft_type is IA3"},
        {"{\"peft_type\": \"LORA\", \"use_qalora\": true}", "'use_qalora' is set"},
        {"{\"peft_type\": \"LORA\", \"use_dora\": 1}", "use_dora: expected"},
        {"{\"peft_type\": \"LORA\", \"some_new_option\": 3}", "'some_new_option' is set"},
        {"{\"peft_type\": \"LORA\", \"target_parameters\": [\"w\"]}", "'target_parameters' is set"},
        {"{\"peft_type\": \"LORA\", \"init_lora_weights\": \"pissa\"}",
         "init_lora_weights is 'pissa'"},
        {"{\"peft_type\": \"LORA\", \"r\": 0}", "r: expected"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": 0}", "lora_alpha: expected"},
        {"{\"peft_type\": \"LORA\", \"lora_dropout\": 1}", "lora_dropout: expected"},
        {"{\"peft_type\": \"LORA\", \"bias\": \"some\"}", "bias: expected"},
        {"{\"peft_type\": \"LORA\", \"target_modules\": 3}", "target_modules: expected"},
        {"{\"peft_type\": \"LORA\", \"target_modules\": [3]}", "target_modules[0]"},
        {"{\"peft_type\": \"LORA\", \"target_modules\": []}",
         "target_modules: expected at least one name"},
        {"{\"peft_type\": \"LORA\", \"layers_to_transform\": [-1]}", "layers_to_transform[0]"},
        {"{\"peft_type\": \"LORA\", \"rank_pattern\": {\"q\": \"x\"}}", "rank_pattern.q"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_lora_file *file;
        if (read_text(t, cases[i].text, &file) == FSDP_OK)
            FAIL("%s is accepted", cases[i].text);
        if (!strstr(fsdp_last_error(), cases[i].message))
            FAIL("\"%s\" does not contain \"%s\"", fsdp_last_error(), cases[i].message);
    }
}

TEST(a_folder_without_a_configuration_is_no_adapter)
{
    fsdp_lora_file *file;
    ASSERT_ERROR(fsdp_lora_file_read(fsdp_test_dir(t), &file), FSDP_ERR_NOT_FOUND,
                 "contains no adapter_config.json");
}

/* Write a configuration, and read it again. */
static void write_and_read(fsdp_test *t, const fsdp_lora_config *config, const char *preset,
                           fsdp_lora_file **file)
{
    fsdp_model_config model_config;
    fsdp_module *model;
    char path[400];
    const fsdp_lora_about about = {.base_model = "some/base", .task_type = "CAUSAL_LM"};
    ASSERT_OK(fsdp_model_config_preset(preset, &model_config));
    ASSERT_OK(fsdp_model_create(&model_config, &model));
    snprintf(path, sizeof path, "%s/adapter_config.json", fsdp_test_dir(t));
    ASSERT_OK(fsdp_lora_config_write(config, model, &about, path));
    ASSERT_OK(fsdp_lora_file_read(fsdp_test_dir(t), file));
    fsdp_module_destroy(model);
}

TEST(a_written_configuration_means_the_same)
{
    static const char *const names[] = {"q_proj", "o_proj", NULL}, *const saved[] = {"norm", NULL};
    static const int64_t layers[] = {1, 5};
    static const fsdp_lora_pattern ranks[] = {{"q_proj", 9}};
    const fsdp_lora_config config = {.r = 12,
                                     .lora_alpha = 2.5,
                                     .lora_dropout = 0.1,
                                     .use_rslora = true,
                                     .use_dora = true,
                                     .bias = FSDP_LORA_BIAS_ALL,
                                     .target_modules = names,
                                     .exclude_pattern = ".*7.*",
                                     .modules_to_save = saved,
                                     .layers_to_transform = layers,
                                     .n_layers_to_transform = 2,
                                     .rank_pattern = ranks,
                                     .n_rank_pattern = 1};
    fsdp_lora_file *file;
    write_and_read(t, &config, "TinyLlama-1.1B", &file);
    const fsdp_lora_config *c = fsdp_lora_file_config(file);
    ASSERT(c->r == 12 && c->lora_alpha == 2.5 && c->lora_dropout == 0.1 && c->use_rslora);
    ASSERT(c->use_dora);
    ASSERT_INT(c->bias, FSDP_LORA_BIAS_ALL);
    ASSERT_STR(c->target_modules[1], "o_proj");
    ASSERT_STR(c->exclude_pattern, ".*7.*");
    ASSERT_STR(c->modules_to_save[0], "norm");
    ASSERT(c->n_layers_to_transform == 2 && c->layers_to_transform[1] == 5);
    ASSERT(c->n_rank_pattern == 1 && c->rank_pattern[0].value == 9);
    ASSERT_STR(fsdp_lora_file_base_model(file), "some/base");
    fsdp_lora_file_destroy(file);
}

TEST(defaults_and_the_classifier_are_written_out)
{
    const fsdp_lora_config config = {0};
    fsdp_lora_file *file;
    write_and_read(t, &config, "bert-base-uncased", &file);
    const fsdp_lora_config *c = fsdp_lora_file_config(file);
    ASSERT(c->r == 8 && c->lora_alpha == 8.0);
    ASSERT_STR(c->target_modules[0], "query");
    ASSERT_STR(c->modules_to_save[0], "classifier");
    ASSERT(!c->modules_to_save[1]);
    fsdp_lora_file_destroy(file);
}
