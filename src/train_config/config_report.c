/* See config_report.h. */
#include "src/train_config/config_report.h"

#include <string.h>
#include <strings.h>

#include "src/base/assert.h"
#include "src/base/nearest.h"

static const char *const files[] = {[FSDP_REPORT_TENSORBOARD] = "tensorboard",
                                    [FSDP_REPORT_CSV] = "csv",
                                    [FSDP_REPORT_JSON] = "json"};

/* Names of trackers of transformers and Accelerate that are services on a network. */
static const char *const services[] = {"wandb",   "mlflow",  "comet_ml", "comet",     "clearml",
                                       "neptune", "swanlab", "trackio",  "azure_ml",  "aim",
                                       "dvclive", "dagshub", "flyte",    "codecarbon"};

static bool is_service(const char *word)
{
    for (size_t i = 0; i < FSDP_LENGTH(services); i++)
        if (strcasecmp(word, services[i]) == 0)
            return true;
    return false;
}

static bool is_file(const char *word)
{
    for (size_t i = 0; i < FSDP_LENGTH(files); i++)
        if (strcasecmp(word, files[i]) == 0)
            return true;
    return false;
}

static bool is_named(const fsdp_train_config *c, const char *word)
{
    for (size_t i = 0; i < c->report_to.count; i++)
        if (strcasecmp(c->report_to.items[i], word) == 0)
            return true;
    return false;
}

bool fsdp_train_reports_to(const fsdp_train_config *c, fsdp_report_to to)
{
    if (to == FSDP_REPORT_JSON && c->dashboard && !c->metrics)
        return true;
    if (c->report_to.count == 0)
        return c->with_tracking;
    return is_named(c, "all") || is_named(c, files[to]);
}

bool fsdp_train_has_logging_dir(const fsdp_train_config *c)
{
    return fsdp_train_reports_to(c, FSDP_REPORT_TENSORBOARD) ||
           fsdp_train_reports_to(c, FSDP_REPORT_CSV) ||
           (fsdp_train_reports_to(c, FSDP_REPORT_JSON) && !c->metrics);
}

static fsdp_status refuse_service(const char *word)
{
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "--report-to %s: a service on the network, which a program of its own must "
                      "talk to: --tracker-command 'python log_to_%s.py' gets a JSON line for each "
                      "step on its standard input (docs/tracking.md has scripts of ten lines). "
                      "Without a program: tensorboard, csv, json, all or none",
                      word, word);
}

static fsdp_status refuse_unknown(const char *word)
{
    static const char *const known[] = {"tensorboard", "csv",    "json",    "none",     "all",
                                        "wandb",       "mlflow", "clearml", "comet_ml", "trackio"};
    const int nearest = fsdp_nearest_name(word, known, FSDP_LENGTH(known));
    return fsdp_error(FSDP_ERR_INVALID,
                      "--report-to %.100s: none of tensorboard, csv, json, all and none%s%s%s",
                      word, nearest < 0 ? "" : "; did you mean ", nearest < 0 ? "" : known[nearest],
                      nearest < 0 ? "" : "?");
}

fsdp_status fsdp_train_report_check(const fsdp_train_config *c)
{
    for (size_t i = 0; i < c->report_to.count; i++) {
        const char *word = c->report_to.items[i];
        if (is_service(word) && !c->tracker_command)
            return refuse_service(word);
        if (!is_service(word) && !is_file(word) && strcasecmp(word, "all") != 0 &&
            strcasecmp(word, "none") != 0)
            return refuse_unknown(word);
    }
    if (is_named(c, "none") && c->report_to.count > 1)
        return fsdp_error(FSDP_ERR_INVALID, "--report-to none contradicts its other words");
    return FSDP_OK;
}
