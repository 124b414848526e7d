/* What ranks that write a folder together leave in it for rank 0, without a word between them: a
 * note is a file that appears whole, and goes when it is taken. */
#pragma once
#include <stdatomic.h>

#include <fsdp/base.h>

/* Leave `data` [bytes] in folder `dir`. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_note_leave(const char *dir, int rank, const void *data,
                                                 size_t bytes);
/* Say that there will be none. If that cannot be said either, rank 0 waits until it is told to give
 * up. */
void fsdp_rank_note_leave_failure(const char *dir, int rank);
/* Wait for the note of `rank`, of `bytes` bytes, and take it. FSDP_ERR_STATE once *given_up;
 * FSDP_ERR_IO if the rank has failed. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_note_take(const char *dir, int rank, void *data, size_t bytes,
                                                const atomic_bool *given_up);
