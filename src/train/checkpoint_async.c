/* See checkpoint_async.h. */
#include "src/train/checkpoint_async.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/hf/stale_files.h"
#include "src/report/human.h"
#include "src/state_dict/async_save.h"
#include "src/train/checkpoint_files.h"
#include "src/train/checkpoint_folders.h"
#include "src/train/checkpoint_state.h"

struct fsdp_async_checkpoint {
    fsdp_trainer *t;
    fsdp_async_save *save;
    char *path;
    fsdp_json *state;             /* content of trainer_state.json; NULL on ranks other than 0 */
    fsdp_checkpoint_rotation old; /* which checkpoints to remove after this one has appeared */
    /* Used on rank 0 only. The save thread writes report.seconds; the training thread may read
     * report.seconds only after the save thread has ended. */
    fsdp_checkpoint_report report;
    double begin_s;
};

/* --- called by rank 0's save thread. If hosts have disks of their own, called by the training
 * thread of all ranks --- */

static fsdp_status write_state(void *arg, const char *dir, const fsdp_disks *disks)
{
    const fsdp_async_checkpoint *c = arg;
    return disks ? fsdp_trainer_state_write_on_disks(c->state, dir, disks, c->t->group)
                 : fsdp_trainer_state_write(c->state, dir);
}

static fsdp_status note_appeared(void *arg, const fsdp_disks *disks)
{
    fsdp_async_checkpoint *c = arg;
    c->report.seconds = fsdp_clock_s() - c->begin_s;
    if (!disks)
        return fsdp_checkpoint_remove_old(&c->old);
    fsdp_checkpoint_print_disks(c->t, c->path, disks);
    return fsdp_checkpoint_remove_old_on_disks(&c->old, disks, c->t->group);
}

/* --- called by the training thread --- */

static void destroy_checkpoint(fsdp_async_checkpoint *c)
{
    if (!c)
        return;
    fsdp_async_save_destroy(c->save);
    fsdp_json_destroy(c->state);
    fsdp_free(c->path);
    fsdp_free(c);
}

/* Create *out, the record of the save of the checkpoint `path`, and *all, the state dict of the
 * model and the optimizer. The caller must destroy *out if it is not NULL, even after a failure. */
static fsdp_status prepare_checkpoint(fsdp_trainer *t, const char *path,
                                      fsdp_async_checkpoint **out, fsdp_state_dict **all)
{
    fsdp_async_checkpoint *c = fsdp_calloc(1, sizeof *c);
    if (!c)
        return FSDP_ERR_NOMEM;
    *out = c;
    c->t = t;
    c->begin_s = fsdp_clock_s();
    c->old = fsdp_checkpoint_rotation_of(t);
    c->report = (fsdp_checkpoint_report){.step = t->step};
    c->path = fsdp_strdup(path);
    if (!c->path)
        return FSDP_ERR_NOMEM;
    if (fsdp_trainer_is_first(t))
        FSDP_TRY(fsdp_trainer_state_json(t, &c->state));
    return fsdp_checkpoint_files_state(t, all);
}

fsdp_status fsdp_async_checkpoint_begin(fsdp_trainer *t, const char *path)
{
    fsdp_async_checkpoint *c = NULL;
    fsdp_state_dict *all = NULL;
    const fsdp_status mine = prepare_checkpoint(t, path, &c, &all);
    const fsdp_async_save_options options = {.place = {.path = path,
                                                       .may_be_on_disks = true,
                                                       .existing = FSDP_EXISTING_UPDATE,
                                                       .is_stale = fsdp_is_stale_checkpoint_file,
                                                       .write = write_state,
                                                       .further = FSDP_TRAINER_STATE,
                                                       .appeared = note_appeared,
                                                       .arg = c},
                                             .staging_bytes =
                                                 fsdp_async_save_staging_bytes(t->group)};
    fsdp_status status = fsdp_async_save_begin(mine, all, t->group, &options, c ? &c->save : NULL);
    fsdp_state_dict_destroy(all);
    if (status != FSDP_OK) {
        destroy_checkpoint(c);
        return status;
    }
    c->report.call_s = fsdp_clock_s() - c->begin_s;
    c->report.step_s = fsdp_checkpoint_step_seconds(t, c->report.call_s);
    t->saving = c;
    return FSDP_OK;
}

void fsdp_async_checkpoint_poll(const fsdp_trainer *t, bool *failed, bool *runs)
{
    const fsdp_async_checkpoint *c = t->saving;
    *failed = c && fsdp_async_save_status(c->save) != FSDP_OK;
    *runs = c && !fsdp_async_save_done(c->save);
}

static fsdp_status report_saved(fsdp_trainer *t, const fsdp_async_checkpoint *c)
{
    fsdp_trainer_print(t, "--> saved %s in %s during training (%s at the call, %s copied later)",
                       c->path, fsdp_human_duration(c->report.seconds).text,
                       fsdp_human_duration(c->report.call_s).text,
                       fsdp_human_bytes((int64_t)c->report.copied_bytes).text);
    return fsdp_report_checkpoint(t, &c->report);
}

/* Call `finish` for the checkpoint in progress. If it succeeds, rank 0 reports that the checkpoint
 * was saved. Then free t->saving. */
static fsdp_status end_checkpoint(fsdp_trainer *t, fsdp_status (*finish)(fsdp_async_save *save))
{
    fsdp_async_checkpoint *c = t->saving;
    fsdp_status status = finish(c->save);
    const fsdp_snapshot_stats stats = fsdp_async_save_stats(c->save);
    c->report.copied_bytes = stats.copied_bytes;
    c->report.held_s = stats.held_s;
    fsdp_error_context(status, "%s", c->path);
    if (status == FSDP_OK && fsdp_trainer_is_first(t))
        status = report_saved(t, c);
    destroy_checkpoint(c);
    t->saving = NULL;
    return status;
}

fsdp_status fsdp_async_checkpoint_end(fsdp_trainer *t)
{
    if (!t->saving)
        return FSDP_OK;
    fsdp_trainer_enter(t, "saving a checkpoint");
    return end_checkpoint(t, fsdp_async_save_wait);
}

/* This function does not call fsdp_trainer_at(), so that the peers' error messages still say what
 * this rank was doing when the run failed. */
void fsdp_async_checkpoint_fini(fsdp_trainer *t)
{
    if (t->saving && end_checkpoint(t, fsdp_async_save_finish) != FSDP_OK)
        fsdp_trainer_print(t, "--> the checkpoint in progress is abandoned: %s", fsdp_last_error());
}
