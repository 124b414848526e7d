/* A directory that the ranks of a group write together. */
#pragma once
#include <limits.h>

#include <fsdp/comm.h>

#include "src/base/io.h"

/* Writes this rank's part of what is in `dir`. Collective. */
typedef fsdp_status fsdp_group_directory_fn(void *arg, const char *dir);
/* `write` into a temporary directory that rank 0 makes, and that becomes `path` once all ranks are
 * done: whole or not at all. Collective; a failure of one rank is one of all. group NULL: this rank
 * alone. */
FSDP_MUST_CHECK fsdp_status fsdp_group_directory(const char *path, fsdp_group *group,
                                                 fsdp_existing existing,
                                                 fsdp_group_directory_fn *write, void *arg);
/* Its first half: rank 0 begins *target, which it commits or discards; NULL on others. All learn
 * where to write `meanwhile`. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_group_directory_begin(const char *path, fsdp_group *group,
                                                       fsdp_existing existing,
                                                       fsdp_atomic_directory **target,
                                                       char meanwhile[PATH_MAX]);
