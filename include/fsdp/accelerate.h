/**
 * @file
 * Reads and writes, without Accelerate, the folders that Hugging Face Accelerate's save_state() and
 * load_state() use with FSDP:
 *
 * | SHARDED_STATE_DICT        | FULL_STATE_DICT                                   |
 * |---------------------------|---------------------------------------------------|
 * | `pytorch_model_fsdp_<i>/` | `pytorch_model_fsdp.bin`, `..._1.bin`, ...        |
 * | `optimizer_<i>/`          | `optimizer.bin`, `optimizer_1.bin`, ...           |
 *
 * Both kinds also have `scheduler.bin`, `scheduler_<i>.bin`, `scaler.pt` if the loss is scaled, and
 * `random_states_<rank>.pkl`. Before Accelerate 0.25 the models were called `pytorch_model_<i>/`
 * and `pytorch_model.bin`. Both old and new names can be read.
 *
 *     fsdp_module *models[] = {model};
 *     fsdp_optimizer *optimizers[] = {optimizer};
 *     fsdp_accelerate_state state = {.models = models, .n_models = 1,
 *                                    .optimizers = optimizers, .n_optimizers = 1, .seed = 42};
 *     FSDP_TRY(fsdp_accelerate_save_state(&state, "ckpt", group, NULL));
 *     FSDP_TRY(fsdp_accelerate_load_state(&state, "ckpt", group, NULL));
 */
#pragma once
#include <fsdp/state_dict.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The state of a torch.optim.lr_scheduler.LambdaLR. It is the same for all groups of its
 * optimizer. */
typedef struct fsdp_accelerate_scheduler {
    double base_lr;     /**< initial_lr: the rate that the schedule multiplies */
    double last_lr;     /**< learning rate of the next step */
    int64_t last_epoch; /**< number of scheduler steps; with Accelerate's defaults this is the
                             number of optimizer steps times the number of ranks */
} fsdp_accelerate_scheduler;

/** The objects that were passed to accelerator.prepare(), in that order. All pointers are
 * borrowed. */
typedef struct fsdp_accelerate_state {
    fsdp_module *const *models; /**< [n_models] */
    size_t n_models;
    fsdp_optimizer *const *optimizers;     /**< [n_optimizers]; optimizer i updates model i */
    size_t n_optimizers;                   /**< at most n_models */
    fsdp_accelerate_scheduler *schedulers; /**< [n_schedulers]; scheduler i belongs to optimizer i;
                                                load_state overwrites them */
    size_t n_schedulers;                   /**< at most n_optimizers */
    fsdp_grad_scaler *scaler; /**< NULL: none. load_state leaves the scaler unchanged if the folder
                                   has no scaler.pt. */
    /** Seed for random_states. save_state writes the states that Python's, NumPy's and PyTorch's
     * generators have after set_seed(seed). This library's random numbers are functions of seed and
     * step, so it has no generator state of its own. */
    uint64_t seed;
} fsdp_accelerate_state;

/** Zero means default. */
typedef struct fsdp_accelerate_options {
    fsdp_state_dict_type type;   /**< save_state: sharded or full */
    bool old_names;              /**< save_state: use `pytorch_model_0` and the like, for
                                      Accelerate before 0.25 */
    bool overwrite;              /**< save_state: replace the checkpoint in an existing folder and
                                      keep the other files there; default: an error unless the
                                      folder is empty */
    bool keep_optimizer_options; /**< load_state: keep the optimizer's current learning rates and
                                      other options */
} fsdp_accelerate_options;

/**
 * Accelerator.save_state(). Accelerate can load the result at any world size. The folder appears
 * complete or not at all. Collective; if one rank fails, all ranks fail.
 *
 * @param dir   the same path on all ranks
 * @param group NULL: this rank alone
 * @return FSDP_ERR_UNSUPPORTED for FSDP_STATE_DICT_LOCAL, which Accelerate does not support with
 *         FSDP2; FSDP_ERR_INVALID if `dir` is not empty and overwrite is not set, or if the numbers
 *         of models, optimizers and schedulers do not match; FSDP_ERR_IO if the disk is full
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerate_save_state(const fsdp_accelerate_state *state, const char *dir, fsdp_group *group,
                           const fsdp_accelerate_options *options);

/**
 * Accelerator.load_state(): load a folder that Accelerate or fsdp_accelerate_save_state() wrote,
 * sharded or full, on any number of ranks. random_states are not read, because this library does
 * not use such generators.
 *
 * Collective. Each part (a model, an optimizer) is checked on all ranks before its first value
 * changes. If a part fails, the parts before it stay loaded.
 *
 * @return FSDP_ERR_NOT_FOUND naming the file that is missing; FSDP_ERR_UNSUPPORTED for folders with
 *         one file per rank (LOCAL_STATE_DICT, use_dcp=False); FSDP_ERR_FORMAT naming a damaged
 *         file; and the errors of fsdp_dcp_load() and fsdp_set_state_dict()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerate_load_state(const fsdp_accelerate_state *state, const char *dir, fsdp_group *group,
                           const fsdp_accelerate_options *options);

#ifdef __cplusplus
}
#endif
