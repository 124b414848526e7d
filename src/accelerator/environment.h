/* The settings of an accelerator. They are read from its options and from the environment variables
 * that Accelerate's launcher sets. */
#pragma once
#include <fsdp/accelerator.h>
#include <fsdp/options.h>

typedef struct fsdp_accelerator_settings {
    int precision; /* index in fsdp_accelerator_precisions */
    bool cpu;
    int gradient_accumulation_steps;
    bool sync_with_dataloader, split_batches, even_batches, step_scheduler_with_optimizer;
    /* Its field `mesh` is NULL unless the caller gave a mesh. */
    fsdp_fully_shard_options fully_shard;
    /* true: the caller gave the options `fully_shard`, so those in the environment are not used. */
    bool code_shards;
    bool sync_module_states; /* FSDP_SYNC_MODULE_STATES is not false */
    bool activation_checkpointing, activation_offload;
    int replicas, shard_size; /* sizes of a mesh for HSDP; 0, or -1 for shard_size: not given */
    bool is_hybrid;           /* true: the environment gives a hybrid strategy */

    const fsdp_wrap_policy *auto_wrap_policy; /* the policy that the caller gave; NULL: none */
    bool wraps; /* true: the environment gives a wrap policy, which is `policy` */
    /* The wrap policy of the environment; undefined unless `wraps` is true. */
    fsdp_wrap_policy policy;
    /* The policy is TRANSFORMER_BASED_WRAP without classes: use the default units of the model. */
    bool default_units;
    fsdp_options *variables; /* owns the strings of `policy`; NULL if none were parsed */
    const char **classes;    /* [n + 1] for policy.transformer_layer_cls; owned */

    fsdp_state_dict_type state_dict_type;
    bool automatic_checkpoint_naming;
    int total_limit;
    char *project_dir, *logging_dir, *log_with, *tracker_command; /* owned, may be NULL */
} fsdp_accelerator_settings;

extern const char *const fsdp_accelerator_precisions[]; /* "no", "fp16", "bf16", NULL */

/* Read and check the settings. Not collective. The caller must call
 * fsdp_accelerator_settings_fini(), also after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerator_settings_read(const fsdp_accelerator_options *options,
                                                           fsdp_accelerator_settings *settings);
void fsdp_accelerator_settings_fini(fsdp_accelerator_settings *settings);
