/* Functions that the files implementing io.h share. */
#pragma once
#include "src/base/io.h"

/* Set the message "path: what: <text of errno>" and return the status that fits errno. */
FSDP_PRINTF(2, 3) fsdp_status fsdp_io_error(const char *path, const char *what, ...);
/* Sync a file or folder to the disk. fsdp_io_sync() syncs the open file `fd`; its `path` is only
 * for the error message. Return FSDP_OK for pipes, devices and other files that cannot be
 * synced. */
fsdp_status fsdp_io_sync(int fd, const char *path);
fsdp_status fsdp_io_sync_path(const char *path);

/* The infixes that follow PATH in temporary names; see Note [Names of what is unfinished] in
 * unfinished.c. */
#define FSDP_UNFINISHED ".fsdp-tmp-"
#define FSDP_ASIDE ".fsdp-old-"
/* Return a new temporary name for `path`, in the same folder; the caller owns the result. */
char *fsdp_unfinished_name(const char *path, const char *infix);
/* If `name` is a temporary name of `base` with this infix, return the process id in it, and set
 * *is_local to true if that process is or was on this host, else to false. Otherwise return 0. */
int fsdp_unfinished_owner(const char *name, const char *base, const char *infix, bool *is_local);
/* Return false if `name` is not a temporary name of `base` with this infix, or if a process of
 * another host made it. Otherwise, if `pid` is not 0, return true if process `pid` made the name.
 * If `pid` is 0, return true if the process that made the name has ended. */
bool fsdp_unfinished_is_abandoned(const char *name, const char *base, const char *infix, int pid);
