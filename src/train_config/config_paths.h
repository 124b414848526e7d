/* Checks that a run does not overwrite files that it reads, or files that another program wrote. */
#pragma once
#include "src/train_config/config.h"

/* Do two paths lead to the same file or folder? It need not exist yet. False for devices and pipes,
 * because several options may name the same one, such as /dev/null. */
bool fsdp_train_is_same_file(const char *a, const char *b);
/* Kinds of files that a run overwrites. The kind of an existing file is recognised by its first
 * bytes. */
typedef enum fsdp_train_file {
    FSDP_TRAIN_FILE_METRICS, /* lines of JSON, each with a "kind" */
    FSDP_TRAIN_FILE_PROFILE, /* JSON */
    FSDP_TRAIN_FILE_PICTURE, /* PNG or SVG */
} fsdp_train_file;
/* FSDP_ERR_INVALID, naming `flag`, if there is a regular file at `path` that is not of kind `kind`,
 * since only files that this program wrote may be overwritten. Empty files, devices and pipes may
 * always be written. */
FSDP_MUST_CHECK fsdp_status fsdp_train_file_check(const char *flag, const char *path,
                                                  fsdp_train_file kind);
/* FSDP_ERR_INVALID, naming two flags, if they name the same file and the run would write it.
 * FSDP_ERR_INVALID, naming one flag, if the run would overwrite a file of another kind. */
FSDP_MUST_CHECK fsdp_status fsdp_train_paths_check(const fsdp_train_config *config);
