/* Writes checkpoints of torch.distributed.checkpoint: each rank writes its own rows into a file of
 * its own. Unmodified torch.distributed.checkpoint.load and dcp_to_torch_save can read these
 * checkpoints. */
#pragma once
#include "src/dcp/dcp_manifest.h"
#include "src/dcp/group_directory.h"

/* Write the checkpoint that the manifest describes. Collective; if one rank fails, all fail. The
 * call needs a few MiB of memory, and a few hundred bytes for each entry and rank.
 *
 * Note [Ranks meet three times]. Every rank computes by itself which rank writes what, from the
 * placements of the tensors (fsdp_dcp_tensor.part_of). Each meeting is one small all-gather. After
 * it, all ranks continue, or all fail with the message of the first rank that failed. The ranks
 * meet
 *
 *  1. before a byte is written. The ranks compare checksums of what they have computed. Rank 0 has
 *     made the directory and has checked that there is space for all files; it sends the path of
 *     the directory.
 *  2. when each rank has written its file. Each rank sends the positions of its entries in its
 *     file.
 *  3. when rank 0 has written .metadata and the directory has its final name.
 *
 * Without the first meeting, ranks would write although another rank refuses, and each rank could
 * count as free the space that another rank is about to fill. Without the second meeting, rank 0
 * would wait for files, and a rank that failed because the disk is full could not report this in a
 * file. Without the third meeting, other ranks would return before the checkpoint exists, or even
 * if it will never exist. Saves that run during training (Note [Asynchronous saves] in
 * src/state_dict/async_save.h) have only the first meeting.
 *
 * Ranks that do not know each other's parts, or whose manifests differ, exchange their parts after
 * the first meeting. That takes a fourth meeting, and a fifth one about disk space.
 *
 * @param mine  status of this rank's preparations; if they failed, the manifest is not read
 * @param group NULL: this rank writes alone
 * @return FSDP_ERR_INVALID naming the fqn if the ranks have different entries, or if their rows of
 *         a tensor overlap (except for replicas, which have the same rows) or do not cover the
 *         tensor; FSDP_ERR_IO if the disk is full, before or while writing; errors of a tensor's
 *         read() */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_save_manifest(fsdp_status mine, const fsdp_group_place *place,
                                                   fsdp_group *group,
                                                   const fsdp_dcp_manifest *manifest);

/* fsdp_dcp_save_manifest() in steps. After a job is created, its files can be written at any time
 * and in any thread, without communication. The caller sends the positions of all ranks' entries to
 * rank 0, which completes the job. */
typedef struct fsdp_dcp_job fsdp_dcp_job;
/* Create a job. Collective; if one rank fails, all fail. The manifest and place->arg are
 * borrowed. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_create(fsdp_status mine, const fsdp_group_place *place,
                                                fsdp_group *group,
                                                const fsdp_dcp_manifest *manifest,
                                                fsdp_dcp_job **job);
/* Destroy the job. Its directory is removed if it does not have its final name yet. Rank 0 must
 * call this only when no other rank writes into the directory. Accepts NULL. */
void fsdp_dcp_job_destroy(fsdp_dcp_job *job);
/* Return the path that the directory has before it gets its final name. Files are written there. */
const char *fsdp_dcp_job_dir(const fsdp_dcp_job *job);
/* Does this rank write entry `i`? */
bool fsdp_dcp_job_writes(const fsdp_dcp_job *job, size_t i);
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_write_file(fsdp_dcp_job *job);
/* Positions of entries in files, as bytes that can be sent. own_positions() returns the positions
 * in this rank's file; their size *bytes is the same on all ranks. positions() returns the memory
 * of rank 0 for the positions in the file of `rank`. @{ */
const void *fsdp_dcp_job_own_positions(const fsdp_dcp_job *job, size_t *bytes);
void *fsdp_dcp_job_positions(fsdp_dcp_job *job, int rank);
/* @} */
/* Write .metadata and further files, and give the directory its final name. Rank 0 calls this after
 * all files are written. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_complete(fsdp_dcp_job *job);
/* Abandon the job: remove the directory unless it has its final name. The job must still be
 * destroyed. */
void fsdp_dcp_job_discard(fsdp_dcp_job *job);
