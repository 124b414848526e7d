/* Writing checkpoints of torch.distributed.checkpoint: each rank its own rows, into a file of its
 * own, as unmodified torch.distributed.checkpoint.load and dcp_to_torch_save read them. */
#pragma once
#include "src/dcp/dcp_plan.h"
#include "src/dcp/group_directory.h"

/* Write `plan` as a checkpoint. Collective, and a failure of one rank is one of all. Nothing is
 * held but a few MiB, and a few 100 bytes for each entry and rank.
 *
 * Note [Ranks meet three times]. Who writes what every rank computes by itself, from the placements
 * of the tensors (fsdp_dcp_tensor.part_of). The ranks meet (one small all_gather each) so that all
 * go on, or all fail with the one message of whoever failed first:
 *
 *  1. before a byte is written: each has a plan, of the same checksum; rank 0 has made the
 *     directory, says where, and has found room for all of it;
 *  2. when each has written its file, and says where in it things lie;
 *  3. when rank 0 has written .metadata and the directory has its name.
 *
 * Without the first, ranks would write beside what is refused, and could not tell free space from
 * what another one is about to fill; without the second, rank 0 would wait for files of a rank
 * that failed and has no room left to say so; without the third, others would return before there
 * is a checkpoint, or though there is none. Beside training (Note [Asynchronous saves]) the call
 * has the first alone.
 *
 * Ranks that do not know each other's parts, or whose plans differ, exchange them after the first:
 * a fourth meeting, and a fifth about room.
 *
 * @param mine  what this rank's preparations returned; `plan` is not looked at if they failed
 * @param group NULL: this rank alone
 * @return FSDP_ERR_INVALID if the ranks plan different entries, or if their rows of a tensor
 *         overlap (but for replicas, which have the same rows) or do not cover it, naming the fqn;
 *         FSDP_ERR_IO if the disk is full, before or while writing; what read() of a tensor returns
 */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_save_plan(fsdp_status mine, const fsdp_group_place *place,
                                               fsdp_group *group, const fsdp_dcp_plan *plan);

/* The same in steps: once a job is made, its files can be written at any time and in any thread,
 * and nothing more is said. Whoever makes it brings the positions of all ranks' entries to rank 0,
 * which completes it. */
typedef struct fsdp_dcp_job fsdp_dcp_job;
/* Collective, and a failure of one rank is one of all. Plan and place->arg are borrowed. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_create(fsdp_status mine, const fsdp_group_place *place,
                                                fsdp_group *group, const fsdp_dcp_plan *plan,
                                                fsdp_dcp_job **job);
/* Removes what has not appeared; on rank 0 the last to end. Accepts NULL. */
void fsdp_dcp_job_destroy(fsdp_dcp_job *job);
/* Where files are written meanwhile. */
const char *fsdp_dcp_job_dir(const fsdp_dcp_job *job);
/* Is entry i in this rank's file? */
bool fsdp_dcp_job_writes(const fsdp_dcp_job *job, size_t i);
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_write_file(fsdp_dcp_job *job);
/* Where this rank's entries lie in it, plain data of [*bytes], which is the same on all ranks; and
 * on rank 0 where those of a rank are put. @{ */
const void *fsdp_dcp_job_own_positions(const fsdp_dcp_job *job, size_t *bytes);
void *fsdp_dcp_job_positions(fsdp_dcp_job *job, int rank);
/* @} */
/* Rank 0, once all files are written: .metadata, further files, and the directory's name. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_job_complete(fsdp_dcp_job *job);
/* Nothing is to appear any more: what there is goes. */
void fsdp_dcp_job_discard(fsdp_dcp_job *job);
