/* Files that a run reads and files that it writes. */
#pragma once
#include "src/train/config.h"

/* Do two paths lead to the same file or folder, even one that does not exist yet? false for devices
 * and pipes, which may be written twice: --metrics and --profile to /dev/null. */
bool fsdp_train_is_same_file(const char *a, const char *b);
/* Kinds of files that a run overwrites, and how they begin. */
typedef enum fsdp_train_file {
    FSDP_TRAIN_FILE_METRICS, /* lines of JSON with a "kind" */
    FSDP_TRAIN_FILE_PROFILE, /* JSON */
    FSDP_TRAIN_FILE_PICTURE, /* PNG or SVG */
} fsdp_train_file;
/* FSDP_ERR_INVALID, naming `flag`, if a regular file at `path` is not of that kind, so that no run
 * or command overwrites a file that none wrote. An empty file, a device or a pipe may be written.
 */
FSDP_MUST_CHECK fsdp_status fsdp_train_file_check(const char *flag, const char *path,
                                                  fsdp_train_file kind);
/* FSDP_ERR_INVALID, naming two flags, if their files are the same and the run would write one of
 * them; or naming one flag that would overwrite a file of another kind. */
FSDP_MUST_CHECK fsdp_status fsdp_train_paths_check(const fsdp_train_config *config);
