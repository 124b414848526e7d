/* Lets a command finish a save before a signal ends the command. */
#pragma once
#include <stdatomic.h>

#include <fsdp/base.h>

typedef struct fsdp_interrupt fsdp_interrupt;

/* Let a save finish before SIGINT, SIGTERM or SIGHUP ends the process. If such a signal comes while
 * the model is saved into the folder `output`, the process waits a few seconds for the end of the
 * save. If the save takes longer, the incomplete save is removed. `output`, which is copied, is
 * NULL if the run does not save the model. If the process ignores SIGHUP, as under nohup, SIGHUP is
 * still ignored.
 *
 * SIGPIPE is ignored from now on. So a save can finish although Ctrl-C also ends `tee` in
 * `| tee log`. Call this function once per process, before any thread is started.
 *
 * If `to_the_end` is true, SIGUSR1 is handled like SIGTERM, except that the process then exits with
 * FSDP_EXIT_AGAIN. With this exit code, the script of a batch system starts the run again.
 *
 * @param to_the_end true if the run reacts to a signal itself: it checks the flag of
 *   fsdp_cli_interrupted(), saves what it needs to resume, and then ends. After a signal, the
 *   process waits until the run has ended, or until a second signal comes.
 * @return an object that is never freed; NULL when out of memory, or if the thread that waits for
 *   signals cannot be started */
fsdp_interrupt *fsdp_cli_interrupt_begin(const char *output, bool to_the_end);
/* Return a flag that becomes true when a signal comes. If `to_the_end` of
 * fsdp_cli_interrupt_begin() is false, the run must not begin to save the model once the flag is
 * true. Returns NULL if `interrupt` is NULL. */
const atomic_bool *fsdp_cli_interrupted(const fsdp_interrupt *interrupt);
/* Call this when the run has ended. If a signal has come, this function does not return: it waits
 * until the signal ends the process. Accepts NULL. */
void fsdp_cli_interrupt_end(fsdp_interrupt *interrupt);
