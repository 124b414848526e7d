/* NCCL, which is loaded at run time, so that programs start on machines that do not have it. This
 * file needs no header of NCCL: the declarations are those of NCCL 2.14 and newer, and the emulator
 * of the tests compares them with the header. */
#pragma once
#include <cuda_runtime_api.h>

#include <fsdp/base.h>

typedef struct fsdp_nccl_comm fsdp_nccl_comm; /* what ncclComm_t points to */

typedef struct fsdp_nccl_id {
    char bytes[128];
} fsdp_nccl_id;

/* The first fields of ncclConfig_t. NCCL reads `size` and `version`, and so knows that the other
 * fields are missing. */
typedef struct fsdp_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} fsdp_nccl_config;

enum {
    FSDP_NCCL_SUCCESS = 0,
    FSDP_NCCL_IN_PROGRESS = 7,
    FSDP_NCCL_UINT8 = 1
};
#define FSDP_NCCL_MAGIC 0xcafebeefu
#define FSDP_NCCL_CONFIG_VERSION 21400u

/* The functions, with the names of NCCL without "nccl": X(result, name, parameters). */
#define FSDP_NCCL_FUNCTIONS(X)                                                                     \
    X(int, GetUniqueId, (fsdp_nccl_id * id))                                                       \
    X(int, CommInitRankConfig,                                                                     \
      (fsdp_nccl_comm * *comm, int ranks, fsdp_nccl_id id, int rank, fsdp_nccl_config *config))    \
    X(int, CommDestroy, (fsdp_nccl_comm * comm))                                                   \
    X(int, CommAbort, (fsdp_nccl_comm * comm))                                                     \
    X(int, CommGetAsyncError, (fsdp_nccl_comm * comm, int *result))                                \
    X(int, GroupStart, (void))                                                                     \
    X(int, GroupEnd, (void))                                                                       \
    X(int, Send,                                                                                   \
      (const void *from, size_t n, int type, int peer, fsdp_nccl_comm *comm, cudaStream_t s))      \
    X(int, Recv, (void *to, size_t n, int type, int peer, fsdp_nccl_comm *comm, cudaStream_t s))   \
    X(const char *, GetErrorString, (int result))

typedef struct fsdp_nccl {
#define FSDP_NCCL_MEMBER(result, name, parameters) result(*name) parameters;
    FSDP_NCCL_FUNCTIONS(FSDP_NCCL_MEMBER)
#undef FSDP_NCCL_MEMBER
} fsdp_nccl;

/* Return the functions of NCCL. If the library or a function is not found, return NULL and write a
 * message to `reason` [bytes]. */
const fsdp_nccl *fsdp_nccl_load(char *reason, size_t bytes);
