/* See run_curves.h. */
#include "src/report/run_curves.h"

#include <sys/stat.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/report/event_reader.h"

/* ---- the newest folder ---- */

static bool is_newer(const char *folder, struct timespec *newest)
{
    struct stat st;
    if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_mtim.tv_sec < newest->tv_sec ||
        (st.st_mtim.tv_sec == newest->tv_sec && st.st_mtim.tv_nsec < newest->tv_nsec))
        return false;
    *newest = st.st_mtim;
    return true;
}

fsdp_status fsdp_run_find_newest(const char *runs, char **path)
{
    char **names, *found = NULL;
    size_t n;
    struct timespec newest = {0};
    *path = NULL;
    if (!fsdp_path_is_directory(runs))
        return FSDP_OK;
    FSDP_TRY(fsdp_directory_list(runs, &names, &n));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        char *folder = fsdp_path_join(runs, names[i]);
        status = folder ? FSDP_OK : FSDP_ERR_NOMEM;
        if (folder && is_newer(folder, &newest)) {
            fsdp_free(found);
            found = folder;
        } else {
            fsdp_free(folder);
        }
    }
    fsdp_free(names);
    if (status == FSDP_OK)
        *path = found;
    else
        fsdp_free(found);
    return status;
}

/* ---- reading ---- */

static fsdp_status check_found(const char *path, const fsdp_metrics_curves *curves)
{
    if (curves->loss.len || curves->validation.len)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: the event files have neither train/loss nor eval/loss, the names that "
                      "--report-to tensorboard and transformers give",
                      path);
}

/* Read all event files in a folder, in the order of their names, which begin with the time at which
 * they were made. Set *any to whether there are any. */
static fsdp_status read_events(const char *folder, fsdp_metrics_curves *curves, bool *any)
{
    char **names;
    size_t n;
    *any = false;
    FSDP_TRY(fsdp_directory_list(folder, &names, &n));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        if (!fsdp_event_file_is_named(names[i]))
            continue;
        *any = true;
        char *path = fsdp_path_join(folder, names[i]);
        status = path ? fsdp_event_file_read(path, curves) : FSDP_ERR_NOMEM;
        fsdp_free(path);
    }
    fsdp_free(names);
    return status == FSDP_OK && *any ? check_found(folder, curves) : status;
}

static fsdp_status read_file(const char *path, fsdp_metrics_curves *curves)
{
    if (!fsdp_event_file_is_named(path))
        return fsdp_metrics_read(path, curves);
    FSDP_TRY(fsdp_event_file_read(path, curves));
    return check_found(path, curves);
}

/* Read metrics.jsonl or the event files in `folder` itself. Set *any to whether there are such
 * files. */
static fsdp_status read_folder(const char *folder, fsdp_metrics_curves *curves, bool *any)
{
    *any = fsdp_directory_has_file(folder, "metrics.jsonl");
    if (!*any)
        return read_events(folder, curves, any);
    char *path = fsdp_path_join(folder, "metrics.jsonl");
    fsdp_status status = path ? fsdp_metrics_read(path, curves) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

static fsdp_status read_tree(const char *folder, fsdp_metrics_curves *curves)
{
    bool any;
    FSDP_TRY(read_folder(folder, curves, &any));
    if (any)
        return FSDP_OK;
    char *runs = fsdp_path_join(folder, "runs"), *newest = NULL;
    fsdp_status status = runs ? fsdp_run_find_newest(runs, &newest) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && newest)
        status = read_folder(newest, curves, &any);
    fsdp_free(runs);
    fsdp_free(newest);
    if (status != FSDP_OK || any)
        return status;
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s: no event files of TensorBoard and no metrics.jsonl in this folder or in "
                      "runs/: name the folder of --logging-dir, or the file of --metrics",
                      folder);
}

fsdp_status fsdp_run_curves_read(const char *run, fsdp_metrics_curves *out)
{
    fsdp_metrics_curves curves = {0};
    fsdp_status status =
        fsdp_path_is_directory(run) ? read_tree(run, &curves) : read_file(run, &curves);
    if (status == FSDP_OK)
        *out = curves;
    else
        fsdp_metrics_curves_fini(&curves);
    return status;
}
