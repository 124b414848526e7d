/* See async_save.h. */
#include "src/base/error.h"
#include "src/state_dict/async_save.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/dcp/rank_note.h"
#include "src/state_dict/state_dict.h"

enum {
    FINISH_POLL_MS = 10
};
/* Default total size of the staging memory of all ranks on a host. Each of these ranks has an equal
 * share. */
static const uint64_t STAGING_BYTES = 256u << 20;

typedef enum stage {
    STAGE_WRITING, /* the thread is writing this rank's file */
    STAGE_WRITTEN, /* this rank's file is complete or has failed; on rank 0, the thread then waits
                      for the other ranks and completes the checkpoint */
    STAGE_ENDED
} stage;

struct fsdp_async_save {
    fsdp_group *group; /* NULL: this rank saves alone */
    int rank, world_size;
    fsdp_status (*before_read)(void *arg);
    void *before_read_arg;
    fsdp_snapshot *snapshot;
    fsdp_state_source *sources; /* [manifest->n] */
    fsdp_dcp_manifest *manifest;
    /* [n_tensors] The tensors of the dict, to which `manifest` points. The save retains them until
     * it has ended, because the caller may destroy the dict before. */
    fsdp_tensor **tensors;
    size_t n_tensors;
    fsdp_dcp_job *job; /* while the thread runs, only the thread uses it */
    pthread_t thread;
    bool runs;            /* the thread was started and has not been joined */
    bool settled;         /* the thread has ended, and `error` is final */
    atomic_bool given_up; /* the thread must not wait for other ranks any longer */
    pthread_mutex_t lock;
    pthread_cond_t advanced;
    /* The fields below are protected by `lock` while the thread runs. */
    stage stage;
    fsdp_saved_error error; /* this rank's error. After fsdp_async_save_wait(), this is the outcome
                               of the save, which is the same on all ranks */
    /* Says which step failed. STAGE_WRITTEN: this rank failed to write its file.
     * STAGE_ENDED: rank 0 failed to complete the checkpoint. Meaningless if `error` is FSDP_OK. */
    stage failed_at;
    fsdp_snapshot_stats stats; /* copied from the snapshot before the snapshot is destroyed */
};

static bool is_first(const fsdp_async_save *s)
{
    return s->rank == 0;
}

/* --- the thread that writes this rank's file --- */

static void advance(fsdp_async_save *s, stage to, fsdp_status status)
{
    pthread_mutex_lock(&s->lock);
    s->stage = to;
    if (status != FSDP_OK && s->error.status == FSDP_OK) {
        fsdp_error_save(status, &s->error);
        s->failed_at = to;
    }
    pthread_cond_broadcast(&s->advanced);
    pthread_mutex_unlock(&s->lock);
}

static fsdp_status read_snapshot(void *context, uint64_t offset, void *out, size_t bytes)
{
    const fsdp_state_source *source = context;
    const fsdp_async_save *s = source->save;
    if (s->before_read)
        FSDP_TRY(s->before_read(s->before_read_arg));
    return fsdp_snapshot_read(source->part, offset, out, bytes);
}

static fsdp_status write_own(fsdp_async_save *s)
{
    size_t bytes;
    FSDP_TRY(fsdp_dcp_job_write_file(s->job));
    const void *positions = fsdp_dcp_job_own_positions(s->job, &bytes);
    if (fsdp_dcp_job_is_on_disks(s->job))
        return FSDP_OK;
    if (!is_first(s))
        return fsdp_rank_note_write(fsdp_dcp_job_dir(s->job), s->rank, positions, bytes);
    memcpy(fsdp_dcp_job_positions(s->job, 0), positions, bytes);
    return FSDP_OK;
}

static fsdp_status take_positions(fsdp_async_save *s)
{
    size_t bytes;
    (void)fsdp_dcp_job_own_positions(s->job, &bytes);
    for (int r = 1; r < s->world_size; r++)
        FSDP_TRY(fsdp_rank_note_receive(fsdp_dcp_job_dir(s->job), r,
                                        fsdp_dcp_job_positions(s->job, r), bytes, &s->given_up));
    return FSDP_OK;
}

static fsdp_status complete(fsdp_async_save *s)
{
    FSDP_TRY(take_positions(s));
    return fsdp_dcp_job_complete(s->job);
}

/* Record that this rank's file is written, or that writing it failed. */
static void note_written(fsdp_async_save *s, fsdp_status status)
{
    /* Report the failure before calling advance(). After that call, rank 0 may remove the folder
     * into which the report is written. */
    if (status != FSDP_OK && !is_first(s) && !fsdp_dcp_job_is_on_disks(s->job))
        fsdp_rank_note_write_failure(fsdp_dcp_job_dir(s->job), s->rank);
    fsdp_snapshot_close(s->snapshot);
    advance(s, STAGE_WRITTEN, status);
}

static void *run_thread(void *arg)
{
    fsdp_async_save *s = arg;
    fsdp_status status = write_own(s);
    note_written(s, status);
    if (status == FSDP_OK && is_first(s) && !fsdp_dcp_job_is_on_disks(s->job))
        status = complete(s);
    advance(s, STAGE_ENDED, status);
    return NULL;
}

static void join(fsdp_async_save *s)
{
    if (!s->runs)
        return;
    atomic_store(&s->given_up, true);
    pthread_join(s->thread, NULL);
    s->runs = false;
}

/* Release the tensors of the dict. The thread must have ended. */
static void release_tensors(fsdp_async_save *s)
{
    while (s->n_tensors)
        fsdp_tensor_release(s->tensors[--s->n_tensors]);
}

/* --- begin --- */

static fsdp_status open_save(const fsdp_state_dict *dict, fsdp_group *group,
                             const fsdp_async_save_options *options, fsdp_async_save **save)
{
    fsdp_async_save *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    s->group = group;
    s->rank = fsdp_group_rank(group);
    s->world_size = fsdp_group_world_size(group);
    s->before_read = options->before_read;
    s->before_read_arg = options->before_read_arg;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->advanced, NULL);
    *save = s;
    const size_t n = fsdp_state_dict_count(dict);
    s->sources = fsdp_calloc(n, sizeof *s->sources);
    if (!s->sources)
        return FSDP_ERR_NOMEM;
    s->tensors = fsdp_calloc(n, sizeof *s->tensors);
    if (!s->tensors)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        s->sources[i] = (fsdp_state_source){.read = read_snapshot, .save = s};
        if (fsdp_state_dict_at(dict, i)->tensor)
            s->tensors[s->n_tensors++] = fsdp_tensor_retain(fsdp_state_dict_at(dict, i)->tensor);
    }
    FSDP_TRY(fsdp_snapshot_create(options->staging_bytes, &s->snapshot));
    return fsdp_state_dict_manifest(dict, s->sources, &s->manifest);
}

static fsdp_status watch_tensors(fsdp_async_save *s, const fsdp_state_dict *dict)
{
    for (size_t i = 0; i < fsdp_state_dict_count(dict); i++) {
        const fsdp_state_entry *entry = fsdp_state_dict_at(dict, i);
        if (!entry->tensor || !fsdp_dcp_job_writes(s->job, i))
            continue;
        fsdp_status status = fsdp_snapshot_add(s->snapshot, entry->tensor, &s->sources[i].part);
        fsdp_error_context(status, "'%s'", entry->fqn);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

static fsdp_status start(fsdp_async_save *s, const fsdp_state_dict *dict)
{
    FSDP_TRY(watch_tensors(s, dict));
    const int error = pthread_create(&s->thread, NULL, run_thread, s);
    if (error)
        return fsdp_error(FSDP_ERR_NOMEM, "cannot start a thread that saves: %s", strerror(error));
    s->runs = true;
    return FSDP_OK;
}

fsdp_status fsdp_async_save_begin(fsdp_status mine, const fsdp_state_dict *dict, fsdp_group *group,
                                  const fsdp_async_save_options *options, fsdp_async_save **save)
{
    fsdp_async_save *s = NULL;
    if (mine == FSDP_OK)
        mine = open_save(dict, group, options, &s);
    fsdp_status status = fsdp_dcp_job_create(mine, &options->place, group, s ? s->manifest : NULL,
                                             s ? &s->job : NULL);
    if (status != FSDP_OK) {
        fsdp_async_save_destroy(s);
        return status;
    }
    status = start(s, dict);
    /* The save has already begun on the other ranks, so this rank must not return an error. It
     * records the failure, and fsdp_async_save_wait() returns it. */
    if (status != FSDP_OK) {
        note_written(s, status);
        advance(s, STAGE_ENDED, status);
    }
    *save = s;
    return FSDP_OK;
}

uint64_t fsdp_async_save_staging_bytes(const fsdp_group *group)
{
    return STAGING_BYTES / (uint64_t)(group ? fsdp_group_local_world_size(group) : 1);
}

fsdp_status fsdp_dcp_async_save(const fsdp_state_dict *dict, const char *dir, fsdp_group *group,
                                const fsdp_dcp_async_save_options *options, fsdp_async_save **save)
{
    static const fsdp_dcp_async_save_options defaults = {0};
    const fsdp_dcp_async_save_options *o = options ? options : &defaults;
    const fsdp_async_save_options inner = {
        .place = {.path = dir,
                  .may_be_on_disks = true,
                  .existing = o->overwrite ? FSDP_EXISTING_UPDATE : FSDP_EXISTING_REFUSE},
        .staging_bytes =
            o->staging_bytes ? o->staging_bytes : fsdp_async_save_staging_bytes(group)};
    return fsdp_async_save_begin(FSDP_OK, dict, group, &inner, save);
}

/* --- end --- */

/* If `status` is FSDP_OK, return FSDP_OK. Otherwise, `status` must be s->error.status. Make
 * s->error the current error of the calling thread, and return its status. The caller need not hold
 * the lock: once s->error is an error, it does not change. */
static fsdp_status raise_if_failed(const fsdp_async_save *s, fsdp_status status)
{
    return status == FSDP_OK ? FSDP_OK : fsdp_error_restore(&s->error);
}

/* Wait until the save has reached stage `until`. If this rank has failed in this stage or in an
 * earlier one, return its error. If it has not, return FSDP_OK. */
static fsdp_status await(fsdp_async_save *s, stage until)
{
    pthread_mutex_lock(&s->lock);
    while (s->stage < until)
        pthread_cond_wait(&s->advanced, &s->lock);
    const fsdp_status status = s->failed_at <= until ? s->error.status : FSDP_OK;
    pthread_mutex_unlock(&s->lock);
    return raise_if_failed(s, status);
}

/* Return the outcome of the save, which is the same on all ranks. First wait until every rank has
 * written its file or has failed. If no rank has failed, also wait until rank 0 has completed the
 * checkpoint. When this function returns, no rank is still writing a file in the folder. So after a
 * failure, the caller can remove the folder. */
static fsdp_status outcome(fsdp_async_save *s)
{
    FSDP_TRY(fsdp_agree(s->group, await(s, STAGE_WRITTEN)));
    if (fsdp_dcp_job_is_on_disks(s->job))
        return fsdp_dcp_job_complete_on_all(s->job);
    return fsdp_agree(s->group, is_first(s) ? await(s, STAGE_ENDED) : FSDP_OK);
}

/* Wait until the thread has ended. Remove the folder if it does not have its final name. */
static void discard_if_unfinished(fsdp_async_save *s)
{
    join(s);
    fsdp_dcp_job_discard(s->job);
    s->settled = true;
    s->stats = fsdp_snapshot_get_stats(s->snapshot);
    fsdp_snapshot_destroy(s->snapshot);
    s->snapshot = NULL;
    release_tensors(s);
}

fsdp_status fsdp_async_save_wait(fsdp_async_save *s)
{
    if (s->settled)
        return fsdp_error_restore(&s->error);
    fsdp_status status = outcome(s);
    discard_if_unfinished(s);
    fsdp_error_save(status, &s->error);
    return status;
}

/* Return true if this rank need not wait any longer for the save. This is true if this rank has
 * failed. It is also true if the thread of this rank has ended and rank 0 has renamed or removed
 * the folder. */
static bool is_over(fsdp_async_save *s)
{
    if (fsdp_async_save_status(s) != FSDP_OK)
        return true;
    if (fsdp_dcp_job_is_on_disks(s->job))
        return fsdp_async_save_done(s);
    return fsdp_async_save_done(s) &&
           (is_first(s) || !fsdp_path_is_directory(fsdp_dcp_job_dir(s->job)));
}

fsdp_status fsdp_async_save_finish(fsdp_async_save *s)
{
    const struct timespec pause = {.tv_nsec = FINISH_POLL_MS * 1000000};
    while (!s->settled && !is_over(s) && !fsdp_group_has_lost_peer(s->group))
        nanosleep(&pause, NULL);
    if (!s->settled) {
        /* Either the save has ended on this rank, or a peer is lost. If a peer is lost, the save
         * cannot succeed, but this rank's thread may still be writing this rank's file. Close the
         * snapshot: the next read of the thread then fails, and the thread ends soon. */
        fsdp_snapshot_close(s->snapshot);
        discard_if_unfinished(s);
        if (s->error.status == FSDP_OK && fsdp_dcp_job_is_on_disks(s->job))
            fsdp_error_save(fsdp_error(FSDP_ERR_STATE,
                                       "the hosts have disks of their own, so the ranks complete a "
                                       "checkpoint together, which they cannot do after an error"),
                            &s->error);
    }
    return fsdp_error_restore(&s->error);
}

bool fsdp_async_save_done(fsdp_async_save *s)
{
    pthread_mutex_lock(&s->lock);
    const bool done = s->stage == STAGE_ENDED;
    pthread_mutex_unlock(&s->lock);
    return done;
}

fsdp_status fsdp_async_save_status(fsdp_async_save *s)
{
    pthread_mutex_lock(&s->lock);
    const fsdp_status status = s->error.status;
    pthread_mutex_unlock(&s->lock);
    return raise_if_failed(s, status);
}

fsdp_snapshot_stats fsdp_async_save_stats(fsdp_async_save *s)
{
    return s->snapshot ? fsdp_snapshot_get_stats(s->snapshot) : s->stats;
}

void fsdp_async_save_destroy(fsdp_async_save *s)
{
    if (!s)
        return;
    if (s->snapshot)
        /* Make reads of the snapshot fail, so that a save that is still running ends soon. */
        fsdp_snapshot_close(s->snapshot);
    join(s);
    fsdp_dcp_job_destroy(s->job);
    fsdp_dcp_manifest_destroy(s->manifest);
    fsdp_snapshot_destroy(s->snapshot);
    release_tensors(s);
    fsdp_free(s->tensors);
    fsdp_free(s->sources);
    pthread_cond_destroy(&s->advanced);
    pthread_mutex_destroy(&s->lock);
    fsdp_free(s);
}
