/* Memory of a device that several ranks use at the same addresses of the card: the data of shared
 * buffers (src/comm/comm.h) on a device whose memory is not host memory. One rank creates it, and
 * the others attach to it. The ranks are threads of a process or processes of a host. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

/* What a rank that attaches must know. It is copied from rank to rank as bytes. */
typedef struct fsdp_shared_memory_handle {
    int64_t process; /* pid of the process that created the memory */
    void *pointer;   /* the address in that process */
    char device[64]; /* identifies the card: its UUID */
    bool has_ipc;
    unsigned char ipc[64]; /* for other processes: cudaIpcMemHandle_t; valid if has_ipc */
} fsdp_shared_memory_handle;

typedef struct fsdp_shared_memory_ops {
    /* Create `bytes` bytes filled with zeros, and fill in the handle. */
    fsdp_status (*create)(int device, size_t bytes, void **data, fsdp_shared_memory_handle *handle);
    /* Fails with FSDP_ERR_UNSUPPORTED if the memory is on another card than `device`. */
    fsdp_status (*attach)(int device, const fsdp_shared_memory_handle *handle, void **data);
    /* Called by each rank that attached, after its last kernel that uses the memory has run. */
    void (*detach)(const fsdp_shared_memory_handle *handle, void *data);
    /* Called by the rank that created the memory, after all others have detached. */
    void (*destroy)(void *data);
} fsdp_shared_memory_ops;
