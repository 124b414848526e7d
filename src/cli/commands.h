/* The commands of `fsdp`. To add a command, add a line to FSDP_COMMANDS, and a file, cmd_<name>.c,
 * that defines
 *     int fsdp_cmd_<name>(int argc, char **argv);
 * argv[0] is the name of the command, and the rest are its arguments. The function returns an
 * fsdp_exit. */
#pragma once
#include <stdbool.h>

#include "src/launch/exit_code.h"

/* X(name, "one line of help"), in the order in which `fsdp help` lists the commands. */
/* clang-format off */
#define FSDP_COMMANDS(X) \
    X(train, "fine-tune or pretrain a model") \
    X(plan, "predict the memory and collectives of a training run") \
    X(evaluate, "loss and ROUGE of models on held-out rows") \
    X(launch, "start N ranks of a command on this host, as torchrun does") \
    X(generate, "generate text with a model") \
    X(verify, "compare this build with the numbers of PyTorch") \
    X(compare, "compare runs by their --metrics files") \
    X(bench, "measure training and collectives on this machine") \
    X(plot, "draw the loss curve of a --metrics file") \
    X(checkpoint, "inspect, compare and convert checkpoints of any format") \
    X(help, "show the commands, or the options of one")
/* clang-format on */

#define FSDP_DECLARE_COMMAND(name, help) int fsdp_cmd_##name(int argc, char **argv);
FSDP_COMMANDS(FSDP_DECLARE_COMMAND)
#undef FSDP_DECLARE_COMMAND

/* Is there a command of this name in the table of main.c? This is for commands that run other
 * commands. */
bool fsdp_command_exists(const char *name);
/* Return the command whose name is most similar to `name`; NULL if none is similar enough. */
const char *fsdp_command_nearest(const char *name);
/* Run the command argv[0], which must exist, and return its exit code. */
int fsdp_command_run(int argc, char **argv);
