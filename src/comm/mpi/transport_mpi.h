/* Joins a job whose ranks MPI has started. */
#pragma once
#include "src/comm/group.h"
#include "src/comm/mpi/library.h"

/* Create the group of all ranks of the job. Its transport is "local" for one rank, "shm" if all
 * ranks are on one host, and "mpi" otherwise. Collective over the processes of the job.
 * @return FSDP_ERR_UNSUPPORTED if this build is without MPI; the errors of fsdp_mpi_load(),
 * fsdp_mpi_world_join() and fsdp_mpi_world_connect() */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_open(const fsdp_mpi_job *job, fsdp_group **group);
