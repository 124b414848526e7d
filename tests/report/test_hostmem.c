/* Host memory of real child processes of known sizes. A child is forked from this process, so its
 * untouched pages are shared with this process and count once, for any process in the tree. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/report/hostmem.h"
#include "tests/test.h"

static const int64_t MiB = 1 << 20;

/* ThreadSanitizer's shadow memory grows with the touched memory. */
#ifdef __SANITIZE_THREAD__
#define SKIP_IF_SIZES_ARE_NOT_OURS() SKIP("sizes include the sanitizer's")
#else
#define SKIP_IF_SIZES_ARE_NOT_OURS() (void)0
#endif

typedef struct child {
    pid_t pid;
    /* the parent's ends of pipes: a byte from the child, a byte to the child */
    int report, command;
} child;

/* The action of a child between two commands: step 0, 1, ... until end of file. */
typedef void child_fn(int step, void *arg);

static child start(child_fn *fn, void *arg)
{
    int report[2], command[2];
    child c = {.pid = -1};
    if (pipe(report) != 0 || pipe(command) != 0)
        return c;
    if ((c.pid = fork()) == 0) {
        char byte = 1;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(report[0]);
        close(command[1]);
        for (int step = 0;; step++) {
            fn(step, arg);
            if (write(report[1], &byte, 1) != 1 || read(command[0], &byte, 1) != 1)
                _exit(0);
        }
    }
    close(report[1]);
    close(command[0]);
    c.report = report[0];
    c.command = command[1];
    return c;
}

static bool wait_done(const child *c)
{
    char byte;
    return read(c->report, &byte, 1) == 1;
}

static bool next(const child *c)
{
    char byte = 1;
    return write(c->command, &byte, 1) == 1 && wait_done(c);
}

static void end(child *c)
{
    close(c->command);
    close(c->report);
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
}

static void touch(unsigned char *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 4096)
        p[i] = 1;
}

/* Step 1 allocates and touches 64 MiB, step 2 frees them. */
static void allocate(int step, void *arg)
{
    static unsigned char *p;
    (void)arg;
    if (step == 1) {
        p = mmap(NULL, (size_t)(64 * MiB), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                 0);
        touch(p, 64 * MiB);
    } else if (step == 2) {
        munmap(p, (size_t)(64 * MiB));
    }
}

TEST(a_child_that_touches_64_mib_has_64_mib_more)
{
    SKIP_IF_SIZES_ARE_NOT_OURS();
    fsdp_hostmem *h;
    fsdp_hostmem_usage before, during, after;
    child c = start(allocate, NULL);
    ASSERT(wait_done(&c));
    ASSERT_OK(fsdp_hostmem_create(&c.pid, 1, &h));
    ASSERT_OK(fsdp_hostmem_sample(h, &before));
    ASSERT_INT(before.processes, 1);
    ASSERT(before.pss_bytes > 0);
    ASSERT(next(&c));
    ASSERT_OK(fsdp_hostmem_sample(h, &during));
    ASSERT_NEAR(during.total_bytes - before.total_bytes, 64 * MiB, MiB);
    ASSERT(next(&c));
    ASSERT_OK(fsdp_hostmem_sample(h, &after));
    ASSERT_NEAR(after.total_bytes, before.total_bytes, MiB);
    int64_t samples;
    ASSERT_INT(fsdp_hostmem_peak(h, &samples).total_bytes, during.total_bytes);
    ASSERT_INT(samples, 3);
    fsdp_hostmem_reset(h);
    ASSERT_INT(fsdp_hostmem_peak(h, &samples).total_bytes, 0);
    ASSERT_INT(samples, 0);
    end(&c);
    /* The process has ended: nothing is counted, and nothing fails. */
    ASSERT_OK(fsdp_hostmem_sample(h, &after));
    ASSERT_INT(after.processes, 0);
    ASSERT_INT(after.total_bytes, 0);
    fsdp_hostmem_destroy(h);
}

/* Step 0 maps and reads the shared 32 MiB, step 1 unmaps them; the descriptor stays open. */
static void map_shared(int step, void *arg)
{
    static unsigned char *p;
    if (step == 0) {
        p = mmap(NULL, (size_t)(32 * MiB), PROT_READ | PROT_WRITE, MAP_SHARED, *(int *)arg, 0);
        touch(p, 32 * MiB);
    } else if (step == 1) {
        munmap(p, (size_t)(32 * MiB));
    }
}

static void keep_open(int step, void *arg)
{
    (void)step;
    (void)arg;
}

TEST(a_memfd_counts_once_mapped_or_not)
{
    SKIP_IF_SIZES_ARE_NOT_OURS();
    fsdp_hostmem *h;
    fsdp_hostmem_usage none, both, one, unmapped;
    child idle[2] = {start(keep_open, NULL), start(keep_open, NULL)};
    ASSERT(wait_done(&idle[0]) && wait_done(&idle[1]));
    pid_t pids[2] = {idle[0].pid, idle[1].pid};
    ASSERT_OK(fsdp_hostmem_create(pids, 2, &h));
    ASSERT_OK(fsdp_hostmem_sample(h, &none));
    fsdp_hostmem_destroy(h);
    /* so that pages shared by fork are divided among the same number of processes as before */
    end(&idle[0]);
    end(&idle[1]);

    int fd = memfd_create("test", MFD_CLOEXEC);
    ASSERT(fd >= 0 && ftruncate(fd, 32 * MiB) == 0);
    child c[2] = {start(map_shared, &fd), start(map_shared, &fd)};
    ASSERT(wait_done(&c[0]) && wait_done(&c[1]));
    pids[0] = c[0].pid, pids[1] = c[1].pid;
    ASSERT_OK(fsdp_hostmem_create(pids, 2, &h));
    ASSERT_OK(fsdp_hostmem_sample(h, &both));
    ASSERT_NEAR(both.total_bytes - none.total_bytes, 32 * MiB, MiB);
    ASSERT(both.unmapped_bytes < MiB);
    ASSERT(both.rss_bytes - none.rss_bytes > 63 * MiB);
    ASSERT(next(&c[0]));
    ASSERT_OK(fsdp_hostmem_sample(h, &one));
    ASSERT_NEAR(one.total_bytes - none.total_bytes, 32 * MiB, MiB);
    ASSERT(next(&c[1]));
    ASSERT_OK(fsdp_hostmem_sample(h, &unmapped));
    ASSERT_NEAR(unmapped.total_bytes - none.total_bytes, 32 * MiB, MiB);
    ASSERT_NEAR(unmapped.unmapped_bytes, 32 * MiB, MiB);
    fsdp_hostmem_destroy(h);
    close(fd);
    end(&c[0]);
    end(&c[1]);
}

/* A grandchild touches the memory; the child waits for its report. */
static void have_child(int step, void *arg)
{
    static child grandchild;
    (void)arg;
    if (step == 0) {
        grandchild = start(allocate, NULL);
        (void)wait_done(&grandchild);
    } else if (step == 1) {
        (void)next(&grandchild);
    }
}

TEST(descendants_are_found_also_below_this_process)
{
    SKIP_IF_SIZES_ARE_NOT_OURS();
    fsdp_hostmem *own, *of_child;
    fsdp_hostmem_usage own_before, own_after, child_before, child_after;
    child c = start(have_child, NULL);
    ASSERT(wait_done(&c));
    ASSERT_OK(fsdp_hostmem_create(NULL, 0, &own));
    ASSERT_OK(fsdp_hostmem_create(&c.pid, 1, &of_child));
    ASSERT_OK(fsdp_hostmem_sample(own, &own_before));
    ASSERT_OK(fsdp_hostmem_sample(of_child, &child_before));
    ASSERT_INT(own_before.processes, 3);
    ASSERT_INT(child_before.processes, 2);
    ASSERT(next(&c));
    ASSERT_OK(fsdp_hostmem_sample(own, &own_after));
    ASSERT_OK(fsdp_hostmem_sample(of_child, &child_after));
    ASSERT_NEAR(own_after.total_bytes - own_before.total_bytes, 64 * MiB, MiB);
    ASSERT_NEAR(child_after.total_bytes - child_before.total_bytes, 64 * MiB, MiB);
    fsdp_hostmem_destroy(own);
    fsdp_hostmem_destroy(of_child);
    end(&c);
}

TEST(the_thread_sees_a_peak_between_explicit_samples)
{
    fsdp_hostmem *h;
    child c = start(allocate, NULL);
    ASSERT(wait_done(&c));
    ASSERT_OK(fsdp_hostmem_create(&c.pid, 1, &h));
    ASSERT_ERROR(fsdp_hostmem_start(h, 0), FSDP_ERR_INVALID, "0");
    ASSERT_OK(fsdp_hostmem_start(h, 50));
    ASSERT_ERROR(fsdp_hostmem_start(h, 50), FSDP_ERR_STATE, "already");
    ASSERT(next(&c));
    double start_s = fsdp_clock_s();
    while (fsdp_hostmem_peak(h, NULL).total_bytes < 64 * MiB && fsdp_clock_s() - start_s < 20)
        usleep(1000);
    ASSERT(next(&c));
    fsdp_hostmem_stop(h);
    int64_t stopped, later;
    ASSERT(fsdp_hostmem_peak(h, &stopped).total_bytes >= 64 * MiB);
    usleep(60000);
    fsdp_hostmem_peak(h, &later);
    ASSERT_INT(later, stopped);
    ASSERT_OK(fsdp_hostmem_start(h, 50)); /* once more; destroy stops it */
    fsdp_hostmem_destroy(h);
    end(&c);
}
