/* Implements torch.amp.GradScaler, with an all-reduce over ranks as in ShardedGradScaler. A rank
 * sees only its own rows of the gradients. If one rank finds an infinity or NaN, all ranks must
 * skip the step. So an all-reduce informs all ranks whether any rank found one. */
#include <math.h>

#include <fsdp/comm.h>

#include "src/base/alloc.h"
#include "src/optim/optimizer.h"
#include "src/tensor/tensor.h"

typedef enum stage {
    STAGE_READY,    /* neither unscale nor step was called since the last update */
    STAGE_UNSCALED, /* unscale was called since the last update */
    STAGE_STEPPED
} stage;

/* What has happened to one optimizer since the last update. An optimizer that has no entry is in
 * STAGE_READY. */
typedef struct progress {
    const fsdp_optimizer *optimizer; /* borrowed until the next update */
    stage stage;
    bool found_inf;
} progress;

struct fsdp_grad_scaler {
    fsdp_grad_scaler_state state;
    /* borrowed; NULL: use the process groups over which the parameters are sharded */
    fsdp_group *group;
    bool disabled;
    /* [n_optimizers]: the optimizers used since the last update (PyTorch's
     * _per_optimizer_states). */
    progress *optimizers;
    size_t n_optimizers, cap;
};

static fsdp_status check_state(const fsdp_grad_scaler_state *s)
{
    const struct {
        const char *name;
        double value, above, below;
    } fields[] = {{"scale", s->scale, 0.0, (double)INFINITY},
                  {"growth_factor", s->growth_factor, 1.0, (double)INFINITY},
                  {"backoff_factor", s->backoff_factor, 0.0, 1.0}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!(fields[i].value > fields[i].above && fields[i].value < fields[i].below))
            return fsdp_error(FSDP_ERR_INVALID, "grad_scaler: %s is %g, not between %g and %g",
                              fields[i].name, fields[i].value, fields[i].above, fields[i].below);
    if (s->growth_interval < 1 || s->growth_tracker < 0)
        return fsdp_error(
            FSDP_ERR_INVALID, "grad_scaler: %s is %lld",
            s->growth_interval < 1 ? "growth_interval" : "growth_tracker",
            (long long)(s->growth_interval < 1 ? s->growth_interval : s->growth_tracker));
    return FSDP_OK;
}

static double or_default(double value, double otherwise)
{
    return value != 0.0 ? value : otherwise;
}

fsdp_status fsdp_grad_scaler_create(const fsdp_grad_scaler_options *options,
                                    fsdp_grad_scaler **scaler)
{
    const fsdp_grad_scaler_options o = options ? *options : (fsdp_grad_scaler_options){0};
    const fsdp_grad_scaler_state state = {.scale = or_default(o.init_scale, 65536.0),
                                          .growth_factor = or_default(o.growth_factor, 2.0),
                                          .backoff_factor = or_default(o.backoff_factor, 0.5),
                                          .growth_interval =
                                              o.growth_interval ? o.growth_interval : 2000};
    FSDP_TRY(check_state(&state));
    fsdp_grad_scaler *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    s->state = state;
    s->group = o.group;
    s->disabled = o.disabled;
    *scaler = s;
    return FSDP_OK;
}

void fsdp_grad_scaler_destroy(fsdp_grad_scaler *s)
{
    if (s)
        fsdp_free(s->optimizers);
    fsdp_free(s);
}

double fsdp_grad_scaler_scale(const fsdp_grad_scaler *s)
{
    return s->disabled ? 1.0 : s->state.scale;
}

bool fsdp_grad_scaler_is_enabled(const fsdp_grad_scaler *s)
{
    return !s->disabled;
}

bool fsdp_grad_scaler_found_inf(const fsdp_grad_scaler *s)
{
    bool found = false;
    for (size_t i = 0; i < s->n_optimizers; i++)
        found |= s->optimizers[i].found_inf;
    return found;
}

fsdp_grad_scaler_state fsdp_grad_scaler_get_state(const fsdp_grad_scaler *s)
{
    return s->state;
}

bool fsdp_grad_scaler_was_used(const fsdp_grad_scaler *s, const fsdp_optimizer *optimizer)
{
    for (size_t i = 0; i < s->n_optimizers; i++)
        if (s->optimizers[i].optimizer == optimizer)
            return true;
    return false;
}

void fsdp_grad_scaler_forget(fsdp_grad_scaler *s)
{
    s->n_optimizers = 0;
}

fsdp_status fsdp_grad_scaler_set_state(fsdp_grad_scaler *s, const fsdp_grad_scaler_state *state)
{
    FSDP_TRY(check_state(state));
    s->state = *state;
    s->n_optimizers = 0;
    return FSDP_OK;
}

/* --- unscale --- */

static void unscale_tensor(const fsdp_tensor *grad, float factor)
{
    const fsdp_device *device = grad->storage->device;
    float *data = fsdp_tensor_ptr(grad);
    if (device->kernels)
        device->kernels->scale(device->context, data, data, factor, FSDP_DTYPE_F32,
                               fsdp_tensor_numel(grad));
}

/* Finds all gradients that have elements on this rank. Stores this rank's rows of each of them in
 * `grads`, and sets *n to their number. `grads` is large enough for all parameters. */
static void collect_gradients(const fsdp_parameter_list *parameters, const fsdp_tensor **grads,
                              size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < parameters->n; i++) {
        const fsdp_tensor *grad = fsdp_optimizer_gradient(parameters->items[i].parameter);
        if (grad && fsdp_tensor_numel(grad))
            grads[(*n)++] = grad;
    }
}

/* Multiplies gradients by `factor`. Sets *finite to false if an element of a result is not finite.
 * Each gradient is checked directly after it was multiplied, while a CPU still has it in the
 * cache. */
static fsdp_status unscale_each(const fsdp_tensor *const *grads, size_t n, float factor,
                                bool *finite)
{
    for (size_t i = 0; i < n; i++) {
        bool own;
        unscale_tensor(grads[i], factor);
        FSDP_TRY(fsdp_all_finite(grads[i], &own));
        *finite &= own;
    }
    return FSDP_OK;
}

static fsdp_status unscale_together(const fsdp_tensor *const *grads, size_t n, float factor,
                                    bool *finite)
{
    for (size_t i = 0; i < n; i++)
        unscale_tensor(grads[i], factor);
    return fsdp_all_are_finite(grads, n, finite);
}

/* Multiplies this rank's rows of all gradients by `factor`. Sets *finite to false if an element of
 * a result is not finite. */
static fsdp_status unscale_all(const fsdp_parameter_list *parameters, float factor, bool *finite)
{
    const fsdp_tensor **grads = fsdp_calloc(parameters->n, sizeof *grads);
    fsdp_status status = grads ? FSDP_OK : FSDP_ERR_NOMEM;
    size_t n = 0;
    if (status == FSDP_OK)
        collect_gradients(parameters, grads, &n);
    if (n)
        status = (grads[0]->storage->device->traits->joins_sums ? unscale_together : unscale_each)(
            grads, n, factor, finite);
    fsdp_free(grads);
    return status;
}

static fsdp_status max_over_group(fsdp_group *group, float *found)
{
    return group ? fsdp_all_reduce(group, found, 1, FSDP_DTYPE_F32, FSDP_REDUCE_MAX) : FSDP_OK;
}

/* Returns true if no parameter before parameter i of the list has the same process group as
 * parameter i. */
static bool begins_group(const fsdp_parameter_list *parameters, size_t i)
{
    const fsdp_group *group = fsdp_parameter_group(parameters->items[i].parameter);
    for (size_t k = 0; k < i; k++)
        if (fsdp_parameter_group(parameters->items[k].parameter) == group)
            return false;
    return true;
}

static fsdp_status max_over_ranks(const fsdp_grad_scaler *s, const fsdp_parameter_list *parameters,
                                  float *found)
{
    if (s->group)
        return max_over_group(s->group, found);
    for (size_t i = 0; i < parameters->n; i++)
        if (begins_group(parameters, i))
            FSDP_TRY(max_over_group(fsdp_parameter_group(parameters->items[i].parameter), found));
    return FSDP_OK;
}

/* Sets *p to the entry of this optimizer. If the optimizer has no entry yet, this function adds
 * one. The pointer is valid until the next call. */
static fsdp_status progress_of(fsdp_grad_scaler *s, const fsdp_optimizer *optimizer, progress **p)
{
    size_t i = 0;
    while (i < s->n_optimizers && s->optimizers[i].optimizer != optimizer)
        i++;
    if (i == s->n_optimizers) {
        if (!FSDP_GROW(s->optimizers, s->cap, i + 1))
            return FSDP_ERR_NOMEM;
        s->optimizers[s->n_optimizers++] = (progress){.optimizer = optimizer};
    }
    *p = &s->optimizers[i];
    return FSDP_OK;
}

static fsdp_status unscale_gradients(const fsdp_grad_scaler *s, progress *p)
{
    const fsdp_parameter_list *parameters = fsdp_optimizer_parameters(p->optimizer);
    bool finite = true;
    FSDP_TRY(unscale_all(parameters, (float)(1.0 / s->state.scale), &finite));
    float found = finite ? 0.0f : 1.0f;
    FSDP_TRY(max_over_ranks(s, parameters, &found));
    p->found_inf = found != 0.0f;
    p->stage = STAGE_UNSCALED;
    return FSDP_OK;
}

fsdp_status fsdp_grad_scaler_unscale(fsdp_grad_scaler *s, const fsdp_optimizer *optimizer)
{
    progress *p;
    if (s->disabled)
        return FSDP_OK;
    FSDP_TRY(progress_of(s, optimizer, &p));
    if (p->stage != STAGE_READY)
        return fsdp_error(FSDP_ERR_STATE,
                          "grad_scaler: unscale of this optimizer %s since the last update",
                          p->stage == STAGE_STEPPED ? "after its step" : "was called already");
    return unscale_gradients(s, p);
}

/* --- step, update --- */

fsdp_status fsdp_grad_scaler_step(fsdp_grad_scaler *s, fsdp_optimizer *optimizer, float grad_scale)
{
    progress *p;
    if (s->disabled)
        return fsdp_optimizer_step(optimizer, grad_scale);
    FSDP_TRY(progress_of(s, optimizer, &p));
    if (p->stage == STAGE_STEPPED)
        return fsdp_error(FSDP_ERR_STATE, "grad_scaler: step of this optimizer was called already "
                                          "since the last update");
    if (p->stage == STAGE_READY)
        FSDP_TRY(unscale_gradients(s, p));
    if (!p->found_inf)
        FSDP_TRY(fsdp_optimizer_step(optimizer, grad_scale));
    p->stage = STAGE_STEPPED;
    return FSDP_OK;
}

/* Grows the scale if the last growth_interval updates found no infinity or NaN. If the grown scale
 * would overflow float32, in which PyTorch stores it, the scale stays as it is. */
static void grow_scale(fsdp_grad_scaler_state *state)
{
    const float grown = (float)(state->scale * state->growth_factor);
    if (++state->growth_tracker < state->growth_interval)
        return;
    state->growth_tracker = 0;
    if (isfinite(grown))
        state->scale = (double)grown;
}

/* Returns true if at least one optimizer was used since the last update, and all optimizers that
 * were used have unscaled gradients. */
static bool all_are_unscaled(const fsdp_grad_scaler *s)
{
    bool all = s->n_optimizers > 0;
    for (size_t i = 0; i < s->n_optimizers; i++)
        all &= s->optimizers[i].stage != STAGE_READY;
    return all;
}

fsdp_status fsdp_grad_scaler_update(fsdp_grad_scaler *s)
{
    if (s->disabled)
        return FSDP_OK;
    if (!all_are_unscaled(s))
        return fsdp_error(FSDP_ERR_STATE, "grad_scaler: update without unscale or step before it");
    if (fsdp_grad_scaler_found_inf(s)) {
        const float less = (float)(s->state.scale * s->state.backoff_factor);
        s->state.growth_tracker = 0;
        if (less > 0.0f)
            s->state.scale = (double)less;
    } else {
        grow_scale(&s->state);
    }
    s->n_optimizers = 0;
    return FSDP_OK;
}
