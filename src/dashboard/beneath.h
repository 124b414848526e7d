/* Opens files below a folder without leaving it. No component of a path may be a symbolic link. So
 * a link in a folder that came from another person cannot show other files of this host. */
#pragma once
#include <sys/stat.h>

#include <fsdp/base.h>

/* Open a regular file (fsdp_beneath_open_file()) or a folder (fsdp_beneath_open_folder()) for
 * reading, and set *fd to its descriptor. `root` is the descriptor of a folder, and `relative` is a
 * path below it; "" is the folder itself. Return false if there is no such file or folder at this
 * path, or if a component is a symbolic link, "." or "..". No error is set, because files appear
 * and disappear while a run continues. @{ */
bool fsdp_beneath_open_file(int root, const char *relative, int *fd, struct stat *st);
bool fsdp_beneath_open_folder(int root, const char *relative, int *fd); /* @} */
