/* The functions of an MPI library that this program calls, declared with types of this program.
 *
 * Note [MPI at run time]. One binary runs with Open MPI, with MPICH and without MPI. The library is
 * loaded when a launcher of MPI has started the process (library.h). A program that is compiled
 * against the header of one MPI cannot call the other: in Open MPI, a handle is the address of an
 * object of the library; in MPICH, it is an integer. So abi_openmpi.c and abi_mpich.c each declare
 * the few types, constants and functions that are needed, as the ABI of their library has them:
 * libmpi.so.40 of Open MPI 2 to 5, and libmpi.so.12 of the MPICH ABI compatibility initiative
 * (MPICH, Intel MPI, MVAPICH, Cray MPICH). No header is needed to build this.
 * tests/cli/test_mpi_abi.sh compares the declarations with the headers that are installed.
 *
 * All functions return MPI's error code, and 0 is success. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A handle of the library: an address or an integer. */
typedef uintptr_t fsdp_mpi_handle;

enum {
    FSDP_MPI_ANY_SOURCE = -1,
    FSDP_MPI_ERROR_TEXT = 512
};

/* MPI_THREAD_SERIALIZED and MPI_THREAD_MULTIPLE, which have the same values in both libraries. */
enum {
    FSDP_MPI_SERIALIZED = 2,
    FSDP_MPI_MULTIPLE = 3
};

typedef struct fsdp_mpi_abi {
    const char *name; /* "Open MPI" */
    const char *key;  /* "openmpi", as in FSDP_MPI */
    const char *package;
    const char *const *files; /* names for dlopen(), ends with NULL */
    /* Environment variables that the MPI library reads in init_thread(): a name, its value, the
     * next name, and so on; ends with NULL. Each variable is set before the call, unless the user
     * has set it. NULL: none. */
    const char *const *settings;
    /* Find the functions in `library`, a handle of dlopen(). Return the name of the first function
     * that is missing, or NULL if all are found. Call this before any other function of this table.
     */
    const char *(*resolve)(void *library);
    int (*initialized)(bool *yes);
    int (*finalized)(bool *yes);
    int (*init_thread)(int wanted, int *level);
    int (*query_thread)(int *level);
    int (*finalize)(void);
    /* Set *comm to the communicator of all processes that MPI has started. */
    int (*world)(fsdp_mpi_handle *comm);
    int (*comm_rank)(fsdp_mpi_handle comm, int *rank);
    int (*comm_size)(fsdp_mpi_handle comm, int *size);
    /* Split `comm` into one communicator for each host, which keeps the order of the ranks. */
    int (*split_hosts)(fsdp_mpi_handle comm, fsdp_mpi_handle *host);
    /* Create a communicator of the same processes, ordered by `key`. */
    int (*reorder)(fsdp_mpi_handle comm, int key, fsdp_mpi_handle *ordered);
    int (*comm_free)(fsdp_mpi_handle *comm);
    int (*iallgather)(fsdp_mpi_handle comm, const void *send, void *recv, int bytes,
                      fsdp_mpi_handle *request);
    int (*isend)(fsdp_mpi_handle comm, const void *data, int bytes, int to, int tag,
                 fsdp_mpi_handle *request);
    int (*irecv)(fsdp_mpi_handle comm, void *data, int bytes, int from, int tag,
                 fsdp_mpi_handle *request);
    /* Set *done to true if the request has completed. For a receive, *bytes is then the size of the
     * message. `bytes` must be NULL for other requests. */
    int (*test)(fsdp_mpi_handle *request, bool *done, int *bytes);
    int (*cancel)(fsdp_mpi_handle *request);
    void (*error_text)(int code, char text[FSDP_MPI_ERROR_TEXT]);
} fsdp_mpi_abi;

extern const fsdp_mpi_abi fsdp_mpi_abi_openmpi, fsdp_mpi_abi_mpich;
