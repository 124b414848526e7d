/* verify: one batch through the model, forward and backward; and what configurations say. */
#include <math.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/models/t5_config.h"
#include "src/nn/module.h"
#include "src/train/verify_case.h"

/* --- captures: the outputs of modules, by hooks --- */

typedef struct capture {
    fsdp_region_hooks hooks;
    fsdp_tensor *output;
} capture;

static fsdp_status keep_output(void *self, fsdp_scope *s, fsdp_args *out)
{
    capture *c = self;
    (void)s;
    fsdp_tensor_release(c->output);
    c->output = fsdp_tensor_retain(out->t[0]);
    return FSDP_OK;
}

static void capture_destroy(fsdp_region_hooks *hooks)
{
    capture *c = hooks->self;
    fsdp_tensor_release(c->output);
    fsdp_free(c);
}

static fsdp_status add_capture(fsdp_module *module, capture **out)
{
    capture *c = fsdp_calloc(1, sizeof *c);
    if (!c)
        return FSDP_ERR_NOMEM;
    c->hooks = (fsdp_region_hooks){.post_forward = keep_output, .self = c};
    fsdp_status status = fsdp_module_add_hooks(module, &c->hooks, capture_destroy);
    if (status != FSDP_OK)
        fsdp_free(c);
    else
        *out = c;
    return status;
}

/* --- one batch --- */

typedef struct batch_run {
    fsdp_verify_case *c;
    fsdp_model *model;
    fsdp_checkpoint_reader *inputs, *expected;
    fsdp_batch *batch;
    fsdp_t5_outputs outputs; /* of the forward under way */
    capture **captures;      /* [entries of expected]; NULL where it is no hidden state */
} batch_run;

static const char hidden_prefix[] = "hidden.", grad_prefix[] = "grad.";

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_encoders(const char *name)
{
    return strstr(name, "encoder") != NULL && strstr(name, "decoder") == NULL;
}

/* Compare packed rows [tokens, width] with the padded ones [rows, width of inputs, width]. */
static fsdp_status compare_rows(batch_run *run, const fsdp_checkpoint_entry *entry,
                                const fsdp_tensor *actual, bool source, const char *tolerance_key)
{
    const int64_t *positions = source ? run->batch->source_positions : run->batch->target_positions;
    const fsdp_checkpoint_entry *ids;
    FSDP_TRY(fsdp_checkpoint_get(run->inputs, source ? "input_ids" : "labels", &ids));
    const int64_t width = fsdp_tensor_size(actual, 1);
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(
        entry, (const int64_t[]){ids->shape[0], ids->shape[1], width}, 3));
    double tolerance;
    const char *measure;
    FSDP_TRY(fsdp_verify_tolerance(run->c, tolerance_key, NULL, &tolerance, &measure));
    float *want = NULL, *got = fsdp_calloc((size_t)fsdp_tensor_numel(actual), sizeof *got);
    fsdp_status status = got ? fsdp_tensor_to_floats(actual, got) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_verify_floats(entry, &want);
    double largest = 0;
    for (int64_t t = 0; status == FSDP_OK && t < fsdp_tensor_size(actual, 0); t++)
        for (int64_t k = 0; k < width; k++) {
            double d = fabs((double)got[t * width + k] - (double)want[positions[t] * width + k]);
            if (!(d <= largest))
                largest = d; /* also NaN, which stays */
        }
    if (status == FSDP_OK)
        fsdp_verify_compared(run->c, largest, tolerance, measure, "%s", entry->name);
    fsdp_free(got);
    fsdp_free(want);
    return status;
}

static fsdp_status compare_forward(batch_run *run)
{
    for (size_t i = 0; i < fsdp_checkpoint_count(run->expected); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(run->expected, i);
        const char *name = entry->name;
        if (run->captures[i] && run->captures[i]->output)
            FSDP_TRY(
                compare_rows(run, entry, run->captures[i]->output, is_encoders(name), "hidden"));
        else if (strcmp(name, "logits") == 0)
            FSDP_TRY(compare_rows(run, entry, run->outputs.logits, false, "logits"));
        else if (strcmp(name, "last_hidden") == 0)
            FSDP_TRY(compare_rows(run, entry, run->outputs.last_hidden, false, "last_hidden"));
        else if (strcmp(name, "encoder_last_hidden") == 0)
            FSDP_TRY(compare_rows(run, entry, run->outputs.encoder_last_hidden, true,
                                  "encoder_last_hidden"));
        else if (strcmp(name, "loss") != 0 && !has_prefix(name, grad_prefix))
            fsdp_verify_skipped(run->c, name, "the model has no such output");
    }
    return FSDP_OK;
}

static fsdp_status forward(batch_run *run)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = run->batch};
    FSDP_TRY(fsdp_scope_open(run->c->device, NULL, &options, &s));
    run->outputs = fsdp_t5_logits(s, run->model->module);
    fsdp_status status = fsdp_agree(run->c->group, fsdp_scope_status(s));
    if (status == FSDP_OK)
        status = compare_forward(run);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status compare_loss(batch_run *run, double loss)
{
    const fsdp_checkpoint_entry *entry = fsdp_checkpoint_find(run->expected, "loss");
    if (!entry)
        return FSDP_OK;
    float *want;
    double tolerance;
    const char *measure;
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, NULL, 0));
    FSDP_TRY(fsdp_verify_tolerance(run->c, "loss", NULL, &tolerance, &measure));
    FSDP_TRY(fsdp_verify_floats(entry, &want));
    fsdp_verify_compared(run->c, fabs(loss - (double)want[0]), tolerance, measure, "loss");
    fsdp_free(want);
    return FSDP_OK;
}

static fsdp_status compare_gradient(batch_run *run, const fsdp_checkpoint_entry *entry,
                                    const fsdp_parameter *p)
{
    double tolerance;
    const char *measure;
    fsdp_tensor *full;
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, p->shape, p->ndim));
    FSDP_TRY(fsdp_verify_tolerance(run->c, "grad", NULL, &tolerance, &measure));
    FSDP_TRY(fsdp_full_tensor(p->sink.grad, &full));
    float *want = NULL, *got = fsdp_calloc((size_t)entry->numel, sizeof *got);
    fsdp_status status = got ? fsdp_tensor_to_floats(full, got) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_verify_floats(entry, &want);
    double difference = 0, largest = 0;
    for (int64_t k = 0; status == FSDP_OK && k < entry->numel; k++) {
        double d = fabs((double)got[k] - (double)want[k]);
        if (!(d <= difference))
            difference = d;
        largest = fmax(largest, fabs((double)want[k]));
    }
    if (largest > 0 && strcmp(measure, "absolute") != 0)
        difference /= largest;
    if (status == FSDP_OK)
        fsdp_verify_compared(run->c, difference, tolerance, measure, "%s", entry->name);
    fsdp_free(got);
    fsdp_free(want);
    fsdp_tensor_release(full);
    return status;
}

static fsdp_status compare_gradients(batch_run *run)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(run->model->module, true, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < fsdp_checkpoint_count(run->expected) && status == FSDP_OK; i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(run->expected, i);
        if (!has_prefix(entry->name, grad_prefix))
            continue;
        const fsdp_parameter *p = NULL;
        for (size_t k = 0; k < list.n && !p; k++)
            if (strcmp(list.items[k].name, entry->name + strlen(grad_prefix)) == 0)
                p = list.items[k].parameter;
        if (p && p->sink.grad)
            status = compare_gradient(run, entry, p);
        else
            fsdp_verify_compared(run->c, (double)INFINITY, 0, "absolute", "%s: %s", entry->name,
                                 p ? "no gradient" : "no such parameter");
    }
    fsdp_parameter_list_free(&list);
    return status;
}

/* Every rank runs the same batch, so the mean over ranks is its gradient. */
static fsdp_status backward(batch_run *run)
{
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = run->batch};
    double loss = 0;
    int32_t labels = run->batch->label_tokens;
    FSDP_TRY(fsdp_tape_create(&tape));
    fsdp_status status = fsdp_scope_open(run->c->device, tape, &options, &s);
    if (status == FSDP_OK) {
        fsdp_tensor *value =
            fsdp_t5_loss(s, run->model->module, labels ? 1.0f / (float)labels : 0.0f);
        status = fsdp_scope_status(s);
        if (status == FSDP_OK)
            status = fsdp_tensor_item(value, &loss);
        if (status == FSDP_OK)
            status = fsdp_backward(tape, &value, NULL, 1);
        fsdp_scope_close(s);
    }
    if (status == FSDP_OK)
        status = compare_loss(run, loss);
    if (status == FSDP_OK)
        status = compare_gradients(run);
    fsdp_tape_destroy(tape);
    return status;
}

static fsdp_status hook_hidden_states(batch_run *run)
{
    size_t n = fsdp_checkpoint_count(run->expected);
    run->captures = fsdp_calloc(n, sizeof(capture *));
    if (!run->captures)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const char *name = fsdp_checkpoint_at(run->expected, i)->name;
        fsdp_module *m = has_prefix(name, hidden_prefix)
                             ? fsdp_module_find(run->model->module, name + strlen(hidden_prefix))
                             : NULL;
        if (m)
            FSDP_TRY(add_capture(m, &run->captures[i]));
    }
    return FSDP_OK;
}

static fsdp_status open_files(batch_run *run)
{
    char *inputs = fsdp_verify_path(run->c, "inputs.safetensors");
    char *expected = fsdp_verify_path(run->c, "expected.safetensors");
    fsdp_status status = inputs && expected ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_checkpoint_open(inputs, &run->inputs);
    if (status == FSDP_OK)
        status = fsdp_checkpoint_open(expected, &run->expected);
    fsdp_free(inputs);
    fsdp_free(expected);
    return status;
}

fsdp_status fsdp_verify_expected(fsdp_verify_case *c)
{
    batch_run run = {.c = c};
    fsdp_status status = fsdp_agree(c->group, open_files(&run));
    if (status == FSDP_OK)
        status = fsdp_verify_open_model(c, NULL, &run.model);
    if (status == FSDP_OK)
        status = fsdp_agree(c->group,
                            fsdp_verify_batch(run.inputs, &run.model->config, 0, NULL, &run.batch));
    if (status == FSDP_OK)
        status = fsdp_agree(c->group, hook_hidden_states(&run));
    if (status == FSDP_OK)
        status = forward(&run);
    if (status == FSDP_OK)
        status = backward(&run);
    fsdp_batch_release(run.batch);
    fsdp_model_close(run.model); /* captures go with it */
    fsdp_free(run.captures);
    fsdp_checkpoint_close(run.expected);
    fsdp_checkpoint_close(run.inputs);
    return status;
}

/* --- configurations --- */

static bool same_shape(const fsdp_t5_config *a, const fsdp_t5_config *b)
{
    return a->vocab_size == b->vocab_size && a->d_model == b->d_model && a->d_ff == b->d_ff &&
           a->d_kv == b->d_kv && a->num_layers == b->num_layers &&
           a->num_decoder_layers == b->num_decoder_layers && a->num_heads == b->num_heads &&
           a->relative_attention_num_buckets == b->relative_attention_num_buckets &&
           a->relative_attention_max_distance == b->relative_attention_max_distance;
}

/* Whether the head is tied the weights say, whatever the file. */
static bool same_meaning(const fsdp_t5_config *a, const fsdp_t5_config *b)
{
    return same_shape(a, b) && a->dropout_rate == b->dropout_rate &&
           a->layer_norm_epsilon == b->layer_norm_epsilon && a->is_gated_act == b->is_gated_act &&
           a->scale_decoder_outputs == b->scale_decoder_outputs &&
           a->pad_token_id == b->pad_token_id && a->eos_token_id == b->eos_token_id &&
           a->decoder_start_token_id == b->decoder_start_token_id && a->dtype == b->dtype;
}

fsdp_status fsdp_verify_config_form(fsdp_verify_case *c)
{
    fsdp_t5_config model, other;
    char *dir = fsdp_verify_path(c, "model");
    char *file = fsdp_verify_path(c, "config_other_form.json");
    fsdp_status status = dir && file ? fsdp_t5_config_read(dir, &model) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_t5_config_read(file, &other);
    if (status == FSDP_OK)
        fsdp_verify_compared(c, same_meaning(&model, &other) ? 0 : 1, 0, "differing",
                             "config_other_form.json");
    fsdp_free(dir);
    fsdp_free(file);
    return status;
}

/* Count the buckets of list `key` that this build computes otherwise. */
static fsdp_status compare_buckets(fsdp_verify_case *c, fsdp_json_node table,
                                   const char *table_name, const char *key, int64_t first)
{
    int64_t buckets, max_distance, *want;
    size_t n;
    FSDP_TRY(fsdp_json_get_i64(table, "num_buckets", 4, INT32_MAX, &buckets));
    FSDP_TRY(fsdp_json_get_i64(table, "max_distance", 1, INT32_MAX, &max_distance));
    FSDP_TRY(fsdp_json_get_i64s(table, key, 0, INT32_MAX, &want, &n));
    int64_t differing = 0;
    for (size_t i = 0; i < n; i++)
        differing += fsdp_relative_position_bucket(first + (int64_t)i, strcmp(key, "encoder") == 0,
                                                   buckets, max_distance) != want[i];
    fsdp_free(want);
    fsdp_verify_compared(c, (double)differing, 0, "differing", "relative_buckets.json: %s %s",
                         table_name, key);
    return FSDP_OK;
}

fsdp_status fsdp_verify_buckets(fsdp_verify_case *c)
{
    static const char *const tables[] = {"model", "default"};
    char *path = fsdp_verify_path(c, "relative_buckets.json");
    fsdp_json *doc = NULL;
    int64_t first = 0;
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status =
            fsdp_json_get_i64(fsdp_json_root(doc), "first_distance", INT32_MIN, INT32_MAX, &first);
    for (int i = 0; i < 2 && status == FSDP_OK; i++) {
        fsdp_json_node table;
        status = fsdp_json_opt_object(fsdp_json_root(doc), tables[i], &table);
        if (status == FSDP_OK && table.value)
            status = compare_buckets(c, table, tables[i], "encoder", first);
        if (status == FSDP_OK && table.value)
            status = compare_buckets(c, table, tables[i], "decoder", first);
    }
    fsdp_json_destroy(doc);
    fsdp_free(path);
    return status;
}
