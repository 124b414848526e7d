/* See exchange.h. */
#include "src/plan/exchange.h"

#include <math.h>

int fsdp_exchange_hosts(int ranks, int local)
{
    return (ranks + local - 1) / local;
}

/* Return the latency of one exchange in which each rank sends `bytes` bytes to each of `peers`
 * other hosts. */
static double latency_s(const fsdp_interconnect *net, int peers, double bytes)
{
    return net->latency_s * peers * fmax(ceil(bytes / FSDP_MESSAGE_BYTES), 1.0);
}

/* Return what a host sends in an all-gather or a reduce-scatter of `bytes` bytes over `hosts`
 * hosts. In an all-gather it sends its part to every other host. In a reduce-scatter it sends each
 * part to the host that owns it. Both send the same number of bytes. `senders` ranks of the host
 * send at the same time. */
static fsdp_transfer exchange_parts(const fsdp_interconnect *net, double bytes, int hosts,
                                    int senders)
{
    const double part = bytes / hosts;
    if (hosts < 2 || !(bytes > 0.0))
        return (fsdp_transfer){0};
    return (fsdp_transfer){.latency_s = latency_s(net, hosts - 1, part / senders),
                           .bytes = part * (hosts - 1)};
}

fsdp_transfer fsdp_exchange_gather(const fsdp_interconnect *net, double bytes, int ranks, int local)
{
    return exchange_parts(net, bytes, fsdp_exchange_hosts(ranks, local), local);
}

fsdp_transfer fsdp_exchange_sent(const fsdp_interconnect *net, double rank_bytes, int hosts,
                                 int local)
{
    if (hosts < 2 || !(rank_bytes > 0.0))
        return (fsdp_transfer){0};
    return (fsdp_transfer){.latency_s = latency_s(net, hosts - 1, rank_bytes / (hosts - 1)),
                           .bytes = rank_bytes * local};
}
