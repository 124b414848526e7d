/* Resumes from a checkpoint of another program: a folder written by torch.distributed.checkpoint,
 * Accelerate or transformers' Trainer, or a file written by torch.save. This run's options take
 * effect; saved options that differ from them are printed. */
#pragma once
#include <limits.h>

#include "src/train/trainer_internal.h"

/* Paths of the model and the optimizer of a checkpoint. They are equal if one file or folder
 * contains both. */
typedef struct fsdp_checkpoint_parts {
    char model[PATH_MAX], optimizer[PATH_MAX];
} fsdp_checkpoint_parts;

/* Find the model and the optimizer in the file or folder `path`. Return true if both were found. A
 * file, or a folder with .metadata, is assumed to contain both. If only one of them was found,
 * *lacks is set to a static text that names the missing one. Otherwise, *lacks is set to NULL. */
bool fsdp_checkpoint_foreign_find(const char *path, fsdp_checkpoint_parts *parts,
                                  const char **lacks);
/* Return true if a checkpoint in `dir` needs trainer_state.json to be complete. It needs this file
 * if `dir` contains files that this program always writes together with trainer_state.json. It also
 * needs it if .metadata in `dir` is damaged, because this program may have written .metadata. */
bool fsdp_checkpoint_needs_state(const char *dir);
/* Return an error if the file `path`, the argument of --resume, cannot be opened as a checkpoint.
 * If its name ends in .pt, .pth or .bin, try to open it, and return the error if this fails. For
 * any other name, return FSDP_ERR_INVALID. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_foreign_check_file(const char *path);
/* Read `path` into the run's model and optimizer. Print to t->out which saved options differ from
 * this run's, and which saved values are not used. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_foreign_read(fsdp_trainer *t, const char *path);
