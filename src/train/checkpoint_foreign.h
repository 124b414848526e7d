/* Resuming from what another program saved: a folder of torch.distributed.checkpoint, Accelerate's
 * or transformers' Trainer's, a file of torch.save. What their options were is compared with this
 * run's, which count. */
#pragma once
#include <limits.h>

#include "src/train/trainer_internal.h"

/* Where model and optimizer are in `path`. */
typedef struct fsdp_checkpoint_parts {
    char model[PATH_MAX], optimizer[PATH_MAX];
} fsdp_checkpoint_parts;

/* false: `path` is no checkpoint of another program that can be read here. *lacks then says what is
 * missing beside a model that is there; NULL: nothing was found. Static. */
bool fsdp_checkpoint_foreign_find(const char *path, fsdp_checkpoint_parts *parts,
                                  const char **lacks);
/* Has `dir` files that this program writes together with trainer_state.json, which is gone then? */
bool fsdp_checkpoint_needs_state(const char *dir);
/* A file given to --resume. FSDP_ERR_INVALID saying what is wanted if it is of no format that a
 * checkpoint has; else what its reader says. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_foreign_check_file(const char *path);
/* Into the run's model and optimizer. Options that differ, and what is not used, are printed to
 * t->out. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_foreign_read(fsdp_trainer *t, const char *path);
