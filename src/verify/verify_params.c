/* The part of `fsdp verify` that compares parameters after training: their values, and whether
 * training changed them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/pretrained/pretrained.h"
#include "src/verify/verify_training.h"

/* --- values --- */

/* Set [*begin, *end) to the elements of a parameter that are biases of attention keys. The range is
 * empty for most parameters. GPT-2 has one parameter for three kinds of biases: first those of
 * queries, then those of keys, then those of values. Biases of keys cannot be compared. They add
 * the same amount to all scores of a query, so softmax cancels them, and their gradients are only
 * rounding errors. But AdamW turns even such gradients into updates of full size. */
static void ignored_by_softmax(const char *name, int64_t numel, int64_t *begin, int64_t *end)
{
    *begin = *end = 0;
    if (fsdp_ends_with(name, ".attention.self.key.bias")) {
        *end = numel;
    } else if (fsdp_ends_with(name, ".attn.c_attn.bias")) {
        *begin = numel / 3;
        *end = 2 * (numel / 3);
    }
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Append the absolute differences between a parameter and `entry` to the array `apart`, whose
 * length is *n, and increase *n. Elements that softmax cancels (ignored_by_softmax()) are left out.
 * NaN counts as infinite. */
static fsdp_status add_differences(const fsdp_checkpoint_entry *entry,
                                   const fsdp_named_parameter *item, float *apart, int64_t *n)
{
    const fsdp_parameter *p = item->parameter;
    float *want, *got = NULL;
    int64_t skip, until;
    FSDP_TRY(
        fsdp_checkpoint_entry_check_shape(entry, fsdp_parameter_shape(p), fsdp_parameter_ndim(p)));
    FSDP_TRY(fsdp_verify_floats(entry, &want));
    fsdp_status status = fsdp_verify_full(fsdp_parameter_local(p), &got);
    ignored_by_softmax(item->name, entry->numel, &skip, &until);
    for (int64_t i = 0; i < entry->numel && status == FSDP_OK; i++) {
        float d = fabsf(got[i] - want[i]);
        if (i < skip || i >= until)
            apart[(*n)++] = d >= 0 ? d : (float)INFINITY;
    }
    fsdp_free(got);
    fsdp_free(want);
    return status;
}

/* Return the same as torch.quantile(sorted, q), which interpolates linearly. The values must be in
 * ascending order. */
static double quantile(const float *sorted, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t below = (int64_t)at, above = below + 1 < n ? below + 1 : below;
    double part = at - (double)below;
    return (double)sorted[below] * (1 - part) + (double)sorted[above] * part;
}

static fsdp_status judge(fsdp_verify_case *c, float *apart, int64_t n)
{
    double each, most;
    FSDP_TRY(
        fsdp_verify_tolerance(c, "trajectory", "final_params_99_9_percent_absolute", &most, NULL));
    FSDP_TRY(fsdp_verify_tolerance(c, "trajectory", "final_params_absolute", &each, NULL));
    if (n == 0)
        return FSDP_OK;
    qsort(apart, (size_t)n, sizeof *apart, by_value);
    fsdp_verify_compared(c, quantile(apart, n, 0.999), most, "absolute", "final_params: 99.9 %%");
    fsdp_verify_compared(c, (double)apart[n - 1], each, "absolute", "final_params: each");
    return FSDP_OK;
}

/* Compare the trained parameters with the tensors of the file `want`. The file must have a tensor
 * for each trainable parameter, and may have one for each frozen parameter. It must have no other
 * tensors. */
static fsdp_status compare_all(const fsdp_verify_training *t, const fsdp_checkpoint_reader *want,
                               float *apart)
{
    int64_t n = 0;
    size_t found = 0;
    for (size_t i = 0; i < t->parameters.n; i++) {
        const fsdp_named_parameter *item = &t->parameters.items[i];
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_find(want, item->name);
        if (!entry && !fsdp_parameter_requires_grad(item->parameter))
            continue;
        FSDP_TRY(fsdp_checkpoint_get(want, item->name, &entry));
        FSDP_TRY(add_differences(entry, item, apart, &n));
        found++;
    }
    if (found != fsdp_checkpoint_count(want))
        return fsdp_error(FSDP_ERR_FORMAT, "%s: %zu of its tensors are not parameters",
                          fsdp_checkpoint_path(want), fsdp_checkpoint_count(want) - found);
    return judge(t->c, apart, n);
}

fsdp_status fsdp_verify_final_params(const fsdp_verify_training *t, const char *file)
{
    fsdp_checkpoint_reader *want = NULL;
    int64_t numel = 0;
    FSDP_TRY(fsdp_agree(t->c->group, fsdp_verify_open_tensors(t->c, file, &want)));
    fsdp_status status = FSDP_OK;
    if (t->c->base_model)
        status =
            fsdp_checkpoint_unwrap_names(want, &(fsdp_name_change){.prefix = "base_model.model."});
    for (size_t i = 0; i < t->parameters.n; i++)
        numel += fsdp_parameter_numel(t->parameters.items[i].parameter);
    float *apart = fsdp_calloc((size_t)numel, sizeof *apart);
    if (status == FSDP_OK)
        status = apart ? compare_all(t, want, apart) : FSDP_ERR_NOMEM;
    fsdp_free(apart);
    fsdp_checkpoint_close(want);
    return status;
}

/* --- changed and unchanged parameters --- */

static bool is_listed(fsdp_json_node names, const char *name)
{
    for (size_t i = 0; i < fsdp_json_len(names); i++) {
        const char *listed;
        if (fsdp_json_get_str(fsdp_json_at(names, i), NULL, &listed) == FSDP_OK &&
            strcmp(listed, name) == 0)
            return true;
    }
    return false;
}

/* Set *changed to true if the parameter differs in any bit from its value before training. `start`
 * has the weights before training. */
static fsdp_status has_changed(const fsdp_checkpoint_reader *start,
                               const fsdp_named_parameter *item, bool *changed)
{
    const fsdp_checkpoint_entry *entry;
    float *before, *after = NULL;
    FSDP_TRY(fsdp_checkpoint_get(start, item->name, &entry));
    FSDP_TRY(fsdp_verify_floats(entry, &before));
    fsdp_status status = fsdp_verify_full(fsdp_parameter_local(item->parameter), &after);
    if (status == FSDP_OK)
        *changed = memcmp(before, after, (size_t)entry->numel * sizeof *before) != 0;
    fsdp_free(before);
    fsdp_free(after);
    return status;
}

static fsdp_status compare_changed(const fsdp_verify_training *t,
                                   const fsdp_checkpoint_reader *start, fsdp_json_node root)
{
    fsdp_json_node lists[2]; /* [0]: names of unchanged parameters; [1]: of changed ones */
    int64_t differing = 0;
    FSDP_TRY(fsdp_json_get_array(root, "unchanged", &lists[0]));
    FSDP_TRY(fsdp_json_get_array(root, "changed", &lists[1]));
    for (size_t i = 0; i < t->parameters.n; i++) {
        bool changed;
        FSDP_TRY(has_changed(start, &t->parameters.items[i], &changed));
        differing += !is_listed(lists[changed], t->parameters.items[i].name);
    }
    fsdp_verify_compared(t->c, (double)differing, 0, "differing",
                         "params.json: changed and unchanged");
    return FSDP_OK;
}

fsdp_status fsdp_verify_changed_params(const fsdp_verify_training *t)
{
    fsdp_checkpoint_reader *start = NULL;
    fsdp_json *doc = NULL;
    fsdp_name_change change;
    fsdp_status status = fsdp_verify_read_json(t->c, "params.json", &doc);
    if (status == FSDP_OK)
        status = fsdp_checkpoint_open(t->model->dir, &start);
    if (status == FSDP_OK)
        status = fsdp_pretrained_fit_names(&t->model->config, start, &change);
    status = fsdp_agree(t->c->group, status);
    if (status == FSDP_OK)
        status = compare_changed(t, start, fsdp_json_root(doc));
    fsdp_checkpoint_close(start);
    fsdp_json_destroy(doc);
    return status;
}
