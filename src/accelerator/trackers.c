/* Implements trackers: writes the rows that a program logs to files, and passes them on to a
 * tracker program (src/report/tracking.h). */
#include <string.h>
#include <strings.h>

#include "src/accelerator/accelerator.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/nearest.h"
#include "src/comm/agree.h"
#include "src/report/metrics.h"

enum {
    PROGRAM_END_S = 120 /* seconds that end_training() waits for the tracker program to end */
};

/* ---- log_with ---- */

static const char *const files[] = {"tensorboard", "json", "csv", "all", "none"};
/* Trackers of Accelerate that are services. */
static const char *const services[] = {"wandb",  "trackio", "comet_ml", "aim",
                                       "mlflow", "clearml", "dvclive",  "swanlab"};

static bool is_among(const char *word, size_t bytes, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(words[i]) == bytes && strncasecmp(word, words[i], bytes) == 0)
            return true;
    return false;
}

static fsdp_status check_word(const char *word, size_t bytes, bool has_command)
{
    char text[FSDP_TRACKING_KEY_BYTES];
    snprintf(text, sizeof text, "%.*s", (int)(bytes < sizeof text ? bytes : sizeof text - 1), word);
    if (is_among(word, bytes, files, FSDP_LENGTH(files)))
        return FSDP_OK;
    if (is_among(word, bytes, services, FSDP_LENGTH(services))) {
        if (has_command)
            return FSDP_OK;
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "accelerator: log_with %s: a service on the network, which a program of "
            "its own must talk to: set tracker_command, e.g. to 'python "
            "log_to_%s.py', which gets a JSON line for each row on its standard input "
            "(docs/tracking.md has scripts of ten lines)",
            text, text);
    }
    const int nearest = fsdp_nearest_name(text, files, FSDP_LENGTH(files));
    return fsdp_error(
        FSDP_ERR_INVALID,
        "accelerator: log_with \"%s\": none of tensorboard, json, csv, all and none%s%s%s", text,
        nearest < 0 ? "" : "; did you mean ", nearest < 0 ? "" : files[nearest],
        nearest < 0 ? "" : "?");
}

fsdp_status fsdp_accelerator_check_trackers(const char *log_with, const char *command)
{
    for (const char *word = log_with; word && *word;) {
        word += strspn(word, ", ");
        const size_t bytes = strcspn(word, ", ");
        if (bytes)
            FSDP_TRY(check_word(word, bytes, command != NULL));
        word += bytes;
    }
    return FSDP_OK;
}

static bool logs_with(const fsdp_accelerator *a, const char *name)
{
    for (const char *word = a->settings.log_with; word && *word;) {
        word += strspn(word, ", ");
        const size_t bytes = strcspn(word, ", ");
        if (is_among(word, bytes, &name, 1) || is_among(word, bytes, (const char *[]){"all"}, 1))
            return true;
        word += bytes;
    }
    return false;
}

/* ---- opening ---- */

static fsdp_status open_tracking(fsdp_accelerator *a, const char *dir)
{
    char *lines = dir ? fsdp_path_join(dir, "metrics.jsonl") : NULL,
         *csv = dir ? fsdp_path_join(dir, "metrics.csv") : NULL;
    const fsdp_tracking_options options = {.metrics = logs_with(a, "json") ? lines : NULL,
                                           .log_csv = logs_with(a, "csv") ? csv : NULL,
                                           .events = logs_with(a, "tensorboard") ? dir : NULL,
                                           .command = a->settings.tracker_command,
                                           .append = true};
    fsdp_status status = dir && (!lines || !csv) ? FSDP_ERR_NOMEM : FSDP_OK;
    if (status == FSDP_OK && dir)
        status = fsdp_directory_make(dir);
    if (status == FSDP_OK)
        status = fsdp_tracking_open(&options, &a->tracking);
    fsdp_free(lines);
    fsdp_free(csv);
    return status;
}

static fsdp_status write_config(fsdp_accelerator *a, const char *project,
                                const fsdp_tracker_option *config, size_t n)
{
    fsdp_json_node row;
    FSDP_TRY(fsdp_tracking_begin(a->tracking, "config", &row));
    fsdp_json_set_str(row, "run_name", NULL);
    fsdp_json_set_any_str(row, "project", project);
    fsdp_json_set_i64(row, "world_size", fsdp_group_world_size(a->group));
    const fsdp_json_node options = fsdp_json_set_object(row, "config");
    for (size_t i = 0; i < n; i++)
        fsdp_json_set_any_str(options, config[i].name, config[i].value);
    return fsdp_tracking_write(a->tracking);
}

static fsdp_status start(fsdp_accelerator *a, const char *project,
                         const fsdp_tracker_option *config, size_t n)
{
    const bool writes_files =
        logs_with(a, "json") || logs_with(a, "csv") || logs_with(a, "tensorboard");
    if (a->tracks)
        return fsdp_error(FSDP_ERR_STATE, "accelerator: trackers are open already");
    if (writes_files && !a->settings.logging_dir)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: log_with %s writes files, so logging_dir or project_dir "
                          "must be set",
                          a->settings.log_with);
    if (!project || !*project)
        return fsdp_error(FSDP_ERR_INVALID, "accelerator: init_trackers: project_name is missing");
    if (fsdp_group_rank(a->group) != 0 || (!writes_files && !a->settings.tracker_command))
        return FSDP_OK;
    char *dir = writes_files ? fsdp_path_join(a->settings.logging_dir, project) : NULL;
    fsdp_status status = writes_files && !dir ? FSDP_ERR_NOMEM : open_tracking(a, dir);
    if (status == FSDP_OK)
        status = write_config(a, project, config, n);
    fsdp_free(dir);
    return status;
}

fsdp_status fsdp_accelerator_init_trackers(fsdp_accelerator *a, const char *project_name,
                                           const fsdp_tracker_option *config, size_t n)
{
    const fsdp_status status = fsdp_agree(a->group, start(a, project_name, config, n));
    if (status == FSDP_OK)
        a->tracks = true;
    else if (!a->tracks)
        fsdp_accelerator_close_trackers(a, 0);
    return status;
}

/* ---- rows ---- */

static fsdp_status check_name(const fsdp_tracker_value *values, size_t i)
{
    const char *name = values[i].name;
    if (!name || !*name || strlen(name) >= FSDP_TRACKING_KEY_BYTES || strcmp(name, "kind") == 0 ||
        strcmp(name, "step") == 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: log: name \"%.80s\": expected 1 to %d bytes, other than "
                          "kind and step",
                          name ? name : "", FSDP_TRACKING_KEY_BYTES - 1);
    for (size_t k = 0; k < i; k++)
        if (strcmp(values[k].name, name) == 0)
            return fsdp_error(FSDP_ERR_INVALID, "accelerator: log: \"%s\" is there twice", name);
    return FSDP_OK;
}

static fsdp_status check_values(const fsdp_tracker_value *values, size_t n)
{
    if (n > FSDP_TRACKING_MAX_KEYS)
        return fsdp_error(FSDP_ERR_INVALID, "accelerator: log: %zu values in a row, at most %d", n,
                          FSDP_TRACKING_MAX_KEYS);
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(check_name(values, i));
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_log(fsdp_accelerator *a, const fsdp_tracker_value *values, size_t n,
                                 int64_t step)
{
    fsdp_json_node row;
    if (!a->tracks)
        return fsdp_error(FSDP_ERR_STATE, "accelerator: log: call fsdp_accelerator_init_trackers() "
                                          "first");
    FSDP_TRY(check_values(values, n));
    if (!a->tracking)
        return FSDP_OK;
    FSDP_TRY(fsdp_tracking_begin(a->tracking, "log", &row));
    if (step >= 0)
        fsdp_json_set_i64(row, "step", step);
    else
        fsdp_json_set_str(row, "step", NULL);
    for (size_t i = 0; i < n; i++)
        fsdp_metrics_set_number(row, values[i].name, values[i].value);
    return fsdp_tracking_write(a->tracking);
}

/* ---- closing ---- */

void fsdp_accelerator_close_trackers(fsdp_accelerator *a, double seconds)
{
    fsdp_tracking_close(a->tracking, seconds);
    a->tracking = NULL;
    a->tracks = false;
}

fsdp_status fsdp_accelerator_end_training(fsdp_accelerator *a)
{
    fsdp_accelerator_close_trackers(a, PROGRAM_END_S);
    return fsdp_barrier(a->group);
}
