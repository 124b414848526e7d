/* Reads one archive of torch.save (https://pytorch.org/docs/stable/notes/serialization.html): a
 * Python value with tensors in it.
 *
 * An archive is a zip archive. It has a record data.pkl, which holds the value, and one record of
 * raw data for each storage. A file of torch.save is one archive; files of
 * torch.distributed.checkpoint hold several in sequence. */
#pragma once
#include <fsdp/checkpoint_entry.h>

#include "src/torchfile/pickle_reader.h"

typedef struct fsdp_torch_archive fsdp_torch_archive;

/* Read the archive `data` [bytes], a mapping that must outlive *archive; `path` is the prefix of
 * messages. This call verifies the checksum of data.pkl. The checksum of a small storage is
 * verified when a tensor in it is requested. FSDP_ERR_FORMAT for malformed archives;
 * FSDP_ERR_UNSUPPORTED with advice for old formats of torch.save, TorchScript, big-endian data and
 * compressed archives. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_create(const char *path, const unsigned char *data,
                                                      size_t bytes, fsdp_torch_archive **archive);
void fsdp_torch_archive_destroy(fsdp_torch_archive *archive); /* accepts NULL */
const fsdp_pickle_value *fsdp_torch_archive_root(const fsdp_torch_archive *archive);

/* From now on, verify the checksums of large storages too. Each is verified when a tensor in the
 * storage is requested. */
void fsdp_torch_archive_check_all(fsdp_torch_archive *archive);

/* FSDP_ERR_UNSUPPORTED if the outermost value is an object, for example because a module was saved
 * instead of its state dict. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_refuse_object(const char *path,
                                                     const fsdp_pickle_value *root);
bool fsdp_torch_is_tensor(const fsdp_pickle_value *value);

/* Describe the tensor `value` in *entry. *entry borrows `name` from the caller, and everything else
 * from the archive. The data of a contiguous tensor are in the mapping. Other tensors (transposed,
 * expanded) are copied in row-major order. FSDP_ERR_UNSUPPORTED if the copies of all tensors would
 * need more than 1 MiB plus twice the size of the archive. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_tensor(fsdp_torch_archive *archive,
                                                      const fsdp_pickle_value *value,
                                                      const char *name,
                                                      fsdp_checkpoint_entry *entry);

/* Read the whole storage of tensor `value`, whatever its size, and verify its checksum. Pages are
 * released once they have been read, so the archive must be in a mapped file, from which they can
 * be read again. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_check(fsdp_torch_archive *archive,
                                                     const fsdp_pickle_value *value,
                                                     const char *name);
/* Verify the checksums of all records that fsdp_torch_archive_check() has not verified, including
 * storages of tensors inside other values. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_check_rest(fsdp_torch_archive *archive);
