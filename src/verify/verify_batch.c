/* The part of `fsdp verify` that runs one batch forward and backward through the model. It compares
 * outputs, loss and gradients. expected.safetensors has results for padded rows.
 * packed_expected.safetensors has results for rows that contain several documents each. If a file
 * has separate_logits, each document is also run alone. */
#include <math.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/agree.h"
#include "src/models/model_type.h"
#include "src/nn/module.h"
#include "src/verify/verify_case.h"

/* --- capturing the outputs of modules, which are the hidden states --- */

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
    const char *prefix; /* put before reported names: "" or "packed: " */
    fsdp_model *model;
    fsdp_checkpoint_reader *inputs, *expected;
    fsdp_batch *batch;
    fsdp_model_outputs outputs; /* outputs of the last forward */
    bool has_head;              /* true if the model computes logits and a loss */
    /* one for each entry of `expected`; NULL: the entry is not a hidden state */
    capture **captures;
    double largest_grad; /* largest magnitude in all gradients of `expected` */
} batch_run;

static const char hidden_prefix[] = "hidden.", grad_prefix[] = "grad.";

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Find the positions in `entry`, an expected output of the model, that correspond to this library's
 * outputs. If `entry` has one vector for each token, the rows of `entry` are padded, but the rows
 * of the batch are not. In this case, return an array: element t is the index in `entry` of token t
 * of the batch. Set *tokens to the number of tokens: target tokens for the decoder of a seq2seq
 * model, otherwise source tokens. If `entry` has one vector for each row, return NULL, and set
 * *tokens to the number of rows. */
static const int64_t *positions_of(const batch_run *run, const fsdp_checkpoint_entry *entry,
                                   int64_t *tokens)
{
    const fsdp_batch *b = run->batch;
    const bool encoders = strstr(entry->name, "encoder") && !strstr(entry->name, "decoder");
    if (entry->ndim != 3) {
        *tokens = b->rows;
        return NULL;
    }
    const bool target = b->task == FSDP_TASK_SEQ2SEQ && !encoders;
    *tokens = target ? b->target_tokens : b->source_tokens;
    return target ? b->target_positions : b->source_positions;
}

/* Check the shape of an entry. It must be [rows, tokens of a padded row, width] or, for an output
 * with one row per sequence, [rows, width]. */
static fsdp_status check_rows_shape(const batch_run *run, const fsdp_checkpoint_entry *entry,
                                    int64_t width)
{
    const fsdp_checkpoint_entry *ids, *labels;
    FSDP_TRY(fsdp_checkpoint_get(run->inputs, "input_ids", &ids));
    if (entry->ndim != 3)
        return fsdp_checkpoint_entry_check_shape(entry, (const int64_t[]){ids->shape[0], width}, 2);
    const fsdp_checkpoint_entry *of = ids;
    if (positions_of(run, entry, &(int64_t){0}) == run->batch->target_positions) {
        FSDP_TRY(fsdp_checkpoint_get(run->inputs, "labels", &labels));
        of = labels;
    }
    return fsdp_checkpoint_entry_check_shape(
        entry, (const int64_t[]){of->shape[0], of->shape[1], width}, 3);
}

/* Compare `got` with `entry`. `got` is [rows, width] and has no padding. `entry` is padded. */
static fsdp_status compare_floats(batch_run *run, const fsdp_checkpoint_entry *entry,
                                  const float *got, int64_t rows, int64_t width,
                                  const char *tolerance_key)
{
    double tolerance, largest = 0;
    const char *measure;
    float *want;
    int64_t tokens;
    const int64_t *positions = positions_of(run, entry, &tokens);
    FSDP_TRY(check_rows_shape(run, entry, width));
    if (rows != tokens)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' has other rows than the model's %lld",
                          entry->path, entry->name, (long long)rows);
    FSDP_TRY(fsdp_verify_tolerance(run->c, tolerance_key, NULL, &tolerance, &measure));
    FSDP_TRY(fsdp_verify_floats(entry, &want));
    for (int64_t t = 0; t < rows; t++)
        fsdp_verify_max(&largest,
                        fsdp_verify_largest(got + t * width,
                                            want + (positions ? positions[t] : t) * width, width));
    fsdp_verify_compared(run->c, largest, tolerance, measure, "%s%s", run->prefix, entry->name);
    fsdp_free(want);
    return FSDP_OK;
}

static fsdp_status compare_rows(batch_run *run, const fsdp_checkpoint_entry *entry,
                                const fsdp_tensor *actual, const char *tolerance_key)
{
    float *got = fsdp_calloc((size_t)fsdp_tensor_numel(actual), sizeof *got);
    fsdp_status status = got ? fsdp_tensor_to_floats(actual, got) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = compare_floats(run, entry, got, fsdp_tensor_size(actual, 0),
                                fsdp_tensor_row_numel(actual), tolerance_key);
    fsdp_free(got);
    return status;
}

/* --- running each document alone --- */

/* The largest allowed difference between a document's logits in a packed row and its logits when it
 * is run alone. The golden folders use the same tolerance. */
static const double documents_absolute = 5e-6;

/* Run sequence `i` of the batch alone, and write its logits to `out`: [tokens of the sequence,
 * vocabulary]. */
static fsdp_status logits_alone(batch_run *run, int32_t i, float *out)
{
    const fsdp_batch *all = run->batch;
    const int32_t begin = all->source_offsets[i], end = all->source_offsets[i + 1];
    const fsdp_batch_row row = {.source = all->input_ids + begin, .source_len = end - begin};
    fsdp_batch *batch;
    fsdp_scope *s;
    FSDP_TRY(fsdp_batch_create(&row, 1, &run->model->info.format, &batch));
    fsdp_scope_options options = {.batch = batch};
    fsdp_status status = fsdp_scope_open(run->c->device, NULL, &options, &s);
    if (status == FSDP_OK) {
        fsdp_model_outputs outputs = fsdp_model_logits(s, run->model->module);
        status = fsdp_scope_status(s);
        if (status == FSDP_OK)
            status = fsdp_tensor_to_floats(outputs.logits, out);
        fsdp_scope_close(s);
    }
    fsdp_batch_release(batch);
    return fsdp_agree(run->c->group, status);
}

static fsdp_status compare_separate(batch_run *run, const fsdp_checkpoint_entry *entry,
                                    const float *packed)
{
    const int64_t tokens = run->batch->source_tokens, width = run->model->info.vocab_size;
    float *alone = fsdp_calloc((size_t)(tokens * width), sizeof *alone);
    fsdp_status status = alone ? FSDP_OK : FSDP_ERR_NOMEM;
    for (int32_t i = 0; i < run->batch->rows && status == FSDP_OK; i++)
        status = logits_alone(run, i, alone + run->batch->source_offsets[i] * width);
    if (status == FSDP_OK)
        status = compare_floats(run, entry, alone, tokens, width, "logits");
    if (status == FSDP_OK)
        fsdp_verify_compared(run->c, fsdp_verify_largest(packed, alone, tokens * width),
                             documents_absolute, "absolute", "%sdocuments alone and together",
                             run->prefix);
    fsdp_free(alone);
    return status;
}

/* If the file has separate_logits, run each document alone, and compare its logits twice: with
 * separate_logits, for which PyTorch also ran each document alone, and with `packed`, the logits
 * that this library computed for all documents in one batch. */
static fsdp_status verify_separate(batch_run *run, const float *packed)
{
    const fsdp_checkpoint_entry *entry = fsdp_checkpoint_find(run->expected, "separate_logits");
    return entry ? compare_separate(run, entry, packed) : FSDP_OK;
}

/* --- forward --- */

static bool is_separate(const batch_run *run, const char *name)
{
    return run->batch->task == FSDP_TASK_CAUSAL_LM && strcmp(name, "separate_logits") == 0;
}

/* If `entry` is a buffer that the model computes from its configuration, such as Llama's inv_freq,
 * compare it with the model's buffer and set *done to true. */
static fsdp_status compare_buffer(batch_run *run, const fsdp_checkpoint_entry *entry, bool *done)
{
    const fsdp_model_type *type = run->model->config.type;
    int64_t n = 0;
    const float *got = type->buffer ? type->buffer(run->model->module, entry->name, &n) : NULL;
    double tolerance;
    const char *measure;
    float *want;
    *done = got != NULL;
    if (!got)
        return FSDP_OK;
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, &n, 1));
    FSDP_TRY(fsdp_verify_tolerance(run->c, entry->name, NULL, &tolerance, &measure));
    FSDP_TRY(fsdp_verify_floats(entry, &want));
    fsdp_verify_compared(run->c, fsdp_verify_largest(got, want, n), tolerance, measure, "%s%s",
                         run->prefix, entry->name);
    fsdp_free(want);
    return FSDP_OK;
}

static fsdp_status compare_output(batch_run *run, size_t i)
{
    const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(run->expected, i);
    const char *name = entry->name;
    const capture *captured = run->captures[i];
    const struct {
        const char *name;
        const fsdp_tensor *tensor;
    } outputs[] = {{"logits", run->outputs.logits},
                   {"last_hidden", run->outputs.last_hidden},
                   {"encoder_last_hidden", run->outputs.encoder_last_hidden}};
    if (captured && captured->output)
        return compare_rows(run, entry, captured->output, "hidden");
    for (size_t k = 0; k < FSDP_LENGTH(outputs); k++)
        if (strcmp(name, outputs[k].name) == 0 && outputs[k].tensor)
            return compare_rows(run, entry, outputs[k].tensor, name);
    /* other functions compare these entries: verify_separate() and backward() */
    if (strcmp(name, "loss") == 0 || has_prefix(name, grad_prefix) || is_separate(run, name))
        return FSDP_OK;
    bool is_buffer;
    FSDP_TRY(compare_buffer(run, entry, &is_buffer));
    if (!is_buffer)
        fsdp_verify_skipped(run->c, name, "the model does not have this output");
    return FSDP_OK;
}

static fsdp_status compare_forward(batch_run *run, float **logits)
{
    for (size_t i = 0; i < fsdp_checkpoint_count(run->expected); i++)
        FSDP_TRY(compare_output(run, i));
    run->has_head = run->outputs.logits != NULL;
    if (!run->has_head)
        return FSDP_OK;
    *logits = fsdp_calloc((size_t)fsdp_tensor_numel(run->outputs.logits), sizeof **logits);
    return *logits ? fsdp_tensor_to_floats(run->outputs.logits, *logits) : FSDP_ERR_NOMEM;
}

static fsdp_status forward(batch_run *run)
{
    fsdp_scope *s;
    float *logits = NULL;
    fsdp_scope_options options = {.batch = run->batch};
    FSDP_TRY(fsdp_scope_open(run->c->device, NULL, &options, &s));
    run->outputs = fsdp_model_logits(s, run->model->module);
    fsdp_status status = fsdp_agree(run->c->group, fsdp_scope_status(s));
    if (status == FSDP_OK)
        status = compare_forward(run, &logits);
    fsdp_scope_close(s);
    if (status == FSDP_OK && run->has_head)
        status = verify_separate(run, logits);
    fsdp_free(logits);
    return status;
}

/* --- backward --- */

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
    fsdp_verify_compared(run->c, fabs(loss - (double)want[0]), tolerance, measure, "%sloss",
                         run->prefix);
    fsdp_free(want);
    return FSDP_OK;
}

static double largest_of(const float *values, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)values[i]));
    return largest;
}

static fsdp_status find_largest_grad(batch_run *run)
{
    for (size_t i = 0; i < fsdp_checkpoint_count(run->expected); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(run->expected, i);
        float *values;
        if (!has_prefix(entry->name, grad_prefix))
            continue;
        FSDP_TRY(fsdp_verify_floats(entry, &values));
        run->largest_grad = fmax(run->largest_grad, largest_of(values, entry->numel));
        fsdp_free(values);
    }
    return FSDP_OK;
}

/* Return true if `parameter` is in the list zero_gradients of tolerance.json. The exact gradient of
 * such a parameter is zero, for instance because the parameter is a bias that softmax cancels. So
 * its computed gradient is only rounding error. */
static bool is_zero_gradient(const batch_run *run, const char *parameter)
{
    const fsdp_json_node none = {0};
    fsdp_json_node root = run->c->tolerance ? fsdp_json_root(run->c->tolerance) : none;
    fsdp_json_node names = fsdp_json_find(root, "zero_gradients");
    for (size_t i = 0; i < fsdp_json_len(names); i++) {
        const char *name;
        if (fsdp_json_get_str(fsdp_json_at(names, i), NULL, &name) == FSDP_OK &&
            strcmp(name, parameter) == 0)
            return true;
    }
    return false;
}

/* Compare the gradient of p with `entry`. Usually the largest difference is divided by the largest
 * magnitude in `entry`. If is_zero_gradient() returns true for p, it is divided by the largest
 * magnitude in all gradients of the file. If the tolerance for gradients in tolerance.json is
 * absolute, the difference is not divided. */
static fsdp_status compare_gradient(batch_run *run, const fsdp_checkpoint_entry *entry,
                                    const fsdp_parameter *p)
{
    double tolerance;
    const char *measure;
    float *got, *want = NULL;
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, p->shape, p->ndim));
    FSDP_TRY(fsdp_verify_tolerance(run->c, "grad", NULL, &tolerance, &measure));
    FSDP_TRY(fsdp_verify_full(p->sink.grad, &got));
    fsdp_status status = fsdp_verify_floats(entry, &want);
    if (status == FSDP_OK) {
        double difference = fsdp_verify_largest(got, want, entry->numel);
        bool zero = is_zero_gradient(run, entry->name + strlen(grad_prefix));
        double largest = zero ? run->largest_grad : largest_of(want, entry->numel);
        if (largest > 0 && strcmp(measure, "absolute") != 0)
            difference /= largest;
        fsdp_verify_compared(run->c, difference, tolerance, measure, "%s%s", run->prefix,
                             entry->name);
    }
    fsdp_free(got);
    fsdp_free(want);
    return status;
}

static const fsdp_parameter *find_parameter(const fsdp_parameter_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return list->items[i].parameter;
    return NULL;
}

static fsdp_status compare_gradients(batch_run *run)
{
    fsdp_parameter_list list;
    FSDP_TRY(find_largest_grad(run));
    FSDP_TRY(fsdp_module_parameters(run->model->module, true, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < fsdp_checkpoint_count(run->expected) && status == FSDP_OK; i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(run->expected, i);
        if (!has_prefix(entry->name, grad_prefix))
            continue;
        const fsdp_parameter *p =
            find_parameter(&list, fsdp_verify_parameter_name(entry->name + strlen(grad_prefix)));
        if (p && p->sink.grad)
            status = compare_gradient(run, entry, p);
        else
            fsdp_verify_compared(run->c, (double)INFINITY, 0, "absolute", "%s%s: %s", run->prefix,
                                 entry->name, p ? "no gradient" : "no such parameter");
    }
    fsdp_parameter_list_free(&list);
    return status;
}

/* Run forward and backward, and compare the loss and the gradients. All ranks run the same batch,
 * so the mean of their gradients is the gradient of this batch. */
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
            fsdp_model_loss(s, run->model->module, labels ? 1.0f / (float)labels : 0.0f);
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

/* Report the loss and the gradients as not compared. The model has no head, so it has no loss. */
static void skip_backward(batch_run *run)
{
    for (size_t i = 0; i < fsdp_checkpoint_count(run->expected); i++) {
        const char *name = fsdp_checkpoint_at(run->expected, i)->name;
        if (strcmp(name, "loss") == 0 || has_prefix(name, grad_prefix))
            fsdp_verify_skipped(run->c, name, "the model has no loss");
    }
}

/* --- one file of expected results --- */

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

static fsdp_status verify_file(batch_run *run, const char *inputs, const char *expected)
{
    fsdp_verify_case *c = run->c;
    fsdp_status status = fsdp_verify_open_tensors(c, inputs, &run->inputs);
    if (status == FSDP_OK)
        status = fsdp_verify_open_tensors(c, expected, &run->expected);
    status = fsdp_agree(c->group, status);
    if (status == FSDP_OK)
        status = c->base_model
                     ? fsdp_verify_open_model(c, c->base_model, "adapter", NULL, &run->model)
                     : fsdp_verify_open_model(c, "model", NULL, NULL, &run->model);
    if (status == FSDP_OK)
        status = fsdp_agree(
            c->group, fsdp_verify_batch(run->inputs, &run->model->info, 0, NULL, &run->batch));
    if (status == FSDP_OK)
        status = fsdp_agree(c->group, hook_hidden_states(run));
    if (status == FSDP_OK)
        status = forward(run);
    if (status == FSDP_OK && run->has_head)
        status = backward(run);
    else if (status == FSDP_OK)
        skip_backward(run);
    fsdp_batch_release(run->batch);
    fsdp_model_close(run->model); /* also frees the captures */
    fsdp_free(run->captures);
    fsdp_checkpoint_close(run->expected);
    fsdp_checkpoint_close(run->inputs);
    return status;
}

fsdp_status fsdp_verify_expected(fsdp_verify_case *c)
{
    batch_run run = {.c = c, .prefix = ""};
    return verify_file(&run, c->base_inputs ? c->base_inputs : "inputs.safetensors",
                       "expected.safetensors");
}

fsdp_status fsdp_verify_packed(fsdp_verify_case *c)
{
    batch_run run = {.c = c, .prefix = "packed: "};
    return verify_file(&run, "packed_inputs.safetensors", "packed_expected.safetensors");
}
