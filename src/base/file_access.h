/* Who may read and write a file that replaces another. */
#pragma once

/* If there is a file `path`, give the open file `fd` the permissions, the group and, if this
 * process may, the owner of that file, because `fd` will replace it. If the group cannot be kept,
 * the members of the group of `fd` get only what all users get. A failure is ignored. */
void fsdp_file_copy_access(int fd, const char *path);
