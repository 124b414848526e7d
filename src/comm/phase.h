/* The phase protocol over a block of shared memory; see Note [Phases] in comm.h. */
#pragma once
#include "src/comm/phase_record.h"

/* Do what fsdp_phase_begin() does, but announce `record`, and do not count a collective. The caller
 * counts it. */
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
/* Compare this rank's record of phase number `n` with that of rank `peer`, if both ranks have
 * announced the phase. If the records differ, post the failure. For a peer on another host, a
 * thread of the transport also calls this, because the announcement may arrive after this rank has
 * compared its record with the others. */
FSDP_MUST_CHECK fsdp_status fsdp_phase_compare(const fsdp_shared_buffer *buffer, int peer,
                                               uint64_t n);
/* Store in a lane that its rank has ended `ended` phases, and wake the ranks that wait for this
 * rank. */
void fsdp_phase_show_ended(fsdp_phase_lane *lane, uint64_t ended, int futex_private);
/* Show the peers how many phases this rank has ended, and wake the peers that wait for this
 * rank. */
void fsdp_phase_wake(fsdp_shared_buffer *buffer);
