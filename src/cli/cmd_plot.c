/* `fsdp plot`: draws the loss curves of runs as a picture. */
#include <stdio.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/cli/common/cli.h"
#include "src/report/plot.h"
#include "src/train_config/config_paths.h"

typedef struct plot_config {
    const char *output, *title;
    int width, height;
} plot_config;

static const fsdp_option table[] = {
    {.name = "output",
     .aliases = "o",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(plot_config, output),
     .value = "loss.png",
     .metavar = "FILE",
     .help = "the picture to write: .png, .svg or .pdf"},
    {.name = "title",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(plot_config, title),
     .value = "Training and validation loss",
     .metavar = "TEXT",
     .help = "text above the picture"},
    {.name = "width",
     .type = FSDP_OPTION_INT,
     .offset = offsetof(plot_config, width),
     .value = "1000",
     .bounds = FSDP_BETWEEN(300, 10000),
     .metavar = "PIXELS",
     .help = "width of the picture"},
    {.name = "height",
     .type = FSDP_OPTION_INT,
     .offset = offsetof(plot_config, height),
     .value = "600",
     .bounds = FSDP_BETWEEN(300, 10000),
     .metavar = "PIXELS",
     .help = "height of the picture"},
};

/* Check that a picture can be written to --output. A user who types `-o a.jsonl b.jsonl` has
 * forgotten the name of the picture, so names of metrics files are refused. */
static fsdp_status check_output(void *target, const fsdp_options *options)
{
    const char *output = ((const plot_config *)target)->output;
    int count;
    char **files = fsdp_options_positional(options, &count);
    const char *end = strrchr(output, '.');
    if (end && (strcmp(end, ".jsonl") == 0 || strcmp(end, ".csv") == 0))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--output %s: that is the name of a metrics file, not of a picture",
                          output);
    fsdp_plot_format format;
    fsdp_status status = fsdp_plot_format_of(output, &format);
    if (status != FSDP_OK)
        fsdp_error_context(status, "--output");
    FSDP_TRY(status);
    for (int i = 0; i < count; i++)
        if (fsdp_train_is_same_file(output, files[i]))
            return fsdp_error(FSDP_ERR_INVALID, "--output %s is one of the files to plot", output);
    return fsdp_train_file_check("output", output, FSDP_TRAIN_FILE_PICTURE);
}

static const fsdp_options_spec spec = {
    .program = "fsdp plot",
    .usage = "RUN... [-o loss.png] [options]",
    .summary =
        "Draw training loss, validation loss and learning rate of one or several runs, also "
        "while they run. A run is a file of 'fsdp train --metrics FILE', a metrics.csv, an "
        "event file of TensorBoard, or a folder with either, such as --logging-dir or --output.",
    .epilogue = "example:\n  fsdp plot sharded.jsonl no-shard.jsonl -o both.png\n  fsdp plot out1 "
                "out2/runs/Nov27_08-49-00_host -o both.svg\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "RUN...",
    .min_positional = 1,
    .check = check_output,
};

int fsdp_cmd_plot(int argc, char **argv)
{
    plot_config config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    int count;
    char **files = fsdp_options_positional(options, &count);
    fsdp_plot_options plot = {
        .title = config.title, .width = config.width, .height = config.height, .notes = stderr};
    if (fsdp_plot_files((const char *const *)files, (size_t)count, &plot, config.output) !=
        FSDP_OK) {
        code = fsdp_cli_failed(spec.program);
    } else {
        printf("%s\n", config.output);
        code = FSDP_EXIT_OK;
    }
    fsdp_options_destroy(options);
    return code;
}
