/* The subcommands of `fsdp checkpoint`. */
#pragma once

/* Each of these functions runs one subcommand and returns an fsdp_exit. argv[0] is the name of the
 * subcommand, and the rest are its arguments. */
int fsdp_checkpoint_inspect(int argc, char **argv);
int fsdp_checkpoint_diff(int argc, char **argv);
/* Runs `fsdp checkpoint convert`, and also `fsdp checkpoint merge-weights`, which has the name of
 * Accelerate's command. */
int fsdp_checkpoint_convert(int argc, char **argv);
int fsdp_checkpoint_gather(int argc, char **argv);
int fsdp_checkpoint_verify(int argc, char **argv);
int fsdp_checkpoint_merge_adapter(int argc, char **argv);
int fsdp_checkpoint_init_adapter(int argc, char **argv);
