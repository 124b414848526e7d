/* Checksums of a data file of torch.distributed.checkpoint by blocks, in a file of their own beside
 * it: who reads only some rows of a chunk compares the blocks that these rows lie in. The checksums
 * of the zip archives in the data file are of whole chunks.
 *
 * `__0_0.crc32` is of `__0_0.distcp`, all numbers little-endian:
 *
 *     8 bytes "FSDPCRC1" | u64 size of the data file | u32 bytes of a block
 *     | u32 CRC-32 of each block, the last one may be short | u32 CRC-32 of all of this before
 *
 * PyTorch does not know such files and leaves them alone. They count only in a directory whose
 * .metadata say that this library wrote it (fsdp_dcp_metadata_is_own()): PyTorch may have saved
 * over the data files of an older checkpoint. */
#pragma once
#include "src/base/crc32.h"
#include "src/base/io.h"

/* ---- writing ---- */
typedef struct fsdp_block_sums {
    fsdp_crc32_table table;
    uint32_t *sums; /* [n] of complete blocks */
    size_t n, cap;
    uint32_t crc;   /* of the block that is not complete */
    uint64_t bytes; /* of the file so far */
} fsdp_block_sums;

void fsdp_block_sums_init(fsdp_block_sums *sums);
void fsdp_block_sums_fini(fsdp_block_sums *sums);
/* The next bytes of the file; an fsdp_append_fn, whose context is an fsdp_block_sums. */
FSDP_MUST_CHECK fsdp_status fsdp_block_sums_add(void *sums, const void *data, size_t bytes);
/* Write the file that belongs beside `data_path`, which is complete. */
FSDP_MUST_CHECK fsdp_status fsdp_block_sums_write(const fsdp_block_sums *sums,
                                                  const char *data_path);

/* ---- reading ---- */
typedef struct fsdp_block_check fsdp_block_check;

/* Read what lies beside `data_path`, whose mapping `data` must outlive it. FSDP_ERR_NOT_FOUND if
 * there is nothing; FSDP_ERR_FORMAT if it is damaged, or of a file of another size. */
FSDP_MUST_CHECK fsdp_status fsdp_block_check_open(const char *data_path, const fsdp_mapping *data,
                                                  fsdp_block_check **check);
void fsdp_block_check_close(fsdp_block_check *check); /* accepts NULL */
/* Compare the blocks that bytes [offset, offset + bytes) lie in, each once for all calls.
 * FSDP_ERR_FORMAT naming the file and the first byte of a block that differs. Not for several
 * threads at once. */
FSDP_MUST_CHECK fsdp_status fsdp_block_check_range(fsdp_block_check *check, uint64_t offset,
                                                   uint64_t bytes);
/* Copy bytes [offset, offset + bytes) to `out` and compare the blocks that they lie in, as
 * check_range() does: the file's bytes by `fd`, an open descriptor of it, each block into its place
 * and its checksum while it is in the cache. Blocks that reach beyond are copied from the mapping.
 */
FSDP_MUST_CHECK fsdp_status fsdp_block_check_read(fsdp_block_check *check, int fd, uint64_t offset,
                                                  uint64_t bytes, void *out);
