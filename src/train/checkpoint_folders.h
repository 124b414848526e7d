/* The folders of a run's checkpoints: their names, which of them are complete, and the removal of
 * old ones. */
#pragma once
#include "src/train/trainer_internal.h"

/* Set *dir, which the caller owns, to the folder that contains the run's checkpoints:
 * --checkpoint-dir, or if that is not given, --output with "-checkpoints" appended. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_folder_of_run(const fsdp_trainer *t, char **dir);
/* Return FOLDER/checkpoint-<step>, owned by the caller; NULL if memory ran out. */
char *fsdp_checkpoint_path_of_step(const char *folder, int64_t step);
/* Return <step> if `name` begins with "checkpoint-<step>", else -1. *rest becomes the text after
 * <step>. */
int64_t fsdp_checkpoint_step_of_name(const char *name, const char **rest);
/* Return <i> if `name` begins with "checkpoint_<i>", else -1. *rest becomes the text after <i>.
 * These are Accelerate's names; <i> counts saves, not steps. */
int64_t fsdp_checkpoint_accelerate_number(const char *name, const char **rest);
/* Does the folder contain every file that resuming needs? */
bool fsdp_checkpoint_is_complete(const char *dir);
/* Set *yes if `dir` is not a checkpoint of this program. An empty folder and a damaged checkpoint
 * count as this program's. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_is_foreign(const char *dir, bool *yes);
/* List the steps of the complete checkpoints in `folder` in ascending order. If `ours`, list only
 * checkpoints that this program wrote. *steps is owned by the caller. *n is 0 if the folder does
 * not exist. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_list_steps(const char *folder, bool ours,
                                                       int64_t **steps, size_t *n);
/* Called by rank 0 before training. Check that checkpoints can be written. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_check(const fsdp_trainer *t);

/* Which checkpoints to remove after a new one has appeared. */
typedef struct fsdp_checkpoint_rotation {
    const char *folder; /* borrowed from the trainer */
    int64_t step;       /* step of the new checkpoint */
    int64_t limit;      /* number of checkpoints to keep; 0: all */
    bool remove_later;  /* also remove checkpoints of later steps, which another run left */
} fsdp_checkpoint_rotation;
fsdp_checkpoint_rotation fsdp_checkpoint_rotation_of(const fsdp_trainer *t);
/* Remove the checkpoints that *rotation describes. Called by rank 0 or its save thread. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_remove_old(const fsdp_checkpoint_rotation *rotation);
/* Remove checkpoints in `folder` that killed runs left half written or half removed. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_remove_unfinished(const char *folder);
