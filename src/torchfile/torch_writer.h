/* Writes a file as torch.save does: a Python value with tensors in it. torch.load reads it with
 * weights_only=True and with mmap=True.
 *
 * The caller first writes the value, each container before its items. It writes tensors through the
 * writer, and everything else directly to the writer's pickle. Then it appends the data of the
 * tensors, in the order in which it wrote the tensors, in pieces of any size. No data are kept in
 * memory. The file appears complete or not at all.
 *
 *     fsdp_torch_writer_create(path, &writer);
 *     fsdp_pickle_writer *pickle = fsdp_torch_writer_pickle(writer);
 *     fsdp_pickle_begin(pickle, FSDP_PICKLE_DICT);
 *     fsdp_pickle_put_str(pickle, "weight");
 *     fsdp_torch_writer_tensor(writer, "F32", (int64_t[]){2, 3}, 2, &tensor);
 *     fsdp_pickle_end(pickle);
 *     fsdp_torch_writer_begin_data(writer);
 *     fsdp_torch_writer_data(writer, data, 24);
 *     fsdp_torch_writer_finish(writer); */
#pragma once
#include "src/base/io.h"
#include "src/torchfile/pickle_writer.h"

typedef struct fsdp_torch_writer fsdp_torch_writer;

/* Begin a file that will be renamed to `path` when it is complete. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_create(const char *path, fsdp_torch_writer **writer);
/* Write blocks of zeros as holes in the file (fsdp_atomic_file_keep_holes()), and do not require
 * free disk space for them. Call this before begin_data(). */
void fsdp_torch_writer_keep_holes(fsdp_torch_writer *writer);
/* Append an archive to `file`, as torch does when it saves to a stream. `path` is the prefix of
 * messages. The caller keeps the file, which holds a partial archive after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_create_in(fsdp_atomic_file *file, const char *path,
                                                        fsdp_torch_writer **writer);
/* Return the pickle to which the caller writes the value; borrowed. */
fsdp_pickle_writer *fsdp_torch_writer_pickle(fsdp_torch_writer *writer);
/* Put a contiguous tensor with a storage of its own as the next value. *tensor is set to the number
 * of the tensor, which tied() needs. `dtype_name` is the name of the dtype in safetensors: "F32",
 * "BF16", "F8_E4M3". FSDP_ERR_UNSUPPORTED for dtypes that torch does not have; FSDP_ERR_INVALID if
 * the tensor has too many bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_tensor(fsdp_torch_writer *writer,
                                                     const char *dtype_name, const int64_t *shape,
                                                     int ndim, size_t *tensor);
/* Put tensor `tensor` again as the next value. In torch.load()'s result, both values share one
 * storage. */
void fsdp_torch_writer_tied(fsdp_torch_writer *writer, size_t tensor);

/* End the value and begin the data. FSDP_ERR_IO, naming needed and free bytes, if the disk has too
 * little space for the data. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_begin_data(fsdp_torch_writer *writer);
/* Append bytes to the tensors' data, which follow each other without a gap. FSDP_ERR_STATE if they
 * go beyond the end of the last tensor; FSDP_ERR_IO. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_data(fsdp_torch_writer *writer, const void *data,
                                                   size_t bytes);
/* Complete the archive and free `writer`, also on failure. A file that the writer created is synced
 * and renamed to its path; on failure it is deleted. FSDP_ERR_STATE naming the first incomplete
 * tensor. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_finish(fsdp_torch_writer *writer);
/* Abandon the archive. A file that the writer created is deleted. Accepts NULL. */
void fsdp_torch_writer_discard(fsdp_torch_writer *writer);
