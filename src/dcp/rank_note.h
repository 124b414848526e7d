/* Notes: messages to rank 0 from other ranks that write files into the same folder without
 * communicating. A note is a file in this folder. Rank 0 never sees an incomplete note. Rank 0
 * reads the note and deletes it. */
#pragma once
#include <stdatomic.h>

#include <fsdp/base.h>

/* Write the note of `rank` into the folder `dir`. The content of the note is `data` [bytes]. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_note_write(const char *dir, int rank, const void *data,
                                                 size_t bytes);
/* Report to rank 0 that this rank, `rank`, has failed and will write no note. The report is a file
 * in the folder `dir`. If rank 0 finds this file, its fsdp_rank_note_receive() returns FSDP_ERR_IO.
 * If the file cannot be created, rank 0's fsdp_rank_note_receive() waits until its *given_up is
 * true. */
void fsdp_rank_note_write_failure(const char *dir, int rank);
/* Wait for the note of `rank`, read its `bytes` bytes into `data`, and delete it. Returns
 * FSDP_ERR_STATE if *given_up becomes true. Returns FSDP_ERR_IO if `rank` has failed. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_note_receive(const char *dir, int rank, void *data,
                                                   size_t bytes, const atomic_bool *given_up);
