/* SGD with momentum (torch.optim.SGD). A kernel of the device does the arithmetic. */
#include <math.h>

#include "src/optim/optimizer.h"

fsdp_sgd_options fsdp_sgd_defaults(void)
{
    return (fsdp_sgd_options){.lr = 1e-3};
}

static const char *name(const fsdp_optimizer_options *options)
{
    (void)options;
    return "sgd";
}

static fsdp_status check_options(const fsdp_optimizer_options *options)
{
    const fsdp_sgd_options *o = &options->sgd;
    FSDP_TRY(fsdp_optimizer_check_range("sgd", "lr", o->lr, (double)INFINITY));
    FSDP_TRY(fsdp_optimizer_check_range("sgd", "momentum", o->momentum, (double)INFINITY));
    FSDP_TRY(fsdp_optimizer_check_range("sgd", "weight_decay", o->weight_decay, (double)INFINITY));
    if (!isfinite(o->dampening))
        return fsdp_error(FSDP_ERR_INVALID, "sgd: dampening is %g", o->dampening);
    if (o->nesterov && (o->momentum == 0.0 || o->dampening != 0.0))
        return fsdp_error(FSDP_ERR_INVALID,
                          "sgd: nesterov needs a momentum and zero dampening, not %g and %g",
                          o->momentum, o->dampening);
    return FSDP_OK;
}

static fsdp_state_shape state_shape(const fsdp_optimizer_options *options, const fsdp_tensor *local,
                                    int k)
{
    (void)local, (void)k;
    return options->sgd.momentum != 0.0 ? FSDP_STATE_SAME : FSDP_STATE_NONE;
}

static double *lr(fsdp_optimizer_options *options)
{
    return &options->sgd.lr;
}

static void describe_update(const fsdp_optimizer_options *options, const fsdp_update *u, void *args)
{
    const fsdp_sgd_options *o = &options->sgd;
    *(fsdp_sgd_args *)args = (fsdp_sgd_args){.n = u->n,
                                             .param = u->param,
                                             .halves = u->halves,
                                             .momentum_buffer = u->state[0],
                                             .grad = u->grad,
                                             .copy = u->copy,
                                             .copy_dtype = u->copy_dtype,
                                             .lr = o->lr,
                                             .momentum = o->momentum,
                                             .dampening = o->dampening,
                                             .weight_decay = o->weight_decay,
                                             .nesterov = o->nesterov,
                                             .first = u->step == 1,
                                             .grad_scale = u->grad_scale};
}

static void start_updates(const fsdp_device *device, const void *args, size_t n,
                          const fsdp_clip_result *clip)
{
    device->kernels->sgd(device->context, args, n, clip);
}

static const char *const state_names[FSDP_MAX_OPTIMIZER_STATE] = {"momentum_buffer"};

static const fsdp_optimizer_class sgd = {.state_names = state_names,
                                         .name = name,
                                         .check = check_options,
                                         .state_shape = state_shape,
                                         .lr = lr,
                                         .update_bytes = sizeof(fsdp_sgd_args),
                                         .describe_update = describe_update,
                                         .start_updates = start_updates};

static fsdp_optimizer_options options_of(const fsdp_sgd_options *options)
{
    return (fsdp_optimizer_options){.sgd = options ? *options : fsdp_sgd_defaults()};
}

fsdp_status fsdp_sgd_create(fsdp_module *module, const fsdp_sgd_options *options,
                            fsdp_optimizer **optimizer)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_create(&sgd, module, &o, optimizer);
}

fsdp_status fsdp_sgd_add_group(fsdp_optimizer *optimizer, const fsdp_parameter_list *parameters,
                               const fsdp_sgd_options *options)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_add_group(&sgd, optimizer, parameters, &o);
}
