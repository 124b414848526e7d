/* The phase protocol over a block of shared memory; see Note [Phases] in comm.h. */
#pragma once
#include "src/comm/phase_record.h"

FSDP_MUST_CHECK fsdp_status fsdp_phase_begin_record(fsdp_shared_buffer *buffer,
                                                    const fsdp_phase_record *record);

/* Return when `peer` has ended `target` phases of the buffer, or with the reason why it will not.
 * What that took is added to *wait_ns. */
FSDP_MUST_CHECK fsdp_status fsdp_phase_wait(fsdp_shared_buffer *buffer, int peer, uint64_t target,
                                            int64_t *wait_ns);
/* Every wait of this rank for the others: all have ended `target` phases of the buffer. `kind` is
 * what the time counts for. */
FSDP_MUST_CHECK fsdp_status fsdp_phase_wait_for_all(fsdp_shared_buffer *buffer, uint64_t target,
                                                    uint16_t kind);
/* Wake who waits for this rank's counter, if anybody does. */
void fsdp_phase_wake(fsdp_shared_buffer *buffer);
