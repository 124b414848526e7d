/* What every transport must do, as a body for ranks: the same checks run over threads and, in
 * processes, over shm. A violation is an error with a message, since no test framework reaches
 * into another process. */
#pragma once
#include <fsdp/comm.h>

fsdp_status comm_conformance(fsdp_group *group, void *arg);
