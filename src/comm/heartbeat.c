/* See Note [Heartbeat] in heartbeat.h. */
#include "src/comm/heartbeat.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"

static const int64_t beat_ns = 500000000;
/* If more time than this has passed between two beats of this process, the process was stopped in
 * between. */
static const int64_t gap_ns = 1000000000;
/* The smallest possible `limit`, in beats. On a busy machine, even a running peer may miss one or
 * two beats. */
static const double least_limit = 3;

typedef struct peer_state {
    uint32_t beat;           /* the peer's `beat` when the heartbeat thread last read it */
    _Atomic uint32_t missed; /* number of beats of this rank since the peer's last beat */
} peer_state;

struct fsdp_heartbeat {
    fsdp_comm_control *control;
    int rank;
    uint32_t limit; /* a peer that has missed this many beats counts as stopped; 0: no limit */
    pid_t pid;      /* the process in which the thread runs */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping;      /* protected by `lock` */
    peer_state peers[]; /* [world_size] */
};

/* Update the counts of missed beats. No beat is expected from a peer that has not joined (beat 0).
 * After a gap in this rank's own beats, all counts begin again at 0. */
static void look_at_peers(fsdp_heartbeat *h, bool had_gap)
{
    for (uint32_t r = 0; r < h->control->world_size; r++) {
        peer_state *p = &h->peers[r];
        uint32_t beat = atomic_load(&h->control->board[r].beat);
        bool silent = beat != 0 && beat == p->beat && !had_gap;
        p->beat = beat;
        atomic_store(&p->missed, silent ? atomic_load(&p->missed) + 1 : 0);
    }
}

static struct timespec deadline_after(int64_t ns)
{
    ns += fsdp_clock_ns();
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

static void *beat(void *arg)
{
    fsdp_heartbeat *h = arg;
    int64_t last = fsdp_clock_ns();
    pthread_mutex_lock(&h->lock);
    while (!h->stopping) {
        int64_t now = fsdp_clock_ns();
        atomic_fetch_add(&h->control->board[h->rank].beat, 1);
        look_at_peers(h, now - last > gap_ns);
        last = now;
        struct timespec next = deadline_after(beat_ns);
        pthread_cond_timedwait(&h->wake, &h->lock, &next);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* The thread blocks all signals, so that only the program's own threads receive them. */
static int start_thread(fsdp_heartbeat *h)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&h->thread, NULL, beat, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error)
        pthread_setname_np(h->thread, "fsdp-heartbeat");
    return error;
}

static void heartbeat_free(fsdp_heartbeat *h)
{
    pthread_cond_destroy(&h->wake);
    pthread_mutex_destroy(&h->lock);
    fsdp_free(h);
}

fsdp_status fsdp_heartbeat_start(fsdp_comm_control *control, int rank, double limit_s,
                                 fsdp_heartbeat **heartbeat)
{
    pthread_condattr_t monotonic;
    fsdp_heartbeat *h = fsdp_calloc(1, sizeof *h + (size_t)control->world_size * sizeof *h->peers);
    if (!h)
        return fsdp_error_nomem();
    h->control = control;
    h->rank = rank;
    double beats = limit_s * 1e9 / (double)beat_ns;
    h->limit = limit_s > 0 ? (uint32_t)fmin(fmax(beats, least_limit), UINT32_MAX) : 0;
    h->pid = getpid();
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&h->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    /* Make the first beat here and not in the thread, because the rank may be stopped before the
     * thread runs. */
    atomic_fetch_add(&control->board[rank].beat, 1);
    int error = start_thread(h);
    if (error) {
        heartbeat_free(h);
        return fsdp_error(FSDP_ERR_NOMEM, "rank %d: cannot start a thread: %s", rank,
                          strerror(error));
    }
    *heartbeat = h;
    return FSDP_OK;
}

void fsdp_heartbeat_stop(fsdp_heartbeat *h)
{
    if (!h)
        return;
    if (h->pid != getpid()) { /* in a forked child; the thread and its locks belong to the parent */
        fsdp_free(h);
        return;
    }
    pthread_mutex_lock(&h->lock);
    h->stopping = true;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    heartbeat_free(h);
}

double fsdp_heartbeat_silent_s(const fsdp_heartbeat *h, int peer)
{
    uint32_t missed = h ? atomic_load(&h->peers[peer].missed) : 0;
    return h && h->limit && missed >= h->limit ? (double)missed * (double)beat_ns * 1e-9 : 0;
}
