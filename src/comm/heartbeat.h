/* Detects that the process of a peer is stopped.
 *
 * Note [Heartbeat]. A thread of each rank increments `beat` on its board twice a second. For every
 * peer, it counts how many of its own beats have passed since the peer's last one. A rank that
 * waits for a peer that has missed beats for a few seconds accuses it (wait.c): the peer's process
 * is stopped, by SIGSTOP or a debugger, and would make all ranks wait until the timeout. A rank
 * that computes, sleeps or loops continues to beat; only the timeout applies to it. After a gap in
 * its own beats (it was stopped itself, the machine slept, a debugger held all ranks) a rank resets
 * its counts, so it does not accuse peers because of its own stop. Ranks that are threads need none
 * of this. */
#pragma once
#include "src/comm/control.h"

typedef struct fsdp_heartbeat fsdp_heartbeat;

/* Start the thread that beats for `rank`. `limit_s` is how long a peer may be silent; 0:
 * forever. */
FSDP_MUST_CHECK fsdp_status fsdp_heartbeat_start(fsdp_comm_control *control, int rank,
                                                 double limit_s, fsdp_heartbeat **heartbeat);
/* End the thread and free the memory. A process that was forked since has no such thread; there it
 * only frees the memory. Accepts NULL. */
void fsdp_heartbeat_stop(fsdp_heartbeat *heartbeat);
/* Seconds for which `peer` has been silent if that exceeds the limit, else 0. heartbeat NULL: 0. */
double fsdp_heartbeat_silent_s(const fsdp_heartbeat *heartbeat, int peer);
