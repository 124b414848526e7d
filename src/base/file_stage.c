/* Implements file_stage.h. The caller appends requests to a ring, and the worker takes the oldest
 * request from it. A thread that has to wait sleeps on a condition variable. */
#include "src/base/error.h"
#include "src/base/file_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/file_growth.h"
#include "src/base/io.h"
#include "src/base/io_internal.h"

enum {
    QUEUE = 64,            /* maximum number of queued requests */
    MAX_TRANSFER = 1 << 30 /* bytes per system call; Linux moves at most 2 GiB per call */
};

typedef struct request {
    bool is_write;
    uint64_t offset;
    unsigned char *data;
    size_t bytes;
    fsdp_event *after; /* owned */
} request;

struct fsdp_file_stage {
    int fd;
    char *dir;
    uint64_t reserved;
    pthread_t worker;
    pthread_mutex_t lock;
    /* `queued` is signaled when a request was added or `stopping` was set, `done` when a request
     * has completed. */
    pthread_cond_t queued, done;
    /* The lock protects the fields below. */
    bool stopping;
    /* `last` is the newest request. The request `completed` and all earlier ones have run. */
    fsdp_file_ticket last, completed;
    request requests[QUEUE]; /* request i is requests[i % QUEUE] */
    fsdp_file_ticket failed; /* the first failed request; 0: no request has failed */
    fsdp_saved_error error;  /* the error of the first failed request */
};

/* --- the worker --- */

/* Move bytes of the request, beginning with byte `at`, with one system call. Return the number of
 * bytes moved, or -1 with errno set. */
static ssize_t transfer_some(int fd, const request *r, size_t at)
{
    size_t left = r->bytes - at, n = left < MAX_TRANSFER ? left : MAX_TRANSFER;
    off_t offset = (off_t)(r->offset + at);
    return r->is_write ? fsdp_growing_pwrite(fd, r->data + at, n, offset)
                       : pread(fd, r->data + at, n, offset);
}

static fsdp_status copy_bytes(const fsdp_file_stage *stage, const request *r)
{
    const char *what = r->is_write ? "write" : "read back";
    for (size_t at = 0; at < r->bytes;) {
        ssize_t moved = transfer_some(stage->fd, r, at);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0)
            return fsdp_io_error(stage->dir, "cannot %s %zu bytes of the offload file", what,
                                 r->bytes);
        if (moved == 0)
            return fsdp_error(FSDP_ERR_IO, "%s: the offload file ends at byte %llu, before %llu",
                              stage->dir, (unsigned long long)(r->offset + at),
                              (unsigned long long)(r->offset + r->bytes));
        at += (size_t)moved;
    }
    return FSDP_OK;
}

static fsdp_status run_request(const fsdp_file_stage *stage, const request *r)
{
    FSDP_TRY(fsdp_event_synchronize(r->after));
    return copy_bytes(stage, r);
}

static void note_failure(fsdp_file_stage *stage, fsdp_status status)
{
    stage->failed = stage->completed + 1;
    fsdp_error_save(status, &stage->error);
}

static void *worker_main(void *arg)
{
    fsdp_file_stage *stage = arg;
    pthread_mutex_lock(&stage->lock);
    for (;;) {
        while (stage->completed == stage->last && !stage->stopping)
            pthread_cond_wait(&stage->queued, &stage->lock);
        if (stage->stopping)
            break;
        request r = stage->requests[(stage->completed + 1) % QUEUE];
        bool run = !stage->failed;
        pthread_mutex_unlock(&stage->lock);
        fsdp_status status = run ? run_request(stage, &r) : FSDP_OK;
        fsdp_event_destroy(r.after);
        pthread_mutex_lock(&stage->lock);
        if (status != FSDP_OK)
            note_failure(stage, status);
        stage->completed++;
        pthread_cond_signal(&stage->done);
    }
    pthread_mutex_unlock(&stage->lock);
    return NULL;
}

/* --- creating and destroying --- */

static fsdp_status open_file(fsdp_file_stage *stage)
{
    FSDP_TRY(fsdp_directory_make(stage->dir));
    char *path = fsdp_path_join(stage->dir, "fsdp-offload-XXXXXX");
    if (!path)
        return FSDP_ERR_NOMEM;
    stage->fd = mkostemp(path, O_CLOEXEC);
    fsdp_status status =
        stage->fd < 0 ? fsdp_io_error(stage->dir, "cannot make an offload file there") : FSDP_OK;
    if (status == FSDP_OK && unlink(path) != 0)
        status = fsdp_io_error(path, "cannot unlink the offload file");
    fsdp_free(path);
    return status;
}

static const char *default_dir(void)
{
    const char *dir = getenv("TMPDIR");
    return dir && *dir ? dir : "/tmp";
}

/* Free the stage. Its worker thread must have ended, or must not have been started. */
static void free_stage(fsdp_file_stage *stage)
{
    if (stage->fd >= 0)
        close(stage->fd);
    pthread_cond_destroy(&stage->done);
    pthread_cond_destroy(&stage->queued);
    pthread_mutex_destroy(&stage->lock);
    fsdp_free(stage->dir);
    fsdp_free(stage);
}

static fsdp_status start_worker(fsdp_file_stage *stage)
{
    int error = pthread_create(&stage->worker, NULL, worker_main, stage);
    return error ? fsdp_error(FSDP_ERR_NOMEM, "offload: cannot start a thread: %s", strerror(error))
                 : FSDP_OK;
}

fsdp_status fsdp_file_stage_create(const char *dir, uint64_t bytes, fsdp_file_stage **stage)
{
    fsdp_file_stage *made = fsdp_calloc(1, sizeof *made);
    if (!made)
        return FSDP_ERR_NOMEM;
    made->fd = -1;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->queued, NULL);
    pthread_cond_init(&made->done, NULL);
    made->dir = fsdp_strdup(dir ? dir : default_dir());
    fsdp_status status = made->dir ? open_file(made) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_file_stage_reserve(made, bytes);
    if (status == FSDP_OK)
        status = start_worker(made);
    if (status != FSDP_OK) {
        free_stage(made);
        return status;
    }
    *stage = made;
    return FSDP_OK;
}

void fsdp_file_stage_destroy(fsdp_file_stage *stage)
{
    if (!stage)
        return;
    pthread_mutex_lock(&stage->lock);
    stage->stopping = true;
    pthread_cond_signal(&stage->queued);
    pthread_mutex_unlock(&stage->lock);
    pthread_join(stage->worker, NULL);
    for (fsdp_file_ticket i = stage->completed + 1; i <= stage->last; i++)
        fsdp_event_destroy(stage->requests[i % QUEUE].after);
    free_stage(stage);
}

fsdp_status fsdp_file_stage_reserve(fsdp_file_stage *stage, uint64_t bytes)
{
    if (bytes <= stage->reserved)
        return FSDP_OK;
    int error = EFBIG;
    if (bytes <= INT64_MAX)
        do
            error = fsdp_growing_posix_fallocate(stage->fd, (off_t)stage->reserved,
                                                 (off_t)(bytes - stage->reserved));
        while (error == EINTR);
    if (error) {
        errno = error;
        return fsdp_io_error(stage->dir, "no room for an offload file of %llu bytes",
                             (unsigned long long)bytes);
    }
    stage->reserved = bytes;
    return FSDP_OK;
}

/* --- requests --- */

static fsdp_file_ticket enqueue(fsdp_file_stage *stage, const request *r)
{
    pthread_mutex_lock(&stage->lock);
    while (stage->last - stage->completed == QUEUE)
        pthread_cond_wait(&stage->done, &stage->lock);
    fsdp_file_ticket ticket = ++stage->last;
    stage->requests[ticket % QUEUE] = *r;
    pthread_cond_signal(&stage->queued);
    pthread_mutex_unlock(&stage->lock);
    return ticket;
}

fsdp_file_ticket fsdp_file_stage_write(fsdp_file_stage *stage, uint64_t offset, const void *data,
                                       size_t bytes, fsdp_event *after)
{
    /* The same struct describes reads and writes, so `data` loses its const. For a write, the
     * worker only reads the data. */
    unsigned char *source = (unsigned char *)(uintptr_t)data;
    return enqueue(stage, &(request){true, offset, source, bytes, after});
}

fsdp_file_ticket fsdp_file_stage_read(fsdp_file_stage *stage, uint64_t offset, void *data,
                                      size_t bytes, fsdp_event *after)
{
    return enqueue(stage, &(request){false, offset, data, bytes, after});
}

fsdp_status fsdp_file_stage_peek(const fsdp_file_stage *stage, uint64_t offset, void *data,
                                 size_t bytes)
{
    return copy_bytes(stage, &(request){false, offset, data, bytes, NULL});
}

fsdp_status fsdp_file_stage_wait(fsdp_file_stage *stage, fsdp_file_ticket ticket)
{
    pthread_mutex_lock(&stage->lock);
    while (stage->completed < ticket)
        pthread_cond_wait(&stage->done, &stage->lock);
    bool failed = stage->failed && stage->failed <= ticket;
    pthread_mutex_unlock(&stage->lock);
    /* The worker wrote `error` before this thread read `failed` under the lock, and `error` never
     * changes afterwards. So it can be read without the lock. */
    return failed ? fsdp_error_restore(&stage->error) : FSDP_OK;
}
