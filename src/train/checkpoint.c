/* Saves a checkpoint of a run when --save-strategy says so, and when the run is interrupted. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/dcp/group_directory.h"
#include "src/hf/stale_files.h"
#include "src/report/human.h"
#include "src/state_dict/state_dict.h"
#include "src/train/checkpoint.h"
#include "src/train/checkpoint_async.h"
#include "src/train/checkpoint_files.h"
#include "src/train/checkpoint_folders.h"
#include "src/train/checkpoint_state.h"

typedef struct saving {
    fsdp_trainer *t;
    const char *path;
    double begin_s;
} saving;

static fsdp_status write_files(void *arg, const char *dir)
{
    const saving *s = arg;
    return fsdp_checkpoint_files_write(s->t, dir);
}

static fsdp_status write_trainer_state(void *arg, const char *dir, const fsdp_disks *disks)
{
    const saving *s = arg;
    fsdp_json *state = NULL;
    fsdp_status status =
        fsdp_trainer_is_first(s->t) ? fsdp_trainer_state_json(s->t, &state) : FSDP_OK;
    if (!disks)
        status = status == FSDP_OK ? fsdp_trainer_state_write(state, dir) : status;
    else if ((status = fsdp_agree(s->t->group, status)) == FSDP_OK)
        status = fsdp_trainer_state_write_on_disks(state, dir, disks, s->t->group);
    fsdp_json_destroy(state);
    return status;
}

static fsdp_status note_appeared(void *arg, const fsdp_disks *disks)
{
    const saving *s = arg;
    const fsdp_checkpoint_rotation old = fsdp_checkpoint_rotation_of(s->t);
    if (fsdp_trainer_is_first(s->t))
        fsdp_trainer_print(s->t, "--> saved %s in %s", s->path,
                           fsdp_human_duration(fsdp_clock_s() - s->begin_s).text);
    if (!disks)
        return fsdp_checkpoint_remove_old(&old);
    fsdp_checkpoint_print_disks(s->t, s->path, disks);
    return fsdp_checkpoint_remove_old_on_disks(&old, disks, s->t->group);
}

static fsdp_status report_save(const saving *s)
{
    const double call_s = fsdp_clock_s() - s->begin_s;
    const fsdp_checkpoint_report r = {.step = s->t->step,
                                      .seconds = call_s,
                                      .call_s = call_s,
                                      .step_s = fsdp_checkpoint_step_seconds(s->t, call_s)};
    return fsdp_trainer_is_first(s->t) ? fsdp_report_checkpoint(s->t, &r) : FSDP_OK;
}

static fsdp_status save_to(fsdp_trainer *t, const char *path)
{
    saving s = {.t = t, .path = path, .begin_s = fsdp_clock_s()};
    const fsdp_group_place place = {.path = path,
                                    .may_be_on_disks = fsdp_checkpoint_files_are_sharded(t),
                                    .existing = FSDP_EXISTING_UPDATE,
                                    .is_stale = fsdp_is_stale_checkpoint_file,
                                    .write = write_trainer_state,
                                    .further = FSDP_TRAINER_STATE,
                                    .appeared = note_appeared,
                                    .arg = &s};
    if (!fsdp_checkpoint_files_are_sharded(t)) {
        FSDP_TRY(fsdp_group_directory(FSDP_OK, &place, t->group, write_files, &s));
        return report_save(&s);
    }
    fsdp_state_dict *all = NULL;
    fsdp_status status = fsdp_checkpoint_files_state(t, &all);
    status = fsdp_state_dict_save(status, all, &place, t->group);
    fsdp_state_dict_destroy(all);
    return status == FSDP_OK ? report_save(&s) : status;
}

/* Wait until an asynchronous save in progress has ended, then save a checkpoint. If `interrupted`
 * is true, the save is synchronous even with --async-save, because the run ends after it. */
static fsdp_status save_checkpoint(fsdp_trainer *t, bool interrupted)
{
    FSDP_TRY(fsdp_async_checkpoint_end(t));
    fsdp_trainer_enter(t, "saving a checkpoint");
    char *path = fsdp_checkpoint_path_of_step(t->checkpoint_dir, t->step);
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = t->config->async_save && !interrupted
                             ? fsdp_async_checkpoint_begin(t, path)
                             : save_to(t, path);
    fsdp_free(path);
    return status;
}

/* --- after each step, and at the end of the run --- */

/* Set *interrupted to whether any rank has received a signal to end the run. End the save in
 * progress if it has failed on any rank or is complete on all ranks. Collective. */
static fsdp_status end_save_if_over(fsdp_trainer *t, bool *interrupted)
{
    bool failed, runs;
    fsdp_async_checkpoint_poll(t, &failed, &runs);
    int64_t any[] = {t->config->interrupted && atomic_load(t->config->interrupted), failed, runs};
    FSDP_TRY(fsdp_all_reduce(t->group, any, FSDP_LENGTH(any), FSDP_DTYPE_I64, FSDP_REDUCE_MAX));
    *interrupted = any[0];
    return any[1] || !any[2] ? fsdp_async_checkpoint_end(t) : FSDP_OK;
}

static bool is_time(const fsdp_trainer *t, bool end_of_epoch)
{
    const fsdp_train_config *c = t->config;
    if (c->save_strategy == FSDP_SAVE_EPOCH)
        return end_of_epoch;
    return t->step % (int64_t)c->save_steps == 0 || t->step == t->total_steps;
}

fsdp_status fsdp_checkpoint_at_step(fsdp_trainer *t, bool end_of_epoch)
{
    bool interrupted;
    if (t->config->save_strategy == FSDP_SAVE_NO)
        return FSDP_OK;
    FSDP_TRY(end_save_if_over(t, &interrupted));
    if (interrupted || is_time(t, end_of_epoch))
        FSDP_TRY(save_checkpoint(t, interrupted));
    if (!interrupted)
        return FSDP_OK;
    t->result->interrupted = true;
    return fsdp_error(FSDP_ERR_STATE, "interrupted after step %lld; --resume continues from there",
                      (long long)t->step);
}

/* Remove unfinished checkpoints. The run has already done this when it began. But at that time, a
 * killed rank of an earlier run may still have been writing a checkpoint. */
fsdp_status fsdp_checkpoint_finish(fsdp_trainer *t)
{
    if (t->config->save_strategy == FSDP_SAVE_NO)
        return FSDP_OK;
    FSDP_TRY(fsdp_async_checkpoint_end(t));
    return fsdp_agree(t->group, fsdp_group_leads_host(t->group, fsdp_group_rank(t->group))
                                    ? fsdp_checkpoint_remove_unfinished(t->checkpoint_dir, NULL)
                                    : FSDP_OK);
}
