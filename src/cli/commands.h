/* The commands of `fsdp`. To add a command, add a line to FSDP_COMMANDS, and add a file
 * cmd_<name>.c that defines
 *     int fsdp_cmd_<name>(int argc, char **argv);
 * argv[0] is the name of the command, and the rest are its arguments. The function returns an
 * fsdp_exit. */
#pragma once
#include <stdbool.h>

#include "src/launch/exit_code.h"

/* X(name, "one line of help") for each command, in the order in which `fsdp help` lists them. */
/* clang-format off */
#define FSDP_COMMANDS(X) \
    X(train, "fine-tune or pretrain a model") \
    X(plan, "predict the memory and collectives of a training run") \
    X(tokenize, "make token files, Arrow folders and tokenizers from texts") \
    X(evaluate, "loss and ROUGE of models on held-out rows") \
    X(config, "write, convert and explain configuration files of Accelerate") \
    X(launch, "start N ranks of a command on this host, as torchrun does") \
    X(generate, "generate text with a model") \
    X(verify, "compare this build with the numbers of PyTorch") \
    X(compare, "compare runs by their --metrics files") \
    X(bench, "measure training and collectives on this machine") \
    X(plot, "draw the loss curves of runs") \
    X(dashboard, "serve a page about runs: curves, ranks, checkpoints, which was best") \
    X(checkpoint, "inspect, compare and convert checkpoints of any format") \
    X(env, "show the version, devices, libraries and settings, for a bug report") \
    X(help, "show the commands, or the options of one")
/* clang-format on */

#define FSDP_DECLARE_COMMAND(name, help) int fsdp_cmd_##name(int argc, char **argv);
FSDP_COMMANDS(FSDP_DECLARE_COMMAND)
#undef FSDP_DECLARE_COMMAND

/* Return true if there is a command with this name. `fsdp launch` uses this to distinguish commands
 * from other programs. */
bool fsdp_command_exists(const char *name);
/* Return the command whose name is most similar to `name`; NULL if none is similar enough. */
const char *fsdp_command_nearest(const char *name);
/* Run the command whose name is argv[0], and return its exit code. The command must exist
 * (asserted). */
int fsdp_command_run(int argc, char **argv);
