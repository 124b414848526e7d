/* verify: training, as golden trajectories did it: each micro-batch's loss is the mean over its own
 * labels, and gradients are the mean over ranks and micro-batches ("mean of means"). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/dtensor.h>
#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/nn/module.h"
#include "src/train/verify_case.h"

enum {
    MAX_STEPS = 1 << 20
};

/* What a trajectory file says, or a part of expected_bf16.json. */
typedef struct recipe {
    bool sgd;
    double momentum, beta1, beta2, eps, weight_decay;
    double max_norm;
    fsdp_lr_schedule schedule;
    int64_t accumulation, steps;
    bool no_steps; /* the weights stay: each micro-batch by itself */
} recipe;

/* What a run gives: [steps] each. */
typedef struct trajectory {
    double *loss, *grad_norm, *lr;
    double *local_loss; /* [steps, world_size] */
} trajectory;

typedef struct training {
    fsdp_verify_case *c;
    fsdp_checkpoint_reader *inputs;
    fsdp_model *model;
    fsdp_optimizer *optimizer;
    fsdp_parameter_list parameters;
    fsdp_tape *tape;
} training;

static void trajectory_free(trajectory *t)
{
    fsdp_free(t->loss);
    fsdp_free(t->grad_norm);
    fsdp_free(t->lr);
    fsdp_free(t->local_loss);
}

static fsdp_status trajectory_alloc(trajectory *t, int64_t steps, int world_size)
{
    size_t n = (size_t)steps;
    t->loss = fsdp_calloc(n, sizeof(double));
    t->grad_norm = fsdp_calloc(n, sizeof(double));
    t->lr = fsdp_calloc(n, sizeof(double));
    t->local_loss = fsdp_calloc(n * (size_t)world_size, sizeof(double));
    return t->loss && t->grad_norm && t->lr && t->local_loss ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* --- one step --- */

/* Loss and gradients of micro-step `micro` on this rank, the a-th of `n` of its step. */
static fsdp_status run_leaf(training *t, int64_t micro, int64_t a, int64_t n, int64_t step,
                            double *loss)
{
    fsdp_verify_case *c = t->c;
    fsdp_batch *batch;
    fsdp_scope *s;
    const int64_t index[] = {micro, c->rank};
    FSDP_TRY(fsdp_verify_batch(t->inputs, &t->model->config, 2, index, &batch));
    fsdp_scope_options options = {.training = true,
                                  .step = (uint32_t)step,
                                  .leaf = (uint32_t)(a * c->world_size + c->rank),
                                  .micro_step = (int)a,
                                  .n_micro_steps = (int)n,
                                  .batch = batch};
    fsdp_status status = fsdp_scope_open(c->device, t->tape, &options, &s);
    if (status == FSDP_OK) {
        int32_t labels = batch->label_tokens;
        fsdp_tensor *value =
            fsdp_t5_loss(s, t->model->module, labels ? 1.0f / (float)labels : 0.0f);
        status = fsdp_scope_status(s);
        if (status == FSDP_OK)
            status = fsdp_tensor_item(value, loss);
        if (status == FSDP_OK)
            status = fsdp_backward(t->tape, &value, NULL, 1);
        fsdp_scope_close(s);
    }
    fsdp_batch_release(batch);
    return status;
}

static fsdp_status run_step(training *t, const recipe *r, int64_t step, trajectory *out)
{
    fsdp_verify_case *c = t->c;
    double local = 0;
    for (int64_t a = 0; a < r->accumulation; a++) {
        double loss;
        FSDP_TRY(run_leaf(t, step * r->accumulation + a, a, r->accumulation, step, &loss));
        local += loss / (double)r->accumulation;
    }
    double *locals = out->local_loss + step * c->world_size;
    locals[0] = local;
    if (c->world_size > 1)
        FSDP_TRY(fsdp_all_gather(c->group, &local, sizeof local, locals));
    for (int rank = 0; rank < c->world_size; rank++)
        out->loss[step] += locals[rank] / c->world_size;
    float scale;
    FSDP_TRY(fsdp_clip_grad_norm(&t->parameters, r->max_norm, NULL, &out->grad_norm[step], &scale));
    if (!r->no_steps) {
        out->lr[step] = fsdp_lr_at(&r->schedule, step);
        fsdp_optimizer_set_lr(t->optimizer, out->lr[step]);
        FSDP_TRY(fsdp_optimizer_step(t->optimizer, scale));
    }
    fsdp_optimizer_zero_grad(t->optimizer);
    return FSDP_OK;
}

/* --- a run --- */

static fsdp_status make_optimizer(const recipe *r, fsdp_module *module, fsdp_optimizer **optimizer)
{
    if (r->sgd) {
        fsdp_sgd_options o = fsdp_sgd_defaults();
        o.momentum = r->momentum;
        o.weight_decay = r->weight_decay;
        return fsdp_sgd_create(module, &o, optimizer);
    }
    fsdp_adamw_options o = fsdp_adamw_defaults();
    o.beta1 = r->beta1;
    o.beta2 = r->beta2;
    o.eps = r->eps;
    o.weight_decay = r->weight_decay;
    return fsdp_adamw_create(module, &o, optimizer);
}

static fsdp_status training_open(training *t, const recipe *r, const char *inputs,
                                 const fsdp_fully_shard_options *shard)
{
    char *path = fsdp_verify_path(t->c, inputs);
    fsdp_status status = path ? fsdp_checkpoint_open(path, &t->inputs) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    FSDP_TRY(fsdp_agree(t->c->group, status));
    FSDP_TRY(fsdp_verify_open_model(t->c, shard, &t->model));
    FSDP_TRY(fsdp_tape_create(&t->tape));
    FSDP_TRY(fsdp_module_parameters(t->model->module, false, &t->parameters));
    FSDP_TRY(make_optimizer(r, t->model->module, &t->optimizer));
    return fsdp_set_gradient_divide_factor(t->model->module,
                                           (double)(t->c->world_size * r->accumulation));
}

static void training_close(training *t)
{
    fsdp_optimizer_destroy(t->optimizer);
    fsdp_parameter_list_free(&t->parameters);
    fsdp_tape_destroy(t->tape);
    fsdp_model_close(t->model);
    fsdp_checkpoint_close(t->inputs);
}

/* Leaves the trained model in *t, which the caller closes, also after a failure. */
static fsdp_status train(training *t, const recipe *r, const char *inputs,
                         const fsdp_fully_shard_options *shard, trajectory *out)
{
    *out = (trajectory){0};
    FSDP_TRY(trajectory_alloc(out, r->steps, t->c->world_size));
    FSDP_TRY(training_open(t, r, inputs, shard));
    for (int64_t step = 0; step < r->steps; step++)
        FSDP_TRY(run_step(t, r, step, out));
    return FSDP_OK;
}

/* --- reading --- */

static fsdp_status read_optimizer(fsdp_json_node root, recipe *r)
{
    fsdp_json_node o;
    const char *name;
    FSDP_TRY(fsdp_json_get_object(root, "optimizer", &o));
    FSDP_TRY(fsdp_json_get_str(o, "name", &name));
    r->sgd = strcmp(name, "SGD") == 0;
    if (!r->sgd && strcmp(name, "AdamW") != 0)
        return fsdp_json_mismatch(o, "name", "\"AdamW\" or \"SGD\"");
    fsdp_json_node betas;
    FSDP_TRY(fsdp_json_opt_f64(o, "momentum", 0, &r->momentum));
    FSDP_TRY(fsdp_json_opt_f64(o, "weight_decay", r->sgd ? 0 : 0.01, &r->weight_decay));
    FSDP_TRY(fsdp_json_opt_f64(o, "eps", 1e-8, &r->eps));
    FSDP_TRY(fsdp_json_opt_array(o, "betas", &betas));
    r->beta1 = 0.9;
    r->beta2 = 0.999;
    if (!betas.value)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(betas, 0), NULL, &r->beta1));
    return fsdp_json_get_f64(fsdp_json_at(betas, 1), NULL, &r->beta2);
}

static fsdp_status read_schedule(fsdp_json_node root, recipe *r)
{
    fsdp_json_node s;
    const char *kind;
    fsdp_lr_schedule *to = &r->schedule;
    FSDP_TRY(fsdp_json_get_object(root, "schedule", &s));
    FSDP_TRY(fsdp_json_get_str(s, "kind", &kind));
    FSDP_TRY(fsdp_json_get_f64(s, "lr", &to->lr));
    if (strcmp(kind, "StepLR") == 0) {
        to->kind = FSDP_LR_STEP;
        FSDP_TRY(fsdp_json_get_f64(s, "gamma", &to->gamma));
        FSDP_TRY(fsdp_json_get_i64(s, "step_size", 1, MAX_STEPS, &to->step_size));
    } else if (strcmp(kind, "warmup_cosine_min_lr") == 0) {
        to->kind = FSDP_LR_COSINE;
        FSDP_TRY(fsdp_json_get_f64(s, "min_lr", &to->min_lr));
        FSDP_TRY(fsdp_json_get_i64(s, "warmup_steps", 0, MAX_STEPS, &to->warmup_steps));
        FSDP_TRY(fsdp_json_get_i64(s, "total_steps", 1, MAX_STEPS, &to->total_steps));
    } else {
        return fsdp_json_mismatch(s, "kind", "\"StepLR\" or \"warmup_cosine_min_lr\"");
    }
    return fsdp_lr_schedule_check(to);
}

static fsdp_status read_recipe(fsdp_json_node root, recipe *r)
{
    fsdp_json_node loss;
    FSDP_TRY(read_optimizer(root, r));
    FSDP_TRY(read_schedule(root, r));
    FSDP_TRY(fsdp_json_opt_f64(root, "clip_grad_norm", (double)INFINITY, &r->max_norm));
    FSDP_TRY(fsdp_json_opt_i64(root, "accumulation", 1, MAX_STEPS, 1, &r->accumulation));
    FSDP_TRY(fsdp_json_get_array(root, "loss", &loss));
    r->steps = (int64_t)fsdp_json_len(loss);
    return FSDP_OK;
}

/* --- comparing --- */

/* The largest difference of got[n] from the numbers of an array. */
static fsdp_status largest_difference(fsdp_json_node array, const double *got, int64_t n,
                                      bool relative, double *largest)
{
    if ((int64_t)fsdp_json_len(array) != n)
        return fsdp_json_mismatch(array, NULL, "%lld numbers", (long long)n);
    *largest = 0;
    for (int64_t i = 0; i < n; i++) {
        double want;
        FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(array, (size_t)i), NULL, &want));
        double d = fabs(got[i] - want);
        if (relative && want != 0)
            d /= fabs(want);
        if (!(d <= *largest))
            *largest = d;
    }
    return FSDP_OK;
}

static fsdp_status compare_local_losses(fsdp_verify_case *c, fsdp_json_node root, const char *name,
                                        const trajectory *got, const recipe *r, double tolerance)
{
    fsdp_json_node rows;
    double largest = 0, d;
    FSDP_TRY(fsdp_json_opt_array(root, "local_loss", &rows));
    if (!rows.value)
        return FSDP_OK;
    if ((int64_t)fsdp_json_len(rows) != r->steps)
        return fsdp_json_mismatch(root, "local_loss", "%lld steps", (long long)r->steps);
    for (int64_t s = 0; s < r->steps; s++) {
        FSDP_TRY(largest_difference(fsdp_json_at(rows, (size_t)s),
                                    got->local_loss + s * c->world_size, c->world_size, false, &d));
        if (!(d <= largest))
            largest = d;
    }
    fsdp_verify_compared(c, largest, tolerance, "absolute", "%s: local_loss", name);
    return FSDP_OK;
}

static fsdp_status compare_trajectory(fsdp_verify_case *c, fsdp_json_node root, const char *name,
                                      const trajectory *got, const recipe *r)
{
    double loss, norm, d;
    fsdp_json_node array;
    FSDP_TRY(fsdp_verify_tolerance(c, "trajectory", "loss_absolute", &loss, NULL));
    FSDP_TRY(fsdp_verify_tolerance(c, "trajectory", "grad_norm_relative", &norm, NULL));
    FSDP_TRY(fsdp_json_get_array(root, "loss", &array));
    FSDP_TRY(largest_difference(array, got->loss, r->steps, false, &d));
    fsdp_verify_compared(c, d, loss, "absolute", "%s: loss", name);
    FSDP_TRY(compare_local_losses(c, root, name, got, r, loss));
    FSDP_TRY(fsdp_json_get_array(root, "grad_norm", &array));
    FSDP_TRY(largest_difference(array, got->grad_norm, r->steps, true, &d));
    fsdp_verify_compared(c, d, norm, "relative", "%s: grad_norm", name);
    FSDP_TRY(fsdp_json_get_array(root, "lr", &array));
    FSDP_TRY(largest_difference(array, got->lr, r->steps, false, &d));
    fsdp_verify_compared(c, d, 1e-12, "absolute", "%s: lr", name);
    return FSDP_OK;
}

/* --- final parameters --- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Differences of one parameter into `apart`. NaN counts as infinite. */
static fsdp_status parameter_differences(const fsdp_checkpoint_reader *want,
                                         const fsdp_named_parameter *item, float *apart)
{
    const fsdp_checkpoint_entry *entry;
    const fsdp_parameter *p = item->parameter;
    fsdp_tensor *full;
    float *values;
    FSDP_TRY(fsdp_checkpoint_get(want, item->name, &entry));
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, p->shape, p->ndim));
    FSDP_TRY(fsdp_verify_floats(entry, &values));
    fsdp_status status = fsdp_full_tensor(p->local, &full);
    if (status == FSDP_OK) {
        status = fsdp_tensor_to_floats(full, apart);
        fsdp_tensor_release(full);
    }
    for (int64_t i = 0; i < entry->numel && status == FSDP_OK; i++) {
        float d = fabsf(apart[i] - values[i]);
        apart[i] = d >= 0 ? d : INFINITY;
    }
    fsdp_free(values);
    return status;
}

/* torch.quantile's linear interpolation over sorted values. */
static double quantile(const float *sorted, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t below = (int64_t)at, above = below + 1 < n ? below + 1 : below;
    double part = at - (double)below;
    return (double)sorted[below] * (1 - part) + (double)sorted[above] * part;
}

static fsdp_status compare_final(fsdp_verify_case *c, const training *t,
                                 const fsdp_checkpoint_reader *want)
{
    double each, most;
    int64_t numel = 0, at = 0;
    FSDP_TRY(
        fsdp_verify_tolerance(c, "trajectory", "final_params_99_9_percent_absolute", &most, NULL));
    FSDP_TRY(fsdp_verify_tolerance(c, "trajectory", "final_params_absolute", &each, NULL));
    for (size_t i = 0; i < t->parameters.n; i++)
        numel += fsdp_parameter_numel(t->parameters.items[i].parameter);
    float *apart = fsdp_calloc((size_t)numel, sizeof *apart);
    fsdp_status status = apart ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < t->parameters.n && status == FSDP_OK; i++) {
        status = parameter_differences(want, &t->parameters.items[i], apart + at);
        at += fsdp_parameter_numel(t->parameters.items[i].parameter);
    }
    if (status == FSDP_OK) {
        qsort(apart, (size_t)numel, sizeof *apart, by_value);
        fsdp_verify_compared(c, quantile(apart, numel, 0.999), most, "absolute",
                             "final_params: 99.9 %%");
        fsdp_verify_compared(c, (double)apart[numel - 1], each, "absolute", "final_params: each");
    }
    fsdp_free(apart);
    return status;
}

/* The parameters after the last step of the trajectory that they are kept from. */
static fsdp_status verify_final(fsdp_verify_case *c, const training *t)
{
    fsdp_checkpoint_reader *want;
    char *path = fsdp_verify_path(c, "final_params.safetensors");
    fsdp_status status = path ? fsdp_checkpoint_open(path, &want) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    FSDP_TRY(fsdp_agree(c->group, status));
    status = compare_final(c, t, want);
    fsdp_checkpoint_close(want);
    return status;
}

/* --- the files --- */

/* "w3": 3 ranks; "hsdp2x2": 2 replicas of 2 shards, which compute what 4 ranks do. */
static int64_t world_of_mesh(const char *mesh)
{
    int64_t world = 1;
    const char *at = mesh + strcspn(mesh, "0123456789");
    while (*at >= '0' && *at <= '9') {
        char *end;
        world *= strtol(at, &end, 10);
        at = end + (*end == 'x');
    }
    return at == mesh ? 0 : world;
}

fsdp_status fsdp_verify_is_of_this_world(const fsdp_verify_case *c, const char *file, bool *yes)
{
    char *path = fsdp_verify_path(c, file);
    fsdp_json *doc = NULL;
    const char *mesh;
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_json_get_str(fsdp_json_root(doc), "mesh", &mesh);
    if (status == FSDP_OK)
        *yes = world_of_mesh(mesh) == c->world_size;
    fsdp_json_destroy(doc);
    fsdp_free(path);
    return status;
}

/* Final parameters are kept of one trajectory: the one that was also resumed from its middle, which
 * tolerance.json tells; without that, cosine on two ranks. */
static bool is_kept_trajectory(const fsdp_verify_case *c, const char *name)
{
    const char *prefix = "trajectory_";
    const char *short_name = name + strlen(prefix);
    fsdp_json_node none = {0};
    fsdp_json_node root = c->tolerance ? fsdp_json_root(c->tolerance) : none;
    fsdp_json_node all = fsdp_json_find(root, "trajectories");
    if (fsdp_json_len(all) == 0)
        return strcmp(short_name, "cosine_w2") == 0;
    return fsdp_json_has(fsdp_json_find(all, short_name), "resumed");
}

static bool file_exists(const fsdp_verify_case *c, const char *name)
{
    char *path = fsdp_verify_path(c, name);
    bool found = path && fsdp_path_is_file(path);
    fsdp_free(path);
    return found;
}

fsdp_status fsdp_verify_trajectory(fsdp_verify_case *c, const char *file)
{
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)(strlen(file) - strlen(".json")), file);
    char *path = fsdp_verify_path(c, file);
    fsdp_json *doc = NULL;
    recipe r = {0};
    const char *inputs;
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    if (status == FSDP_OK)
        status = fsdp_json_get_str(fsdp_json_root(doc), "inputs", &inputs);
    if (status == FSDP_OK)
        status = read_recipe(fsdp_json_root(doc), &r);
    status = fsdp_agree(c->group, status);
    if (status == FSDP_OK) {
        training t = {.c = c};
        trajectory got;
        status = train(&t, &r, inputs, NULL, &got);
        if (status == FSDP_OK)
            status = compare_trajectory(c, fsdp_json_root(doc), name, &got, &r);
        if (status == FSDP_OK && is_kept_trajectory(c, name) &&
            file_exists(c, "final_params.safetensors"))
            status = verify_final(c, &t);
        trajectory_free(&got);
        training_close(&t);
    }
    fsdp_error_context(status, "%s", file);
    fsdp_json_destroy(doc);
    return status;
}

/* --- bfloat16 --- */

/* Loss and gradient norm of `values` = {"loss": {"bf16": [...]}, "grad_norm": ...} within
 * {"loss": ..., "grad_norm": ...}. */
static fsdp_status compare_bf16(fsdp_verify_case *c, fsdp_json_node values,
                                fsdp_json_node tolerances, const char *name, const trajectory *got,
                                int64_t steps)
{
    static const char *const keys[] = {"loss", "grad_norm"};
    for (int i = 0; i < 2; i++) {
        fsdp_json_node both, array;
        double tolerance, d;
        FSDP_TRY(fsdp_json_get_f64(tolerances, keys[i], &tolerance));
        FSDP_TRY(fsdp_json_get_object(values, keys[i], &both));
        FSDP_TRY(fsdp_json_get_array(both, "bf16", &array));
        FSDP_TRY(largest_difference(array, i ? got->grad_norm : got->loss, steps, false, &d));
        fsdp_verify_compared(c, d, tolerance, "absolute", "bf16 %s: %s", name, keys[i]);
    }
    return FSDP_OK;
}

static fsdp_status bf16_run(fsdp_verify_case *c, const recipe *r, const char *inputs,
                            trajectory *got)
{
    fsdp_fully_shard_options shard = {.mp_policy.param_dtype = FSDP_DTYPE_BF16};
    training t = {.c = c};
    fsdp_status status = train(&t, r, inputs, &shard, got);
    training_close(&t);
    return status;
}

/* Each micro-batch at the weights as they are. */
static fsdp_status bf16_still(fsdp_verify_case *c, fsdp_json_node root, const char *inputs)
{
    fsdp_json_node values, tolerances, both, array;
    recipe r = {.max_norm = (double)INFINITY, .accumulation = 1, .no_steps = true, .sgd = true};
    FSDP_TRY(fsdp_json_get_object(root, "all_micro_batches", &values));
    FSDP_TRY(fsdp_json_get_object(root, "tolerance", &tolerances));
    FSDP_TRY(fsdp_json_get_object(values, "loss", &both));
    FSDP_TRY(fsdp_json_get_array(both, "bf16", &array));
    r.steps = (int64_t)fsdp_json_len(array);
    trajectory got;
    fsdp_status status = bf16_run(c, &r, inputs, &got);
    static const char *const keys[] = {"loss", "grad_norm"};
    for (int i = 0; i < 2 && status == FSDP_OK && r.steps > 0; i++) {
        double want, tolerance;
        status = fsdp_json_get_f64(root, keys[i], &want);
        if (status == FSDP_OK)
            status = fsdp_json_get_f64(tolerances, keys[i], &tolerance);
        if (status == FSDP_OK)
            fsdp_verify_compared(c, fabs((i ? got.grad_norm : got.loss)[0] - want), tolerance,
                                 "absolute", "bf16: %s", keys[i]);
    }
    if (status == FSDP_OK)
        status = compare_bf16(c, values, tolerances, "all_micro_batches", &got, r.steps);
    trajectory_free(&got);
    return status;
}

/* The trajectory that the part names, with its recipe from that trajectory's own file. */
static fsdp_status bf16_moving(fsdp_verify_case *c, fsdp_json_node root, const char *mesh,
                               const char *inputs)
{
    fsdp_json_node values, tolerances;
    const char *name;
    char file[160];
    recipe r = {0};
    FSDP_TRY(fsdp_json_get_object(root, "trajectory", &values));
    FSDP_TRY(fsdp_json_get_object(values, "tolerance", &tolerances));
    FSDP_TRY(fsdp_json_get_str(values, "name", &name));
    snprintf(file, sizeof file, "trajectory_%s_%s.json", name, mesh);
    char *path = fsdp_verify_path(c, file);
    fsdp_json *doc = NULL;
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = read_recipe(fsdp_json_root(doc), &r);
    fsdp_json_destroy(doc);
    fsdp_free(path);
    FSDP_TRY(fsdp_agree(c->group, status));
    trajectory got;
    status = bf16_run(c, &r, inputs, &got);
    if (status == FSDP_OK)
        status = compare_bf16(c, values, tolerances, file, &got, r.steps);
    trajectory_free(&got);
    return status;
}

fsdp_status fsdp_verify_bf16(fsdp_verify_case *c)
{
    char *path = fsdp_verify_path(c, "expected_bf16.json");
    fsdp_json *doc = NULL;
    const char *mesh = NULL, *inputs = NULL;
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    fsdp_json_node root = status == FSDP_OK ? fsdp_json_root(doc) : (fsdp_json_node){0};
    if (status == FSDP_OK)
        status = fsdp_json_get_str(root, "mesh", &mesh);
    if (status == FSDP_OK)
        status = fsdp_json_get_str(root, "inputs", &inputs);
    status = fsdp_agree(c->group, status);
    if (status == FSDP_OK) {
        status = bf16_still(c, root, inputs);
        if (status == FSDP_OK)
            status = bf16_moving(c, root, mesh, inputs);
    }
    fsdp_error_context(status, "expected_bf16.json");
    fsdp_json_destroy(doc);
    return status;
}
