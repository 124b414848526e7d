/* The estimate of `fsdp plan`: the time of a step on many hosts. */
#pragma once
#include <fsdp/options.h>

#include "src/plan/scale_parse.h"
#include "src/train_config/config.h"

/* The options of `fsdp plan` for the estimate, as the user gave them. */
typedef struct fsdp_plan_scale_config {
    const char *interconnect;   /* NULL: no estimate */
    const char *flops_per_rank; /* NULL: the rate is measured */
    const char *straggler;
} fsdp_plan_scale_config;

/* Check these options. `is_range`: --world-size has several numbers. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_scale_check(fsdp_plan_scale_config *config,
                                                  const fsdp_options *options, bool is_range,
                                                  int local_world_size);
/* Print the estimate of a plan to stdout. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_scale_print(const fsdp_train_config *train,
                                                  const fsdp_plan_scale_config *config,
                                                  const fsdp_plan *plan, bool json);
/* Make a plan for each number of ranks in `sizes`, and print one table of their estimates to
 * stdout. A plan for fewer than local_world_size ranks assumes that all of them are on one host.
 * Then check --memory-limit for each plan. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_scale_print_sizes(const fsdp_train_config *train,
                                                        const fsdp_plan_scale_config *config,
                                                        const int *sizes, size_t n,
                                                        int local_world_size, bool json);
