/* A thread waits for the signals, which are blocked in all others: it may do what a signal handler
 * may not. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#include "src/base/io.h"
#include "src/cli/interrupt.h"

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

static void *wait_for_signal(void *output)
{
    sigset_t set;
    int number;
    handled_signals(&set);
    while (sigwait(&set, &number) != 0)
        ;
    fsdp_atomic_directory_sweep(output, (int)getpid());
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    signal(number, SIG_DFL);
    raise(number);
    return NULL;
}

void fsdp_cli_tidy_on_signal(const char *output)
{
    enum {
        STACK_BYTES = 256 << 10
    };
    sigset_t set, before;
    pthread_t thread;
    pthread_attr_t attributes;
    if (!output)
        return;
    handled_signals(&set);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigprocmask(SIG_BLOCK, &set, &before);
    if (pthread_create(&thread, &attributes, wait_for_signal, (void *)(uintptr_t)output) != 0)
        sigprocmask(SIG_SETMASK, &before, NULL); /* untidy, but interruptible */
    pthread_attr_destroy(&attributes);
}
