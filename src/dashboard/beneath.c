/* See beneath.h. */
#include "src/dashboard/beneath.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static bool is_safe_name(const char *name, size_t n)
{
    return n > 0 && n <= NAME_MAX && !(n == 1 && name[0] == '.') &&
           !(n == 2 && name[0] == '.' && name[1] == '.');
}

/* Open the entry `name` [n] of the folder `dir`, and close `dir`. Return the descriptor of the
 * entry, or -1 on failure. */
static int enter(int dir, const char *name, size_t n, int flags)
{
    char text[NAME_MAX + 1];
    int fd = -1;
    if (is_safe_name(name, n)) {
        memcpy(text, name, n);
        text[n] = 0;
        fd = openat(dir, text, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | flags);
    }
    close(dir);
    return fd;
}

/* Open `relative` below `root`. `flags` apply to its last component. Return the descriptor, or -1
 * on failure. For a file, pass O_NONBLOCK: without it, opening a pipe would wait for a writer. */
static int open_relative(int root, const char *relative, int flags)
{
    int dir = fcntl(root, F_DUPFD_CLOEXEC, 0);
    while (dir >= 0 && *relative) {
        const char *slash = strchr(relative, '/');
        const size_t n = slash ? (size_t)(slash - relative) : strlen(relative);
        dir = enter(dir, relative, n, slash ? O_DIRECTORY : flags);
        relative += n + (slash != NULL);
    }
    return dir;
}

bool fsdp_beneath_open_file(int root, const char *relative, int *fd, struct stat *st)
{
    const int opened = open_relative(root, relative, O_NONBLOCK | O_NOCTTY);
    if (opened < 0)
        return false;
    if (fstat(opened, st) != 0 || !S_ISREG(st->st_mode)) {
        close(opened);
        return false;
    }
    *fd = opened;
    return true;
}

bool fsdp_beneath_open_folder(int root, const char *relative, int *fd)
{
    const int opened = open_relative(root, relative, O_DIRECTORY);
    if (opened < 0)
        return false;
    *fd = opened;
    return true;
}
