/* Replaces the transport in a build without MPI. */
#include "src/comm/mpi/transport_mpi.h"

fsdp_status fsdp_mpi_open(const fsdp_mpi_job *job, fsdp_group **group)
{
    (void)group;
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "environment: %s is set, so %s of an MPI has started this process, but this "
        "build of fsdp is without MPI (WITHOUT=MPI): start the ranks of one host with "
        "`fsdp launch`, or build it with MPI, which needs no package",
        job->variable, job->launcher);
}
