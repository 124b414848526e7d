/* Detects that the process of a peer is stopped.
 *
 * Note [Heartbeat]. Each rank has a thread that increments `beat` on the rank's board twice a
 * second. For every peer, the thread counts its own beats since the peer's last beat. If a rank
 * waits for a peer whose `beat` has not changed for a few seconds, it accuses the peer (wait.c). In
 * this case, SIGSTOP or a debugger has stopped the peer's process, and without the accusation all
 * ranks would wait for it until the timeout. A rank that computes, sleeps or loops continues to
 * beat, so only the timeout applies to it. After a gap in its own beats, a rank resets its counts
 * and accuses no peer, because it was stopped itself, the machine was suspended, or a debugger
 * stopped all ranks. Ranks that are threads do not need a heartbeat. */
#pragma once
#include "src/comm/control.h"

typedef struct fsdp_heartbeat fsdp_heartbeat;

/* Start the thread that beats for `rank`. A peer may be silent for `limit_s` seconds; 0 means
 * forever. */
FSDP_MUST_CHECK fsdp_status fsdp_heartbeat_start(fsdp_comm_control *control, int rank,
                                                 double limit_s, fsdp_heartbeat **heartbeat);
/* End the thread and free the memory. In a process that was forked after the start, only free the
 * memory, because the process does not have the thread. Accepts NULL. */
void fsdp_heartbeat_stop(fsdp_heartbeat *heartbeat);
/* If `peer` has been silent for the limit or longer, return for how many seconds. Otherwise, or if
 * `heartbeat` is NULL, return 0. */
double fsdp_heartbeat_silent_s(const fsdp_heartbeat *heartbeat, int peer);
