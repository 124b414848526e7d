/* See golden_checks.h. */
#include "tests/models/golden_checks.h"

#include "src/base/alloc.h"

/* Checks that rows [n, width] of `actual` equal the rows at `positions` (NULL: 0 .. n) of entry
 * `name`. */
static void check_rows(fsdp_test *t, const fsdp_checkpoint_reader *expected, const char *name,
                       const fsdp_tensor *actual, const int64_t *positions)
{
    const fsdp_checkpoint_entry *entry = fsdp_checkpoint_find(expected, name);
    ASSERT(entry && entry->ndim >= 2 && actual);
    const int64_t rows = fsdp_tensor_size(actual, 0), width = entry->shape[entry->ndim - 1];
    ASSERT_INT(fsdp_tensor_size(actual, 1), width);
    ASSERT(positions || rows * width == entry->numel);
    float *values = fsdp_calloc((size_t)(rows * width), sizeof *values);
    ASSERT(values);
    ASSERT_OK(fsdp_tensor_to_floats(actual, values));
    const float *want = entry->data;
    for (int64_t i = 0; i < rows * width; i++) {
        const int64_t row = positions ? positions[i / width] : i / width;
        ASSERT_NEAR(values[i], want[row * width + i % width], 2e-5);
    }
    fsdp_free(values);
}

static void check_outputs(fsdp_test *t, model_case *c, const fsdp_checkpoint_reader *expected)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.batch = c->batch};
    ASSERT_OK(fsdp_scope_open(c->device, NULL, &options, &s));
    const fsdp_model_outputs out = fsdp_model_logits(s, c->model);
    ASSERT_OK(fsdp_scope_status(s));
    const bool seq2seq = c->batch->task == FSDP_TASK_SEQ2SEQ;
    const int64_t *source = c->batch->source_positions;
    const int64_t *tokens = seq2seq ? c->batch->target_positions : source;
    const bool by_row = c->batch->task == FSDP_TASK_CLASSIFICATION;
    check_rows(t, expected, "logits", out.logits, by_row ? NULL : tokens);
    CHECK_HERE();
    if (fsdp_checkpoint_find(expected, "last_hidden"))
        check_rows(t, expected, "last_hidden", out.last_hidden, tokens);
    CHECK_HERE();
    if (seq2seq)
        check_rows(t, expected, "encoder_last_hidden", out.encoder_last_hidden, source);
    fsdp_scope_close(s);
}

/* Differences are at most 3e-5 of the largest value: golden/README.md gives the differences of
 * PyTorch from itself. The absolute term is for gradients that are zero except for rounding,
 * because softmax cancels them. */
static void check_gradient(fsdp_test *t, const model_case *c, const fsdp_checkpoint_entry *entry)
{
    const float *want = entry->data;
    float *got, largest = 0;
    model_case_gradient(t, c, entry->name + strlen("grad."), &got);
    CHECK_HERE();
    for (int64_t k = 0; k < entry->numel; k++)
        largest = fmaxf(largest, fabsf(want[k]));
    for (int64_t k = 0; k < entry->numel; k++)
        if (!(fabsf(got[k] - want[k]) <= 3e-5f * largest + 4e-8f))
            FAIL("%s[%lld] is %g, not %g", entry->name, (long long)k, (double)got[k],
                 (double)want[k]);
    fsdp_free(got);
}

/* Checks the loss, and the gradient of every parameter, for c->batch. */
static void check_gradients(fsdp_test *t, model_case *c, const fsdp_checkpoint_reader *expected)
{
    double loss;
    fsdp_parameter_list list;
    size_t compared = 0;
    model_case_step(t, c, &loss);
    CHECK_HERE();
    ASSERT_NEAR(loss, *(const float *)fsdp_checkpoint_find(expected, "loss")->data, 1e-5);
    for (size_t i = 0; i < fsdp_checkpoint_count(expected); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(expected, i);
        if (strncmp(entry->name, "grad.", strlen("grad.")) != 0)
            continue;
        check_gradient(t, c, entry);
        CHECK_HERE();
        compared++;
    }
    ASSERT_OK(fsdp_module_parameters(c->model, false, &list));
    ASSERT_INT(compared, list.n);
    fsdp_parameter_list_free(&list);
}

void model_check_golden(fsdp_test *t, const char *name, const char *inputs, const char *expected)
{
    model_case c;
    fsdp_checkpoint_reader *numbers;
    model_case_open(t, name, inputs, NULL, &c);
    CHECK_HERE();
    model_case_expected(t, name, expected, &numbers);
    CHECK_HERE();
    check_outputs(t, &c, numbers);
    CHECK_HERE();
    check_gradients(t, &c, numbers);
    fsdp_checkpoint_close(numbers);
    model_case_close(&c);
}
