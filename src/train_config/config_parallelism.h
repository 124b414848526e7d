/* Reads Accelerate's parallelism_config: the number of replicas and the number of ranks per
 * replica. They are keys of a file, flags, or variables that `accelerate launch` and `fsdp launch`
 * set. */
#pragma once
#include "src/train_config/config.h"

/* Derive the strategy, replicas and mesh_ranks. With several replicas the strategy is HYBRID_SHARD.
 * With one replica, all ranks share one replica of the model, and the strategy is FULL_SHARD. Do
 * not change the strategy if it comes from a source that takes precedence over the source of
 * parallelism_config, for example from a flag. */
void fsdp_train_derive_parallelism(fsdp_train_config *c, const fsdp_options *options);
/* Return FSDP_ERR_INVALID if a file of FSDP1 has a parallelism_config, which Accelerate's launcher
 * refuses, too. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_parallelism(const fsdp_options *options);
/* Return FSDP_ERR_INVALID if the parallelism_config requires a number of ranks other than
 * `world_size`.
 */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_mesh(const fsdp_train_config *c, int world_size);
