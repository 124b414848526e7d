/* Writing a file as torch.save does: a Python value with tensors in it, which torch.load reads with
 * weights_only=True and with mmap=True.
 *
 * First the value is told, from outside to inside; the writer's pickle is told everything but
 * tensors directly. Then come the tensors' data, in the order in which they were told, in pieces of
 * any size: none of them is held. The file appears whole or not at all.
 *
 *     fsdp_torch_writer_create(path, &writer);
 *     fsdp_pickle_writer *pickle = fsdp_torch_writer_pickle(writer);
 *     fsdp_pickle_begin(pickle, FSDP_PICKLE_DICT);
 *     fsdp_pickle_put_str(pickle, "weight");
 *     fsdp_torch_writer_tensor(writer, "F32", (int64_t[]){2, 3}, 2, &tensor);
 *     fsdp_pickle_end(pickle);
 *     fsdp_torch_writer_begin_data(writer);
 *     fsdp_torch_writer_data(writer, data, 24);
 *     fsdp_torch_writer_finish(writer);
 */
#pragma once
#include "src/base/io.h"
#include "src/torchfile/pickle_writer.h"

typedef struct fsdp_torch_writer fsdp_torch_writer;

/* Begin the file that will be `path`. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_create(const char *path, fsdp_torch_writer **writer);
/* Blocks of zeros become holes of the file (fsdp_atomic_file_keep_holes()), and no room is asked
 * for. Before begin_data(). */
void fsdp_torch_writer_keep_holes(fsdp_torch_writer *writer);
/* Append an archive to `file`, as torch saves to a stream; `path` begins the messages. The file
 * stays the caller's, and a failure leaves what was written in it. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_create_in(fsdp_atomic_file *file, const char *path,
                                                        fsdp_torch_writer **writer);
/* Where the value is told; borrowed. */
fsdp_pickle_writer *fsdp_torch_writer_pickle(fsdp_torch_writer *writer);
/* The next value is a tensor, contiguous and with a storage of its own; its number is for tied().
 * `dtype_name` is safetensors': "F32", "BF16", "F8_E4M3". FSDP_ERR_UNSUPPORTED for types that torch
 * has not; FSDP_ERR_INVALID for a shape of too many bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_tensor(fsdp_torch_writer *writer,
                                                     const char *dtype_name, const int64_t *shape,
                                                     int ndim, size_t *tensor);
/* The next value is tensor `tensor` again: loaded, both share one storage. */
void fsdp_torch_writer_tied(fsdp_torch_writer *writer, size_t tensor);

/* The value is complete. FSDP_ERR_IO, naming both figures, if the disk has no room for the data. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_begin_data(fsdp_torch_writer *writer);
/* The next bytes of all tensors' data, one tensor after the other without a gap.
 * FSDP_ERR_STATE beyond the end of the last one; FSDP_ERR_IO */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_data(fsdp_torch_writer *writer, const void *data,
                                                   size_t bytes);
/* Check that all data came, sync, and rename to the path. `writer` is gone afterwards, also on
 * failure, which leaves nothing behind. FSDP_ERR_STATE naming the first incomplete tensor. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_writer_finish(fsdp_torch_writer *writer);
/* Give up: nothing is left behind. Accepts NULL. */
void fsdp_torch_writer_discard(fsdp_torch_writer *writer);
