/* AdamW and Adam (torch.optim.AdamW, torch.optim.Adam). A kernel of the device does the
 * arithmetic. */
#include <math.h>

#include "src/optim/optimizer.h"

fsdp_adamw_options fsdp_adamw_defaults(void)
{
    return (fsdp_adamw_options){
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};
}

static const char *name(const fsdp_optimizer_options *options)
{
    return options->adamw.l2 ? "adam" : "adamw";
}

static fsdp_status check_options(const fsdp_optimizer_options *options)
{
    const fsdp_adamw_options *o = &options->adamw;
    FSDP_TRY(fsdp_optimizer_check_range(name(options), "lr", o->lr, (double)INFINITY));
    FSDP_TRY(fsdp_optimizer_check_range(name(options), "beta1", o->beta1, 1.0));
    FSDP_TRY(fsdp_optimizer_check_range(name(options), "beta2", o->beta2, 1.0));
    FSDP_TRY(fsdp_optimizer_check_range(name(options), "eps", o->eps, (double)INFINITY));
    if (o->state_dtype != FSDP_DTYPE_F32 && o->state_dtype != FSDP_DTYPE_BF16)
        return fsdp_error(FSDP_ERR_INVALID, "%s: state_dtype %s: must be float32 or bfloat16",
                          name(options), fsdp_dtype_name(o->state_dtype));
    return fsdp_optimizer_check_range(name(options), "weight_decay", o->weight_decay,
                                      (double)INFINITY);
}

static fsdp_state_shape state_shape(const fsdp_optimizer_options *options, int ndim, int k)
{
    (void)options, (void)ndim, (void)k;
    return FSDP_STATE_SAME;
}

static fsdp_dtype state_dtype(const fsdp_optimizer_options *options)
{
    return options->adamw.state_dtype;
}

static double *lr(fsdp_optimizer_options *options)
{
    return &options->adamw.lr;
}

static void describe_update(const fsdp_optimizer_options *options, const fsdp_update *u, void *args)
{
    const fsdp_adamw_options *o = &options->adamw;
    *(fsdp_adamw_args *)args = (fsdp_adamw_args){.n = u->n,
                                                 .param = u->param,
                                                 .halves = u->halves,
                                                 .exp_avg = u->state[0],
                                                 .exp_avg_sq = u->state[1],
                                                 .state_dtype = u->state_dtype,
                                                 .grad = u->grad,
                                                 .copy = u->copy,
                                                 .copy_dtype = u->copy_dtype,
                                                 .lr = o->lr,
                                                 .beta1 = o->beta1,
                                                 .beta2 = o->beta2,
                                                 .eps = o->eps,
                                                 .weight_decay = o->weight_decay,
                                                 .decoupled = !o->l2,
                                                 .step = u->step,
                                                 .grad_scale = u->grad_scale};
}

static void start_updates(const fsdp_device *device, const void *args, size_t n,
                          const fsdp_clip_result *clip)
{
    device->kernels->adamw(device->context, args, n, clip);
}

static const char *const state_names[FSDP_MAX_OPTIMIZER_STATE] = {"exp_avg", "exp_avg_sq"};

static const fsdp_optimizer_class adamw = {.state_names = state_names,
                                           .name = name,
                                           .check = check_options,
                                           .state_shape = state_shape,
                                           .state_dtype = state_dtype,
                                           .lr = lr,
                                           .update_bytes = sizeof(fsdp_adamw_args),
                                           .describe_update = describe_update,
                                           .start_updates = start_updates};

static fsdp_optimizer_options options_of(const fsdp_adamw_options *options)
{
    return (fsdp_optimizer_options){.adamw = options ? *options : fsdp_adamw_defaults()};
}

fsdp_status fsdp_adamw_create(fsdp_module *module, const fsdp_adamw_options *options,
                              fsdp_optimizer **optimizer)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_create(&adamw, module, &o, optimizer);
}

fsdp_status fsdp_adamw_add_group(fsdp_optimizer *optimizer, const fsdp_parameter_list *parameters,
                                 const fsdp_adamw_options *options)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_add_group(&adamw, optimizer, parameters, &o);
}
