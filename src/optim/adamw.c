/* AdamW and Adam (torch.optim.AdamW, torch.optim.Adam), and AdamW with states in 8 bits
 * (bitsandbytes.optim.AdamW8bit). A kernel of the device does the arithmetic. */
#include <math.h>

#include <fsdp/dtensor.h>

#include "src/base/dynamic_map.h"
#include "src/base/philox.h"
#include "src/optim/optimizer.h"

enum { /* indices of the states of AdamW in 8 bits; ordinary AdamW has only exp_avg and
          exp_avg_sq */
    STATE1,
    STATE2,
    ABSMAX1,
    ABSMAX2,
    QMAP1,
    QMAP2
};

fsdp_adamw_options fsdp_adamw_defaults(void)
{
    return (fsdp_adamw_options){.lr = 1e-3,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .weight_decay = 0.01,
                                .min_8bit_size = 4096};
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

static fsdp_state_shape state_shape(const fsdp_optimizer_options *options, const fsdp_tensor *local,
                                    int k)
{
    (void)options, (void)local, (void)k;
    return FSDP_STATE_SAME;
}

static fsdp_dtype state_dtype(const fsdp_optimizer_options *options, const fsdp_tensor *local,
                              int k)
{
    (void)local, (void)k;
    return options->adamw.state_dtype;
}

static bool rounds_stochastically(const fsdp_optimizer_options *options)
{
    return options->adamw.bf16_stochastic_round;
}

static double *lr(fsdp_optimizer_options *options)
{
    return &options->adamw.lr;
}

static void describe_update(const fsdp_optimizer_options *options, const fsdp_update *u, void *args)
{
    const fsdp_adamw_options *o = &options->adamw;
    *(fsdp_adamw_args *)args =
        (fsdp_adamw_args){.n = u->n,
                          .param = u->param,
                          .halves = u->halves,
                          .exp_avg = u->state[0],
                          .exp_avg_sq = u->state[1],
                          .state_dtype = u->state_dtype,
                          .absmax1 = u->state[ABSMAX1],
                          .absmax2 = u->state[ABSMAX2],
                          .inner = u->inner,
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
                          .grad_scale = u->grad_scale,
                          .stochastic = o->bf16_stochastic_round,
                          .rounding_key = fsdp_rounding_key(o->seed, u->step, u->index),
                          .first = u->first};
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
                                           .needs_rows = rounds_stochastically,
                                           .state_dtype = state_dtype,
                                           .lr = lr,
                                           .update_bytes = sizeof(fsdp_adamw_args),
                                           .describe_update = describe_update,
                                           .start_updates = start_updates};

/* --- 8 bits --- */

static const char *name_8bit(const fsdp_optimizer_options *options)
{
    (void)options;
    return "adamw_8bit";
}

static fsdp_status check_options_8bit(const fsdp_optimizer_options *options)
{
    const fsdp_adamw_options *o = &options->adamw;
    if (o->l2)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "adamw_8bit: l2, the weight decay of Adam, is not supported: adam has it, "
            "with moments in float32 or bfloat16");
    if (o->state_dtype != FSDP_DTYPE_F32)
        return fsdp_error(FSDP_ERR_INVALID, "adamw_8bit: state_dtype %s: states have 8 bits",
                          fsdp_dtype_name(o->state_dtype));
    if (o->min_8bit_size < 0)
        return fsdp_error(FSDP_ERR_INVALID, "adamw_8bit: min_8bit_size is %lld, not at least 0",
                          (long long)o->min_8bit_size);
    return check_options(options);
}

/* Returns true if the states of a parameter are stored in 8 bits. The parameter must have at least
 * min_8bit_size elements. The number of elements in a row must be a multiple of FSDP_HALVES_WORD: a
 * thread of the kernel may begin at any block, but a parameter that is stored in halves can be read
 * only from such a multiple. */
static bool is_narrow(const fsdp_optimizer_options *options, const fsdp_tensor *local)
{
    const int64_t *shape = fsdp_dtensor_shape(local);
    int64_t inner = 1;
    for (int d = 1; d < fsdp_tensor_ndim(local); d++)
        inner *= shape[d];
    return fsdp_tensor_ndim(local) > 0 && inner > 0 && inner % FSDP_HALVES_WORD == 0 &&
           shape[0] * inner >= options->adamw.min_8bit_size;
}

static fsdp_state_shape state_shape_8bit(const fsdp_optimizer_options *options,
                                         const fsdp_tensor *local, int k)
{
    static const fsdp_state_shape narrow[] = {
        [STATE1] = FSDP_STATE_SAME,    [STATE2] = FSDP_STATE_SAME, [ABSMAX1] = FSDP_STATE_BLOCKS,
        [ABSMAX2] = FSDP_STATE_BLOCKS, [QMAP1] = FSDP_STATE_MAP,   [QMAP2] = FSDP_STATE_MAP};
    if (is_narrow(options, local))
        return narrow[k];
    return k <= STATE2 ? FSDP_STATE_SAME : FSDP_STATE_NONE;
}

static fsdp_dtype state_dtype_8bit(const fsdp_optimizer_options *options, const fsdp_tensor *local,
                                   int k)
{
    return k <= STATE2 && is_narrow(options, local) ? FSDP_DTYPE_U8 : FSDP_DTYPE_F32;
}

static const float *map_8bit(int k)
{
    return k == QMAP1   ? fsdp_dynamic_map_signed()->value
           : k == QMAP2 ? fsdp_dynamic_map_unsigned()->value
                        : NULL;
}

static bool always(const fsdp_optimizer_options *options)
{
    (void)options;
    return true;
}

static const char *const state_names_8bit[FSDP_MAX_OPTIMIZER_STATE] = {
    [STATE1] = "state1",   [STATE2] = "state2", [ABSMAX1] = "absmax1",
    [ABSMAX2] = "absmax2", [QMAP1] = "qmap1",   [QMAP2] = "qmap2"};

static const fsdp_optimizer_class adamw_8bit = {.state_names = state_names_8bit,
                                                .name = name_8bit,
                                                .check = check_options_8bit,
                                                .state_shape = state_shape_8bit,
                                                .map = map_8bit,
                                                .needs_rows = always,
                                                .state_dtype = state_dtype_8bit,
                                                .lr = lr,
                                                .update_bytes = sizeof(fsdp_adamw_args),
                                                .describe_update = describe_update,
                                                .start_updates = start_updates};

/* --- creating optimizers --- */

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

fsdp_status fsdp_adamw_8bit_create(fsdp_module *module, const fsdp_adamw_options *options,
                                   fsdp_optimizer **optimizer)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_create(&adamw_8bit, module, &o, optimizer);
}

fsdp_status fsdp_adamw_8bit_add_group(fsdp_optimizer *optimizer,
                                      const fsdp_parameter_list *parameters,
                                      const fsdp_adamw_options *options)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_add_group(&adamw_8bit, optimizer, parameters, &o);
}
