/* What a command tidies up when a signal ends it. */
#pragma once
#include <fsdp/base.h>

/* From now on SIGINT, SIGTERM and SIGHUP (unless it is ignored: nohup) first remove what an
 * unfinished save into `output` left, then end the process as they always do. NULL: nothing to
 * remove. Call it before any thread is started; once per process. `output` stays the caller's. */
void fsdp_cli_tidy_on_signal(const char *output);
