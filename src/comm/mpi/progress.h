/* The thread of each rank that exchanges data with the ranks of other hosts: see Note [Several
 * hosts] in transport_mpi.c. */
#pragma once
#include "src/comm/mpi/world.h"

typedef struct fsdp_mpi_progress fsdp_mpi_progress;

/* Start the thread. It takes over `world`, and frees it at the end. From now on, no other thread of
 * this process may call MPI for this library. */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_progress_start(const fsdp_mpi_world *world,
                                                    fsdp_comm_control *control,
                                                    fsdp_mpi_progress **progress);
/* Say to the other hosts that this rank leaves, wait until all messages have arrived, and end the
 * thread. After a failure, wait only until the other hosts know of it, or for a second. Return
 * true if everything has arrived. */
bool fsdp_mpi_progress_stop(fsdp_mpi_progress *progress, int64_t timeout_ns);

/* Messages for this buffer may arrive from now on. */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_progress_attach(fsdp_mpi_progress *progress,
                                                     fsdp_shared_buffer *buffer);
/* Wait until no message reads or writes the buffer's memory. Messages that arrive later are
 * ignored. */
void fsdp_mpi_progress_detach(fsdp_mpi_progress *progress, fsdp_shared_buffer *buffer);
/* Wait until all bytes that were sent from the buffer have left it. */
void fsdp_mpi_progress_flush(fsdp_mpi_progress *progress, fsdp_shared_buffer *buffer);
/* Return true if a detach has given up waiting, after a failure. Memory must then stay mapped. */
bool fsdp_mpi_progress_leaks(const fsdp_mpi_progress *progress);

/* Inform the other hosts that this rank has begun phase buffer->ended and waits. */
void fsdp_mpi_progress_announce(fsdp_mpi_progress *progress, fsdp_shared_buffer *buffer);
/* Send what this rank has written in phase buffer->ended - 1, and that it has ended the phase. */
void fsdp_mpi_progress_end_phase(fsdp_mpi_progress *progress, fsdp_shared_buffer *buffer);
