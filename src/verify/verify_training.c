/* The part of `fsdp verify` that trains in the same way as PyTorch did when it made the golden
 * trajectories. The loss of each micro-batch is the mean over its labels. The gradient of a step is
 * the mean of the gradients of these losses, over all ranks and micro-steps. So it is a "mean of
 * means". */
#include <string.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/verify/verify_training.h"

enum {
    MAX_STEPS = 1 << 20
};

/* --- reading recipes --- */

static fsdp_status read_adamw(fsdp_json_node options, const char *class_name, fsdp_adamw_options *o)
{
    fsdp_json_node betas;
    bool amsgrad;
    *o = fsdp_adamw_defaults();
    o->l2 = strcmp(class_name, "Adam") == 0;
    FSDP_TRY(fsdp_json_opt_f64(options, "lr", o->lr, &o->lr));
    FSDP_TRY(fsdp_json_opt_f64(options, "eps", o->eps, &o->eps));
    FSDP_TRY(
        fsdp_json_opt_f64(options, "weight_decay", o->l2 ? 0 : o->weight_decay, &o->weight_decay));
    FSDP_TRY(fsdp_json_opt_bool(options, "amsgrad", false, &amsgrad));
    if (amsgrad)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s with amsgrad", class_name);
    FSDP_TRY(fsdp_json_opt_array(options, "betas", &betas));
    if (!betas.value)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(betas, 0), NULL, &o->beta1));
    return fsdp_json_get_f64(fsdp_json_at(betas, 1), NULL, &o->beta2);
}

static fsdp_status read_sgd(fsdp_json_node options, fsdp_sgd_options *o)
{
    *o = fsdp_sgd_defaults();
    FSDP_TRY(fsdp_json_opt_f64(options, "lr", o->lr, &o->lr));
    FSDP_TRY(fsdp_json_opt_f64(options, "momentum", 0, &o->momentum));
    FSDP_TRY(fsdp_json_opt_f64(options, "dampening", 0, &o->dampening));
    FSDP_TRY(fsdp_json_opt_f64(options, "weight_decay", 0, &o->weight_decay));
    return fsdp_json_opt_bool(options, "nesterov", false, &o->nesterov);
}

static fsdp_status read_adafactor(fsdp_json_node options, fsdp_adafactor_options *o)
{
    fsdp_json_node eps;
    *o = fsdp_adafactor_defaults();
    FSDP_TRY(fsdp_json_opt_f64(options, "lr", o->lr, &o->lr));
    FSDP_TRY(fsdp_json_opt_f64(options, "clip_threshold", o->clip_threshold, &o->clip_threshold));
    FSDP_TRY(fsdp_json_opt_f64(options, "decay_rate", o->decay_rate, &o->decay_rate));
    FSDP_TRY(fsdp_json_opt_f64(options, "beta1", o->beta1, &o->beta1));
    FSDP_TRY(fsdp_json_opt_f64(options, "weight_decay", o->weight_decay, &o->weight_decay));
    FSDP_TRY(fsdp_json_opt_bool(options, "scale_parameter", true, &o->scale_parameter));
    FSDP_TRY(fsdp_json_opt_bool(options, "relative_step", true, &o->relative_step));
    FSDP_TRY(fsdp_json_opt_bool(options, "warmup_init", false, &o->warmup_init));
    FSDP_TRY(fsdp_json_opt_array(options, "eps", &eps));
    if (!eps.value)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(eps, 0), NULL, &o->eps1));
    return fsdp_json_get_f64(fsdp_json_at(eps, 1), NULL, &o->eps2);
}

fsdp_status fsdp_verify_optimizer_read(fsdp_json_node options, const char *class_name,
                                       fsdp_verify_optimizer *o)
{
    if (strcmp(class_name, "SGD") == 0) {
        o->kind = FSDP_VERIFY_SGD;
        return read_sgd(options, &o->sgd);
    }
    if (strcmp(class_name, "Adafactor") == 0) {
        o->kind = FSDP_VERIFY_ADAFACTOR;
        return read_adafactor(options, &o->adafactor);
    }
    if (strcmp(class_name, "AdamW") != 0 && strcmp(class_name, "Adam") != 0)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "the optimizer %s: reference runs with AdamW, Adam, SGD and Adafactor are "
            "verified here",
            class_name);
    o->kind = FSDP_VERIFY_ADAMW;
    return read_adamw(options, class_name, &o->adamw);
}

fsdp_status fsdp_verify_optimizer_create(const fsdp_verify_optimizer *o, fsdp_module *module,
                                         fsdp_optimizer **optimizer)
{
    switch (o->kind) {
    case FSDP_VERIFY_SGD:
        return fsdp_sgd_create(module, &o->sgd, optimizer);
    case FSDP_VERIFY_ADAFACTOR:
        return fsdp_adafactor_create(module, &o->adafactor, optimizer);
    default:
        return fsdp_adamw_create(module, &o->adamw, optimizer);
    }
}

static fsdp_status read_optimizer(fsdp_json_node root, fsdp_verify_optimizer *o)
{
    fsdp_json_node options;
    const char *name;
    FSDP_TRY(fsdp_json_opt_object(root, "optimizer", &options));
    FSDP_TRY(fsdp_json_opt_str(options, "name", "AdamW", &name));
    return fsdp_verify_optimizer_read(options, name, o);
}

static fsdp_status read_schedule(fsdp_json_node root, fsdp_verify_recipe *r)
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

fsdp_status fsdp_verify_recipe_read(fsdp_json_node root, fsdp_verify_recipe *r)
{
    FSDP_TRY(fsdp_json_opt_str(root, "adapter", NULL, &r->adapter));
    FSDP_TRY(read_optimizer(root, &r->optimizer));
    FSDP_TRY(fsdp_json_opt_f64(root, "clip_grad_norm", 1.0, &r->max_norm));
    FSDP_TRY(fsdp_json_opt_i64(root, "accumulation", 1, MAX_STEPS, 1, &r->accumulation));
    FSDP_TRY(fsdp_json_opt_array(root, "frozen_prefixes", &r->frozen));
    return fsdp_json_opt_str(root, "model", "model", &r->model);
}

fsdp_status fsdp_verify_recipe_read_file(fsdp_json_node root, fsdp_verify_recipe *r)
{
    fsdp_json_node loss;
    FSDP_TRY(fsdp_verify_recipe_read(root, r));
    FSDP_TRY(read_schedule(root, r));
    FSDP_TRY(fsdp_json_get_str(root, "inputs", &r->inputs));
    FSDP_TRY(fsdp_json_get_array(root, "loss", &loss));
    r->steps = (int64_t)fsdp_json_len(loss);
    return FSDP_OK;
}

/* --- curves --- */

void fsdp_verify_curve_free(fsdp_verify_curve *t)
{
    fsdp_free(t->loss);
    fsdp_free(t->grad_norm);
    fsdp_free(t->lr);
    fsdp_free(t->local_loss);
}

static fsdp_status curve_alloc(fsdp_verify_curve *t, int64_t steps, int world_size)
{
    size_t n = (size_t)steps;
    t->loss = fsdp_calloc(n, sizeof(double));
    t->grad_norm = fsdp_calloc(n, sizeof(double));
    t->lr = fsdp_calloc(n, sizeof(double));
    t->local_loss = fsdp_calloc(n * (size_t)world_size, sizeof(double));
    return t->loss && t->grad_norm && t->lr && t->local_loss ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* --- one step --- */

/* Run forward and backward on the batch of this rank for one micro-step. Step `step` has `n`
 * micro-steps. `a` is the index of the micro-step in this step, and `micro` is its index in the
 * whole run. */
static fsdp_status run_leaf(fsdp_verify_training *t, int64_t micro, int64_t a, int64_t n,
                            int64_t step, double *loss)
{
    fsdp_verify_case *c = t->c;
    fsdp_batch *batch;
    fsdp_scope *s;
    const int64_t index[] = {micro, c->rank};
    FSDP_TRY(fsdp_verify_batch(t->inputs, &t->model->info, 2, index, &batch));
    fsdp_scope_options options = {.training = true,
                                  .step = (uint32_t)step,
                                  .micro_batch = (uint32_t)(a * c->world_size + c->rank),
                                  .micro_step = (int)a,
                                  .n_micro_steps = (int)n,
                                  .batch = batch};
    fsdp_status status = fsdp_scope_open(c->device, t->tape, &options, &s);
    if (status == FSDP_OK) {
        int32_t labels = batch->label_tokens;
        fsdp_tensor *value =
            fsdp_model_loss(s, t->model->module, labels ? 1.0f / (float)labels : 0.0f);
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

static fsdp_status rate_at(const fsdp_verify_recipe *r, int64_t step, double *rate)
{
    if (r->rates.value)
        return fsdp_json_get_f64(fsdp_json_at(r->rates, (size_t)step), NULL, rate);
    *rate = fsdp_lr_at(&r->schedule, step);
    return FSDP_OK;
}

static fsdp_status run_step(fsdp_verify_training *t, const fsdp_verify_recipe *r, int64_t step,
                            fsdp_verify_curve *out)
{
    fsdp_verify_case *c = t->c;
    double local = 0;
    for (int64_t a = 0; a < r->accumulation; a++) {
        double loss;
        const bool sync = !r->sync_last_only || a == r->accumulation - 1;
        FSDP_TRY(fsdp_set_requires_gradient_sync(t->model->module, sync, true));
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
        FSDP_TRY(rate_at(r, step, &out->lr[step]));
        fsdp_optimizer_set_lr(t->optimizer, out->lr[step]);
        FSDP_TRY(fsdp_optimizer_step(t->optimizer, scale));
    }
    fsdp_optimizer_zero_grad(t->optimizer);
    return FSDP_OK;
}

/* --- a run --- */

/* Freeze all parameters whose names begin with one of the prefixes. */
static fsdp_status freeze(const fsdp_parameter_list *parameters, fsdp_json_node prefixes)
{
    for (size_t k = 0; k < fsdp_json_len(prefixes); k++) {
        const char *prefix;
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(prefixes, k), NULL, &prefix));
        for (size_t i = 0; i < parameters->n; i++)
            if (strncmp(parameters->items[i].name, prefix, strlen(prefix)) == 0)
                fsdp_parameter_set_requires_grad(parameters->items[i].parameter, false);
    }
    return FSDP_OK;
}

fsdp_status fsdp_verify_training_open(fsdp_verify_training *t, const fsdp_verify_recipe *r,
                                      const fsdp_fully_shard_options *shard)
{
    FSDP_TRY(fsdp_agree(t->c->group, fsdp_verify_open_tensors(t->c, r->inputs, &t->inputs)));
    FSDP_TRY(fsdp_verify_open_model(t->c, r->model, r->adapter, shard, &t->model));
    FSDP_TRY(fsdp_tape_create(&t->tape));
    FSDP_TRY(fsdp_module_parameters(t->model->module, false, &t->parameters));
    FSDP_TRY(freeze(&t->parameters, r->frozen));
    FSDP_TRY(fsdp_verify_optimizer_create(&r->optimizer, t->model->module, &t->optimizer));
    return fsdp_set_gradient_divide_factor(t->model->module,
                                           (double)(t->c->world_size * r->accumulation));
}

void fsdp_verify_training_close(fsdp_verify_training *t)
{
    fsdp_optimizer_destroy(t->optimizer);
    fsdp_parameter_list_free(&t->parameters);
    fsdp_tape_destroy(t->tape);
    fsdp_model_close(t->model);
    fsdp_checkpoint_close(t->inputs);
}

fsdp_status fsdp_verify_train(fsdp_verify_training *t, const fsdp_verify_recipe *r,
                              const fsdp_fully_shard_options *shard, fsdp_verify_curve *curve)
{
    *curve = (fsdp_verify_curve){0};
    FSDP_TRY(curve_alloc(curve, r->steps, t->c->world_size));
    FSDP_TRY(fsdp_verify_training_open(t, r, shard));
    if (r->checkpoint)
        FSDP_TRY(fsdp_verify_load(t, r->checkpoint, NULL));
    for (int64_t step = r->first_step; step < r->steps; step++)
        FSDP_TRY(run_step(t, r, step, curve));
    return FSDP_OK;
}
