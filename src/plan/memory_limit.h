/* --memory-limit: the memory that all ranks of one host may use together, as a cgroup counts it.
 * The run is planned (plan.h) before it allocates anything. */
#pragma once
#include <fsdp/comm.h>

#include "src/train/config.h"

/* Checks that a run with `config` fits into config->memory_limit on each host. No effect without a
 * limit.
 *
 * @return FSDP_ERR_NOMEM if it does not fit: the message has the planned figure by purpose and the
 * first setting that would fit, with its figure. FSDP_ERR_INVALID if nothing bounds the length of
 * rows, so there is no plan. Also the errors of fsdp_plan_create(). */
FSDP_MUST_CHECK fsdp_status fsdp_memory_limit_check(const fsdp_train_config *config, int world_size,
                                                    int local_world_size);
/* The same for the job of `group`: rank 0 plans, and all ranks return its result. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_memory_limit_check_job(const fsdp_train_config *config,
                                                        fsdp_group *group);
