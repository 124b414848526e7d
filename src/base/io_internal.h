/* What the files of io.h share. */
#pragma once
#include "src/base/io.h"

/* "path: what: <errno's text>", with the status that fits errno. */
FSDP_PRINTF(2, 3) fsdp_status fsdp_io_error(const char *path, const char *what, ...);
/* Sync a file or folder to the disk. Kinds that cannot be synced (pipes, devices) count as done. */
fsdp_status fsdp_io_sync(int fd, const char *path);
fsdp_status fsdp_io_sync_path(const char *path);
