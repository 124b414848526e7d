/* How bytes get from card to card.
 *
 * Note [Several cards]. If the ranks of a group are on one card, the data of a shared buffer on the
 * device is one block of the card's memory, which all ranks use. If each rank has a card of its
 * own, each rank has its own block for the data, the mirror of the buffer on its card. The lanes of
 * the phase protocol, and all buffers in host memory, are still shared by all ranks of the host. So
 * phases, comparisons of what ranks do, failures and agreement work as on one card.
 *
 * In a WRITE phase, a rank writes its own mirror, and declares with fsdp_phase_wrote() which bytes
 * it has written and which ranks read them, as for ranks on several hosts. A card exchange brings
 * these bytes to the mirrors of their readers. When a rank is in a READ phase, the kernels that it
 * starts read these bytes in its own mirror. The order of sums does not depend on where the bytes
 * are, so the results have the same bits as on one card.
 *
 * A REWRITE phase of such a buffer begins when all ranks have ended the phase before it.
 *
 * Ranks are on different cards, or all of them are on one card. A group in which two ranks share a
 * card and another rank is on another card is refused. */
#pragma once
#include "src/comm/group.h"

/* A way to exchange bytes. The functions are called on each rank, for buffers with mirrors only. */
typedef struct fsdp_card_exchange {
    const char *name;
    /* Return how many bytes of shared host memory each buffer needs at most. Pages that are not
     * written take no memory. NULL: none. */
    size_t (*host_bytes)(const fsdp_group *group);
    /* Set up group->exchange_state before the group creates its first buffer with mirrors. A group
     * that creates none has no state. Collective. NULL: nothing to set up. */
    fsdp_status (*open)(fsdp_group *group, const fsdp_device *device);
    void (*close)(fsdp_group *group); /* NULL: nothing to free. Accepts a group without state. */
    /* Called when a buffer is created, after all ranks have created their mirrors: attach to those
     * mirrors of other ranks that this rank needs. `handles` [world_size] describe the mirrors.
     * NULL: nothing to attach to. */
    fsdp_status (*attach)(fsdp_group *group, fsdp_comm_device_memory *memory,
                          const fsdp_shared_memory_handle *handles);
    /* Called when this rank has started its last kernel of a WRITE phase. Either send the bytes
     * that this rank has declared, or only show the other ranks the list of these bytes. In the
     * second case, `receive` exchanges the bytes. */
    void (*send)(fsdp_shared_buffer *buffer);
    /* Called at the start of a READ phase, if the previous phase was a WRITE phase. Receive the
     * bytes that this rank reads, in the stream of its kernels. NULL: the bytes have arrived
     * already. */
    fsdp_status (*receive)(fsdp_shared_buffer *buffer);
    /* True if a rank must wait for its kernels before it ends a phase of the buffer. */
    bool ends_after_kernels;
} fsdp_card_exchange;

extern const fsdp_card_exchange fsdp_card_exchange_copy, fsdp_card_exchange_nccl;
