/* `fsdp bench KIND`: runs a benchmark. KIND is train or collectives. */
#include <stdio.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/cli/bench/bench.h"
#include "src/cli/common/cli.h"

static const fsdp_command kinds[] = {
    {"train", "training steps of a shape: time, memory, part of the machine's speed",
     fsdp_bench_train_main},
    {"collectives", "bytes per second of collectives between processes, compared with memcpy's",
     fsdp_bench_collectives_main},
};

const fsdp_command_group fsdp_bench_group = {
    .usage = "KIND [options]",
    .summary = "Measure this machine. KIND is:",
    .commands = kinds,
    .count = FSDP_LENGTH(kinds),
};

static int print_help(void)
{
    printf("usage: fsdp bench %s\n\n%s\n", fsdp_bench_group.usage, fsdp_bench_group.summary);
    for (size_t i = 0; i < FSDP_LENGTH(kinds); i++)
        printf("  %-12s %s\n", kinds[i].name, kinds[i].help);
    puts("\n'fsdp bench KIND --help' shows its options.");
    return FSDP_EXIT_OK;
}

int fsdp_cmd_bench(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return print_help();
    for (size_t i = 0; argc > 1 && i < FSDP_LENGTH(kinds); i++)
        if (strcmp(argv[1], kinds[i].name) == 0)
            return kinds[i].run(argc, argv);
    (void)fsdp_error(FSDP_ERR_INVALID, "%s%s%s: what it measures is 'train' or 'collectives'",
                     argc < 2 ? "nothing to measure" : "'", argc < 2 ? "" : argv[1],
                     argc < 2 ? "" : "'");
    return fsdp_cli_misused("fsdp bench");
}
