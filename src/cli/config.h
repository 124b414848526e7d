/* The subcommands of `fsdp config`. Each has the form of a command (commands.h). */
#pragma once
#include <fsdp/options.h>

#include "src/accelerate/yaml_tree.h"

int fsdp_config_write(int argc, char **argv);   /* `fsdp config` and `fsdp config default` */
int fsdp_config_convert(int argc, char **argv); /* also `fsdp config to-fsdp2` */
int fsdp_config_explain(int argc, char **argv);

/* The user can name a file as the argument FILE or as the value `flag` of --config-file. Set *path
 * to this file, or to NULL if the user named none. *path is borrowed from `options`. Fail with
 * FSDP_ERR_INVALID if the user named a file in both ways. */
FSDP_MUST_CHECK fsdp_status fsdp_config_named_file(const fsdp_options *options, const char *flag,
                                                   const char **path);

/* Read the file that `fsdp config` is about to replace. Set *old to its content, which the caller
 * owns, or to an empty map if there is no such file. Return FSDP_ERR_INVALID if the file is not a
 * configuration file of Accelerate, because a file of another kind must not be overwritten. */
FSDP_MUST_CHECK fsdp_status fsdp_config_read_replaced(const char *path, fsdp_yaml *old);
/* The file `path` has the content `old`, and will be replaced by `config`. Return FSDP_ERR_INVALID
 * if this would lose a value about which the user has said nothing. `given` [n] has the user's
 * answers in the form "key=value". */
FSDP_MUST_CHECK fsdp_status fsdp_config_check_replaced(const fsdp_yaml *old,
                                                       const fsdp_yaml *config, const char *path,
                                                       const char *const *given, size_t n);
