/* What the files of io.h share. */
#pragma once
#include "src/base/io.h"

/* "path: what: <errno's text>", with the status that fits errno. */
FSDP_PRINTF(2, 3) fsdp_status fsdp_io_error(const char *path, const char *what, ...);
/* Sync a file or folder to the disk. Kinds that cannot be synced (pipes, devices) count as done. */
fsdp_status fsdp_io_sync(int fd, const char *path);
fsdp_status fsdp_io_sync_path(const char *path);

/* Infixes of Note [Names of what is unfinished] in unfinished.c. */
#define FSDP_UNFINISHED ".fsdp-tmp-"
#define FSDP_ASIDE ".fsdp-old-"
/* A name for something beside `path`, the caller's. */
char *fsdp_unfinished_name(const char *path, const char *infix);
/* The process whose name for something beside `base` is `name`; else 0. */
int fsdp_unfinished_owner(const char *name, const char *base, const char *infix);
/* Was it left beside `base` by process `pid`; 0: by any that has ended? */
bool fsdp_unfinished_is_left(const char *name, const char *base, const char *infix, int pid);
