/* See world.h. */
#include "src/comm/mpi/world.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/comm/control.h"
#include "src/comm/environment.h"
#include "src/comm/mpi/sockets.h"

/* What each process reports about itself to all processes. */
typedef struct seat {
    int32_t first; /* MPI rank of the first process on the host */
    int32_t part;  /* number of the imagined host (FSDP_TEST_HOSTS) within the host */
    uint64_t layout;
    char host[sizeof(fsdp_mpi_host_name)], version[32];
} seat;

typedef struct outcome {
    int32_t status;
    char message[508];
} outcome;

/* ---- calls of MPI ---- */

/* FSDP_TIMEOUT_S: for how long a process waits for others that do not join. MPI_Init_thread() waits
 * for them without a limit. */
static int64_t joining_ns;

fsdp_status fsdp_mpi_error(const fsdp_mpi_abi *abi, const char *call, int code)
{
    char text[FSDP_MPI_ERROR_TEXT];
    abi->error_text(code, text);
    return fsdp_error(FSDP_ERR_COMM, "%s: %s: %s", abi->name, call, text[0] ? text : "failed");
}

#define TRY_MPI(abi, call, ...)                                                                    \
    do {                                                                                           \
        const int code_ = (abi)->call(__VA_ARGS__);                                                \
        if (code_)                                                                                 \
            return fsdp_mpi_error(abi, #call, code_);                                              \
    } while (0)

/* All-gather without a blocking call: a blocking call of MPICH spins, and takes the core from ranks
 * that have yet to arrive. */
static fsdp_status all_gather(const fsdp_mpi_abi *abi, fsdp_mpi_handle comm, const void *send,
                              void *recv, size_t bytes)
{
    fsdp_mpi_handle request;
    bool done = false;
    const int64_t start_ns = fsdp_clock_ns();
    TRY_MPI(abi, iallgather, comm, send, recv, (int)bytes, &request);
    while (!done) {
        TRY_MPI(abi, test, &request, &done, NULL);
        if (!done && fsdp_clock_ns() - start_ns > joining_ns)
            return fsdp_error(FSDP_ERR_TIMEOUT,
                              "%s: waited %.1f s (FSDP_TIMEOUT_S) for ranks that have not joined",
                              abi->name, (double)joining_ns * 1e-9);
        if (!done)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return FSDP_OK;
}

static fsdp_status raise_first(const fsdp_mpi_world *w, const outcome *all)
{
    for (int r = 0; r < w->world_size; r++) {
        if (all[r].status == FSDP_OK)
            continue;
        if (r == w->rank)
            return fsdp_error((fsdp_status)all[r].status, "%s", all[r].message);
        return fsdp_error((fsdp_status)all[r].status, "rank %d: %.*s", r,
                          (int)sizeof all[r].message - 1, all[r].message);
    }
    return FSDP_OK;
}

fsdp_status fsdp_mpi_world_agree(const fsdp_mpi_world *w, fsdp_status mine)
{
    outcome own = {.status = (int32_t)mine};
    if (mine != FSDP_OK)
        fsdp_comm_copy_text(own.message, sizeof own.message, fsdp_last_error());
    outcome *all = fsdp_calloc((size_t)w->world_size, sizeof *all);
    if (!all)
        return fsdp_error_nomem();
    fsdp_status status = all_gather(w->abi, w->comm, &own, all, sizeof own);
    if (status == FSDP_OK)
        status = raise_first(w, all);
    fsdp_free(all);
    return status;
}

/* ---- initializing and finalizing ---- */

static const fsdp_mpi_abi *own_mpi; /* the library that this file has initialized */
static pid_t own_process;           /* a forked child must not finalize MPI */
static bool may_finalize = true;
/* The ranks of a host use this struct to wait for each other before they end: see Note [Ending
 * MPICH]. */
static struct {
    fsdp_comm_control *control; /* NULL: the ranks do not wait for each other */
    int rank, ranks_per_host;
} ending;

void fsdp_mpi_finalize_at_exit(bool yes)
{
    may_finalize = yes;
}

/* Note [Ending MPICH]. In MPICH 4.0.2 over UCX between hosts, about one of three jobs did not
 * return from MPI_Finalize(): one process closed its connections and waited for the other. The
 * other process had begun to wait in a barrier of the process manager and no longer answered. So
 * with MPICH, ranks of several hosts do not call MPI_Finalize(). But as soon as one process of a
 * host has ended without MPI_Finalize(), MPICH's launcher (Hydra) ends the other processes of that
 * host, without a message and with exit status 0. So when their output is written and nothing is
 * left to do, the ranks of a host first wait for each other, in shared memory. */
enum {
    LEFT_AND_ENDING = 2 /* value of fsdp_comm_board.left */
};

bool fsdp_mpi_world_left(const fsdp_mpi_abi *abi, fsdp_comm_control *control, int rank,
                         int ranks_per_host)
{
    if (abi != &fsdp_mpi_abi_mpich)
        return false;
    fsdp_mpi_finalize_at_exit(false);
    ending.control = control;
    ending.rank = rank;
    ending.ranks_per_host = ranks_per_host;
    return true;
}

static bool all_are_ending(void)
{
    const int first = ending.rank - ending.rank % ending.ranks_per_host;
    bool all = true;
    for (int r = first; r < first + ending.ranks_per_host; r++)
        all &= atomic_load(&ending.control->board[r].left) == LEFT_AND_ENDING;
    return all;
}

static void wait_for_ending_ranks(void)
{
    fflush(NULL);
    atomic_store(&ending.control->board[ending.rank].left, LEFT_AND_ENDING);
    while (!all_are_ending() && !fsdp_comm_control_aborted(ending.control))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* MPI cannot be initialized a second time after MPI_Finalize(). So this is called when the process
 * ends, and not when a group is destroyed. */
static void finalize_at_exit(void)
{
    bool finalized = true;
    if (getpid() != own_process)
        return;
    if (ending.control)
        wait_for_ending_ranks();
    if (own_mpi && may_finalize && own_mpi->finalized(&finalized) == 0 && !finalized)
        (void)own_mpi->finalize();
}

/* Return an error if MPI's thread level is below `needed`. This library calls MPI from one thread
 * at a time, so it needs FSDP_MPI_SERIALIZED. If another program has initialized MPI, that program
 * may call MPI at the same time, so FSDP_MPI_MULTIPLE is needed. */
static fsdp_status check_level(const fsdp_mpi_abi *abi, int level, int needed)
{
    if (level >= needed)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: its thread level is %d, but %d (%s) is needed: %s",
                      abi->name, level, needed,
                      needed == FSDP_MPI_MULTIPLE ? "MPI_THREAD_MULTIPLE" : "MPI_THREAD_SERIALIZED",
                      needed == FSDP_MPI_MULTIPLE
                          ? "the program must ask for it in MPI_Init_thread()"
                          : "this build of MPI is without threads");
}

static fsdp_status apply_settings(const fsdp_mpi_abi *abi)
{
    for (const char *const *s = abi->settings; s && *s; s += 2)
        if (setenv(s[0], s[1], 0) != 0)
            return fsdp_error_nomem();
    return FSDP_OK;
}

static fsdp_status initialize(const fsdp_mpi_abi *abi)
{
    bool is_ready = false, is_over = false;
    int level = 0;
    TRY_MPI(abi, initialized, &is_ready);
    TRY_MPI(abi, finalized, &is_over);
    if (is_over)
        return fsdp_error(FSDP_ERR_STATE,
                          "init_process_group: the program has called MPI_Finalize() already");
    if (is_ready) {
        TRY_MPI(abi, query_thread, &level);
        return check_level(abi, level, own_mpi ? FSDP_MPI_SERIALIZED : FSDP_MPI_MULTIPLE);
    }
    FSDP_TRY(apply_settings(abi));
    TRY_MPI(abi, init_thread, FSDP_MPI_SERIALIZED, &level);
    own_mpi = abi;
    own_process = getpid();
    atexit(finalize_at_exit);
    return check_level(abi, level, FSDP_MPI_SERIALIZED);
}

/* ---- who is where ---- */

/* Set *parts to the number of imagined hosts into which FSDP_TEST_HOSTS divides a host of n ranks.
 */
static fsdp_status read_parts(int n, int *parts)
{
    const char *text = getenv("FSDP_TEST_HOSTS");
    char *end;
    *parts = 1;
    if (!text || !*text)
        return FSDP_OK;
    const long read = strtol(text, &end, 10);
    if (*end || read < 1 || read > n || n % read)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "environment: FSDP_TEST_HOSTS is '%s', but the %d ranks of this host cannot "
            "be divided equally among so many imagined hosts",
            text, n);
    *parts = (int)read;
    return FSDP_OK;
}

/* Find the host of this process. `mpi_rank` is its rank in MPI_COMM_WORLD. */
static fsdp_status find_host(fsdp_mpi_world *w, fsdp_mpi_handle host, int mpi_rank, seat *own)
{
    int rank, n, parts;
    TRY_MPI(w->abi, comm_rank, host, &rank);
    TRY_MPI(w->abi, comm_size, host, &n);
    int *ranks = fsdp_calloc((size_t)n, sizeof *ranks);
    if (!ranks)
        return fsdp_error_nomem();
    fsdp_status status = all_gather(w->abi, host, &mpi_rank, ranks, sizeof mpi_rank);
    own->first = ranks[0];
    fsdp_free(ranks);
    FSDP_TRY(status);
    /* An error here would keep the other processes waiting. So check_seat() reports it later. */
    if (read_parts(n, &parts) != FSDP_OK) {
        own->part = -1;
        return FSDP_OK;
    }
    w->is_test = parts > 1;
    own->part = rank / (n / parts);
    return FSDP_OK;
}

static bool same_host(const seat *a, const seat *b)
{
    return a->first == b->first && a->part == b->part;
}

/* Number the processes host by host. Set the fields of *w that depend on the numbering. */
static void number_ranks(fsdp_mpi_world *w, const seat *seats, int mpi_rank)
{
    int next = 0;
    w->n_hosts = w->ranks_per_host = w->local_rank = 0;
    for (int i = 0; i < w->world_size; i++) {
        bool is_new = true;
        for (int k = 0; k < i && is_new; k++)
            is_new = !same_host(&seats[i], &seats[k]);
        if (!is_new)
            continue;
        for (int k = i; k < w->world_size; k++) {
            if (!same_host(&seats[i], &seats[k]))
                continue;
            if (k == mpi_rank) {
                w->rank = next;
                w->host = w->n_hosts;
            }
            next++;
        }
        fsdp_comm_copy_text(w->host_names[w->n_hosts].text, sizeof w->host_names->text,
                            seats[i].host);
        w->n_hosts++;
    }
    for (int k = 0; k < w->world_size; k++) {
        w->ranks_per_host += same_host(&seats[mpi_rank], &seats[k]);
        w->local_rank += k < mpi_rank && same_host(&seats[mpi_rank], &seats[k]);
    }
}

static int ranks_of_host(const seat *seats, int n, int i)
{
    int ranks = 0;
    for (int k = 0; k < n; k++)
        ranks += same_host(&seats[i], &seats[k]);
    return ranks;
}

static fsdp_status check_seat(const seat *seats, int n, int i)
{
    const seat *a = &seats[0], *b = &seats[i];
    int parts;
    if (b->part < 0 && read_parts(ranks_of_host(seats, n, i), &parts) != FSDP_OK)
        return FSDP_ERR_INVALID;
    if (b->part < 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "environment: FSDP_TEST_HOSTS does not divide the ranks of host '%s'",
                          b->host);
    if (a->layout != b->layout || strcmp(a->version, b->version) != 0)
        return fsdp_error(FSDP_ERR_COMM,
                          "MPI rank 0 on host '%s' runs fsdp %s, but MPI rank %d on host '%s' runs "
                          "%s: all hosts must run the same build",
                          a->host, a->version, i, b->host, b->version);
    const int ranks = ranks_of_host(seats, n, 0), other = ranks_of_host(seats, n, i);
    if (ranks != other)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "host '%s' has %d ranks and host '%s' has %d: start the same number on "
                          "every host (mpirun --map-by ppr:N:node, mpiexec -ppn N, srun "
                          "--ntasks-per-node=N)",
                          a->host, ranks, b->host, other);
    return FSDP_OK;
}

static fsdp_status take_seats(fsdp_mpi_world *w, const seat *own, int mpi_rank,
                              fsdp_mpi_handle mpi_world)
{
    fsdp_status status = FSDP_OK;
    seat *seats = fsdp_calloc((size_t)w->world_size, sizeof *seats);
    w->host_names = fsdp_calloc((size_t)w->world_size, sizeof *w->host_names);
    if (!seats || !w->host_names) {
        fsdp_free(seats);
        return fsdp_error_nomem();
    }
    status = all_gather(w->abi, mpi_world, own, seats, sizeof *own);
    for (int i = 0; status == FSDP_OK && i < w->world_size; i++)
        status = check_seat(seats, w->world_size, i);
    if (status == FSDP_OK)
        number_ranks(w, seats, mpi_rank);
    fsdp_free(seats);
    return status;
}

/* Check that MPI reports the number of processes that is in the launcher's variable. If the
 * launcher and the library belong to different MPIs, every process is a job of its own, and MPI
 * reports one process. */
static fsdp_status check_size(const fsdp_mpi_job *job, const fsdp_mpi_world *w)
{
    const bool is_slurm = strcmp(job->launcher, "srun") == 0;
    if (w->world_size > FSDP_COMM_MAX_RANKS)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "MPI has started %d ranks, at most %d are supported", w->world_size,
                          FSDP_COMM_MAX_RANKS);
    if (w->world_size == job->size || (!job->size && (w->world_size > 1 || !job->rank)))
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "environment: %s is %lld, but %s says that this process is one of %d: the launcher and %s "
        "do not belong together: %s",
        job->variable, (long long)(job->size ? job->size : job->rank), w->abi->name, w->world_size,
        w->abi->name,
        !is_slurm                           ? "use the mpirun of the same MPI, or set FSDP_MPI"
        : strcmp(w->abi->key, "mpich") == 0 ? "use srun --mpi=pmi2, or set FSDP_MPI=openmpi"
                                            : "use srun --mpi=pmix, or set FSDP_MPI=mpich");
}

static fsdp_status join(const fsdp_mpi_job *job, fsdp_mpi_world *w)
{
    seat own = {.layout = fsdp_comm_control_bytes(2)};
    fsdp_mpi_handle mpi_world, host;
    int mpi_rank;
    FSDP_TRY(initialize(w->abi));
    TRY_MPI(w->abi, world, &mpi_world);
    TRY_MPI(w->abi, comm_rank, mpi_world, &mpi_rank);
    TRY_MPI(w->abi, comm_size, mpi_world, &w->world_size);
    FSDP_TRY(check_size(job, w));
    gethostname(own.host, sizeof own.host - 1);
    fsdp_comm_copy_text(own.version, sizeof own.version, FSDP_VERSION);
    TRY_MPI(w->abi, split_hosts, mpi_world, &host);
    fsdp_status status = find_host(w, host, mpi_rank, &own);
    (void)w->abi->comm_free(&host);
    FSDP_TRY(status);
    FSDP_TRY(take_seats(w, &own, mpi_rank, mpi_world));
    TRY_MPI(w->abi, reorder, mpi_world, w->rank, &w->comm);
    w->has_comm = true;
    return FSDP_OK;
}

fsdp_status fsdp_mpi_world_join(const fsdp_mpi_job *job, fsdp_mpi_world *world)
{
    fsdp_mpi_world w = {0};
    double stall_s;
    FSDP_TRY(fsdp_read_limits(&joining_ns, &stall_s));
    FSDP_TRY(fsdp_mpi_load(job, &w.abi));
    const fsdp_status status = join(job, &w);
    if (status == FSDP_OK) {
        *world = w;
    } else {
        fsdp_mpi_finalize_at_exit(false); /* other ranks may not come to MPI_Finalize() */
        fsdp_mpi_world_free(&w);
    }
    return status;
}

void fsdp_mpi_world_free(fsdp_mpi_world *w)
{
    if (w->has_comm)
        (void)w->abi->comm_free(&w->comm);
    w->has_comm = false;
    fsdp_free(w->host_names);
    w->host_names = NULL;
}

/* ---- connecting the ranks of a host ---- */

fsdp_status fsdp_mpi_world_connect(const fsdp_mpi_world *w, fsdp_shm *shm)
{
    int listener = -1;
    fsdp_mpi_address own = {0};
    fsdp_mpi_address *all = fsdp_calloc((size_t)w->world_size, sizeof *all);
    fsdp_status status = all ? FSDP_OK : fsdp_error_nomem();
    if (status == FSDP_OK && w->local_rank == 0 && w->ranks_per_host > 1)
        status = fsdp_mpi_listen(w->ranks_per_host, &listener, &own);
    status = fsdp_mpi_world_agree(w, status);
    if (status == FSDP_OK)
        status = all_gather(w->abi, w->comm, &own, all, sizeof own);
    const int first = w->rank - w->local_rank;
    if (status == FSDP_OK && w->local_rank == 0)
        status = fsdp_mpi_accept_ranks(listener, w, shm);
    else if (status == FSDP_OK)
        status = fsdp_mpi_connect_to(&all[first], w, shm);
    if (listener >= 0)
        close(listener);
    fsdp_free(all);
    return fsdp_mpi_world_agree(w, status);
}
