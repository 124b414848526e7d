/* See guard.h. After fork(), the process only calls functions that are safe in a signal handler,
 * because other threads may hold locks. */
#include "src/cli/common/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/comm/environment.h"

static const double poll_s = 0.25;
/* Peers report the stopped rank first, with what it was doing. mpirun ends them when it is killed.
 */
static const double report_s = 1.0;
/* At most this time is counted from one look to the next. A batch system may suspend all processes
 * of a job, this one, too. */
static const double most_s = 1.0;

/* Return true if the process whose file /proc/PID/stat is `path` is stopped now. Its state follows
 * its name, which is in parentheses. */
static bool is_stopped(const char *path)
{
    char text[512];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'T';
}

static _Noreturn void watch(pid_t rank, const char *path, double limit_s, const char *message)
{
    const struct timespec pause = {.tv_nsec = (long)(poll_s * 1e9)};
    double stopped_s = 0, before_s = fsdp_clock_s();
    for (;;) {
        nanosleep(&pause, NULL);
        const double now_s = fsdp_clock_s();
        const double passed_s = now_s - before_s < most_s ? now_s - before_s : most_s;
        before_s = now_s;
        stopped_s = is_stopped(path) ? stopped_s + passed_s : 0;
        if (stopped_s < limit_s)
            continue;
        (void)!write(STDERR_FILENO, message, strlen(message));
        kill(rank, SIGKILL); /* this process then ends, too */
    }
}

void fsdp_cli_guard_begin(void)
{
    const pid_t rank = getpid();
    int64_t timeout_ns;
    double stall_s;
    char path[64], host[64] = "", message[256];
    sigset_t all, before;
    if (fsdp_read_limits(&timeout_ns, &stall_s) != FSDP_OK || stall_s <= 0)
        return;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)rank);
    gethostname(host, sizeof host - 1);
    const double limit_s = fsdp_remote_stall_s(stall_s) + report_s;
    snprintf(message, sizeof message,
             "fsdp: process %d on host %s has been stopped for %.1f s (by a signal or a debugger), "
             "and is killed; FSDP_STALL_S=0 leaves it alone\n",
             (int)rank, host, limit_s);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "fsdp-guard");
        close_range(STDIN_FILENO, STDOUT_FILENO, 0);
        close_range(STDERR_FILENO + 1, ~0U, 0);
        if (getppid() == rank)
            watch(rank, path, limit_s, message);
        _exit(0);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}
