/* Who may read and write a file that replaces another. */
#pragma once

/* The open file `fd` will replace the file `path`. If `path` exists, give `fd` its permissions, its
 * group and, if this process may, its owner. If `fd` cannot get the group, the members of its own
 * group get only the permissions that all users have. A failure is ignored. */
void fsdp_file_copy_access(int fd, const char *path);
