/* Signs of life of the ranks' processes.
 *
 * Note [Heartbeat]. A thread of each rank counts its board's `beat` up twice a second, and counts
 * for every peer how many of its own beats have passed since the peer's last one. Whoever waits for
 * a peer that has missed a few seconds of them accuses it (wait.c): its process is stopped, by
 * SIGSTOP or a debugger, and would keep all waiting until the timeout. A rank that computes, sleeps
 * or loops beats on, and is the timeout's. After a gap of its own (it was stopped itself, the
 * machine slept, a debugger held all ranks) a rank counts anew, so it accuses nobody of what befell
 * itself. Ranks that are threads need none of this. */
#pragma once
#include "src/comm/control.h"

typedef struct fsdp_heartbeat fsdp_heartbeat;

/* Begin to beat for `rank`. `limit_s` is how long a peer may be silent; 0: for ever. */
FSDP_MUST_CHECK fsdp_status fsdp_heartbeat_start(fsdp_comm_control *control, int rank,
                                                 double limit_s, fsdp_heartbeat **heartbeat);
/* Ends the thread; of a process that was forked since, which has none, only memory. Accepts NULL.
 */
void fsdp_heartbeat_stop(fsdp_heartbeat *heartbeat);
/* Seconds for which `peer` has been silent if they are too many, else 0. heartbeat NULL: 0. */
double fsdp_heartbeat_silent_s(const fsdp_heartbeat *heartbeat, int peer);
