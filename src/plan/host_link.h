/* Simulates the network link of one host: the transfers of a step, how long they take, and when
 * each of them has ended. No real time passes.
 *
 * All hosts are equal and run the same program, so what one host sends at any moment is what it
 * receives. The link is full duplex, and the switch is not modeled. So a transfer is described by
 * two numbers: its latency, in which nothing is sent, and the bytes that the host then sends.
 *
 * Transfers of one kind are sent one after the other. Gathers and reduces are sent at the same
 * time, as in FSDP2's streams. But a host has one link, so while both are sending, each has half of
 * the bandwidth. This differs from src/comm/network_testing.h, where each kind has the whole
 * bandwidth. */
#pragma once
#include <fsdp/base.h>

typedef enum fsdp_link_kind {
    FSDP_LINK_GATHER,
    FSDP_LINK_REDUCE,
    FSDP_LINK_KINDS
} fsdp_link_kind;

typedef struct fsdp_transfer {
    double latency_s, bytes;
} fsdp_transfer;

/* The transfers of one kind, in the order in which they were started. */
typedef struct fsdp_link_queue {
    fsdp_transfer *transfers; /* the remaining latency and the remaining bytes of each transfer */
    size_t n, cap, ended;     /* the first `ended` transfers have ended */
} fsdp_link_queue;

typedef struct fsdp_host_link {
    double bytes_per_s; /* in each direction */
    double now_s;       /* simulated time */
    double sent_bytes;  /* bytes of all transfers that were started */
    fsdp_link_queue queues[FSDP_LINK_KINDS];
} fsdp_host_link;

/* Start a transfer at the present time. *index is set to its number in the queue of its kind. */
FSDP_MUST_CHECK fsdp_status fsdp_host_link_start(fsdp_host_link *link, fsdp_link_kind kind,
                                                 fsdp_transfer transfer, size_t *index);
/* Let `seconds` pass. */
void fsdp_host_link_pass(fsdp_host_link *link, double seconds);
/* Let time pass until transfer `index` of a kind has ended. Return how long this took, in seconds;
 * 0 if it has ended already. */
double fsdp_host_link_wait(fsdp_host_link *link, fsdp_link_kind kind, size_t index);
void fsdp_host_link_fini(fsdp_host_link *link);
