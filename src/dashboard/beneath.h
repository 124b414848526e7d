/* Opens files below a folder without leaving it. Symbolic links are never followed, neither as the
 * file nor on the way to it, so a link in a folder that came from somebody else shows nothing of
 * this host. */
#pragma once
#include <sys/stat.h>

#include <fsdp/base.h>

/* Open the regular file or the folder `relative` below the folder `root`, a descriptor, for
 * reading. `relative` is components joined with "/"; "" is the folder itself. Fails quietly, since
 * files come and go while a run goes on: return false if there is no such file or folder, if a
 * component is a symbolic link, "." or "..", or if it is neither a regular file nor a folder. */
bool fsdp_beneath_open_file(int root, const char *relative, int *fd, struct stat *st);
bool fsdp_beneath_open_folder(int root, const char *relative, int *fd);
