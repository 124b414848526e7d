/* The stream of the fake device: commands that a thread of its own runs in order, after random
 * delays, with the CPU's kernels. The arguments of a launch are copied, as every device's kernels
 * do it (Note [Streams] in src/tensor/device.h).
 *
 * Note [Delays]. A command in eight sleeps for up to the longest delay before it runs, one in 512
 * for up to ten times that, and one in sixteen is held until somebody waits for it, or a hundred
 * others wait behind it: what the host reads without a wait is then not there yet, however slow the
 * host is. Which ones is a function of the seed and the command's number. Under ThreadSanitizer a
 * missing wait is a data race, whatever the delays are.
 *
 *     FSDP_FAKE_DELAY_US=200   the longest delay; 0: no delays, and nothing is held
 *     FSDP_FAKE_SEED=0 */
#pragma once
#include "src/base/event.h"
#include "src/kernels/kernels.h"

typedef struct fsdp_fake_stream fsdp_fake_stream;

/* `args` is the copy; a failure's message is kept with it. */
typedef fsdp_status fsdp_fake_command(const fsdp_kernels *kernels, fsdp_kernel_context *context,
                                      const void *args);
/* An array in host memory that an argument points to: `at` is the pointer's offset in args. */
typedef struct fsdp_fake_array {
    size_t at, bytes;
} fsdp_fake_array;

/* isa and threads are the CPU's. */
FSDP_MUST_CHECK fsdp_status fsdp_fake_stream_create(const char *isa, int threads,
                                                    fsdp_fake_stream **stream);
void fsdp_fake_stream_destroy(fsdp_fake_stream *stream); /* runs what is left; accepts NULL */
/* Owned by the stream; no kernel of it may be under way. */
fsdp_kernel_context *fsdp_fake_stream_cpu(const fsdp_fake_stream *stream);

/* Never fails. Waits while the queue is full; what does not fit into it at all (a long array) waits
 * for all before it, and is run at once. */
void fsdp_fake_launch(fsdp_fake_stream *stream, fsdp_fake_command *run, const void *args,
                      size_t bytes, const fsdp_fake_array *arrays, int n_arrays);
/* Wait for all that was launched. The first failure: commands after it do not run. */
FSDP_MUST_CHECK fsdp_status fsdp_fake_synchronize(fsdp_fake_stream *stream);
/* Behind all that was launched. NULL, after a wait, if memory is short. */
fsdp_event *fsdp_fake_record(fsdp_fake_stream *stream);

/* Kernels whose context is a stream. */
extern const fsdp_kernels fsdp_kernels_fake;
