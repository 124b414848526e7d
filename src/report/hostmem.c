/* Measures the memory of a process tree. A sample reads /proc/PID/stat of every process to find the
 * processes of the tree. For each of these, it reads smaps_rollup and looks for memfds among the
 * file descriptors. The sum of Pss_Shmem over the processes is the mapped part of all memfds
 * together, so the sampler does not need the mapped part of each memfd. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/report/hostmem.h"

typedef struct process {
    pid_t pid, parent;
    bool in_tree;
} process;

typedef struct memfd {
    dev_t device;
    ino_t inode;
    int64_t bytes; /* bytes of the blocks that are allocated to the memfd */
} memfd;

/* The processes and memfds that a sample finds. The next sample reuses the arrays. */
typedef struct walk {
    process *processes;
    size_t n_processes, processes_cap;
    memfd *memfds;
    size_t n_memfds, memfds_cap;
} walk;

struct fsdp_hostmem {
    pid_t *roots;
    size_t n_roots;
    pthread_mutex_t lock; /* guards walk, peak and samples */
    walk walk;
    fsdp_hostmem_usage peak;
    int64_t samples;

    /* true: the thread has been started. Used only by the caller that starts and stops sampling. */
    bool running;
    pthread_t thread;
    double period_s;
    pthread_mutex_t stop_lock; /* guards `stopping`; used with stop_changed */
    pthread_cond_t stop_changed;
    bool stopping;
};

/* --- reading /proc --- */

/* Read the file into `text` as a string of at most bytes - 1 characters. Returns false if the file
 * cannot be read or is empty. */
static bool read_file(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t used = 0;
    ssize_t n = 0;
    while (used + 1 < bytes && (n = read(fd, text + used, bytes - 1 - used)) > 0)
        used += (size_t)n;
    close(fd);
    text[used] = 0;
    return n >= 0 && used > 0;
}

/* Read the parent's pid from /proc/PID/stat. The name of the command may contain spaces and
 * brackets, so the fields are read after the last ")". */
static bool read_parent(pid_t pid, pid_t *parent)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (!read_file(path, text, sizeof text))
        return false;
    const char *end = strrchr(text, ')');
    int ppid;
    if (!end || sscanf(end, ") %*c %d", &ppid) != 1)
        return false;
    *parent = ppid;
    return true;
}

static bool is_root(const pid_t *roots, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++)
        if (roots[i] == pid)
            return true;
    return false;
}

static int compare_pids(const void *a, const void *b)
{
    pid_t x = ((const process *)a)->pid, y = ((const process *)b)->pid;
    return (x > y) - (x < y);
}

static const process *find_process(const walk *w, pid_t pid)
{
    process key = {.pid = pid};
    if (!w->n_processes)
        return NULL;
    return bsearch(&key, w->processes, w->n_processes, sizeof key, compare_pids);
}

/* Set in_tree of the roots and of all their descendants. Each round of the loop marks the
 * processes whose parent is already marked. The loop ends after a round that marks no process. */
static void mark_tree(walk *w, const pid_t *roots, size_t n_roots)
{
    for (size_t i = 0; i < w->n_processes; i++)
        w->processes[i].in_tree = is_root(roots, n_roots, w->processes[i].pid);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < w->n_processes; i++) {
            process *p = &w->processes[i];
            const process *parent = p->in_tree ? NULL : find_process(w, p->parent);
            if (parent && parent->in_tree)
                changed = p->in_tree = true;
        }
    }
}

static fsdp_status list_processes(walk *w)
{
    DIR *directory = opendir("/proc");
    if (!directory)
        return fsdp_error(FSDP_ERR_IO, "/proc: %s", strerror(errno));
    w->n_processes = 0;
    fsdp_status status = FSDP_OK;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        pid_t parent;
        if (*end || pid <= 0 || !read_parent((pid_t)pid, &parent))
            continue;
        if (!FSDP_GROW(w->processes, w->processes_cap, w->n_processes + 1)) {
            status = FSDP_ERR_NOMEM;
            break;
        }
        w->processes[w->n_processes++] = (process){(pid_t)pid, parent, false};
    }
    closedir(directory);
    if (w->n_processes)
        qsort(w->processes, w->n_processes, sizeof *w->processes, compare_pids);
    return status;
}

/* Return the number of bytes in a line of smaps_rollup, such as "Pss: 1234 kB". `name` is the
 * beginning of the line, such as "\nPss:". Returns 0 if there is no such line. */
static int64_t rollup_bytes(const char *text, const char *name)
{
    const char *line = strstr(text, name);
    return line ? strtoll(line + strlen(name), NULL, 10) * 1024 : 0;
}

static bool add_rollup(pid_t pid, fsdp_hostmem_usage *usage, int64_t *shmem_bytes)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    if (!read_file(path, text, sizeof text))
        return false;
    usage->rss_bytes += rollup_bytes(text, "\nRss:");
    usage->pss_bytes += rollup_bytes(text, "\nPss:");
    *shmem_bytes += rollup_bytes(text, "\nPss_Shmem:");
    usage->processes++;
    return true;
}

static fsdp_status add_memfd(walk *w, const struct stat *st)
{
    for (size_t i = 0; i < w->n_memfds; i++) {
        memfd *known = &w->memfds[i];
        if (known->device == st->st_dev && known->inode == st->st_ino) {
            known->bytes = (int64_t)st->st_blocks * 512;
            return FSDP_OK;
        }
    }
    if (!FSDP_GROW(w->memfds, w->memfds_cap, w->n_memfds + 1))
        return FSDP_ERR_NOMEM;
    w->memfds[w->n_memfds++] = (memfd){st->st_dev, st->st_ino, (int64_t)st->st_blocks * 512};
    return FSDP_OK;
}

static fsdp_status add_memfds_of(walk *w, pid_t pid)
{
    static const char prefix[] = "/memfd:";
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    if (!directory)
        return FSDP_OK; /* the process has ended */
    fsdp_status status = FSDP_OK;
    for (struct dirent *entry; status == FSDP_OK && (entry = readdir(directory));) {
        char target[sizeof prefix];
        struct stat st;
        ssize_t n = readlinkat(dirfd(directory), entry->d_name, target, sizeof prefix - 1);
        if (n == sizeof prefix - 1 && memcmp(target, prefix, (size_t)n) == 0 &&
            fstatat(dirfd(directory), entry->d_name, &st, 0) == 0)
            status = add_memfd(w, &st);
    }
    closedir(directory);
    return status;
}

static fsdp_status take_sample(walk *w, const pid_t *roots, size_t n_roots,
                               fsdp_hostmem_usage *usage)
{
    fsdp_hostmem_usage sum = {0};
    int64_t shmem_bytes = 0, memfd_bytes = 0;
    FSDP_TRY(list_processes(w));
    mark_tree(w, roots, n_roots);
    w->n_memfds = 0;
    for (size_t i = 0; i < w->n_processes; i++) {
        const process *p = &w->processes[i];
        if (p->in_tree && add_rollup(p->pid, &sum, &shmem_bytes))
            FSDP_TRY(add_memfds_of(w, p->pid));
    }
    for (size_t i = 0; i < w->n_memfds; i++)
        memfd_bytes += w->memfds[i].bytes;
    sum.unmapped_bytes = memfd_bytes > shmem_bytes ? memfd_bytes - shmem_bytes : 0;
    sum.total_bytes = sum.pss_bytes + sum.unmapped_bytes;
    *usage = sum;
    return FSDP_OK;
}

/* --- sampling --- */

fsdp_status fsdp_hostmem_create(const pid_t *roots, size_t n, fsdp_hostmem **out)
{
    pid_t self = getpid();
    if (!n) {
        roots = &self;
        n = 1;
    }
    fsdp_hostmem *h = fsdp_calloc(1, sizeof *h);
    if (!h)
        return FSDP_ERR_NOMEM;
    h->roots = fsdp_calloc(n, sizeof *h->roots);
    if (!h->roots) {
        fsdp_free(h);
        return FSDP_ERR_NOMEM;
    }
    memcpy(h->roots, roots, n * sizeof *roots);
    h->n_roots = n;
    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_init(&h->stop_lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&h->stop_changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = h;
    return FSDP_OK;
}

void fsdp_hostmem_destroy(fsdp_hostmem *h)
{
    if (!h)
        return;
    fsdp_hostmem_stop(h);
    pthread_cond_destroy(&h->stop_changed);
    pthread_mutex_destroy(&h->stop_lock);
    pthread_mutex_destroy(&h->lock);
    fsdp_free(h->walk.processes);
    fsdp_free(h->walk.memfds);
    fsdp_free(h->roots);
    fsdp_free(h);
}

fsdp_status fsdp_hostmem_sample(fsdp_hostmem *h, fsdp_hostmem_usage *usage)
{
    fsdp_hostmem_usage now;
    pthread_mutex_lock(&h->lock);
    fsdp_status status = take_sample(&h->walk, h->roots, h->n_roots, &now);
    if (status == FSDP_OK) {
        h->samples++;
        if (now.total_bytes > h->peak.total_bytes)
            h->peak = now;
    }
    pthread_mutex_unlock(&h->lock);
    if (status == FSDP_OK && usage)
        *usage = now;
    return status;
}

fsdp_hostmem_usage fsdp_hostmem_peak(fsdp_hostmem *h, int64_t *samples)
{
    pthread_mutex_lock(&h->lock);
    fsdp_hostmem_usage peak = h->peak;
    if (samples)
        *samples = h->samples;
    pthread_mutex_unlock(&h->lock);
    return peak;
}

void fsdp_hostmem_reset(fsdp_hostmem *h)
{
    pthread_mutex_lock(&h->lock);
    h->peak = (fsdp_hostmem_usage){0};
    h->samples = 0;
    pthread_mutex_unlock(&h->lock);
}

static struct timespec timespec_from_ns(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* The body of the thread: take samples until sampling is stopped. A sample that fails (out of
 * memory, no /proc) is ignored. Callers can notice this from the number of samples. */
static void *sampler(void *arg)
{
    fsdp_hostmem *h = arg;
    int64_t next_ns = fsdp_clock_ns();
    pthread_mutex_lock(&h->stop_lock);
    while (!h->stopping) {
        pthread_mutex_unlock(&h->stop_lock);
        fsdp_status ignored = fsdp_hostmem_sample(h, NULL);
        (void)ignored;
        int64_t now_ns = fsdp_clock_ns();
        next_ns += (int64_t)(h->period_s * 1e9);
        /* Wait at least 10 ms, even if the sample took longer than the period. */
        if (next_ns < now_ns + 10000000)
            next_ns = now_ns + 10000000;
        struct timespec next = timespec_from_ns(next_ns);
        pthread_mutex_lock(&h->stop_lock);
        while (!h->stopping &&
               pthread_cond_timedwait(&h->stop_changed, &h->stop_lock, &next) != ETIMEDOUT)
            ;
    }
    pthread_mutex_unlock(&h->stop_lock);
    return NULL;
}

fsdp_status fsdp_hostmem_start(fsdp_hostmem *h, double hz)
{
    if (h->running)
        return fsdp_error(FSDP_ERR_STATE, "the memory sampler is already running");
    if (!(hz > 0 && hz <= 100))
        return fsdp_error(FSDP_ERR_INVALID, "memory samples per second: %g (0 < hz <= 100)", hz);
    h->period_s = 1 / hz;
    h->stopping = false;
    /* Block all signals in the new thread, so that they are delivered to the caller's threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&h->thread, NULL, sampler, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return fsdp_error(FSDP_ERR_IO, "memory sampler: thread: %s", strerror(error));
    h->running = true;
    return FSDP_OK;
}

void fsdp_hostmem_stop(fsdp_hostmem *h)
{
    if (!h->running)
        return;
    pthread_mutex_lock(&h->stop_lock);
    h->stopping = true;
    pthread_cond_signal(&h->stop_changed);
    pthread_mutex_unlock(&h->stop_lock);
    pthread_join(h->thread, NULL);
    h->running = false;
}
