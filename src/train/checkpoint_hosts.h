/* Chooses a checkpoint that is whole on all hosts of a job. If hosts have disks of their own (Note
 * [Hosts' own disks] in src/dcp/disks.h), a checkpoint has a folder on each of them. But a job that
 * was killed during a save may have left folders on only some hosts, and a host may have lost its
 * disk.
 *
 * Nothing here depends on whether hosts share a file system: each host reports which files it sees.
 * A checkpoint is whole if all hosts see a folder with the same trainer_state.json and .metadata,
 * and each file of a rank is seen by at least one host. */
#pragma once
#include <limits.h>

#include "src/train/trainer_internal.h"

enum {
    FSDP_HOSTS_REASON = 900 /* bytes of a `reason`, with its NUL */
};

/* Set *whole to whether the checkpoint `path` is whole. If it is not, `reason` says why: it names
 * each host on which the folder is missing, not usable or from another save. It also names each
 * file of a rank that no host has. All ranks get the same results. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_hosts_survey(const fsdp_trainer *t, const char *path,
                                                         bool *whole,
                                                         char reason[FSDP_HOSTS_REASON]);
/* Set `path` to the newest whole checkpoint in `folder`, and `previous` to the second newest, or to
 * "". A checkpoint whose folder has the same name as `other_than` is skipped; `other_than` may be
 * NULL. If `prints` is true, rank 0 prints why newer checkpoints were not chosen. *n_seen is set to
 * the number of checkpoints that are complete on at least one host. If *n_seen is positive and no
 * checkpoint is whole, `reason` says why the newest one is not, and `path` is "". Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_hosts_newest(const fsdp_trainer *t, const char *folder,
                                                         const char *other_than, bool prints,
                                                         char path[PATH_MAX],
                                                         char previous[PATH_MAX], size_t *n_seen,
                                                         char reason[FSDP_HOSTS_REASON]);
