/* Opens the outputs to which a run reports its metrics: --metrics, --report-to and
 * --tracker-command. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/report/progress.h"
#include "src/report/run_curves.h"
#include "src/train/checkpoint_state.h"
#include "src/train/trainer_internal.h"
#include "src/train_config/config_report.h"

enum {
    HOST_BYTES = 256,
    /* Seconds for which a run that ends waits for the program of --tracker-command to exit. */
    PROGRAM_END_S = 120,
    /* The same for a run that has failed. The wait is short, since the other ranks learn of the
     * error only after it. */
    PROGRAM_FAILED_END_S = 10
};

/* ---- the folder ---- */

/* Return transformers' name for the folder of a run, such as "Nov27_08-34-43_host". */
static char *name_of_run(void)
{
    char host[HOST_BYTES], date[64];
    struct tm local;
    const time_t now = time(NULL);
    if (gethostname(host, sizeof host) != 0)
        snprintf(host, sizeof host, "localhost");
    host[sizeof host - 1] = 0;
    strftime(date, sizeof date, "%b%d_%H-%M-%S", localtime_r(&now, &local));
    return fsdp_strdup_printf("%s_%s", date, host);
}

/* Set *dir to the folder for the files of --report-to; the caller owns it. A resumed run without
 * --logging-dir continues in the newest folder in <--output>/runs. */
static fsdp_status choose_folder(const fsdp_trainer *t, char **dir)
{
    const fsdp_train_config *c = t->config;
    *dir = NULL;
    if (c->logging_dir) {
        *dir = fsdp_path_stripped(c->logging_dir);
        return *dir ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    char *runs = fsdp_path_join(c->output ? c->output : "", "runs");
    fsdp_status status = runs ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && t->resumed_from)
        status = fsdp_run_find_newest(runs, dir);
    if (status == FSDP_OK && !*dir) {
        char *name = name_of_run();
        *dir = name ? fsdp_path_join(runs, name) : NULL;
        fsdp_free(name);
        status = *dir ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    fsdp_free(runs);
    return status;
}

/* ---- checks before the run ---- */

/* Set *missing to true if the folder of the file `path` does not exist, otherwise to false. If it
 * does not exist, also check that it can be created. */
static fsdp_status check_parent(const char *flag, const char *path, bool *missing)
{
    char *parent = fsdp_path_parent(path);
    if (!parent)
        return fsdp_error_nomem();
    *missing = !fsdp_path_exists(parent);
    const fsdp_status status =
        *missing ? fsdp_atomic_directory_check(parent, FSDP_EXISTING_UPDATE) : FSDP_OK;
    fsdp_error_context(status, "--%s", flag);
    fsdp_free(parent);
    return status;
}

/* Check that the file `path` can be written, without changing it. A pipe or a device is not opened,
 * since another program may be at its other end. */
static fsdp_status check_file(const char *flag, const char *path)
{
    struct stat st;
    const bool exists = stat(path, &st) == 0;
    bool good, missing;
    if (!exists && fsdp_path_exists(path))
        return FSDP_OK; /* `path` may be a symbolic link whose target does not exist yet */
    FSDP_TRY(check_parent(flag, path, &missing));
    if (missing)
        return FSDP_OK;
    if (exists && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        good = access(path, W_OK) == 0;
    } else {
        const int fd = open(path, O_WRONLY | O_CLOEXEC | (exists ? 0 : O_CREAT | O_EXCL), 0666);
        good = fd >= 0;
        if (good)
            close(fd);
        if (good && !exists)
            unlink(path);
    }
    return good ? FSDP_OK : fsdp_error(FSDP_ERR_IO, "--%s %s: %s", flag, path, strerror(errno));
}

/* Check that the picture `path`, which is replaced as a whole, can be written. */
static fsdp_status check_plot(const char *path)
{
    bool missing;
    fsdp_atomic_file *file;
    FSDP_TRY(check_parent("plot", path, &missing));
    if (missing)
        return FSDP_OK;
    FSDP_TRY(fsdp_atomic_file_begin(path, 0, &file));
    fsdp_atomic_file_discard(file);
    return FSDP_OK;
}

static bool has_rows(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

/* Return an error if this run would replace the rows of an earlier run in the folder. A resumed run
 * may append to its file, and a run that `fsdp launch` has restarted may replace its own rows. */
static fsdp_status check_earlier_rows(const fsdp_train_config *c, const char *dir)
{
    const bool writes[] = {fsdp_train_reports_to(c, FSDP_REPORT_CSV),
                           fsdp_train_reports_to(c, FSDP_REPORT_JSON) && !c->metrics};
    static const char *const names[] = {"metrics.csv", "metrics.jsonl"};
    fsdp_status status = FSDP_OK;
    for (int i = 0; status == FSDP_OK && i < 2 && !c->resume && !c->restarted; i++) {
        char *path = fsdp_path_join(dir, names[i]);
        if (!path)
            status = FSDP_ERR_NOMEM;
        else if (writes[i] && has_rows(path))
            status = fsdp_error(FSDP_ERR_INVALID,
                                "%s has the rows of an earlier run: name another folder, or leave "
                                "out --logging-dir, then each run has a folder of its own below "
                                "--output; --resume continues that run in its file",
                                path);
        fsdp_free(path);
    }
    return status;
}

/* Check that files can be written to --logging-dir, which need not exist. */
static fsdp_status check_logging_dir(const fsdp_train_config *c)
{
    if (c->logging_dir && !*c->logging_dir)
        return fsdp_error(FSDP_ERR_INVALID, "--logging-dir is empty");
    char *dir = c->logging_dir ? fsdp_strdup(c->logging_dir)
                               : fsdp_path_join(c->output ? c->output : "", "runs");
    char *file = dir ? fsdp_path_join(dir, "metrics") : NULL;
    fsdp_status status = file ? FSDP_OK : fsdp_error_nomem();
    if (status == FSDP_OK && fsdp_path_exists(dir) && !fsdp_path_is_directory(dir))
        status = fsdp_error(FSDP_ERR_INVALID, "%s: is a file, not a folder", dir);
    if (status == FSDP_OK)
        status = fsdp_atomic_directory_check(file, FSDP_EXISTING_UPDATE);
    if (status == FSDP_OK && c->logging_dir)
        status = check_earlier_rows(c, dir);
    fsdp_error_context(status, c->logging_dir ? "--logging-dir" : "--report-to");
    fsdp_free(file);
    fsdp_free(dir);
    return status;
}

fsdp_status fsdp_trainer_check_tracking(const fsdp_train_config *c)
{
    if (c->metrics)
        FSDP_TRY(check_file("metrics", c->metrics));
    if (c->profile)
        FSDP_TRY(check_file("profile", c->profile));
    if (c->plot)
        FSDP_TRY(check_plot(c->plot));
    return fsdp_train_has_logging_dir(c) ? check_logging_dir(c) : FSDP_OK;
}

/* ---- the options of the run ---- */

/* Add to `row` what describes the run: its names, its steps and its options. */
static fsdp_status put_run(fsdp_json_node row, const fsdp_trainer *t)
{
    fsdp_json_set_any_str(row, "run_name", t->config->run_name);
    fsdp_json_set_any_str(row, "project", t->config->project);
    fsdp_json_set_any_str(row, "output", t->config->output);
    fsdp_json_set_i64(row, "world_size", fsdp_group_world_size(t->group));
    fsdp_json_set_i64(row, "first_step", t->first_step);
    fsdp_json_set_i64(row, "total_steps", t->total_steps);
    if (t->resumed_from)
        fsdp_json_set_any_str(row, "resumed_from", t->resumed_from);
    return fsdp_trainer_put_configuration(fsdp_json_set_object(row, "config"), t->config);
}

/* Report the options of the run as a row "config". Only TensorBoard's event files and the program
 * of --tracker-command get this row.
 */
static fsdp_status report_config(fsdp_trainer *t)
{
    fsdp_json_node row;
    if (!t->config->tracker_command && !fsdp_train_reports_to(t->config, FSDP_REPORT_TENSORBOARD))
        return FSDP_OK;
    FSDP_TRY(fsdp_tracking_begin(t->tracking, "config", &row));
    FSDP_TRY(put_run(row, t));
    return fsdp_tracking_write(t->tracking);
}

/* ---- opening ---- */

static void say(void *context, const char *message)
{
    const fsdp_trainer *t = context;
    fsdp_progress_clear(t->progress);
    fprintf(stderr, "fsdp train: %s\n", message);
}

static void say_if_replaced(const fsdp_trainer *t, const char *path)
{
    if (path && !t->resumed_from && !t->config->restarted && has_rows(path))
        fsdp_trainer_print(t, "%s: its rows are those of an earlier run, and are replaced", path);
}

static fsdp_status open_in(fsdp_trainer *t, const char *dir)
{
    const fsdp_train_config *c = t->config;
    const bool json = fsdp_train_reports_to(c, FSDP_REPORT_JSON) && !c->metrics;
    fsdp_tracking_options options = {.metrics = c->metrics,
                                     .command = c->tracker_command,
                                     .resumed = t->resumed_from != NULL,
                                     .step = t->step,
                                     .say = say,
                                     .context = t};
    char *csv = dir ? fsdp_path_join(dir, "metrics.csv") : NULL,
         *lines = dir ? fsdp_path_join(dir, "metrics.jsonl") : NULL;
    fsdp_status status = !dir ? FSDP_OK : csv && lines ? fsdp_directory_make(dir) : FSDP_ERR_NOMEM;
    if (fsdp_train_reports_to(c, FSDP_REPORT_CSV))
        options.csv = csv;
    if (fsdp_train_reports_to(c, FSDP_REPORT_TENSORBOARD))
        options.events = dir;
    if (json)
        options.metrics = lines;
    say_if_replaced(t, options.metrics);
    say_if_replaced(t, options.csv);
    if (status == FSDP_OK)
        status = fsdp_tracking_open(&options, &t->tracking);
    if (status == FSDP_OK && options.metrics && fsdp_path_is_file(options.metrics)) {
        t->metrics_path = fsdp_strdup(options.metrics);
        status = t->metrics_path ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    fsdp_free(csv);
    fsdp_free(lines);
    return status;
}

/* Create the folders of --metrics, --profile and --plot. */
static fsdp_status make_folders_of_files(const fsdp_train_config *c)
{
    const char *const files[] = {c->metrics, c->profile, c->plot};
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; status == FSDP_OK && i < FSDP_LENGTH(files); i++) {
        char *parent = files[i] ? fsdp_path_parent(files[i]) : NULL;
        if (files[i])
            status = parent ? fsdp_directory_make(parent) : fsdp_error_nomem();
        fsdp_free(parent);
    }
    return status;
}

fsdp_status fsdp_trainer_open_tracking(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    char *dir = NULL;
    if (!fsdp_trainer_is_first(t))
        return FSDP_OK;
    FSDP_TRY(make_folders_of_files(c));
    if (!c->metrics && !c->tracker_command && !fsdp_train_has_logging_dir(c))
        return FSDP_OK;
    if (fsdp_train_has_logging_dir(c))
        FSDP_TRY(choose_folder(t, &dir));
    fsdp_status status = open_in(t, dir);
    if (status == FSDP_OK && dir && fsdp_train_reports_to(c, FSDP_REPORT_TENSORBOARD))
        fsdp_trainer_print(t, "to look at the run: tensorboard --logdir %s", dir);
    else if (status == FSDP_OK && dir)
        fsdp_trainer_print(t, "the run is reported in %s", dir);
    if (status == FSDP_OK && c->metrics && fsdp_train_reports_to(c, FSDP_REPORT_JSON))
        fsdp_trainer_print(t, "the JSON lines of --report-to are in %s (--metrics)", c->metrics);
    if (status == FSDP_OK)
        status = report_config(t);
    fsdp_free(dir);
    return status;
}

/* ---- the files of the ranks: Note [Rank files] in src/monitor/monitor.h ---- */

/* Return the folder for the files of the ranks: "m.ranks" for "m.jsonl". The caller owns it. */
static char *folder_of_ranks(const char *metrics)
{
    static const char ending[] = ".jsonl";
    const size_t n = strlen(metrics) - (fsdp_ends_with(metrics, ending) ? strlen(ending) : 0);
    return fsdp_strdup_printf("%.*s.ranks", (int)n, metrics);
}

/* Write run.json, which describes the run. */
static fsdp_status write_description(const fsdp_trainer *t, const char *folder)
{
    fsdp_json *doc;
    char *path = fsdp_path_join(folder, "run.json");
    fsdp_status status = path ? fsdp_json_create(path, &doc) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        fsdp_json_node root = fsdp_json_root(doc);
        fsdp_json_set_i64(root, "time", (int64_t)time(NULL));
        fsdp_json_set_any_str(root, "checkpoints", t->checkpoint_dir);
        status = put_run(root, t);
        if (status == FSDP_OK)
            status = fsdp_json_write(doc, FSDP_JSON_PRETTY, path);
        fsdp_json_destroy(doc);
    }
    fsdp_free(path);
    return status;
}

/* Remove the files of ranks that this run does not have: an earlier run may have had more ranks. */
static fsdp_status remove_old_ranks(const fsdp_trainer *t, const char *folder)
{
    fsdp_status status = FSDP_OK;
    for (int rank = fsdp_group_world_size(t->group); status == FSDP_OK; rank++) {
        char name[32];
        snprintf(name, sizeof name, "%d.jsonl", rank);
        if (!fsdp_directory_has_file(folder, name))
            break;
        char *path = fsdp_path_join(folder, name);
        status = path ? fsdp_tree_remove(path) : FSDP_ERR_NOMEM;
        fsdp_free(path);
    }
    return status;
}

/* Called by rank 0. Make the folder for the files of the ranks, and write its path to `path`
 * [PATH_MAX]. Write "" if the run writes no files of ranks. */
static fsdp_status make_folder_of_ranks(const fsdp_trainer *t, char *path)
{
    path[0] = 0;
    if (!t->metrics_path || !t->config->rank_metrics)
        return FSDP_OK;
    char *folder = folder_of_ranks(t->metrics_path);
    fsdp_status status = folder ? fsdp_directory_make(folder) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && strlen(folder) >= PATH_MAX)
        status = fsdp_error(FSDP_ERR_INVALID, "%s: the path is too long", folder);
    if (status == FSDP_OK)
        status = remove_old_ranks(t, folder);
    if (status == FSDP_OK)
        status = write_description(t, folder);
    if (status == FSDP_OK)
        snprintf(path, PATH_MAX, "%s", folder);
    fsdp_free(folder);
    return status;
}

/* Pass the folders of the run's files to config->reports_open() (--dashboard). */
static fsdp_status announce_reports(const fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    if (!c->reports_open)
        return FSDP_OK;
    if (!t->metrics_path)
        return fsdp_error(FSDP_ERR_INVALID, "--dashboard: --metrics %s is not a regular file",
                          c->metrics);
    char *parent = fsdp_path_parent(t->metrics_path);
    const fsdp_status status =
        parent ? c->reports_open(c->reports_context, parent, t->checkpoint_dir, t->out)
               : FSDP_ERR_NOMEM;
    fsdp_free(parent);
    return status;
}

static fsdp_status open_monitor_in(fsdp_trainer *t, const char *folder)
{
    /* Rank 0 may be on another host and may have made the folder there. */
    FSDP_TRY(fsdp_directory_make(folder));
    const fsdp_monitor_options options = {
        .folder = folder,
        .append = t->resumed_from != NULL,
        .step = t->step,
        .threads = t->threads,
        .groups = {t->group, t->mesh ? fsdp_device_mesh_group(t->mesh, 0) : NULL,
                   t->mesh ? fsdp_device_mesh_group(t->mesh, 1) : NULL},
        .device = t->device,
        .module = t->loop.module};
    return fsdp_monitor_open(&options, &t->monitor);
}

fsdp_status fsdp_trainer_open_monitor(fsdp_trainer *t)
{
    char folder[PATH_MAX] = "";
    fsdp_status status = FSDP_OK;
    if (fsdp_trainer_is_first(t))
        status = make_folder_of_ranks(t, folder);
    FSDP_TRY(fsdp_agree(t->group, status));
    FSDP_TRY(fsdp_broadcast(t->group, folder, sizeof folder, 0));
    if (*folder)
        status = open_monitor_in(t, folder);
    if (status == FSDP_OK && fsdp_trainer_is_first(t))
        status = announce_reports(t);
    return fsdp_agree(t->group, status);
}

/* ---- histograms ---- */

static bool is_time_for_histograms(const fsdp_trainer *t, int64_t step)
{
    return t->histograms && step % t->config->log_histograms == 0;
}

static fsdp_status report_histograms(fsdp_trainer *t, fsdp_histograms_of what, int64_t step)
{
    const bool of_weights = what == FSDP_HISTOGRAMS_OF_WEIGHTS;
    FSDP_TRY(fsdp_histograms_update(t->histograms, what));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; t->tracking && status == FSDP_OK; i++) {
        if (i == fsdp_histograms_n_units(t->histograms))
            break;
        char *tag = fsdp_strdup_printf("%s/%s", of_weights ? "weights" : "gradients",
                                       fsdp_histograms_unit(t->histograms, i));
        status = tag ? fsdp_tracking_histogram(t->tracking, step, tag,
                                               fsdp_histograms_get(t->histograms, i))
                     : FSDP_ERR_NOMEM;
        fsdp_free(tag);
    }
    return fsdp_agree(t->group, status);
}

static fsdp_status report_gradients(void *context, int64_t step)
{
    fsdp_trainer *t = context;
    return is_time_for_histograms(t, step + 1)
               ? report_histograms(t, FSDP_HISTOGRAMS_OF_GRADIENTS, step + 1)
               : FSDP_OK;
}

fsdp_status fsdp_trainer_report_weights(fsdp_trainer *t)
{
    return is_time_for_histograms(t, t->step)
               ? report_histograms(t, FSDP_HISTOGRAMS_OF_WEIGHTS, t->step)
               : FSDP_OK;
}

fsdp_status fsdp_trainer_open_histograms(fsdp_trainer *t)
{
    if (!t->config->log_histograms)
        return FSDP_OK;
    FSDP_TRY(fsdp_agree(t->group, fsdp_histograms_create(t->loop.module, &t->loop.parameters,
                                                         t->group, &t->histograms)));
    t->loop.with_gradients = report_gradients;
    t->loop.gradients_context = t;
    return FSDP_OK;
}

void fsdp_trainer_check_monitor(const fsdp_trainer *t)
{
    const char *failure = fsdp_monitor_failure(t->monitor);
    if (!failure)
        return;
    fsdp_progress_clear(t->progress);
    fprintf(stderr, "fsdp train: rank %d writes no more about itself: %s\n",
            fsdp_group_rank(t->group), failure);
}

void fsdp_trainer_close_tracking(fsdp_trainer *t, bool failed)
{
    fsdp_tracking_close(t->tracking, failed ? PROGRAM_FAILED_END_S : PROGRAM_END_S);
    t->tracking = NULL;
}
