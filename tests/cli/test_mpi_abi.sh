#!/bin/sh
# The declarations of src/comm/mpi/abi_*.c against the headers of the MPIs that are installed: constants, and the
# layout of MPI_Status.
# usage: FSDP_BUILD=build tests/cli/test_mpi_abi.sh
. "$(dirname "$0")/lib.sh"
cat >common.c <<'END'
#include <assert.h>
#include <stdio.h>
static_assert(ABI_ANY_SOURCE == MPI_ANY_SOURCE, "MPI_ANY_SOURCE");
static_assert((int)ABI_COMM_TYPE_SHARED == (int)MPI_COMM_TYPE_SHARED, "MPI_COMM_TYPE_SHARED");
static_assert((int)FSDP_MPI_SERIALIZED == (int)MPI_THREAD_SERIALIZED, "MPI_THREAD_SERIALIZED");
static_assert((int)FSDP_MPI_MULTIPLE == (int)MPI_THREAD_MULTIPLE, "MPI_THREAD_MULTIPLE");
static_assert(FSDP_MPI_ERROR_TEXT >= MPI_MAX_ERROR_STRING, "MPI_MAX_ERROR_STRING");
static_assert(sizeof(abi_status) == sizeof(MPI_Status), "size of MPI_Status");
static_assert(offsetof(abi_status, source) == offsetof(MPI_Status, MPI_SOURCE), "MPI_SOURCE");
static_assert(offsetof(abi_status, tag) == offsetof(MPI_Status, MPI_TAG), "MPI_TAG");
static_assert(offsetof(abi_status, error) == offsetof(MPI_Status, MPI_ERROR), "MPI_ERROR");
static_assert(sizeof(abi_comm) == sizeof(MPI_Comm) && sizeof(abi_request) == sizeof(MPI_Request), "handles");
static_assert(sizeof(abi_datatype) == sizeof(MPI_Datatype) && sizeof(abi_info) == sizeof(MPI_Info), "handles");
int main(void)
{
    void *library = NULL;
    for (int i = 0; !library && ABI.files[i]; i++)
        library = dlopen(ABI.files[i], RTLD_NOW | RTLD_GLOBAL);
    const char *missing = library ? ABI.resolve(library) : "library";
    if (missing)
        printf("no %s\n", missing);
    return missing || world_of() != (abi_comm)MPI_COMM_WORLD || bytes_of() != (abi_datatype)MPI_BYTE ||
           info_of() != (abi_info)MPI_INFO_NULL || errors_return_of() != (abi_errhandler)MPI_ERRORS_RETURN;
}
END
for mpi in openmpi mpich; do
    command -v mpicc.$mpi >/dev/null || { skip "abi_of_$mpi" "mpicc.$mpi is not installed"; continue; }
    printf '#include <mpi.h>\n#include "src/comm/mpi/abi_%s.c"\n#define ABI fsdp_mpi_abi_%s\n#include "common.c"\n' $mpi $mpi >$mpi.c
    capture mpicc.$mpi -std=gnu17 -D_GNU_SOURCE -Wno-unused -I "$root" -I . $mpi.c -o $mpi -rdynamic -ldl
    expect "declarations_agree_with_the_header_of_$mpi" 0
    capture ./$mpi
    expect "handles_of_${mpi}_are_those_of_the_library" 0
done
tally
