/* See model_case.h. */
#include "src/tensor/device.h"
#include "tests/models/model_case.h"

#include <stdio.h>

#include <fsdp/dtensor.h>
#include <fsdp/train.h>

#include "src/base/alloc.h"
#include "src/models/model_type.h"
#include "src/pretrained/model.h"

static void shard(fsdp_test *t, const fsdp_model_config *config,
                  const fsdp_fully_shard_options *options, model_case *c)
{
    const char *const *blocks = fsdp_model_config_info(config).block_classes;
    if (t->group)
        ASSERT_OK(fsdp_model_shard(c->model, blocks, t->group, c->device, options));
    else
        ASSERT_OK(fsdp_module_to_empty(c->model, c->device));
}

void model_case_create(fsdp_test *t, const fsdp_model_config *config, model_case *c)
{
    model_case_shard(t, config, NULL, c);
}

void model_case_shard(fsdp_test *t, const fsdp_model_config *config,
                      const fsdp_fully_shard_options *options, model_case *c)
{
    *c = (model_case){0};
    ASSERT_OK(fsdp_device_create(NULL, &c->device));
    ASSERT_OK(fsdp_tape_create(&c->tape));
    ASSERT_OK(fsdp_model_create(config, &c->model));
    shard(t, config, options, c);
    CHECK_HERE();
    ASSERT_OK(fsdp_module_init(c->model, 1));
}

/* [rows, width], or [rows] for classes; NULL if there is none. */
static const int64_t *entry_i64(const fsdp_checkpoint_reader *reader, const char *name,
                                int64_t *rows, int64_t *width)
{
    const fsdp_checkpoint_entry *entry = fsdp_checkpoint_find(reader, name);
    if (!entry || entry->ndim > 2 || strcmp(entry->dtype_name, "I64") != 0)
        return NULL;
    *rows = entry->shape[0];
    *width = entry->ndim == 2 ? entry->shape[1] : 1;
    return entry->data;
}

static void read_batch(fsdp_test *t, const char *name, const char *inputs,
                       const fsdp_batch_format *format, fsdp_batch **batch)
{
    fsdp_checkpoint_reader *reader;
    fsdp_padded p = {0};
    model_case_expected(t, name, inputs, &reader);
    CHECK_HERE();
    p.attention_mask = entry_i64(reader, "attention_mask", &p.rows, &p.source_width);
    p.position_ids = entry_i64(reader, "position_ids", &p.rows, &p.source_width);
    p.token_type_ids = entry_i64(reader, "token_type_ids", &p.rows, &p.source_width);
    p.input_ids = entry_i64(reader, "input_ids", &p.rows, &p.source_width);
    p.labels = entry_i64(reader, "labels", &p.rows, &p.target_width);
    ASSERT(p.input_ids && p.labels);
    ASSERT_OK(fsdp_batch_from_padded(&p, format, batch));
    fsdp_checkpoint_close(reader);
}

void model_case_expected(fsdp_test *t, const char *name, const char *file,
                         fsdp_checkpoint_reader **reader)
{
    char path[256];
    snprintf(path, sizeof path, "golden/%s/%s.safetensors", name, file);
    ASSERT_OK(fsdp_checkpoint_open(fsdp_test_path(path), reader));
}

void model_case_open(fsdp_test *t, const char *name, const char *inputs,
                     const fsdp_fully_shard_options *options, model_case *c)
{
    char dir[512];
    fsdp_pretrained weights;
    *c = (model_case){0};
    snprintf(dir, sizeof dir, "golden/%s/model", name);
    ASSERT_OK(fsdp_pretrained_open(fsdp_test_path(dir), false, &weights));
    if (strcmp(weights.config.type->name, "bert") == 0 && weights.config.bert.has_lm_head)
        ASSERT_OK(fsdp_model_config_set_task(&weights.config, FSDP_TASK_MASKED_LM));
    model_case_shard(t, &weights.config, options, c);
    CHECK_HERE();
    ASSERT_OK(fsdp_pretrained_load(&weights, c->model, t->group, 1, NULL));
    const fsdp_model_info info = fsdp_model_config_info(&weights.config);
    fsdp_pretrained_close(&weights);
    read_batch(t, name, inputs, &info.format, &c->batch);
}

void model_case_close(model_case *c)
{
    fsdp_batch_release(c->batch);
    fsdp_tape_destroy(c->tape);
    fsdp_module_destroy(c->model);
    fsdp_device_destroy(c->device);
    *c = (model_case){0};
}

/* --- running --- */

void model_case_step(fsdp_test *t, model_case *c, double *loss)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = c->batch};
    ASSERT_OK(fsdp_scope_open(c->device, c->tape, &options, &s));
    int32_t labels = c->batch->label_tokens;
    fsdp_tensor *value = fsdp_model_loss(s, c->model, labels ? 1.0f / (float)labels : 0.0f);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_item(value, loss));
    ASSERT_OK(fsdp_backward(c->tape, &value, NULL, 1));
    fsdp_scope_close(s);
}

void model_case_logits(fsdp_test *t, model_case *c, float **logits)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = c->batch};
    ASSERT_OK(fsdp_scope_open(c->device, NULL, &options, &s));
    fsdp_model_outputs out = fsdp_model_logits(s, c->model);
    ASSERT_OK(fsdp_scope_status(s));
    *logits = fsdp_calloc((size_t)fsdp_tensor_numel(out.logits) + 1, sizeof **logits);
    ASSERT(*logits);
    ASSERT_OK(fsdp_tensor_to_floats(out.logits, *logits));
    fsdp_scope_close(s);
}

void model_case_gradient(fsdp_test *t, const model_case *c, const char *name, float **gradient)
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

static void assert_close(fsdp_test *t, const char *name, const float *x, const float *y, int64_t n,
                         float relative, float absolute)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(y[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i] - y[i]) <= relative * largest + absolute))
            FAIL("%s[%lld] is %g, not %g", name, (long long)i, (double)x[i], (double)y[i]);
}

float model_case_spread(const model_case *sharded)
{
    return sharded->device->traits->joins_products ? 1e-5f : 0.0f;
}

void model_case_compare_gradients(fsdp_test *t, const model_case *a, const model_case *b,
                                  float relative, float absolute)
{
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_module_parameters(a->model, false, &list));
    for (size_t i = 0; i < list.n; i++) {
        float *x, *y;
        model_case_gradient(t, a, list.items[i].name, &x);
        model_case_gradient(t, b, list.items[i].name, &y);
        CHECK_HERE();
        assert_close(t, list.items[i].name, x, y, fsdp_parameter_numel(list.items[i].parameter),
                     relative, absolute);
        CHECK_HERE();
        fsdp_free(x);
        fsdp_free(y);
    }
    fsdp_parameter_list_free(&list);
}

int64_t model_case_activations(const model_case *c)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(c->device, &stats);
    return stats.tag_peak[FSDP_TAG_ACTIVATION];
}
