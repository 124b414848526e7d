/* The phase protocol over a block of shared memory; see Note [Phases] in comm.h. */
#pragma once
#include "src/comm/phase_record.h"

FSDP_MUST_CHECK fsdp_status fsdp_phase_begin_record(fsdp_shared_buffer *buffer,
                                                    const fsdp_phase_record *record);

/* Return FSDP_OK when `peer` has ended `target` phases of the buffer, or the reason why it will
 * not. The time spent waiting is added to *wait_ns. */
FSDP_MUST_CHECK fsdp_status fsdp_phase_wait(fsdp_shared_buffer *buffer, int peer, uint64_t target,
                                            int64_t *wait_ns);
/* Wait until all other ranks have ended `target` phases of the buffer. Every wait of this rank goes
 * through this function. The time is counted under `kind`. */
FSDP_MUST_CHECK fsdp_status fsdp_phase_wait_for_all(fsdp_shared_buffer *buffer, uint64_t target,
                                                    uint16_t kind);
/* Wake the ranks that wait for this rank's counter, if any. */
void fsdp_phase_wake(fsdp_shared_buffer *buffer);
