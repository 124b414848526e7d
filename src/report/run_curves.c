/* See run_curves.h. */
#include "src/report/run_curves.h"

#include <stdio.h>
#include <sys/stat.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/report/event_reader.h"
#include "src/report/metrics_csv.h"

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

/* ---- what a path means ---- */

static fsdp_status has_events(const char *folder, bool *any)
{
    char **names;
    size_t n;
    *any = false;
    FSDP_TRY(fsdp_directory_list(folder, &names, &n));
    for (size_t i = 0; i < n; i++)
        *any |= fsdp_event_file_is_named(names[i]);
    fsdp_free(names);
    return FSDP_OK;
}

/* Find the files of a run in `folder` itself. Set *path to NULL if it has none. */
static fsdp_status find_in(const char *folder, fsdp_run_kind *kind, char **path)
{
    bool any = false;
    const bool lines = fsdp_directory_has_file(folder, "metrics.jsonl");
    *path = NULL;
    if (!lines)
        FSDP_TRY(has_events(folder, &any));
    if (!lines && !any && !fsdp_directory_has_file(folder, "metrics.csv"))
        return FSDP_OK;
    *kind = lines ? FSDP_RUN_METRICS : any ? FSDP_RUN_EVENTS : FSDP_RUN_CSV;
    *path =
        any ? fsdp_strdup(folder) : fsdp_path_join(folder, lines ? "metrics.jsonl" : "metrics.csv");
    return *path ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status find_in_tree(const char *folder, fsdp_run_kind *kind, char **path)
{
    FSDP_TRY(find_in(folder, kind, path));
    if (*path)
        return FSDP_OK;
    char *runs = fsdp_path_join(folder, "runs"), *newest = NULL;
    fsdp_status status = runs ? fsdp_run_find_newest(runs, &newest) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && newest)
        status = find_in(newest, kind, path);
    fsdp_free(runs);
    fsdp_free(newest);
    if (status != FSDP_OK || *path)
        return status;
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s: no event files of TensorBoard, metrics.jsonl or metrics.csv in this "
                      "folder or in runs/: name the folder of --logging-dir, or the file of "
                      "--metrics",
                      folder);
}

/* Return true if the file begins with a row of JSON lines. --metrics writes JSON lines even to a
 * file whose name ends with .csv, so the name does not decide whether a file has JSON lines or
 * CSV. */
static bool begins_with_row(const char *path)
{
    FILE *file = fsdp_path_is_file(path) ? fopen(path, "re") : NULL;
    const int first = file ? getc(file) : EOF;
    if (file)
        fclose(file);
    return first == '{';
}

fsdp_status fsdp_run_find(const char *run, fsdp_run_kind *kind, char **path)
{
    if (fsdp_path_is_directory(run))
        return find_in_tree(run, kind, path);
    *kind = fsdp_event_file_is_named(run)                          ? FSDP_RUN_EVENTS
            : fsdp_ends_with(run, ".csv") && !begins_with_row(run) ? FSDP_RUN_CSV
                                                                   : FSDP_RUN_METRICS;
    *path = fsdp_strdup(run);
    return *path ? FSDP_OK : FSDP_ERR_NOMEM;
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

/* Read all event files in a folder, in the order of their names. The names begin with the time at
 * which the files were created. */
static fsdp_status read_folder(const char *folder, fsdp_metrics_curves *curves)
{
    char **names;
    size_t n;
    FSDP_TRY(fsdp_directory_list(folder, &names, &n));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        if (!fsdp_event_file_is_named(names[i]))
            continue;
        char *path = fsdp_path_join(folder, names[i]);
        status = path ? fsdp_event_file_read(path, curves) : FSDP_ERR_NOMEM;
        fsdp_free(path);
    }
    fsdp_free(names);
    return status;
}

static fsdp_status read_events(const char *path, fsdp_metrics_curves *out)
{
    fsdp_metrics_curves curves = {0};
    fsdp_status status = fsdp_path_is_directory(path) ? read_folder(path, &curves)
                                                      : fsdp_event_file_read(path, &curves);
    if (status == FSDP_OK)
        status = check_found(path, &curves);
    if (status == FSDP_OK)
        *out = curves;
    else
        fsdp_metrics_curves_fini(&curves);
    return status;
}

fsdp_status fsdp_run_curves_read_found(fsdp_run_kind kind, const char *path,
                                       fsdp_metrics_curves *curves)
{
    switch (kind) {
    case FSDP_RUN_CSV:
        return fsdp_metrics_csv_read(path, curves);
    case FSDP_RUN_EVENTS:
        return read_events(path, curves);
    default:
        return fsdp_metrics_read(path, curves);
    }
}

fsdp_status fsdp_run_curves_read(const char *run, fsdp_metrics_curves *curves)
{
    fsdp_run_kind kind;
    char *path;
    FSDP_TRY(fsdp_run_find(run, &kind, &path));
    const fsdp_status status = fsdp_run_curves_read_found(kind, path, curves);
    fsdp_free(path);
    return status;
}
