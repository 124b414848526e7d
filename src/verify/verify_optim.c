/* The part of `fsdp verify` that compares optimizers, gradient clipping and learning rate schedules
 * with PyTorch's values in optim.json, optim.safetensors, clip.safetensors and schedules.json.
 * There is no model. Instead, the tensors of a file become the parameters of a module, which is
 * sharded over the ranks and has no forward. The gradients are also read from the file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/dtensor.h>
#include <fsdp/fsdp.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/nn/module.h"
#include "src/verify/verify_training.h"

/* The relative tolerance for optimizers and clipping. The golden folders use the same tolerance. */
static const double tolerance = 2e-6;

/* --- tensors as parameters --- */

static fsdp_status add_parameter(fsdp_module *module, const char *name,
                                 const fsdp_checkpoint_entry *entry)
{
    fsdp_parameter *p;
    return fsdp_module_add_parameter(module, name, entry->ndim, entry->shape,
                                     (fsdp_init){.mean = 0.0f}, &p);
}

/* Make a sharded module. It has one parameter for each tensor of the file whose name begins with
 * `prefix` and ends with `suffix`. The part of the name between them is the name of the parameter.
 * The parameters have no values yet. */
static fsdp_status make_module(const fsdp_verify_case *c, const fsdp_checkpoint_reader *file,
                               const char *prefix, const char *suffix, fsdp_module **module)
{
    fsdp_module *m;
    FSDP_TRY(fsdp_module_create("Tensors", &m));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < fsdp_checkpoint_count(file) && status == FSDP_OK; i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(file, i);
        char name[64];
        size_t n = strlen(entry->name), before = strlen(prefix), after = strlen(suffix);
        if (n <= before + after || strncmp(entry->name, prefix, before) != 0 ||
            strcmp(entry->name + n - after, suffix) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(n - before - after), entry->name + before);
        status = add_parameter(m, name, entry);
    }
    if (status == FSDP_OK)
        status = fsdp_fully_shard(m, c->group, c->device, NULL);
    if (status != FSDP_OK)
        fsdp_module_destroy(m);
    else
        *module = m;
    return status;
}

fsdp_status fsdp_verify_read_part(const fsdp_checkpoint_reader *file, const char *name,
                                  int64_t step, int64_t n, float **values)
{
    const fsdp_checkpoint_entry *entry;
    float *all;
    FSDP_TRY(fsdp_checkpoint_get(file, name, &entry));
    if (n < 1 || entry->numel % n != 0 || step >= entry->numel / n)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' has no step %lld of %lld elements",
                          entry->path, name, (long long)step, (long long)n);
    FSDP_TRY(fsdp_verify_floats(entry, &all));
    memmove(all, all + step * n, (size_t)n * sizeof *all);
    *values = all;
    return FSDP_OK;
}

fsdp_status fsdp_verify_set_values(fsdp_parameter *p, const float *whole)
{
    fsdp_tensor *local = fsdp_parameter_local(p);
    int64_t begin, end, rows = fsdp_parameter_shape(p)[0];
    fsdp_parameter_rows(p, &begin, &end);
    FSDP_TRY(fsdp_tensor_begin_write(local));
    const fsdp_status status =
        fsdp_tensor_copy_from_host(local, whole + begin * (fsdp_parameter_numel(p) / rows),
                                   (size_t)fsdp_tensor_numel(local) * sizeof *whole);
    fsdp_tensor_end_write(local);
    return status;
}

fsdp_status fsdp_verify_set_grad(fsdp_parameter *p, const float *whole)
{
    fsdp_tensor *local = fsdp_parameter_local(p), *grad;
    int64_t begin, end, rows = fsdp_parameter_shape(p)[0];
    fsdp_parameter_rows(p, &begin, &end);
    FSDP_TRY(fsdp_tensor_from_data(fsdp_tensor_device(local), FSDP_DTYPE_F32,
                                   fsdp_tensor_ndim(local), fsdp_tensor_shape(local),
                                   whole + begin * (fsdp_parameter_numel(p) / rows), FSDP_TAG_GRAD,
                                   &grad));
    const fsdp_status status =
        fsdp_is_dtensor(local)
            ? fsdp_dtensor_from_local(grad, fsdp_dtensor_group(local),
                                      fsdp_dtensor_placement(local), fsdp_dtensor_shape(local))
            : FSDP_OK;
    if (status != FSDP_OK) {
        fsdp_tensor_release(grad);
        return status;
    }
    fsdp_tensor_release(p->sink.grad);
    p->sink.grad = grad;
    return FSDP_OK;
}

/* Set the values of every parameter, or its gradient, from the file: `set` is
 * fsdp_verify_set_values() or fsdp_verify_set_grad(). The elements are those of step `step` in the
 * tensor <prefix><name of the parameter><suffix>. */
static fsdp_status set_all(const fsdp_parameter_list *list, const fsdp_checkpoint_reader *file,
                           const char *prefix, const char *suffix, int64_t step,
                           fsdp_status (*set)(fsdp_parameter *p, const float *whole))
{
    for (size_t i = 0; i < list->n; i++) {
        char name[160];
        float *values;
        snprintf(name, sizeof name, "%s%s%s", prefix, list->items[i].name, suffix);
        FSDP_TRY(fsdp_verify_read_part(file, name, step,
                                       fsdp_parameter_numel(list->items[i].parameter), &values));
        fsdp_status status = set(list->items[i].parameter, values);
        fsdp_free(values);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* Return the number of elements of the whole tensor of which `local` is this rank's shard. */
static int64_t numel_of_whole(const fsdp_tensor *local)
{
    const int64_t *shape = fsdp_dtensor_shape(local);
    int64_t n = 1;
    for (int d = 0; d < fsdp_tensor_ndim(local); d++)
        n *= shape[d];
    return n;
}

fsdp_status fsdp_verify_check_numel(const fsdp_tensor *local, const fsdp_checkpoint_entry *entry)
{
    const int64_t n = numel_of_whole(local);
    if (entry->numel == n)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' has %lld elements, not %lld", entry->path,
                      entry->name, (long long)entry->numel, (long long)n);
}

fsdp_status fsdp_verify_compare_part(fsdp_tensor *local, const fsdp_checkpoint_reader *file,
                                     const char *name, int64_t step, double *largest)
{
    float *got, *want = NULL;
    const int64_t n = numel_of_whole(local);
    FSDP_TRY(fsdp_verify_full(local, &got));
    fsdp_status status = fsdp_verify_read_part(file, name, step, n, &want);
    if (status == FSDP_OK) {
        double magnitude = 0;
        for (int64_t i = 0; i < n; i++)
            magnitude = fmax(magnitude, fabs((double)want[i]));
        fsdp_verify_max(largest,
                        fsdp_verify_largest(got, want, n) / (magnitude > 0 ? magnitude : 1));
    }
    fsdp_free(got);
    fsdp_free(want);
    return status;
}

fsdp_status fsdp_verify_compare_whole(fsdp_tensor *local, const fsdp_checkpoint_reader *file,
                                      const fsdp_checkpoint_entry *want, double *largest)
{
    FSDP_TRY(fsdp_verify_check_numel(local, want));
    return fsdp_verify_compare_part(local, file, want->name, 0, largest);
}

/* --- optimizers --- */

typedef struct optim_run {
    fsdp_verify_case *c;
    const fsdp_checkpoint_reader *file;
    const char *unit; /* a key of optim.json, e.g. "adamw"; names of result tensors begin with it */
    fsdp_module *module;
    fsdp_parameter_list list;
    fsdp_optimizer *optimizer;
    bool has_state;
    /* largest relative differences so far: `params` for parameters, `state` for the optimizer's
     * state */
    double params, state;
} optim_run;

static fsdp_status run_step(optim_run *r, int64_t step)
{
    FSDP_TRY(set_all(&r->list, r->file, "", ".grads", step, fsdp_verify_set_grad));
    FSDP_TRY(fsdp_optimizer_step(r->optimizer, 1.0f));
    for (size_t i = 0; i < r->list.n; i++) {
        const fsdp_parameter *p = r->list.items[i].parameter;
        char name[160];
        snprintf(name, sizeof name, "%s.%s.params", r->unit, r->list.items[i].name);
        FSDP_TRY(
            fsdp_verify_compare_part(fsdp_parameter_local(p), r->file, name, step, &r->params));
    }
    return FSDP_OK;
}

/* Compare the optimizer's state of a parameter with all of its state tensors in the file, which are
 * called "<unit>.<parameter>.state.<name>". */
static fsdp_status compare_state(optim_run *r, const fsdp_named_parameter *item)
{
    char prefix[160];
    snprintf(prefix, sizeof prefix, "%s.%s.state.", r->unit, item->name);
    for (size_t i = 0; i < fsdp_checkpoint_count(r->file); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(r->file, i);
        if (strncmp(entry->name, prefix, strlen(prefix)) != 0)
            continue;
        r->has_state = true;
        fsdp_tensor *state =
            fsdp_optimizer_state(r->optimizer, item->parameter, entry->name + strlen(prefix));
        if (state)
            FSDP_TRY(fsdp_verify_compare_whole(state, r->file, entry, &r->state));
        else
            r->state = (double)INFINITY;
    }
    return FSDP_OK;
}

static fsdp_status run_unit(optim_run *r, int64_t steps)
{
    FSDP_TRY(set_all(&r->list, r->file, "", ".start", 0, fsdp_verify_set_values));
    for (int64_t step = 0; step < steps; step++)
        FSDP_TRY(run_step(r, step));
    for (size_t i = 0; i < r->list.n; i++)
        FSDP_TRY(compare_state(r, &r->list.items[i]));
    fsdp_verify_compared(r->c, r->params, tolerance, "of the largest", "optim.json: %s: params",
                         r->unit);
    if (r->has_state)
        fsdp_verify_compared(r->c, r->state, tolerance, "of the largest", "optim.json: %s: state",
                             r->unit);
    return FSDP_OK;
}

static fsdp_status count_steps(const fsdp_checkpoint_reader *file, const fsdp_parameter_list *list,
                               int64_t *steps)
{
    const fsdp_checkpoint_entry *entry;
    char name[160];
    if (!list->n)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: no tensor '<name>.start'",
                          fsdp_checkpoint_path(file));
    snprintf(name, sizeof name, "%s.grads", list->items[0].name);
    FSDP_TRY(fsdp_checkpoint_get(file, name, &entry));
    *steps = entry->ndim ? entry->shape[0] : 0;
    return FSDP_OK;
}

static fsdp_status verify_unit(fsdp_verify_case *c, const fsdp_checkpoint_reader *file,
                               fsdp_json_node unit)
{
    optim_run r = {.c = c, .file = file, .unit = unit.key};
    fsdp_verify_optimizer options;
    const char *class_name;
    int64_t steps = 0;
    FSDP_TRY(fsdp_json_get_str(unit, "class", &class_name));
    FSDP_TRY(fsdp_verify_optimizer_read(unit, class_name, &options));
    FSDP_TRY(make_module(c, file, "", ".start", &r.module));
    fsdp_status status = fsdp_module_parameters(r.module, false, &r.list);
    if (status == FSDP_OK)
        status = count_steps(file, &r.list, &steps);
    if (status == FSDP_OK)
        status = fsdp_verify_optimizer_create(&options, r.module, &r.optimizer);
    if (status == FSDP_OK)
        status = run_unit(&r, steps);
    fsdp_optimizer_destroy(r.optimizer);
    fsdp_parameter_list_free(&r.list);
    fsdp_module_destroy(r.module);
    return status;
}

fsdp_status fsdp_verify_optim(fsdp_verify_case *c)
{
    fsdp_checkpoint_reader *file;
    fsdp_json *doc = NULL;
    FSDP_TRY(fsdp_agree(c->group, fsdp_verify_open_tensors(c, "optim.safetensors", &file)));
    fsdp_status status = fsdp_agree(c->group, fsdp_verify_read_json(c, "optim.json", &doc));
    fsdp_json_node unit = {0};
    if (status == FSDP_OK)
        unit = fsdp_json_first(fsdp_json_root(doc));
    for (; unit.value && status == FSDP_OK; unit = fsdp_json_next(unit)) {
        char quantity[160];
        status = verify_unit(c, file, unit);
        if (status != FSDP_ERR_UNSUPPORTED)
            continue;
        snprintf(quantity, sizeof quantity, "optim.json: %s", unit.key);
        fsdp_verify_skipped(c, quantity, "%s", fsdp_last_error());
        status = FSDP_OK;
    }
    fsdp_json_destroy(doc);
    fsdp_checkpoint_close(file);
    return status;
}

/* --- clipping --- */

/* Set all gradients from the file, clip them, and compare the total norm and the clipped gradients
 * with the expected ones. `unit` names the type of norm and the bound, e.g. "norm_2_max_0.5" for
 * the 2-norm and the bound 0.5. The names of the expected tensors begin with `unit`. */
static fsdp_status clip(fsdp_verify_case *c, const fsdp_checkpoint_reader *file,
                        const fsdp_parameter_list *list, const char *unit, double norm_type,
                        double max_norm)
{
    fsdp_clip_grad_options options = {.norm_type = norm_type};
    double total, difference = 0;
    float *want;
    char name[160];
    FSDP_TRY(set_all(list, file, "grad.", "", 0, fsdp_verify_set_grad));
    FSDP_TRY(fsdp_clip_grad_norm(list, max_norm, &options, &total, NULL));
    snprintf(name, sizeof name, "%s.total_norm", unit);
    FSDP_TRY(fsdp_verify_read_part(file, name, 0, 1, &want));
    fsdp_verify_compared(c, fsdp_verify_relative(total, (double)want[0]), tolerance, "relative",
                         "clip.safetensors: %s", name);
    fsdp_free(want);
    for (size_t i = 0; i < list->n; i++) {
        const fsdp_parameter *p = list->items[i].parameter;
        snprintf(name, sizeof name, "%s.clipped.%s", unit, list->items[i].name);
        FSDP_TRY(fsdp_verify_compare_part(fsdp_parameter_grad(p), file, name, 0, &difference));
    }
    fsdp_verify_compared(c, difference, tolerance, "of the largest", "clip.safetensors: %s.clipped",
                         unit);
    return FSDP_OK;
}

/* For each tensor "norm_<p>_max_<bound>.total_norm" of the file, clip with this norm and bound and
 * compare the results. p may be "inf". */
static fsdp_status clip_all(fsdp_verify_case *c, const fsdp_checkpoint_reader *file,
                            const fsdp_parameter_list *list)
{
    static const char end[] = ".total_norm";
    for (size_t i = 0; i < fsdp_checkpoint_count(file); i++) {
        const char *name = fsdp_checkpoint_at(file, i)->name, *dot = strstr(name, end);
        char unit[64], quantity[128];
        double norm_type, max_norm;
        if (!dot || dot[strlen(end)])
            continue;
        snprintf(unit, sizeof unit, "%.*s", (int)(dot - name), name);
        if (sscanf(unit, "norm_%lf_max_%lf", &norm_type, &max_norm) == 2 && norm_type > 0) {
            FSDP_TRY(clip(c, file, list, unit, norm_type, max_norm));
            continue;
        }
        snprintf(quantity, sizeof quantity, "clip.safetensors: %s", unit);
        fsdp_verify_skipped(c, quantity, "its name has no norm and bound");
    }
    return FSDP_OK;
}

fsdp_status fsdp_verify_clip(fsdp_verify_case *c)
{
    fsdp_checkpoint_reader *file;
    fsdp_module *module = NULL;
    fsdp_parameter_list list = {0};
    FSDP_TRY(fsdp_agree(c->group, fsdp_verify_open_tensors(c, "clip.safetensors", &file)));
    fsdp_status status = make_module(c, file, "grad.", "", &module);
    if (status == FSDP_OK)
        status = fsdp_module_parameters(module, false, &list);
    if (status == FSDP_OK)
        status = clip_all(c, file, &list);
    fsdp_parameter_list_free(&list);
    fsdp_module_destroy(module);
    fsdp_checkpoint_close(file);
    return status;
}

/* --- schedules --- */

/* Set *value to the number after `key` in the name of a schedule. A "_" in the number is a decimal
 * point, or a minus sign if it follows "e". For example, "gamma_0_7_every_4" has 0.7 after "gamma_"
 * and 4 after "every_", and "min_lr_2e_4" has 0.0002 after "min_lr_". Returns false if `key` is not
 * in the name. */
static bool number_in(const char *name, const char *key, double *value)
{
    char text[32];
    size_t n = 0;
    bool exponent = false;
    const char *at = strstr(name, key);
    if (!at)
        return false;
    for (at += strlen(key); *at && n + 1 < sizeof text; at++) {
        bool digit = *at >= '0' && *at <= '9', digit_next = at[1] >= '0' && at[1] <= '9';
        if (!digit && *at != 'e' && !(*at == '_' && digit_next))
            break;
        exponent = exponent || *at == 'e';
        text[n++] = *at != '_' ? *at : exponent ? '-' : '.';
    }
    text[n] = 0;
    *value = strtod(text, NULL);
    return n > 0;
}

static bool whole_number_in(const char *name, const char *key, int64_t *value)
{
    double number;
    bool found = number_in(name, key, &number);
    if (found)
        *value = (int64_t)number;
    return found;
}

/* Set *s to the schedule that `name` describes. `lr` is its base learning rate. Returns false if
 * this version does not support the schedule. */
static bool schedule_of(const char *name, double lr, fsdp_lr_schedule *s)
{
    *s = (fsdp_lr_schedule){.lr = lr, .kind = FSDP_LR_CONSTANT};
    bool warmup = whole_number_in(name, "warmup_", &s->warmup_steps);
    bool total = whole_number_in(name, "total_", &s->total_steps);
    (void)number_in(name, "min_lr_", &s->min_lr);
    if (strncmp(name, "constant", 8) == 0)
        return warmup || !name[8];
    if (strncmp(name, "step_", 5) == 0) {
        s->kind = FSDP_LR_STEP;
        return number_in(name, "gamma_", &s->gamma) &&
               whole_number_in(name, "every_", &s->step_size);
    }
    if (strncmp(name, "inverse_sqrt_", 13) == 0) {
        s->kind = FSDP_LR_INVERSE_SQRT;
        return warmup;
    }
    s->kind = strncmp(name, "linear_", 7) == 0 ? FSDP_LR_LINEAR : FSDP_LR_COSINE;
    return total && (s->kind == FSDP_LR_LINEAR || strncmp(name, "cosine_", 7) == 0);
}

/* Compare the learning rates of a schedule with the list `rates`. Rates after the last step of the
 * schedule are not compared, because they are not defined. */
static fsdp_status compare_rates(fsdp_verify_case *c, fsdp_json_node rates,
                                 const fsdp_lr_schedule *s)
{
    double largest = 0;
    FSDP_TRY(fsdp_lr_schedule_check(s));
    for (size_t i = 0; i < fsdp_json_len(rates); i++) {
        double want;
        FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(rates, i), NULL, &want));
        if (!s->total_steps || (int64_t)i <= s->total_steps)
            fsdp_verify_max(&largest, fabs(fsdp_lr_at(s, (int64_t)i) - want));
    }
    fsdp_verify_compared(c, largest, 1e-12, "absolute", "schedules.json: %s", rates.key);
    return FSDP_OK;
}

static fsdp_status compare_schedules(fsdp_verify_case *c, fsdp_json_node root)
{
    double lr;
    FSDP_TRY(fsdp_json_get_f64(root, "base_lr", &lr));
    for (fsdp_json_node v = fsdp_json_first(root); v.value; v = fsdp_json_next(v)) {
        fsdp_lr_schedule s;
        char quantity[160];
        if (strcmp(v.key, "base_lr") == 0)
            continue;
        if (schedule_of(v.key, lr, &s)) {
            FSDP_TRY(compare_rates(c, v, &s));
            continue;
        }
        snprintf(quantity, sizeof quantity, "schedules.json: %s", v.key);
        fsdp_verify_skipped(c, quantity, "this version does not support this schedule");
    }
    return FSDP_OK;
}

fsdp_status fsdp_verify_schedules(fsdp_verify_case *c)
{
    fsdp_json *doc = NULL;
    fsdp_status status = fsdp_verify_read_json(c, "schedules.json", &doc);
    if (status == FSDP_OK)
        status = compare_schedules(c, fsdp_json_root(doc));
    fsdp_json_destroy(doc);
    return fsdp_agree(c->group, status);
}
