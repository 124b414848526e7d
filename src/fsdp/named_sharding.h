/* Flags that set how single parameters, modules and units are sharded, by their names:
 * --joint-units, --ignored-modules, --ignored-states, --shard-placement, --unit-mp-policy, and the
 * classes of SIZE_BASED_WRAP. Names are as in name_patterns.h; the name of a class means all
 * modules of that class. */
#pragma once
#include <fsdp/fsdp.h>
#include <fsdp/options.h>

/* The words of the flags, borrowed. Zero-initialised: no flag is given. */
typedef struct fsdp_named_sharding_options {
    fsdp_option_list joint_units; /* these modules together form one unit */
    fsdp_option_list ignored_modules, ignored_states;
    fsdp_option_list shard_placement;      /* "NAME:DIM" */
    fsdp_option_list unit_mp_policy;       /* see fsdp_unit_mp_policy_parse() */
    fsdp_option_list exclude_wrap_modules; /* classes */
    fsdp_option_list force_leaf_modules;
} fsdp_named_sharding_options;

/* The flags resolved for one module tree. The options of its units point to it. */
typedef struct fsdp_named_sharding fsdp_named_sharding;

/* Find the modules and parameters that the flags name, before `root` is sharded. FSDP_ERR_INVALID,
 * naming the flag, the word and the nearest name, if the tree has no such module or parameter, a
 * parameter has no such dimension, or an ignored parameter is trained. */
FSDP_MUST_CHECK fsdp_status fsdp_named_sharding_create(const fsdp_named_sharding_options *options,
                                                       fsdp_module *root,
                                                       fsdp_named_sharding **sharding);
/* Accepts NULL. Call it after the units are destroyed. */
void fsdp_named_sharding_destroy(fsdp_named_sharding *sharding);
/* Make units created with `options` and `policy` follow the flags. Both point to `sharding`
 * afterwards. */
void fsdp_named_sharding_apply(fsdp_named_sharding *sharding, fsdp_fully_shard_options *options,
                               fsdp_wrap_policy *policy);
/* Call this once the units are made: it allocates memory for ignored parameters. FSDP_ERR_INVALID
 * if a --unit-mp-policy names no unit, with the nearest name. */
FSDP_MUST_CHECK fsdp_status fsdp_named_sharding_finish(fsdp_named_sharding *sharding,
                                                       fsdp_module *root, fsdp_device *device);

/* "NAME:PARAM_DTYPE[:REDUCE_DTYPE[:OUTPUT_DTYPE]]". */
typedef struct fsdp_unit_mp_policy {
    char name[256]; /* or a pattern */
    fsdp_dtype param_dtype, reduce_dtype, output_dtype;
    bool set_reduce_dtype, set_output_dtype;
} fsdp_unit_mp_policy;

/* FSDP_ERR_INVALID, naming the flag and the text. */
FSDP_MUST_CHECK fsdp_status fsdp_unit_mp_policy_parse(const char *text,
                                                      fsdp_unit_mp_policy *policy);

/* FSDP_ERR_INVALID, naming `flag`, unless `dtype` is one that units can compute in: float32,
 * bfloat16 or float16. */
FSDP_MUST_CHECK fsdp_status fsdp_check_compute_dtype(const char *flag, fsdp_dtype dtype);
