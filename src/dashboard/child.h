/* Starts the dashboard of the current run (--dashboard). The dashboard is a separate process that
 * reads the files of the run. It shares no memory with the run, and only its CPU time can slow the
 * run down. */
#pragma once
#include <sys/types.h>

#include <fsdp/base.h>

typedef struct fsdp_dashboard_child {
    pid_t pid; /* 0: none */
    /* Writing end of a pipe. The child ends when this process closes the pipe, or when this process
     * ends. -1: the child outlives this process. */
    int keep_open;
    char address[128];
} fsdp_dashboard_child;

/* Start `program dashboard --port PORT FOLDER...`, and wait until it has printed the address of the
 * page. If `stays` is false, the child ends when this process ends, even if this process is
 * killed. */
FSDP_MUST_CHECK fsdp_status fsdp_dashboard_start(const char *program, const char *const *folders,
                                                 size_t n, int port, bool stays,
                                                 fsdp_dashboard_child *child);
/* End the child, unless it stays. No effect if no child was started. */
void fsdp_dashboard_end(fsdp_dashboard_child *child);
