/* Checks a run against --memory-limit before the run allocates memory. The limit is for all ranks
 * of a host together, and for all memory that a cgroup counts. On cards, it is for the tensors of
 * all ranks that share a card. The memory of the run comes from a plan (plan.h). */
#pragma once
#include <fsdp/comm.h>

#include "src/train_config/config.h"

/* Check that a run with `config` fits into config->memory_limit on each host. If there is no limit,
 * return FSDP_OK.
 *
 * @return FSDP_ERR_NOMEM if the run does not fit. The message then lists the planned bytes by
 * purpose. If there are flags with which the run would fit, it also contains these flags, and the
 * planned bytes with them. FSDP_ERR_INVALID if no plan can be made, because nothing bounds the
 * length of rows. Also the errors of fsdp_plan_create() */
FSDP_MUST_CHECK fsdp_status fsdp_memory_limit_check(const fsdp_train_config *config, int world_size,
                                                    int local_world_size);
/* A run with `config` has failed with FSDP_ERR_NOMEM, since its card has only `bytes` bytes for the
 * tensors of all its ranks. Add to the error message flags with which the run needs less memory,
 * and how much it needs with these flags. If no plan can be made, leave the message as it is.
 * Always return FSDP_ERR_NOMEM. Not collective. */
FSDP_MUST_CHECK fsdp_status fsdp_memory_limit_advise(const fsdp_train_config *config,
                                                     int world_size, int local_world_size,
                                                     int64_t bytes);
/* Call fsdp_memory_limit_check() on rank 0 for the job of `group`, and return its result on all
 * ranks. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_memory_limit_check_job(const fsdp_train_config *config,
                                                        fsdp_group *group);
