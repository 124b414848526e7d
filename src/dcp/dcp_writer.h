/* Writes checkpoints of torch.distributed.checkpoint. Each rank writes its rows into one file. The
 * functions load() and dcp_to_torch_save() of an unmodified PyTorch can read these checkpoints. */
#pragma once
#include "src/dcp/dcp_manifest.h"
#include "src/dcp/group_directory.h"

/* Write the checkpoint that the manifest describes. Collective; if one rank fails, all fail. The
 * call needs a few MiB of memory, and in addition one byte for each pair of an entry and a rank. On
 * rank 0, it needs a few hundred bytes for each such pair.
 *
 * Note [Ranks meet three times]. Every rank computes by itself which rank writes which entries. It
 * uses the placements of the tensors (fsdp_dcp_tensor.part_of). Then the ranks meet three times. A
 * meeting is one small all-gather. After it, either all ranks continue, or all ranks fail with the
 * message of the lowest rank that failed. The meetings are:
 *
 *  1. Before any rank writes: rank 0 first makes the directory, and checks that the disk has space
 *     for the files of all ranks. In the meeting, the ranks compare checksums of what they have
 *     computed. After it, rank 0 broadcasts the path of the directory.
 *  2. When each rank has written its file. After the meeting, each rank sends the positions of its
 *     entries in its file to rank 0.
 *  3. When rank 0 has written .metadata and given the directory its final name.
 *
 * The path and the positions are not part of the meetings, because the number of bytes that an
 * all-gather of them moves grows with the square of the number of ranks. For a similar reason, no
 * rank keeps the boxes of all ranks: each rank computes them again when it needs them.
 *
 * Without the first meeting, some ranks would write their files even if another rank had failed.
 * Two ranks could also count on the same free disk space for their files. Without the second
 * meeting, rank 0 would have to wait for files. A rank that failed because the disk is full could
 * not report this in a file. Without the third meeting, other ranks would return before the
 * checkpoint exists, or even if it will never exist. Saves that run during training (Note
 * [Asynchronous saves] in src/state_dict/async_save.h) have only the first meeting.
 *
 * If a rank cannot compute the boxes of all ranks, or if the manifests differ, the ranks exchange
 * their boxes after the first meeting. This takes two more meetings: one for the boxes, and one for
 * the check of disk space.
 *
 * @param mine  status of what this rank did before the call; if it is an error, the manifest is
 *              not read
 * @param group NULL: this rank writes alone
 * @return FSDP_ERR_INVALID if the ranks have different entries, or if their rows of a tensor
 *         overlap (replicas may have the same rows) or do not cover the tensor; the message
 *         contains the fqn. FSDP_ERR_IO if the disk is full, before or while writing. Also the
 *         errors of a tensor's read(). */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_save_manifest(fsdp_status mine, const fsdp_group_place *place,
                                                   fsdp_group *group,
                                                   const fsdp_dcp_manifest *manifest);

/* A save in steps, for callers that want only the first of the meetings of fsdp_dcp_save_manifest()
 * (Note [Ranks meet three times]). After a job is created, each rank can write its file at any time
 * and in any thread, without communication. The caller sends the positions of all entries to rank
 * 0, and rank 0 completes the job. */
typedef struct fsdp_dcp_job fsdp_dcp_job;
/* Create a job. Collective; if one rank fails, all fail. The job borrows the manifest and
 * place->arg until it is destroyed. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_create(fsdp_status mine, const fsdp_group_place *place,
                                                fsdp_group *group,
                                                const fsdp_dcp_manifest *manifest,
                                                fsdp_dcp_job **job);
/* Destroy the job. If a directory that the job made does not have its final name yet, the leader of
 * its disk removes this directory. If all ranks see the same directory, the leader is rank 0. A
 * leader must call this function only when no other rank writes into the directory. Accepts
 * NULL. */
void fsdp_dcp_job_destroy(fsdp_dcp_job *job);
/* Return the path of the directory before it gets its final name. Files are written to this
 * path. */
const char *fsdp_dcp_job_dir(const fsdp_dcp_job *job);
/* Return true if this rank writes entry `i`. */
bool fsdp_dcp_job_writes(const fsdp_dcp_job *job, size_t i);
/* Write this rank's file, and the file of its checksums. This needs no communication. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_write_file(fsdp_dcp_job *job);
/* With these two functions, the caller sends the positions of all entries to rank 0, as bytes. On
 * every rank, own_positions() returns the positions of this rank's entries, and sets *bytes to
 * their size, which is the same on all ranks. On rank 0, positions() returns memory for the
 * positions of `rank`, and the caller copies the bytes that it has received from `rank` into this
 * memory. @{ */
const void *fsdp_dcp_job_own_positions(const fsdp_dcp_job *job, size_t *bytes);
void *fsdp_dcp_job_positions(fsdp_dcp_job *job, int rank);
/* @} */
/* Return true if hosts have disks of their own (Note [Hosts' own disks] in disks.h). In that case,
 * complete the job with fsdp_dcp_job_complete_on_all(). */
bool fsdp_dcp_job_is_on_disks(const fsdp_dcp_job *job);
/* Complete the checkpoint: write .metadata, call fsdp_group_place.write(), which may write further
 * files, and give the directory its final name. Rank 0 calls this when all ranks have written their
 * files, and rank 0 has the positions of all ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_complete(fsdp_dcp_job *job);
/* Like fsdp_dcp_job_complete(), but all ranks call this function, when all ranks have written their
 * files. This function also sends the positions to rank 0. Collective; if one rank fails, all fail.
 */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_complete_on_all(fsdp_dcp_job *job);
/* Abandon the job. If a directory that the job made does not have its final name yet, the leader of
 * its disk removes this directory. The job must still be destroyed. */
void fsdp_dcp_job_discard(fsdp_dcp_job *job);
