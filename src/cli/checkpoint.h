/* The subcommands of `fsdp checkpoint`. */
#pragma once

/* Run a subcommand, like the functions in commands.h. argv[0] is the name of the subcommand. */
int fsdp_checkpoint_inspect(int argc, char **argv);
int fsdp_checkpoint_diff(int argc, char **argv);
/* Also runs merge-weights, which has the name of Accelerate's command. */
int fsdp_checkpoint_convert(int argc, char **argv);
int fsdp_checkpoint_verify(int argc, char **argv);
