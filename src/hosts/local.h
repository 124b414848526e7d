/* What a launcher does on its own host: it starts MPI's daemon (or mpirun, on the first host),
 * accepts connections from the ranks and launch agents that the daemon starts, passes signals on,
 * and ends all of these processes.
 *
 * Each rank is watched by a process of its own, `fsdp launch-rank` (rank_stage.c), a child of MPI's
 * daemon. This process connects to a socket of the launcher. It gets its plan and also the
 * launcher's stdin, stdout and stderr, so that the output of each host's ranks appears on that
 * host. At the end it reports how the rank ended. The socket has no name in a file system, and only
 * processes of the same user are served.
 *
 * Events are reported as messages. The first launcher handles them itself; another launcher sends
 * them to the first one. */
#pragma once
#include <poll.h>
#include <signal.h>

#include "src/hosts/message.h"
#include "src/hosts/mpi.h"
#include "src/hosts/plan.h"

/* Handle a message of this host: OUTPUT, DAEMON_ENDED, FAILED, SIGNALLED, QUIET, IDLE or AGENT. */
typedef void fsdp_local_report_fn(void *arg, const fsdp_hosts_message *message);

typedef struct fsdp_local_process fsdp_local_process;

typedef struct fsdp_local {
    fsdp_launch *launch; /* borrowed */
    const fsdp_mpi *mpi; /* borrowed */
    const char *host;    /* name of this host, for messages. Borrowed */
    fsdp_local_report_fn *report;
    void *arg;
    int signals, listener;         /* a signalfd and a socket. Owned; -1: none */
    sigset_t mask;                 /* the signal mask before fsdp_local_open() */
    fsdp_local_process *processes; /* [n_processes] ranks and agents that are connected. Owned */
    size_t n_processes, cap;
    pid_t daemon;    /* pid and process group of MPI's daemon or of mpirun; 0: not running */
    int daemon_pipe; /* pipe with the daemon's stdout and stderr; -1: none. Owned */
    /* The daemon or mpirun was started in this round. */
    bool daemon_started;
    bool in_round; /* a round has begun, and IDLE was not reported yet */
    /* The ranks were asked to end; QUIET was reported. */
    bool stopping, quiet;
    bool hangup;    /* a SIGHUP was reported */
    int ends;       /* bits of fsdp_hosts_ends: how the ranks of this round have ended */
    char how[2048]; /* how the rank ended that was the first to fail; "": no rank has failed */
    double kill_ranks_s, kill_daemon_s; /* times (fsdp_clock_s()) at which the ranks and the daemon
                                           get SIGKILL; INFINITY: not planned */
    fsdp_hosts_shape shape;
} fsdp_local;

FSDP_MUST_CHECK fsdp_status fsdp_local_open(fsdp_local *local);
/* End all processes that are still running, and close all descriptors. Accepts a struct that
 * fsdp_local_open() did not open. */
void fsdp_local_close(fsdp_local *local);

/* Begin a round: ranks may connect. */
void fsdp_local_begin(fsdp_local *local, const fsdp_hosts_shape *shape);
/* Start MPI's daemon or mpirun: run the file `program` with the arguments `words`, which end with
 * NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_local_start(fsdp_local *local, const char *program, char **words);
/* Ask the ranks of this host to end because of the signal `signal_number` or, if it is 0, because
 * the job failed. QUIET is reported when all ranks have ended. */
void fsdp_local_stop(fsdp_local *local, int signal_number);
/* Kill the ranks, and end the daemon. IDLE is reported when all have ended. */
void fsdp_local_kill(fsdp_local *local);
/* Send the exit code of the daemon on `host` to the launch agent that asked for this daemon. */
void fsdp_local_answer_agent(fsdp_local *local, const char *host, int exit_code);

/* Fill in the elements of `polled` that the caller must poll, and return their number. `most`, the
 * size of `polled`, must be at least fsdp_local_polled_count(). */
size_t fsdp_local_polled(const fsdp_local *local, struct pollfd *polled, size_t most);
size_t fsdp_local_polled_count(const fsdp_local *local);
/* Handle what has happened, without waiting. Call this after each poll, and at least every 100 ms.
 */
void fsdp_local_handle(fsdp_local *local);
