/* Waits for the counter of a peer: a short spin if there are enough cores, then futex waits of one
 * polling interval each. After each interval, the wait ends with an error if a rank has aborted,
 * the peer has left or is stopped, ranks wait for each other in a circle, or the timeout has
 * passed. */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/comm/phase.h"
#include "src/trace/trace.h"

static const int64_t poll_ns = 100000000;
/* If more time than this has passed between two polls, this process was stopped in between. */
static const int64_t gap_ns = 1000000000;

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool reached(const fsdp_shared_buffer *buffer, int peer, uint64_t target)
{
    return atomic_load_explicit(&buffer->lanes[peer].ended, memory_order_acquire) >= target;
}

void fsdp_phase_show_ended(fsdp_phase_lane *lane, uint64_t ended, int futex_private)
{
    atomic_store(&lane->ended, ended);
    atomic_store(&lane->word, (uint32_t)ended);
    /* This rank stores `ended` and then loads `waiters`. A waiter increments `waiters` and then
     * loads `ended`. All these accesses are sequentially consistent. So this rank sees the waiter,
     * or the waiter sees the new `ended`. */
    if (atomic_load(&lane->waiters))
        futex(&lane->word, FUTEX_WAKE | futex_private, INT32_MAX, NULL);
}

void fsdp_phase_wake(fsdp_shared_buffer *buffer)
{
    const fsdp_group *group = buffer->group;
    fsdp_phase_show_ended(&buffer->lanes[group->rank], buffer->ended, group->futex_private);
}

static void sleep_until_changed(fsdp_shared_buffer *buffer, int peer, uint64_t target)
{
    fsdp_phase_lane *lane = &buffer->lanes[peer];
    struct timespec poll = {0, (long)poll_ns};
    atomic_fetch_add(&lane->waiters, 1);
    uint32_t seen = atomic_load(&lane->word);
    if (atomic_load(&lane->ended) < target)
        futex(&lane->word, FUTEX_WAIT | buffer->group->futex_private, seen, &poll);
    atomic_fetch_sub(&lane->waiters, 1);
}

static void describe_latest(const fsdp_shared_buffer *buffer, int rank, char *text, size_t size)
{
    fsdp_phase_record record = {0};
    text[0] = 0;
    if (fsdp_phase_latest(buffer, rank, &record))
        fsdp_phase_describe(&record, text, size);
}

static const fsdp_shared_buffer *find_buffer(const fsdp_group *group, uint32_t number)
{
    const fsdp_shared_buffer *b = group->buffers;
    while (b && b->number != number)
        b = b->next;
    return b;
}

/* Return true if this rank is in a circle of ranks that wait for each other. The search begins at
 * this rank. It goes to the peer that this rank waits for, then to the peer that this peer waits
 * for, and so on. If the search comes back to this rank, and no wait on the way has reached its
 * target, there is a circle: each rank of the circle can continue only after the next one has
 * continued. But a rank may have continued during the search. So read the sequence numbers of all
 * these waits a second time. If none of the numbers has changed, no rank has continued, and the
 * circle is real. If one of the waits is on a buffer of another group, return false. `rank` and
 * `next` are world ranks. */
static bool in_circle(const fsdp_group *group, uint64_t *sequences)
{
    const fsdp_comm_control *control = group->control;
    const int own = fsdp_group_world_rank(group, group->rank);
    int rank = own;
    for (int step = 0; step < group->world_size; step++) {
        const fsdp_comm_blocked *blocked = &control->board[rank].blocked;
        sequences[rank] = atomic_load(&blocked->sequence);
        int next = atomic_load(&blocked->peer), peer = fsdp_group_rank_of_world(group, next);
        const fsdp_shared_buffer *buffer = find_buffer(group, atomic_load(&blocked->number));
        if (sequences[rank] % 2 == 0 || !buffer || peer < 0 ||
            reached(buffer, peer, atomic_load(&blocked->target)))
            return false;
        rank = next;
        if (rank == own)
            break;
    }
    if (rank != own)
        return false;
    do {
        const fsdp_comm_blocked *blocked = &control->board[rank].blocked;
        if (atomic_load(&blocked->sequence) != sequences[rank])
            return false;
        rank = atomic_load(&blocked->peer);
    } while (rank != own);
    return true;
}

static fsdp_status check_circle(fsdp_shared_buffer *buffer, int peer)
{
    fsdp_group *group = buffer->group;
    uint64_t sequences[FSDP_COMM_MAX_RANKS];
    if (!in_circle(group, sequences))
        return FSDP_OK;
    char mine[160], other[160];
    const int own = fsdp_group_world_rank(group, group->rank);
    const int other_rank = fsdp_group_world_rank(group, peer);
    const fsdp_comm_blocked *theirs = &group->control->board[other_rank].blocked;
    const fsdp_shared_buffer *elsewhere = find_buffer(group, atomic_load(&theirs->number));
    describe_latest(buffer, group->rank, mine, sizeof mine);
    describe_latest(elsewhere, peer, other, sizeof other);
    return fsdp_group_fail(
        group, fsdp_error(FSDP_ERR_COMM,
                          "ranks diverged: rank %d begins %s, but rank %d began %s, and "
                          "each waits for the other",
                          own, mine, other_rank, other));
}

/* Return the error that ends the wait, or FSDP_OK to continue waiting. */
static fsdp_status check_peer(fsdp_shared_buffer *buffer, int peer, uint64_t target, int64_t waited)
{
    fsdp_group *group = buffer->group;
    const int own = fsdp_group_world_rank(group, group->rank);
    const int other_rank = fsdp_group_world_rank(group, peer);
    char mine[160];
    if (fsdp_comm_control_aborted(group->control))
        return fsdp_comm_control_error(group->control);
    /* If the peer has ended the phases and has then left, the wait succeeds. So load `left` before
     * the counter: if `left` is set, the counter does not change any more. */
    if (atomic_load(&group->control->board[other_rank].left) && !reached(buffer, peer, target)) {
        describe_latest(buffer, group->rank, mine, sizeof mine);
        return fsdp_group_fail(
            group, fsdp_error(FSDP_ERR_COMM,
                              "ranks diverged: rank %d begins %s, but rank %d has left the "
                              "group",
                              own, mine, other_rank));
    }
    int stopped;
    double silent_s;
    if (fsdp_group_is_stopped(group, other_rank, &stopped, &silent_s))
        return fsdp_group_accuse(group, stopped, silent_s);
    if (waited >= poll_ns)
        FSDP_TRY(check_circle(buffer, peer));
    if (waited < group->timeout_ns)
        return FSDP_OK;
    char other[160], where[160];
    const fsdp_comm_location at = fsdp_comm_place_get(&group->control->board[other_rank].at);
    describe_latest(buffer, group->rank, mine, sizeof mine);
    describe_latest(buffer, peer, other, sizeof other);
    fsdp_comm_location_describe(&at, where, sizeof where);
    return fsdp_group_fail(
        group, fsdp_error(FSDP_ERR_TIMEOUT,
                          "timeout: rank %d waited %.1f s in %s for rank %d, which %s%s%s%s", own,
                          (double)waited * 1e-9, mine, other_rank,
                          other[0] ? "was last in " : "has not begun a phase of this buffer", other,
                          where[0] ? " and is" : "", where));
}

static void publish_wait(fsdp_group *group, const fsdp_shared_buffer *buffer, int peer,
                         uint64_t target)
{
    fsdp_comm_blocked *blocked = &fsdp_group_board(group)->blocked;
    atomic_store(&blocked->peer, fsdp_group_world_rank(group, peer));
    atomic_store(&blocked->number, buffer->number);
    atomic_store(&blocked->target, target);
    atomic_fetch_add(&blocked->sequence, 1);
}

static fsdp_status sleep_for_peer(fsdp_shared_buffer *buffer, int peer, uint64_t target,
                                  int64_t start)
{
    fsdp_group *group = buffer->group;
    fsdp_status status = FSDP_OK;
    bool published = false;
    int64_t waited = 0, last = start;
    while (status == FSDP_OK && !reached(buffer, peer, target)) {
        sleep_until_changed(buffer, peer, target);
        if (reached(buffer, peer, target))
            break;
        int64_t now = fsdp_clock_ns();
        /* If this process was stopped between the polls, the time in between does not count as
         * waiting. Count one interval instead. */
        waited += now - last > gap_ns ? poll_ns : now - last;
        last = now;
        if (!published && waited >= poll_ns) {
            publish_wait(group, buffer, peer, target);
            published = true;
        }
        status = check_peer(buffer, peer, target, waited);
    }
    if (published && status == FSDP_OK)
        atomic_fetch_add(&fsdp_group_board(group)->blocked.sequence, 1);
    return status;
}

fsdp_status fsdp_phase_wait(fsdp_shared_buffer *buffer, int peer, uint64_t target, int64_t *wait_ns)
{
    const fsdp_group *group = buffer->group;
    if (reached(buffer, peer, target))
        return FSDP_OK;
    int64_t start = fsdp_clock_ns();
    fsdp_status status = FSDP_OK;
    fsdp_trace_begin(FSDP_TRACE_WAITING, "wait for a peer", NULL);
    while (!reached(buffer, peer, target)) {
        if (fsdp_clock_ns() - start >= group->spin_ns) {
            status = sleep_for_peer(buffer, peer, target, start);
            break;
        }
        pause_cpu();
    }
    fsdp_trace_end();
    *wait_ns += fsdp_clock_ns() - start;
    return status;
}
