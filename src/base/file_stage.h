/* A temporary file as an extension of memory: tensors are put there and fetched back by one worker
 * thread, beside the caller's work.
 *
 * The file has no name (it is unlinked as soon as it is open), so nothing is left after a kill.
 * Requests run in the order in which they were queued: a read sees the write of the same bytes
 * before it. No allocation after create(). One thread queues and waits, the worker runs requests,
 * others may peek. Buffers belong to the stage from the request until it has been waited for. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

#include "src/base/event.h"

typedef struct fsdp_file_stage fsdp_file_stage;
/* A request's number, counted from 1; 0 is complete from the beginning. */
typedef uint64_t fsdp_file_ticket;

/* A file in `dir` (made if it is missing; NULL: $TMPDIR, else /tmp) and its worker thread. `bytes`
 * > 0: room to reserve at once, as by reserve(). The error names `dir` and what the system said. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_create(const char *dir, uint64_t bytes,
                                                   fsdp_file_stage **stage);
/* Requests that have not begun are dropped. Accepts NULL. */
void fsdp_file_stage_destroy(fsdp_file_stage *stage);

/* Have the blocks of the first `bytes` bytes on the disk, so that it cannot become full later; the
 * file never shrinks. FSDP_ERR_IO names the folder and the bytes when there is no room. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_reserve(fsdp_file_stage *stage, uint64_t bytes);

/* Queue a copy of [bytes] between `data` and the file at `offset`, once `after` (which it owns) has
 * been reached; waits only while the queue is full. Never fails: a failed request is told by
 * wait(), and those after it are dropped. */
fsdp_file_ticket fsdp_file_stage_write(fsdp_file_stage *stage, uint64_t offset, const void *data,
                                       size_t bytes, fsdp_event *after);
fsdp_file_ticket fsdp_file_stage_read(fsdp_file_stage *stage, uint64_t offset, void *data,
                                      size_t bytes, fsdp_event *after);
/* Copy [bytes] of the file at `offset` now, in the calling thread, which may be any: of what was
 * written and waited for, while no request touches it. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_peek(const fsdp_file_stage *stage, uint64_t offset,
                                                 void *data, size_t bytes);
/* Wait for a request and all before it: FSDP_OK if every one of them was whole. The error of the
 * first that was not is given to all who wait for it or a later one. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_wait(fsdp_file_stage *stage, fsdp_file_ticket ticket);
