/* See file_growth.h. */
#include "src/base/file_growth.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef struct guard {
    bool blocks;     /* the thread's signal mask was changed */
    sigset_t before; /* the signal mask before it was changed */
} guard;

static bool is_pending(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

/* If the size of files is limited, block SIGXFSZ in this thread. Do nothing if a SIGXFSZ is pending
 * already: the program has then blocked this signal itself, and expects to receive the pending
 * one. */
static guard begin(void)
{
    struct rlimit limit;
    sigset_t signals;
    guard g = {0};
    if ((getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY) || is_pending())
        return g;
    sigemptyset(&signals);
    sigaddset(&signals, SIGXFSZ);
    g.blocks = pthread_sigmask(SIG_BLOCK, &signals, &g.before) == 0;
    return g;
}

/* Discard SIGXFSZ if the system call has raised it, and restore the signal mask. errno is not
 * changed. */
static void end(const guard *g)
{
    const int error = errno;
    if (!g->blocks)
        return;
    if (is_pending()) {
        static const struct timespec at_once = {0};
        sigset_t signals;
        sigemptyset(&signals);
        sigaddset(&signals, SIGXFSZ);
        while (sigtimedwait(&signals, NULL, &at_once) < 0 && errno == EINTR)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &g->before, NULL);
    errno = error;
}

ssize_t fsdp_growing_write(int fd, const void *bytes, size_t n)
{
    const guard g = begin();
    const ssize_t written = write(fd, bytes, n);
    end(&g);
    return written;
}

ssize_t fsdp_growing_pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    const guard g = begin();
    const ssize_t written = pwrite(fd, bytes, n, at);
    end(&g);
    return written;
}

int fsdp_growing_truncate(int fd, off_t bytes)
{
    const guard g = begin();
    const int result = ftruncate(fd, bytes);
    end(&g);
    return result;
}

int fsdp_growing_fallocate(int fd, off_t at, off_t bytes)
{
    const guard g = begin();
    const int result = fallocate(fd, 0, at, bytes);
    end(&g);
    return result;
}

int fsdp_growing_posix_fallocate(int fd, off_t at, off_t bytes)
{
    const guard g = begin();
    const int error = posix_fallocate(fd, at, bytes);
    end(&g);
    return error;
}
