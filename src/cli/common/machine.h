/* What this process finds on its host, for `fsdp env`. Names of hosts and users are left out. */
#pragma once
#include "src/cli/common/facts.h"

/* Add the sections "machine" (processors, NUMA nodes, memory, limits of the container, system) and
 * "limits" (of this process: ulimit). */
void fsdp_add_machine(fsdp_facts *to);
/* Add the section "job": the launcher that started this process, the rank of this process, the
 * numbers of hosts and tasks that a batch system has allocated, and the launchers in $PATH. */
void fsdp_add_job(fsdp_facts *to);
