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
 * Folders of both kinds also have `scheduler.bin`, `scheduler_1.bin`, ..., one
 * `random_states_<rank>.pkl` for each rank, and `scaler.pt` if the loss is scaled. Before version
 * 0.25, Accelerate saved models as `pytorch_model_<i>/` or `pytorch_model.bin`. This library reads
 * old and new names.
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

/** The state of a torch.optim.lr_scheduler.LambdaLR. All parameter groups of the optimizer have the
 * same base_lr and last_lr. */
typedef struct fsdp_accelerate_scheduler {
    double base_lr;     /**< torch's initial_lr: learning rate before the schedule's factor is
                             applied */
    double last_lr;     /**< current learning rate, which the next optimizer step uses */
    int64_t last_epoch; /**< number of scheduler steps; with Accelerate's defaults this is the
                             number of optimizer steps times the number of ranks */
} fsdp_accelerate_scheduler;

/** The objects that are saved or loaded. Models, optimizers and schedulers are in the order in
 * which they were passed to accelerator.prepare(). All pointers are borrowed. */
typedef struct fsdp_accelerate_state {
    fsdp_module *const *models; /**< [n_models] */
    size_t n_models;
    fsdp_optimizer *const *optimizers; /**< [n_optimizers]; optimizer i updates model i */
    size_t n_optimizers;               /**< at most n_models, unless model_of is set */
    /** [n_optimizers] Optimizer i updates model model_of[i]. NULL: optimizer i updates model i, as
     * Accelerate itself assumes. */
    const size_t *model_of;
    fsdp_accelerate_scheduler *schedulers; /**< [n_schedulers]; scheduler i belongs to optimizer i;
                                                load_state overwrites the structs with what it
                                                reads */
    size_t n_schedulers;                   /**< at most n_optimizers */
    /** [n_schedulers] Scheduler i belongs to optimizer optimizer_of[i]; all entries differ. NULL:
     * scheduler i belongs to optimizer i. */
    const size_t *optimizer_of;
    fsdp_grad_scaler *scaler; /**< NULL: the run has no scaler. load_state leaves the scaler
                                   unchanged if the folder has no scaler.pt. */
    /** The files random_states_<rank>.pkl contain the states of the random generators of Python,
     * NumPy and PyTorch. This library has no such generators, because its random numbers are
     * functions of seed and step. It writes these files only for Accelerate: save_state computes
     * the states that the generators have after Accelerate's set_seed(seed). */
    uint64_t seed;
} fsdp_accelerate_state;

/** Zero means default. */
typedef struct fsdp_accelerate_options {
    fsdp_state_dict_type type;   /**< save_state: sharded or full */
    bool old_names;              /**< save_state: save models as `pytorch_model_<i>`, for Accelerate
                                      before 0.25 */
    bool overwrite;              /**< save_state: if the folder has files, replace the checkpoint in
                                      it and keep all other files; default: fail if the folder has
                                      files */
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
 *         FSDP2; FSDP_ERR_INVALID if `dir` has files and overwrite is false, if there are more
 *         optimizers than models or more schedulers than optimizers, or if an index in model_of or
 *         optimizer_of is out of range; FSDP_ERR_IO if the disk is full
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerate_save_state(const fsdp_accelerate_state *state, const char *dir, fsdp_group *group,
                           const fsdp_accelerate_options *options);

/**
 * Accelerator.load_state(): load a folder that Accelerate or fsdp_accelerate_save_state() wrote,
 * sharded or full, on any number of ranks. The files random_states_<rank>.pkl, with the states of
 * Python's, NumPy's and PyTorch's random generators, are not read, because this library has no
 * random generator.
 *
 * Collective. Each model and each optimizer is checked on all ranks before any of its values
 * change. If loading a model or an optimizer fails, those that were loaded earlier keep their new
 * values.
 *
 * @return FSDP_ERR_NOT_FOUND if a file is missing; FSDP_ERR_UNSUPPORTED for folders with one file
 *         per rank (LOCAL_STATE_DICT, use_dcp=False); FSDP_ERR_FORMAT if a file is damaged; and the
 *         errors of fsdp_dcp_load() and fsdp_set_state_dict(). The message names the file
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerate_load_state(const fsdp_accelerate_state *state, const char *dir, fsdp_group *group,
                           const fsdp_accelerate_options *options);

#ifdef __cplusplus
}
#endif
