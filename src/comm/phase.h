/* The phase protocol over a block of shared memory; see Note [Phases] in comm.h. */
#pragma once
#include "src/comm/phase_record.h"

FSDP_MUST_CHECK fsdp_status fsdp_phase_begin_record(fsdp_shared_buffer *buffer,
                                                    const fsdp_phase_record *record);

/* Wait until `peer` has ended `target` phases of the buffer, and add the waiting time to *wait_ns.
 * Return an error if a rank has failed, if the peer cannot end that many phases, or if the timeout
 * has passed (wait.c). */
FSDP_MUST_CHECK fsdp_status fsdp_phase_wait(fsdp_shared_buffer *buffer, int peer, uint64_t target,
                                            int64_t *wait_ns);
/* Wait until all other ranks have ended `target` phases of the buffer. The waiting time is added to
 * the counter of `kind`. */
FSDP_MUST_CHECK fsdp_status fsdp_phase_wait_for_all(fsdp_shared_buffer *buffer, uint64_t target,
                                                    uint16_t kind);
/* Compare the record of phase number `n`, which rank `peer` has announced, with this rank's own
 * record if this rank has announced the phase, too. If they differ, post the failure. Called by a
 * thread of the transport for a peer on another host: the peer may have announced the phase after
 * this rank has compared its record. */
FSDP_MUST_CHECK fsdp_status fsdp_phase_compare(const fsdp_shared_buffer *buffer, int peer,
                                               uint64_t n);
/* Store that the rank of a lane has ended `ended` phases, and wake the ranks that wait for it. */
void fsdp_phase_show_ended(fsdp_phase_lane *lane, uint64_t ended, int futex_private);
/* Show the peers how many phases this rank has ended, and wake the peers that wait for this
 * rank. */
void fsdp_phase_wake(fsdp_shared_buffer *buffer);
