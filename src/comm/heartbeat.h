/* Detects that the process of a peer is stopped.
 *
 * Note [Heartbeat]. Each rank has a heartbeat thread. Twice a second, this thread makes a beat: it
 * increments `beat` on the rank's board, and then reads the `beat` of every peer. For every peer,
 * the thread counts its own beats since the peer's `beat` last changed. A rank that waits for a
 * peer looks at the count for this peer (wait.c). If the count shows that the peer has been silent
 * for a few seconds, SIGSTOP or a debugger has stopped the peer's process. The waiting rank then
 * posts this failure, so that no rank waits until the timeout.
 *
 * A peer that computes, sleeps or is in an endless loop still beats. If such a peer never ends
 * its phase, only the timeout ends the wait for it.
 *
 * If too much time has passed between two beats of a rank, the rank itself was stopped, the machine
 * was suspended, or a debugger stopped all ranks. The rank then sets all its counts to 0, so that
 * it accuses no peer. Ranks that are threads do not need a heartbeat. */
#pragma once
#include "src/comm/control.h"

typedef struct fsdp_heartbeat fsdp_heartbeat;

/* Start the thread that beats for `rank`. Peers may be silent for `limit_s` seconds; 0: forever. */
FSDP_MUST_CHECK fsdp_status fsdp_heartbeat_start(fsdp_comm_control *control, int rank,
                                                 double limit_s, fsdp_heartbeat **heartbeat);
/* End the thread and free the memory. A child process that was forked after the start does not have
 * the thread. In such a child, only free the memory. Accepts NULL. */
void fsdp_heartbeat_stop(fsdp_heartbeat *heartbeat);
/* Return for how many seconds `peer` has been silent. Return 0 if it has been silent for less than
 * the limit, or if `heartbeat` is NULL. */
double fsdp_heartbeat_silent_s(const fsdp_heartbeat *heartbeat, int peer);
