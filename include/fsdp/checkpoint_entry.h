/**
 * @file
 * Entries of checkpoint files. An entry has the name, dtype, shape and bytes of one tensor. It has
 * the same form for safetensors files and for files written by torch.save.
 */
#pragma once
#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One tensor of an open file. The file owns the entry and all that it points to. */
typedef struct fsdp_checkpoint_entry {
    const char *name;
    const char *path;       /**< the file that contains the tensor */
    const char *dtype_name; /**< name in safetensors: "F32", "BF16", "F8_E4M3", "BOOL", ... */
    const int64_t *shape;   /**< [ndim] */
    int ndim;               /**< 0: a scalar */
    int64_t numel;          /**< product of shape */
    const void *data;       /**< [bytes], read-only, row-major, little-endian. It **may be
                                 unaligned**: copy elements with memcpy(), do not cast the
                                 pointer */
    size_t bytes;           /**< size of the data; 0 if a dimension is 0 */
} fsdp_checkpoint_entry;

/**
 * Get the dtype of `entry`'s elements.
 * @return FSDP_ERR_UNSUPPORTED for a type that this library cannot compute with (8-bit floats,
 *         bool, ...). The bytes can still be copied.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_entry_dtype(const fsdp_checkpoint_entry *entry,
                                                                 fsdp_dtype *dtype);

/**
 * Check that `entry` has exactly the shape `shape`.
 * @param shape [ndim]
 * @return FSDP_ERR_FORMAT if the shapes differ. The message gives the file, the tensor and both
 *         shapes
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_entry_check_shape(
    const fsdp_checkpoint_entry *entry, const int64_t *shape, int ndim);

/**
 * Get the bytes of rows [begin, end) along dimension 0, so that a rank can read only the pages of
 * its shard. A scalar has one row.
 *
 * @param data  out: the first byte of the rows, borrowed; may be unaligned
 * @param bytes out: total size of the rows; 0 if begin == end
 * @return FSDP_ERR_INVALID unless 0 <= begin <= end <= rows
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_entry_rows(const fsdp_checkpoint_entry *entry,
                                                                int64_t begin, int64_t end,
                                                                const void **data, size_t *bytes);

/** Hints to the operating system about bytes of a mapped file. They cannot fail. */
typedef enum fsdp_checkpoint_advice {
    FSDP_CHECKPOINT_WILL_READ, /**< start reading the bytes from the disk */
    FSDP_CHECKPOINT_DONE,      /**< the bytes need not stay in memory */
} fsdp_checkpoint_advice;
FSDP_API void fsdp_checkpoint_advise(const void *data, size_t bytes, fsdp_checkpoint_advice advice);

#ifdef __cplusplus
}
#endif
