/* Implements --dashboard of `fsdp train`. */
#pragma once
#include "src/dashboard/child.h"
#include "src/train_config/config.h"

typedef struct fsdp_train_dashboard {
    const fsdp_train_config *config;
    fsdp_dashboard_child child;
} fsdp_train_dashboard;

/* If --dashboard is given, prepare *config and *dashboard, so that rank 0 starts the dashboard when
 * the files of the run are open. Returns FSDP_ERR_UNSUPPORTED if this build has no dashboard. */
FSDP_MUST_CHECK fsdp_status fsdp_cli_dashboard_prepare(fsdp_train_config *config,
                                                       fsdp_train_dashboard *dashboard);
/* End the dashboard, unless --dashboard-stays is given. */
void fsdp_cli_dashboard_end(fsdp_train_dashboard *dashboard);
