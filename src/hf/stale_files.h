/* Which files of a folder are parts of the model or checkpoint that a new one replaces. All others
 * are the user's, and kept: README.md, .git, checkpoint-1/, event files. */
#pragma once
#include <stdbool.h>

#include <fsdp/base.h>

/* A file by whose name transformers finds a model's weights: model.safetensors, its shards and its
 * index, pytorch_model.bin and the same of it. Not model.fp16.safetensors, which is another model.
 */
bool fsdp_is_weights_name(const char *name);
/* "checkpoint" + "_12" + ".pkl": `stem`, at least one digit, `ending`. */
bool fsdp_is_numbered_name(const char *name, const char *stem, const char *ending);

/* For fsdp_atomic_directory_drop(); `context` is not used, and `fresh` NULL where nothing takes the
 * old folder's place.
 *
 * A checkpoint of torch.distributed.checkpoint, with the checksums beside its files, and with the
 * trainer_state.json of the save that is replaced, if `fsdp train` wrote it. */
bool fsdp_is_stale_dcp_file(void *context, const char *old, const char *fresh, const char *name);
/* A model's folder: that, and weights by the names of transformers. Where the new folder has a
 * tokenizer, that of the old one; where it has a config.json, the old generation_config.json. */
bool fsdp_is_stale_model_file(void *context, const char *old, const char *fresh, const char *name);
/* A training checkpoint: all that `fsdp train` and fsdp_accelerate_save_state() write into one,
 * in every form. */
bool fsdp_is_stale_checkpoint_file(void *context, const char *old, const char *fresh,
                                   const char *name);
/* Does a training checkpoint's folder hold anything else? True also if it cannot be read. */
bool fsdp_checkpoint_holds_others(const char *folder);
/* Is FOLDER/trainer_state.json one that `fsdp train` wrote? transformers' has the same name. */
bool fsdp_has_trainer_state(const char *folder);
/* May a model be written into this folder, over another one? FSDP_ERR_INVALID if it is a training
 * checkpoint, of which a part would be lost. */
FSDP_MUST_CHECK fsdp_status fsdp_check_model_place(const char *folder);
