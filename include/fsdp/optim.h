/**
 * @file
 * torch.optim on shards: optimizers, learning rate schedules, gradient clipping.
 *
 * A step updates this rank's rows only. The same program works for one rank and for many:
 *
 *     FSDP_TRY(fsdp_adamw_create(model, &options, &optimizer));
 *     for (int64_t step = 0; step < steps; step++) {
 *         ... forward, backward ...
 *         FSDP_TRY(fsdp_clip_grad_norm(&parameters, 1.0, NULL, &norm, &scale));
 *         fsdp_optimizer_set_lr(optimizer, fsdp_lr_at(&schedule, step));
 *         FSDP_TRY(fsdp_optimizer_step(optimizer, scale));
 *         fsdp_optimizer_zero_grad(optimizer);
 *     }
 */
#pragma once
#include <fsdp/base.h>
#include <fsdp/nn.h>
#include <fsdp/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @name Optimizers @{ */
typedef struct fsdp_optimizer fsdp_optimizer;

/** Options of one parameter group. 0 is a legal value of every field, so start from
 * fsdp_adamw_defaults(). */
typedef struct fsdp_adamw_options {
    double lr;           /**< default 1e-3 */
    double beta1, beta2; /**< default 0.9, 0.999 */
    double eps;          /**< default 1e-8 */
    double weight_decay; /**< default 0.01; applies to every parameter of the group */
    bool l2;             /**< torch.optim.Adam: add the decay to the gradient; default false */
} fsdp_adamw_options;

/** The defaults of torch.optim.AdamW. */
FSDP_API fsdp_adamw_options fsdp_adamw_defaults(void);

/** Options of one parameter group. 0 is a legal value of every field, so start from
 * fsdp_sgd_defaults(). */
typedef struct fsdp_sgd_options {
    double lr;           /**< default 1e-3 */
    double momentum;     /**< default 0 */
    double dampening;    /**< default 0 */
    double weight_decay; /**< default 0 */
    bool nesterov;       /**< default false; requires momentum > 0 and dampening 0 */
} fsdp_sgd_options;

/** The defaults of torch.optim.SGD. */
FSDP_API fsdp_sgd_options fsdp_sgd_defaults(void);

/** Options of one parameter group. 0 is a legal value of most fields, so start from
 * fsdp_adafactor_defaults(). */
typedef struct fsdp_adafactor_options {
    double lr;             /**< must be 0 with relative_step (lr=None); default 0 */
    double eps1, eps2;     /**< eps1 is added to squared gradients, and eps2 is the smallest scale
                                of a parameter; default 1e-30, 1e-3 */
    double clip_threshold; /**< largest root mean square of an update; default 1 */
    double decay_rate;     /**< at step t, the average of squared gradients is multiplied by 1 -
                                t^decay_rate; default -0.8 */
    double beta1;          /**< decay of the first moment; below 0 (the default): no first moment
                                (beta1=None) */
    double weight_decay;   /**< default 0 */
    bool scale_parameter;  /**< multiply the rate by max(eps2, root mean square of the parameter);
                                default true */
    bool relative_step;    /**< the rate is min(1e-2, 1 / sqrt(t)); default true */
    bool warmup_init; /**< the rate is min(1e-6 t, 1 / sqrt(t)); requires relative_step; default
                           false */
} fsdp_adafactor_options;

/** The defaults of transformers.optimization.Adafactor. */
FSDP_API fsdp_adafactor_options fsdp_adafactor_defaults(void);

/**
 * Create AdamW (Loshchilov & Hutter 2019) for the parameters of `module`. A tied parameter is
 * updated once. The state of a parameter is "exp_avg" and "exp_avg_sq".
 *
 * State is float32 and covers this rank's rows. It is allocated in the first step in which the
 * parameter has a gradient. An optimizer may therefore be created before fsdp_fully_shard(), but
 * the sharding must not change after the first step.
 *
 * @param module    all its parameters form group 0; NULL: groups are added by
 *                  fsdp_adamw_add_group(). The module must exist as long as the optimizer is used.
 * @param options   NULL: all defaults; copied
 * @param optimizer out: owned by the caller; must be destroyed before the device
 * @return FSDP_ERR_INVALID for options out of bounds or a module without parameters.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_adamw_create(fsdp_module *module,
                                                       const fsdp_adamw_options *options,
                                                       fsdp_optimizer **optimizer);
/** Like fsdp_adamw_create(), but for stochastic gradient descent. With momentum, the state of a
 * parameter is "momentum_buffer"; without momentum there is no state. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_sgd_create(fsdp_module *module,
                                                     const fsdp_sgd_options *options,
                                                     fsdp_optimizer **optimizer);
/**
 * Like fsdp_adamw_create(), but for Adafactor (Shazeer & Stern 2018), as
 * transformers.optimization.Adafactor computes it.
 *
 * A parameter of two or more dimensions has "exp_avg_sq_row" and "exp_avg_sq_col", the averages
 * over its last and its second to last dimension. A vector has "exp_avg_sq". Every parameter also
 * has "RMS", its root mean square before the latest step, and, with beta1, "exp_avg".
 *
 * "exp_avg_sq_row" is sharded like the parameter. If the parameter has three or more dimensions,
 * "exp_avg_sq_col" is sharded like it, too, because a rank then has whole matrices. For a matrix,
 * "exp_avg_sq_col" is the same on every rank (Replicate). "RMS" is an ordinary scalar.
 *
 * Means are taken over whole tensors, in double, in an order that depends only on their shapes, so
 * they have the same bits at any world size. A step needs two gathers for each group of ranks,
 * regardless of the number of parameters. For each matrix, each rank sends at most 2 log2(rows)
 * (columns + 3) numbers of 8 bytes.
 *
 * With relative_step, fsdp_optimizer_set_lr() has no effect, and fsdp_optimizer_lr() returns what
 * transformers' AdafactorSchedule reports: the rate that the group's first parameter had in its
 * latest step, or 0 before the first step.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_adafactor_create(fsdp_module *module,
                                                           const fsdp_adafactor_options *options,
                                                           fsdp_optimizer **optimizer);
/**
 * Add a group with its own options, e.g. norms without weight decay.
 *
 * @param parameters its names are copied, its parameters are borrowed
 * @return FSDP_ERR_INVALID for an empty list, a parameter that has a group already, options out of
 *         bounds, or an optimizer of another kind.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_adamw_add_group(fsdp_optimizer *optimizer,
                                                          const fsdp_parameter_list *parameters,
                                                          const fsdp_adamw_options *options);
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_sgd_add_group(fsdp_optimizer *optimizer,
                                                        const fsdp_parameter_list *parameters,
                                                        const fsdp_sgd_options *options);
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_adafactor_add_group(fsdp_optimizer *optimizer, const fsdp_parameter_list *parameters,
                         const fsdp_adafactor_options *options);
/**
 * Split the trainable parameters of `module` into two lists, as transformers' Trainer does
 * (get_decay_parameter_names). A tied parameter is listed once. A parameter has no weight decay if
 * it has one dimension; if its name contains "bias", "layernorm" or "rmsnorm" (e.g. T5's
 * relative_attention_bias.weight); or if a component of its name is "norm" or ends in "_norm".
 *
 * @param decay, no_decay out: either list may be empty; both are freed with
 *                        fsdp_parameter_list_free()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_decay_parameters(fsdp_module *module,
                                                           fsdp_parameter_list *decay,
                                                           fsdp_parameter_list *no_decay);
FSDP_API void fsdp_optimizer_destroy(fsdp_optimizer *optimizer); /**< accepts NULL */

/**
 * Update every parameter that has a gradient and is not frozen. Other parameters keep their values,
 * state and step count. Collective if parameters are sharded: every rank must call it, even one
 * without rows.
 *
 * float32 master weights are updated in place. bfloat16 master weights are widened to float32,
 * updated, and rounded to nearest even.
 *
 * @param grad_scale gradients are multiplied by this factor as they are read: `scale` of
 *                   fsdp_clip_grad_norm(), or 1
 * @return FSDP_ERR_STATE if a parameter has no memory, or its sharding changed after its state was
 *         created; in both cases no parameter has changed. FSDP_ERR_COMM if a peer failed.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_optimizer_step(fsdp_optimizer *optimizer,
                                                         float grad_scale);
/** Release all gradients: zero_grad(set_to_none=True). */
FSDP_API void fsdp_optimizer_zero_grad(fsdp_optimizer *optimizer);

/** Set or get the learning rate of the next steps, for every group or for one group. @{ */
FSDP_API void fsdp_optimizer_set_lr(fsdp_optimizer *optimizer, double lr);
FSDP_API void fsdp_optimizer_set_group_lr(fsdp_optimizer *optimizer, int group, double lr);
FSDP_API double fsdp_optimizer_lr(const fsdp_optimizer *optimizer, int group);
FSDP_API int fsdp_optimizer_n_groups(const fsdp_optimizer *optimizer);
/** @} */

/** Return "adamw", "adam", "sgd" or "adafactor", depending on the first group; static storage. */
FSDP_API const char *fsdp_optimizer_name(const fsdp_optimizer *optimizer);
/** Get the optimizer's parameters, in the order in which they were passed. Borrowed. */
FSDP_API const fsdp_parameter_list *fsdp_optimizer_parameters(const fsdp_optimizer *optimizer);
/** Return the number of steps in which this parameter was updated; 0 if the parameter is not one of
 * the optimizer's. */
FSDP_API int64_t fsdp_optimizer_steps(const fsdp_optimizer *optimizer,
                                      const fsdp_parameter *parameter);
/**
 * Get the state of a parameter by PyTorch's name: "exp_avg", "exp_avg_sq", "momentum_buffer", ...
 * ("step" is fsdp_optimizer_steps()). The tensor is float32 and has the rows of the parameter's
 * local tensor; it is a DTensor if the local tensor is one. Borrowed; NULL if the state does not
 * exist (yet).
 */
FSDP_API fsdp_tensor *fsdp_optimizer_state(const fsdp_optimizer *optimizer,
                                           const fsdp_parameter *parameter, const char *name);
/** Get the k-th of the state names that parameters of this optimizer may have; NULL after the last
 * one. */
FSDP_API const char *fsdp_optimizer_state_name(const fsdp_optimizer *optimizer, int k);
/**
 * Allocate the state of every trainable parameter, with the zeros that it has before the first
 * step, so that saved values can be written into it (fsdp_set_optimizer_state_dict() calls this).
 * Existing state is kept.
 *
 * @return FSDP_ERR_STATE if a parameter has no memory, or its sharding changed after its state was
 *         created
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_optimizer_init_state(fsdp_optimizer *optimizer);
/**
 * Set the number of steps in which the parameter was updated; the bias correction of the next step
 * depends on it. 0: the next step starts with fresh state.
 * @return FSDP_ERR_INVALID for a negative number or a parameter that is not the optimizer's
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_optimizer_set_steps(fsdp_optimizer *optimizer,
                                                              const fsdp_parameter *parameter,
                                                              int64_t steps);
/** @} */

/** @name Learning rate schedules @{ */
typedef enum fsdp_lr_schedule_kind {
    FSDP_LR_STEP,           /**< StepLR: lr * gamma^floor(s / unit_steps / step_size) */
    FSDP_LR_LINEAR,         /**< from lr down to min_lr */
    FSDP_LR_COSINE,         /**< half a cosine from lr down to min_lr */
    FSDP_LR_CONSTANT,       /**< lr */
    FSDP_LR_INVERSE_SQRT,   /**< lr / sqrt(1 + (s - warmup) / T), where T is the warmup, or 10000 if
                                 the warmup is 0 */
    FSDP_LR_POLYNOMIAL,     /**< a power of the remaining fraction, from lr down to min_lr */
    FSDP_LR_COSINE_RESTARTS /**< num_cycles half cosines, each from lr down to min_lr */
} fsdp_lr_schedule_kind;

/**
 * A learning rate as a function of s, the number of finished optimizer steps. All kinds begin with
 * a linear warmup from 0: while s < warmup_steps the rate is multiplied by s / warmup_steps. If the
 * warmup is longer than the run, the rate rises during the whole run. After the warmup, the
 * following kinds go from lr to min_lr. They reach it at N = total_steps and then stay there. With
 * x = (s - warmup) / (N - warmup), the rate is:
 *
 *     linear          min_lr + (lr - min_lr) * (1 - x)
 *     cosine          min_lr + (lr - min_lr) * (1 + cos(pi * x)) / 2
 *     polynomial      min_lr + (lr - min_lr) * (1 - x)^power
 *     cosine restarts min_lr + (lr - min_lr) * (1 + cos(pi * (num_cycles * x mod 1))) / 2
 *
 * These are transformers' get_linear_schedule_with_warmup,
 * get_cosine_with_min_lr_schedule_with_warmup (whose cosine rises again after N),
 * get_polynomial_decay_schedule_with_warmup (whose lr_end is min_lr),
 * get_cosine_with_hard_restarts_schedule_with_warmup and get_inverse_sqrt_schedule.
 */
typedef struct fsdp_lr_schedule {
    fsdp_lr_schedule_kind kind;
    double lr, min_lr;
    double gamma;         /**< FSDP_LR_STEP */
    int64_t step_size;    /**< FSDP_LR_STEP: gamma applies once every step_size units */
    int64_t unit_steps;   /**< optimizer steps per unit, usually 1 or the steps of an epoch; 0 means
                               1. After the warmup the rate changes only between units. */
    int64_t warmup_steps; /**< optimizer steps */
    int64_t total_steps;  /**< optimizer steps; used by the kinds that fall to min_lr */
    double power;         /**< FSDP_LR_POLYNOMIAL; > 0 */
    double num_cycles;    /**< FSDP_LR_COSINE_RESTARTS; > 0 */
} fsdp_lr_schedule;

/** @return FSDP_ERR_INVALID naming a field out of bounds. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_lr_schedule_check(const fsdp_lr_schedule *schedule);
/** Return the learning rate after `step` finished steps. */
FSDP_API double fsdp_lr_at(const fsdp_lr_schedule *schedule, int64_t step);
/** @} */

/** @name Clipping @{ */
/** Zero means default. */
typedef struct fsdp_clip_grad_options {
    double norm_type; /**< p of the p-norm, > 0; INFINITY: the largest magnitude; default 2 */
    bool error_if_nonfinite; /**< return an error if the norm is NaN or infinite; default: use the
                                  norm anyway */
} fsdp_clip_grad_options;

/**
 * torch.nn.utils.clip_grad_norm_: scale all gradients by min(1, max_norm / (total_norm + 1e-6)).
 *
 * The norm is taken over the whole gradients of all ranks. For each tensor, |x|^p is summed in
 * double, in an order that depends only on the whole tensor; then the sums of the tensors are added
 * in the order of their names. So the result has the same bits at any world size. Collective if
 * parameters are sharded: one small gather.
 *
 * @param parameters parameters that are frozen or have no gradient are ignored
 * @param max_norm   >= 0; INFINITY: only compute the norm
 * @param options    NULL: all defaults
 * @param total_norm out: the norm before clipping; may be NULL
 * @param scale      out: the factor to pass to fsdp_optimizer_step(); gradients are not changed.
 *                   NULL: multiply the gradients by the factor now.
 * @return FSDP_ERR_INVALID for a negative or NaN max_norm or norm_type; FSDP_ERR_NUMERIC with
 *         error_if_nonfinite, naming the first bad tensor of `parameters`. The result is the same
 *         on every rank.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_clip_grad_norm(const fsdp_parameter_list *parameters,
                                                         double max_norm,
                                                         const fsdp_clip_grad_options *options,
                                                         double *total_norm, float *scale);
/**
 * torch.nn.utils.clip_grad_value_: limit each element of the gradients to [-clip_value,
 * clip_value]. NaN is kept. Not collective.
 *
 * @param parameters parameters that are frozen or have no gradient are ignored
 * @param clip_value >= 0, else FSDP_ERR_INVALID
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_clip_grad_value(const fsdp_parameter_list *parameters,
                                                          double clip_value);
/** @} */

/** @name Loss scaling @{ */
/**
 * torch.amp.GradScaler for float16 gradients, with ShardedGradScaler's agreement between ranks. A
 * training loop has one scaler for all its optimizers. For each optimizer the loop may call unscale
 * and must call step before it calls update:
 *
 *     loss = fsdp_linear_cross_entropy(s, x, w, labels, factor * (float)fsdp_grad_scaler_scale(g));
 *     ... backward ...
 *     FSDP_TRY(fsdp_grad_scaler_unscale(g, optimizer));           (optional: step does it)
 *     FSDP_TRY(fsdp_clip_grad_norm(&parameters, 1.0, NULL, &norm, &clip));
 *     FSDP_TRY(fsdp_grad_scaler_step(g, optimizer, clip));
 *     FSDP_TRY(fsdp_grad_scaler_update(g));
 *
 * If an optimizer's gradients are not finite on any rank, its step changes no parameter, moment or
 * step count on any rank, and update lowers the scale. Other optimizers still take their step.
 */
typedef struct fsdp_grad_scaler fsdp_grad_scaler;

/** Zero means default. */
typedef struct fsdp_grad_scaler_options {
    double init_scale;       /**< default 65536 */
    double growth_factor;    /**< > 1; default 2 */
    double backoff_factor;   /**< < 1; default 0.5 */
    int64_t growth_interval; /**< consecutive updates without inf before the scale grows; default
                                  2000 */
    bool disabled; /**< enabled=False: the scale is 1, and fsdp_grad_scaler_step() only calls the
                        optimizer's step */
    fsdp_group *group; /**< ShardedGradScaler's process_group: the ranks that step together,
                            borrowed; NULL: the ranks over which parameters are sharded */
} fsdp_grad_scaler_options;

/** The values in GradScaler.state_dict(), for checkpoints. */
typedef struct fsdp_grad_scaler_state {
    double scale, growth_factor, backoff_factor;
    int64_t growth_interval;
    int64_t growth_tracker; /**< torch's _growth_tracker: consecutive updates without inf */
} fsdp_grad_scaler_state;

/** @return FSDP_ERR_INVALID naming a field out of bounds. */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_grad_scaler_create(const fsdp_grad_scaler_options *options, fsdp_grad_scaler **scaler);
FSDP_API void fsdp_grad_scaler_destroy(fsdp_grad_scaler *scaler); /**< accepts NULL */
/** Return the factor by which to multiply the loss; 1 if the scaler is disabled. */
FSDP_API double fsdp_grad_scaler_scale(const fsdp_grad_scaler *scaler);
FSDP_API bool fsdp_grad_scaler_is_enabled(const fsdp_grad_scaler *scaler);
/**
 * unscale_(optimizer): divide the gradients of the optimizer's parameters by the scale, in place,
 * and check whether they are finite on all ranks. Collective: each rank sends one number in each
 * group of ranks.
 * @param optimizer borrowed until update
 * @return FSDP_ERR_STATE if unscale or step was called for this optimizer since the last update
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_grad_scaler_unscale(fsdp_grad_scaler *scaler,
                                                              const fsdp_optimizer *optimizer);
/** Between unscale and update: are any gradients of the unscaled optimizers infinite or NaN? The
 * result is the same on all ranks. */
FSDP_API bool fsdp_grad_scaler_found_inf(const fsdp_grad_scaler *scaler);
/**
 * Do the optimizer's step, unless its gradients are not finite. Unscale them first if
 * fsdp_grad_scaler_unscale() was not called. Collective.
 * @return the errors of fsdp_optimizer_step(); FSDP_ERR_STATE if called twice for one optimizer
 *         before update
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_grad_scaler_step(fsdp_grad_scaler *scaler,
                                                           fsdp_optimizer *optimizer,
                                                           float grad_scale);
/** Compute the scale of the next step. FSDP_ERR_STATE if neither unscale nor step was called since
 * the last update. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_grad_scaler_update(fsdp_grad_scaler *scaler);
FSDP_API fsdp_grad_scaler_state fsdp_grad_scaler_get_state(const fsdp_grad_scaler *scaler);
/** GradScaler.load_state_dict(): set the state. FSDP_ERR_INVALID naming a field out of bounds. */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_grad_scaler_set_state(fsdp_grad_scaler *scaler, const fsdp_grad_scaler_state *state);
/** @} */

#ifdef __cplusplus
}
#endif
