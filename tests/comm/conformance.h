/* What every transport must do, as a body for ranks: the same checks run over threads and, in
 * processes, over shm. A violation is returned as an error with a message, since the test framework
 * cannot see into another process. */
#pragma once
#include <fsdp/comm.h>

fsdp_status comm_conformance(fsdp_group *group, void *arg);
