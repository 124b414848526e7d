/* Messages to rank 0 from ranks that write a folder together without communicating. A note is a
 * file in the folder. It appears complete, and is deleted when it is read. */
#pragma once
#include <stdatomic.h>

#include <fsdp/base.h>

/* Write the note `data` [bytes] into folder `dir`. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_note_write(const char *dir, int rank, const void *data,
                                                 size_t bytes);
/* Write into folder `dir` that this rank has failed and will leave no note. If even this fails,
 * rank 0 waits in fsdp_rank_note_receive() until *given_up is true. */
void fsdp_rank_note_write_failure(const char *dir, int rank);
/* Wait for the note of `rank`, read its `bytes` bytes into `data`, and delete it. FSDP_ERR_STATE if
 * *given_up becomes true; FSDP_ERR_IO if the rank has failed. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_note_receive(const char *dir, int rank, void *data,
                                                   size_t bytes, const atomic_bool *given_up);
