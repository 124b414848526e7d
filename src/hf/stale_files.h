/* Decides which files of a folder belong to the model or checkpoint that a new one replaces. All
 * other files belong to the user and are kept: README.md, .git, checkpoint-1/, event files. */
#pragma once
#include <stdbool.h>

#include <fsdp/base.h>

/* Does transformers find a model's weights by this name? Such names are model.safetensors,
 * pytorch_model.bin, and the names of their shards and indexes. model.fp16.safetensors is not such
 * a name: it is another variant of the model. */
bool fsdp_is_weights_name(const char *name);
/* Does `name` consist of `stem`, at least one digit, and `ending`, such as "random_states_" + "12"
 * + ".pkl"? */
bool fsdp_is_numbered_name(const char *name, const char *stem, const char *ending);

/* The next three functions are callbacks for fsdp_atomic_directory_drop(). They return whether to
 * drop the file `name` of the folder `old`. `fresh` is the folder that replaces `old`, or NULL if
 * there is none. `context` is not used.
 *
 * For a checkpoint of torch.distributed.checkpoint: drop its files, the checksums of these files,
 * and trainer_state.json if `fsdp train` wrote it. */
bool fsdp_is_stale_dcp_file(void *context, const char *old, const char *fresh, const char *name);
/* For a model's folder: drop what fsdp_is_stale_dcp_file() drops, and weights
 * (fsdp_is_weights_name()). If the new folder has a tokenizer, drop the old tokenizer; if the new
 * folder has a config.json, drop the old generation_config.json. */
bool fsdp_is_stale_model_file(void *context, const char *old, const char *fresh, const char *name);
/* For a training checkpoint: drop all files that `fsdp train` and fsdp_accelerate_save_state()
 * write into such a checkpoint, in every format. */
bool fsdp_is_stale_checkpoint_file(void *context, const char *old, const char *fresh,
                                   const char *name);
/* Does the folder of a training checkpoint contain files that are not part of the checkpoint? Also
 * true if the folder cannot be read. */
bool fsdp_checkpoint_holds_others(const char *folder);
/* Did `fsdp train` write FOLDER/trainer_state.json? Transformers uses the same name. */
bool fsdp_has_trainer_state(const char *folder);
/* Check that a model may be written into this folder and replace a model there. FSDP_ERR_INVALID if
 * the folder is a checkpoint of `fsdp train`, because a part of the checkpoint would be lost. */
FSDP_MUST_CHECK fsdp_status fsdp_check_model_folder(const char *folder);
