/* A temporary file as an extension of memory: one worker thread writes tensors to it and reads them
 * back while the caller continues.
 *
 * The file has no name (it is unlinked as soon as it is open), so nothing is left behind if the
 * process is killed. Requests run in the order in which they were queued, so a read sees earlier
 * writes of the same bytes. Only create() allocates memory. One thread queues requests and waits
 * for them, the worker runs them, and any thread may call peek(). A buffer belongs to the stage
 * from the moment its request is queued until the caller has waited for that request. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

#include "src/base/event.h"

typedef struct fsdp_file_stage fsdp_file_stage;
/* Number of a request, counted from 1. Ticket 0 is always complete. */
typedef uint64_t fsdp_file_ticket;

/* Create a file in `dir` and its worker thread. `dir` is created if it is missing. If `dir` is
 * NULL, the file is created in $TMPDIR or, if that is not set, in /tmp. If `bytes` > 0, that many
 * bytes are reserved, as by reserve(). An error names `dir` and the system's message. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_create(const char *dir, uint64_t bytes,
                                                   fsdp_file_stage **stage);
/* Stop the worker and free `stage`. Requests that have not begun are dropped. Accepts NULL. */
void fsdp_file_stage_destroy(fsdp_file_stage *stage);

/* Reserve disk space for the first `bytes` bytes of the file, so that a later write cannot find the
 * disk full. The file never shrinks. FSDP_ERR_IO names the folder and the number of bytes if there
 * is no room. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_reserve(fsdp_file_stage *stage, uint64_t bytes);

/* Queue a copy of `bytes` bytes between `data` and the file at `offset`. The copy runs after the
 * event `after` has occurred; the request owns `after`. The functions wait only while the queue is
 * full. They never fail: wait() returns the error of a failed request, and all requests after a
 * failed one are dropped. */
fsdp_file_ticket fsdp_file_stage_write(fsdp_file_stage *stage, uint64_t offset, const void *data,
                                       size_t bytes, fsdp_event *after);
fsdp_file_ticket fsdp_file_stage_read(fsdp_file_stage *stage, uint64_t offset, void *data,
                                      size_t bytes, fsdp_event *after);
/* Copy `bytes` bytes of the file at `offset` to `data` immediately, in the calling thread, which
 * may be any thread. The caller must have waited for the requests that wrote these bytes, and no
 * queued request may touch them. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_peek(const fsdp_file_stage *stage, uint64_t offset,
                                                 void *data, size_t bytes);
/* Wait for a request and all earlier ones. Returns FSDP_OK if all of them succeeded. After a
 * request has failed, every wait for that request or for a later one returns its error. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_wait(fsdp_file_stage *stage, fsdp_file_ticket ticket);
