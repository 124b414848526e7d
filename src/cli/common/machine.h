/* What this process finds on its host, for `fsdp env`. Names of hosts and users are left out. */
#pragma once
#include "src/cli/common/facts.h"

/* Add the sections "machine" (processors, NUMA nodes, memory, limits of the container, system) and
 * "limits" (of this process: ulimit). */
void fsdp_add_machine(fsdp_facts *to);
/* Add the section "job": which launcher started this process as which rank, how many hosts and
 * tasks a batch system has allocated, and which launchers are in $PATH. */
void fsdp_add_job(fsdp_facts *to);
