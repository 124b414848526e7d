/* Accelerate's parallelism_config: numbers of replicas and of shards, as keys of a file, as flags
 * and as the variables that `accelerate launch` and `fsdp launch` set. */
#pragma once
#include "src/train_config/config.h"

/* Derive the strategy, replicas and mesh_ranks. With several replicas the strategy is HYBRID_SHARD.
 * With one replica, all ranks share one copy of the model, which is FULL_SHARD. Do not change the
 * strategy if it comes from a source that takes precedence over the source of parallelism_config,
 * for example from a flag. */
void fsdp_train_derive_parallelism(fsdp_train_config *c, const fsdp_options *options);
/* Return FSDP_ERR_INVALID if a file of FSDP1 has a parallelism_config, which Accelerate's launcher
 * refuses, too. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_parallelism(const fsdp_options *options);
/* Return FSDP_ERR_INVALID if there is a parallelism_config, and it is not for `world_size` ranks.
 */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_mesh(const fsdp_train_config *c, int world_size);
