/* Resuming from what another program saved: a folder of torch.distributed.checkpoint, of Accelerate
 * or of transformers' Trainer, or a file of torch.save. The saved options are compared with this
 * run's; this run's take effect. */
#pragma once
#include <limits.h>

#include "src/train/trainer_internal.h"

/* Where model and optimizer are in `path`. */
typedef struct fsdp_checkpoint_parts {
    char model[PATH_MAX], optimizer[PATH_MAX];
} fsdp_checkpoint_parts;

/* Returns false if `path` is not a checkpoint of another program that can be read here. *lacks is
 * then what is missing although a model is there, or NULL if nothing was found; static. */
bool fsdp_checkpoint_foreign_find(const char *path, fsdp_checkpoint_parts *parts,
                                  const char **lacks);
/* Does `dir` have files that this program writes together with trainer_state.json, although that
 * file is missing? */
bool fsdp_checkpoint_needs_state(const char *dir);
/* Check a file given to --resume. FSDP_ERR_INVALID, naming the accepted formats, if it has no
 * format of a checkpoint; else the status of its reader. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_foreign_check_file(const char *path);
/* Read `path` into the run's model and optimizer. Options that differ, and unused content, are
 * printed to t->out. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_foreign_read(fsdp_trainer *t, const char *path);
