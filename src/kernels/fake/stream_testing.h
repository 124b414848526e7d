/* The stream of the fake device. A worker thread runs its commands in order, after random delays,
 * with the CPU's kernels. A launch copies its arguments, as on every device (Note [Streams] in
 * src/tensor/device.h).
 *
 * Note [Delays]. Before one command in eight, the worker sleeps for a random time of at most
 * FSDP_FAKE_DELAY_US microseconds. Before one command in 512, the random time is at most ten times
 * as long. One command in sixteen is held: it does not run until some thread waits for it or for a
 * later command, or until a hundred other commands are queued behind it. So a host that reads the
 * result of a held command without waiting does not find it, even if the host is slow. It can find
 * the result only if another thread waits, or if a hundred commands have been queued behind the
 * held command. The delay of a command depends only on the seed and on the command's number. Even
 * without delays, ThreadSanitizer reports a missing wait as a data race.
 *
 *     FSDP_FAKE_DELAY_US=200   the longest usual delay; 0: no delays, and nothing is held
 *     FSDP_FAKE_SEED=0         the seed of the random delays */
#pragma once
#include "src/base/event.h"
#include "src/kernels/kernels.h"

typedef struct fsdp_fake_stream fsdp_fake_stream;

/* The functions by which the stream makes the device's memory accessible (`open`) and inaccessible
 * (`close`) when it runs commands. Their argument is `self`. If the struct is zeroed, the memory is
 * always accessible. */
typedef struct fsdp_fake_access {
    void (*open)(void *self);
    void (*close)(void *self);
    void *self;
} fsdp_fake_access;

/* The type of a function that runs one command. `args` is the stream's copy of the command's
 * arguments. If the command fails, the stream keeps the status and the message. */
typedef fsdp_status fsdp_fake_command(const fsdp_kernels *kernels, fsdp_kernel_context *context,
                                      const void *args);
/* A command's argument that points to an array of `bytes` bytes in host memory. `at` is the offset
 * of this pointer in the struct of the arguments. */
typedef struct fsdp_fake_array {
    size_t at, bytes;
} fsdp_fake_array;

/* Create a stream. `isa` and `threads` choose the CPU's kernels that run the commands, as in
 * fsdp_kernels_cpu_open(). */
FSDP_MUST_CHECK fsdp_status fsdp_fake_stream_create(const char *isa, int threads,
                                                    fsdp_fake_access access,
                                                    fsdp_fake_stream **stream);
/* Run the commands that are still queued and destroy the stream. Accepts NULL. */
void fsdp_fake_stream_destroy(fsdp_fake_stream *stream);
/* Return the context of the CPU's kernels, which the stream owns. Use it only while no command is
 * queued or running. */
fsdp_kernel_context *fsdp_fake_stream_cpu(const fsdp_fake_stream *stream);

/* Add a command to the queue. If the queue is full, wait until enough commands have run. This
 * function never fails. A command that is too large for the queue (because it has a long array)
 * runs on the calling thread, after all commands before it. */
void fsdp_fake_launch(fsdp_fake_stream *stream, fsdp_fake_command *run, const void *args,
                      size_t bytes, const fsdp_fake_array *arrays, int n_arrays);
/* Wait for all commands launched so far, and return the first failure. After a failure, no further
 * commands run. */
FSDP_MUST_CHECK fsdp_status fsdp_fake_synchronize(fsdp_fake_stream *stream);
/* Return an event that occurs when all commands launched so far have completed. If there is not
 * enough memory for the event, wait for these commands and return NULL. */
fsdp_event *fsdp_fake_record(fsdp_fake_stream *stream);

/* The fake device's kernels, whose context is an fsdp_fake_stream. */
extern const fsdp_kernels fsdp_kernels_fake;
