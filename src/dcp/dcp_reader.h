/* Reading checkpoints of torch.distributed.checkpoint: rows of tensors and plain values, for any
 * number of ranks that wrote them. */
#pragma once
#include "src/dcp/dcp_metadata.h"
#include "src/torchfile/torch_archive.h"

typedef struct fsdp_dcp_reader fsdp_dcp_reader;

/* Open the directory `path` and map its files, which must not be truncated while it is open.
 * FSDP_ERR_NOT_FOUND if it has no .metadata (saving was interrupted) or lacks a file of data or
 * checksums; FSDP_ERR_FORMAT naming the fqn, as fsdp_dcp_metadata_create() does, and for items that
 * reach beyond their file. Data are not touched. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_open(const char *path, fsdp_dcp_reader **reader);
void fsdp_dcp_reader_close(fsdp_dcp_reader *reader); /* accepts NULL */
/* Do not compare checksums of blocks. This is for callers that check() what they read: a block may
 * hold several tensors, and only one of them may be damaged. */
void fsdp_dcp_reader_skip_blocks(fsdp_dcp_reader *reader);
/* Compare all checksums of blocks in files that have them. This includes the bytes between the data
 * of tensors. FSDP_ERR_FORMAT naming the first file that differs, and the place. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_files(const fsdp_dcp_reader *reader);
/* FSDP_ERR_NOT_FOUND if the further file that .metadata names does not exist. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_companion(const fsdp_dcp_reader *reader);
/* The items of the checkpoint; borrowed. */
const fsdp_dcp_metadata *fsdp_dcp_reader_metadata(const fsdp_dcp_reader *reader);

/* Copy rows [begin, end) along dimension 0 of tensor `item`, row-major; a scalar has one row.
 * Only chunks that hold some of these rows are touched. If this library wrote the checkpoint,
 * the checksums of the blocks that hold these rows are compared (block_sums.h); otherwise, the
 * checksums of chunks that are read whole. `out` [end - begin rows]. FSDP_ERR_INVALID for rows
 * outside the tensor; FSDP_ERR_FORMAT naming file and fqn if a chunk is not what the metadata
 * say. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_rows(const fsdp_dcp_reader *reader,
                                                 const fsdp_dcp_item *item, int64_t begin,
                                                 int64_t end, void *out);
/* The same for a box: the part of the tensor that has sizes [ndim] and begins at offsets [ndim]. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_box(const fsdp_dcp_reader *reader,
                                                const fsdp_dcp_item *item, const int64_t *offsets,
                                                const int64_t *sizes, void *out);
/* Read the plain value `item`, which is the root of *archive. The caller destroys the archive
 * before the reader. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_value(const fsdp_dcp_reader *reader,
                                                  const fsdp_dcp_item *item,
                                                  fsdp_torch_archive **archive);
/* Read every chunk of tensor `item`, compare checksums, and check that each is what the metadata
 * say. FSDP_ERR_FORMAT naming file and fqn. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check(const fsdp_dcp_reader *reader,
                                                  const fsdp_dcp_item *item);
/* The same for chunks `first`, `first` + `step`, ..., so that ranks that each read parts of chunks
 * check all chunks between them. Does nothing if the checkpoint has checksums of blocks, which were
 * compared when the chunks were read. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_share(const fsdp_dcp_reader *reader,
                                                        const fsdp_dcp_item *item, size_t first,
                                                        size_t step);
/* Pages of `item` need not stay in memory. This is a hint and cannot fail. */
void fsdp_dcp_reader_forget(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item);
