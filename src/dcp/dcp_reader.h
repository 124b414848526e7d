/* Reads rows of tensors and plain values from checkpoints of torch.distributed.checkpoint, whatever
 * the number of ranks that wrote them. */
#pragma once
#include "src/dcp/dcp_metadata.h"
#include "src/torchfile/torch_archive.h"

typedef struct fsdp_dcp_reader fsdp_dcp_reader;

/* Open the directory `path` and map its files, which must not be truncated while the reader is
 * open. FSDP_ERR_NOT_FOUND if the directory has no .metadata (saving was interrupted) or lacks a
 * file of data or checksums; FSDP_ERR_FORMAT naming the fqn if an item reaches beyond its file;
 * errors of fsdp_dcp_metadata_create(). The data of tensors are not read. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_open(const char *path, fsdp_dcp_reader **reader);
void fsdp_dcp_reader_close(fsdp_dcp_reader *reader); /* accepts NULL */
/* Do not verify checksums of blocks when reading. This is for callers that verify each tensor with
 * fsdp_dcp_reader_check(). A block may contain parts of several tensors, so its checksum does not
 * say which of them is damaged. */
void fsdp_dcp_reader_skip_blocks(fsdp_dcp_reader *reader);
/* Verify the checksums of all blocks. This also covers the bytes between the data of tensors. Files
 * without such checksums are skipped. FSDP_ERR_FORMAT naming the first damaged file and the
 * position in it. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_files(const fsdp_dcp_reader *reader);
/* FSDP_ERR_NOT_FOUND if .metadata names a companion (fsdp_dcp_metadata_companion()) that does not
 * exist. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_companion(const fsdp_dcp_reader *reader);
/* Return the items of the checkpoint; borrowed. */
const fsdp_dcp_metadata *fsdp_dcp_reader_metadata(const fsdp_dcp_reader *reader);

/* Copy rows [begin, end) along dimension 0 of tensor `item`, row-major; a scalar has one row. Only
 * chunks that hold some of these rows are read. If this library wrote the checkpoint, the checksums
 * of the blocks that hold these rows are verified (block_sums.h). Otherwise, the checksum of a
 * chunk is verified if the whole chunk is read. `out` has space for end - begin rows.
 * FSDP_ERR_INVALID for rows outside the tensor; FSDP_ERR_FORMAT naming file and fqn if a chunk does
 * not match the metadata. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_rows(const fsdp_dcp_reader *reader,
                                                 const fsdp_dcp_item *item, int64_t begin,
                                                 int64_t end, void *out);
/* Copy a box of tensor `item`, as fsdp_dcp_reader_rows() copies rows. The box has sizes [ndim] and
 * begins at offsets [ndim]. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_box(const fsdp_dcp_reader *reader,
                                                const fsdp_dcp_item *item, const int64_t *offsets,
                                                const int64_t *sizes, void *out);
/* Read the plain value `item`, which becomes the root of *archive. The caller destroys the archive
 * before the reader. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_value(const fsdp_dcp_reader *reader,
                                                  const fsdp_dcp_item *item,
                                                  fsdp_torch_archive **archive);
/* Read every chunk of tensor `item`, verify its checksum, and check that it matches the metadata.
 * FSDP_ERR_FORMAT naming file and fqn. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check(const fsdp_dcp_reader *reader,
                                                  const fsdp_dcp_item *item);
/* Check chunks `first`, `first` + `step`, ... as fsdp_dcp_reader_check() does. If ranks read only
 * parts of chunks, each rank checks some of the chunks, so that together they check all. Chunks
 * whose blocks are verified by every read are skipped. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_share(const fsdp_dcp_reader *reader,
                                                        const fsdp_dcp_item *item, size_t first,
                                                        size_t step);
/* Advise the kernel that pages of `item` need not stay in memory. This is a hint and cannot
 * fail. */
void fsdp_dcp_reader_forget(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item);
