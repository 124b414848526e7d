/* Files that a run reads and files that it writes. */
#pragma once
#include "src/train/config.h"

/* Do two paths lead to one file or folder, be it one that is not there yet? Devices and pipes may
 * be written twice: --metrics and --profile to /dev/null. */
bool fsdp_train_is_same_file(const char *a, const char *b);
/* What a file that is written over begins with. */
typedef enum fsdp_train_file {
    FSDP_TRAIN_FILE_METRICS, /* lines of JSON with a "kind" */
    FSDP_TRAIN_FILE_PROFILE, /* JSON */
    FSDP_TRAIN_FILE_PICTURE, /* PNG or SVG */
} fsdp_train_file;
/* FSDP_ERR_INVALID naming `flag` if a regular file at `path` is not of that kind: a run or a
 * command would overwrite something that none wrote. An empty file, a device or a pipe may be
 * written. */
FSDP_MUST_CHECK fsdp_status fsdp_train_file_check(const char *flag, const char *path,
                                                  fsdp_train_file kind);
/* FSDP_ERR_INVALID naming two flags whose files are the same, one of which the run would write, or
 * one that would overwrite a file of another kind. */
FSDP_MUST_CHECK fsdp_status fsdp_train_paths_check(const fsdp_train_config *config);
