/* The folders of a run's checkpoints: what their names are, which of them are complete, and which
 * are removed. */
#pragma once
#include "src/dcp/disks.h"
#include "src/train/trainer_internal.h"

/* Set *dir to the folder that contains the run's checkpoints: --checkpoint-dir or, if that option
 * is not given, --output with "-checkpoints" appended. The caller owns *dir. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_folder_of_run(const fsdp_trainer *t, char **dir);
/* Return FOLDER/checkpoint-<step>, owned by the caller; NULL if memory ran out. */
char *fsdp_checkpoint_path_of_step(const char *folder, int64_t step);
/* Return <step> if `name` begins with "checkpoint-<step>", and set *rest to the text after <step>.
 * Return -1 if `name` has another form or <step> is too large; *rest is then undefined. */
int64_t fsdp_checkpoint_step_of_name(const char *name, const char **rest);
/* Return <i> if `name` begins with "checkpoint_<i>", and set *rest to the text after <i>. Return -1
 * if `name` has another form or <i> is too large; *rest is then undefined. These are Accelerate's
 * names; <i> counts saves, not steps. */
int64_t fsdp_checkpoint_accelerate_number(const char *name, const char **rest);
/* Return true if `dir` contains a model and an optimizer, and also trainer_state.json if
 * fsdp_checkpoint_needs_state() returns true. */
bool fsdp_checkpoint_is_complete(const char *dir);
/* Set *yes to true if `dir` is not a folder, or is a folder that does not belong to this program;
 * otherwise to false. A folder belongs to this program if it is empty, if it contains a
 * trainer_state.json that this program wrote, or if its trainer_state.json is damaged. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_is_foreign(const char *dir, bool *yes);
/* List the steps of the complete checkpoints in `folder` in ascending order. If `ours` is true,
 * list only checkpoints that this program wrote. *n is set to 0 if the folder does not exist. The
 * caller owns *steps. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_list_steps(const char *folder, bool ours,
                                                       int64_t **steps, size_t *n);
/* Called by the first rank of each host before training. Return an error if checkpoints cannot be
 * written, or if they would replace files that this run may not replace
 * (fsdp_trainer_may_replace()). */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_check(const fsdp_trainer *t);

/* Which checkpoints to remove after a new one has appeared. */
typedef struct fsdp_checkpoint_rotation {
    const char *folder; /* borrowed from the trainer */
    int64_t step;       /* step of the new checkpoint */
    int64_t limit;      /* number of checkpoints to keep; 0: all */
    bool remove_later;  /* also remove checkpoints of later steps, which are from another run */
} fsdp_checkpoint_rotation;
/* Return which checkpoints to remove after the checkpoint of t->step has appeared. */
fsdp_checkpoint_rotation fsdp_checkpoint_rotation_of(const fsdp_trainer *t);
/* Remove the checkpoints that *rotation describes. Called by rank 0 or its save thread. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_remove_old(const fsdp_checkpoint_rotation *rotation);
/* Used instead of fsdp_checkpoint_remove_old() if hosts have disks of their own: the leader of each
 * disk removes folders from it. Only checkpoints that are on all disks count toward the number to
 * keep, since a run can resume only from those. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_remove_old_on_disks(
    const fsdp_checkpoint_rotation *rotation, const fsdp_disks *disks, fsdp_group *group);
/* Called on all ranks after the checkpoint `path` has appeared on the disks of several hosts. At
 * the first call, rank 0 prints that each disk has only some of the files, and the command that
 * collects them in one folder. */
void fsdp_checkpoint_print_disks(fsdp_trainer *t, const char *path, const fsdp_disks *disks);
/* Remove from `folder` the checkpoints that a killed run of this host was writing or removing.
 * Unfinished checkpoints that another host wrote remain; they are printed to `notes`, unless it is
 * NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_remove_unfinished(const char *folder, FILE *notes);
