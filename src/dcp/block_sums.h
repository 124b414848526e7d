/* Checksums of the data files of a torch.distributed.checkpoint directory. For each data file, this
 * library writes a file of checksums next to it, with one checksum for each block of 256 KiB. A
 * rank that reads only some rows of a chunk verifies only the blocks that contain these rows. The
 * zip archives in the data file have checksums too, but each of these covers a whole chunk.
 *
 * `__0_0.crc32` has the checksums of `__0_0.distcp`. All numbers are little-endian:
 *
 *     8 bytes "FSDPCRC1" | u64 size of the data file in bytes | u32 size of a block in bytes
 *     | u32 CRC-32 of each block (the last block may be short) | u32 CRC-32 of all bytes before it
 *
 * PyTorch does not know about the files of checksums. When it overwrites the data files of a
 * checkpoint, the old checksums remain. Checksums are therefore used only if .metadata says that
 * this library wrote the checkpoint (fsdp_dcp_metadata_is_own()). */
#pragma once
#include "src/base/crc32.h"
#include "src/base/io.h"

/* Return the path of the file of checksums, "a/__0_0.crc32" for "a/__0_0.distcp". Returns NULL if
 * memory ran out. The caller owns the result. */
char *fsdp_block_sums_path(const char *data_path);

/* ---- writing ---- */
typedef struct fsdp_block_sums {
    fsdp_crc32_table table;
    uint32_t *sums; /* [n] checksums of complete blocks */
    size_t n, cap;
    uint32_t crc;   /* checksum of the incomplete block, so far */
    uint64_t bytes; /* number of bytes added so far */
} fsdp_block_sums;

void fsdp_block_sums_init(fsdp_block_sums *sums);
void fsdp_block_sums_fini(fsdp_block_sums *sums);
/* Add the next bytes of the data file. `sums` is an fsdp_block_sums. This function is an
 * fsdp_append_fn. */
FSDP_MUST_CHECK fsdp_status fsdp_block_sums_add(void *sums, const void *data, size_t bytes);
/* Write the checksums of the data file `data_path` into a file next to it. All bytes of the data
 * file must have been added. */
FSDP_MUST_CHECK fsdp_status fsdp_block_sums_write(const fsdp_block_sums *sums,
                                                  const char *data_path);

/* ---- reading ---- */
typedef struct fsdp_block_check fsdp_block_check;

/* Open the file of checksums of the data file `data_path`. `data` is the mapping of the data file.
 * `data_path` and `data` must outlive *check. Returns FSDP_ERR_NOT_FOUND if there is no file of
 * checksums. Returns FSDP_ERR_FORMAT if the file of checksums is damaged, or gives a different size
 * for the data file. */
FSDP_MUST_CHECK fsdp_status fsdp_block_check_open(const char *data_path, const fsdp_mapping *data,
                                                  fsdp_block_check **check);
/* Like fsdp_block_check_open(), but the content of the file of checksums is `text` [bytes], of
 * which a copy is made. `label` takes the place of `data_path` in messages. */
FSDP_MUST_CHECK fsdp_status fsdp_block_check_create(const char *label, const fsdp_mapping *data,
                                                    const void *text, size_t bytes,
                                                    fsdp_block_check **check);
void fsdp_block_check_close(fsdp_block_check *check); /* accepts NULL */
/* From now on, messages contain `label` instead of `data_path`. `label` must outlive `check`. */
void fsdp_block_check_set_label(fsdp_block_check *check, const char *label);
/* Return the size of a block in bytes. */
uint64_t fsdp_block_check_block_bytes(const fsdp_block_check *check);
/* Forget which blocks have been verified, so that later reads verify them again. */
void fsdp_block_check_forget(fsdp_block_check *check);
/* Verify the checksums of the blocks that contain bytes [offset, offset + bytes). Blocks that an
 * earlier call verified are skipped. Returns FSDP_ERR_FORMAT if a block is damaged; the message
 * contains the path of the data file and the range of the block. Not thread-safe. */
FSDP_MUST_CHECK fsdp_status fsdp_block_check_range(fsdp_block_check *check, uint64_t offset,
                                                   uint64_t bytes);
/* Copy bytes [offset, offset + bytes) to `out`, and verify the blocks that contain them. `fd` is an
 * open descriptor of the data file. A block that is entirely in the range is read from `fd`
 * directly into `out`, and its checksum is computed while it is in the cache. A block that is only
 * partly in the range is copied from the mapping. Errors and thread safety are those of
 * fsdp_block_check_range(). */
FSDP_MUST_CHECK fsdp_status fsdp_block_check_read(fsdp_block_check *check, int fd, uint64_t offset,
                                                  uint64_t bytes, void *out);
/* Read bytes [offset, offset + bytes) of a data file into `out`. */
typedef fsdp_status fsdp_block_read_fn(void *context, uint64_t offset, void *out, size_t bytes);
/* Like fsdp_block_check_read(), but `read` reads the blocks that are entirely in the range. */
FSDP_MUST_CHECK fsdp_status fsdp_block_check_read_by(fsdp_block_check *check,
                                                     fsdp_block_read_fn *read, void *context,
                                                     uint64_t offset, uint64_t bytes, void *out);
