/* What `fsdp launch` and `fsdp train` share for options that come from Accelerate: the choices of
 * an option, checks of configuration files, and errors. */
#pragma once
#include <fsdp/options.h>

/* The kinds of distributed_type, in the order of fsdp_accelerate_types. */
typedef enum fsdp_accelerate_type {
    FSDP_ACCELERATE_TYPE_NO,
    FSDP_ACCELERATE_TYPE_FSDP,
    FSDP_ACCELERATE_TYPE_MULTI_GPU,
    FSDP_ACCELERATE_TYPE_MULTI_CPU,
    FSDP_ACCELERATE_TYPE_DEEPSPEED,
    FSDP_ACCELERATE_TYPE_MEGATRON_LM,
    /* This type and all that follow need hardware that this program does not support. */
    FSDP_ACCELERATE_TYPE_OTHER
} fsdp_accelerate_type;
/* Choices of the options distributed_type and dynamo_backend; each array ends with NULL. */
extern const char *const fsdp_accelerate_types[];
extern const char *const fsdp_accelerate_dynamo_backends[];

/* Values of keys in fsdp_config, a section of Accelerate's configuration. Only keys that can
 * contradict each other are here. The values come from a file or from the options of `fsdp
 * launch`. */
typedef struct fsdp_accelerate_keys {
    bool is_fsdp2;
    int sharding_strategy; /* fsdp_sharding_strategy */
    /* 0: false; 1: true; another positive number: as given; negative: the name of a strategy s was
     * given, and the value is -1 - s (fsdp_sharding_strategy) */
    int reshard_after_forward;
    bool cpu_ram_efficient_loading, sync_module_states;
    bool activation_checkpointing, activation_checkpointing_offload;
    bool is_local; /* fsdp_state_dict_type is LOCAL_STATE_DICT */
    /* Only values whose origin is between `least` and `most` are checked. Values of other origins
     * count as not given. */
    fsdp_option_origin least, most;
} fsdp_accelerate_keys;

/* Set *keys to the values that a configuration file gives to `fsdp train`. Values from other
 * origins count as not given. `sharding_strategy` and `reshard_after_forward` are the values of
 * these options before any value is derived. */
void fsdp_accelerate_keys_of_file(const fsdp_options *options, int sharding_strategy,
                                  int reshard_after_forward, fsdp_accelerate_keys *keys);
/* Return FSDP_ERR_INVALID if a key contradicts another one or the version of FSDP. `options` must
 * have an option for each key. Its name, or one of its aliases, is the key's name with dashes, such
 * as "fsdp-version". */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_check_keys(const fsdp_accelerate_keys *keys,
                                                       const fsdp_options *options);
/* Return FSDP_ERR_UNSUPPORTED for the types that need other programs or devices. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_check_type(int type, const fsdp_options *options);

/* Return an error that begins with the place where `option` was given: "--num_processes" or
 * "default_config.yaml:7: num_processes". */
FSDP_PRINTF(4, 5)
fsdp_status fsdp_accelerate_refuse(const fsdp_options *options, const char *option,
                                   fsdp_status code, const char *format, ...);
