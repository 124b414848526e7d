/* See pipeline.h. All threads run the same loop: take a free slot, read the next batch into the
 * slot, work on the batch, and hand it in (hand_in()). If the batch that is handed in is the next
 * one to be written, the thread writes it, and then all complete batches that follow it without a
 * gap. So a thread waits for slower threads only if all slots are taken. The number of slots bounds
 * the memory. */
#include "src/tokenize/pipeline.h"

#include <pthread.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/base/thread_pool.h"

enum {
    SLOTS_PER_THREAD = 3
};

typedef struct slot {
    fsdp_record_batch batch;
    void *result;
    fsdp_saved_error error; /* the error from reading the batch or from working on it */
    int64_t sequence;       /* index of the batch in the order of reading */
} slot;

typedef struct pipeline {
    const fsdp_pipeline_ops *ops;
    void *self;
    fsdp_record_source *source;
    const atomic_bool *interrupted;
    pthread_mutex_t reading; /* held by the thread that reads a batch */
    pthread_mutex_t lock;    /* protects all fields below */
    pthread_cond_t freed;    /* signalled when a slot becomes free */
    slot *slots;             /* [n] */
    /* free: [n_free], the free slots. done: [n]; done[sequence % n] is the slot of a batch that is
     * complete but not yet written, or NULL. */
    slot **free, **done;
    size_t n, n_free;
    /* number of batches that have been read, and number of batches that have been written */
    int64_t read, written;
    bool ended;   /* no more batches are to be read */
    bool stopped; /* *interrupted was true, so no more batches are to be read */
    bool writing; /* a thread is writing */
    fsdp_saved_error error;
} pipeline;

/* ---- reading ---- */

/* Wait for a free slot. Return NULL if no more batches are to be read. */
static slot *take_slot(pipeline *p)
{
    slot *s = NULL;
    pthread_mutex_lock(&p->lock);
    if (!p->ended && p->interrupted && atomic_load(p->interrupted))
        p->ended = p->stopped = true;
    while (!p->ended && p->n_free == 0)
        pthread_cond_wait(&p->freed, &p->lock);
    if (!p->ended)
        s = p->free[--p->n_free];
    pthread_mutex_unlock(&p->lock);
    return s;
}

static void give_back(pipeline *p, slot *s)
{
    p->free[p->n_free++] = s;
    pthread_cond_broadcast(&p->freed);
}

/* Read the next batch into a free slot, and return the slot. If reading fails, slot->error has the
 * error. Return NULL if there are no more batches. */
static slot *read_batch(pipeline *p)
{
    pthread_mutex_lock(&p->reading);
    slot *s = take_slot(p);
    if (s) {
        fsdp_error_save(fsdp_record_source_next(p->source, &s->batch), &s->error);
        const bool failed = s->error.status != FSDP_OK;
        const bool is_last = !failed && s->batch.len == 0;
        pthread_mutex_lock(&p->lock);
        s->sequence = p->read;
        p->read += !is_last;
        p->ended |= is_last || failed;
        if (is_last)
            give_back(p, s);
        pthread_mutex_unlock(&p->lock);
        s = is_last ? NULL : s;
    }
    pthread_mutex_unlock(&p->reading);
    return s;
}

/* ---- writing ---- */

/* Write a batch. If an earlier batch failed, do nothing. */
static void write_batch(pipeline *p, slot *s)
{
    if (p->error.status != FSDP_OK)
        return;
    if (s->error.status != FSDP_OK)
        p->error = s->error;
    else
        fsdp_error_save(p->ops->write(p->self, &s->batch, s->result), &p->error);
}

/* Store a batch on which the work is complete. Then write the next batches in order, until one is
 * not complete yet. If another thread is writing, leave this to that thread. */
static void hand_in(pipeline *p, slot *s)
{
    pthread_mutex_lock(&p->lock);
    p->done[(size_t)s->sequence % p->n] = s;
    slot **next = &p->done[(size_t)p->written % p->n];
    while (!p->writing && *next) {
        slot *ready = *next;
        *next = NULL;
        p->writing = true;
        pthread_mutex_unlock(&p->lock);
        write_batch(p, ready);
        pthread_mutex_lock(&p->lock);
        p->writing = false;
        p->ended |= p->error.status != FSDP_OK;
        p->written++;
        give_back(p, ready);
        next = &p->done[(size_t)p->written % p->n];
    }
    pthread_mutex_unlock(&p->lock);
}

static void run_thread(void *arg, int64_t i, int worker)
{
    pipeline *p = arg;
    slot *s;
    (void)i, (void)worker;
    while ((s = read_batch(p))) {
        if (s->error.status == FSDP_OK)
            fsdp_error_save(p->ops->work(p->self, &s->batch, s->result), &s->error);
        hand_in(p, s);
    }
}

/* ---- a run ---- */

static fsdp_status create_slots(pipeline *p, int threads)
{
    p->n = (size_t)threads * SLOTS_PER_THREAD;
    p->slots = fsdp_calloc(p->n, sizeof *p->slots);
    p->free = fsdp_calloc(p->n, sizeof(slot *));
    p->done = fsdp_calloc(p->n, sizeof(slot *));
    if (!p->slots || !p->free || !p->done)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < p->n; i++) {
        FSDP_TRY(p->ops->create(p->self, &p->slots[i].result));
        p->free[p->n_free++] = &p->slots[i];
    }
    return FSDP_OK;
}

static void destroy_slots(pipeline *p)
{
    for (size_t i = 0; p->slots && i < p->n; i++) {
        fsdp_record_batch_fini(&p->slots[i].batch);
        p->ops->destroy(p->slots[i].result);
    }
    fsdp_free(p->slots);
    fsdp_free(p->free);
    fsdp_free(p->done);
}

fsdp_status fsdp_pipeline_run(const fsdp_pipeline_ops *ops, void *self, fsdp_record_source *source,
                              int threads, const atomic_bool *interrupted, bool *stopped)
{
    pipeline p = {.ops = ops, .self = self, .source = source, .interrupted = interrupted};
    fsdp_thread_pool *pool = NULL;
    pthread_mutex_init(&p.reading, NULL);
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.freed, NULL);
    fsdp_status status = create_slots(&p, threads);
    if (status == FSDP_OK)
        status = fsdp_thread_pool_create(threads, &pool);
    if (status == FSDP_OK) {
        fsdp_parallel_for(pool, threads, run_thread, &p);
        *stopped = p.stopped;
        status = fsdp_error_restore(&p.error);
    }
    fsdp_thread_pool_destroy(pool);
    destroy_slots(&p);
    pthread_cond_destroy(&p.freed);
    pthread_mutex_destroy(&p.lock);
    pthread_mutex_destroy(&p.reading);
    return status;
}
