/* Decides which old files of a folder are dropped when a new model or checkpoint is written there.
 * Only files of the old model or checkpoint are dropped. Files of the user are kept, for example
 * README.md, .git, checkpoint-1/ and event files. */
#pragma once
#include <stdbool.h>

#include <fsdp/base.h>

/* Return true if transformers looks for weights under this name: model.safetensors,
 * pytorch_model.bin, or the name of a shard or an index of these. model.fp16.safetensors is not
 * such a name, because it is a variant that transformers loads only on request. */
bool fsdp_is_weights_name(const char *name);
/* Return true if `name` consists of `stem`, at least one digit, and `ending`, for example
 * "random_states_" + "12" + ".pkl". */
bool fsdp_is_numbered_name(const char *name, const char *stem, const char *ending);

/* The next three functions are callbacks for fsdp_atomic_directory_drop(). They return true if the
 * file or folder `name` in the folder `old` must be dropped. The new folder `fresh` replaces `old`.
 * `fresh` is NULL if there is no new folder. `context` is not used.
 *
 * This first function is for a checkpoint of torch.distributed.checkpoint. It drops the
 * checkpoint's files and their checksums. It also drops trainer_state.json if `fsdp train` wrote
 * that file. */
bool fsdp_is_stale_dcp_file(void *context, const char *old, const char *fresh, const char *name);
/* This function is for a model's folder. It drops weights (fsdp_is_weights_name()), the files of an
 * adapter, and everything that fsdp_is_stale_dcp_file() drops. If the new folder has a tokenizer,
 * it also drops the old tokenizer. If the new folder has a config.json, it also drops the old
 * generation_config.json. */
bool fsdp_is_stale_model_file(void *context, const char *old, const char *fresh, const char *name);
/* This function is for a training checkpoint. It drops all files that `fsdp train` and
 * fsdp_accelerate_save_state() write into a checkpoint of any format. */
bool fsdp_is_stale_checkpoint_file(void *context, const char *old, const char *fresh,
                                   const char *name);
/* Return true if a training checkpoint's folder contains files that do not belong to the
 * checkpoint. Also return true if the folder cannot be read. */
bool fsdp_checkpoint_holds_others(const char *folder);
/* Return true if `fsdp train` wrote the file trainer_state.json in `folder`. transformers writes
 * files of the same name. */
bool fsdp_has_trainer_state(const char *folder);
/* Check that a model may be saved in `folder`, where it would replace an older model. Return
 * FSDP_ERR_INVALID if the folder is a checkpoint of `fsdp train`, because the model would replace a
 * part of that checkpoint. */
FSDP_MUST_CHECK fsdp_status fsdp_check_model_folder(const char *folder);
