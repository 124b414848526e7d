/* A stage: a temporary file as an extension of memory. One worker thread writes tensors to it and
 * reads them back while the caller continues.
 *
 * The file is unlinked as soon as it is open, so nothing is left behind if the process is killed.
 * Requests run in the order in which they were queued, so a read sees earlier writes of the same
 * bytes. Only create() allocates memory. One thread queues requests and waits for them, the worker
 * runs them, and any thread may call peek(). From the moment a request is queued until the caller
 * has waited for it, its buffer belongs to the stage. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

#include "src/base/event.h"

typedef struct fsdp_file_stage fsdp_file_stage;
/* Number of a request, counted from 1. Ticket 0 is always complete. */
typedef uint64_t fsdp_file_ticket;

/* Create a file in `dir`, and its worker thread. `dir` is created if it is missing. If `dir` is
 * NULL, the file is created in $TMPDIR or, if that is not set, in /tmp. The first `bytes` bytes of
 * the file are reserved, as reserve() does. The message of an error contains `dir` and the system's
 * message. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_create(const char *dir, uint64_t bytes,
                                                   fsdp_file_stage **stage);
/* Stop the worker and free `stage`. Requests that have not begun are dropped. Accepts NULL. */
void fsdp_file_stage_destroy(fsdp_file_stage *stage);

/* Reserve disk space for the first `bytes` bytes of the file, so that a later write cannot fail
 * because the disk is full. The file never shrinks. Return FSDP_ERR_IO if there is not enough
 * space; the message contains the folder and the number of bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_reserve(fsdp_file_stage *stage, uint64_t bytes);

/* Queue a request and return its ticket. write() copies `bytes` bytes from `data` to the file at
 * `offset`, and read() copies them from the file to `data`. The request owns the event `after`, and
 * runs once this event has occurred. If the queue is full, these functions wait, but they never
 * fail: wait() returns the error of a failed request. All requests after a failed one are
 * dropped. */
fsdp_file_ticket fsdp_file_stage_write(fsdp_file_stage *stage, uint64_t offset, const void *data,
                                       size_t bytes, fsdp_event *after);
fsdp_file_ticket fsdp_file_stage_read(fsdp_file_stage *stage, uint64_t offset, void *data,
                                      size_t bytes, fsdp_event *after);
/* Copy `bytes` bytes of the file at `offset` to `data` immediately, in the calling thread. Any
 * thread may call this. The requests that wrote these bytes must have been waited for, and no
 * queued request may read or write these bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_peek(const fsdp_file_stage *stage, uint64_t offset,
                                                 void *data, size_t bytes);
/* Wait for a request and all earlier ones. Return FSDP_OK if all of them succeeded. Once a request
 * has failed, every wait for this request or for a later one returns the error of this request. */
FSDP_MUST_CHECK fsdp_status fsdp_file_stage_wait(fsdp_file_stage *stage, fsdp_file_ticket ticket);
