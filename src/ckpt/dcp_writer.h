/* Writing checkpoints of torch.distributed.checkpoint: each rank its own rows, into a file of its
 * own, as unmodified torch.distributed.checkpoint.load and dcp_to_torch_save read them. */
#pragma once
#include <fsdp/comm.h>

#include "src/base/io.h"
#include "src/ckpt/dcp_plan.h"

typedef struct fsdp_dcp_save_plan_options {
    fsdp_existing existing; /* what to do with a directory that is there; default: refuse */
} fsdp_dcp_save_plan_options;

/* Write `plan` as the directory `dir`, which all ranks must see under one path. Collective, and a
 * failure of one rank is one of all (telling the plan is the caller's, who agrees on that first).
 * The directory appears whole or not at all. Nothing is held but a few MiB, and a few 100 bytes for
 * each entry and rank.
 *
 * @param group   NULL: this rank alone
 * @param options NULL: defaults
 * @return FSDP_ERR_INVALID if the ranks plan different entries, or if their rows of a tensor
 *         overlap (but for replicas, which have the same rows) or do not cover it, naming the fqn;
 *         FSDP_ERR_IO if the disk is full, before or while writing; what read() of a tensor returns
 */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_save_plan(const char *dir, fsdp_group *group,
                                               const fsdp_dcp_plan *plan,
                                               const fsdp_dcp_save_plan_options *options);

/* What the ranks have of the entries is exchanged when a job is made; its files can then be written
 * at any time and in any thread: nothing more is said. Whoever makes it brings the places of all
 * ranks' entries to rank 0, which writes them down. */
typedef struct fsdp_dcp_job fsdp_dcp_job;
/* Into the existing directory `dir`, as fsdp_dcp_write(). Collective, and a failure of one rank is
 * one of all. The plan is borrowed. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_create(const char *dir, fsdp_group *group,
                                                const fsdp_dcp_plan *plan, fsdp_dcp_job **job);
void fsdp_dcp_job_destroy(fsdp_dcp_job *job); /* accepts NULL */
/* Is entry i in this rank's file? */
bool fsdp_dcp_job_writes(const fsdp_dcp_job *job, size_t i);
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_write_file(fsdp_dcp_job *job);
/* Where this rank's entries lie in it, plain data of [*bytes], which is the same on all ranks; and
 * on rank 0 where those of a rank are put. @{ */
const void *fsdp_dcp_job_own_places(const fsdp_dcp_job *job, size_t *bytes);
void *fsdp_dcp_job_places(fsdp_dcp_job *job, int rank);
/* @} */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_write_metadata(const fsdp_dcp_job *job); /* rank 0 */

/* The same into the existing directory `dir`, which holds no checkpoint yet, for callers who make
 * more than the checkpoint appear at once. Its file .metadata comes last; what a failure leaves
 * behind is the caller's to remove.
 */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_write(const char *dir, fsdp_group *group,
                                           const fsdp_dcp_plan *plan);
