/* Lets a command finish a save before a signal ends it. */
#pragma once
#include <stdatomic.h>

#include <fsdp/base.h>

typedef struct fsdp_interrupt fsdp_interrupt;

/* Change the effect of SIGINT and SIGTERM, and of SIGHUP unless it is ignored, as under nohup. They
 * still end the process, but a save into `output` that is in progress may finish first. A save that
 * takes longer than a few seconds is removed. `output` is NULL if the model is not saved. SIGPIPE
 * is ignored, so that a save can finish although Ctrl-C also ends `| tee log`. Call this once per
 * process, before any thread is started.
 *
 * @param to_the_end true if the run checks the flag of fsdp_cli_interrupted(), saves what it needs
 *   to resume, and then ends by itself. After a signal, the process waits until the run ends or a
 *   second signal comes.
 * @return an object that lives as long as the process; `output` must live as long. NULL if there is
 *         not enough memory or the thread cannot be started. */
fsdp_interrupt *fsdp_cli_interrupt_begin(const char *output, bool to_the_end);
/* Return a flag that becomes true when a signal has come; a save of the model must not begin after
 * that. Returns NULL for NULL. */
const atomic_bool *fsdp_cli_interrupted(const fsdp_interrupt *interrupt);
/* Call this when the run has ended. If a signal has come, wait until it ends the process. Accepts
 * NULL. */
void fsdp_cli_interrupt_end(fsdp_interrupt *interrupt);
