/* `fsdp checkpoint gather`: makes one checkpoint from files that are on the disks of several hosts.
 */
#include <stdio.h>

#include "src/base/assert.h"
#include "src/checkpoint_tools/gather.h"
#include "src/cli/checkpoint/checkpoint.h"
#include "src/cli/checkpoint/checkpoint_bar.h"
#include "src/cli/common/cli.h"
#include "src/report/human.h"

enum {
    MAX_DIRS = 1024
};

typedef struct gather_config {
    const char *output;
    char **dirs; /* [n_dirs] */
    int n_dirs;
} gather_config;

static const fsdp_option table[] = {
    {.name = "output",
     .aliases = "o",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(gather_config, output),
     .metavar = "OUT",
     .help = "the folder to write; it must not exist, or must be empty"},
};

static fsdp_status check_config(void *target, const fsdp_options *options)
{
    const gather_config *c = target;
    (void)options;
    if (!c->output || !*c->output)
        return fsdp_error(FSDP_ERR_INVALID, "--output: is needed, the folder to write");
    return FSDP_OK;
}

static const fsdp_options_spec spec = {
    .program = "fsdp checkpoint gather",
    .usage = "DIR... --output OUT",
    .summary =
        "Put a checkpoint of torch.distributed.checkpoint together whose files are in several "
        "folders. 'fsdp train' on hosts with disks of their own leaves such folders, each with the "
        "files of the ranks of its host. Either name folders that were copied to this host, or "
        "start "
        "this command with one rank on each host by mpirun, mpiexec, srun or 'fsdp launch': each "
        "rank reads the folders DIR of its host, and OUT is written on the host of rank 0. All "
        "files "
        "must be there and of the same save, and all checksums are verified. OUT appears complete "
        "or not at all.",
    .epilogue =
        "examples:\n"
        "  fsdp checkpoint gather node1/checkpoint-500 node2/checkpoint-500 -o whole\n"
        "  mpirun -H node1,node2 fsdp checkpoint gather out-checkpoints/checkpoint-500 -o whole\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "DIR...",
    .min_positional = 1,
    .max_positional = MAX_DIRS,
    .check = check_config,
};

static fsdp_status gather(fsdp_group *group, void *arg)
{
    const gather_config *c = arg;
    const char *dirs[MAX_DIRS];
    fsdp_gather_result result;
    fsdp_checkpoint_bar bar = {.description = "gathering"};
    const fsdp_gather_options options = {.progress = fsdp_checkpoint_bar_step, .context = &bar};
    for (int i = 0; i < c->n_dirs; i++)
        dirs[i] = c->dirs[i];
    const fsdp_status status =
        fsdp_gather_checkpoint(dirs, (size_t)c->n_dirs, c->output, group, &options, &result);
    fsdp_checkpoint_bar_end(&bar);
    if (status == FSDP_OK && fsdp_group_rank(group) == 0) {
        printf("%s: whole: %zu file%s of ranks, %s", c->output, result.files,
               result.files == 1 ? "" : "s", fsdp_human_bytes(result.bytes).text);
        if (result.hosts > 1)
            printf(", from %d hosts", result.hosts);
        putchar('\n');
    }
    return status;
}

int fsdp_checkpoint_gather(int argc, char **argv)
{
    gather_config c = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(&spec, argc, argv, &c, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    c.dirs = fsdp_options_positional(options, &c.n_dirs);
    code = fsdp_cli_run_rank(spec.program, gather, &c);
    fsdp_options_destroy(options);
    return code;
}
