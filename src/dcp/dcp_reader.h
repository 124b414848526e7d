/* Reading checkpoints of torch.distributed.checkpoint: rows of tensors and plain values, whatever
 * number of ranks wrote them. */
#pragma once
#include "src/dcp/dcp_metadata.h"
#include "src/torchfile/torch_archive.h"

typedef struct fsdp_dcp_reader fsdp_dcp_reader;

/* Open the directory `path` and map its files, which must not be shortened meanwhile.
 * FSDP_ERR_NOT_FOUND if it has no .metadata (saving was interrupted) or lacks a file, be it one
 * of checksums;
 * FSDP_ERR_FORMAT naming the fqn, as fsdp_dcp_metadata_create() does, and for items that reach
 * beyond their file. Data are not touched. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_open(const char *path, fsdp_dcp_reader **reader);
void fsdp_dcp_reader_close(fsdp_dcp_reader *reader); /* accepts NULL */
/* Do not compare checksums of blocks, for callers that check() what they read: a block may hold
 * several tensors, of which one is damaged. */
void fsdp_dcp_reader_skip_blocks(fsdp_dcp_reader *reader);
/* Compare all checksums by blocks, of files that have them: also what lies between the data of
 * tensors. FSDP_ERR_FORMAT naming the first file that differs, and where. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_files(const fsdp_dcp_reader *reader);
/* FSDP_ERR_NOT_FOUND if a file is gone that .metadata names beside itself. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_companion(const fsdp_dcp_reader *reader);
/* What is there; borrowed. */
const fsdp_dcp_metadata *fsdp_dcp_reader_metadata(const fsdp_dcp_reader *reader);

/* Copy rows [begin, end) along dimension 0 of tensor `item`, row-major; a scalar has one row. Only
 * chunks that have some of them are touched. Where this library wrote the checkpoint, the checksums
 * of the blocks that these rows lie in are compared (block_sums.h); else those of chunks that are
 * read whole. `out` [end - begin rows]. FSDP_ERR_INVALID for rows it has not; FSDP_ERR_FORMAT
 * naming file and fqn if a chunk is not what the metadata say. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_rows(const fsdp_dcp_reader *reader,
                                                 const fsdp_dcp_item *item, int64_t begin,
                                                 int64_t end, void *out);
/* The same for a box: the part of the tensor that has sizes [ndim] and begins at offsets [ndim]. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_box(const fsdp_dcp_reader *reader,
                                                const fsdp_dcp_item *item, const int64_t *offsets,
                                                const int64_t *sizes, void *out);
/* The plain value `item`: the root of *archive, which the caller destroys before the reader. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_value(const fsdp_dcp_reader *reader,
                                                  const fsdp_dcp_item *item,
                                                  fsdp_torch_archive **archive);
/* Read every chunk of tensor `item` through: checksums, and that each is what the metadata say.
 * FSDP_ERR_FORMAT naming file and fqn. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check(const fsdp_dcp_reader *reader,
                                                  const fsdp_dcp_item *item);
/* The same for chunks `first`, `first` + `step`, ..., unless the checkpoint has checksums by
 * blocks, which were compared when the chunks were read: ranks that each read a part of chunks see
 * with one another that all of each is whole. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_reader_check_share(const fsdp_dcp_reader *reader,
                                                        const fsdp_dcp_item *item, size_t first,
                                                        size_t step);
/* What was read of it need not stay in memory. A hint: nothing fails. */
void fsdp_dcp_reader_forget(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item);
