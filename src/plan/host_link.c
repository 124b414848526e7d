/* See host_link.h. */
#include "src/plan/host_link.h"

#include <math.h>

#include "src/base/alloc.h"

fsdp_status fsdp_host_link_start(fsdp_host_link *link, fsdp_link_kind kind, fsdp_transfer transfer,
                                 size_t *index)
{
    fsdp_link_queue *q = &link->queues[kind];
    if (!FSDP_GROW(q->transfers, q->cap, q->n + 1))
        return fsdp_error_nomem();
    link->sent_bytes += transfer.bytes;
    *index = q->n;
    q->transfers[q->n++] = transfer;
    return FSDP_OK;
}

/* Return the transfer that is in progress, or NULL. */
static fsdp_transfer *head(fsdp_link_queue *q)
{
    return q->ended < q->n ? &q->transfers[q->ended] : NULL;
}

/* Return the rate of each transfer that is sending at the present time. */
static double rate(fsdp_host_link *link)
{
    int sending = 0;
    for (int k = 0; k < FSDP_LINK_KINDS; k++) {
        const fsdp_transfer *t = head(&link->queues[k]);
        sending += t && t->latency_s <= 0.0;
    }
    return link->bytes_per_s / (sending ? sending : 1);
}

/* Return the time until the latency of the transfer is over. If it is over already, return the time
 * until all bytes of the transfer are sent. */
static double time_left(const fsdp_transfer *t, double bytes_per_s)
{
    if (!t)
        return (double)INFINITY;
    return t->latency_s > 0.0 ? t->latency_s : t->bytes / bytes_per_s;
}

/* Let time pass until the latency of a transfer is over or a transfer has ended, but at most `most`
 * seconds. Return the time that has passed. */
static double pass_until_change(fsdp_host_link *link, double most)
{
    const double bytes_per_s = rate(link);
    double left[FSDP_LINK_KINDS], passed = most;
    for (int k = 0; k < FSDP_LINK_KINDS; k++) {
        left[k] = time_left(head(&link->queues[k]), bytes_per_s);
        passed = fmin(passed, left[k]);
    }
    for (int k = 0; k < FSDP_LINK_KINDS; k++) {
        fsdp_transfer *t = head(&link->queues[k]);
        if (!t)
            continue;
        double *rest = t->latency_s > 0.0 ? &t->latency_s : &t->bytes;
        const double used = rest == &t->bytes ? passed * bytes_per_s : passed;
        *rest = left[k] <= passed ? 0.0 : fmax(*rest - used, 0.0);
        link->queues[k].ended += t->latency_s <= 0.0 && t->bytes <= 0.0;
    }
    link->now_s += passed;
    return passed;
}

void fsdp_host_link_pass(fsdp_host_link *link, double seconds)
{
    while (seconds > 0.0)
        seconds -= pass_until_change(link, seconds);
}

double fsdp_host_link_wait(fsdp_host_link *link, fsdp_link_kind kind, size_t index)
{
    double waited = 0.0;
    while (link->queues[kind].ended <= index)
        waited += pass_until_change(link, (double)INFINITY);
    return waited;
}

void fsdp_host_link_fini(fsdp_host_link *link)
{
    for (int k = 0; k < FSDP_LINK_KINDS; k++)
        fsdp_free(link->queues[k].transfers);
}
