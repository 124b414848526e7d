/* Finds the token files that a path refers to. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

typedef struct fsdp_path_list {
    char **items; /* [len], each owned */
    size_t len, cap;
} fsdp_path_list;

/* List the token files that `path` refers to. `path` is a file, a folder or a pattern
 * (fsdp_dataset_open()). If `path` is a folder, `validation` chooses: true lists the folder's files
 * for validation, and false lists all its other token files. The list has at least one path, and
 * its paths are sorted by strcmp(). Returns FSDP_ERR_NOT_FOUND if a folder or pattern has no such
 * file. */
FSDP_MUST_CHECK fsdp_status fsdp_token_paths(const char *path, bool validation,
                                             fsdp_path_list *list);
void fsdp_path_list_fini(fsdp_path_list *list);
