/* Memory for a file that only other hosts have (Note [Remote files] in remote_files.h). It has the
 * size of the file, but blocks are read only when they are needed, and pages are allocated only for
 * blocks that have been read. If the file has checksums of blocks (block_sums.h), each block is
 * verified when it arrives. */
#pragma once
#include "src/base/io.h"
#include "src/dcp/remote_files.h"

typedef struct fsdp_remote_blocks fsdp_remote_blocks;

/* Reserve memory for file `i` of `files`, which must outlive *blocks. `label` is the prefix of
 * messages, and must outlive *blocks, too. `has_sums`: the file has checksums of blocks. */
FSDP_MUST_CHECK fsdp_status fsdp_remote_blocks_create(fsdp_remote_files *files, size_t i,
                                                      const char *label, bool has_sums,
                                                      fsdp_remote_blocks **blocks);
void fsdp_remote_blocks_destroy(fsdp_remote_blocks *blocks); /* accepts NULL */
/* Return the memory, which is valid until `blocks` is destroyed. */
fsdp_mapping fsdp_remote_blocks_map(const fsdp_remote_blocks *blocks);
/* Return the number of bytes that have been read into the memory and not been dropped. */
uint64_t fsdp_remote_blocks_held_bytes(const fsdp_remote_blocks *blocks);
/* Free the pages of the memory. Blocks that were read are zero until fsdp_remote_blocks_need()
 * reads them again. */
void fsdp_remote_blocks_drop(fsdp_remote_blocks *blocks);
/* Read the blocks that contain bytes [offset, offset + bytes) into the memory, unless they are
 * there already. Call this only in a session. */
FSDP_MUST_CHECK fsdp_status fsdp_remote_blocks_need(fsdp_remote_blocks *blocks, uint64_t offset,
                                                    uint64_t bytes);
/* Copy bytes [offset, offset + bytes) to `out`. Blocks that are entirely in the range are read
 * directly into `out`. A block that is only partly in the range is read into the memory. Call this
 * only in a session, and only for a file that has checksums of blocks. */
FSDP_MUST_CHECK fsdp_status fsdp_remote_blocks_read(fsdp_remote_blocks *blocks, uint64_t offset,
                                                    uint64_t bytes, void *out);
