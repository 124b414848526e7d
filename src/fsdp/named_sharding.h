/* Flags that say of single parameters, modules and units, by their names, how they are sharded:
 * --joint-units, --ignored-modules, --ignored-states, --shard-placement, --unit-mp-policy, and the
 * classes of SIZE_BASED_WRAP. Names are as in name_patterns.h; a module's class stands for all of
 * that class.
 */
#pragma once
#include <fsdp/fsdp.h>
#include <fsdp/options.h>

/* As given; all empty: nothing is said. Borrowed. */
typedef struct fsdp_named_sharding_options {
    fsdp_option_list joint_units; /* modules that are one unit together */
    fsdp_option_list ignored_modules, ignored_states;
    fsdp_option_list shard_placement;      /* "NAME:DIM" */
    fsdp_option_list unit_mp_policy;       /* see fsdp_unit_mp_policy_parse() */
    fsdp_option_list exclude_wrap_modules; /* classes */
    fsdp_option_list force_leaf_modules;
} fsdp_named_sharding_options;

/* The same for one tree: what options of units point to. */
typedef struct fsdp_named_sharding fsdp_named_sharding;

/* Find what is meant, before `root` is sharded. FSDP_ERR_INVALID naming the flag, the word and the
 * nearest name for what is not in the tree, for a dimension that a parameter has not, and for what
 * is ignored but trained. */
FSDP_MUST_CHECK fsdp_status fsdp_named_sharding_create(const fsdp_named_sharding_options *options,
                                                       fsdp_module *root,
                                                       fsdp_named_sharding **sharding);
/* Accepts NULL; after the units. */
void fsdp_named_sharding_destroy(fsdp_named_sharding *sharding);
/* Have units made with these heed it. Both point to `sharding` then. */
void fsdp_named_sharding_apply(fsdp_named_sharding *sharding, fsdp_fully_shard_options *options,
                               fsdp_wrap_policy *policy);
/* Once they are made: memory for what is ignored. FSDP_ERR_INVALID for a --unit-mp-policy that no
 * unit has, with the nearest. */
FSDP_MUST_CHECK fsdp_status fsdp_named_sharding_finish(fsdp_named_sharding *sharding,
                                                       fsdp_module *root, fsdp_device *device);

/* "NAME:PARAM_DTYPE[:REDUCE_DTYPE[:OUTPUT_DTYPE]]". */
typedef struct fsdp_unit_mp_policy {
    char name[256]; /* or pattern */
    fsdp_dtype param_dtype, reduce_dtype, output_dtype;
    bool set_reduce_dtype, set_output_dtype;
} fsdp_unit_mp_policy;

/* FSDP_ERR_INVALID naming flag and text. */
FSDP_MUST_CHECK fsdp_status fsdp_unit_mp_policy_parse(const char *text,
                                                      fsdp_unit_mp_policy *policy);

/* FSDP_ERR_INVALID naming `flag` unless units can compute in `dtype`: float32, bfloat16, float16.
 */
FSDP_MUST_CHECK fsdp_status fsdp_check_compute_dtype(const char *flag, fsdp_dtype dtype);
