/* See progress.h. The thread sends what the rank has queued, receives what arrives, and informs the
 * other hosts what the rank is doing. It never blocks in MPI: MPICH spins in a blocking call and
 * takes the core from a rank that computes. Between two rounds it sleeps. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/comm/mpi/exchange.h"
#include "src/comm/phase.h"

/* The thread pauses between two rounds. The pause is busy_ns while messages are being sent or
 * received, and for calm_ns after the last activity. Later it is idle_ns, so a message may wait
 * that long. */
static const int64_t busy_ns = 50000, idle_ns = 200000, calm_ns = 2000000;
static const int64_t board_ns = 250000000;
static const long poll_ns =
    50000; /* interval at which the thread of the program looks at a counter for which it waits */
/* After a failure, a rank waits up to failure_ns until the other hosts know of the failure. It then
 * waits up to report_ns, so that the ranks on those hosts can report the failure: when the first
 * rank ends, mpirun kills the others. */
static const int64_t failure_ns = 1000000000, report_ns = 300000000;

static void send_failure(fsdp_mpi_progress *p)
{
    fsdp_mpi_message m = {.kind = FSDP_MPI_FAILURE};
    const uint32_t first = atomic_load(&p->control->abort);
    if (p->sent_failure || !fsdp_comm_control_failure(p->control, &m.failure.failure))
        return;
    m.failure.board = (int32_t)first - 1;
    p->sent_failure = true;
    fsdp_mpi_notify_hosts(p, &m);
}

/* ---- the thread ---- */

static fsdp_mpi_board board_of(const fsdp_comm_board *own)
{
    fsdp_mpi_board b = {.sequence = atomic_load(&own->blocked.sequence)};
    b.beat = atomic_load(&own->beat);
    b.joined = atomic_load(&own->joined);
    b.peer = atomic_load(&own->blocked.peer);
    b.number = atomic_load(&own->blocked.number);
    b.target = atomic_load(&own->blocked.target);
    b.at = fsdp_comm_place_get(&own->at);
    if (atomic_load(&own->blocked.sequence) != b.sequence)
        b.sequence = 0;
    return b;
}

static fsdp_mpi_outgoing *take_queue(fsdp_mpi_progress *p, bool *is_stopping)
{
    pthread_mutex_lock(&p->lock);
    fsdp_mpi_outgoing *queue = p->queue;
    p->queue = NULL;
    p->queue_end = &p->queue;
    *is_stopping = p->is_stopping;
    pthread_mutex_unlock(&p->lock);
    return queue;
}

/* Copy this rank's board before the queue is emptied. So when the board arrives, all earlier
 * messages of the rank have arrived, too (show_board() in incoming.c). */
static void send_all(fsdp_mpi_progress *p, bool *is_stopping)
{
    const int64_t now = fsdp_clock_ns();
    const bool is_due = now >= p->next_board_ns;
    fsdp_mpi_message m = {.kind = FSDP_MPI_BOARD};
    if (is_due)
        m.board = board_of(&p->control->board[p->world.rank]);
    fsdp_mpi_outgoing *queue = take_queue(p, is_stopping);
    p->was_active |= queue != NULL;
    /* A rank that fails may end its phase afterwards, without the bytes. The abort word was set
     * before this end was queued. The receiver shows messages in their order, so a rank that sees
     * the end of the phase sees the failure, too. */
    send_failure(p);
    fsdp_mpi_advance_outgoing(p, queue);
    if (is_due && !p->sent_left && !p->is_failing) {
        p->next_board_ns = now + board_ns;
        fsdp_mpi_notify_hosts(p, &m);
    }
}

/* Return true if the thread may end: the ranks with which this rank exchanges messages have left,
 * and everything has arrived; or this rank has waited long enough. */
static bool may_end(fsdp_mpi_progress *p)
{
    const int64_t now = fsdp_clock_ns();
    if (p->is_broken || now >= p->stop_ns)
        return true;
    if (fsdp_comm_control_aborted(p->control)) {
        if (p->stop_ns > now + failure_ns)
            p->stop_ns = now + failure_ns;
        if (p->n_failed == p->world.n_hosts - 1 && p->stop_ns > now + report_ns)
            p->stop_ns = now + report_ns;
        return false;
    }
    if (!p->sent_left) {
        p->sent_left = true;
        fsdp_mpi_notify_hosts(p, &(fsdp_mpi_message){.kind = FSDP_MPI_LEFT});
    }
    return p->n_left == p->world.n_hosts - 1 && !p->sending && !p->receiving;
}

static void pause_for(fsdp_mpi_progress *p, int64_t ns)
{
    struct timespec until;
    ns += fsdp_clock_ns();
    until = (struct timespec){ns / 1000000000, ns % 1000000000};
    pthread_mutex_lock(&p->lock);
    if (!p->queue)
        pthread_cond_timedwait(&p->wake, &p->lock, &until);
    pthread_mutex_unlock(&p->lock);
}

static void send_and_receive(fsdp_mpi_progress *p, bool *is_stopping)
{
    p->was_active = false;
    pthread_mutex_lock(&p->round);
    if (!p->is_broken) {
        send_all(p, is_stopping);
        fsdp_mpi_advance_incoming(p);
    } else {
        fsdp_mpi_drop_outgoing(take_queue(p, is_stopping));
    }
    pthread_mutex_unlock(&p->round);
}

/* Return true if the thread may call MPI, and false if it must end at once. */
static bool wait_for_start(fsdp_mpi_progress *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->may_run && !p->is_stopping)
        pthread_cond_wait(&p->wake, &p->lock);
    const bool may_run = p->may_run;
    pthread_mutex_unlock(&p->lock);
    return may_run;
}

static void *exchange(void *arg)
{
    fsdp_mpi_progress *p = arg;
    if (!wait_for_start(p))
        return NULL;
    int64_t active_ns = fsdp_clock_ns();
    for (bool is_stopping = false; !is_stopping || !may_end(p);) {
        send_and_receive(p, &is_stopping);
        const int64_t now = fsdp_clock_ns();
        if (p->was_active)
            active_ns = now;
        const bool is_busy = p->sending || p->receiving || now - active_ns < calm_ns;
        pause_for(p, is_busy ? busy_ns : idle_ns);
    }
    atomic_store(&p->has_ended, true);
    return NULL;
}

/* ---- starting and stopping ---- */

static void free_progress(fsdp_mpi_progress *p)
{
    for (size_t i = 0; i < p->n_entries; i++)
        fsdp_free(p->entries[i]);
    fsdp_free(p->entries);
    fsdp_free(p->newest);
    fsdp_free(p->sink);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->round);
    fsdp_free(p);
}

/* The thread blocks all signals, so that only the program's own threads receive them. */
static int start_thread(fsdp_mpi_progress *p)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&p->thread, NULL, exchange, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error)
        pthread_setname_np(p->thread, "fsdp-mpi");
    return error;
}

fsdp_status fsdp_mpi_progress_create(const fsdp_mpi_world *world, fsdp_comm_control *control,
                                     fsdp_mpi_progress **progress)
{
    pthread_condattr_t monotonic;
    fsdp_mpi_progress *p = fsdp_calloc(1, sizeof *p);
    if (!p)
        return fsdp_error_nomem();
    p->world = *world;
    p->world.host_names = NULL; /* the caller keeps the names */
    p->control = control;
    p->pid = getpid();
    p->queue_end = &p->queue;
    p->sending_end = &p->sending;
    p->receiving_end = &p->receiving;
    pthread_mutex_init(&p->round, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    p->sink = fsdp_realloc(NULL, FSDP_MPI_PIECE_BYTES, 1);
    if (!p->sink) {
        free_progress(p);
        return fsdp_error_nomem();
    }
    const int error = start_thread(p);
    if (error) {
        free_progress(p);
        return fsdp_error(FSDP_ERR_NOMEM, "rank %d: cannot start a thread: %s", world->rank,
                          strerror(error));
    }
    *progress = p;
    return FSDP_OK;
}

void fsdp_mpi_progress_run(fsdp_mpi_progress *p)
{
    fsdp_mpi_finalize_at_exit(false);
    pthread_mutex_lock(&p->lock);
    p->may_run = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void begin_stop(fsdp_mpi_progress *p, int64_t timeout_ns)
{
    pthread_mutex_lock(&p->lock);
    p->is_stopping = true;
    p->stop_ns = fsdp_clock_ns() + timeout_ns;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void fsdp_mpi_progress_discard(fsdp_mpi_progress *p)
{
    begin_stop(p, 0);
    pthread_join(p->thread, NULL);
    free_progress(p);
}

/* Post a failure if a partner seems to be stopped, or its host cannot be reached. */
static void watch_partners(const fsdp_mpi_progress *p, fsdp_group *group)
{
    for (int host = 0; host < p->world.n_hosts; host++) {
        const int partner = fsdp_mpi_partner(&p->world, host);
        int stopped;
        double silent_s;
        if (host != p->world.host && fsdp_group_is_stopped(group, partner, &stopped, &silent_s))
            (void)fsdp_group_accuse(group, stopped, silent_s);
    }
}

/* If messages are under way that will not arrive, MPI keeps using their memory. So they are not
 * freed, and MPI is not finalized. */
bool fsdp_mpi_progress_stop(fsdp_mpi_progress *p, fsdp_group *group)
{
    if (p->pid != getpid())
        return false;
    begin_stop(p, group->timeout_ns);
    while (!atomic_load(&p->has_ended)) {
        watch_partners(p, group);
        nanosleep(&(struct timespec){.tv_nsec = poll_ns}, NULL);
    }
    pthread_join(p->thread, NULL);
    fsdp_mpi_drop_outgoing(p->queue);
    const bool is_clean = !p->sending && !p->receiving && p->n_left == p->world.n_hosts - 1 &&
                          !fsdp_comm_control_aborted(p->control);
    if (!is_clean || !fsdp_mpi_close_inbox(p))
        return false;
    fsdp_mpi_finalize_at_exit(true);
    fsdp_mpi_world_free(&p->world);
    free_progress(p);
    return true;
}

/* ---- buffers ---- */

static void note_newest(fsdp_mpi_progress *p, uint32_t number)
{
    const uint32_t group = number >> FSDP_BUFFER_BITS;
    size_t i = 0;
    while (i < p->n_newest && p->newest[i].group != group)
        i++;
    if (i == p->n_newest)
        p->newest[p->n_newest++] = (fsdp_mpi_newest){group, number};
    if (p->newest[i].number < number)
        p->newest[i].number = number;
}

fsdp_status fsdp_mpi_progress_attach(fsdp_mpi_progress *p, fsdp_shared_buffer *buffer)
{
    fsdp_mpi_entry *entry = fsdp_calloc(1, sizeof *entry);
    if (!entry)
        return fsdp_error_nomem();
    entry->buffer = buffer;
    pthread_mutex_lock(&p->lock);
    const bool has_room = FSDP_GROW(p->entries, p->cap_entries, p->n_entries + 1) &&
                          FSDP_GROW(p->newest, p->cap_newest, p->n_newest + 1);
    if (has_room) {
        p->entries[p->n_entries++] = entry;
        note_newest(p, buffer->number);
    }
    pthread_mutex_unlock(&p->lock);
    if (has_room)
        return FSDP_OK;
    fsdp_free(entry);
    return fsdp_error_nomem();
}

/* Only the thread of the program adds and removes entries, so it may look at them without the
 * lock. */
static fsdp_mpi_entry *entry_of(const fsdp_mpi_progress *p, const fsdp_shared_buffer *buffer)
{
    for (size_t i = p->n_entries; i-- > 0;)
        if (p->entries[i]->buffer == buffer)
            return p->entries[i];
    return NULL;
}

static void post_timeout(const fsdp_shared_buffer *buffer, int64_t waited_ns)
{
    fsdp_group *group = buffer->group;
    const fsdp_status status = fsdp_error(
        FSDP_ERR_TIMEOUT,
        "timeout: rank %d waited %.1f s for the messages of shared buffer %u to reach "
        "the other hosts",
        fsdp_group_world_rank(group, group->rank), (double)waited_ns * 1e-9, buffer->number);
    fsdp_group_post(group, status, FSDP_FAILURE_OF_ALL);
}

/* Wait until *n, a number of messages of the buffer, is 0. Post a failure if another host cannot be
 * reached or does not answer in time. Return early after any failure. */
static void wait_for_none(const fsdp_mpi_progress *p, const fsdp_shared_buffer *buffer,
                          const _Atomic int *n)
{
    const int64_t start_ns = fsdp_clock_ns();
    while (atomic_load(n) > 0 && !fsdp_comm_control_aborted(p->control)) {
        const int64_t waited_ns = fsdp_clock_ns() - start_ns;
        watch_partners(p, buffer->group);
        if (waited_ns >= buffer->group->timeout_ns)
            post_timeout(buffer, waited_ns);
        nanosleep(&(struct timespec){.tv_nsec = poll_ns}, NULL);
    }
}

void fsdp_mpi_progress_flush(fsdp_mpi_progress *p, fsdp_shared_buffer *buffer)
{
    const fsdp_mpi_entry *entry = entry_of(p, buffer);
    if (entry)
        wait_for_none(p, buffer, &entry->sending);
}

void fsdp_mpi_progress_detach(fsdp_mpi_progress *p, fsdp_shared_buffer *buffer)
{
    fsdp_mpi_entry *entry = entry_of(p, buffer);
    if (!entry || p->pid != getpid())
        return;
    wait_for_none(p, buffer, &entry->sending);
    pthread_mutex_lock(&p->lock);
    size_t i = 0;
    while (p->entries[i] != entry)
        i++;
    p->entries[i] = p->entries[--p->n_entries];
    pthread_mutex_unlock(&p->lock);
    wait_for_none(p, buffer, &entry->receiving);
    pthread_mutex_lock(&p->round);
    if (atomic_load(&entry->sending) || atomic_load(&entry->receiving)) {
        atomic_store(&p->leaks, true);
        entry->buffer = NULL;
    } else {
        fsdp_free(entry);
    }
    pthread_mutex_unlock(&p->round);
}

bool fsdp_mpi_progress_leaks(const fsdp_mpi_progress *p)
{
    return atomic_load(&p->leaks);
}

/* ---- phases ---- */

static void queue_messages(fsdp_mpi_progress *p, fsdp_shared_buffer *buffer, fsdp_mpi_kind kind,
                           uint64_t count)
{
    fsdp_mpi_entry *entry = entry_of(p, buffer);
    fsdp_mpi_outgoing *list = NULL;
    const fsdp_status status =
        entry ? fsdp_mpi_create_messages(&p->world, entry, kind, count, &list)
              : fsdp_error(FSDP_ERR_STATE, "mpi: buffer %u is not attached", buffer->number);
    if (status != FSDP_OK) {
        fsdp_mpi_post_failure(p, status);
        return;
    }
    pthread_mutex_lock(&p->lock);
    fsdp_mpi_append(&p->queue_end, list);
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void fsdp_mpi_progress_announce(fsdp_mpi_progress *p, fsdp_shared_buffer *buffer)
{
    queue_messages(p, buffer, FSDP_MPI_ANNOUNCED, buffer->ended);
}

void fsdp_mpi_progress_end_phase(fsdp_mpi_progress *p, fsdp_shared_buffer *buffer)
{
    queue_messages(p, buffer, FSDP_MPI_ENDED, buffer->ended);
}
