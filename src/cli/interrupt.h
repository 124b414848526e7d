/* How a signal ends a command that saves. */
#pragma once
#include <stdatomic.h>

#include <fsdp/base.h>

typedef struct fsdp_interrupt fsdp_interrupt;

/* From now on SIGINT, SIGTERM and SIGHUP (unless it is ignored: nohup) end the process as they
 * always do, but a save into `output` (NULL: none) under way may first come to its end; one that
 * takes longer than some seconds is removed. A pipe that nobody reads any more ends nothing: Ctrl-C
 * also ends `| tee log`, and what is saved is worth more than what is printed. Call it before any
 * thread is started, once per process.
 *
 * @param to_the_end the run looks at the flag and ends by itself, after it has saved what it goes
 *                   on from: it is waited for, until a second signal comes
 * @return lives as long as the process; `output` must, too. NULL if memory ran out. */
fsdp_interrupt *fsdp_cli_interrupt_begin(const char *output, bool to_the_end);
/* Becomes true when a signal came: no save of the model may begin then. NULL for NULL. */
const atomic_bool *fsdp_cli_interrupted(const fsdp_interrupt *interrupt);
/* The run has ended. If a signal came, wait for it to end the process. Accepts NULL. */
void fsdp_cli_interrupt_end(fsdp_interrupt *interrupt);
