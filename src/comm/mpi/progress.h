/* The thread of each rank that exchanges data with the ranks of other hosts: see Note [Several
 * hosts] in transport_mpi.c. */
#pragma once
#include "src/comm/mpi/world.h"

typedef struct fsdp_mpi_progress fsdp_mpi_progress;

/* Create the thread. It waits, and does not call MPI yet. */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_progress_create(const fsdp_mpi_world *world,
                                                     fsdp_comm_control *control,
                                                     fsdp_mpi_progress **progress);
/* End a thread for which fsdp_mpi_progress_run() was not called, and free its state. */
void fsdp_mpi_progress_discard(fsdp_mpi_progress *progress);
/* Let the thread begin. It takes over the communicator of `world`, and frees it at the end. From
 * now on, no other thread of this process may call MPI for this library. */
void fsdp_mpi_progress_run(fsdp_mpi_progress *progress);
/* Inform the other hosts that this rank leaves the world's group, wait until all messages have
 * arrived, and end the thread. After a failure, wait only until the other hosts know of it, or for
 * a second. Return true if all messages have arrived. Otherwise, MPI must not be finalized. In a
 * forked child, which has no such thread, only return false. */
bool fsdp_mpi_progress_stop(fsdp_mpi_progress *progress, fsdp_group *group);

/* Add the buffer to those whose messages the thread sends and receives. */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_progress_attach(fsdp_mpi_progress *progress,
                                                     fsdp_shared_buffer *buffer);
/* Wait until no message reads or writes the buffer's memory. Messages that arrive later are
 * ignored. After a failure, MPI may still use the memory, but the thread does not use the buffer
 * any more. */
void fsdp_mpi_progress_detach(fsdp_mpi_progress *progress, fsdp_shared_buffer *buffer);
/* Wait until all sends from the buffer are complete, or until a failure is posted. */
void fsdp_mpi_progress_flush(fsdp_mpi_progress *progress, fsdp_shared_buffer *buffer);
/* Return true if a detach has given up waiting, after a failure. Memory must then stay mapped. */
bool fsdp_mpi_progress_leaks(const fsdp_mpi_progress *progress);

/* Inform the other hosts that this rank has begun phase number buffer->ended and waits. */
void fsdp_mpi_progress_announce(fsdp_mpi_progress *progress, fsdp_shared_buffer *buffer);
/* Send what this rank has written in phase number buffer->ended - 1, and inform the other hosts
 * that this rank has ended the phase. */
void fsdp_mpi_progress_end_phase(fsdp_mpi_progress *progress, fsdp_shared_buffer *buffer);
