/**
 * @file
 * Folders of Hugging Face Accelerate's save_state() and load_state() with FSDP, written and read
 * without it:
 *
 * | SHARDED_STATE_DICT                | FULL_STATE_DICT                                  |
 * |-----------------------------------|--------------------------------------------------|
 * | `pytorch_model_fsdp_<i>/`         | `pytorch_model_fsdp.bin`, `..._<i>.bin` from 1 on |
 * | `optimizer_<i>/`                  | `optimizer.bin`, `optimizer_<i>.bin`              |
 *
 * and with both `scheduler.bin`, `scheduler_<i>.bin`, `scaler.pt` if the loss is scaled, and
 * `random_states_<rank>.pkl`. Before
 * Accelerate 0.25 the models were called `pytorch_model_<i>/` and `pytorch_model.bin`; both names
 * are read.
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

/** What of a torch.optim.lr_scheduler.LambdaLR is state; the same for all groups of its optimizer.
 */
typedef struct fsdp_accelerate_scheduler {
    double base_lr;     /**< initial_lr: what the schedule multiplies */
    double last_lr;     /**< of the next step */
    int64_t last_epoch; /**< times it was stepped: with Accelerate's defaults optimizer steps times
                             ranks */
} fsdp_accelerate_scheduler;

/** What accelerator.prepare() was given, in that order. All pointers are borrowed. */
typedef struct fsdp_accelerate_state {
    fsdp_module *const *models; /**< [n_models] */
    size_t n_models;
    fsdp_optimizer *const *optimizers;     /**< [n_optimizers] number i updates model i */
    size_t n_optimizers;                   /**< at most n_models */
    fsdp_accelerate_scheduler *schedulers; /**< [n_schedulers] number i is optimizer i's; load_state
                                                writes into them */
    size_t n_schedulers;                   /**< at most n_optimizers */
    fsdp_grad_scaler *scaler; /**< NULL: none. load_state leaves it as it is if the folder
                                   has no scaler.pt */
    uint64_t seed;            /**< of random_states: Python's, NumPy's and PyTorch's generators as
                                   set_seed(seed) leaves them. This library's random numbers are functions of
                                   seed and step, which have no state. */
} fsdp_accelerate_state;

/** Zero means default. */
typedef struct fsdp_accelerate_options {
    fsdp_state_dict_type type;   /**< save_state: sharded or full */
    bool old_names;              /**< save_state: `pytorch_model_0`, for Accelerate before 0.25 */
    bool overwrite;              /**< save_state: replace the checkpoint in a folder of that name,
                                      whose other files stay; default: refuse it */
    bool keep_optimizer_options; /**< load_state: rates and the like stay what they are */
} fsdp_accelerate_options;

/**
 * Accelerator.save_state(): Accelerate loads it at any world size. The folder appears whole or not
 * at all. Collective; a failure of one rank is one of all.
 *
 * @param dir   the same path for all ranks
 * @param group NULL: this rank alone
 * @return FSDP_ERR_UNSUPPORTED for FSDP_STATE_DICT_LOCAL, which Accelerate has not with FSDP2;
 *         FSDP_ERR_INVALID if `dir` exists, or for numbers of optimizers or schedulers that do not
 *         fit; FSDP_ERR_IO if the disk is full
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerate_save_state(const fsdp_accelerate_state *state, const char *dir, fsdp_group *group,
                           const fsdp_accelerate_options *options);

/**
 * Accelerator.load_state(): what Accelerate or fsdp_accelerate_save_state() wrote, sharded or full,
 * by any number of ranks. random_states are not read: they are of generators that are not used
 * here.
 *
 * Collective. A part (a model, an optimizer) is checked on all ranks before its first value
 * changes; parts before one that fails have been loaded.
 *
 * @return FSDP_ERR_NOT_FOUND naming what the folder lacks; FSDP_ERR_UNSUPPORTED for files of one
 *         rank each (LOCAL_STATE_DICT, use_dcp=False); FSDP_ERR_FORMAT naming a damaged file; and
 *         as fsdp_dcp_load() and fsdp_set_state_dict()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_accelerate_load_state(const fsdp_accelerate_state *state, const char *dir, fsdp_group *group,
                           const fsdp_accelerate_options *options);

#ifdef __cplusplus
}
#endif
