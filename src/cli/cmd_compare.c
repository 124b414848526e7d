/* `fsdp compare`: compares training runs by what they reported. */
#include <stdio.h>

#include "src/base/assert.h"
#include "src/cli/common/cli.h"
#include "src/report/compare.h"

typedef struct compare_config {
    bool same_losses;
} compare_config;

static const fsdp_option table[] = {
    {.name = "same-losses",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(compare_config, same_losses),
     .help = "fail unless the losses of all common steps are bit for bit the same"},
};

static fsdp_status check_count(void *target, const fsdp_options *options)
{
    int count;
    char **files = fsdp_options_positional(options, &count);
    if (((const compare_config *)target)->same_losses && count < 2)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--same-losses needs two runs or more: there is only %s", files[0]);
    return FSDP_OK;
}

static const fsdp_options_spec spec = {
    .program = "fsdp compare",
    .usage = "RUN... [--same-losses]",
    .summary = "Compare runs side by side: losses, time per step, peak memory by purpose of each "
               "rank, host memory; and whether their losses are the same. A run is a file of 'fsdp "
               "train --metrics FILE', a metrics.csv, an event file of TensorBoard (also one of "
               "transformers), or a folder with either, such as --logging-dir or --output. What a "
               "run did not report is '-'; only files of --metrics have the memory of the ranks.",
    .epilogue = "example:\n  fsdp compare sharded.jsonl no-shard.jsonl\n  fsdp compare out1 "
                "logs/events.out.tfevents.*\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "RUN...",
    .min_positional = 1,
    .check = check_count,
};

int fsdp_cmd_compare(int argc, char **argv)
{
    compare_config config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    int count;
    char **files = fsdp_options_positional(options, &count);
    fsdp_compare_losses losses = FSDP_LOSSES_SAME;
    code = FSDP_EXIT_OK;
    if (fsdp_compare_runs((const char *const *)files, (size_t)count, stdout, &losses) != FSDP_OK)
        code = fsdp_cli_failed(spec.program);
    else if (config.same_losses && losses != FSDP_LOSSES_SAME)
        code = FSDP_EXIT_FAILURE;
    fsdp_options_destroy(options);
    return code;
}
