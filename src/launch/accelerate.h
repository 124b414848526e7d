/* What `accelerate launch` does with its configuration files and flags, for `fsdp launch`: where
 * the default file is, which values contradict each other, and which variables the ranks get. */
#pragma once
#include "src/launch/launch_options.h"

/* Set *path to the path of Accelerate's default configuration, accelerate/default_config.yaml in
 * Hugging Face's cache folder. The cache folder is $HF_HOME. If it is not set, it is
 * $XDG_CACHE_HOME/huggingface, and if that is not set either, ~/.cache/huggingface. The caller owns
 * the path. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_default_path(char **path);
/* Do what fsdp_accelerate_default_path() does, but set *path to NULL if there is no such file. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_default_config(char **path);

/* Return the name of the option that decides how many ranks start: "num-processes", which counts
 * the ranks of all hosts, or "nproc-per-node". */
const char *fsdp_accelerate_ranks_option(const fsdp_options *options);
/* Set the values that depend on other options, such as is_accelerate, use_fsdp, multi_gpu and
 * mixed_precision. */
void fsdp_accelerate_derive(fsdp_launch_config *config, const fsdp_options *options);
/* Return an error if a value of Accelerate's options is not supported or contradicts another value.
 * config->n_ranks must be set. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_check(const fsdp_launch_config *config,
                                                  const fsdp_options *options);
/* Return the reason why option `name` has no effect, or NULL (fsdp_options_spec.without_effect). */
const char *fsdp_accelerate_without_effect(const void *target, const fsdp_options *options,
                                           const char *name);

/* `accelerate launch` sets some variables for its workers. Set these variables in the environment
 * of this process, from which the ranks inherit them. Do nothing if config->is_accelerate is false.
 * A variable that is already set is changed only if a file or a flag gave its value. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_set_environment(const fsdp_launch_config *config,
                                                            const fsdp_options *options);
