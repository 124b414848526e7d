/* See guard.h. After fork(), the guard calls no function that takes a lock or allocates memory,
 * because other threads may hold locks. snprintf() does neither for integers and strings. */
#include "src/cli/common/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/comm/environment.h"
#include "src/comm/watched.h"

static const double poll_s = 0.25;
/* The guard waits this much longer than the rank's peers on the same host, so that the peers report
 * the stopped rank first. */
static const double report_s = 1.0;
/* The time between two checks counts as at most most_s. A batch system may suspend all processes of
 * a job, including this process, and the time of the suspension must not count. */
static const double most_s = 1.0;

/* Return true if the process whose file /proc/PID/stat is `path` is stopped now. In the file, the
 * state follows the name, which is in parentheses. */
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

typedef struct guarded {
    pid_t rank;
    char path[64]; /* the rank's /proc/PID/stat */
    char host[64];
    double limit_s;
    const fsdp_comm_watched *watched; /* what the rank is doing; NULL: unknown */
} guarded;

static void report(const guarded *g)
{
    char where[160] = "", who[64], message[512];
    const int32_t rank_plus_1 = g->watched ? atomic_load(&g->watched->rank_plus_1) : 0;
    if (rank_plus_1) {
        const fsdp_comm_location at = fsdp_comm_place_get(&g->watched->at);
        fsdp_comm_location_describe(&at, where, sizeof where);
        snprintf(who, sizeof who, "rank %d", rank_plus_1 - 1);
    } else {
        snprintf(who, sizeof who, "process %d", (int)g->rank);
    }
    const int n =
        snprintf(message, sizeof message,
                 "fsdp: %s%s: stopped for %d s (by a signal or a debugger) on host %s, and "
                 "is killed; FSDP_STALL_S=0 leaves it alone\n",
                 who, where, (int)(g->limit_s + 0.5), g->host);
    if (n > 0)
        (void)!write(STDERR_FILENO, message, strlen(message));
}

static _Noreturn void watch(const guarded *g)
{
    const struct timespec pause = {.tv_nsec = (long)(poll_s * 1e9)};
    double stopped_s = 0, before_s = fsdp_clock_s();
    for (;;) {
        nanosleep(&pause, NULL);
        const double now_s = fsdp_clock_s();
        const double passed_s = now_s - before_s < most_s ? now_s - before_s : most_s;
        before_s = now_s;
        stopped_s = is_stopped(g->path) ? stopped_s + passed_s : 0;
        if (stopped_s < g->limit_s)
            continue;
        report(g);
        kill(g->rank, SIGKILL); /* the guard then ends, too */
    }
}

/* Make shared memory in which this process records its rank and what it is doing. Return NULL when
 * out of memory; the report then names the process instead of the rank. */
static fsdp_comm_watched *share_location(void)
{
    void *memory = mmap(NULL, sizeof(fsdp_comm_watched), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    fsdp_comm_set_watched(memory);
    return memory;
}

void fsdp_cli_guard_begin(void)
{
    guarded g = {.rank = getpid()};
    int64_t timeout_ns;
    double stall_s;
    sigset_t all, before;
    if (fsdp_read_limits(&timeout_ns, &stall_s) != FSDP_OK || stall_s <= 0)
        return;
    snprintf(g.path, sizeof g.path, "/proc/%d/stat", (int)g.rank);
    gethostname(g.host, sizeof g.host - 1);
    g.limit_s = stall_s + report_s;
    g.watched = share_location();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "fsdp-guard");
        close_range(STDIN_FILENO, STDOUT_FILENO, 0);
        close_range(STDERR_FILENO + 1, ~0U, 0);
        if (getppid() == g.rank)
            watch(&g);
        _exit(0);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}
