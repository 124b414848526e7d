/* See checkpointing.h. */
#include "tests/models/checkpointing.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"

void ac_read_config(fsdp_test *t, const char *name, fsdp_model_config *config)
{
    char path[128];
    snprintf(path, sizeof path, "golden/%s/model", name);
    ASSERT_OK(fsdp_model_config_read(fsdp_test_path(path), config));
    fsdp_model_config_set_dropout(config, 0.2);
}

void ac_set_layers(fsdp_model_config *config, const char *name, int64_t n)
{
    if (strcmp(name, "llama3") == 0)
        config->llama.num_hidden_layers = n;
    else if (strcmp(name, "gpt2") == 0)
        config->gpt2.n_layer = n;
    else if (strcmp(name, "bert") == 0)
        config->bert.num_hidden_layers = n;
    else
        config->t5.num_layers = config->t5.num_decoder_layers = n;
}

typedef struct selection {
    const char *const *classes; /* classes of the blocks */
    ac_scope which;
} selection;

static bool is_block(const fsdp_module *module, const selection *s)
{
    for (const char *const *c = s->classes; module && *c; c++)
        if (strcmp(*c, fsdp_module_class(module)) == 0)
            return true;
    return false;
}

static bool is_selected(const char *path, const fsdp_module *module, void *arg)
{
    (void)path;
    const selection *s = arg;
    if (s->which == LAYERS)
        return fsdp_module_n_children(module) == 0;
    return s->which == ALL_MODULES || is_block(module, s) ||
           (s->which == NESTED_IN_BLOCKS && is_block(fsdp_module_parent(module), s));
}

fsdp_status ac_checkpoint_blocks(fsdp_module *model, const ac_options *options, ac_scope which)
{
    fsdp_model_config config;
    FSDP_TRY(fsdp_model_get_config(model, &config));
    const fsdp_model_info info = fsdp_model_config_info(&config);
    return fsdp_apply_activation_checkpointing(model, is_selected,
                                               &(selection){info.block_classes, which}, options);
}

void ac_compare(fsdp_test *t, const model_case *a, const model_case *b)
{
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_module_parameters(a->model, false, &list));
    for (size_t i = 0; i < list.n; i++) {
        float *x, *y;
        if (!fsdp_parameter_requires_grad(list.items[i].parameter))
            continue;
        model_case_gradient(t, a, list.items[i].name, &x);
        model_case_gradient(t, b, list.items[i].name, &y);
        CHECK_HERE();
        if (memcmp(x, y, (size_t)fsdp_parameter_numel(list.items[i].parameter) * sizeof *x) != 0)
            FAIL("the gradient of %s differs", list.items[i].name);
        fsdp_free(x);
        fsdp_free(y);
    }
    fsdp_parameter_list_free(&list);
}

void ac_make_rows(fsdp_test *t, const fsdp_model_config *config, bool masked, fsdp_batch **batch)
{
    enum {
        LENGTH = 40
    };
    int32_t ids[3][LENGTH], labels[3][LENGTH], label[3];
    fsdp_batch_row rows[3];
    const fsdp_model_info info = fsdp_model_config_info(config);
    const int32_t length =
        info.max_positions && info.max_positions < LENGTH ? (int32_t)info.max_positions : LENGTH;
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < LENGTH; i++)
            ids[r][i] = (int32_t)((r * 31 + i * 7 + 3) % info.vocab_size);
        for (int i = 0; i < LENGTH; i++)
            labels[r][i] = masked && i < 2 * length / 3 ? FSDP_IGNORE_INDEX : ids[r][i];
        label[r] = r % 2;
        const bool class = info.format.task == FSDP_TASK_CLASSIFICATION;
        rows[r] = (fsdp_batch_row){.source = ids[r],
                                   .source_len = length - 3 * r,
                                   .labels = class ? &label[r] : labels[r],
                                   .labels_len = class ? 1 : length - 3 * r};
    }
    model_make_batch(t, config, (model_rows){rows, 3}, batch);
}

void ac_train_step(fsdp_test *t, model_case *c, int step, double *loss)
{
    fsdp_scope *s;
    const fsdp_scope_options options = {
        .batch = c->batch, .training = true, .seed = 7, .step = (uint32_t)step};
    fsdp_module_zero_grad(c->model);
    ASSERT_OK(fsdp_scope_open(c->device, c->tape, &options, &s));
    fsdp_tensor *value = fsdp_model_loss(s, c->model, 1.0f / (float)c->batch->label_tokens);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_item(value, loss));
    ASSERT_OK(fsdp_backward(c->tape, &value, NULL, 1));
    fsdp_scope_close(s);
}
