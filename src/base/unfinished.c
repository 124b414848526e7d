/* Makes temporary names for files that are being written, and finds out whether their writers are
 * still running.
 *
 * Note [Names of what is unfinished]. While PATH is being written, the same folder may have two
 * more entries. PATH.fsdp-tmp-PID-HOST-TIME is the new file or directory.
 * PATH.fsdp-old-PID-HOST-TIME is the old directory, which will be removed. PID is the writer's
 * process id. HOST is a hash of the name of the writer's host, in 8 hexadecimal digits. TIME is the
 * time, in 16 hexadecimal digits. If the writer has ended, the next write of PATH on the same host
 * removes such entries, or moves the old directory back if nothing is at PATH. Entries of another
 * host remain, because a process of this host cannot find out whether their writer is still
 * running. The names are long so that no file of a user has such a name by chance. A shorter name
 * such as PATH.old-20251122 could be that of a user's file. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/io_internal.h"

enum {
    HOST_DIGITS = 8,
    TIME_DIGITS = 16
};

/* Return the FNV-1a hash of the host's name. */
static uint32_t host_hash(void)
{
    struct utsname system;
    uint32_t hash = 2166136261u;
    if (uname(&system) != 0)
        return 0;
    for (const char *c = system.nodename; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return hash;
}

char *fsdp_unfinished_name(const char *path, const char *infix)
{
    return fsdp_strdup_printf("%s%s%d-%0*" PRIx32 "-%0*llx", path, infix, (int)getpid(),
                              HOST_DIGITS, host_hash(), TIME_DIGITS,
                              (unsigned long long)fsdp_clock_ns());
}

/* If `text` begins with `count` hexadecimal digits and then `end`, return the value of these
 * digits, else -1. */
static int64_t hexadecimal(const char *text, size_t count, char end)
{
    if (strspn(text, "0123456789abcdef") != count || text[count] != end)
        return -1;
    return (int64_t)(strtoull(text, NULL, 16) & INT64_MAX);
}

int fsdp_unfinished_owner(const char *name, const char *base, const char *infix, bool *is_local)
{
    size_t n = strlen(base), m = strlen(infix);
    if (strncmp(name, base, n) != 0 || strncmp(name + n, infix, m) != 0)
        return 0;
    const char *pid = name + n + m;
    size_t length = strspn(pid, "0123456789");
    if (length == 0 || length >= 10 || pid[length] != '-')
        return 0;
    const char *host = pid + length + 1;
    const int64_t hash = hexadecimal(host, HOST_DIGITS, '-');
    if (hash < 0 || hexadecimal(host + HOST_DIGITS + 1, TIME_DIGITS, 0) < 0)
        return 0;
    *is_local = (uint32_t)hash == host_hash();
    return atoi(pid);
}

/* Return true if all threads of the process have ended, but its parent has not waited for it yet.
 * After a kill, the first thread of a process may be a zombie while other threads are still
 * running; then the process has not ended. */
static bool is_zombie(int pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    const char *fields = strrchr(text, ')'); /* after the process name, which may contain ')' */
    char state = 0;
    int threads = 0;
    /* The third field is the state, and the twentieth is the number of threads. */
    return fields &&
           sscanf(fields, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d",
                  &state, &threads) == 2 &&
           state == 'Z' && threads <= 1;
}

static bool has_ended(int pid)
{
    return (kill(pid, 0) != 0 && errno == ESRCH) || is_zombie(pid);
}

bool fsdp_unfinished_is_abandoned(const char *name, const char *base, const char *infix, int pid)
{
    bool is_local = false;
    const int owner = fsdp_unfinished_owner(name, base, infix, &is_local);
    return owner > 0 && is_local && (pid ? owner == pid : has_ended(owner));
}
