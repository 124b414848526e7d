/* The subcommands of `fsdp checkpoint`. */
#pragma once

/* As in commands.h; argv[0] is the subcommand's own name. */
int fsdp_checkpoint_inspect(int argc, char **argv);
int fsdp_checkpoint_diff(int argc, char **argv);
/* Also as merge-weights, which is Accelerate's name for it. */
int fsdp_checkpoint_convert(int argc, char **argv);
int fsdp_checkpoint_verify(int argc, char **argv);
