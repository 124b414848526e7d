/**
 * @file
 * An accelerator, like the class Accelerator of Hugging Face Accelerate. It joins the ranks, reads
 * the environment variables of `fsdp launch --config_file FILE` or `accelerate launch`, shards
 * models, splits the data, and decides when gradients are complete. A training loop for many ranks
 * looks like a loop for one rank:
 *
 *     FSDP_TRY(fsdp_accelerator_create(NULL, &accelerator));
 *     FSDP_TRY(fsdp_accelerator_prepare_model(accelerator, model));
 *     FSDP_TRY(fsdp_accelerator_prepare_optimizer(accelerator, optimizer));
 *     FSDP_TRY(fsdp_accelerator_prepare_data_loader(accelerator, loader));
 *     FSDP_TRY(fsdp_accelerator_prepare_scheduler(accelerator, optimizer, &schedule, &scheduler));
 *     for each epoch:
 *         while (fsdp_accelerator_next(accelerator, loader, &batch) == FSDP_OK && batch) {
 *             FSDP_TRY(fsdp_accelerator_accumulate_begin(accelerator));
 *             FSDP_TRY(fsdp_accelerator_forward_backward(accelerator, model, batch, &loss));
 *             if (fsdp_accelerator_sync_gradients(accelerator))
 *                 FSDP_TRY(fsdp_accelerator_clip_grad_norm(accelerator, model, 1.0, NULL, &norm));
 *             FSDP_TRY(fsdp_accelerator_optimizer_step(accelerator, optimizer));
 *             FSDP_TRY(fsdp_accelerator_scheduler_step(accelerator, scheduler));
 *             FSDP_TRY(fsdp_accelerator_zero_grad(accelerator, optimizer));
 *             FSDP_TRY(fsdp_accelerator_accumulate_end(accelerator));
 *             fsdp_batch_release(batch);
 *         }
 *
 * Names and meanings are Accelerate's. An accelerator calls the functions of the other headers. A
 * program may also call these functions itself, on the same objects. There is no global state: each
 * rank has its own accelerator, ranks may be threads (fsdp_run_ranks()), and a program may have
 * several accelerators, one after the other or at the same time. An accelerator installs no signal
 * handlers, prints nothing unless fsdp_accelerator_print() is called, and neither exits nor calls
 * MPI.
 *
 * The prepare functions change an object in place and borrow it: the caller still owns models,
 * optimizers and loaders. Destroy these objects before the accelerator, which owns the group and
 * the device that they use. If a forward was not followed by its backward, call
 * fsdp_accelerator_free_memory() before destroying them.
 */
#pragma once
#include <stdio.h>

#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/batch.h>
#include <fsdp/comm.h>
#include <fsdp/data.h>
#include <fsdp/fsdp.h>
#include <fsdp/nn.h>
#include <fsdp/optim.h>
#include <fsdp/pretrained.h>
#include <fsdp/state_dict.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_accelerator fsdp_accelerator;
/** A learning rate schedule that fsdp_accelerator_prepare_scheduler() has prepared. */
typedef struct fsdp_accelerated_scheduler fsdp_accelerated_scheduler;

/** @name The accelerator @{ */
/**
 * The arguments of Accelerator(). A field that is 0 or NULL has its default. A field that is set
 * takes precedence over the environment variables.
 *
 * The environment variables are those that `fsdp launch` and `accelerate launch` set for their
 * workers: the variables of fsdp_options_from_environment(), and
 * ACCELERATE_GRADIENT_ACCUMULATION_STEPS, ACCELERATE_USE_CPU, FSDP_AUTO_WRAP_POLICY,
 * FSDP_TRANSFORMER_CLS_TO_WRAP, FSDP_MIN_NUM_PARAMS, FSDP_STATE_DICT_TYPE, FSDP_SYNC_MODULE_STATES,
 * FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD, PARALLELISM_CONFIG_DP_REPLICATE_SIZE and
 * PARALLELISM_CONFIG_DP_SHARD_SIZE. It is an error if FSDP_IGNORED_MODULES is set.
 */
typedef struct fsdp_accelerator_options {
    /** An existing process group, e.g. that of fsdp_run_ranks(); borrowed, must outlive the
     * accelerator. NULL: the accelerator joins the job of this process
     * (fsdp_init_process_group()), and fsdp_accelerator_destroy() leaves the job. */
    fsdp_group *group;
    /** This rank's device; borrowed, must outlive the accelerator. NULL: the accelerator creates
     * one, as fsdp_default_device() does. */
    fsdp_device *device;
    bool cpu; /**< compute on the CPU, even if there is a GPU */
    /** "no", "fp16" or "bf16". As in Accelerate, fp16 and bf16 are the dtype in which units compute
     * and reduce gradients. With fp16, the loss is scaled, too. NULL: ACCELERATE_MIXED_PRECISION,
     * or "no". */
    const char *mixed_precision;
    /** 0: ACCELERATE_GRADIENT_ACCUMULATION_STEPS, or 1 */
    int gradient_accumulation_steps;
    /** GradientAccumulationPlugin(sync_with_dataloader=False): the end of a loader does not end an
     * accumulation. The accumulation continues in the next epoch. */
    bool no_sync_with_dataloader;
    /** DataLoaderConfiguration(split_batches=True): the batch size of a loader is the sum over all
     * ranks. It must be divisible by the number of ranks. A schedule then advances by 1 at each
     * optimizer step. */
    bool split_batches;
    /** even_batches=False: a loader repeats no examples. At the end of an epoch, ranks may get
     * batches with fewer rows, or with none. */
    bool no_even_batches;
    /** step_scheduler_with_optimizer=False: every fsdp_accelerator_scheduler_step() advances its
     * schedule by 1, whatever the optimizer does */
    bool no_step_scheduler_with_optimizer;
    /** fsdp_plugin: how models are sharded. The struct is copied, but what its pointers point to,
     * such as a mesh, must outlive the models. NULL: the environment variables decide. If
     * fully_shard is set, the environment variables have no influence on these options, and
     * mixed_precision must be NULL, because fully_shard->mp_policy has the dtypes. */
    const fsdp_fully_shard_options *fully_shard;
    /** Which modules become units. Borrowed until the last call of a prepare function. NULL: the
     * environment variables decide. If they choose no policy, a model of this library is divided
     * into units as in `fsdp train`, and any other model is one unit. */
    const fsdp_wrap_policy *auto_wrap_policy;
    /** GradScalerKwargs for fp16; `disabled` and `group` are ignored. NULL: the defaults */
    const fsdp_grad_scaler_options *grad_scaler;
    /** The kind of folder that fsdp_accelerator_save_state() writes, as 1 + fsdp_state_dict_type.
     * 0: the kind that the variable FSDP_STATE_DICT_TYPE names, or SHARDED_STATE_DICT if the
     * variable is not set. */
    int state_dict_type;
    const char *project_dir; /**< folder of checkpoints and logs; copied */
    const char *logging_dir; /**< folder of logs; copied; NULL: project_dir */
    /** Trackers, separated by commas: "tensorboard", "json" (lines in metrics.jsonl), "csv"
     * (metrics.csv, with a column for each name), "all" (these three) or "none". The name of a
     * service, such as "wandb", is accepted only if tracker_command is set. Copied. NULL: none */
    const char *log_with;
    /** Program that gets each row of logged values (fsdp_accelerator_log()) as a JSON line on its
     * standard input, e.g. for W&B or MLflow (docs/tracking.md); copied. NULL: none */
    const char *tracker_command;
    /** ProjectConfiguration(automatic_checkpoint_naming=True): see
     * fsdp_accelerator_save_state() */
    bool automatic_checkpoint_naming;
    int total_limit;   /**< with automatic_checkpoint_naming: number of checkpoints that are kept;
                            0: all */
    int64_t iteration; /**< with automatic_checkpoint_naming: number of the next checkpoint */
    FILE *out;         /**< where fsdp_accelerator_print() writes; borrowed. NULL: stdout */
} fsdp_accelerator_options;

/**
 * Accelerator(). Collective.
 * @param options     NULL: all defaults
 * @param accelerator out: owned by the caller, destroyed with fsdp_accelerator_destroy()
 * @return FSDP_ERR_INVALID if the value of an option or a variable is not allowed (the message
 *         contains the allowed values), or if two of them contradict each other;
 *         FSDP_ERR_UNSUPPORTED for a tracker that this library does not have (the message says what
 *         to use); the errors of fsdp_init_process_group() and fsdp_device_create()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_create(const fsdp_accelerator_options *options, fsdp_accelerator **accelerator);
/** Free the accelerator, its schedulers, and the group and device that it created. Destroy the
 * prepared objects first. Trackers that fsdp_accelerator_end_training() has not ended are closed.
 * Accepts NULL. */
FSDP_API void fsdp_accelerator_destroy(fsdp_accelerator *accelerator);

FSDP_API int fsdp_accelerator_num_processes(const fsdp_accelerator *accelerator);
FSDP_API int fsdp_accelerator_process_index(const fsdp_accelerator *accelerator);
FSDP_API int fsdp_accelerator_local_process_index(const fsdp_accelerator *accelerator);
FSDP_API bool fsdp_accelerator_is_main_process(const fsdp_accelerator *accelerator);
FSDP_API bool fsdp_accelerator_is_local_main_process(const fsdp_accelerator *accelerator);
FSDP_API bool fsdp_accelerator_is_last_process(const fsdp_accelerator *accelerator);
/** Get the process group. Borrowed. */
FSDP_API fsdp_group *fsdp_accelerator_group(const fsdp_accelerator *accelerator);
/** Get this rank's device. Borrowed. */
FSDP_API fsdp_device *fsdp_accelerator_device(const fsdp_accelerator *accelerator);
/** Return "no", "fp16" or "bf16"; static storage. */
FSDP_API const char *fsdp_accelerator_mixed_precision(const fsdp_accelerator *accelerator);
FSDP_API int fsdp_accelerator_gradient_accumulation_steps(const fsdp_accelerator *accelerator);
/** Get the gradient scaler, which is disabled unless the precision is fp16. Borrowed. */
FSDP_API fsdp_grad_scaler *fsdp_accelerator_scaler(const fsdp_accelerator *accelerator);

/** print(): write formatted text to options->out on the main process only. */
FSDP_API FSDP_PRINTF(2, 3) void fsdp_accelerator_print(const fsdp_accelerator *accelerator,
                                                       const char *format, ...);
/** wait_for_everyone(): wait until all ranks have made this call. Collective. */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_wait_for_everyone(fsdp_accelerator *accelerator);
/** `with accelerator.main_process_first():` the code between begin and end runs on the main process
 * first. The other ranks run it after the main process has called end. Collective: every rank must
 * call both functions, even if the code in between fails. After such a failure, the rank should
 * also call fsdp_group_abort(). @{ */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_main_process_first_begin(fsdp_accelerator *accelerator);
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_main_process_first_end(fsdp_accelerator *accelerator);
/** @} */
/** split_between_processes(): divide `length` items among the ranks. This rank gets the items
 * from *begin to *end - 1. As in Accelerate, if the number of ranks does not divide `length`, the
 * first ranks get one item more than the other ranks. */
FSDP_API void fsdp_accelerator_split_between_processes(const fsdp_accelerator *accelerator,
                                                       int64_t length, int64_t *begin,
                                                       int64_t *end);
/**
 * accelerate.utils.set_seed(): set the seed, which is initially 42. Only two things depend on it:
 * the random numbers of forwards without a batch (fsdp_accelerator_scope_open()), and the files
 * random_states_<rank>.pkl in saved states. There is no global generator: loaders,
 * fsdp_module_init() and fsdp_pretrained_load() have seeds of their own.
 */
FSDP_API void fsdp_accelerator_set_seed(fsdp_accelerator *accelerator, uint64_t seed);
/** set_trigger(): make the next fsdp_accelerator_check_trigger() set *triggered to true on all
 * ranks, e.g. because this rank wants to stop early. */
FSDP_API void fsdp_accelerator_set_trigger(fsdp_accelerator *accelerator);
/** check_trigger(): set *triggered to true on all ranks if any rank has called
 * fsdp_accelerator_set_trigger() since the last fsdp_accelerator_check_trigger(). Collective. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_check_trigger(fsdp_accelerator *accelerator,
                                                                    bool *triggered);
/** @} */

/** @name prepare() @{ */
/**
 * prepare(model): shard `model` in place, as the environment variables or the options say. The
 * model's parameters may already have memory, but need not. If they have memory on the main
 * process, all ranks get the values of the main process, unless FSDP_SYNC_MODULE_STATES is false.
 * If the options have fully_shard, fully_shard->sync_module_states decides this, and the variable
 * has no effect. A model that the program has sharded itself is not sharded again. The environment
 * variables can enable activation checkpointing. It is applied to the blocks of a model of this
 * library if no wrap policy was chosen. In all other cases, it is applied to all units below the
 * root. Collective.
 *
 * The order in which models are prepared is the order of their files in
 * fsdp_accelerator_save_state().
 *
 * @param model a root; borrowed until fsdp_accelerator_free_memory() or
 *              fsdp_accelerator_destroy()
 * @return FSDP_ERR_INVALID if the model was prepared before or is inside another module, or if
 *         FSDP_AUTO_WRAP_POLICY asks for the blocks of a model that is not from this library; the
 *         errors of fsdp_auto_wrap(), after which the model can only be destroyed
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_prepare_model(fsdp_accelerator *accelerator,
                                                                    fsdp_module *model);
/**
 * prepare(optimizer): put an optimizer under the control of the accelerator. The optimizer may have
 * been created before its model was sharded; its steps then update the sharded parameters.
 * @param optimizer all its parameters must belong to one prepared model; borrowed until
 *                  fsdp_accelerator_free_memory() or fsdp_accelerator_destroy()
 * @return FSDP_ERR_INVALID if the optimizer was prepared before, has no parameters, or has a
 *         parameter that belongs to no prepared model (the message names it), FSDP_ERR_UNSUPPORTED
 *         if its parameters belong to several models
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_prepare_optimizer(fsdp_accelerator *accelerator, fsdp_optimizer *optimizer);
/**
 * prepare(data_loader): split the loader's examples over the ranks. As with Accelerate's
 * BatchSamplerShard, batch i of an epoch goes to the rank whose number is i modulo the number of
 * ranks. The last batches are filled up with the first examples of the epoch
 * (fsdp_sampler.even_batches), unless no_even_batches is set or the sampler has drop_last.
 * fsdp_accelerator_gather_for_metrics() drops the results of these repeated examples.
 *
 * After this call, read the loader with fsdp_accelerator_next(). If the sampler's `accumulation` is
 * above 1, it must be equal to gradient_accumulation_steps. The number of batches in an epoch is
 * then a multiple of gradient_accumulation_steps.
 *
 * @param loader with the sampler of a single rank: FSDP_SAMPLER_DEFAULT, rank 0 of 1; borrowed
 *               until fsdp_accelerator_free_memory() or fsdp_accelerator_destroy()
 * @return FSDP_ERR_INVALID if the loader was prepared before or has been split already, if the
 *         number of ranks does not divide the batch size with split_batches, or if `accumulation`
 *         is above 1 and differs from gradient_accumulation_steps; FSDP_ERR_UNSUPPORTED for
 *         FSDP_SAMPLER_DISTRIBUTED; the errors of fsdp_loader_set_sampler()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_prepare_data_loader(fsdp_accelerator *accelerator, fsdp_loader *loader);
/**
 * prepare(scheduler): create a learning rate scheduler from a schedule. The scheduler sets the
 * optimizer's learning rate now, and at each fsdp_accelerator_scheduler_step().
 *
 * As in Accelerate, a schedule counts the steps of a single process, and an optimizer step of W
 * ranks counts as W steps. So each fsdp_accelerator_scheduler_step() advances the schedule by W,
 * or by 1 with split_batches. It does not advance the schedule if the optimizer's step was skipped,
 * or if gradients are still being accumulated.
 *
 * @param optimizer prepared before
 * @param schedule  copied. If its `lr` is 0, the optimizer's learning rate is used
 * @param scheduler out: owned by the accelerator
 * @return FSDP_ERR_INVALID if the optimizer was not prepared or has a scheduler already, or if the
 *         learning rates of the schedule and the optimizer differ; FSDP_ERR_UNSUPPORTED if the
 *         optimizer's groups have different learning rates; the errors of fsdp_lr_schedule_check()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_prepare_scheduler(
    fsdp_accelerator *accelerator, fsdp_optimizer *optimizer, const fsdp_lr_schedule *schedule,
    fsdp_accelerated_scheduler **scheduler);
/** unwrap_model(): check that the model was prepared, and set *unwrapped to the model itself,
 * because prepare wraps nothing. Return FSDP_ERR_INVALID for an unknown model. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_unwrap_model(
    const fsdp_accelerator *accelerator, fsdp_module *model, fsdp_module **unwrapped);
/** free_memory() and clear(): forget all prepared objects, so that the caller may destroy them and
 * prepare others. Free the schedulers, and cancel an unfinished forward or accumulation. Objects
 * that were registered for checkpointing stay registered. */
FSDP_API void fsdp_accelerator_free_memory(fsdp_accelerator *accelerator);
/** @} */

/** @name Data @{ */
/**
 * for batch in loader: get the next batch. At the end of an epoch *batch is NULL, and the next call
 * returns the first batch of the next epoch.
 * @param loader prepared
 * @param batch  out: new reference, released with fsdp_batch_release()
 * @return FSDP_ERR_INVALID for an unknown loader; the errors of fsdp_loader_next()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_next(fsdp_accelerator *accelerator,
                                                           fsdp_loader *loader, fsdp_batch **batch);
/** Go to the first batch of epoch `epoch`. Also call this after leaving an epoch early.
 * @return FSDP_ERR_INVALID for an unknown loader or a negative epoch */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_set_epoch(fsdp_accelerator *accelerator,
                                                                fsdp_loader *loader, int64_t epoch);
/** skip_first_batches(): go to batch `num_batches` of the loader's current epoch, to resume a run.
 * If all batches of an optimizer step are skipped, they are not read.
 * @return FSDP_ERR_INVALID for an unknown loader, or if num_batches is negative or more than the
 *         number of batches of an epoch on a rank; the errors of fsdp_loader_next() */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_skip_first_batches(
    fsdp_accelerator *accelerator, fsdp_loader *loader, int64_t num_batches);
/** Return true if the batch that fsdp_accelerator_next() returned last is the last one of its
 * epoch. */
FSDP_API bool fsdp_accelerator_end_of_dataloader(const fsdp_accelerator *accelerator);
/** @} */

/** @name A step @{ */
/**
 * `with accelerator.accumulate(model):` call begin before the work on a batch, and end after it.
 * Between begin and end, fsdp_accelerator_sync_gradients() is true only for the last batch of an
 * accumulation: batch number gradient_accumulation_steps, or the last batch of the loader (unless
 * no_sync_with_dataloader is set). For all other batches, fsdp_accelerator_optimizer_step(),
 * fsdp_accelerator_zero_grad() and fsdp_accelerator_scheduler_step() do nothing. Begin and end
 * apply to all prepared models.
 *
 * As with sync_each_batch=True, the gradients of every batch are reduced over the ranks. The order
 * of the additions does not depend on how a batch is split into smaller ones. So several small
 * batches give the same gradients as one large batch. The gradients have the same bits if all
 * losses are divided by the same number.
 *
 * @return FSDP_ERR_STATE if begin and end do not alternate @{
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_accumulate_begin(fsdp_accelerator *accelerator);
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_accumulate_end(fsdp_accelerator *accelerator);
/** @} */
/** sync_gradients: true if this batch completes its accumulation. Always true in a loop without
 * fsdp_accelerator_accumulate_begin(). */
FSDP_API bool fsdp_accelerator_sync_gradients(const fsdp_accelerator *accelerator);

/**
 * outputs = model(**batch); accelerator.backward(outputs.loss), for a model of this library. As in
 * Accelerate, the loss is the mean over this rank's labels. For backward, it is divided by
 * gradient_accumulation_steps, even if the accumulation has fewer batches. Gradients are the means
 * over the ranks. Collective.
 * @param loss out: the mean over this rank's labels, not divided by gradient_accumulation_steps;
 *             may be NULL
 * @return FSDP_ERR_INVALID if the model was not prepared; the errors of fsdp_forward_backward()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_forward_backward(
    fsdp_accelerator *accelerator, fsdp_module *model, const fsdp_batch *batch, double *loss);
/**
 * Open a scope for the forward of any module, with the accelerator's tape and the current
 * micro-step. Nothing like autocast is needed, because the mixed-precision policy of each unit
 * determines the dtypes.
 * @param training true: with dropout and a tape, for fsdp_accelerator_backward(). false: as after
 *                 model.eval(), under torch.no_grad()
 * @param batch    borrowed until backward has ended. NULL: the module has other inputs. The random
 *                 numbers of this forward then depend on fsdp_accelerator_set_seed(), on the number
 *                 of earlier training forwards without a batch, and on the rank
 * @param scope    out: closed with fsdp_scope_close() after backward
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_scope_open(fsdp_accelerator *accelerator,
                                                                 bool training,
                                                                 const fsdp_batch *batch,
                                                                 fsdp_scope **scope);
/**
 * accelerator.backward(loss): divide the loss by gradient_accumulation_steps, multiply it by the
 * scale of fp16, and run fsdp_backward() for all forwards since the last backward. Collective.
 *
 * Do not call this for a loss of fsdp_linear_cross_entropy(), because the gradient of such a loss
 * must be 1. Multiply the factor of fsdp_linear_cross_entropy() by fsdp_accelerator_loss_factor(),
 * and call fsdp_accelerator_backward_scaled() instead.
 * @param loss a scalar in a scope that fsdp_accelerator_scope_open() has opened
 * @return the failure of the scope, if it has failed; the errors of fsdp_backward()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_backward(fsdp_accelerator *accelerator,
                                                               fsdp_scope *scope,
                                                               fsdp_tensor *loss);
/** Return the factor by which fsdp_accelerator_backward() multiplies a loss. */
FSDP_API double fsdp_accelerator_loss_factor(const fsdp_accelerator *accelerator);
/** Like fsdp_accelerator_backward(), for a loss that was already multiplied by
 * fsdp_accelerator_loss_factor(). */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_backward_scaled(fsdp_accelerator *accelerator,
                                                                      fsdp_scope *scope,
                                                                      fsdp_tensor *loss);

/**
 * clip_grad_norm_(model.parameters(), max_norm): unscale the gradients if the precision is fp16,
 * and multiply them by min(1, max_norm / (norm + 1e-6)). Call it only if
 * fsdp_accelerator_sync_gradients() is true. To skip the optimizer step after clipping, for example
 * because the norm is too large, call fsdp_accelerator_zero_grad(). Collective.
 * @param options    NULL: the 2-norm
 * @param total_norm out: the norm of all gradients of the model before clipping; may be NULL
 * @return FSDP_ERR_STATE if gradients are still being accumulated, or if a backward in fp16 has
 *         added to gradients that were clipped before; FSDP_ERR_INVALID for an unknown model; the
 *         errors of fsdp_clip_grad_norm()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_clip_grad_norm(fsdp_accelerator *accelerator, fsdp_module *model, double max_norm,
                                const fsdp_clip_grad_options *options, double *total_norm);
/** clip_grad_value_(): limit each element of the gradients to [-clip_value, clip_value]. This also
 * works for sharded models, which Accelerate's clip_grad_value_() refuses. Collective: if a rank
 * fails, all ranks return an error. Returns the errors of fsdp_accelerator_clip_grad_norm(), and
 * FSDP_ERR_INVALID if `clip_value` is negative or NaN. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_clip_grad_value(fsdp_accelerator *accelerator,
                                                                      fsdp_module *model,
                                                                      double clip_value);
/** optimizer.step(): update the parameters. Do nothing while gradients are still being accumulated.
 * With fp16, also do nothing if at least one rank has a gradient that is not finite. Collective.
 * @return FSDP_ERR_INVALID for an unknown optimizer; the errors of fsdp_grad_scaler_step() */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_optimizer_step(fsdp_accelerator *accelerator,
                                                                     fsdp_optimizer *optimizer);
/** optimizer_step_was_skipped: return true if the last step of at least one optimizer was skipped
 * because a gradient was not finite. */
FSDP_API bool fsdp_accelerator_optimizer_step_was_skipped(const fsdp_accelerator *accelerator);
/** optimizer.zero_grad(): release the gradients, unless they are still being accumulated.
 * Return FSDP_ERR_INVALID for an unknown optimizer. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_zero_grad(fsdp_accelerator *accelerator,
                                                                fsdp_optimizer *optimizer);
/** scheduler.step(): see fsdp_accelerator_prepare_scheduler(). Return FSDP_ERR_INVALID for an
 * unknown scheduler. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_scheduler_step(
    fsdp_accelerator *accelerator, fsdp_accelerated_scheduler *scheduler);
/** get_last_lr(): return the learning rate of the next optimizer step. */
FSDP_API double fsdp_accelerated_scheduler_last_lr(const fsdp_accelerated_scheduler *scheduler);
/** last_epoch: return the number of steps by which the schedule has advanced. */
FSDP_API int64_t fsdp_accelerated_scheduler_last_epoch(const fsdp_accelerated_scheduler *scheduler);
/** @} */

/** @name Values of all ranks
 * All of these functions are collective. A tensor may have any dtype. It is copied to host memory
 * and back. The result is a new reference to a contiguous tensor on the accelerator's device. @{ */
/**
 * gather(): concatenate the tensors of all ranks along dimension 0, in rank order. Scalars give a
 * vector of one element for each rank.
 * @return FSDP_ERR_INVALID if dtypes or shapes differ; the message contains the dtypes and shapes,
 *         and names a function that makes shapes equal
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_gather(fsdp_accelerator *accelerator,
                                                             fsdp_tensor *tensor,
                                                             fsdp_tensor **gathered);
/**
 * gather_for_metrics(): do what fsdp_accelerator_gather() does, but leave out the rows of repeated
 * examples. These are the examples that fill up the last batches of an epoch
 * (fsdp_accelerator_prepare_data_loader()). The tensor must be the result for the batch that
 * fsdp_accelerator_next() returned last: row i of the tensor belongs to row i of the batch. Only
 * the last batches of an epoch have repeated examples. For these batches, as in Accelerate, the
 * result has only the first rows of the concatenated tensor: one row for each example that is not
 * repeated. So this function is wrong for a tensor that has several rows for each example; gather
 * it with fsdp_accelerator_gather(). Ranks may have different numbers of rows, as with
 * no_even_batches.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_gather_for_metrics(
    fsdp_accelerator *accelerator, fsdp_tensor *tensor, fsdp_tensor **gathered);
/**
 * reduce(): combine the tensors of all ranks element by element, in rank order.
 * @param reduction "sum", "mean", "max", or "none" for a copy
 * @return FSDP_ERR_INVALID for another word, for the mean of integers, or if dtypes or shapes
 *         differ; FSDP_ERR_UNSUPPORTED for uint8
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_reduce(fsdp_accelerator *accelerator,
                                                             fsdp_tensor *tensor,
                                                             const char *reduction,
                                                             fsdp_tensor **reduced);
/**
 * pad_across_processes(): pad dimension `dim` of all ranks' tensors to its largest size on any
 * rank, so that the tensors can be gathered.
 * @param dim       negative: counted from the end
 * @param pad_index value of the new elements
 * @param pad_first true: put the new elements before the old ones; default: after them
 * @return FSDP_ERR_INVALID if the tensor has no dimension `dim`, if pad_index is not a value of an
 *         integer dtype of the tensor, or if dtypes or other dimensions
 *         differ
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_pad_across_processes(fsdp_accelerator *accelerator, fsdp_tensor *tensor, int dim,
                                      double pad_index, bool pad_first, fsdp_tensor **padded);
/** Bytes that a process passes to other processes. They may be a text, a struct, a file, or
 * anything else.
 */
typedef struct fsdp_object_bytes {
    const void *bytes; /**< [n], followed by a NUL byte, so that a text is a string */
    size_t n;
} fsdp_object_bytes;
/**
 * gather_object(): give every rank the bytes of all ranks. Their lengths may differ.
 * @param bytes   [n] of this rank; may be NULL if n is 0
 * @param objects out: [num_processes] in rank order; freed with fsdp_object_bytes_free()
 * @return FSDP_ERR_NOMEM: every rank needs memory for num_processes times the longest object
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_gather_object(fsdp_accelerator *accelerator,
                                                                    const void *bytes, size_t n,
                                                                    fsdp_object_bytes **objects);
/**
 * broadcast_object_list(): give every rank the bytes of process `from_process`. The arguments
 * `bytes` and `n` of other processes are not read.
 * @param object out: freed with fsdp_object_bytes_free()
 * @return FSDP_ERR_INVALID if there is no such process
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_broadcast_object(fsdp_accelerator *accelerator, const void *bytes, size_t n,
                                  int from_process, fsdp_object_bytes **object);
/** Free the result of fsdp_accelerator_gather_object() or fsdp_accelerator_broadcast_object().
 * Accepts NULL. */
FSDP_API void fsdp_object_bytes_free(fsdp_object_bytes *objects);
/** @} */

/** @name States and models in files @{ */
/** An object of the program whose state is saved together with the models. Its two functions
 * convert the state to items of a state dict, and back. */
typedef struct fsdp_checkpointed_object {
    /** names the object in messages; load_state() compares the names to find out whether the
     * objects are in another order; copied */
    const char *name;
    /** state_dict(): add items to `dict`. Called on all ranks; the values of rank 0 are saved, and
     * tensors may be DTensors. */
    fsdp_status (*state_dict)(void *object, fsdp_state_dict *dict);
    /** load_state_dict(): set the state of the object from the items of `dict`, whose tensors are
     * whole. Called on all ranks.
     */
    fsdp_status (*load_state_dict)(void *object, const fsdp_state_dict *dict);
    void *object; /**< borrowed until the accelerator is destroyed */
} fsdp_checkpointed_object;

/** register_for_checkpointing(): from now on, save and load the state of an object, too. A program
 * that loads a saved state must have registered the same objects in the same order.
 * @param object copied
 * @return FSDP_ERR_INVALID if a function is missing, or if the object was registered before */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_register_for_checkpointing(
    fsdp_accelerator *accelerator, const fsdp_checkpointed_object *object);
/** A function of the program that save_state() or load_state() calls before it does anything else.
 * The hook is called on all ranks, and may be collective. If the hook fails on one rank,
 * save_state() or load_state() fails on all ranks.
 * @param context the `context` with which the hook was registered
 * @param dir     the folder of the state. In save_state(), this is a folder with a temporary name,
 *                which is renamed when the state is complete. Files that the hook writes into this
 *                folder become a part of the state
 */
typedef fsdp_status fsdp_accelerator_state_hook(void *context, fsdp_accelerator *accelerator,
                                                const char *dir);
/** register_save_state_pre_hook(): from now on, save_state() calls `hook`, after the hooks that
 * were registered earlier. A file that the hook writes must not have a name that save_state() uses
 * for its own files.
 * @param context borrowed until the hook is removed
 * @param handle  out: for fsdp_accelerator_remove_hook(); may be NULL
 * @return FSDP_ERR_INVALID if `hook` is NULL */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_register_save_state_pre_hook(
    fsdp_accelerator *accelerator, fsdp_accelerator_state_hook *hook, void *context,
    int64_t *handle);
/** register_load_state_pre_hook(): from now on, load_state() calls `hook`, after the hooks that
 * were registered earlier. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_register_load_state_pre_hook(
    fsdp_accelerator *accelerator, fsdp_accelerator_state_hook *hook, void *context,
    int64_t *handle);
/** handle.remove(): forget a hook. Return FSDP_ERR_INVALID if no hook has this handle. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_remove_hook(fsdp_accelerator *accelerator,
                                                                  int64_t handle);
/**
 * save_state(): write a folder that Accelerate, with FSDP, can load at any number of processes.
 * fsdp_accelerate_load_state() can load the folder, too. The folder appears complete or not at all.
 * If the folder exists and contains a state, that state is replaced. Collective; if one rank fails,
 * all fail.
 *
 * - pytorch_model_fsdp_<i>/, optimizer_<i>/: models and optimizers, in the order of prepare; with
 *   FULL_STATE_DICT the files pytorch_model_fsdp.bin, pytorch_model_fsdp_1.bin, optimizer.bin, ...
 * - scheduler.bin, scheduler_1.bin, ...: schedulers
 * - scaler.pt: the scaler of fp16
 * - custom_checkpoint_<i>.pkl: registered objects, as torch.save() writes them
 * - random_states_<rank>.pkl: the states of the random generators of Python, NumPy and PyTorch
 *   after set_seed(), which Accelerate requires. This library does not read them, because its
 *   random numbers do not depend on them
 * - accelerator_state.json: a file that only this library reads. It has the names of the registered
 *   objects, and the number of training forwards without a batch so far. The random numbers of such
 *   forwards depend on this number (fsdp_accelerator_scope_open())
 *
 * Positions of loaders are not saved, as in Accelerate: use fsdp_accelerator_skip_first_batches().
 * Accelerate itself loads optimizer i into model i, so it can load several models and optimizers
 * only if they were prepared in the same order.
 *
 * @param dir the same on all ranks. With automatic_checkpoint_naming it must be NULL: the folder is
 *            <project_dir>/checkpoints/checkpoint_<iteration>, and must not exist. After the save,
 *            the oldest checkpoints are removed until at most total_limit of them are left
 * @return FSDP_ERR_STATE within an accumulation, because gradients are not saved; FSDP_ERR_INVALID
 *         if `dir` is missing or the folder of automatic naming exists; the errors of
 *         fsdp_accelerate_save_state()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_save_state(fsdp_accelerator *accelerator,
                                                                 const char *dir);
/**
 * load_state(): load a folder that Accelerate or fsdp_accelerator_save_state() wrote, at any number
 * of ranks. If the program then skips the batches that were read before the state was saved, it
 * gets the same bits as a run without interruption. Collective.
 * @param dir NULL, with automatic_checkpoint_naming: the newest folder with an automatic name. The
 *            next saved state then gets the next number
 * @return FSDP_ERR_NOT_FOUND if the folder or a file is missing; FSDP_ERR_INVALID if the numbers of
 *         registered and saved objects differ, or if their names show another order; the errors of
 *         fsdp_accelerate_load_state()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_load_state(fsdp_accelerator *accelerator,
                                                                 const char *dir);
/** get_state_dict(): get the whole parameters of a model on the main process. *dict is empty on the
 * other ranks. Collective.
 * @param dict out: owned by the caller, destroyed with fsdp_state_dict_destroy() */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_get_state_dict(fsdp_accelerator *accelerator,
                                                                     fsdp_module *model,
                                                                     fsdp_state_dict **dict);

/** Zero means default. */
typedef struct fsdp_accelerator_save_model_options {
    int64_t max_shard_bytes; /**< default 10e9, as in Accelerate */
    fsdp_dtype dtype;        /**< dtype in the files; default float32 */
    /** If this is set, the folder is a complete transformers model, with config.json,
     * generation_config.json and the tokenizer's files. NULL: the folder has only weights, as in
     * Accelerate. */
    const fsdp_pretrained *pretrained;
} fsdp_accelerator_save_model_options;

/** save_model(), or unwrapped_model.save_pretrained(): write model.safetensors, or several shards
 * and their index, to the folder `dir`. The folder appears complete or not at all. An older model
 * in the folder is replaced. Collective; if one rank fails, all fail.
 * @param options NULL: all defaults
 * @return FSDP_ERR_INVALID for an unknown model, or if `dir` is a checkpoint; FSDP_ERR_IO */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_save_model(fsdp_accelerator *accelerator, fsdp_module *model, const char *dir,
                            const fsdp_accelerator_save_model_options *options);
/** @} */

/** @name Trackers @{ */
/** An option of the run, for fsdp_accelerator_init_trackers(). */
typedef struct fsdp_tracker_option {
    const char *name, *value; /**< UTF-8 */
} fsdp_tracker_option;
/** A value that was measured, for fsdp_accelerator_log(). */
typedef struct fsdp_tracker_value {
    const char *name; /**< e.g. "train_loss"; TensorBoard shows it under this name */
    double value;
} fsdp_tracker_value;

/**
 * init_trackers(project_name, config): open the trackers of options->log_with. Their files are in
 * <logging_dir>/<project_name>. Without trackers, this and fsdp_accelerator_log() do nothing.
 * Collective; only the main process writes.
 * @param config [n] options of the run; may be NULL if n is 0
 * @return FSDP_ERR_INVALID if there is no folder to write to, or if project_name is missing;
 *         FSDP_ERR_STATE if trackers are open already; FSDP_ERR_IO
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerator_init_trackers(fsdp_accelerator *accelerator, const char *project_name,
                               const fsdp_tracker_option *config, size_t n);
/** log(values, step): write a row. Does nothing on ranks other than the main process. Not
 * collective.
 * @param values [n], at most 64 with different names other than "kind" and "step"
 * @param step   number of the step; negative: the row has no step number
 * @return FSDP_ERR_STATE before fsdp_accelerator_init_trackers(); FSDP_ERR_INVALID for a wrong name
 *         or too many values; FSDP_ERR_IO */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_log(fsdp_accelerator *accelerator,
                                                          const fsdp_tracker_value *values,
                                                          size_t n, int64_t step);
/** end_training(): close the trackers, and wait for all ranks. Collective. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_accelerator_end_training(fsdp_accelerator *accelerator);
/** @} */

#ifdef __cplusplus
}
#endif
