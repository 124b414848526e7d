/* For LD_PRELOAD by soak.sh: makes one call on a checkpoint's files fail, as on a bad disk.
 * SOAK_FAULT=CALL:N:ERRNO, where CALL is write (also pwrite), fsync, rename (also renameat2) or
 * remove. The N-th of these calls fails, and all later ones; if ERRNO is 0, the process is killed
 * there. Only calls whose path contains "checkpoint-" count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int calls;

/* True if this call must fail. */
static bool is_due(const char *call, const char *path)
{
    const char *fault = getenv("SOAK_FAULT");
    size_t n = strlen(call);
    if (!fault || strncmp(fault, call, n) != 0 || fault[n] != ':' || !strstr(path, "checkpoint-"))
        return false;
    char *end;
    long from = strtol(fault + n + 1, &end, 10);
    if (atomic_fetch_add(&calls, 1) + 1 < from)
        return false;
    errno = atoi(end + 1);
    if (errno == 0)
        raise(SIGKILL);
    return true;
}

static bool is_due_on(const char *call, int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return is_due(call, path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t bytes)
{
    return is_due_on("write", fd) ? -1 : NEXT(write)(fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    return is_due_on("write", fd) ? -1 : NEXT(pwrite)(fd, data, bytes, at);
}

int fsync(int fd)
{
    return is_due_on("fsync", fd) ? -1 : NEXT(fsync)(fd);
}

int rename(const char *from, const char *to)
{
    return is_due("rename", to) ? -1 : NEXT(rename)(from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return is_due("rename", to) ? -1 : NEXT(renameat2)(from_dir, from, to_dir, to, flags);
}

int remove(const char *path)
{
    return is_due("remove", path) ? -1 : NEXT(remove)(path);
}
