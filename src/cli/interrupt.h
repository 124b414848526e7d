/* How a signal ends a command that saves. */
#pragma once
#include <stdatomic.h>

#include <fsdp/base.h>

typedef struct fsdp_interrupt fsdp_interrupt;

/* From now on SIGINT, SIGTERM and SIGHUP (unless SIGHUP is ignored, as under nohup) end the process
 * as usual, but a save into `output` (NULL: none) that is in progress may finish first. A save that
 * takes longer than some seconds is removed. SIGPIPE is ignored: Ctrl-C also ends `| tee log`, and
 * saving the model is worth more than printing. Call this before any thread is started, once per
 * process.
 *
 * @param to_the_end true if the run checks the flag and ends by itself after it has saved what it
 *   needs to resume. The process then waits for the run until a second signal comes.
 * @return lives as long as the process, as `output` must. NULL if memory ran out. */
fsdp_interrupt *fsdp_cli_interrupt_begin(const char *output, bool to_the_end);
/* Becomes true when a signal came: no save of the model may begin then. NULL for NULL. */
const atomic_bool *fsdp_cli_interrupted(const fsdp_interrupt *interrupt);
/* Call when the run has ended. If a signal came, wait for it to end the process. Accepts NULL. */
void fsdp_cli_interrupt_end(fsdp_interrupt *interrupt);
