/* The subcommands of `fsdp checkpoint`. */
#pragma once

/* Each of these functions runs a subcommand, like the functions in commands.h. argv[0] is the name
 * of the subcommand. */
int fsdp_checkpoint_inspect(int argc, char **argv);
int fsdp_checkpoint_diff(int argc, char **argv);
/* Also runs `fsdp checkpoint merge-weights`, which is named after Accelerate's command. */
int fsdp_checkpoint_convert(int argc, char **argv);
int fsdp_checkpoint_verify(int argc, char **argv);
