/* Schedule-Free AdamW (Defazio et al. 2024), as schedulefree.AdamWScheduleFree computes it. A
 * kernel of the device does the arithmetic.
 *
 * The steps of AdamW change z, and x is a weighted average of the values of z. The parameter is y
 * while training, and x during evaluation. y = beta1 x + (1 - beta1) z, so that
 * x = y + (1 - 1 / beta1) (z - y). */
#include <math.h>

#include "src/optim/optimizer.h"

enum { /* indices of state_names */
    Z,
    EXP_AVG_SQ
};
static const char *const state_names[FSDP_MAX_OPTIMIZER_STATE] = {"z", "exp_avg_sq"};

fsdp_schedule_free_options fsdp_schedule_free_adamw_defaults(void)
{
    return (fsdp_schedule_free_options){.lr = 0.0025,
                                        .beta1 = 0.9,
                                        .beta2 = 0.999,
                                        .eps = 1e-8,
                                        .weight_lr_power = 2.0,
                                        .lr_max = -1.0,
                                        .train_mode = true};
}

static const char *name(const fsdp_optimizer_options *options)
{
    (void)options;
    return "schedule_free_adamw";
}

static fsdp_status check_options(const fsdp_optimizer_options *options)
{
    const fsdp_schedule_free_options *o = &options->schedule_free;
    const char *self = name(options);
    FSDP_TRY(fsdp_optimizer_check_range(self, "lr", o->lr, (double)INFINITY));
    FSDP_TRY(fsdp_optimizer_check_range(self, "beta1", o->beta1, 1.0));
    FSDP_TRY(fsdp_optimizer_check_range(self, "beta2", o->beta2, 1.0));
    FSDP_TRY(fsdp_optimizer_check_range(self, "eps", o->eps, (double)INFINITY));
    FSDP_TRY(fsdp_optimizer_check_range(self, "weight_decay", o->weight_decay, (double)INFINITY));
    FSDP_TRY(fsdp_optimizer_check_range(self, "weight_sum", o->weight_sum, (double)INFINITY));
    if (o->beta1 == 0.0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: beta1 is 0: the average cannot be computed from the parameters then",
                          self);
    if (!isfinite(o->r) || !isfinite(o->weight_lr_power) || !isfinite(o->lr_max))
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: r is %g, weight_lr_power is %g and lr_max is %g: all must be finite",
                          self, o->r, o->weight_lr_power, o->lr_max);
    if (o->warmup_steps < 0 || o->k < 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: warmup_steps is %lld and k is %lld, not at least 0", self,
                          (long long)o->warmup_steps, (long long)o->k);
    return FSDP_OK;
}

static fsdp_state_shape state_shape(const fsdp_optimizer_options *options, const fsdp_tensor *local,
                                    int k)
{
    (void)options, (void)local;
    return k == Z ? FSDP_STATE_COPY : FSDP_STATE_SAME;
}

static double *lr(fsdp_optimizer_options *options)
{
    return &options->schedule_free.lr;
}

static double own_lr(const fsdp_optimizer_options *options, int64_t step, fsdp_tensor *const *state)
{
    (void)step, (void)state;
    return options->schedule_free.scheduled_lr;
}

static bool *train_mode(fsdp_optimizer_options *options)
{
    return &options->schedule_free.train_mode;
}

/* Returns the weight that the latest step has in the average. */
static double weight_of(const fsdp_schedule_free_options *o)
{
    return pow((double)o->k, o->r) * pow(o->lr_max, o->weight_lr_power);
}

static void begin_group(fsdp_optimizer_options *options)
{
    fsdp_schedule_free_options *o = &options->schedule_free;
    const bool warms_up = o->k < o->warmup_steps;
    o->k++;
    o->scheduled_lr = o->lr * (warms_up ? (double)o->k / (double)o->warmup_steps : 1.0);
    o->lr_max = fmax(o->scheduled_lr, o->lr_max);
    o->weight_sum += weight_of(o);
}

/* The parameter moves towards z in a step, and when the mode changes. Returns the fraction of the
 * distance to z by which it moves. */
static double average_of(const fsdp_schedule_free_options *o, bool is_step)
{
    if (is_step)
        return o->weight_sum != 0.0 ? weight_of(o) / o->weight_sum : 0.0;
    return o->train_mode ? 1.0 - 1.0 / o->beta1 : 1.0 - o->beta1;
}

static void describe_update(const fsdp_optimizer_options *options, const fsdp_update *u, void *args)
{
    const fsdp_schedule_free_options *o = &options->schedule_free;
    *(fsdp_schedule_free_args *)args =
        (fsdp_schedule_free_args){.n = u->n,
                                  .param = u->param,
                                  .halves = u->halves,
                                  .copy = u->copy,
                                  .copy_dtype = u->copy_dtype,
                                  .z = u->state[Z],
                                  .exp_avg_sq = u->state[EXP_AVG_SQ],
                                  .grad = u->grad,
                                  .kept = u->kept,
                                  .lr = o->scheduled_lr,
                                  .beta1 = o->beta1,
                                  .beta2 = o->beta2,
                                  .eps = o->eps,
                                  .weight_decay = o->weight_decay,
                                  .average = average_of(o, u->grad != NULL),
                                  .step = o->k,
                                  .first = u->step == 1,
                                  .restores = u->kept && !o->train_mode,
                                  .grad_scale = u->grad_scale};
}

static void start_updates(const fsdp_device *device, const void *args, size_t n,
                          const fsdp_clip_result *clip)
{
    device->kernels->schedule_free(device->context, args, n, clip);
}

static const fsdp_optimizer_class schedule_free = {.state_names = state_names,
                                                   .name = name,
                                                   .check = check_options,
                                                   .state_shape = state_shape,
                                                   .lr = lr,
                                                   .own_lr = own_lr,
                                                   .begin_group = begin_group,
                                                   .train_mode = train_mode,
                                                   .update_bytes = sizeof(fsdp_schedule_free_args),
                                                   .describe_update = describe_update,
                                                   .start_updates = start_updates};

static fsdp_optimizer_options options_of(const fsdp_schedule_free_options *options)
{
    return (fsdp_optimizer_options){.schedule_free =
                                        options ? *options : fsdp_schedule_free_adamw_defaults()};
}

fsdp_status fsdp_schedule_free_adamw_create(fsdp_module *module,
                                            const fsdp_schedule_free_options *options,
                                            fsdp_optimizer **optimizer)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_create(&schedule_free, module, &o, optimizer);
}

fsdp_status fsdp_schedule_free_adamw_add_group(fsdp_optimizer *optimizer,
                                               const fsdp_parameter_list *parameters,
                                               const fsdp_schedule_free_options *options)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_add_group(&schedule_free, optimizer, parameters, &o);
}
