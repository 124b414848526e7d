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
FSDP_API void fsdp_optimizer_destroy(fsdp_optimizer *optimizer); /**< accepts NULL */

/**
 * Update every parameter that has a gradient; others keep values, state and step count, as in
 * torch. Collective where parameters are sharded: every rank calls it, also one without rows.
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

/** "adamw", "adam" or "sgd", by the first group; static storage. */
FSDP_API const char *fsdp_optimizer_name(const fsdp_optimizer *optimizer);
/** Its parameters, in the order they were given. Borrowed. */
FSDP_API const fsdp_parameter_list *fsdp_optimizer_parameters(const fsdp_optimizer *optimizer);
/** Steps that this parameter has taken; 0 if it is not one of the optimizer's. */
FSDP_API int64_t fsdp_optimizer_steps(const fsdp_optimizer *optimizer,
                                      const fsdp_parameter *parameter);
/**
 * State of a parameter by torch's name: "exp_avg", "exp_avg_sq", "momentum_buffer". float32, rows
 * as the parameter's local; a DTensor if that is one. Borrowed; NULL if there is none (yet).
 */
FSDP_API fsdp_tensor *fsdp_optimizer_state(const fsdp_optimizer *optimizer,
                                           const fsdp_parameter *parameter, const char *name);
/** @} */

/** @name Learning rate schedules @{ */
typedef enum fsdp_lr_schedule_kind {
    FSDP_LR_STEP,    /**< StepLR: lr * gamma^floor(t / step_size) */
    FSDP_LR_LINEAR,  /**< from lr down to min_lr */
    FSDP_LR_COSINE,  /**< half a cosine from lr down to min_lr */
    FSDP_LR_CONSTANT /**< lr */
} fsdp_lr_schedule_kind;

/**
 * A rate as a function of the optimizer steps done, s. All kinds begin with a linear warmup from 0:
 * while s < warmup_steps the rate is multiplied by s / warmup_steps. Linear and cosine then take
 * N = total_steps to go from lr to min_lr and stay there:
 *
 *     linear  min_lr + (lr - min_lr) * (N - s) / (N - warmup)
 *     cosine  min_lr + (lr - min_lr) * (1 + cos(pi * (s - warmup) / (N - warmup))) / 2
 *
 * (transformers' get_linear_schedule_with_warmup, get_cosine_with_min_lr_schedule_with_warmup).
 */
typedef struct fsdp_lr_schedule {
    fsdp_lr_schedule_kind kind;
    double lr, min_lr;
    double gamma;         /**< FSDP_LR_STEP */
    int64_t step_size;    /**< FSDP_LR_STEP: units after which gamma applies */
    int64_t unit_steps;   /**< optimizer steps of a unit; beyond warmup the rate changes between
                               units only: 0 or 1, or the steps of an epoch */
    int64_t warmup_steps; /**< optimizer steps */
    int64_t total_steps;  /**< optimizer steps; FSDP_LR_LINEAR, FSDP_LR_COSINE */
} fsdp_lr_schedule;

/** @return FSDP_ERR_INVALID naming the field that is out of bounds. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_lr_schedule_check(const fsdp_lr_schedule *schedule);
/** The rate of the step after `step` finished ones. */
FSDP_API double fsdp_lr_at(const fsdp_lr_schedule *schedule, int64_t step);
/** @} */

/** @name Clipping @{ */
/** Zero means default. */
typedef struct fsdp_clip_grad_options {
    bool error_if_nonfinite; /**< a NaN or infinite norm is an error; default: it scales */
} fsdp_clip_grad_options;

/**
 * torch.nn.utils.clip_grad_norm_ with the 2-norm: scale all gradients together by
 * min(1, max_norm / (total_norm + 1e-6)).
 *
 * The norm is that of the whole gradients. Sums of squares of rows, in double, are gathered and
 * added in row order of the whole tensor, tensors in the order of their names: the same bits at
 * any world size. Collective where parameters are sharded.
 *
 * @param parameters those without a gradient do not count
 * @param max_norm   >= 0; INFINITY: only the norm is wanted
 * @param options    NULL: all defaults
 * @param total_norm out: before clipping; may be NULL
 * @param scale      out: the factor, for fsdp_optimizer_step(); gradients stay as they are. NULL:
 *                   gradients are multiplied by it here.
 * @return FSDP_ERR_NUMERIC with error_if_nonfinite, naming the first bad tensor; on every rank
 *         alike.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_clip_grad_norm(const fsdp_parameter_list *parameters,
                                                         double max_norm,
                                                         const fsdp_clip_grad_options *options,
                                                         double *total_norm, float *scale);
/** @} */

#ifdef __cplusplus
}
#endif
