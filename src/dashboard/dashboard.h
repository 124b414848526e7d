/* `fsdp dashboard`: serves a page about the runs in some folders, until it is stopped. */
#pragma once
#include <signal.h>

#include <fsdp/base.h>

typedef struct fsdp_dashboard_options {
    const char *const *folders; /* [n_folders] */
    size_t n_folders;
    bool may_come; /* folders that do not exist yet may appear later */
    int port;      /* see fsdp_server_start() */
    /* Called once when the server is ready, with the address of the page. The address is valid only
     * during the call. If the function returns an error, the dashboard ends. */
    fsdp_status (*ready)(void *context, const char *address);
    void *context;
    const volatile sig_atomic_t *stop; /* the dashboard ends when *stop is not 0; may be NULL */
    /* The reading end of a pipe. The dashboard ends when the writing end is closed. -1: none. */
    int until_closed;
} fsdp_dashboard_options;

FSDP_MUST_CHECK fsdp_status fsdp_dashboard_run_server(const fsdp_dashboard_options *options);
