/* Checks that a run does not overwrite files that it reads, or files that another program wrote. */
#pragma once
#include "src/train_config/config.h"

/* Return true if both paths lead to the same file or folder. The file or folder need not exist yet.
 * Return false for devices and pipes, such as /dev/null: two options may name the same device
 * without harm. */
bool fsdp_train_is_same_file(const char *a, const char *b);
/* Kinds of files that a run may overwrite. The kind of an existing file is recognized by its first
 * bytes. */
typedef enum fsdp_train_file {
    FSDP_TRAIN_FILE_METRICS, /* lines of JSON, each with the key "kind" */
    FSDP_TRAIN_FILE_PROFILE, /* JSON */
    FSDP_TRAIN_FILE_PICTURE, /* PNG, SVG or PDF */
} fsdp_train_file;
/* Called before `path` is overwritten. Return FSDP_ERR_INVALID if `path` is a regular file that
 * does not begin like a file of kind `kind`, since another program may have written it. The message
 * names `flag`. Empty files, devices and pipes may always be written. */
FSDP_MUST_CHECK fsdp_status fsdp_train_file_check(const char *flag, const char *path,
                                                  fsdp_train_file kind);
/* Return FSDP_ERR_INVALID if two flags name the same file and the run would write to it. Also
 * return FSDP_ERR_INVALID if the run would overwrite a file of another kind
 * (fsdp_train_file_check()). The message names the flags. */
FSDP_MUST_CHECK fsdp_status fsdp_train_paths_check(const fsdp_train_config *config);
