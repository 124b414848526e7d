/* Exit codes of `fsdp` and of the ranks that it starts. Tests and tools may rely on them. */
#pragma once
#include <signal.h>

typedef enum fsdp_exit {
    FSDP_EXIT_OK = 0,
    FSDP_EXIT_FAILURE = 1, /* the work failed: for example, a file was missing, a peer died, or a
                              loss was not finite */
    FSDP_EXIT_USAGE = 2,   /* the command line or configuration is wrong; nothing was started */
    FSDP_EXIT_AGAIN = 75   /* SIGUSR1 interrupted the work, so it must be started again; with
                              --resume, fsdp train continues it. The value is EX_TEMPFAIL of
                              sysexits.h */
} fsdp_exit;

/* Return the exit code of a job that a signal to its launcher has ended. */
static inline int fsdp_exit_of_signal(int signal_number)
{
    return signal_number == SIGUSR1 ? FSDP_EXIT_AGAIN : 128 + signal_number;
}
