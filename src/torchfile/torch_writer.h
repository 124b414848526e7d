/* Writes a file as torch.save does: a Python value with tensors in it. torch.load can read the file
 * with weights_only=True and with mmap=True.
 *
 * The caller first writes the value. A tensor is put with fsdp_torch_writer_tensor(), and
 * everything else is put directly into the writer's pickle. Then the caller appends the data of the
 * tensors, in pieces of any size. The data of the tensors must be in the order in which the tensors
 * were put. The writer keeps no data in memory. The file appears complete or not at all.
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

/* Begin a file, which finish() will rename to `path`. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_create(const char *path, fsdp_torch_writer **writer);
/* Write blocks of zeros as holes in the file (fsdp_atomic_file_keep_holes()), and do not check the
 * free disk space. Call this before begin_data(). */
void fsdp_torch_writer_keep_holes(fsdp_torch_writer *writer);
/* Create a writer that appends an archive to `file`, as torch does when it saves to a stream. The
 * caller still owns `file`. After a failure, an incomplete archive is at the end of `file`. `path`
 * is the prefix of messages. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_create_in(fsdp_atomic_file *file, const char *path,
                                                        fsdp_torch_writer **writer);
/* Return the pickle to which the caller writes the value; borrowed. */
fsdp_pickle_writer *fsdp_torch_writer_pickle(fsdp_torch_writer *writer);
/* Put a contiguous tensor as the next value. It gets a storage that no other tensor has. *tensor is
 * set to the number of the tensor, which can be passed to tied(). `dtype_name` is the name of the
 * dtype in safetensors: "F32", "BF16", "F8_E4M3". Returns FSDP_ERR_UNSUPPORTED for dtypes that
 * torch does not have. Returns FSDP_ERR_INVALID if the tensor has too many bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_tensor(fsdp_torch_writer *writer,
                                                     const char *dtype_name, const int64_t *shape,
                                                     int ndim, size_t *tensor);
/* Put the tensor with number `tensor` again as the next value. In the result of torch.load(), both
 * values share one storage. */
void fsdp_torch_writer_tied(fsdp_torch_writer *writer, size_t tensor);

/* End the value and begin the data. Returns FSDP_ERR_IO if the disk has too little space for the
 * data; the message contains the needed and the free bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_begin_data(fsdp_torch_writer *writer);
/* Append bytes to the data of the tensors. The data of different tensors follow each other without
 * a gap. Returns FSDP_ERR_STATE if there are more bytes than the tensors have. Can also return
 * FSDP_ERR_IO. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_data(fsdp_torch_writer *writer, const void *data,
                                                   size_t bytes);
/* Complete the archive and free `writer`, also on failure. If the writer created the file, it is
 * synced and renamed to its path, or deleted on failure. Returns FSDP_ERR_STATE if a tensor has too
 * few bytes; the message contains the number of the first such tensor. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_finish(fsdp_torch_writer *writer);
/* Abandon the archive and free `writer`. If the writer created the file, it is deleted. Accepts
 * NULL. */
void fsdp_torch_writer_discard(fsdp_torch_writer *writer);
