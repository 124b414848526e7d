/* The stream of the fake device: commands that a thread of its own runs in order, after random
 * delays, with the CPU's kernels. The arguments of a launch are copied, as by the kernels of every
 * device (Note [Streams] in src/tensor/device.h).
 *
 * Note [Delays]. Before it runs, one command in eight sleeps for up to the longest delay, and one
 * in 512 for up to ten times as long. One command in sixteen is held until somebody waits for it or
 * a hundred others wait behind it, so that a host which reads its result without a wait finds
 * nothing there, even a slow host. The seed and a command's number determine its delay. Under
 * ThreadSanitizer a missing wait is a data race, whatever the delays are.
 *
 *     FSDP_FAKE_DELAY_US=200   the longest delay; 0: no delays, and nothing is held
 *     FSDP_FAKE_SEED=0 */
#pragma once
#include "src/base/event.h"
#include "src/kernels/kernels.h"

typedef struct fsdp_fake_stream fsdp_fake_stream;

/* Run one command; `args` is the copy of its arguments. The stream keeps the message of a failure
 * with its status. */
typedef fsdp_status fsdp_fake_command(const fsdp_kernels *kernels, fsdp_kernel_context *context,
                                      const void *args);
/* An array in host memory that an argument points to; `at` is the offset of that pointer in
 * args. */
typedef struct fsdp_fake_array {
    size_t at, bytes;
} fsdp_fake_array;

/* `isa` and `threads` are for the CPU's kernels, as in fsdp_kernels_cpu_open(). */
FSDP_MUST_CHECK fsdp_status fsdp_fake_stream_create(const char *isa, int threads,
                                                    fsdp_fake_stream **stream);
/* runs the commands that are left; accepts NULL */
void fsdp_fake_stream_destroy(fsdp_fake_stream *stream);
/* Return the CPU's context that commands run with; owned by the stream. Use it only while no
 * command is queued or running. */
fsdp_kernel_context *fsdp_fake_stream_cpu(const fsdp_fake_stream *stream);

/* Add a command to the queue; never fails. Waits while the queue is full. A command that is too
 * large for the queue (with a long array) is run at once, after all commands before it. */
void fsdp_fake_launch(fsdp_fake_stream *stream, fsdp_fake_command *run, const void *args,
                      size_t bytes, const fsdp_fake_array *arrays, int n_arrays);
/* Wait for all commands that were launched, and return the first failure. Commands after a failure
 * do not run. */
FSDP_MUST_CHECK fsdp_status fsdp_fake_synchronize(fsdp_fake_stream *stream);
/* Return an event for the end of all commands launched so far. If memory is short, wait for these
 * commands and return NULL. */
fsdp_event *fsdp_fake_record(fsdp_fake_stream *stream);

/* The fake device's kernels, whose context is a fsdp_fake_stream. */
extern const fsdp_kernels fsdp_kernels_fake;
