/* Selects where `fsdp train` reports its metrics, with the options of transformers' Trainer
 * (--report-to, --logging-dir) and of Accelerate's examples (--with-tracking, log_with,
 * project_dir). */
#pragma once
#include "src/train_config/config.h"

typedef enum fsdp_report_to {
    FSDP_REPORT_TENSORBOARD,
    FSDP_REPORT_CSV,
    FSDP_REPORT_JSON
} fsdp_report_to;

/* Return true if the run reports to `to`: --report-to names `to` or is "all", or --with-tracking is
 * given without --report-to. For FSDP_REPORT_JSON, also return true if --dashboard is given without
 * --metrics. */
bool fsdp_train_reports_to(const fsdp_train_config *config, fsdp_report_to to);
/* Return true if the run writes files into --logging-dir. */
bool fsdp_train_has_logging_dir(const fsdp_train_config *config);

/* Called by fsdp_train_config_check(). Return FSDP_ERR_INVALID if --report-to has an unknown name,
 * or words that contradict each other. Return FSDP_ERR_UNSUPPORTED if it names a service on a
 * network and there is no --tracker-command. The message says what to use instead. */
FSDP_MUST_CHECK fsdp_status fsdp_train_report_check(const fsdp_train_config *config);
