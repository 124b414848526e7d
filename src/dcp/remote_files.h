/* Reads files that only other hosts have.
 *
 * Note [Remote files]. All ranks pass the same list of file names, and each rank says which of the
 * files its host has. A rank that needs bytes of another file asks a rank that has it. Requests and
 * bytes are exchanged in rounds, which are collective: in each round, a rank may ask for up to
 * FSDP_PIECE_BYTES bytes, and it sends what the other ranks have asked it for. So a rank may call
 * fsdp_remote_files_read() only in a session. During a session, no rank calls another collective. A
 * rank that needs no more bytes ends its session with fsdp_remote_files_end(). This function sends
 * bytes to the other ranks until all of them have ended the session, too. If a rank fails, it ends
 * its session with its error. The other ranks then give up, and all ranks leave the session after
 * the same round. */
#pragma once
#include <stdint.h>

#include <fsdp/comm.h>

typedef struct fsdp_remote_files fsdp_remote_files;

/* Prepare reading the files `names` [n]. `paths` [n] are the paths of the files that this rank has,
 * and NULL for the others. A file may have a file of checksums next to it (src/dcp/block_sums.h).
 * Both arrays must outlive *files. `mine` is the status of what this rank did before the call.
 * Collective; if one rank fails, all fail. Returns FSDP_ERR_FORMAT if a file has different sizes on
 * two hosts. */
FSDP_MUST_CHECK fsdp_status fsdp_remote_files_open(fsdp_status mine, const char *const *names,
                                                   const char *const *paths, size_t n,
                                                   fsdp_group *group, fsdp_remote_files **files);
void fsdp_remote_files_close(fsdp_remote_files *files); /* accepts NULL */
/* Return true if a rank lacks one of the files. */
bool fsdp_remote_files_are_spread(const fsdp_remote_files *files);
/* Return the rank that other ranks ask for file `i`, or -1 if no rank has it. */
int fsdp_remote_files_server(const fsdp_remote_files *files, size_t i);
/* Return true if all ranks have file `i`. */
bool fsdp_remote_files_all_have(const fsdp_remote_files *files, size_t i);

/* A file itself, or the file of checksums next to it. */
typedef enum fsdp_remote_kind {
    FSDP_REMOTE_DATA,
    FSDP_REMOTE_SUMS
} fsdp_remote_kind;
/* Return the size of file `i`, or of its file of checksums; 0 if there is no file of checksums. At
 * least one rank must have file `i`. */
uint64_t fsdp_remote_files_bytes(const fsdp_remote_files *files, size_t i, fsdp_remote_kind kind);
/* Read bytes [offset, offset + bytes) of file `i`, which at least one rank must have, into `out`.
 * Call this only in a session. */
FSDP_MUST_CHECK fsdp_status fsdp_remote_files_read(fsdp_remote_files *files, size_t i,
                                                   fsdp_remote_kind kind, uint64_t offset,
                                                   void *out, size_t bytes);
/* End this rank's session with `status`. Collective. Return the error of this rank. Return FSDP_OK
 * if this rank has no error, even if another rank has failed; the caller gets that error from
 * fsdp_agree(). */
FSDP_MUST_CHECK fsdp_status fsdp_remote_files_end(fsdp_remote_files *files, fsdp_status status);
/* Return true if a session was given up because a rank failed. Further sessions end at once. */
bool fsdp_remote_files_given_up(const fsdp_remote_files *files);
