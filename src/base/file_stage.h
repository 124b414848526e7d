/* A temporary file as an extension of memory: one worker thread writes tensors to it and reads them
 * back while the caller continues.
 *
 * The file has no name (it is unlinked as soon as it is open), so nothing is left after a kill.
 * Requests run in the order in which they were queued, so a read sees earlier writes of the same
 * bytes. create() makes all allocations. One thread queues requests and waits, the worker runs
 * them, and other threads may peek. A buffer belongs to the stage from its request until the
 * request has been waited for. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

#include "src/base/event.h"

typedef struct fsdp_file_stage fsdp_file_stage;
/* Number of a request, counted from 1. Ticket 0 is always complete. */
typedef uint64_t fsdp_file_ticket;

/* Create a file in `dir` and its worker thread. `dir` is created if it is missing; NULL: $TMPDIR,
 * else /tmp. If `bytes` > 0, they are reserved at once, as by reserve(). An error names `dir` and
 * the system's message. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_create(const char *dir, uint64_t bytes,
                                                   fsdp_file_stage **stage);
/* Requests that have not begun are dropped. Accepts NULL. */
void fsdp_file_stage_destroy(fsdp_file_stage *stage);

/* Allocate the blocks of the first `bytes` bytes on the disk, so that it cannot become full later.
 * The file never shrinks. FSDP_ERR_IO names the folder and the number of bytes if there is no
 * room. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_reserve(fsdp_file_stage *stage, uint64_t bytes);

/* Queue a copy of [bytes] between `data` and the file at `offset`, to run once `after` (which the
 * request owns) has occurred. Waits only while the queue is full. Never fails: wait() returns the
 * error of a failed request, and requests after it are dropped. */
fsdp_file_ticket fsdp_file_stage_write(fsdp_file_stage *stage, uint64_t offset, const void *data,
                                       size_t bytes, fsdp_event *after);
fsdp_file_ticket fsdp_file_stage_read(fsdp_file_stage *stage, uint64_t offset, void *data,
                                      size_t bytes, fsdp_event *after);
/* Copy [bytes] of the file at `offset` now, in the calling thread, which may be any thread. The
 * bytes must have been written and waited for, and no request may touch them. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_peek(const fsdp_file_stage *stage, uint64_t offset,
                                                 void *data, size_t bytes);
/* Wait for a request and all before it. FSDP_OK if all of them succeeded. The first failure is
 * returned by every wait for that request or a later one. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_wait(fsdp_file_stage *stage, fsdp_file_ticket ticket);
