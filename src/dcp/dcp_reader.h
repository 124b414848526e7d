/* Reads rows of tensors, and plain values, from checkpoints of torch.distributed.checkpoint. Any
 * number of ranks may have written a checkpoint. */
#pragma once
#include <fsdp/comm.h>

#include "src/dcp/dcp_metadata.h"
#include "src/torchfile/torch_archive.h"

typedef struct fsdp_dcp_reader fsdp_dcp_reader;

/* Open the directory `path` and map its files, which must not be truncated while the reader is
 * open. The data of tensors are not read. Returns FSDP_ERR_NOT_FOUND if the directory has no
 * .metadata (saving was interrupted), or if a data file or a file of checksums is missing. Returns
 * FSDP_ERR_FORMAT if an item reaches beyond its file; the message contains the fqn. Errors of
 * fsdp_dcp_metadata_create() are returned too. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_open(const char *path, fsdp_dcp_reader **reader);
/* Open the directory `path` on all ranks of the group. If hosts have disks of their own, each has
 * its own directory `path`, with the same .metadata and some of the data files. Files of other
 * hosts are read through the group: see Note [Remote files] in remote_files.h. In that case,
 * tensors and values are read in sessions, and the caller ends each session with
 * fsdp_dcp_reader_end(). If all ranks are on one host, or if each rank has all files, no
 * communication is needed and fsdp_dcp_reader_end() does nothing. Collective; if one rank fails,
 * all fail. Errors are those of fsdp_dcp_reader_open(). Returns FSDP_ERR_NOT_FOUND if no host has
 * one of the data files; the message contains the names of all such files. Returns FSDP_ERR_FORMAT
 * if hosts have different .metadata.
 */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_open_on_hosts(const char *path, fsdp_group *group,
                                                          fsdp_dcp_reader **reader);
/* End a session; `status` is this rank's status (fsdp_remote_files_end()). Collective if files are
 * on other hosts. Otherwise the function only returns `status`. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_end(fsdp_dcp_reader *reader, fsdp_status status);
/* Return true if a session was given up because another rank has failed. In that case, the caller
 * must stop reading, return FSDP_OK, and get the error of the other rank from fsdp_agree(). */
bool fsdp_dcp_reader_given_up(const fsdp_dcp_reader *reader);
/* Open only .metadata of the directory `path`. Tensors and values cannot be read. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_open_metadata(const char *path,
                                                          fsdp_dcp_reader **reader);
void fsdp_dcp_reader_close(fsdp_dcp_reader *reader); /* accepts NULL */
/* Return the name of the data file with index `i`, from 0. Return NULL if `i` is not below the
 * number of files. The names are in byte order. */
const char *fsdp_dcp_reader_file(const fsdp_dcp_reader *reader, size_t i);
/* Stop verifying the checksums of blocks in later reads. A block may contain bytes of several
 * tensors, so the checksum of a block does not show which tensor is damaged. A caller that must
 * find out which tensor is damaged calls this function, and then verifies each tensor with
 * fsdp_dcp_reader_check(). */
void fsdp_dcp_reader_skip_blocks(fsdp_dcp_reader *reader);
/* Verify the checksums of all blocks, including blocks between the data of tensors. Data files
 * without checksums of blocks are skipped. Returns FSDP_ERR_FORMAT if a block is damaged; the
 * message contains the file and the range of the first such block. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_files(const fsdp_dcp_reader *reader);
/* Return FSDP_ERR_NOT_FOUND if .metadata contains the name of a companion, and this file is
 * missing. A companion is a further file in the folder of the checkpoint
 * (fsdp_dcp_metadata_companion()). */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_companion(const fsdp_dcp_reader *reader);
/* Return the metadata of the checkpoint, which list its items; borrowed. */
const fsdp_dcp_metadata *fsdp_dcp_reader_metadata(const fsdp_dcp_reader *reader);

/* Copy rows [begin, end) along dimension 0 of tensor `item` to `out`, row-major. A scalar has one
 * row. The capacity of `out` is end - begin rows. Only chunks that contain some of these rows are
 * read.
 *
 * If this library wrote the checkpoint, the checksums of the blocks that contain these rows are
 * verified (block_sums.h). Otherwise, the checksum of a chunk is verified if the whole chunk is
 * read.
 *
 * Returns FSDP_ERR_INVALID if rows are outside the tensor. Returns FSDP_ERR_FORMAT if a chunk is
 * damaged or does not match the metadata; the message contains the file and the fqn. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_rows(const fsdp_dcp_reader *reader,
                                                 const fsdp_dcp_item *item, int64_t begin,
                                                 int64_t end, void *out);
/* Copy a box of tensor `item` to `out`, as fsdp_dcp_reader_rows() copies rows. The box begins at
 * `offsets` [ndim] and has the sizes `sizes` [ndim]. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_box(const fsdp_dcp_reader *reader,
                                                const fsdp_dcp_item *item, const int64_t *offsets,
                                                const int64_t *sizes, void *out);
/* Read the plain value `item`. Set *archive to an archive whose root is the value. The caller owns
 * the archive and must destroy it before the reader. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_value(const fsdp_dcp_reader *reader,
                                                  const fsdp_dcp_item *item,
                                                  fsdp_torch_archive **archive);
/* Read every chunk of tensor `item`, verify the checksum of the chunk, and check that the chunk
 * matches the metadata. Returns FSDP_ERR_FORMAT if a chunk fails; the message contains the file and
 * the fqn. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check(const fsdp_dcp_reader *reader,
                                                  const fsdp_dcp_item *item);
/* Check some of the chunks of tensor `item` as fsdp_dcp_reader_check() does: the chunks `first`,
 * `first` + `step`, `first` + 2 `step`, and so on. The ranks of a group can divide the chunks among
 * themselves: each rank passes its rank as `first`, and the number of ranks as `step`. Chunks whose
 * blocks are verified by every read are skipped. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_share(const fsdp_dcp_reader *reader,
                                                        const fsdp_dcp_item *item, size_t first,
                                                        size_t step);
/* Advise the kernel that the pages of `item` need not stay in memory. This is a hint and cannot
 * fail. */
void fsdp_dcp_reader_forget(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item);
