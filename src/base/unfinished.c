/* Makes temporary names for files that are being written, and finds out whether their writers are
 * still running.
 *
 * Note [Names of what is unfinished]. While PATH is being written, up to two entries are next to
 * it. PATH.fsdp-tmp-PID-HEX is the new file or directory. PATH.fsdp-old-PID-HEX is the old
 * directory, which will be removed. PID is the writer's process id, and HEX is the time in 16
 * hexadecimal digits. If the writer has ended, the next write of PATH removes such entries, or
 * moves the old directory back if nothing is at PATH. The names are long so that no file of a user
 * has such a name by chance. A shorter name such as PATH.old-20251122 could be that of a user's
 * file. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/io_internal.h"

enum {
    TIME_DIGITS = 16
};

char *fsdp_unfinished_name(const char *path, const char *infix)
{
    return fsdp_strdup_printf("%s%s%d-%0*llx", path, infix, (int)getpid(), TIME_DIGITS,
                              (unsigned long long)fsdp_clock_ns());
}

int fsdp_unfinished_owner(const char *name, const char *base, const char *infix)
{
    size_t n = strlen(base), m = strlen(infix);
    if (strncmp(name, base, n) != 0 || strncmp(name + n, infix, m) != 0)
        return 0;
    const char *digits = name + n + m;
    size_t length = strspn(digits, "0123456789");
    if (length == 0 || length >= 10 || digits[length] != '-')
        return 0;
    const char *time = digits + length + 1;
    return strspn(time, "0123456789abcdef") == TIME_DIGITS && time[TIME_DIGITS] == 0 ? atoi(digits)
                                                                                     : 0;
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
    const int owner = fsdp_unfinished_owner(name, base, infix);
    return owner > 0 && (pid ? owner == pid : has_ended(owner));
}
