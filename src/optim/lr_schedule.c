/* Learning-rate schedules. The rate depends only on the number of finished steps, so a schedule has
 * no state that a checkpoint would have to contain. */
#include <math.h>

#include <fsdp/optim.h>

static bool ends_at_min_lr(fsdp_lr_schedule_kind kind)
{
    return kind == FSDP_LR_LINEAR || kind == FSDP_LR_COSINE || kind == FSDP_LR_POLYNOMIAL ||
           kind == FSDP_LR_COSINE_RESTARTS;
}

static bool is_positive(double x)
{
    return isfinite(x) && x > 0.0;
}

fsdp_status fsdp_lr_schedule_check(const fsdp_lr_schedule *s)
{
    if (!isfinite(s->lr) || s->lr < 0.0)
        return fsdp_error(FSDP_ERR_INVALID, "schedule: lr is %g", s->lr);
    if (s->warmup_steps < 0)
        return fsdp_error(FSDP_ERR_INVALID, "schedule: warmup_steps is %lld",
                          (long long)s->warmup_steps);
    if (s->unit_steps < 0)
        return fsdp_error(FSDP_ERR_INVALID, "schedule: unit_steps is %lld",
                          (long long)s->unit_steps);
    if (s->kind == FSDP_LR_STEP) {
        if (s->step_size < 1)
            return fsdp_error(FSDP_ERR_INVALID, "schedule: step_size is %lld, not at least 1",
                              (long long)s->step_size);
        if (!isfinite(s->gamma) || s->gamma < 0.0)
            return fsdp_error(FSDP_ERR_INVALID, "schedule: gamma is %g", s->gamma);
    }
    if (ends_at_min_lr(s->kind) && !(s->min_lr >= 0.0 && s->min_lr <= s->lr))
        return fsdp_error(FSDP_ERR_INVALID, "schedule: min_lr is %g, not in [0, %g]", s->min_lr,
                          s->lr);
    if (s->kind == FSDP_LR_POLYNOMIAL && !is_positive(s->power))
        return fsdp_error(FSDP_ERR_INVALID, "schedule: power is %g, not above 0", s->power);
    if (s->kind == FSDP_LR_COSINE_RESTARTS && !is_positive(s->num_cycles))
        return fsdp_error(FSDP_ERR_INVALID, "schedule: num_cycles is %g, not above 0",
                          s->num_cycles);
    return FSDP_OK;
}

/* Returns lr * gamma^n. This function multiplies by gamma n times, so that the result has the same
 * bits as that of PyTorch's StepLR. */
static double stepped(double lr, double gamma, int64_t n)
{
    for (int64_t i = 0; i < n && lr != 0.0 && gamma != 1.0; i++)
        lr *= gamma;
    return lr;
}

/* Returns a factor f, from which the caller computes the rate at step `at` as `min_lr + f * (lr -
 * min_lr)`. f is 1 at the end of warmup and 0 at total_steps. */
static double decay(const fsdp_lr_schedule *s, int64_t at)
{
    const double pi = 3.14159265358979323846;
    if (at >= s->total_steps)
        return 0.0;
    /* fsdp_lr_at() calls this function only after warmup, but it first rounds the step down to a
     * multiple of unit_steps. So the argument `at` may be below warmup_steps. */
    if (at <= s->warmup_steps)
        return 1.0;
    double span = (double)(s->total_steps - s->warmup_steps);
    if (s->kind == FSDP_LR_LINEAR)
        return (double)(s->total_steps - at) / span;
    if (s->kind == FSDP_LR_POLYNOMIAL)
        return pow(1.0 - (double)(at - s->warmup_steps) / span, s->power);
    double progress = (double)(at - s->warmup_steps) / span;
    if (s->kind == FSDP_LR_COSINE_RESTARTS)
        progress = fmod(s->num_cycles * progress, 1.0);
    return 0.5 * (1.0 + cos(pi * progress));
}

/* Returns the factor by which lr is multiplied at step `at`. As in transformers, the timescale is
 * the number of warmup steps, or 10000 if there is no warmup. */
static double inverse_sqrt(const fsdp_lr_schedule *s, int64_t at)
{
    double timescale = s->warmup_steps ? (double)s->warmup_steps : 10000.0;
    double past = at > s->warmup_steps ? (double)(at - s->warmup_steps) : 0.0;
    return 1.0 / sqrt((past + timescale) / timescale);
}

double fsdp_lr_at(const fsdp_lr_schedule *s, int64_t step)
{
    int64_t unit = s->unit_steps > 1 ? s->unit_steps : 1;
    double warm = step < s->warmup_steps ? (double)step / (double)s->warmup_steps : 1.0;
    if (s->kind == FSDP_LR_STEP)
        return stepped(s->lr, s->gamma, step / unit / s->step_size) * warm;
    if (s->kind == FSDP_LR_CONSTANT || step < s->warmup_steps)
        return s->lr * warm;
    if (s->kind == FSDP_LR_INVERSE_SQRT)
        return s->lr * inverse_sqrt(s, step / unit * unit);
    return s->min_lr + (s->lr - s->min_lr) * decay(s, step / unit * unit);
}
