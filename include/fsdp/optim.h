/**
 * @file
 * Optimizers, learning rate schedules, gradient clipping: torch.optim, on shards.
 *
 * A step touches this rank's rows only. It is the same program for one rank and for many:
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

/** Of one parameter group. 0 is a legal value of each: start from fsdp_adamw_defaults(). */
typedef struct fsdp_adamw_options {
    double lr;           /**< default 1e-3 */
    double beta1, beta2; /**< default 0.9, 0.999 */
    double eps;          /**< default 1e-8 */
    double weight_decay; /**< default 0.01; of every parameter of the group */
    bool l2;             /**< torch.optim.Adam: decay is added to the gradient; default false */
} fsdp_adamw_options;

/** torch.optim.AdamW's. */
FSDP_API fsdp_adamw_options fsdp_adamw_defaults(void);

/** Of one parameter group. 0 is a legal value of each: start from fsdp_sgd_defaults(). */
typedef struct fsdp_sgd_options {
    double lr;           /**< default 1e-3 */
    double momentum;     /**< default 0 */
    double dampening;    /**< default 0 */
    double weight_decay; /**< default 0 */
    bool nesterov;       /**< default false; needs momentum and no dampening */
} fsdp_sgd_options;

/** torch.optim.SGD's. */
FSDP_API fsdp_sgd_options fsdp_sgd_defaults(void);

/** Of one parameter group. 0 is a legal value of most: start from fsdp_adafactor_defaults(). */
typedef struct fsdp_adafactor_options {
    double lr;             /**< default 0, and 0 it stays with relative_step (lr=None) */
    double eps1, eps2;     /**< added to squared gradients, least scale of a parameter; default
                                1e-30, 1e-3 */
    double clip_threshold; /**< of the root mean square of an update; default 1 */
    double decay_rate;     /**< step t's average has the factor 1 - t^decay_rate; default -0.8 */
    double beta1;          /**< of the first moment; below 0: none (beta1=None), the default */
    double weight_decay;   /**< default 0 */
    bool scale_parameter;  /**< the rate is multiplied by the parameter's root mean square, or by
                                eps2 if that is more; default true */
    bool relative_step;    /**< the rate is min(1e-2, 1 / sqrt(t)); default true */
    bool warmup_init;      /**< of which 1e-2 is 1e-6 t; needs relative_step; default false */
} fsdp_adafactor_options;

/** transformers.optimization.Adafactor's. */
FSDP_API fsdp_adafactor_options fsdp_adafactor_defaults(void);

/**
 * AdamW (Loshchilov & Hutter 2019) over the parameters of `module`, each once; its state is
 * "exp_avg" and "exp_avg_sq".
 *
 * State is float32, of this rank's rows, and gets memory in the first step in which a parameter
 * has a gradient. So an optimizer may be built before fsdp_fully_shard(), and follows the
 * parameters; after a step they must stay as they are sharded.
 *
 * @param module    all its parameters are group 0; NULL: groups come with fsdp_adamw_add_group().
 *                  Must outlive the optimizer's use.
 * @param options   NULL: all defaults; copied
 * @param optimizer out: owned by the caller; destroyed before the device
 * @return FSDP_ERR_INVALID for options out of bounds or a module without parameters.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_adamw_create(fsdp_module *module,
                                                       const fsdp_adamw_options *options,
                                                       fsdp_optimizer **optimizer);
/** Stochastic gradient descent; with momentum its state is "momentum_buffer". See above. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_sgd_create(fsdp_module *module,
                                                     const fsdp_sgd_options *options,
                                                     fsdp_optimizer **optimizer);
/**
 * Adafactor (Shazeer & Stern 2018) as transformers.optimization.Adafactor computes it. A parameter
 * of two or more dimensions keeps "exp_avg_sq_row" and "exp_avg_sq_col", the averages over its last
 * and its last but one dimension, a vector keeps "exp_avg_sq"; all keep "RMS", of the parameter
 * before the latest step, and with beta1 "exp_avg". See above.
 *
 * "exp_avg_sq_row" is sharded as the parameter. So is "exp_avg_sq_col" from three dimensions on,
 * whose matrices a rank has whole; of a matrix it is the same on every rank (Replicate). "RMS" is
 * an ordinary scalar.
 *
 * Means are over whole tensors, in double, in an order that depends on their shapes alone: the same
 * bits at any world size. A step takes two gathers for each group of ranks, however many parameters
 * there are: per matrix at most 2 log2(rows) (columns + 3) numbers of 8 bytes from each rank.
 *
 * With relative_step fsdp_optimizer_set_lr() changes nothing, and fsdp_optimizer_lr() is what
 * transformers' AdafactorSchedule tells: the rate of the latest step of the group's first
 * parameter, 0 before.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_adafactor_create(fsdp_module *module,
                                                           const fsdp_adafactor_options *options,
                                                           fsdp_optimizer **optimizer);
/**
 * A further group with options of its own, e.g. norms without weight decay.
 *
 * @param parameters names are copied, parameters borrowed
 * @return FSDP_ERR_INVALID for an empty list, a parameter that has a group, options out of bounds,
 *         or another kind of optimizer.
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
 * The trainable parameters of `module`, each once, in two lists as transformers' Trainer has them
 * (get_decay_parameter_names): no weight decay for biases and norms. Those are whatever has one
 * dimension, and names with "bias", "layernorm", "rmsnorm" or a part that is or ends in "norm"
 * after an underscore, e.g. T5's relative_attention_bias.weight.
 *
 * @param decay, no_decay out: one may be empty; freed with fsdp_parameter_list_free()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_decay_parameters(fsdp_module *module,
                                                           fsdp_parameter_list *decay,
                                                           fsdp_parameter_list *no_decay);
FSDP_API void fsdp_optimizer_destroy(fsdp_optimizer *optimizer); /**< accepts NULL */

/**
 * Update every parameter that has a gradient and is not frozen; others keep values, state and step
 * count. Collective where parameters are sharded: every rank calls it, also one without rows.
 *
 * A float32 master is updated in place; a bfloat16 one is widened, updated and rounded to nearest
 * even.
 *
 * @param grad_scale gradients are multiplied by it as they are read: what fsdp_clip_grad_norm()
 *                   gives, or 1
 * @return FSDP_ERR_STATE if a parameter has no memory, or was sharded otherwise after its state
 *         was made: nothing was changed then. FSDP_ERR_COMM if a peer failed.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_optimizer_step(fsdp_optimizer *optimizer,
                                                         float grad_scale);
/** Release all gradients: zero_grad(set_to_none=True). */
FSDP_API void fsdp_optimizer_zero_grad(fsdp_optimizer *optimizer);

/** Rate of the next steps, of every group, or of one. @{ */
FSDP_API void fsdp_optimizer_set_lr(fsdp_optimizer *optimizer, double lr);
FSDP_API void fsdp_optimizer_set_group_lr(fsdp_optimizer *optimizer, int group, double lr);
FSDP_API double fsdp_optimizer_lr(const fsdp_optimizer *optimizer, int group);
FSDP_API int fsdp_optimizer_n_groups(const fsdp_optimizer *optimizer);
/** @} */

/** "adamw", "adam", "sgd" or "adafactor", by the first group; static storage. */
FSDP_API const char *fsdp_optimizer_name(const fsdp_optimizer *optimizer);
/** Its parameters, in the order they were given. Borrowed. */
FSDP_API const fsdp_parameter_list *fsdp_optimizer_parameters(const fsdp_optimizer *optimizer);
/** Steps that this parameter has taken; 0 if it is not one of the optimizer's. */
FSDP_API int64_t fsdp_optimizer_steps(const fsdp_optimizer *optimizer,
                                      const fsdp_parameter *parameter);
/**
 * State of a parameter by torch's name: "exp_avg", "exp_avg_sq", "momentum_buffer", ... (torch's
 * "step" is fsdp_optimizer_steps()). float32, rows as the parameter's local; a DTensor if that is
 * one. Borrowed; NULL if there is none (yet).
 */
FSDP_API fsdp_tensor *fsdp_optimizer_state(const fsdp_optimizer *optimizer,
                                           const fsdp_parameter *parameter, const char *name);
/** Name k of those that parameters of this optimizer may have; NULL after the last. */
FSDP_API const char *fsdp_optimizer_state_name(const fsdp_optimizer *optimizer, int k);
/**
 * Give every trainable parameter its state now, zero as before its first step, so that saved values
 * can be written into it (fsdp_set_optimizer_state_dict() does it). State that is there stays.
 *
 * @return FSDP_ERR_STATE if a parameter has no memory, or was sharded otherwise after its state was
 *         made
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_optimizer_init_state(fsdp_optimizer *optimizer);
/**
 * How many steps the parameter has taken: the next one's bias correction follows from it. 0 means
 * that its state is to be begun anew.
 * @return FSDP_ERR_INVALID for a negative number or a parameter that is not the optimizer's
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_optimizer_set_steps(fsdp_optimizer *optimizer,
                                                              const fsdp_parameter *parameter,
                                                              int64_t steps);
/** @} */

/** @name Learning rate schedules @{ */
typedef enum fsdp_lr_schedule_kind {
    FSDP_LR_STEP,           /**< StepLR: lr * gamma^floor(t / step_size) */
    FSDP_LR_LINEAR,         /**< from lr down to min_lr */
    FSDP_LR_COSINE,         /**< half a cosine from lr down to min_lr */
    FSDP_LR_CONSTANT,       /**< lr */
    FSDP_LR_INVERSE_SQRT,   /**< lr / sqrt(1 + (s - warmup) / T), T the warmup, or 10000 without */
    FSDP_LR_POLYNOMIAL,     /**< a power of what is left, from lr down to min_lr */
    FSDP_LR_COSINE_RESTARTS /**< num_cycles half cosines, each from lr down to min_lr */
} fsdp_lr_schedule_kind;

/**
 * A rate as a function of the optimizer steps done, s. All kinds begin with a linear warmup from 0:
 * while s < warmup_steps the rate is multiplied by s / warmup_steps. A warmup that is longer than
 * the run is a rise over the whole run. Linear, cosine and polynomial then take N = total_steps to
 * go from lr to min_lr and stay there, with x = (s - warmup) / (N - warmup):
 *
 *     linear          min_lr + (lr - min_lr) * (1 - x)
 *     cosine          min_lr + (lr - min_lr) * (1 + cos(pi * x)) / 2
 *     polynomial      min_lr + (lr - min_lr) * (1 - x)^power
 *     cosine restarts min_lr + (lr - min_lr) * (1 + cos(pi * (num_cycles * x mod 1))) / 2
 *
 * (transformers' get_linear_schedule_with_warmup, get_cosine_with_min_lr_schedule_with_warmup,
 * whose cosine rises again after N; get_polynomial_decay_schedule_with_warmup, whose lr_end is
 * min_lr; get_cosine_with_hard_restarts_schedule_with_warmup; get_inverse_sqrt_schedule).
 */
typedef struct fsdp_lr_schedule {
    fsdp_lr_schedule_kind kind;
    double lr, min_lr;
    double gamma;         /**< FSDP_LR_STEP */
    int64_t step_size;    /**< FSDP_LR_STEP: units after which gamma applies */
    int64_t unit_steps;   /**< optimizer steps of a unit; beyond warmup the rate changes between
                               units only: 0 or 1, or the steps of an epoch */
    int64_t warmup_steps; /**< optimizer steps */
    int64_t total_steps;  /**< optimizer steps; all kinds that end at min_lr */
    double power;         /**< FSDP_LR_POLYNOMIAL; above 0 */
    double num_cycles;    /**< FSDP_LR_COSINE_RESTARTS; above 0 */
} fsdp_lr_schedule;

/** @return FSDP_ERR_INVALID naming the field that is out of bounds. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_lr_schedule_check(const fsdp_lr_schedule *schedule);
/** The rate of the step after `step` finished ones. */
FSDP_API double fsdp_lr_at(const fsdp_lr_schedule *schedule, int64_t step);
/** @} */

/** @name Clipping @{ */
/** Zero means default. */
typedef struct fsdp_clip_grad_options {
    double norm_type;        /**< p of the p-norm, above 0; INFINITY: the largest magnitude;
                                  default 2 */
    bool error_if_nonfinite; /**< a NaN or infinite norm is an error; default: it scales */
} fsdp_clip_grad_options;

/**
 * torch.nn.utils.clip_grad_norm_: scale all gradients together by
 * min(1, max_norm / (total_norm + 1e-6)).
 *
 * The norm is that of the whole gradients. Sums over rows of |x|^p, in double, are added in an
 * order that depends on the whole tensors alone, tensors in the order of their names: the same
 * bits at any world size. Collective where parameters are sharded: one small gather.
 *
 * @param parameters those that are frozen or have no gradient do not count
 * @param max_norm   >= 0; INFINITY: only the norm is wanted
 * @param options    NULL: all defaults
 * @param total_norm out: before clipping; may be NULL
 * @param scale      out: the factor, for fsdp_optimizer_step(); gradients stay as they are. NULL:
 *                   gradients are multiplied by it here.
 * @return FSDP_ERR_INVALID for a negative or NaN max_norm or norm_type; FSDP_ERR_NUMERIC with
 *         error_if_nonfinite, naming the first bad tensor of `parameters`; on every rank alike.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_clip_grad_norm(const fsdp_parameter_list *parameters,
                                                         double max_norm,
                                                         const fsdp_clip_grad_options *options,
                                                         double *total_norm, float *scale);
/**
 * torch.nn.utils.clip_grad_value_: limit each element of the gradients to [-clip_value,
 * clip_value]; NaN stays. Not collective.
 *
 * @param parameters those that are frozen or have no gradient are left out
 * @param clip_value >= 0, else FSDP_ERR_INVALID
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_clip_grad_value(const fsdp_parameter_list *parameters,
                                                          double clip_value);
/** @} */

/** @name Loss scaling @{ */
/**
 * torch.amp.GradScaler for gradients of float16, with ShardedGradScaler's agreement over ranks. One
 * for all optimizers of a loop, each of which may have unscale, and has step, before the one
 * update:
 *
 *     loss = fsdp_linear_cross_entropy(s, x, w, labels, factor * (float)fsdp_grad_scaler_scale(g));
 *     ... backward ...
 *     FSDP_TRY(fsdp_grad_scaler_unscale(g, optimizer));           (may be left to step)
 *     FSDP_TRY(fsdp_clip_grad_norm(&parameters, 1.0, NULL, &norm, &clip));
 *     FSDP_TRY(fsdp_grad_scaler_step(g, optimizer, clip));
 *     FSDP_TRY(fsdp_grad_scaler_update(g));
 *
 * Where any rank's gradients of an optimizer are not finite, its step leaves parameters, moments
 * and step counts as they are on every rank, and update lowers the scale. Other optimizers step.
 */
typedef struct fsdp_grad_scaler fsdp_grad_scaler;

/** Zero means default. */
typedef struct fsdp_grad_scaler_options {
    double init_scale;       /**< default 65536 */
    double growth_factor;    /**< above 1; default 2 */
    double backoff_factor;   /**< below 1; default 0.5 */
    int64_t growth_interval; /**< updates without inf in a row after which it grows; default 2000 */
    bool disabled;           /**< enabled=False: the scale is 1, step is the optimizer's */
    fsdp_group *group;       /**< ranks that step together, borrowed; NULL: those over which
                                         parameters are sharded. ShardedGradScaler's process_group */
} fsdp_grad_scaler_options;

/** state_dict(): what a checkpoint keeps. */
typedef struct fsdp_grad_scaler_state {
    double scale, growth_factor, backoff_factor;
    int64_t growth_interval;
    int64_t growth_tracker; /**< torch's _growth_tracker: updates without inf in a row */
} fsdp_grad_scaler_state;

/** @return FSDP_ERR_INVALID naming the field that is out of bounds. */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_grad_scaler_create(const fsdp_grad_scaler_options *options, fsdp_grad_scaler **scaler);
FSDP_API void fsdp_grad_scaler_destroy(fsdp_grad_scaler *scaler); /**< accepts NULL */
/** What the loss is to be multiplied by; 1 if disabled. */
FSDP_API double fsdp_grad_scaler_scale(const fsdp_grad_scaler *scaler);
FSDP_API bool fsdp_grad_scaler_is_enabled(const fsdp_grad_scaler *scaler);
/**
 * unscale_(optimizer): divide the gradients of its parameters by the scale in place, and learn
 * whether all are finite on all ranks. Collective: one number, for each group of ranks.
 * @param optimizer borrowed until update
 * @return FSDP_ERR_STATE if it or step was called for this optimizer since the last update
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_grad_scaler_unscale(fsdp_grad_scaler *scaler,
                                                              const fsdp_optimizer *optimizer);
/** Between unscale and update: are gradients of an optimizer that was unscaled infinite or NaN
 * somewhere? Alike on all ranks. */
FSDP_API bool fsdp_grad_scaler_found_inf(const fsdp_grad_scaler *scaler);
/**
 * The optimizer's step, left out where its gradients are not finite; unscale first, if that was not
 * done. Collective.
 * @return as fsdp_optimizer_step(); FSDP_ERR_STATE if called twice for it before update
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_grad_scaler_step(fsdp_grad_scaler *scaler,
                                                           fsdp_optimizer *optimizer,
                                                           float grad_scale);
/** The scale of the next step. FSDP_ERR_STATE without unscale or step before it. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_grad_scaler_update(fsdp_grad_scaler *scaler);
FSDP_API fsdp_grad_scaler_state fsdp_grad_scaler_get_state(const fsdp_grad_scaler *scaler);
/** load_state_dict(). FSDP_ERR_INVALID naming the field that is out of bounds. */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_grad_scaler_set_state(fsdp_grad_scaler *scaler, const fsdp_grad_scaler_state *state);
/** @} */

#ifdef __cplusplus
}
#endif
