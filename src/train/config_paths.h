/* Files that a run reads and files that it writes. */
#pragma once
#include "src/train/config.h"

/* Do two paths lead to one file or folder, be it one that is not there yet? Devices and pipes may
 * be written twice: --metrics and --profile to /dev/null. */
bool fsdp_train_is_same_file(const char *a, const char *b);
/* FSDP_ERR_INVALID naming two flags whose files are the same, one of which the run would write. */
FSDP_MUST_CHECK fsdp_status fsdp_train_paths_check(const fsdp_train_config *config);
