/* `fsdp dashboard`: serves a page about the runs in some folders, until it is stopped. */
#pragma once
#include <signal.h>

#include <fsdp/base.h>

typedef struct fsdp_dashboard_options {
    const char *const *folders; /* [n_folders] */
    size_t n_folders;
    bool may_come; /* folders that do not exist yet may appear later */
    int port;      /* see fsdp_server_start() */
    /* Called once when the page is served, with its address, which is valid during the call. An
     * error ends the dashboard. */
    fsdp_status (*ready)(void *context, const char *address);
    void *context;
    const volatile sig_atomic_t *stop; /* the dashboard ends when this is not 0 */
    /* The dashboard ends when this descriptor, the reading end of a pipe, is at its end; -1: none.
     */
    int until_closed;
} fsdp_dashboard_options;

FSDP_MUST_CHECK fsdp_status fsdp_dashboard_run_server(const fsdp_dashboard_options *options);
