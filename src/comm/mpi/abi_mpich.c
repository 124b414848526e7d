/* The ABI of MPICH 3.1 and later, Intel MPI, MVAPICH and Cray MPICH (libmpi.so.12): a handle is an
 * integer, and the predefined handles are constants. See Note [MPI at run time] in abi.h. */
#include "src/comm/mpi/abi.h"

typedef int abi_comm, abi_datatype, abi_request, abi_info, abi_errhandler;

/* MPI_Status */
typedef struct abi_status {
    int count_lo, count_hi_and_cancelled, source, tag, error;
} abi_status;

enum {
    ABI_COMM_TYPE_SHARED = 1,
    ABI_ANY_SOURCE = -2
};

static abi_comm world_of(void)
{
    return 0x44000000;
}
static abi_datatype bytes_of(void)
{
    return 0x4c00010d;
}
static abi_info info_of(void)
{
    return 0x1c000000;
}
static abi_errhandler errors_return_of(void)
{
    return 0x54000001;
}
/* The upper bit of an MPICH handle may be set. So convert by way of unsigned numbers. */
static abi_comm comm_of(fsdp_mpi_handle handle)
{
    return (int)(unsigned)handle;
}
static fsdp_mpi_handle handle_of_comm(abi_comm comm)
{
    return (unsigned)comm;
}
static abi_request request_of(fsdp_mpi_handle handle)
{
    return (int)(unsigned)handle;
}
static fsdp_mpi_handle handle_of_request(abi_request request)
{
    return (unsigned)request;
}

#include "src/comm/mpi/abi_calls.inc"

static const char *resolve(void *library)
{
    return find_functions(library);
}

/* Debian's package has the second name only. */
static const char *const files[] = {"libmpi.so.12", "libmpich.so.12", NULL};

const fsdp_mpi_abi fsdp_mpi_abi_mpich = {.name = "MPICH",
                                         .key = "mpich",
                                         .package = "libmpich12 (Debian), mpich (others)",
                                         .files = files,
                                         .resolve = resolve,
                                         FSDP_MPI_CALLS};
