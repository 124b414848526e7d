/* Writing checkpoints of torch.distributed.checkpoint: each rank writes its own rows into a file of
 * its own. Unmodified torch.distributed.checkpoint.load and dcp_to_torch_save can read them. */
#pragma once
#include "src/dcp/dcp_manifest.h"
#include "src/dcp/group_directory.h"

/* Write the checkpoint that the manifest describes. Collective; if one rank fails, all fail. It
 * needs a few MiB of memory, and a few hundred bytes for each entry and rank.
 *
 * Note [Ranks meet three times]. Every rank computes by itself which rank writes what, from the
 * placements of the tensors (fsdp_dcp_tensor.part_of). The ranks meet (one small all-gather each)
 * so that all continue, or all fail with the message of the first rank that failed:
 *
 *  1. Before a byte is written: all ranks have a manifest with the same checksum. Rank 0 has made
 *     the directory, sends its path, and has checked that there is space for all files.
 *  2. When each rank has written its file. It sends the places of its entries in it.
 *  3. When rank 0 has written .metadata and the directory has its final name.
 *
 * Without the first meeting, ranks would write although another rank refuses, and could not
 * distinguish free space from space that another rank is about to fill. Without the second, rank 0
 * would wait for the file of a rank that failed and has no disk space left to report it. Without
 * the third, other ranks would return before the checkpoint exists, or although it never will.
 * Saves that run during training (Note [Asynchronous saves] in src/state_dict/async_save.h) have
 * only the first meeting.
 *
 * Ranks that do not know each other's parts, or whose manifests differ, exchange their parts after
 * the first meeting. That takes a fourth meeting, and a fifth one about disk space.
 *
 * @param mine  what this rank's preparations returned; if they failed, the manifest is not read
 * @param group NULL: this rank alone
 * @return FSDP_ERR_INVALID if the ranks have different entries, or if their rows of a tensor
 *         overlap (except for replicas, which have the same rows) or do not cover it, naming the
 *         fqn; FSDP_ERR_IO if the disk is full, before or while writing;
 *         errors of a tensor's read() */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_save_manifest(fsdp_status mine, const fsdp_group_place *place,
                                                   fsdp_group *group,
                                                   const fsdp_dcp_manifest *manifest);

/* The same in steps. Once a job is created, its files can be written at any time and in any thread,
 * without communication. The caller brings the positions of all ranks' entries to rank 0, which
 * completes the job. */
typedef struct fsdp_dcp_job fsdp_dcp_job;
/* Collective; if one rank fails, all fail. The manifest and place->arg are borrowed. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_create(fsdp_status mine, const fsdp_group_place *place,
                                                fsdp_group *group,
                                                const fsdp_dcp_manifest *manifest,
                                                fsdp_dcp_job **job);
/* Removes a directory that did not get its final name. Rank 0 must call it last. Accepts NULL. */
void fsdp_dcp_job_destroy(fsdp_dcp_job *job);
/* The directory in which files are written before it gets its final name. */
const char *fsdp_dcp_job_dir(const fsdp_dcp_job *job);
/* Is entry i in this rank's file? */
bool fsdp_dcp_job_writes(const fsdp_dcp_job *job, size_t i);
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_write_file(fsdp_dcp_job *job);
/* The positions of this rank's entries in its file, as plain data of [*bytes], the same size on all
 * ranks; and the memory where rank 0 stores the positions of a rank. @{ */
const void *fsdp_dcp_job_own_positions(const fsdp_dcp_job *job, size_t *bytes);
void *fsdp_dcp_job_positions(fsdp_dcp_job *job, int rank);
/* @} */
/* Called by rank 0 once all files are written: write .metadata and further files, and give the
 * directory its final name. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_complete(fsdp_dcp_job *job);
/* Abandon the job: remove what was written. */
void fsdp_dcp_job_discard(fsdp_dcp_job *job);
