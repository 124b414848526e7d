/* The loader of <fsdp/data.h>: makes the batches of one rank, in background threads if requested.
 *
 * Note [Batches ahead]. A ticket is the number of a micro-batch, counted from the last seek. A
 * worker takes the next ticket, makes the micro-batch with that number, and puts it into slot
 * ticket % depth. A worker takes a ticket only when its slot is free. So at most `depth` batches
 * are ready at one time. fsdp_loader_next() takes batches out of the slots in the order of their
 * tickets. So batches come in the same order for any number of workers. A seek starts a new
 * generation. If a worker has made a batch for an older generation, the batch is dropped. */
#include <fsdp/data.h>

#include <pthread.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/error.h"
#include "src/data/collate.h"
#include "src/data/datasets/dataset.h"
#include "src/trace/trace.h"

typedef struct slot {
    bool ready;
    fsdp_batch *batch;      /* owned if `ready` is true and there is no error */
    fsdp_saved_error error; /* saved here, because fsdp_last_error() is per thread */
} slot;

struct fsdp_loader {
    const fsdp_dataset *dataset;
    fsdp_loader_options options;
    int64_t steps;
    int32_t accumulation;

    pthread_t *threads;
    int threads_started;
    pthread_mutex_t lock;
    pthread_cond_t slot_free, slot_ready;

    /* The fields below are protected by `lock`. */
    bool stopping;
    uint64_t generation; /* number of seeks */
    int64_t epoch, first_step;
    int64_t tickets;    /* number of tickets from first_step to the end of the epoch */
    int64_t next_made;  /* the next ticket that a worker takes */
    int64_t next_given; /* the ticket whose batch next() returns next */
    slot *slots;        /* [depth] */
    int64_t depth;
    /* The error of the first failed fsdp_loader_next() since the last seek. Until the next seek,
     * all calls return this error. `ready` is false if no call has failed. */
    slot failure;
};

/* A ticket, with everything that a worker needs to make its micro-batch without holding the
 * lock. */
typedef struct job {
    uint64_t generation;
    int64_t ticket, epoch, step;
    int32_t micro_step;
} job;

static job job_of_ticket(const fsdp_loader *l, int64_t ticket)
{
    return (job){
        .generation = l->generation,
        .ticket = ticket,
        .epoch = l->epoch,
        .step = l->first_step + ticket / l->accumulation,
        .micro_step = (int32_t)(ticket % l->accumulation),
    };
}

/* Make the batch of a job. This can run on any thread and needs no lock. `indices` is scratch
 * memory for the indices of one batch. */
static void make_batch(const fsdp_loader *l, const job *j, int64_t *indices, slot *out)
{
    const fsdp_sampler *s = &l->options.sampler;
    int32_t count = fsdp_sampler_batch(s, j->epoch, j->step, j->micro_step, indices);
    *out = (slot){.ready = true};
    const fsdp_draw draw = {.seed = s->seed,
                            .epoch = j->epoch,
                            .has_order_seed = s->has_order_seed,
                            .order_seed = s->order_seed};
    fsdp_error_save(
        fsdp_collate_drawn(l->dataset, indices, count, &draw, &l->options.format, &out->batch),
        &out->error);
    if (out->error.status != FSDP_OK)
        return;
    out->batch->seed = s->seed;
    out->batch->epoch = (uint32_t)j->epoch;
    out->batch->step = (uint32_t)(j->epoch * l->steps + j->step);
    out->batch->micro_batch = (uint32_t)j->micro_step * (uint32_t)s->world_size + (uint32_t)s->rank;
}

/* ---- workers ---- */

static bool has_work(const fsdp_loader *l)
{
    return l->next_made < l->tickets && l->next_made < l->next_given + l->depth;
}

static void *worker_main(void *arg)
{
    fsdp_loader *l = arg;
    int64_t *indices = fsdp_calloc((size_t)l->options.sampler.batch_size, sizeof *indices);
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        if (!has_work(l)) {
            pthread_cond_wait(&l->slot_free, &l->lock);
            continue;
        }
        job j = job_of_ticket(l, l->next_made++);
        pthread_mutex_unlock(&l->lock);
        slot made = {.ready = true, .error = {FSDP_ERR_NOMEM, "out of host memory"}};
        if (indices)
            make_batch(l, &j, indices, &made);
        pthread_mutex_lock(&l->lock);
        if (j.generation != l->generation) {
            fsdp_batch_release(made.batch);
            continue;
        }
        l->slots[j.ticket % l->depth] = made;
        pthread_cond_broadcast(&l->slot_ready);
    }
    pthread_mutex_unlock(&l->lock);
    fsdp_free(indices);
    return NULL;
}

static fsdp_status start_workers(fsdp_loader *l)
{
    int workers = l->options.num_workers;
    if (!l->threads && !(l->threads = fsdp_calloc((size_t)workers, sizeof *l->threads)))
        return FSDP_ERR_NOMEM;
    for (; l->threads_started < workers; l->threads_started++) {
        int failure = pthread_create(&l->threads[l->threads_started], NULL, worker_main, l);
        if (failure)
            return fsdp_error(FSDP_ERR_IO, "loader: worker %d of %d: %s", l->threads_started,
                              workers, strerror(failure));
    }
    return FSDP_OK;
}

static void stop_workers(fsdp_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_broadcast(&l->slot_free);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->threads_started; i++)
        pthread_join(l->threads[i], NULL);
}

/* ---- the functions of <fsdp/data.h> ---- */

static void drop_slots(fsdp_loader *l)
{
    for (int64_t i = 0; i < l->depth; i++) {
        if (l->slots[i].ready)
            fsdp_batch_release(l->slots[i].batch);
        l->slots[i] = (slot){0};
    }
}

static fsdp_status check_options(const fsdp_loader_options *o)
{
    enum {
        WORKERS_MAX = 1024,
        PREFETCH_MAX = 1024
    };
    if (o->num_workers < 0 || o->num_workers > WORKERS_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "loader: %d workers, not 0 to %d", o->num_workers,
                          WORKERS_MAX);
    if (o->prefetch_factor < 0 || o->prefetch_factor > PREFETCH_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "loader: prefetch factor %d, not 0 to %d",
                          o->prefetch_factor, PREFETCH_MAX);
    return fsdp_sampler_check(&o->sampler);
}

/* Fill in the defaults of `o`, and check it for a dataset of `length` examples. */
static fsdp_status complete_options(fsdp_loader_options *o, int64_t length)
{
    if (o->sampler.samples == 0)
        o->sampler.samples = length;
    if (o->sampler.accumulation == 0)
        o->sampler.accumulation = 1;
    if (o->prefetch_factor == 0)
        o->prefetch_factor = 2;
    FSDP_TRY(check_options(o));
    if (o->sampler.samples > length)
        return fsdp_error(FSDP_ERR_INVALID,
                          "loader: the sampler has more samples than the dataset");
    return FSDP_OK;
}

static void use_options(fsdp_loader *l, const fsdp_loader_options *complete)
{
    l->options = *complete;
    l->steps = fsdp_sampler_steps(&complete->sampler);
    l->accumulation = complete->sampler.accumulation;
    l->tickets = l->steps * l->accumulation;
}

fsdp_status fsdp_loader_create(const fsdp_dataset *dataset, const fsdp_loader_options *options,
                               fsdp_loader **out)
{
    fsdp_loader_options full = *options;
    FSDP_TRY(complete_options(&full, fsdp_dataset_len(dataset)));
    fsdp_loader *l = fsdp_calloc(1, sizeof *l);
    if (!l)
        return FSDP_ERR_NOMEM;
    l->dataset = dataset;
    use_options(l, &full);
    l->depth = full.num_workers ? (int64_t)full.num_workers * full.prefetch_factor : 1;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->slot_free, NULL);
    pthread_cond_init(&l->slot_ready, NULL);
    fsdp_status status = FSDP_OK;
    if (!(l->slots = fsdp_calloc((size_t)l->depth, sizeof *l->slots)))
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK && full.num_workers)
        status = start_workers(l);
    if (status != FSDP_OK) {
        fsdp_loader_destroy(l);
        return status;
    }
    *out = l;
    return FSDP_OK;
}

void fsdp_loader_destroy(fsdp_loader *l)
{
    if (!l)
        return;
    stop_workers(l);
    if (l->slots)
        drop_slots(l);
    pthread_cond_destroy(&l->slot_ready);
    pthread_cond_destroy(&l->slot_free);
    pthread_mutex_destroy(&l->lock);
    fsdp_free(l->threads);
    fsdp_free(l->slots);
    fsdp_free(l);
}

const fsdp_loader_options *fsdp_loader_get_options(const fsdp_loader *l)
{
    return &l->options;
}

/* Replace the sampler. Workers read the sampler without holding the lock, so they are stopped while
 * it changes. */
fsdp_status fsdp_loader_set_sampler(fsdp_loader *l, const fsdp_sampler *sampler)
{
    fsdp_loader_options full = l->options;
    full.sampler = *sampler;
    FSDP_TRY(complete_options(&full, fsdp_dataset_len(l->dataset)));
    stop_workers(l);
    l->stopping = false;
    l->threads_started = 0;
    use_options(l, &full);
    fsdp_loader_seek(l, 0, 0);
    return full.num_workers ? start_workers(l) : FSDP_OK;
}

int64_t fsdp_loader_steps(const fsdp_loader *l)
{
    return l->steps;
}

void fsdp_loader_seek(fsdp_loader *l, int64_t epoch, int64_t step)
{
    FSDP_ASSERT(epoch >= 0);
    FSDP_ASSERT(step >= 0 && step <= l->steps);
    pthread_mutex_lock(&l->lock);
    drop_slots(l);
    l->generation++;
    l->epoch = epoch;
    l->first_step = step;
    l->tickets = (l->steps - step) * l->accumulation;
    l->next_made = l->next_given = 0;
    l->failure = (slot){0};
    pthread_cond_broadcast(&l->slot_free);
    pthread_mutex_unlock(&l->lock);
}

void fsdp_loader_set_epoch(fsdp_loader *l, int64_t epoch)
{
    fsdp_loader_seek(l, epoch, 0);
}

/* Wait until the next slot is filled, empty it, and return what was in it. The caller must hold the
 * lock. */
static slot take_slot(fsdp_loader *l)
{
    slot *at = &l->slots[l->next_given % l->depth];
    while (!at->ready)
        pthread_cond_wait(&l->slot_ready, &l->lock);
    slot taken = *at;
    *at = (slot){0};
    l->next_given++;
    pthread_cond_broadcast(&l->slot_free);
    return taken;
}

static slot make_now(fsdp_loader *l)
{
    slot made = {.ready = true, .error = {FSDP_ERR_NOMEM, "out of host memory"}};
    int64_t *indices = fsdp_calloc((size_t)l->options.sampler.batch_size, sizeof *indices);
    job j = job_of_ticket(l, l->next_given++);
    if (indices)
        make_batch(l, &j, indices, &made);
    fsdp_free(indices);
    return made;
}

fsdp_status fsdp_loader_next(fsdp_loader *l, fsdp_batch **out)
{
    slot taken = {0};
    /* No workers run if fsdp_loader_set_sampler() could not start them. */
    if (l->options.num_workers && l->threads_started == 0)
        FSDP_TRY(start_workers(l));
    fsdp_trace_begin(FSDP_TRACE_DATA, "next batch", NULL);
    pthread_mutex_lock(&l->lock);
    if (l->failure.ready)
        taken = l->failure;
    else if (l->next_given < l->tickets)
        taken = l->options.num_workers ? take_slot(l) : make_now(l);
    if (taken.error.status != FSDP_OK)
        l->failure = taken;
    pthread_mutex_unlock(&l->lock);
    fsdp_trace_end();
    FSDP_TRY(fsdp_error_restore(&taken.error));
    *out = taken.batch;
    return FSDP_OK;
}
