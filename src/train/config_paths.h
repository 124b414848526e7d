/* Files that a run reads and files that it writes. */
#pragma once
#include "src/train/config.h"

/* FSDP_ERR_INVALID naming two flags whose files are the same, one of which the run would write. */
FSDP_MUST_CHECK fsdp_status fsdp_train_paths_check(const fsdp_train_config *config);
