/* Resumes from a checkpoint of another program: a folder of torch.distributed.checkpoint, of
 * Accelerate or of transformers' Trainer, or a file of torch.save. This run's options take effect;
 * saved options that differ from them are printed. */
#pragma once
#include <limits.h>

#include "src/train/trainer_internal.h"

/* Paths of the model and the optimizer of a checkpoint. They are equal if one file or folder
 * contains both. */
typedef struct fsdp_checkpoint_parts {
    char model[PATH_MAX], optimizer[PATH_MAX];
} fsdp_checkpoint_parts;

/* Find the model and the optimizer of `path`. Return false if they cannot be found. If only one of
 * them was found, set *lacks to a static text that names the missing one; otherwise set it to NULL.
 */
bool fsdp_checkpoint_foreign_find(const char *path, fsdp_checkpoint_parts *parts,
                                  const char **lacks);
/* Does `dir` have files that this program always writes together with trainer_state.json? If so,
 * the checkpoint is incomplete without trainer_state.json. Also true if .metadata is damaged. */
bool fsdp_checkpoint_needs_state(const char *dir);
/* Check that a file given to --resume can be opened as a checkpoint. If a file of torch.save (.pt,
 * .pth, .bin) cannot be opened, return the error from reading it. For other files, return
 * FSDP_ERR_INVALID; the message names the accepted formats. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_foreign_check_file(const char *path);
/* Read `path` into the run's model and optimizer. Saved options that differ from this run's, and
 * unused content, are printed to t->out. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_foreign_read(fsdp_trainer *t, const char *path);
