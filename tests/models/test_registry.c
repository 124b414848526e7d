/* Properties of all kinds of models: which configurations and batches are accepted. */
#include <stdio.h>
#include <string.h>

#include "src/models/model_type.h"
#include "tests/models/model_case.h"

static fsdp_status parse(const char *text, fsdp_model_config *config)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_parse("config.json", 1, text, strlen(text), &doc));
    fsdp_status status = fsdp_model_config_parse(doc, config);
    fsdp_json_destroy(doc);
    return status;
}

TEST(an_unknown_model_type_is_refused_with_those_that_are_known)
{
    fsdp_model_config config;
    ASSERT_ERROR(parse("{\"model_type\": \"mamba\"}", &config), FSDP_ERR_UNSUPPORTED, "mamba");
    for (const fsdp_model_type *const *type = fsdp_model_types; *type; type++)
        if (!strstr(fsdp_last_error(), (*type)->name))
            FAIL("%s is not named: %s", (*type)->name, fsdp_last_error());
    ASSERT_ERROR(parse("{}", &config), FSDP_ERR_NOT_FOUND, "model_type");
}

TEST(an_unknown_shape_is_refused_with_those_that_are_known)
{
    fsdp_model_config config;
    ASSERT_ERROR(fsdp_model_config_preset("t6-small", &config), FSDP_ERR_INVALID, "t6-small");
    ASSERT(strstr(fsdp_last_error(), "t5-small") != NULL);
    ASSERT(strstr(fsdp_last_error(), "llama-58m") != NULL);
    ASSERT(strstr(fsdp_last_error(), "bert-base-uncased") != NULL);
    ASSERT(strstr(fsdp_last_error(), "gpt2") != NULL);
}

TEST(a_module_that_is_no_model_is_named)
{
    fsdp_module *module;
    fsdp_model_config config;
    ASSERT_OK(fsdp_module_create("LlamaMLP", &module));
    ASSERT_ERROR(fsdp_model_get_config(module, &config), FSDP_ERR_INVALID, "LlamaMLP");
    fsdp_module_destroy(module);
}

/* Labels are for one task. A batch for another task may have fewer than the model reads. */
static void refuse_other_tasks(fsdp_test *t, const char *name)
{
    static const int32_t ids[] = {1, 2, 3};
    char path[128];
    fsdp_model_config config;
    model_case c;
    snprintf(path, sizeof path, "golden/%s/model", name);
    ASSERT_OK(fsdp_model_config_read(fsdp_test_path(path), &config));
    const fsdp_task own = fsdp_model_config_info(&config).format.task;
    model_case_create(t, &config, &c);
    CHECK_HERE();
    for (int task = FSDP_TASK_SEQ2SEQ; task <= FSDP_TASK_CLASSIFICATION; task++) {
        const fsdp_batch_row row = {.source = ids,
                                    .source_len = 3,
                                    .labels = ids,
                                    .labels_len = task == FSDP_TASK_CLASSIFICATION ? 1 : 3};
        const fsdp_batch_format format = {.task = (fsdp_task)task};
        fsdp_batch *batch;
        fsdp_scope *s;
        ASSERT_OK(fsdp_batch_create(&row, 1, &format, &batch));
        ASSERT_OK(fsdp_scope_open(c.device, NULL, &(fsdp_scope_options){.batch = batch}, &s));
        (void)fsdp_model_loss(s, c.model, 1.0f);
        if ((fsdp_task)task == own)
            ASSERT_OK(fsdp_scope_status(s));
        else
            ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "the batch has labels for");
        fsdp_scope_close(s);
        fsdp_batch_release(batch);
    }
    model_case_close(&c);
}

TEST(a_batch_of_another_task_is_refused)
{
    static const char *const names[] = {"t5_v1_0", "llama3", "gpt2", "bert"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        refuse_other_tasks(t, names[i]);
        CHECK_HERE();
    }
}
