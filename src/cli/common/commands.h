/* The commands of `fsdp`. To add a command, add a line to FSDP_COMMANDS, and add a file
 * cmd_<name>.c that defines
 *     int fsdp_cmd_<name>(int argc, char **argv);
 * argv[0] is the name of the command, and the rest are its arguments. The function returns an
 * fsdp_exit. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "src/launch/exit_code.h"

/* X(name, "one line of help") for each command, in the order in which `fsdp help` lists them. */
/* clang-format off */
#define FSDP_COMMANDS(X) \
    X(train, "fine-tune or pretrain a model") \
    X(plan, "predict the memory and collectives of a training run") \
    X(tokenize, "make token files, Arrow folders and tokenizers from texts") \
    X(evaluate, "loss, perplexity, ROUGE or accuracy of models on held-out rows") \
    X(config, "write, convert, update and explain configuration files of Accelerate") \
    X(launch, "start N ranks of a command on each host, as torchrun does") \
    X(generate, "generate text with a model") \
    X(classify, "label texts with a classifier") \
    X(verify, "compare this build with the numbers of PyTorch") \
    X(compare, "compare the losses, times and memory of runs") \
    X(bench, "measure training and collectives on this machine") \
    X(plot, "draw the loss curves of runs") \
    X(dashboard, "serve a page about runs: curves, ranks, checkpoints, which was best") \
    X(checkpoint, "inspect, compare and convert checkpoints of any format") \
    X(completion, "print a completion script for bash, zsh or fish") \
    X(env, "show the version, devices, libraries and settings, for a bug report") \
    X(help, "show the commands, or the options of one")
/* clang-format on */

#define FSDP_DECLARE_COMMAND(name, help) int fsdp_cmd_##name(int argc, char **argv);
FSDP_COMMANDS(FSDP_DECLARE_COMMAND)
#undef FSDP_DECLARE_COMMAND

typedef struct fsdp_command {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} fsdp_command;

/* The subcommands of a command, such as `fsdp checkpoint convert`. */
typedef struct fsdp_command_group {
    const char *usage;   /* what follows the command's name */
    const char *summary; /* what the command does; NULL: the command also has options of its own,
                            and its fsdp_options_spec has the summary */
    const fsdp_command *commands; /* [count] */
    size_t count;
} fsdp_command_group;

/* A command with subcommands. */
typedef struct fsdp_command_subcommands {
    const char *command;
    const fsdp_command_group *group;
} fsdp_command_subcommands;

extern const fsdp_command_group fsdp_bench_group, fsdp_checkpoint_group, fsdp_config_group;

/* Commands that MPI's programs call when `fsdp launch` runs a job on several hosts. They are not
 * for users, and are in no list. MPI calls the launch agent as it would call ssh, with -x as the
 * first argument, so the name of the agent's command is -x. launch-rank starts one rank
 * (fsdp_rank_stage() in src/hosts/rank_stage.h). */
#define FSDP_LAUNCH_AGENT_COMMAND "-x"
#define FSDP_LAUNCH_RANK_COMMAND "launch-rank"
int fsdp_hidden_launch_command(int argc, char **argv);

enum {
    FSDP_COMMANDS_MAX = 64
};

/* Set the list of commands [count], which must stay valid. main() calls this first. */
void fsdp_commands_set(const fsdp_command *list, size_t count);
/* Set the list of commands with subcommands [count], which must stay valid. main() calls this, too.
 */
void fsdp_command_groups_set(const fsdp_command_subcommands *list, size_t count);
/* Return the commands, in the order in which `fsdp help` lists them. Set *count to their number. */
const fsdp_command *fsdp_commands(size_t *count);
/* Return the subcommands of the command `name`, or NULL if it has none. */
const fsdp_command_group *fsdp_command_group_of(const char *name);

/* Return true if there is a command with this name. `fsdp launch` uses this to distinguish commands
 * from other programs. */
bool fsdp_command_exists(const char *name);
/* Return the command whose name is most similar to `name`; NULL if none is similar enough. */
const char *fsdp_command_nearest(const char *name);
/* Run the command whose name is argv[0], and return its exit code. The command must exist
 * (asserted). */
int fsdp_command_run(int argc, char **argv);

/* Print the list of commands, the text of `fsdp --help`. */
void fsdp_print_commands(FILE *to);
/* Print an error for a command that does not exist, and return FSDP_EXIT_USAGE. */
int fsdp_command_unknown(const char *name);
