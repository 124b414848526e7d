/* A thread waits for the signals, which are blocked in all others: it may do what a signal handler
 * may not. */
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/cli/interrupt.h"

typedef struct interrupt {
    const char *output;
    atomic_bool came;
} interrupt;

static void handled_signals(sigset_t *set)
{
    struct sigaction hangup;
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaction(SIGHUP, NULL, &hangup);
    if (hangup.sa_handler != SIG_IGN)
        sigaddset(set, SIGHUP);
}

/* Below the time after which `fsdp launch` loses patience (supervisor.c). */
static void wait_for_save(const char *output)
{
    static const double patience_s = 3.0;
    const struct timespec pause = {0, 2000000};
    double end = fsdp_clock_s() + patience_s;
    do /* at least once: a save may be about to begin */
        nanosleep(&pause, NULL);
    while (fsdp_atomic_directory_is_pending(output, (int)getpid()) && fsdp_clock_s() < end);
    fsdp_atomic_directory_sweep(output, (int)getpid());
}

static void *wait_for_signal(void *arg)
{
    interrupt *self = arg;
    sigset_t set;
    int number;
    handled_signals(&set);
    while (sigwait(&set, &number) != 0)
        ;
    atomic_store(&self->came, true);
    wait_for_save(self->output);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    return NULL;
}

const atomic_bool *fsdp_cli_finish_save_on_signal(const char *output)
{
    enum {
        STACK_BYTES = 256 << 10
    };
    sigset_t set, before;
    pthread_t thread;
    pthread_attr_t attributes;
    interrupt *self = output ? fsdp_calloc(1, sizeof *self) : NULL;
    if (!self)
        return NULL;
    self->output = output;
    handled_signals(&set);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigprocmask(SIG_BLOCK, &set, &before);
    int failure = pthread_create(&thread, &attributes, wait_for_signal, self);
    pthread_attr_destroy(&attributes);
    if (!failure)
        return &self->came;
    sigprocmask(SIG_SETMASK, &before, NULL); /* a save may stay unfinished, but signals work */
    fsdp_free(self);
    return NULL;
}

void fsdp_cli_await_signal(const atomic_bool *interrupted)
{
    while (interrupted && atomic_load(interrupted))
        pause();
}
