/* `fsdp verify`: checks that this build, on this machine, computes the same numbers as PyTorch. */
#include <math.h>
#include <stdio.h>

#include <fsdp/comm.h>
#include <fsdp/tensor.h>
#include <fsdp/train.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/json.h"
#include "src/cli/common/cli.h"
#include "src/comm/comm.h"
#include "src/options/device_option.h"
#include "src/options/isa_option.h"
#include "src/tensor/cards.h"
#include "src/verify/verify.h"

typedef struct verify_config {
    bool json;
    int threads_per_rank;
    const char *device, *isa;
    char **paths; /* [n_paths] folders of test cases */
    int n_paths;
    /* true: a comparison failed, nothing was compared, or a result could not be printed. Set only
     * on rank 0. */
    bool failed;
} verify_config;

static const fsdp_option table[] = {
    {.name = "json",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(verify_config, json),
     .help = "print a JSON object for each quantity, and one with the counts at the end"},
    FSDP_DEVICE_OPTION(offsetof(verify_config, device)),
    {.name = "threads-per-rank",
     .aliases = "num-cpu-threads-per-process",
     .type = FSDP_OPTION_INT,
     .offset = offsetof(verify_config, threads_per_rank),
     .value = "0",
     .bounds = FSDP_BETWEEN(0, 1024),
     .env = FSDP_THREADS_ENV,
     .shown_default = FSDP_THREADS_DEFAULT,
     .help = "threads that compute"},
    {.name = "isa",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(verify_config, isa),
     .metavar = "ISA",
     .shown_default = "the best that 'fsdp --version' lists",
     .help = FSDP_ISA_HELP},
};

static fsdp_status check_options(void *target, const fsdp_options *options)
{
    const verify_config *config = target;
    return fsdp_check_device_option(options, config->device, false);
}

static const fsdp_options_spec spec = {
    .program = "fsdp verify",
    .usage = "CASE... [options]",
    .summary =
        "Compare this build with the numbers of PyTorch and transformers: each CASE is a folder "
        "with a model, inputs, the expected results (logits, loss, hidden states, gradients, "
        "training trajectories, generated ids) and their tolerances.\n\n"
        "Training trajectories that N ranks made are compared under 'fsdp launch -n N'. The exit "
        "code is 0 only if something was compared and nothing failed.",
    .epilogue = "examples:\n  fsdp verify golden/t5_v1_0 golden/t5_v1_1\n"
                "  fsdp launch -n 2 verify golden/t5_v1_0\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "CASE...",
    .min_positional = 1,
    .check = check_options,
};

/* --- printing --- */

static void print_text(const fsdp_verify_line *line)
{
    if (line->outcome == FSDP_VERIFY_NOT_COMPARED)
        printf("%s: %s: not compared: %s\n", line->folder, line->quantity, line->reason);
    else
        printf("%s: %s: largest difference %.3g %s, tolerance %.3g: %s\n", line->folder,
               line->quantity, line->difference, line->measure, line->tolerance,
               line->outcome == FSDP_VERIFY_OK ? "ok" : "FAILED");
}

static fsdp_status print_json(fsdp_json *doc)
{
    char *text;
    FSDP_TRY(fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL));
    puts(text);
    fsdp_free(text);
    return FSDP_OK;
}

static fsdp_status print_line_json(const fsdp_verify_line *line)
{
    static const char *const outcomes[] = {[FSDP_VERIFY_OK] = "ok",
                                           [FSDP_VERIFY_FAILED] = "failed",
                                           [FSDP_VERIFY_NOT_COMPARED] = "not compared"};
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create("verify", &doc));
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_json_set_any_str(root, "case", line->folder);
    fsdp_json_set_any_str(root, "quantity", line->quantity);
    fsdp_json_set_str(root, "outcome", outcomes[line->outcome]);
    if (line->outcome == FSDP_VERIFY_NOT_COMPARED) {
        fsdp_json_set_any_str(root, "reason", line->reason);
    } else {
        fsdp_json_set_f64(root, "difference", line->difference);
        fsdp_json_set_f64(root, "tolerance", line->tolerance);
        fsdp_json_set_str(root, "measure", line->measure);
    }
    const fsdp_status status = print_json(doc);
    fsdp_json_destroy(doc);
    return status;
}

/* If a result could not be printed, print why, and let the command fail. */
static void take_printed(verify_config *config, fsdp_status printed)
{
    if (printed == FSDP_OK)
        return;
    (void)fsdp_cli_failed(spec.program);
    config->failed = true;
}

static void report(const fsdp_verify_line *line, void *arg)
{
    verify_config *config = arg;
    if (config->json)
        take_printed(config, print_line_json(line));
    else
        print_text(line);
    fflush(stdout);
}

static void print_device(const verify_config *config, const fsdp_group *group,
                         const fsdp_device *device)
{
    char text[256];
    if (config->json || fsdp_group_rank(group) > 0)
        return;
    fsdp_device_describe(device, text);
    printf("device: %s\n", text);
}

static fsdp_status print_counts(const verify_config *config, const fsdp_verify_counts *counts)
{
    fsdp_json *doc;
    if (!config->json) {
        printf("verify: %lld compared, %lld failed, %lld not compared\n",
               (long long)counts->compared, (long long)counts->failed,
               (long long)counts->not_compared);
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_json_create("verify", &doc));
    fsdp_json_set_i64(fsdp_json_root(doc), "compared", counts->compared);
    fsdp_json_set_i64(fsdp_json_root(doc), "failed", counts->failed);
    fsdp_json_set_i64(fsdp_json_root(doc), "not_compared", counts->not_compared);
    const fsdp_status status = print_json(doc);
    fsdp_json_destroy(doc);
    return status;
}

/* --- comparing --- */

static fsdp_status verify_all(fsdp_group *group, void *arg)
{
    verify_config *config = arg;
    fsdp_verify_counts counts = {0};
    fsdp_device *device;
    const fsdp_device_options options = {
        .name = config->device, .threads = config->threads_per_rank, .isa = config->isa};
    FSDP_TRY(fsdp_rank_device_create(group, &options, &device));
    print_device(config, group, device);
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < config->n_paths && status == FSDP_OK; i++)
        status = fsdp_verify_folder(config->paths[i], group, device, report, config, &counts);
    fsdp_device_destroy(device);
    if (status == FSDP_OK && fsdp_group_rank(group) == 0) {
        take_printed(config, print_counts(config, &counts));
        config->failed |= counts.failed || !counts.compared;
    }
    return status;
}

int fsdp_cmd_verify(int argc, char **argv)
{
    verify_config config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    config.paths = fsdp_options_positional(options, &config.n_paths);
    code = fsdp_cli_run_rank(spec.program, verify_all, &config);
    fsdp_options_destroy(options);
    return config.failed ? FSDP_EXIT_FAILURE : code; /* report() has printed the failures */
}
