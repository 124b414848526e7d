/* See train_dashboard.h. */
#include "src/cli/train_dashboard.h"

#include <stdio.h>

#include "src/dashboard/server.h"

/* Start the dashboard for the run's folder and for the folder of its checkpoints, which does not
 * exist before the first checkpoint. */
static fsdp_status start_dashboard(void *context, const char *folder, const char *checkpoints,
                                   FILE *out)
{
    fsdp_train_dashboard *d = context;
    const char *folders[2] = {folder, checkpoints};
    FSDP_TRY(fsdp_dashboard_start("/proc/self/exe", folders, checkpoints ? 2 : 1,
                                  d->config->dashboard_port, d->config->dashboard_stays,
                                  &d->child));
    if (!out)
        return FSDP_OK;
    if (d->config->dashboard_stays)
        fprintf(out, "dashboard: %s (stays; 'kill %d' ends it)\n", d->child.address,
                (int)d->child.pid);
    else
        fprintf(out, "dashboard: %s (ends with the run)\n", d->child.address);
    fflush(out);
    return FSDP_OK;
}

fsdp_status fsdp_cli_dashboard_prepare(fsdp_train_config *config, fsdp_train_dashboard *dashboard)
{
    *dashboard = (fsdp_train_dashboard){.config = config, .child = {.keep_open = -1}};
    if (!config->dashboard)
        return FSDP_OK;
    if (!fsdp_server_is_available())
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--dashboard: this build has none, since libmicrohttpd was not found: "
                          "'make deps' installs it, then 'make' builds with it");
    config->reports_open = start_dashboard;
    config->reports_context = dashboard;
    return FSDP_OK;
}

void fsdp_cli_dashboard_end(fsdp_train_dashboard *dashboard)
{
    fsdp_dashboard_end(&dashboard->child);
}
