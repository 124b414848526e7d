/* The stream of the fake device (stream_testing.h). Commands are stored one after another in a ring
 * of bytes. A command never wraps around the end of the ring. One lock protects the stream. The
 * worker thread releases the lock while it sleeps or runs a command. */
#include "src/kernels/fake/stream_testing.h"

#include "src/base/error.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"

enum {
    RING_BYTES = 1 << 20,
    MOST_BYTES = RING_BYTES / 4, /* maximum size of a command in bytes */
    ALIGN = 16,
    MOST_BEHIND_HELD = 100
};

typedef struct command {
    /* The function that runs the command. NULL: the rest of the ring is unused, and the next
     * command is at the start of the ring. */
    fsdp_fake_command *run;
    size_t bytes; /* size of this struct together with the arguments and the arrays after it */
} command;

struct fsdp_fake_stream {
    fsdp_kernel_context *context; /* the context of the CPU's kernels, which run the commands */
    const fsdp_kernels *kernels;
    fsdp_fake_access access;
    /* Used only by the worker: true while the worker has made the device's memory accessible. */
    bool is_open;
    uint64_t seed;
    int delay_us;
    pthread_t worker;
    bool has_worker;
    pthread_mutex_t lock;
    /* `queued` is signaled when the worker has something to do. `done` is signaled when a command
     * has run. */
    pthread_cond_t queued, done;
    /* The lock protects the fields below. */
    bool stopping;
    /* `launched` is the number of commands launched so far, and `completed` is the number of
     * commands completed so far. `wanted` is the largest value of `completed` that any thread has
     * waited for. */
    uint64_t launched, completed, wanted;
    /* `head` is the number of bytes written to the ring so far, and `tail` is the number of bytes
     * read from it so far. Byte number i of the stream is stored at ring[i % RING_BYTES]. */
    uint64_t head, tail;
    unsigned char *ring;
    fsdp_saved_error error; /* the first failure */
};

/* --- the worker --- */

static void sleep_us(int64_t us)
{
    const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

typedef struct delay {
    int64_t us;
    bool is_held;
} delay;

static delay delay_of(const fsdp_fake_stream *s, uint64_t number)
{
    const fsdp_philox r = fsdp_philox4x32(s->seed, number, 0);
    delay d = {0};
    if (!s->delay_us)
        return d;
    if (r.v[0] % 512 == 0)
        d.us = (int64_t)(r.v[1] % (10 * (uint32_t)s->delay_us + 1));
    else if (r.v[0] % 8 == 1)
        d.us = (int64_t)(r.v[1] % ((uint32_t)s->delay_us + 1));
    d.is_held = r.v[2] % 16 == 0;
    return d;
}

static bool has_to_run(const fsdp_fake_stream *s)
{
    return s->stopping || s->wanted > s->completed || s->launched - s->completed > MOST_BEHIND_HELD;
}

/* Return the oldest command, which stays in the ring until it has run. The caller must hold the
 * lock. */
static const command *oldest(fsdp_fake_stream *s)
{
    const command *c = (const void *)(s->ring + s->tail % RING_BYTES);
    if (c->run)
        return c;
    s->tail += c->bytes;
    return (const void *)(s->ring + s->tail % RING_BYTES);
}

/* Make the device's memory accessible or inaccessible. Only the worker calls this. */
static void set_open(fsdp_fake_stream *s, bool is_open)
{
    if (s->is_open == is_open || !s->access.open)
        return;
    (is_open ? s->access.open : s->access.close)(s->access.self);
    s->is_open = is_open;
}

/* Return true if the device's memory may stay accessible after the oldest command has run, because
 * no thread waits for this command and the next command follows at once. Making the memory
 * inaccessible and accessible again takes long. */
static bool stays_open(const fsdp_fake_stream *s)
{
    const uint64_t next = s->completed + 1;
    const delay d = delay_of(s, next);
    return s->launched > next && s->wanted != next && !d.us && (!d.is_held || has_to_run(s));
}

/* Run the oldest command. The caller must hold the lock, which is released while the worker sleeps
 * and while the command runs. */
static void run_oldest(fsdp_fake_stream *s)
{
    const command *c = oldest(s);
    const delay d = delay_of(s, s->completed);
    while (d.is_held && !has_to_run(s))
        pthread_cond_wait(&s->queued, &s->lock);
    const bool runs = s->error.status == FSDP_OK;
    pthread_mutex_unlock(&s->lock);
    if (d.us)
        sleep_us(d.us);
    set_open(s, true);
    const fsdp_status status = runs ? c->run(s->kernels, s->context, c + 1) : FSDP_OK;
    pthread_mutex_lock(&s->lock);
    if (!stays_open(s))
        set_open(s, false);
    if (status != FSDP_OK)
        fsdp_error_save(status, &s->error);
    s->tail += c->bytes;
    s->completed++;
    pthread_cond_broadcast(&s->done);
}

static void *worker_main(void *arg)
{
    fsdp_fake_stream *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->completed == s->launched && !s->stopping)
            pthread_cond_wait(&s->queued, &s->lock);
        if (s->completed == s->launched)
            break;
        run_oldest(s);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- waiting --- */

/* Wait until the first `number` commands have completed. The caller must hold the lock. */
static void wait_for(fsdp_fake_stream *s, uint64_t number)
{
    if (s->wanted < number)
        s->wanted = number;
    pthread_cond_signal(&s->queued);
    while (s->completed < number)
        pthread_cond_wait(&s->done, &s->lock);
}

/* Wait until the first `number` commands have completed. If fewer commands have been launched, wait
 * until all of them have completed. Return the first failure. */
static fsdp_status synchronize(fsdp_fake_stream *s, uint64_t number)
{
    pthread_mutex_lock(&s->lock);
    wait_for(s, number < s->launched ? number : s->launched);
    const fsdp_status status = s->error.status;
    pthread_mutex_unlock(&s->lock);
    /* The error is written only once, so it can be read without the lock. */
    return status == FSDP_OK ? FSDP_OK : fsdp_error_restore(&s->error);
}

fsdp_status fsdp_fake_synchronize(fsdp_fake_stream *s)
{
    return synchronize(s, UINT64_MAX);
}

typedef struct fake_event {
    fsdp_event base;
    fsdp_fake_stream *stream;
    uint64_t number;
} fake_event;

static fsdp_status event_synchronize(fsdp_event *event)
{
    const fake_event *e = (const void *)event;
    return synchronize(e->stream, e->number);
}

static void event_destroy(fsdp_event *event)
{
    fsdp_free(event);
}

fsdp_event *fsdp_fake_record(fsdp_fake_stream *s)
{
    fake_event *e = fsdp_calloc(1, sizeof *e);
    pthread_mutex_lock(&s->lock);
    const uint64_t number = s->launched;
    if (!e)
        /* There is not enough memory for an event, so the caller cannot wait later. Wait now
         * instead. If a command fails, the next synchronize() reports it. */
        wait_for(s, number);
    pthread_mutex_unlock(&s->lock);
    if (!e)
        return NULL;
    *e = (fake_event){{event_synchronize, event_destroy}, s, number};
    return &e->base;
}

/* --- launching --- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t command_bytes(size_t bytes, const fsdp_fake_array *arrays, int n_arrays)
{
    size_t all = sizeof(command) + aligned(bytes);
    for (int i = 0; i < n_arrays; i++)
        all += aligned(arrays[i].bytes);
    return all;
}

/* Return `bytes` contiguous bytes of the ring. If necessary, wait until they are free. The caller
 * must hold the lock. */
static command *reserve(fsdp_fake_stream *s, size_t bytes)
{
    const size_t left = RING_BYTES - s->head % RING_BYTES, skipped = left < bytes ? left : 0;
    while (s->head + skipped + bytes - s->tail > RING_BYTES)
        wait_for(s, s->completed + 1);
    if (skipped)
        *(command *)(void *)(s->ring + s->head % RING_BYTES) = (command){.bytes = skipped};
    s->head += skipped;
    command *c = (void *)(s->ring + s->head % RING_BYTES);
    s->head += bytes;
    c->bytes = bytes;
    return c;
}

static void fill_command(command *c, fsdp_fake_command *run, const void *args, size_t bytes,
                         const fsdp_fake_array *arrays, int n_arrays)
{
    unsigned char *to = (unsigned char *)(c + 1), *end = to + aligned(bytes);
    c->run = run;
    memcpy(to, args, bytes);
    for (int i = 0; i < n_arrays; i++) {
        const void *array;
        memcpy(&array, to + arrays[i].at, sizeof array);
        if (!array)
            continue;
        memcpy(end, array, arrays[i].bytes);
        memcpy(to + arrays[i].at, &(const void *){end}, sizeof array);
        end += aligned(arrays[i].bytes);
    }
}

/* Wait for all commands that were launched before, and then run a command on the calling thread. No
 * other thread uses the CPU's context at that time, because the queue is empty. */
static void run_at_once(fsdp_fake_stream *s, fsdp_fake_command *run, const void *args)
{
    pthread_mutex_lock(&s->lock);
    wait_for(s, s->launched);
    const bool runs = s->error.status == FSDP_OK;
    pthread_mutex_unlock(&s->lock);
    if (s->access.open)
        s->access.open(s->access.self);
    const fsdp_status status = runs ? run(s->kernels, s->context, args) : FSDP_OK;
    if (s->access.close)
        s->access.close(s->access.self);
    pthread_mutex_lock(&s->lock);
    if (status != FSDP_OK)
        fsdp_error_save(status, &s->error);
    pthread_mutex_unlock(&s->lock);
}

void fsdp_fake_launch(fsdp_fake_stream *s, fsdp_fake_command *run, const void *args, size_t bytes,
                      const fsdp_fake_array *arrays, int n_arrays)
{
    const size_t all = command_bytes(bytes, arrays, n_arrays);
    if (all > MOST_BYTES) {
        run_at_once(s, run, args);
        return;
    }
    pthread_mutex_lock(&s->lock);
    fill_command(reserve(s, all), run, args, bytes, arrays, n_arrays);
    s->launched++;
    pthread_cond_signal(&s->queued);
    pthread_mutex_unlock(&s->lock);
}

/* --- create and destroy --- */

static fsdp_status number_of(const char *name, long otherwise, long most, long *number)
{
    const char *text = getenv(name);
    char *end;
    *number = otherwise;
    if (!text || !*text)
        return FSDP_OK;
    *number = strtol(text, &end, 10);
    if (*end || *number < 0 || *number > most)
        return fsdp_error(FSDP_ERR_INVALID, "%s is '%s', not a number from 0 to %ld", name, text,
                          most);
    return FSDP_OK;
}

static fsdp_status open_all(fsdp_fake_stream *s, const char *isa, int threads)
{
    long seed, delay_us;
    FSDP_TRY(number_of("FSDP_FAKE_SEED", 0, 1000000000, &seed));
    FSDP_TRY(number_of("FSDP_FAKE_DELAY_US", 200, 1000000, &delay_us));
    s->seed = (uint64_t)seed;
    s->delay_us = (int)delay_us;
    s->ring = fsdp_calloc(RING_BYTES, 1);
    if (!s->ring)
        return FSDP_ERR_NOMEM;
    /* The threads of the kernels inherit the right to use the device's memory. */
    if (s->access.open)
        s->access.open(s->access.self);
    const fsdp_status status = fsdp_kernels_cpu_open(isa, threads, &s->context, &s->kernels);
    if (s->access.close)
        s->access.close(s->access.self);
    FSDP_TRY(status);
    const int error = pthread_create(&s->worker, NULL, worker_main, s);
    if (error)
        return fsdp_error(FSDP_ERR_NOMEM, "device fake: cannot start a thread: %s",
                          strerror(error));
    s->has_worker = true;
    return FSDP_OK;
}

fsdp_status fsdp_fake_stream_create(const char *isa, int threads, fsdp_fake_access access,
                                    fsdp_fake_stream **stream)
{
    fsdp_fake_stream *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    s->access = access;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->queued, NULL);
    pthread_cond_init(&s->done, NULL);
    fsdp_status status = open_all(s, isa, threads);
    if (status != FSDP_OK) {
        fsdp_fake_stream_destroy(s);
        return status;
    }
    *stream = s;
    return FSDP_OK;
}

void fsdp_fake_stream_destroy(fsdp_fake_stream *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->queued);
    pthread_mutex_unlock(&s->lock);
    if (s->has_worker)
        pthread_join(s->worker, NULL);
    fsdp_kernels_cpu_close(s->context);
    pthread_cond_destroy(&s->done);
    pthread_cond_destroy(&s->queued);
    pthread_mutex_destroy(&s->lock);
    fsdp_free(s->ring);
    fsdp_free(s);
}

fsdp_kernel_context *fsdp_fake_stream_cpu(const fsdp_fake_stream *s)
{
    return s->context;
}
