/* The ABI of Open MPI 2 to 5 (libmpi.so.40): a handle is the address of an object, and the
 * predefined handles are objects that the library exports. See Note [MPI at run time] in abi.h. */
#include "src/comm/mpi/abi.h"

typedef void *abi_comm, *abi_datatype, *abi_request, *abi_info, *abi_errhandler;

/* ompi_status_public_t */
typedef struct abi_status {
    int source, tag, error, cancelled;
    size_t count;
} abi_status;

enum {
    ABI_COMM_TYPE_SHARED = 0,
    ABI_ANY_SOURCE = -1
};

static struct {
    void *world, *bytes, *info_null, *errors_return;
} objects;

static abi_comm world_of(void)
{
    return objects.world;
}
static abi_datatype bytes_of(void)
{
    return objects.bytes;
}
static abi_info info_of(void)
{
    return objects.info_null;
}
static abi_errhandler errors_return_of(void)
{
    return objects.errors_return;
}
static abi_comm comm_of(fsdp_mpi_handle handle)
{
    return (void *)handle;
}
static fsdp_mpi_handle handle_of_comm(abi_comm comm)
{
    return (fsdp_mpi_handle)comm;
}
static abi_request request_of(fsdp_mpi_handle handle)
{
    return (void *)handle;
}
static fsdp_mpi_handle handle_of_request(abi_request request)
{
    return (fsdp_mpi_handle)request;
}

#include "src/comm/mpi/abi_calls.inc"

/* If a program that embeds libfsdp is linked with Open MPI, the linker may have copied these
 * objects into the program, and Open MPI then uses the copies. So look for the objects as Open MPI
 * does: in the program first. */
static const char *resolve(void *library)
{
    const struct {
        const char *name;
        void **object;
    } wanted[] = {{"ompi_mpi_comm_world", &objects.world},
                  {"ompi_mpi_byte", &objects.bytes},
                  {"ompi_mpi_info_null", &objects.info_null},
                  {"ompi_mpi_errors_return", &objects.errors_return}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].object = dlsym(RTLD_DEFAULT, wanted[i].name);
        if (!*wanted[i].object)
            *wanted[i].object = dlsym(library, wanted[i].name);
        if (!*wanted[i].object)
            return wanted[i].name;
    }
    return find_functions(library);
}

/* Over TCP, Open MPI sends a long message by a protocol ("put") that waits for the other end after
 * each part. While both ends send at the same time, as ranks do in backward, this leaves half of
 * the bandwidth unused: 3 MB then took 190 ms instead of 26 ms at 1 Gbit/s (Open MPI 4.1.4). So set
 * all flags of Open MPI's default except put: send, send in place, acknowledge, checksum,
 * heterogeneous. */
static const char *const settings[] = {"OMPI_MCA_btl_tcp_flags", "313", NULL};

static const char *const files[] = {"libmpi.so.40", NULL};

const fsdp_mpi_abi fsdp_mpi_abi_openmpi = {.name = "Open MPI",
                                           .key = "openmpi",
                                           .package = "libopenmpi3 (Debian), openmpi (others)",
                                           .files = files,
                                           .settings = settings,
                                           .resolve = resolve,
                                           FSDP_MPI_CALLS};
