/* Finds the token files that a path refers to. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

typedef struct fsdp_path_list {
    char **items; /* [len], each owned */
    size_t len, cap;
} fsdp_path_list;

/* `path` is a file, a folder or a pattern, see fsdp_dataset_open(). Returns at least one path,
 * sorted by bytes. FSDP_ERR_NOT_FOUND if there is none. */
FSDP_MUST_CHECK fsdp_status fsdp_token_paths(const char *path, bool validation,
                                             fsdp_path_list *list);
void fsdp_path_list_fini(fsdp_path_list *list);
