/* The card exchange "nccl": ranks send and receive by NCCL, in the streams of their kernels.
 *
 * Note [Exchange in the stream]. When a rank ends a WRITE phase, it does not wait for its kernels.
 * It only writes to the shared host memory of the buffer which ranges it has written and who reads
 * them. When a rank begins the READ phase, all ranks have ended the WRITE phase, so all lists are
 * complete. The rank then starts an exchange: it sends its own ranges to their readers, and
 * receives those ranges of other ranks that it reads. All of this is one kernel of NCCL in the
 * stream of the rank's kernels. So it runs after the kernels that wrote the ranges, and before the
 * kernels that read them.
 *
 * A mirror is only read and written by kernels in the stream of its own rank, including the
 * kernels of NCCL. So no rank has to wait for kernels when it ends a phase, and the host may be far
 * ahead of the card. But when a READ phase begins, the bytes have not arrived yet. A host that
 * looks at them must wait for its stream (fsdp_phase_arrives_late()).
 *
 * An exchange ends only after all ranks have started it. All ranks of a group must begin the READ
 * phases of all buffers of the group in the same order, which is the order of the program. Each
 * rank announces its exchanges in shared host memory before it starts them, and compares them with
 * those of its peers. As with phases (phase.c), of any two ranks at least one sees the announcement
 * of the other. So if the order differs, a rank notices it, and all ranks return an error.
 *
 * If a rank fails, the kernels of the others would wait for it forever. So each rank has a thread
 * that watches the group. The thread aborts the exchanges of its rank if a failure is posted. It
 * posts a failure itself if the process of a peer is stopped, if NCCL reports an error, if ranks
 * wait for each other, or if an exchange does not end within the timeout. The streams then go on,
 * and the next phase returns the failure. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/comm/agree.h"
#include "src/comm/cards/exchange.h"
#include "src/comm/phase.h"
#include "src/tensor/device.h"

enum {
    /* In the list of one rank. Each buffer has 512 KiB of addresses for it, but the system provides
     * only the pages that are written. */
    MOST_RANGES = 1 << 14,
    MOST_ANNOUNCED = 256, /* exchanges of a rank that its peers can still compare */
    POLL_US = 20,         /* pause of a rank between two looks at its own exchange */
    WATCH_US = 50000      /* pause of the watching thread between two looks at the group */
};

/* What a rank has written in the last WRITE phase of a buffer. */
typedef struct range_list {
    uint64_t n;
    fsdp_written_range ranges[MOST_RANGES];
} range_list;

/* What a rank announces about one exchange. */
typedef struct announcement {
    _Atomic uint64_t number; /* 1 + the number of the exchange; 0 while the other fields change */
    uint32_t buffer;
    uint64_t written; /* the value of fsdp_shared_buffer.written */
} announcement;

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
    fsdp_shared_buffer *announced; /* announcement [world_size, MOST_ANNOUNCED] */
    fsdp_card_piece *pieces;       /* scratch memory; only the thread of the program uses it */
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

/* Called while an exchange of this rank has not ended. Return the first peer that has not begun
 * this exchange and waits for this rank in a phase, or -1 if there is none. This rank has ended all
 * phases before the exchange, so such a peer does not run the same program. Set *sequence to the
 * number of the peer's wait. */
static int find_odd_rank(const nccl_state *s, uint64_t *sequence)
{
    const fsdp_group *group = s->group;
    const announcement *all = fsdp_shared_buffer_data(s->announced);
    for (int r = 0; r < group->world_size; r++) {
        const int world_rank = fsdp_group_world_rank(group, r);
        const fsdp_comm_blocked *blocked = &group->control->board[world_rank].blocked;
        const uint64_t last = (s->n_exchanges - 1) % MOST_ANNOUNCED;
        const bool has_begun =
            atomic_load(&all[(size_t)r * MOST_ANNOUNCED + last].number) >= s->n_exchanges;
        *sequence = atomic_load(&blocked->sequence);
        if (r != group->rank && !has_begun && *sequence % 2 == 1 &&
            atomic_load(&blocked->peer) == fsdp_group_world_rank(group, group->rank))
            return r;
    }
    return -1;
}

/* What the watching thread saw of the exchanges when it last looked at them. */
typedef struct watched {
    uint64_t n_exchanges;
    int64_t since_ns; /* when the link was last idle, or an exchange began */
    int odd_rank;     /* the result of find_odd_rank(), or -1 */
    uint64_t sequence;
} watched;

/* The thread calls find_odd_rank() at regular intervals. Post a failure if two calls in a row have
 * returned the same peer, and the peer has not continued between these calls. */
static fsdp_status check_odd_rank(const nccl_state *s, const watched *before, watched *now)
{
    fsdp_group *group = s->group;
    now->odd_rank = find_odd_rank(s, &now->sequence);
    if (now->odd_rank < 0 || now->odd_rank != before->odd_rank ||
        now->sequence != before->sequence || now->n_exchanges != before->n_exchanges)
        return FSDP_OK;
    const int own = fsdp_group_world_rank(group, group->rank);
    const int peer = fsdp_group_world_rank(group, now->odd_rank);
    const fsdp_comm_location at = fsdp_comm_place_get(&group->control->board[peer].at);
    char where[160];
    fsdp_comm_location_describe(&at, where, sizeof where);
    return fsdp_group_fail(
        group, fsdp_error(FSDP_ERR_COMM,
                          "ranks diverged: rank %d exchanges data with other cards, but rank %d "
                          "began something else%s, and each waits for the other",
                          own, peer, where));
}

/* Post a failure if the link has an error, if ranks wait for each other, or if an exchange has not
 * ended within the timeout. */
static fsdp_status look(nccl_state *s, watched *w)
{
    bool done, is_idle = true;
    fsdp_status status = FSDP_OK;
    watched now = *w;
    pthread_mutex_lock(&s->lock);
    if (s->link) {
        status = s->ops->poll(s->link, &done);
        is_idle = s->ops->is_idle(s->link);
    }
    now.n_exchanges = s->n_exchanges;
    now.odd_rank = -1;
    if (is_idle || now.n_exchanges != w->n_exchanges)
        now.since_ns = fsdp_clock_ns();
    if (status == FSDP_OK && !is_idle)
        status = check_odd_rank(s, w, &now);
    pthread_mutex_unlock(&s->lock);
    *w = now;
    fsdp_group_abort(s->group, status);
    if (status == FSDP_OK && fsdp_clock_ns() - now.since_ns > s->group->timeout_ns)
        status = post_timeout(s);
    return status;
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
    watched w = {.since_ns = fsdp_clock_ns(), .odd_rank = -1};
    while (!is_stopping(s)) {
        if (has_failed(s) || look(s, &w) != FSDP_OK) {
            abort_link(s);
            break;
        }
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
    if (s->announced) {   /* destroying it releases a reference to the group */
        group->refs += 2; /* more than one, because the group may be about to be freed */
        fsdp_shared_buffer_destroy(s->announced);
        group->refs--;
    }
    pthread_mutex_destroy(&s->lock);
    fsdp_free(s->pieces);
    fsdp_free(s);
    group->exchange_state = NULL;
}

/* Wait until NCCL has set up the connection or the exchange, whichever this rank began last. Return
 * an error if a rank fails or the timeout passes meanwhile. The kernels of the exchange may still
 * run afterwards. */
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

static fsdp_status create_announcements(nccl_state *s)
{
    const size_t bytes = (size_t)s->group->world_size * MOST_ANNOUNCED * sizeof(announcement);
    FSDP_TRY(fsdp_shared_buffer_create(s->group, bytes, &s->announced));
    s->group->refs--; /* the group itself owns this buffer */
    return FSDP_OK;
}

static fsdp_status open_state(fsdp_group *group, const fsdp_device *device)
{
    nccl_state *s = fsdp_calloc(1, sizeof *s);
    FSDP_TRY(fsdp_agree(group, s ? FSDP_OK : fsdp_error_nomem()));
    s->group = group;
    s->ops = device->ops->shared_memory->links;
    pthread_mutex_init(&s->lock, NULL);
    group->exchange_state = s;
    fsdp_status status = create_announcements(s);
    if (status == FSDP_OK)
        status = connect(s, device);
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

/* Append the pieces that rank `from` sends to rank `to` to s->pieces, which has *n items. Either
 * `from` or `to` is this rank. */
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

/* --- comparing the order --- */

static announcement *announcement_of(const nccl_state *s, int rank)
{
    announcement *all = fsdp_shared_buffer_data(s->announced);
    return &all[(size_t)rank * MOST_ANNOUNCED + s->n_exchanges % MOST_ANNOUNCED];
}

/* Describe the last phase that `rank` has announced on buffer `number`. */
static void describe(const fsdp_group *group, uint32_t number, int rank, char text[160])
{
    const fsdp_shared_buffer *b = group->buffers;
    fsdp_phase_record record;
    while (b && b->number != number)
        b = b->next;
    snprintf(text, 160, "an exchange of another buffer");
    if (b && fsdp_phase_latest(b, rank, &record))
        fsdp_phase_describe(&record, text, 160);
}

static fsdp_status order_differs(const fsdp_shared_buffer *buffer, int peer, uint32_t theirs)
{
    fsdp_group *group = buffer->group;
    char mine[160], other[160];
    describe(group, buffer->number, group->rank, mine);
    describe(group, theirs, peer, other);
    return fsdp_group_fail(
        group,
        fsdp_error(FSDP_ERR_COMM,
                   "ranks diverged: rank %d begins %s, but rank %d began %s, in another order "
                   "of exchanges between cards",
                   fsdp_group_world_rank(group, group->rank), mine,
                   fsdp_group_world_rank(group, peer), other));
}

/* Announce the next exchange, and compare it with those of the peers that have announced theirs. */
static fsdp_status announce(const nccl_state *s, const fsdp_shared_buffer *buffer)
{
    const uint64_t number = s->n_exchanges + 1;
    announcement *own = announcement_of(s, s->group->rank);
    atomic_store(&own->number, 0);
    own->buffer = buffer->number;
    own->written = buffer->written;
    atomic_store(&own->number, number);
    for (int r = 0; r < s->group->world_size; r++) {
        const announcement *other = announcement_of(s, r);
        if (r != s->group->rank && atomic_load(&other->number) == number &&
            (other->buffer != own->buffer || other->written != own->written))
            return order_differs(buffer, r, other->buffer);
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
    FSDP_TRY(announce(s, buffer));
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
