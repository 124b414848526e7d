/* --memory-limit: what all ranks of one host may hold together, as a cgroup counts it. The run is
 * planned (plan.h) before it allocates anything. */
#pragma once
#include <fsdp/comm.h>

#include "src/train/config.h"

/* Does a run as `config` says fit into config->memory_limit on each host? No effect without one.
 *
 * @return FSDP_ERR_NOMEM if not: the message has the planned figure by purpose and the first
 *         setting that would fit, with its figure; FSDP_ERR_INVALID where nothing bounds the length
 *         of rows, so that there is no plan; and what fsdp_plan_create() returns
 */
FSDP_MUST_CHECK fsdp_status fsdp_memory_limit_check(const fsdp_train_config *config, int world_size,
                                                    int local_world_size);
/* The same for the job of `group`: rank 0 plans, and all ranks return what it found. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_memory_limit_check_job(const fsdp_train_config *config,
                                                        fsdp_group *group);
