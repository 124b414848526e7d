/* --memory-limit bounds the memory that all ranks of one host use together, as a cgroup counts it.
 * The run is planned (plan.h) before it allocates anything. */
#pragma once
#include <fsdp/comm.h>

#include "src/train_config/config.h"

/* Check that a run with `config` fits into config->memory_limit on each host. Without a limit,
 * return FSDP_OK.
 *
 * @return FSDP_ERR_NOMEM if the run does not fit: the message has the planned bytes by purpose, and
 * the first settings that would make the run fit, with the bytes that it would then need.
 * FSDP_ERR_INVALID if nothing bounds the length of rows, because then there is no plan. Also the
 * errors of fsdp_plan_create(). */
FSDP_MUST_CHECK fsdp_status fsdp_memory_limit_check(const fsdp_train_config *config, int world_size,
                                                    int local_world_size);
/* Like fsdp_memory_limit_check(), for the job of `group`: rank 0 plans, and all ranks return its
 * result. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_memory_limit_check_job(const fsdp_train_config *config,
                                                        fsdp_group *group);
