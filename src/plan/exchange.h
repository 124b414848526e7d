/* Computes what a collective of a unit sends between hosts.
 *
 * Note [Exchange between hosts]. The ranks of a host share memory, so inside a host nothing is
 * sent. Between hosts, the ranks with equal local rank exchange rows. Each of them reads
 * from and writes to the buffer that the ranks of its own host share, so a byte crosses the network
 * once for each host, not once for each rank. If a unit of P bytes is divided among H hosts:
 *
 * - An all-gather sends the rows of this host, P / H bytes, to each of the other H - 1 hosts.
 * - In a reduce-scatter, a host sends the sums of its ranks for all rows that other hosts own,
 *   usually P (H - 1) / H bytes. The exact number of bytes comes from the event FSDP_UNIT_POST
 *   (src/fsdp/observer.h). See Note [Sums of a host] in src/fsdp/grad_terms.h, and Note [Lanes of
 *   replicas] in src/fsdp/grad_lanes.h for sums over replicas.
 *
 * A message contains rows of one rank, at most FSDP_MESSAGE_BYTES, and goes to one other rank. All
 * ranks of a host send at the same time. So the latency of a collective is the latency of a message
 * times the number of messages of one rank. */
#pragma once
#include "src/plan/host_link.h"
#include "src/plan/plan.h"

enum {
    FSDP_MESSAGE_BYTES = 4 << 20
};

/* The network between hosts. */
typedef struct fsdp_interconnect {
    double bytes_per_s; /* the rate of a host in each direction; above 0 */
    double latency_s;   /* the latency of a message; 0 or more */
} fsdp_interconnect;

/* Return what the host of rank 0 sends in an all-gather over `ranks` ranks. Each host has `local`
 * of these ranks. `bytes` is the size of the whole unit. */
fsdp_transfer fsdp_exchange_gather(const fsdp_interconnect *net, double bytes, int ranks,
                                   int local);
/* Return what a host sends in an exchange between `hosts` hosts. Each of its `local` ranks sends
 * `rank_bytes` bytes in all, and each other host gets an equal part of them. */
fsdp_transfer fsdp_exchange_sent(const fsdp_interconnect *net, double rank_bytes, int hosts,
                                 int local);
/* Return the number of hosts of `ranks` ranks, `local` of them on each host. */
int fsdp_exchange_hosts(int ranks, int local);
