/* See t5_case.h. */
#include "tests/models/t5_case.h"

#include <stdio.h>

#include <fsdp/ckpt.h>
#include <fsdp/dtensor.h>

#include "src/base/alloc.h"

void t5_case_shard(fsdp_test *t, const fsdp_fully_shard_options *options, t5_case *c)
{
    if (!t->group) {
        ASSERT_OK(fsdp_module_to_empty(c->model, c->device));
        return;
    }
    static const char *const stacks[] = {"encoder.block", "decoder.block"};
    for (int i = 0; i < 2; i++) {
        fsdp_module *blocks = fsdp_module_find(c->model, stacks[i]);
        for (int b = 0; b < fsdp_module_n_children(blocks); b++)
            ASSERT_OK(fsdp_fully_shard(fsdp_module_child(blocks, b), t->group, c->device, options));
    }
    ASSERT_OK(fsdp_fully_shard(c->model, t->group, c->device, options));
}

void t5_case_create(fsdp_test *t, const fsdp_t5_config *config,
                    const fsdp_fully_shard_options *options, t5_case *c)
{
    *c = (t5_case){0};
    ASSERT_OK(fsdp_device_create(NULL, &c->device));
    ASSERT_OK(fsdp_tape_create(&c->tape));
    ASSERT_OK(fsdp_t5_create(config, &c->model));
    t5_case_shard(t, options, c);
    CHECK_HERE();
    ASSERT_OK(fsdp_module_init(c->model, 1));
}

static const int64_t *entry_i64(fsdp_test *t, const fsdp_checkpoint_reader *reader,
                                const char *name, int64_t *rows, int64_t *width)
{
    const fsdp_checkpoint_entry *entry = fsdp_checkpoint_find(reader, name);
    if (!entry || entry->ndim != 2 || strcmp(entry->dtype_name, "I64") != 0) {
        fsdp_test_fail(t, __FILE__, __LINE__, "inputs lack %s", name);
        return NULL;
    }
    *rows = entry->shape[0];
    *width = entry->shape[1];
    return entry->data;
}

static void read_batch(fsdp_test *t, const char *path, const fsdp_t5_config *config,
                       fsdp_batch **batch)
{
    fsdp_checkpoint_reader *reader;
    const fsdp_batch_format format = {.decoder_start_token_id =
                                          (int32_t)config->decoder_start_token_id,
                                      .pad_token_id = (int32_t)config->pad_token_id};
    ASSERT_OK(fsdp_checkpoint_open(path, &reader));
    fsdp_padded p = {0};
    p.input_ids = entry_i64(t, reader, "input_ids", &p.rows, &p.source_width);
    CHECK_HERE();
    p.attention_mask = entry_i64(t, reader, "attention_mask", &p.rows, &p.source_width);
    p.labels = entry_i64(t, reader, "labels", &p.rows, &p.target_width);
    CHECK_HERE();
    ASSERT_OK(fsdp_batch_from_padded(&p, &format, batch));
    fsdp_checkpoint_close(reader);
}

void t5_case_open(fsdp_test *t, const char *name, const fsdp_fully_shard_options *options,
                  t5_case *c)
{
    char dir[512], model[600], inputs[600];
    snprintf(dir, sizeof dir, "golden/%s", name);
    snprintf(model, sizeof model, "%s/model", fsdp_test_path(dir));
    snprintf(inputs, sizeof inputs, "%s/inputs.safetensors", fsdp_test_path(dir));
    *c = (t5_case){0};
    fsdp_t5_config config;
    ASSERT_OK(fsdp_t5_config_read(model, &config));
    fsdp_checkpoint_reader *reader;
    ASSERT_OK(fsdp_checkpoint_open(model, &reader));
    config.tie_word_embeddings = !fsdp_checkpoint_find(reader, "lm_head.weight");
    t5_case_create(t, &config, options, c);
    CHECK_HERE();
    ASSERT_OK(fsdp_module_load(c->model, reader, t->group, NULL, NULL));
    fsdp_checkpoint_close(reader);
    read_batch(t, inputs, &config, &c->batch);
}

void t5_case_close(t5_case *c)
{
    fsdp_batch_release(c->batch);
    fsdp_tape_destroy(c->tape);
    fsdp_module_destroy(c->model);
    fsdp_device_destroy(c->device);
    *c = (t5_case){0};
}

void t5_case_step(fsdp_test *t, t5_case *c, double *loss)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = c->batch};
    ASSERT_OK(fsdp_scope_open(c->device, c->tape, &options, &s));
    int32_t labels = c->batch->label_tokens;
    fsdp_tensor *value = fsdp_t5_loss(s, c->model, labels ? 1.0f / (float)labels : 0.0f);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_item(value, loss));
    ASSERT_OK(fsdp_backward(c->tape, &value, NULL, 1));
    fsdp_scope_close(s);
}

void t5_case_gradient(fsdp_test *t, const t5_case *c, const char *name, float **gradient)
{
    char path[200];
    const char *dot = strrchr(name, '.');
    snprintf(path, sizeof path, "%.*s", (int)(dot - name), name);
    fsdp_module *m = fsdp_module_find(c->model, path);
    fsdp_parameter *p = m ? fsdp_module_parameter(m, dot + 1) : NULL;
    if (!p || !fsdp_parameter_grad(p))
        FAIL("%s has no gradient", name);
    fsdp_tensor *full;
    ASSERT_OK(fsdp_full_tensor(fsdp_parameter_grad(p), &full));
    *gradient = fsdp_calloc((size_t)fsdp_tensor_numel(full), sizeof **gradient);
    ASSERT(*gradient);
    ASSERT_OK(fsdp_tensor_to_floats(full, *gradient));
    fsdp_tensor_release(full);
}
