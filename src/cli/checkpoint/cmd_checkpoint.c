/* `fsdp checkpoint SUBCOMMAND`: inspects, verifies, compares, converts, gathers or merges
 * checkpoints of any format. */
#include <stdio.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/base/nearest.h"
#include "src/cli/checkpoint/checkpoint.h"
#include "src/cli/common/cli.h"
#include "src/cli/common/commands.h"

static const fsdp_command commands[] = {
    {"inspect", "list the tensors and values of a checkpoint", fsdp_checkpoint_inspect},
    {"verify", "read every byte, and name what is damaged", fsdp_checkpoint_verify},
    {"diff", "in what two checkpoints differ", fsdp_checkpoint_diff},
    {"convert", "write a checkpoint in another format, dtype or number of files",
     fsdp_checkpoint_convert},
    {"merge-weights", "convert, into the folder of a Hugging Face model unless --format is given",
     fsdp_checkpoint_convert},
    {"gather", "put the files of several hosts' disks together", fsdp_checkpoint_gather},
    {"merge-adapter", "add a LoRA adapter to the weights of its model",
     fsdp_checkpoint_merge_adapter},
    {"init-adapter", "make an adapter from a model's singular values (PiSSA)",
     fsdp_checkpoint_init_adapter},
};

const fsdp_command_group fsdp_checkpoint_group = {
    .usage = "COMMAND PATH... [options]",
    .summary = "Checkpoints of any format: directories of torch.distributed.checkpoint, files of\n"
               "torch.save, safetensors, folders of Hugging Face models.",
    .commands = commands,
    .count = FSDP_LENGTH(commands),
};

static void print_help(FILE *to)
{
    fprintf(to, "usage: fsdp checkpoint %s\n\n%s\n\ncommands:\n", fsdp_checkpoint_group.usage,
            fsdp_checkpoint_group.summary);
    for (size_t i = 0; i < FSDP_LENGTH(commands); i++)
        fprintf(to, "  %-13s %s\n", commands[i].name, commands[i].help);
    fputs("\n'fsdp checkpoint COMMAND --help' shows a command's options.\n", to);
}

static int unknown(const char *name)
{
    const char *names[FSDP_LENGTH(commands)];
    for (size_t i = 0; i < FSDP_LENGTH(commands); i++)
        names[i] = commands[i].name;
    int near = fsdp_nearest_name(name, names, FSDP_LENGTH(commands));
    const bool has_near = near >= 0;
    (void)fsdp_error(FSDP_ERR_INVALID, "unknown command '%s'%s%s%s", name,
                     has_near ? "; did you mean '" : "", has_near ? names[near] : "",
                     has_near ? "'?" : "");
    return fsdp_cli_misused("fsdp checkpoint");
}

int fsdp_cmd_checkpoint(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return FSDP_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return FSDP_EXIT_OK;
    }
    for (size_t i = 0; i < FSDP_LENGTH(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return unknown(argv[1]);
}
