/**
 * @file
 * torch.optim for sharded parameters: optimizers, learning rate schedules, gradient clipping, loss
 * scaling.
 *
 * On each rank, a step updates only this rank's rows. The same program works for one rank and for
 * many:
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
    bool l2; /**< true: torch.optim.Adam, which adds weight_decay * parameter to the gradient;
                default false */
    /** The dtype of the moments: FSDP_DTYPE_F32 (default) or FSDP_DTYPE_BF16. A bfloat16 moment is
     * computed in float32 and rounded to nearest, as by torch.optim.AdamW(fused=True) for bfloat16
     * parameters. With bfloat16, exp_avg_sq stops following the gradients if 1 - beta2 is below
     * 2^-9. A state that already exists keeps its dtype. */
    fsdp_dtype state_dtype;
    /** Round stochastically what the step stores in bfloat16: bfloat16 master weights (as
     * torchao.optim does with its option of this name) and bfloat16 moments. Let x be a value
     * between two neighboring bfloat16 numbers a < b. It is rounded up to b with probability (x -
     * a) / (b - a), and otherwise down to a. So updates that are too small for a bfloat16 are not
     * lost on average. The random numbers are a function of `seed`, the number of the step, the
     * parameter and the index of the element in the whole parameter. They depend neither on the
     * number of ranks nor on the number of steps since the run was resumed. Parameters must be
     * sharded along dimension 0, and the device must be the CPU. Default false. */
    bool bf16_stochastic_round;
    uint64_t seed; /**< used only with bf16_stochastic_round; default 0 */
    /** Used only by fsdp_adamw_8bit_create(): smaller parameters have float32 states; default
     * 4096. */
    int64_t min_8bit_size;
} fsdp_adamw_options;

/** The defaults of torch.optim.AdamW. */
FSDP_API fsdp_adamw_options fsdp_adamw_defaults(void);

/** torch.optim.Muon's adjust_lr_fn: the factor of the learning rate of a matrix [rows, cols]. */
typedef enum fsdp_muon_adjust_lr {
    FSDP_MUON_ORIGINAL,       /**< sqrt(max(1, rows / cols)) */
    FSDP_MUON_MATCH_RMS_ADAMW /**< 0.2 sqrt(max(rows, cols)): updates are as large as AdamW's */
} fsdp_muon_adjust_lr;

/** Options of one parameter group. 0 is a legal value of most fields, so start from
 * fsdp_muon_defaults(). */
typedef struct fsdp_muon_options {
    double lr;           /**< default 1e-3 */
    double weight_decay; /**< default 0.1 */
    /** True: the parameters of the group, which need not be matrices, are updated by AdamW with
     * beta1, beta2 and adamw_eps. Default false. */
    bool use_adamw;
    double momentum;           /**< default 0.95 */
    bool nesterov;             /**< default true */
    double ns_coefficients[3]; /**< default 3.4445, -4.7750, 2.0315 */
    double eps;                /**< smallest norm by which a matrix is divided; default 1e-7 */
    int ns_steps;              /**< steps of the Newton-Schulz iteration; default 5 */
    fsdp_muon_adjust_lr adjust_lr_fn; /**< default FSDP_MUON_ORIGINAL */
    double beta1, beta2, adamw_eps;   /**< default 0.9, 0.999, 1e-8 */
} fsdp_muon_options;

/** The defaults of torch.optim.Muon and, for the groups with use_adamw, of torch.optim.AdamW. */
FSDP_API fsdp_muon_options fsdp_muon_defaults(void);

/** Options of one parameter group, and what the steps have changed. 0 is a legal value of most
 * fields, so start from fsdp_schedule_free_adamw_defaults(). */
typedef struct fsdp_schedule_free_options {
    double lr;           /**< default 0.0025 */
    double beta1, beta2; /**< default 0.9, 0.999; beta1 must be above 0 */
    double eps;          /**< default 1e-8 */
    double weight_decay; /**< default 0 */
    /** Step number t has the weight t^r * (largest rate so far)^weight_lr_power in the average of
     * all steps. Default: r is 0, weight_lr_power is 2. */
    double r, weight_lr_power;
    int64_t warmup_steps; /**< at step t, the rate is at most lr * t / warmup_steps; default 0 */
    /** @name What the steps of the group have changed; the state dict has it. @{ */
    int64_t k;           /**< steps that the group has taken */
    double weight_sum;   /**< the sum of the weights of these steps */
    double lr_max;       /**< the largest rate of these steps; -1 before the first */
    double scheduled_lr; /**< the rate of the latest step */
    bool train_mode;     /**< false after fsdp_optimizer_eval(); default true */
    /** @} */
} fsdp_schedule_free_options;

/** The defaults of schedulefree.AdamWScheduleFree, except that train_mode is true. */
FSDP_API fsdp_schedule_free_options fsdp_schedule_free_adamw_defaults(void);

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
    double lr; /**< learning rate; must be 0 (lr=None) with relative_step; default 0 */
    /** eps1 (default 1e-30) is added to squared gradients. eps2 (default 1e-3) is for
     * scale_parameter. */
    double eps1, eps2;
    double clip_threshold; /**< largest root mean square of an update; default 1 */
    double decay_rate; /**< at step t, the running average of squared gradients is multiplied by 1 -
                          t^decay_rate; default -0.8 */
    double beta1;      /**< decay of the first moment; below 0 (the default): no first moment
                            (beta1=None) */
    double weight_decay;  /**< default 0 */
    bool scale_parameter; /**< multiply the learning rate by max(eps2, root mean square of the
                             parameter); default true */
    bool relative_step; /**< at step t, the learning rate is min(1e-2, 1 / sqrt(t)) instead of `lr`;
                           default true */
    bool warmup_init;   /**< at step t, the learning rate is min(1e-6 t, 1 / sqrt(t)); requires
                           relative_step; default false */
} fsdp_adafactor_options;

/** The defaults of transformers.optimization.Adafactor. */
FSDP_API fsdp_adafactor_options fsdp_adafactor_defaults(void);

/**
 * Create AdamW (Loshchilov & Hutter 2019) for the parameters of `module`. A tied parameter is
 * updated once per step. The state of a parameter consists of two tensors, "exp_avg" and
 * "exp_avg_sq".
 *
 * These tensors have this rank's rows and the dtype options->state_dtype. They are allocated in the
 * first step in which the parameter has a gradient. So an optimizer may be created before
 * fsdp_fully_shard(), but the sharding must not change after the first step.
 *
 * @param module    its parameters form group 0; NULL: add groups with fsdp_adamw_add_group(). The
 *                  module must exist as long as the optimizer is used.
 * @param options   NULL: all defaults; copied
 * @param optimizer out: owned by the caller; must be destroyed before the device
 * @return FSDP_ERR_INVALID if an option is out of bounds or the module has no parameters
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_adamw_create(fsdp_module *module,
                                                       const fsdp_adamw_options *options,
                                                       fsdp_optimizer **optimizer);
/**
 * Like fsdp_adamw_create(), but for AdamW with states in 8 bits (Dettmers et al. 2022), under the
 * names of bitsandbytes.optim.AdamW8bit. A step widens the states, computes AdamW in float32, and
 * rounds the new states to the nearest value of a map. options->state_dtype and options->l2 must
 * have their default values. The device must be the CPU.
 *
 * The state of a parameter consists of these tensors:
 * - "state1" and "state2": the codes of exp_avg and of exp_avg_sq, in uint8, with the shape of the
 *   parameter
 * - "absmax1" and "absmax2": the largest magnitude of each block of 256 elements, in float32
 * - "qmap1" and "qmap2" [256]: the maps from codes to values, which are the same for all parameters
 *   and on all ranks
 *
 * A row is an entry of dimension 0. A block never crosses the boundary between two rows, and
 * "absmax1" and "absmax2" have the shape [rows, blocks of a row]. So shards never share a block,
 * and the states have the same bits at any world size, without communication. If the number of
 * elements of a row is a multiple of 256, the blocks are those of bitsandbytes, in the same order.
 *
 * The state of some parameters consists only of "state1" and "state2" in float32. These are the
 * parameters with fewer than options->min_8bit_size elements, and those whose number of elements in
 * a row is not a multiple of 16, such as vectors.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_adamw_8bit_create(fsdp_module *module,
                                                            const fsdp_adamw_options *options,
                                                            fsdp_optimizer **optimizer);
/** Like fsdp_adamw_create(), but for stochastic gradient descent. The state of a parameter is one
 * tensor, "momentum_buffer". Without momentum there is no state. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_sgd_create(fsdp_module *module,
                                                     const fsdp_sgd_options *options,
                                                     fsdp_optimizer **optimizer);
/**
 * Like fsdp_adamw_create(), but for Adafactor (Shazeer & Stern 2018), as
 * transformers.optimization.Adafactor computes it.
 *
 * A parameter with two or more dimensions counts as one or more matrices. Its state has
 * "exp_avg_sq_row", the average of the squared gradients of each row of a matrix, and
 * "exp_avg_sq_col", the average of the squared gradients of each column. The state of a vector has
 * "exp_avg_sq" instead. The state of every parameter has "RMS", the parameter's root mean square
 * before the latest step. If beta1 is set, the state of every parameter also has "exp_avg".
 *
 * "exp_avg_sq_row" is sharded like the parameter. Whether "exp_avg_sq_col" is sharded depends on
 * the number of dimensions of the parameter. A parameter with two dimensions is one matrix, whose
 * rows are split over the ranks. So its "exp_avg_sq_col" is the same on every rank (Replicate). If
 * a parameter has three or more dimensions, each rank has some of its matrices as a whole, and
 * "exp_avg_sq_col" is sharded like the parameter. "RMS" is an ordinary scalar.
 *
 * Means of whole tensors are computed in double. The order of the additions depends only on the
 * shapes, so the means have the same bits at any world size. A step needs two gathers for each
 * group of ranks, whatever the number of parameters. For each matrix, a rank sends at most 2 *
 * log2(rows) * (columns + 3) numbers of 8 bytes.
 *
 * With relative_step, fsdp_optimizer_set_lr() has no effect. fsdp_optimizer_lr() then returns the
 * learning rate that the group's first parameter had in its latest step, or 0 before the first
 * step. transformers' AdafactorSchedule reports the same rate.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_adafactor_create(fsdp_module *module,
                                                           const fsdp_adafactor_options *options,
                                                           fsdp_optimizer **optimizer);
/**
 * Like fsdp_adamw_create(), but for Muon (Jordan et al. 2024), as torch.optim.Muon computes it: the
 * update of a matrix is its momentum, made orthogonal by a Newton-Schulz iteration in bfloat16. The
 * state of a matrix is "momentum_buffer". The state of a parameter in a group with use_adamw is
 * that of AdamW.
 *
 * A step gathers each matrix in bfloat16. The ranks take turns: one rank computes the update of a
 * matrix and sends it to all ranks. So each rank computes only its share of the matrices, and needs
 * memory for a few whole matrices. The device must be the CPU.
 *
 * @return FSDP_ERR_INVALID also if a trainable parameter of a group without use_adamw does not have
 *         exactly two dimensions
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_muon_create(fsdp_module *module,
                                                      const fsdp_muon_options *options,
                                                      fsdp_optimizer **optimizer);
/**
 * Like fsdp_adamw_create(), but for Schedule-Free AdamW (Defazio et al. 2024), as
 * schedulefree.AdamWScheduleFree computes it: after a warmup, the learning rate is constant, so no
 * schedule is needed.
 *
 * The algorithm has three values for each parameter. z is what the steps of AdamW change. x is the
 * weighted average of z over all steps, and is the result of the training. y is a point between x
 * and z, at which gradients are computed. During training, the parameter contains y. The state of a
 * parameter is "z" and "exp_avg_sq", both float32; x is computed from y and z. Call
 * fsdp_optimizer_eval() before the model is validated, saved or used, and fsdp_optimizer_train()
 * before the next step. The device must be the CPU.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_schedule_free_adamw_create(
    fsdp_module *module, const fsdp_schedule_free_options *options, fsdp_optimizer **optimizer);
/**
 * Set the parameters to the values with which the model should be used. For Schedule-Free AdamW,
 * this is the average x; for all other optimizers, the call changes nothing. Until
 * fsdp_optimizer_train(), the optimizer keeps a float32 copy of the training values of this rank's
 * rows, and fsdp_optimizer_step() fails. A second call has no effect. Collective.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_optimizer_eval(fsdp_optimizer *optimizer);
/** Undo fsdp_optimizer_eval(): set the parameters to the values with which the next step begins.
 * They have the same bits as before fsdp_optimizer_eval(). But if a state dict was loaded that had
 * been saved after fsdp_optimizer_eval(), the values are computed from x and z (see
 * fsdp_schedule_free_adamw_create()). No effect in training mode. Collective. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_optimizer_train(fsdp_optimizer *optimizer);
/** Return true for a parameter that Muon usually updates: a matrix of a block that is neither an
 * embedding nor a table of biases. A parameter belongs to a block if a component of its name is a
 * number. AdamW usually updates all other parameters. */
FSDP_API bool fsdp_muon_is_for(const fsdp_named_parameter *parameter);
/**
 * Add a parameter group with its own options, e.g. norms without weight decay, to an optimizer that
 * fsdp_adamw_create() created.
 *
 * @param parameters the names are copied, the parameters are borrowed
 * @return FSDP_ERR_INVALID if the list is empty, a parameter is in a group already, an option is
 *         out of bounds, or fsdp_adamw_create() did not create the optimizer
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_adamw_add_group(fsdp_optimizer *optimizer,
                                                          const fsdp_parameter_list *parameters,
                                                          const fsdp_adamw_options *options);
/** Like fsdp_adamw_add_group(), but for an optimizer that fsdp_adamw_8bit_create() created. */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_adamw_8bit_add_group(fsdp_optimizer *optimizer, const fsdp_parameter_list *parameters,
                          const fsdp_adamw_options *options);
/** Like fsdp_adamw_add_group(), but for an optimizer that fsdp_sgd_create() created. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_sgd_add_group(fsdp_optimizer *optimizer,
                                                        const fsdp_parameter_list *parameters,
                                                        const fsdp_sgd_options *options);
/** Like fsdp_adamw_add_group(), but for an optimizer that fsdp_schedule_free_adamw_create()
 * created. */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_schedule_free_adamw_add_group(fsdp_optimizer *optimizer, const fsdp_parameter_list *parameters,
                                   const fsdp_schedule_free_options *options);
/** Like fsdp_adamw_add_group(), but for an optimizer that fsdp_muon_create() created. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_muon_add_group(fsdp_optimizer *optimizer,
                                                         const fsdp_parameter_list *parameters,
                                                         const fsdp_muon_options *options);
/** Like fsdp_adamw_add_group(), but for an optimizer that fsdp_adafactor_create() created. */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_adafactor_add_group(fsdp_optimizer *optimizer, const fsdp_parameter_list *parameters,
                         const fsdp_adafactor_options *options);
/**
 * Split the trainable parameters of `module` into two lists, as transformers' Trainer does
 * (get_decay_parameter_names). A tied parameter is listed once. A parameter is in `no_decay` if its
 * module has the class LayerNorm; if its name contains "bias" (e.g. T5's
 * relative_attention_bias.weight), "layernorm" or "rmsnorm"; or if a component of its name is
 * "norm" or ends in "_norm". Upper and lower case count as equal. All other parameters are in
 * `decay`.
 *
 * @param decay, no_decay out: may be empty; the caller frees each list with
 *                        fsdp_parameter_list_free()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_decay_parameters(fsdp_module *module,
                                                           fsdp_parameter_list *decay,
                                                           fsdp_parameter_list *no_decay);
FSDP_API void fsdp_optimizer_destroy(fsdp_optimizer *optimizer); /**< accepts NULL */

/**
 * Update every parameter that has a gradient and is not frozen. All other parameters keep their
 * values, their state and their step counts. Collective if parameters are sharded: a rank that has
 * no rows must make the call, too.
 *
 * float32 master weights are updated in place. bfloat16 master weights are widened to float32,
 * updated, and rounded to nearest even.
 *
 * @param grad_scale the step multiplies the gradients by this factor when it reads them: `scale` of
 *                   fsdp_clip_grad_norm(), or 1
 * @return FSDP_ERR_STATE if a parameter has no memory, if its sharding has changed since its state
 *         was created, or after fsdp_optimizer_eval(). In these cases the step has changed no
 *         parameter. FSDP_ERR_COMM if a peer failed; the step may then have updated some parameters
 *         and options, but not all
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_optimizer_step(fsdp_optimizer *optimizer,
                                                         float grad_scale);
/** Release all gradients: zero_grad(set_to_none=True). */
FSDP_API void fsdp_optimizer_zero_grad(fsdp_optimizer *optimizer);

/** Set the learning rate of every group for the next steps. */
FSDP_API void fsdp_optimizer_set_lr(fsdp_optimizer *optimizer, double lr);
/** Set the learning rate of one group for the next steps. */
FSDP_API void fsdp_optimizer_set_group_lr(fsdp_optimizer *optimizer, int group, double lr);
/** Get the learning rate of one group: param_groups[group]["lr"]. */
FSDP_API double fsdp_optimizer_lr(const fsdp_optimizer *optimizer, int group);
/** Get the rate that the latest step of one group used. Schedule-Free AdamW computes it from the
 * group's learning rate and warmup_steps: it is schedulefree's `scheduled_lr`, which is 0 before
 * the first step. For all other optimizers this is fsdp_optimizer_lr(). */
FSDP_API double fsdp_optimizer_scheduled_lr(const fsdp_optimizer *optimizer, int group);
FSDP_API int fsdp_optimizer_n_groups(const fsdp_optimizer *optimizer);

/** Return the optimizer's kind: "adamw", "adam" (if group 0 has `l2`), "adamw_8bit", "sgd",
 * "adafactor", "muon" or "schedule_free_adamw"; static storage. */
FSDP_API const char *fsdp_optimizer_name(const fsdp_optimizer *optimizer);
/** Get the parameters of all groups, group by group. Borrowed. */
FSDP_API const fsdp_parameter_list *fsdp_optimizer_parameters(const fsdp_optimizer *optimizer);
/** Return the number of steps in which this parameter was updated. 0 if the optimizer does not have
 * the parameter. */
FSDP_API int64_t fsdp_optimizer_steps(const fsdp_optimizer *optimizer,
                                      const fsdp_parameter *parameter);
/**
 * Get a state tensor of a parameter by PyTorch's name: "exp_avg", "exp_avg_sq", "momentum_buffer",
 * ... (For "step" use fsdp_optimizer_steps().) The state tensor is float32, unless
 * fsdp_adamw_options.state_dtype says otherwise. It has the shape of the parameter's local tensor,
 * and is a DTensor if the local tensor is one. Two optimizers have other state tensors: see
 * fsdp_adamw_8bit_create() and fsdp_adafactor_create(). Return NULL if the optimizer keeps no state
 * tensor of this name, or has not created it yet. Borrowed.
 */
FSDP_API fsdp_tensor *fsdp_optimizer_state(const fsdp_optimizer *optimizer,
                                           const fsdp_parameter *parameter, const char *name);
/** Get the k-th of the names that fsdp_optimizer_state() knows for this optimizer; NULL after the
 * last one. */
FSDP_API const char *fsdp_optimizer_state_name(const fsdp_optimizer *optimizer, int k);
/**
 * Allocate the state of every trainable parameter, with the values that it has before the first
 * step. These values are zeros, with two exceptions: "z" of Schedule-Free AdamW is a copy of the
 * parameter, and the maps of 8-bit states have the values of bitsandbytes. State that exists
 * already is not changed. Saved values can then be written into the state;
 * fsdp_set_optimizer_state_dict() calls this function itself.
 *
 * @return FSDP_ERR_STATE if a parameter has no memory, or if its sharding has changed since its
 *         state was created
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_optimizer_init_state(fsdp_optimizer *optimizer);
/**
 * Set the number of steps in which the parameter was updated. The bias correction of the next step
 * depends on this number. The call does not change the state tensors. If the number is 0, the next
 * step counts as the parameter's first step, even if the parameter has been updated before. In a
 * first step, SGD sets "momentum_buffer" to the gradient.
 * @return FSDP_ERR_INVALID if the number is negative or the optimizer does not have the parameter
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_optimizer_set_steps(fsdp_optimizer *optimizer,
                                                              const fsdp_parameter *parameter,
                                                              int64_t steps);
/** @} */

/** @name Learning rate schedules @{ */
/** Kinds of learning rate schedules. fsdp_lr_schedule has the formulas. */
typedef enum fsdp_lr_schedule_kind {
    FSDP_LR_STEP,           /**< StepLR: lr is multiplied by gamma after every
                               step_size * unit_steps steps */
    FSDP_LR_LINEAR,         /**< a straight line from lr down to min_lr */
    FSDP_LR_COSINE,         /**< half a cosine from lr down to min_lr */
    FSDP_LR_CONSTANT,       /**< always lr */
    FSDP_LR_INVERSE_SQRT,   /**< falls like 1 / sqrt(number of finished steps) */
    FSDP_LR_POLYNOMIAL,     /**< falls from lr to min_lr like a power of the fraction of steps that
                                 remain */
    FSDP_LR_COSINE_RESTARTS /**< num_cycles half cosines, each from lr down to min_lr */
} fsdp_lr_schedule_kind;

/**
 * A learning rate as a function of s, the number of finished optimizer steps. All kinds begin with
 * a linear warmup from 0: while s < warmup_steps, the rate is lr * s / warmup_steps. (For
 * FSDP_LR_STEP, the rate during the warmup is the result of the formula below, multiplied by s /
 * warmup_steps.) If the warmup is longer than the run, the rate rises during the whole run. After
 * the warmup, the rate is as follows, with N = total_steps and x = (s - warmup_steps) / (N -
 * warmup_steps):
 *
 *     step            lr * gamma^floor(s / unit_steps / step_size)
 *     constant        lr
 *     linear          min_lr + (lr - min_lr) * (1 - x)
 *     cosine          min_lr + (lr - min_lr) * (1 + cos(pi * x)) / 2
 *     polynomial      min_lr + (lr - min_lr) * (1 - x)^power
 *     cosine restarts min_lr + (lr - min_lr) * (1 + cos(pi * (num_cycles * x mod 1))) / 2
 *     inverse sqrt    lr / sqrt(1 + (s - warmup_steps) / T)
 *
 * T is warmup_steps, or 10000 without a warmup. The kinds whose formula contains min_lr reach
 * min_lr at s = N and stay there. Most kinds have an equivalent in transformers:
 *
 *     linear          get_linear_schedule_with_warmup
 *     cosine          get_cosine_with_min_lr_schedule_with_warmup; there, the rate rises after N
 *     polynomial      get_polynomial_decay_schedule_with_warmup, where lr_end is min_lr
 *     cosine restarts get_cosine_with_hard_restarts_schedule_with_warmup
 *     inverse sqrt    get_inverse_sqrt_schedule
 */
typedef struct fsdp_lr_schedule {
    fsdp_lr_schedule_kind kind;
    double lr, min_lr;
    double gamma;       /**< FSDP_LR_STEP: factor by which the rate is multiplied */
    int64_t step_size;  /**< FSDP_LR_STEP: number of units (see unit_steps) after which the rate is
                           multiplied by gamma */
    int64_t unit_steps; /**< number of optimizer steps in a unit. After the warmup, the rate changes
                           only at the end of a unit. A unit is usually one step or one epoch. 0
                           means 1. */
    int64_t warmup_steps; /**< number of optimizer steps in the warmup */
    int64_t total_steps;  /**< number of optimizer steps after which the rate is min_lr */
    double power;         /**< FSDP_LR_POLYNOMIAL; > 0 */
    double num_cycles;    /**< FSDP_LR_COSINE_RESTARTS; > 0 */
} fsdp_lr_schedule;

/** Return FSDP_ERR_INVALID if a field is out of bounds; the message names the field. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_lr_schedule_check(const fsdp_lr_schedule *schedule);
/** Return the learning rate of the step that comes after `step` finished steps. */
FSDP_API double fsdp_lr_at(const fsdp_lr_schedule *schedule, int64_t step);
/** @} */

/** @name Clipping @{ */
/** Options of fsdp_clip_grad_norm(). A field that is 0 has its default. */
typedef struct fsdp_clip_grad_options {
    double norm_type;        /**< p of the p-norm, > 0; INFINITY: the norm is the largest magnitude;
                                default 2 */
    bool error_if_nonfinite; /**< true: return FSDP_ERR_NUMERIC if the norm is NaN or infinite;
                                default: scale the gradients nevertheless */
} fsdp_clip_grad_options;

/**
 * torch.nn.utils.clip_grad_norm_: scale all gradients by min(1, max_norm / (total_norm + 1e-6)).
 *
 * total_norm is the norm of all gradients together, including the rows of other ranks. For each
 * gradient, |x|^p is summed in double, in an order that depends only on the shape of the whole
 * gradient. The sums of the gradients are added in the order of the parameters' names (strcmp). So
 * the norm has the same bits at any world size. Collective if parameters are sharded: one small
 * gather.
 *
 * @param parameters parameters that are frozen or have no gradient are ignored
 * @param max_norm   >= 0; INFINITY: only compute the norm
 * @param options    NULL: all defaults
 * @param total_norm out: the norm before clipping; may be NULL
 * @param scale      out: the factor to pass to fsdp_optimizer_step(), which applies it; the
 *                   gradients are not changed. NULL: multiply the gradients by the factor now
 * @return FSDP_ERR_INVALID if max_norm is negative or NaN, or if norm_type is not positive.
 *         FSDP_ERR_NUMERIC with error_if_nonfinite; the message names the first of `parameters`
 *         whose gradient is not finite. Every rank returns the same status
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_clip_grad_norm(const fsdp_parameter_list *parameters,
                                                         double max_norm,
                                                         const fsdp_clip_grad_options *options,
                                                         double *total_norm, float *scale);
/**
 * torch.nn.utils.clip_grad_value_: limit each element of the gradients to [-clip_value,
 * clip_value]. NaN stays NaN. Not collective.
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
 * training loop has one scaler for all its optimizers. In each iteration, the loop may call
 * fsdp_grad_scaler_unscale() and must call fsdp_grad_scaler_step() for each optimizer. Then it
 * calls fsdp_grad_scaler_update():
 *
 *     loss = fsdp_linear_cross_entropy(s, x, w, labels, factor * (float)fsdp_grad_scaler_scale(g));
 *     ... backward ...
 *     FSDP_TRY(fsdp_grad_scaler_unscale(g, optimizer));           (optional: the step does it)
 *     FSDP_TRY(fsdp_clip_grad_norm(&parameters, 1.0, NULL, &norm, &clip));
 *     FSDP_TRY(fsdp_grad_scaler_step(g, optimizer, clip));
 *     FSDP_TRY(fsdp_grad_scaler_update(g));
 *
 * If the gradients of an optimizer contain an infinity or NaN on any rank, all ranks skip the step
 * of this optimizer: its parameters, its state and its step counts do not change. The steps of
 * other optimizers are not affected. fsdp_grad_scaler_update() then lowers the scale.
 */
typedef struct fsdp_grad_scaler fsdp_grad_scaler;

/** Options of a scaler. A field that is 0 or NULL has its default. */
typedef struct fsdp_grad_scaler_options {
    double init_scale;       /**< default 65536 */
    double growth_factor;    /**< > 1; default 2 */
    double backoff_factor;   /**< < 1; default 0.5 */
    int64_t growth_interval; /**< number of consecutive updates without inf or NaN after which the
                                scale grows; default 2000 */
    bool disabled; /**< true: as enabled=False in torch; the scale is 1, and fsdp_grad_scaler_step()
                      only calls fsdp_optimizer_step() */
    /** ShardedGradScaler's process_group: the ranks that skip a step together. Default: the ranks
     * over which the parameters are sharded. Borrowed. */
    fsdp_group *group;
} fsdp_grad_scaler_options;

/** What GradScaler.state_dict() contains, for checkpoints. */
typedef struct fsdp_grad_scaler_state {
    double scale, growth_factor, backoff_factor;
    int64_t growth_interval;
    int64_t growth_tracker; /**< torch's _growth_tracker: number of consecutive updates without inf
                               or NaN so far */
} fsdp_grad_scaler_state;

/** Create a scaler. Returns FSDP_ERR_INVALID if an option is out of bounds; the message names it.
 * `options` NULL: all defaults. */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_grad_scaler_create(const fsdp_grad_scaler_options *options, fsdp_grad_scaler **scaler);
FSDP_API void fsdp_grad_scaler_destroy(fsdp_grad_scaler *scaler); /**< accepts NULL */
/** Return the factor by which to multiply the loss; 1 if the scaler is disabled. */
FSDP_API double fsdp_grad_scaler_scale(const fsdp_grad_scaler *scaler);
FSDP_API bool fsdp_grad_scaler_is_enabled(const fsdp_grad_scaler *scaler);
/**
 * unscale_(optimizer): divide the gradients of the optimizer's parameters by the scale, in place,
 * and find out whether any rank has a gradient that is not finite. Collective: each rank sends one
 * number in each group over which parameters are sharded.
 * @param optimizer borrowed until fsdp_grad_scaler_update()
 * @return FSDP_ERR_STATE if this function or fsdp_grad_scaler_step() was called for this optimizer
 *         since the last update
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_grad_scaler_unscale(fsdp_grad_scaler *scaler,
                                                              const fsdp_optimizer *optimizer);
/** Return true if an unscale since the last update has found an infinity or NaN, on this rank or on
 * another one. The result is the same on all ranks. */
FSDP_API bool fsdp_grad_scaler_found_inf(const fsdp_grad_scaler *scaler);
/**
 * Call fsdp_optimizer_step() if all gradients of the optimizer are finite on all ranks. If the
 * caller has not called fsdp_grad_scaler_unscale() for this optimizer since the last update, this
 * function first does what fsdp_grad_scaler_unscale() does. Collective.
 * @return the errors of fsdp_optimizer_step(); FSDP_ERR_STATE if this function was called for this
 *         optimizer since the last update
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_grad_scaler_step(fsdp_grad_scaler *scaler,
                                                           fsdp_optimizer *optimizer,
                                                           float grad_scale);
/** Compute the scale of the next iteration. Return FSDP_ERR_STATE if no optimizer was unscaled or
 * stepped since the last update. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_grad_scaler_update(fsdp_grad_scaler *scaler);
FSDP_API fsdp_grad_scaler_state fsdp_grad_scaler_get_state(const fsdp_grad_scaler *scaler);
/** GradScaler.load_state_dict(): set the state. Return FSDP_ERR_INVALID if a field is out of
 * bounds; the message names the field. */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_grad_scaler_set_state(fsdp_grad_scaler *scaler, const fsdp_grad_scaler_state *state);
/** @} */

#ifdef __cplusplus
}
#endif
