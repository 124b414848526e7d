/* Handles signals in a thread that waits for them. The signals are blocked in all other threads.
 * Unlike a signal handler, this thread may call any function. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/cli/common/interrupt.h"
#include "src/hosts/mpi.h"
#include "src/launch/exit_code.h"

struct fsdp_interrupt {
    char *output; /* a copy, because the thread may outlive the options; NULL: none; owned */
    bool to_the_end;
    atomic_bool came, ended;
};

/* Set *set to the signals that the thread handles. SIGUSR1 asks a run to save and to be started
 * again. So SIGUSR1 is in *set only if the run can be resumed. */
static void handled_signals(const fsdp_interrupt *self, sigset_t *set)
{
    struct sigaction hangup;
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    if (self->to_the_end)
        sigaddset(set, SIGUSR1);
    sigaction(SIGHUP, NULL, &hangup);
    if (hangup.sa_handler != SIG_IGN)
        sigaddset(set, SIGHUP);
}

/* Wait until a save into `output` has finished, but for at most patience_s. If the save has not
 * finished by then, remove it. patience_s is shorter than the default time that `fsdp launch` gives
 * ranks after a signal (supervisor.c). */
static void wait_for_save(const char *output)
{
    static const double patience_s = 3.0;
    const struct timespec pause = {0, 2000000};
    double end = fsdp_clock_s() + patience_s;
    do /* wait at least once, because a save may be about to begin */
        nanosleep(&pause, NULL);
    while (fsdp_atomic_directory_is_pending(output, (int)getpid()) && fsdp_clock_s() < end);
    fsdp_atomic_directory_sweep(output, (int)getpid());
}

/* Wait until the run ends or a second signal comes. `fsdp launch`, for example, sends a second
 * signal after its --shutdown-timeout. A signal that comes within same_signal_s of the first one is
 * ignored, because it may be the first signal, delivered twice. For example, if Slurm or a service
 * manager signals all processes of a job, a rank gets the signal directly, and a second time from
 * `fsdp launch`, which passes it on. */
static void wait_for_end(const fsdp_interrupt *self, const sigset_t *set)
{
    static const double same_signal_s = 1.0;
    const struct timespec pause = {0, 20000000};
    const double first_s = fsdp_clock_s();
    while (!atomic_load(&self->ended) &&
           (sigtimedwait(set, NULL, &pause) < 0 || fsdp_clock_s() - first_s < same_signal_s))
        ;
}

/* Exit with FSDP_EXIT_AGAIN, after all ranks have saved. The ranks do not call MPI_Finalize(), so
 * mpiexec of MPICH would exit with 0. Therefore, rank 0 sends the exit code to mpiexec. If `fsdp
 * launch` started the ranks, the launcher sets the exit code. */
static _Noreturn void exit_to_begin_again(void)
{
    const char *rank = getenv("RANK");
    fflush(NULL);
    if (rank && strcmp(rank, "0") == 0 && !getenv("FSDP_LAUNCHER_PID"))
        fsdp_mpich_abort(FSDP_EXIT_AGAIN);
    _exit(FSDP_EXIT_AGAIN);
}

static void *wait_for_signal(void *arg)
{
    fsdp_interrupt *self = arg;
    sigset_t set;
    int number;
    handled_signals(self, &set);
    while (sigwait(&set, &number) != 0)
        ;
    atomic_store(&self->came, true);
    if (self->to_the_end)
        wait_for_end(self, &set);
    if (self->output)
        wait_for_save(self->output);
    if (number == SIGUSR1)
        exit_to_begin_again();
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    /* The kernel ignores the signal if this process is the first one of a container. */
    _exit(fsdp_exit_of_signal(number));
}

fsdp_interrupt *fsdp_cli_interrupt_begin(const char *output, bool to_the_end)
{
    enum {
        STACK_BYTES = 256 << 10
    };
    sigset_t set, before;
    pthread_t thread;
    pthread_attr_t attributes;
    fsdp_interrupt *self = fsdp_calloc(1, sizeof *self);
    if (!self || (output && !(self->output = fsdp_strdup(output)))) {
        fsdp_free(self);
        return NULL;
    }
    self->to_the_end = to_the_end;
    signal(SIGPIPE, SIG_IGN);
    handled_signals(self, &set);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigprocmask(SIG_BLOCK, &set, &before);
    int failure = pthread_create(&thread, &attributes, wait_for_signal, self);
    pthread_attr_destroy(&attributes);
    if (!failure)
        return self;
    /* The thread could not be started. Unblock the signals, which then end the process as usual,
     * even during a save. */
    sigprocmask(SIG_SETMASK, &before, NULL);
    fsdp_free(self->output);
    fsdp_free(self);
    return NULL;
}

const atomic_bool *fsdp_cli_interrupted(const fsdp_interrupt *interrupt)
{
    return interrupt ? &interrupt->came : NULL;
}

void fsdp_cli_interrupt_end(fsdp_interrupt *interrupt)
{
    if (!interrupt)
        return;
    atomic_store(&interrupt->ended, true);
    while (atomic_load(&interrupt->came))
        pause();
}
