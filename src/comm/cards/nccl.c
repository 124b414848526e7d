/* The card exchange "nccl": ranks send and receive by NCCL, in the streams of their kernels.
 *
 * Note [Exchange in the stream]. When a rank ends a WRITE phase, it does not wait for its kernels.
 * It only writes to the shared host memory of the buffer which ranges it has written and who reads
 * them. When a rank begins the READ phase, all ranks have ended the WRITE phase, so all lists are
 * complete. The rank then starts an exchange: it sends its own ranges to their readers, and
 * receives what it reads of the ranges of the others. All of this is one kernel of NCCL in the
 * stream of the rank's kernels. So it runs after the kernels that wrote the ranges, and before the
 * kernels that read them.
 *
 * A mirror is only read and written by kernels in the stream of its own rank, including the
 * kernels of NCCL. So no rank has to wait for kernels when it ends a phase, and the host may be far
 * ahead of the card. But when a READ phase begins, the bytes have not arrived yet. A host that
 * looks at them must wait for its stream (fsdp_phase_arrives_late()).
 *
 * An exchange ends only after all ranks have started it. All ranks of a group run the same phases
 * of a buffer, and begin the READ phases of all buffers of the group in the same order, which is
 * the order of the program. If one of them fails, the kernels of the others would wait forever. So
 * a thread watches the group: if a failure is posted, or if an exchange does not end within the
 * timeout, it aborts the exchanges. The streams then go on, and the next phase returns the failure.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/comm/agree.h"
#include "src/comm/cards/exchange.h"
#include "src/comm/phase.h"
#include "src/tensor/device.h"

enum {
    MOST_RANGES = 1 << 14, /* in the list of one rank; pages that are not used do not exist */
    POLL_US = 20,
    WATCH_US = 50000
};

/* What a rank has written in the last WRITE phase of a buffer. */
typedef struct range_list {
    uint64_t n;
    fsdp_written_range ranges[MOST_RANGES];
} range_list;

/* The state of one rank in a group: group->exchange_state. */
typedef struct nccl_state {
    fsdp_group *group;
    const fsdp_card_link_ops *ops;
    pthread_mutex_t lock; /* protects the fields below, and all calls for the link except `open` */
    fsdp_card_link *link; /* NULL after an abort */
    uint64_t n_exchanges;
    bool stopping;
    pthread_t thread;
    bool has_thread;
    fsdp_card_piece *pieces; /* scratch of the rank's thread */
    size_t cap_pieces;
} nccl_state;

/* --- watching --- */

static void abort_link(nccl_state *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->link)
        s->ops->abort(s->link);
    s->link = NULL;
    pthread_mutex_unlock(&s->lock);
}

/* Return true if a failure is posted. If a peer's process is stopped, post this failure. */
static bool has_failed(nccl_state *s)
{
    fsdp_group *group = s->group;
    double silent_s;
    int stopped;
    if (fsdp_comm_control_aborted(group->control))
        return true;
    for (int r = 0; r < group->world_size; r++)
        if (r != group->rank &&
            fsdp_group_is_stopped(group, fsdp_group_world_rank(group, r), &stopped, &silent_s)) {
            (void)fsdp_group_accuse(group, stopped, silent_s);
            return true;
        }
    return false;
}

static fsdp_status post_timeout(const nccl_state *s)
{
    fsdp_group *group = s->group;
    return fsdp_group_fail(
        group,
        fsdp_error(FSDP_ERR_TIMEOUT,
                   "timeout: an exchange of rank %d with other cards (NCCL) did not end in "
                   "%.1f s: a rank has not begun it",
                   fsdp_group_world_rank(group, group->rank), (double)group->timeout_ns * 1e-9));
}

/* Post a failure if the link has an error, or if an exchange has not ended within the timeout.
 * *since is the time when the link was last idle or began an exchange, and *seen the number of
 * exchanges that had begun by then. */
static void look(nccl_state *s, uint64_t *seen, int64_t *since)
{
    bool done, is_idle = true;
    fsdp_status status = FSDP_OK;
    pthread_mutex_lock(&s->lock);
    if (s->link) {
        status = s->ops->poll(s->link, &done);
        is_idle = s->ops->is_idle(s->link);
    }
    if (is_idle || s->n_exchanges != *seen)
        *since = fsdp_clock_ns();
    *seen = s->n_exchanges;
    pthread_mutex_unlock(&s->lock);
    if (status != FSDP_OK)
        fsdp_group_abort(s->group, status);
    else if (fsdp_clock_ns() - *since > s->group->timeout_ns)
        status = post_timeout(s); /* has_failed() sees it */
    (void)status;
}

static bool is_stopping(nccl_state *s)
{
    pthread_mutex_lock(&s->lock);
    const bool stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    return stopping;
}

static void *watch(void *arg)
{
    nccl_state *s = arg;
    int64_t since = fsdp_clock_ns();
    uint64_t seen = 0;
    while (!is_stopping(s)) {
        if (has_failed(s)) {
            abort_link(s);
            break;
        }
        look(s, &seen, &since);
        usleep(WATCH_US);
    }
    return NULL;
}

static fsdp_status start_thread(nccl_state *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&s->thread, NULL, watch, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->has_thread = !error;
    return error ? fsdp_error(FSDP_ERR_NOMEM, "rank %d: cannot start a thread: %s", s->group->rank,
                              strerror(error))
                 : FSDP_OK;
}

/* --- opening and closing --- */

static void close_state(fsdp_group *group)
{
    nccl_state *s = group->exchange_state;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    if (s->link && fsdp_comm_control_aborted(group->control))
        s->ops->abort(s->link);
    else if (s->link)
        s->ops->close(s->link);
    pthread_mutex_destroy(&s->lock);
    fsdp_free(s->pieces);
    fsdp_free(s);
    group->exchange_state = NULL;
}

/* Wait until what the host has begun is set up, or until a rank has failed. */
static fsdp_status wait_for_setup(nccl_state *s)
{
    const int64_t start = fsdp_clock_ns();
    for (bool done = false;;) {
        pthread_mutex_lock(&s->lock);
        const fsdp_status status = s->link ? s->ops->poll(s->link, &done) : FSDP_OK;
        const bool exists = s->link;
        pthread_mutex_unlock(&s->lock);
        FSDP_TRY(status);
        if (!exists || fsdp_comm_control_aborted(s->group->control))
            return fsdp_comm_control_error(s->group->control);
        if (done)
            return FSDP_OK;
        if (fsdp_clock_ns() - start > s->group->timeout_ns)
            return post_timeout(s);
        usleep(POLL_US);
    }
}

static fsdp_status connect(nccl_state *s, const fsdp_device *device)
{
    fsdp_group *group = s->group;
    char id[FSDP_CARD_ID_BYTES] = {0};
    fsdp_status status = group->rank == 0 ? s->ops->make_id(id) : FSDP_OK;
    FSDP_TRY(fsdp_agree(group, status));
    FSDP_TRY(fsdp_broadcast(group, id, sizeof id, 0));
    status = s->ops->open(device->ordinal, id, group->rank, group->world_size, &s->link);
    /* After a failure, peers would wait for this rank. */
    fsdp_group_abort(group, status);
    if (status == FSDP_OK)
        status = start_thread(s);
    if (status == FSDP_OK)
        status = wait_for_setup(s);
    return fsdp_agree(group, status);
}

static fsdp_status open_state(fsdp_group *group, const fsdp_device *device)
{
    nccl_state *s = fsdp_calloc(1, sizeof *s);
    FSDP_TRY(fsdp_agree(group, s ? FSDP_OK : fsdp_error_nomem()));
    s->group = group;
    s->ops = device->ops->shared_memory->links;
    pthread_mutex_init(&s->lock, NULL);
    group->exchange_state = s;
    const fsdp_status status = connect(s, device);
    if (status != FSDP_OK)
        close_state(group);
    return status;
}

/* --- exchanging --- */

static size_t host_bytes(const fsdp_group *group)
{
    return (size_t)group->world_size * sizeof(range_list);
}

static range_list *list_of(const fsdp_shared_buffer *buffer, int rank)
{
    range_list *lists = buffer->exchange_memory;
    return &lists[rank];
}

static void send(fsdp_shared_buffer *buffer)
{
    fsdp_group *group = buffer->group;
    range_list *list = list_of(buffer, group->rank);
    if (buffer->n_ranges > MOST_RANGES) {
        fsdp_group_abort(group, fsdp_error(FSDP_ERR_UNSUPPORTED,
                                           "NCCL: a unit has %zu ranges of bytes for other cards, "
                                           "at most %d are supported: set FSDP_CARD_EXCHANGE=copy",
                                           buffer->n_ranges, MOST_RANGES));
        return;
    }
    list->n = buffer->n_ranges;
    if (list->n)
        memcpy(list->ranges, buffer->ranges, buffer->n_ranges * sizeof *buffer->ranges);
}

static bool is_for(const fsdp_written_range *range, int rank)
{
    return range->reader == FSDP_ALL_READERS || range->reader == rank;
}

/* Append the pieces that rank `from` sends to rank `to`. One of them is this rank. */
static fsdp_status add_pieces(nccl_state *s, const fsdp_shared_buffer *buffer, int from, int to,
                              size_t *n)
{
    const range_list *list = list_of(buffer, from);
    const bool is_sent = from == s->group->rank;
    char *data = buffer->on_device.data;
    for (uint64_t i = 0; i < list->n && i < MOST_RANGES; i++) {
        const fsdp_written_range *range = &list->ranges[i];
        if (!is_for(range, to))
            continue;
        if (!FSDP_GROW(s->pieces, s->cap_pieces, *n + 1))
            return fsdp_error_nomem();
        s->pieces[(*n)++] = (fsdp_card_piece){.rank = is_sent ? to : from,
                                              .is_sent = is_sent,
                                              .data = data + (is_sent ? range->offset : range->to),
                                              .bytes = range->bytes};
        s->group->counters.moved_bytes += is_sent ? range->bytes : 0;
    }
    return FSDP_OK;
}

static fsdp_status exchange(nccl_state *s, const fsdp_shared_buffer *buffer)
{
    const fsdp_group *group = s->group;
    size_t n = 0;
    for (int r = 0; r < group->world_size; r++) {
        if (r == group->rank)
            continue;
        FSDP_TRY(add_pieces(s, buffer, group->rank, r, &n));
        FSDP_TRY(add_pieces(s, buffer, r, group->rank, &n));
    }
    if (!n)
        return FSDP_OK;
    pthread_mutex_lock(&s->lock);
    const fsdp_status status =
        s->link ? s->ops->exchange(s->link, buffer->on_device.device, s->pieces, n) : FSDP_OK;
    pthread_mutex_unlock(&s->lock);
    FSDP_TRY(status);
    FSDP_TRY(wait_for_setup(s));
    pthread_mutex_lock(&s->lock);
    if (s->link)
        s->ops->mark(s->link, buffer->on_device.device);
    s->n_exchanges++;
    pthread_mutex_unlock(&s->lock);
    return FSDP_OK;
}

static fsdp_status receive(fsdp_shared_buffer *buffer)
{
    fsdp_group *group = buffer->group;
    const fsdp_status status = exchange(group->exchange_state, buffer);
    if (status != FSDP_OK && !fsdp_comm_control_aborted(group->control))
        fsdp_group_abort(group, status);
    return status;
}

const fsdp_card_exchange fsdp_card_exchange_nccl = {.name = "nccl",
                                                    .host_bytes = host_bytes,
                                                    .open = open_state,
                                                    .close = close_state,
                                                    .send = send,
                                                    .receive = receive};
