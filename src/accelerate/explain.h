/* Explains in words what `fsdp launch --config_file FILE train ...` does. This code uses the option
 * table of `fsdp launch` to parse and check the file, so it accepts the same keys and values. */
#pragma once
#include <stdio.h>

#include <fsdp/fsdp.h>

#include "src/launch/launch_options.h"

enum {
    FSDP_EXPLAINED_CLASSES_BYTES = 600
};

typedef struct fsdp_explained {
    int version; /* version of FSDP */
    fsdp_sharding_strategy strategy;
    long ranks;
    int machines;            /* number of hosts among which the ranks are divided */
    long replicas, shards;   /* replicas * shards == ranks */
    int param_bytes;         /* size of a parameter in forward and backward: 4 or 2 */
    bool float8_gathers;     /* weights that are multiplied in float8 are gathered in float8 */
    const char *precision;   /* "no", "fp8", "fp16" or "bf16" */
    const char *wrap_policy; /* as Accelerate names it */
    /* TRANSFORMER_BASED_WRAP: the classes of units, separated by commas; "": the model's blocks */
    char classes[FSDP_EXPLAINED_CLASSES_BYTES];
    int64_t min_num_params; /* SIZE_BASED_WRAP: least number of parameters of a unit */
    const char *prefetch;   /* as Accelerate names it */
    const char *state_dict; /* as Accelerate names it */
    const char *ignored;    /* ignored modules; NULL: none */
    bool forward_prefetch, offload, checkpointing, checkpointing_offload;
} fsdp_explained;

/* Set *config and *options to what `fsdp launch --config_file PATH train` reads. `ranks` is the
 * value of --num_processes, which takes precedence over the file; NULL: not given. The caller owns
 * *options, which keep pointers to `path` and `ranks`. Errors are those of the launcher. */
FSDP_MUST_CHECK fsdp_status fsdp_explain_read(const char *path, const char *ranks,
                                              fsdp_launch_config *config, fsdp_options **options);
/* Return what the configuration means for `fsdp train`. Strings in the result point into `config`
 * or are static. */
fsdp_explained fsdp_explain(const fsdp_launch_config *config, const fsdp_options *options);
/* Print what the configuration does, and which of the file's keys have no effect. */
FSDP_MUST_CHECK fsdp_status fsdp_explain_print(const fsdp_launch_config *config,
                                               const fsdp_options *options, FILE *out);
