/* Implements the flags that change how certain parameters, modules and units are sharded:
 * --joint-units, --ignored-modules, --ignored-states, --shard-placement, --unit-mp-policy,
 * --exclude-wrap-modules and --force-leaf-modules. These flags contain names, which may be patterns
 * (name_patterns.h). The name of a class means all modules of that class. */
#pragma once
#include <fsdp/fsdp.h>
#include <fsdp/options.h>

/* The words that the user gave for each flag; borrowed. Zero-initialized: no flag was given. */
typedef struct fsdp_named_sharding_options {
    fsdp_option_list joint_units; /* all of these modules form one unit */
    fsdp_option_list ignored_modules, ignored_states;
    fsdp_option_list shard_placement;      /* "NAME:DIM" */
    fsdp_option_list unit_mp_policy;       /* see fsdp_unit_mp_policy_parse() */
    fsdp_option_list exclude_wrap_modules; /* names of classes */
    fsdp_option_list force_leaf_modules;   /* names of classes */
} fsdp_named_sharding_options;

/* The modules and parameters that the flags name, all in one module tree. The options of the tree's
 * units point to this object. */
typedef struct fsdp_named_sharding fsdp_named_sharding;

/* Find the modules and parameters that the flags name. Call this before `root` is sharded. Return
 * FSDP_ERR_INVALID if a word is malformed, a name matches no module or parameter of the tree, a
 * parameter does not have the given dimension, the joint modules cannot be one unit, or an ignored
 * parameter requires a gradient. If a name matches nothing, the message contains the flag, the word
 * and the nearest name. */
FSDP_MUST_CHECK fsdp_status fsdp_named_sharding_create(const fsdp_named_sharding_options *options,
                                                       fsdp_module *root,
                                                       fsdp_named_sharding **sharding);
/* Accepts NULL. Call this after the units that follow the flags are destroyed. */
void fsdp_named_sharding_destroy(fsdp_named_sharding *sharding);
/* Change `options` and `policy` so that the units created with them follow the flags. Afterwards,
 * `options` and `policy` point to memory of `sharding`. */
void fsdp_named_sharding_apply(fsdp_named_sharding *sharding, fsdp_fully_shard_options *options,
                               fsdp_wrap_policy *policy);
/* Allocate memory for ignored parameters. Call this after the units are made. Return
 * FSDP_ERR_INVALID if the name in a --unit-mp-policy matches no unit; the message has the nearest
 * name. */
FSDP_MUST_CHECK fsdp_status fsdp_named_sharding_finish(fsdp_named_sharding *sharding,
                                                       fsdp_module *root, fsdp_device *device);

/* One parsed word of --unit-mp-policy. The word has the form
 * "NAME:PARAM_DTYPE[:REDUCE_DTYPE[:OUTPUT_DTYPE]]". */
typedef struct fsdp_unit_mp_policy {
    char name[256]; /* path or class of a module, or a pattern for paths */
    fsdp_dtype param_dtype, reduce_dtype, output_dtype;
    bool set_reduce_dtype, set_output_dtype;
} fsdp_unit_mp_policy;

/* Parse a word of --unit-mp-policy. If the word is malformed, return FSDP_ERR_INVALID with a
 * message that names the flag and the word. */
FSDP_MUST_CHECK fsdp_status fsdp_unit_mp_policy_parse(const char *text,
                                                      fsdp_unit_mp_policy *policy);

/* Check that `dtype` is one that units can compute in: float32, bfloat16 or float16. If not, return
 * FSDP_ERR_INVALID with a message that names `flag`. */
FSDP_MUST_CHECK fsdp_status fsdp_check_compute_dtype(const char *flag, fsdp_dtype dtype);
