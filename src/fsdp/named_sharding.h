/* Implements the flags that set how parameters, modules and units with given names are sharded:
 * --joint-units, --ignored-modules, --ignored-states, --shard-placement, --unit-mp-policy, and the
 * classes of SIZE_BASED_WRAP. Names may be patterns, as in name_patterns.h. The name of a class
 * means all modules of that class. */
#pragma once
#include <fsdp/fsdp.h>
#include <fsdp/options.h>

/* The words that were given for each flag, borrowed. Zero-initialised: no flag was given. */
typedef struct fsdp_named_sharding_options {
    fsdp_option_list joint_units; /* these modules together form one unit */
    fsdp_option_list ignored_modules, ignored_states;
    fsdp_option_list shard_placement;      /* "NAME:DIM" */
    fsdp_option_list unit_mp_policy;       /* see fsdp_unit_mp_policy_parse() */
    fsdp_option_list exclude_wrap_modules; /* names of classes */
    fsdp_option_list force_leaf_modules;   /* names of classes */
} fsdp_named_sharding_options;

/* What the flags name in one module tree: modules and parameters. The options of the tree's units
 * point to this object. */
typedef struct fsdp_named_sharding fsdp_named_sharding;

/* Find the modules and parameters that the flags name. Call this before `root` is sharded.
 * FSDP_ERR_INVALID if the tree does not have a named module or parameter (the message has the flag,
 * the word and the nearest name), if a parameter does not have the given dimension, or if an
 * ignored parameter is trained. */
FSDP_MUST_CHECK fsdp_status fsdp_named_sharding_create(const fsdp_named_sharding_options *options,
                                                       fsdp_module *root,
                                                       fsdp_named_sharding **sharding);
/* Accepts NULL. Call this after the units are destroyed. */
void fsdp_named_sharding_destroy(fsdp_named_sharding *sharding);
/* Change `options` and `policy` so that units created with them follow the flags. Afterwards
 * `options` and `policy` point to memory of `sharding`. */
void fsdp_named_sharding_apply(fsdp_named_sharding *sharding, fsdp_fully_shard_options *options,
                               fsdp_wrap_policy *policy);
/* Allocate memory for ignored parameters. Call this after the units are made. FSDP_ERR_INVALID if
 * the name in a --unit-mp-policy matches no unit; the message has the nearest name. */
FSDP_MUST_CHECK fsdp_status fsdp_named_sharding_finish(fsdp_named_sharding *sharding,
                                                       fsdp_module *root, fsdp_device *device);

/* A parsed word of --unit-mp-policy: "NAME:PARAM_DTYPE[:REDUCE_DTYPE[:OUTPUT_DTYPE]]". */
typedef struct fsdp_unit_mp_policy {
    char name[256]; /* path or class of a module, or a pattern for paths */
    fsdp_dtype param_dtype, reduce_dtype, output_dtype;
    bool set_reduce_dtype, set_output_dtype;
} fsdp_unit_mp_policy;

/* Parse a word of --unit-mp-policy. If it is malformed, return FSDP_ERR_INVALID with a message that
 * names the flag and the word. */
FSDP_MUST_CHECK fsdp_status fsdp_unit_mp_policy_parse(const char *text,
                                                      fsdp_unit_mp_policy *policy);

/* Check that units can compute in `dtype`, which must be float32, bfloat16 or float16. If it is
 * not, return FSDP_ERR_INVALID with a message that names `flag`. */
FSDP_MUST_CHECK fsdp_status fsdp_check_compute_dtype(const char *flag, fsdp_dtype dtype);
