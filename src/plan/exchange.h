/* What a collective of a unit sends between hosts.
 *
 * Note [Exchange between hosts]. The ranks of a host share memory, so inside a host nothing is
 * sent. Between hosts, the ranks with equal local rank exchange rows. They read from and write to
 * the buffers that their hosts share, so a byte crosses the network once for each host, not once
 * for each rank. With H hosts that share a unit of P bytes:
 *
 * - An all-gather sends the rows of this host, P / H bytes, to each of the other H - 1 hosts.
 * - A reduce-scatter first sums the gradients of the host's ranks. The host then sends each of the
 *   other hosts the sums of the rows that this host owns, P / H bytes, and adds what it receives in
 *   the order of the hosts. This is an all-to-all and a local sum.
 * - An all-reduce between replicas is a reduce-scatter and an all-gather: each replica sums a part
 *   of the rows, and sends this part to the others.
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

/* Return what the host of rank 0 sends in an all-gather of `bytes` bytes, the size of the whole
 * unit, over `ranks` ranks, `local` of them on each host. */
fsdp_transfer fsdp_exchange_gather(const fsdp_interconnect *net, double bytes, int ranks,
                                   int local);
/* Return what the host of rank 0 sends in a reduce-scatter of `bytes` bytes, the size of the whole
 * unit. */
fsdp_transfer fsdp_exchange_reduce(const fsdp_interconnect *net, double bytes, int ranks,
                                   int local);
/* Return what the host of rank 0 sends in an all-reduce of rank 0's `bytes` bytes over `ranks`
 * replicas, `local` of them on each host. `rank_count` is the number of all ranks of the host,
 * which have their all-reduces at the same time. */
fsdp_transfer fsdp_exchange_all_reduce(const fsdp_interconnect *net, double bytes, int ranks,
                                       int local, int rank_count);
/* Return the number of hosts of `ranks` ranks, `local` of them on each host. */
int fsdp_exchange_hosts(int ranks, int local);
