/* Which files of a folder belong to the model or checkpoint that a new one replaces. All others
 * belong to the user and are kept: README.md, .git, checkpoint-1/, event files. */
#pragma once
#include <stdbool.h>

#include <fsdp/base.h>

/* Is this a name by which transformers finds a model's weights? These are model.safetensors and
 * pytorch_model.bin, their shards and indexes. model.fp16.safetensors is another model. */
bool fsdp_is_weights_name(const char *name);
/* Does `name` consist of `stem`, '_' with at least one digit, and `ending`, such as "checkpoint" +
 * "_12" + ".pkl"? */
bool fsdp_is_numbered_name(const char *name, const char *stem, const char *ending);

/* The next three functions are callbacks for fsdp_atomic_directory_drop(). `context` is not used;
 * `fresh` is NULL if no new folder replaces the old one.
 *
 * This one drops a checkpoint of torch.distributed.checkpoint, with the checksums of its files, and
 * with trainer_state.json if `fsdp train` wrote it. */
bool fsdp_is_stale_dcp_file(void *context, const char *old, const char *fresh, const char *name);
/* A model's folder: drop the same files, and weights with the names of transformers. If the new
 * folder has a tokenizer, drop the old tokenizer; if it has a config.json, drop the old
 * generation_config.json. */
bool fsdp_is_stale_model_file(void *context, const char *old, const char *fresh, const char *name);
/* A training checkpoint: drop all that `fsdp train` and fsdp_accelerate_save_state() write into
 * one, in every format. */
bool fsdp_is_stale_checkpoint_file(void *context, const char *old, const char *fresh,
                                   const char *name);
/* Does a training checkpoint's folder hold any other files? Also true if it cannot be read. */
bool fsdp_checkpoint_holds_others(const char *folder);
/* Did `fsdp train` write FOLDER/trainer_state.json? Transformers uses the same name. */
bool fsdp_has_trainer_state(const char *folder);
/* Check that a model may be written into this folder, replacing another one. FSDP_ERR_INVALID if it
 * is a training checkpoint, which would lose a part. */
FSDP_MUST_CHECK fsdp_status fsdp_check_model_place(const char *folder);
