/* See config_sections.h. */
#include "src/train_config/config_sections.h"

const fsdp_options_section fsdp_accelerate_sections[FSDP_ACCELERATE_SECTIONS] = {
    {.name = "fsdp_config", .prefix = "fsdp_"},
    {.name = "dynamo_config", .prefix = "dynamo_"},
    {.name = "parallelism_config", .prefix = "parallelism_config_"},
    {.name = "deepspeed_config",
     .instead = "there is no DeepSpeed; --use_fsdp with --fsdp_sharding_strategy FULL_SHARD is its "
                "ZeRO-3, SHARD_GRAD_OP its ZeRO-2"},
    {.name = "megatron_lm_config", .instead = "there is no Megatron-LM; fsdp_config shards"},
    {.name = "fp8_config", .prefix = "fp8_"},
    {.name = "mpirun_config",
     .instead =
         "fsdp launch starts the ranks itself; see `With srun and mpirun` in docs/launch.md"},
};
