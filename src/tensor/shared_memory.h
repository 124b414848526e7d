/* Memory of a device that several ranks use: the data of shared buffers (src/comm/comm.h) on a
 * device whose memory is not host memory. One rank creates the memory, and the others attach to it.
 * The ranks are threads of one process or processes of one host. Ranks on other cards attach only
 * to copy bytes to the memory: Note [Several cards] in src/comm/cards/exchange.h. */
#pragma once
#include <stdint.h>

#include <fsdp/tensor.h>

/* The data that a rank needs to attach to the memory. It is copied from rank to rank as bytes. */
typedef struct fsdp_shared_memory_handle {
    int64_t process; /* pid of the process that created the memory */
    void *pointer;   /* the address of the memory in that process */
    char device[64]; /* identifies the card: its UUID */
    bool has_ipc;
    unsigned char ipc[64]; /* a cudaIpcMemHandle_t for other processes; valid if has_ipc */
} fsdp_shared_memory_handle;

/* Bytes that this rank sends to another rank of a fsdp_card_link, or receives from it. */
typedef struct fsdp_card_piece {
    int rank;
    bool is_sent; /* false: received */
    void *data;
    size_t bytes;
} fsdp_card_piece;

enum {
    FSDP_CARD_ID_BYTES = 128
};

typedef struct fsdp_card_link fsdp_card_link;

/* A library that moves bytes between the cards of several ranks: NCCL. A link connects the ranks of
 * one group. Pieces between two ranks arrive in the order in which they were sent. */
typedef struct fsdp_card_link_ops {
    /* Return true if the library can connect ranks. If it cannot, write the reason to `reason`
     * [bytes] and return false. `one_process`: all ranks are threads of this process. */
    bool (*is_available)(bool one_process, char *reason, size_t bytes);
    /* Make an identity for a new link. One rank calls this, and all ranks of the link use it. */
    fsdp_status (*make_id)(char id[FSDP_CARD_ID_BYTES]);
    /* Begin to connect this rank, whose card is `device`. */
    fsdp_status (*open)(int device, const char id[FSDP_CARD_ID_BYTES], int rank, int ranks,
                        fsdp_card_link **link);
    /* Set *done to true if the host has set up the connection or the exchange, whichever this rank
     * began last. The kernels of an exchange may still run. Any thread may call this. */
    fsdp_status (*poll)(fsdp_card_link *link, bool *done);
    /* Begin to send and to receive pieces [n], in order with the kernels of `device`. When poll()
     * has returned true, the exchange is in the stream, and the caller calls mark(). */
    fsdp_status (*exchange)(fsdp_card_link *link, const fsdp_device *device,
                            const fsdp_card_piece *pieces, size_t n);
    /* Mark the end of the exchange in the stream of `device`, for is_idle(). */
    void (*mark)(fsdp_card_link *link, const fsdp_device *device);
    /* Return true if the kernels of all marked exchanges have run. Any thread may call this. */
    bool (*is_idle)(fsdp_card_link *link);
    /* End all exchanges, also those that wait for other ranks. Bytes that they would have received
     * are undefined. Free the link. Any thread may call this, but only once. */
    void (*abort)(fsdp_card_link *link);
    /* Free the link. All its exchanges must have ended. */
    void (*close)(fsdp_card_link *link);
} fsdp_card_link_ops;

typedef struct fsdp_shared_memory_ops {
    /* Set `identity` to bytes that differ for any two cards of this host. They are the same in all
     * processes, although the card's number may differ. */
    fsdp_status (*identify)(int device, char identity[64]);
    /* Return true if a card of this process can write directly to the memory of the card that
     * `identity` describes. */
    bool (*reaches)(int device, const char identity[64]);
    /* Create `bytes` bytes of memory that are filled with zeros. Set *data to the address of the
     * memory, and fill in *handle. */
    fsdp_status (*create)(int device, size_t bytes, void **data, fsdp_shared_memory_handle *handle);
    /* Set *data to the address of the memory in this process. Return FSDP_ERR_UNSUPPORTED if the
     * memory is on a card other than `device`. */
    fsdp_status (*attach)(int device, const fsdp_shared_memory_handle *handle, void **data);
    /* Set *data to an address through which this process can copy bytes from `device` to the
     * memory, which is on another card. */
    fsdp_status (*attach_other)(int device, const fsdp_shared_memory_handle *handle, void **data);
    /* Copy bytes from the memory of `device` to `dst`, which is in memory of another card, in order
     * with the kernels of `device`. If the copy fails, the next wait for kernels returns the error.
     */
    void (*copy_to_other)(const fsdp_device *device, void *dst, const void *src, size_t bytes);
    /* Each rank that attached calls this, after its last kernel that uses the memory has run. */
    void (*detach)(const fsdp_shared_memory_handle *handle, void *data);
    /* The rank that created the memory calls this, after all other ranks have detached. */
    void (*destroy)(void *data);
    const fsdp_card_link_ops *links;
} fsdp_shared_memory_ops;
