/* Shared by the files that implement io.h. */
#pragma once
#include "src/base/io.h"

/* Set the message "path: what: <text of errno>" and return the status that fits errno. */
FSDP_PRINTF(2, 3) fsdp_status fsdp_io_error(const char *path, const char *what, ...);
/* Sync a file or folder to the disk. Returns FSDP_OK for kinds of files that cannot be synced
 * (pipes, devices). */
fsdp_status fsdp_io_sync(int fd, const char *path);
fsdp_status fsdp_io_sync_path(const char *path);

/* Infixes of temporary names; see Note [Names of what is unfinished] in unfinished.c. */
#define FSDP_UNFINISHED ".fsdp-tmp-"
#define FSDP_ASIDE ".fsdp-old-"
/* Return a new temporary name next to `path`, owned by the caller. */
char *fsdp_unfinished_name(const char *path, const char *infix);
/* Return the process id in `name` if `name` is a temporary name of `base` with this infix, else
 * 0. */
int fsdp_unfinished_owner(const char *name, const char *base, const char *infix);
/* Whether `name` is a temporary name of `base` that was made by process `pid` or, if `pid` is 0, by
 * any process that has ended. */
bool fsdp_unfinished_is_abandoned(const char *name, const char *base, const char *infix, int pid);
