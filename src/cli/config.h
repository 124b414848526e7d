/* The subcommands of `fsdp config`. Each has the form of a command (commands.h). */
#pragma once
#include <fsdp/options.h>

int fsdp_config_write(int argc, char **argv);   /* `fsdp config` and `fsdp config default` */
int fsdp_config_convert(int argc, char **argv); /* also `fsdp config to-fsdp2` */
int fsdp_config_explain(int argc, char **argv);

/* Set *path to the file that the user named, as the argument FILE or as the value `flag` of
 * --config-file, or to NULL if the user named none. *path is borrowed from `options`. Fail with
 * FSDP_ERR_INVALID if the user named a file in both ways. */
FSDP_MUST_CHECK fsdp_status fsdp_config_named_file(const fsdp_options *options, const char *flag,
                                                   const char **path);
