/* How a signal ends a command that saves. */
#pragma once
#include <stdatomic.h>

#include <fsdp/base.h>

/* From now on SIGINT, SIGTERM and SIGHUP (unless it is ignored: nohup) end the process as they
 * always do, but a save into `output` under way may first come to its end; one that takes longer
 * than some seconds is removed. Call it before any thread is started, once per process.
 *
 * The flag that is returned becomes true when a signal came: no save may begin then. It lives as
 * long as the process; `output` must, too. NULL if output is NULL or memory ran out. */
const atomic_bool *fsdp_cli_finish_save_on_signal(const char *output);

/* If a signal came, wait for it to end the process. */
void fsdp_cli_await_signal(const atomic_bool *interrupted);
