/* The dashboard of a run that goes on (--dashboard): a process of its own, which reads the files of
 * the run. It shares nothing with training, so it cannot disturb it but by the time that it takes.
 */
#pragma once
#include <sys/types.h>

#include <fsdp/base.h>

typedef struct fsdp_dashboard_child {
    pid_t pid;     /* 0: none */
    int keep_open; /* the child ends when this is closed; -1 if it stays */
    char address[128];
} fsdp_dashboard_child;

/* Start `program dashboard --port PORT FOLDER...`, and wait until it has printed the address of the
 * page. If `stays` is false, the child ends when this process does, however that happens. */
FSDP_MUST_CHECK fsdp_status fsdp_dashboard_start(const char *program, const char *const *folders,
                                                 size_t n, int port, bool stays,
                                                 fsdp_dashboard_child *child);
/* End the child, unless it stays. No effect if there is none. */
void fsdp_dashboard_end(fsdp_dashboard_child *child);
