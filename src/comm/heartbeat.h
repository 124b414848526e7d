/* Detects that the process of a peer is stopped.
 *
 * Note [Heartbeat]. Each rank has a thread that increments `beat` on the rank's board twice a
 * second. For every peer, the thread counts how many times it has done so since the peer's `beat`
 * last changed. A rank that waits for a peer looks at this count (wait.c). If the peer has been
 * silent for a few seconds, the rank accuses the peer: it posts the failure that the peer is
 * stopped, by SIGSTOP or a debugger. Otherwise all ranks would wait until the timeout. A rank that
 * computes, sleeps or loops still beats, so only the timeout ends a wait for it. After a gap in its
 * own beats, a rank resets its counts and accuses no peer: it was stopped itself, the machine was
 * suspended, or a debugger stopped all ranks. Ranks that are threads do not need a heartbeat. */
#pragma once
#include "src/comm/control.h"

typedef struct fsdp_heartbeat fsdp_heartbeat;

/* Start the thread that beats for `rank`. Peers may be silent for `limit_s` seconds; 0: forever. */
FSDP_MUST_CHECK fsdp_status fsdp_heartbeat_start(fsdp_comm_control *control, int rank,
                                                 double limit_s, fsdp_heartbeat **heartbeat);
/* End the thread and free the memory. A child that was forked after the start does not have the
 * thread: there, only free the memory. Accepts NULL. */
void fsdp_heartbeat_stop(fsdp_heartbeat *heartbeat);
/* Return for how many seconds `peer` has been silent. Return 0 if it has been silent for less than
 * the limit, or if `heartbeat` is NULL. */
double fsdp_heartbeat_silent_s(const fsdp_heartbeat *heartbeat, int peer);
