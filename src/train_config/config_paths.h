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
/* Return FSDP_ERR_INVALID if there is a regular file at `path` that is not of kind `kind`, since
 * only files that this program wrote may be overwritten. The message names `flag`. Empty files,
 * devices and pipes may always be written. */
FSDP_MUST_CHECK fsdp_status fsdp_train_file_check(const char *flag, const char *path,
                                                  fsdp_train_file kind);
/* Return FSDP_ERR_INVALID if two flags name the same file and the run would write to it, or if the
 * run would overwrite a file of another kind. The message names the flags. */
FSDP_MUST_CHECK fsdp_status fsdp_train_paths_check(const fsdp_train_config *config);
