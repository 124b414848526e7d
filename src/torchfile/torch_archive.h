/* Reads one archive that torch.save wrote
 * (https://pytorch.org/docs/stable/notes/serialization.html): a Python value with tensors in it.
 *
 * An archive is a zip archive. Its record data.pkl holds the value, and each storage has a record
 * with its raw data. A file written by torch.save is one archive. A file of
 * torch.distributed.checkpoint has several archives, one after the other. */
#pragma once
#include <fsdp/checkpoint_entry.h>

#include "src/torchfile/pickle_reader.h"

typedef struct fsdp_torch_archive fsdp_torch_archive;

/* Read the archive `data` [bytes], a mapping that must outlive *archive. `path` is the prefix of
 * messages. The checksum of data.pkl is verified. Returns FSDP_ERR_FORMAT for malformed archives.
 * Returns FSDP_ERR_UNSUPPORTED for old formats of torch.save, TorchScript programs, big-endian
 * data, and compressed archives; the message says what to do instead. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_create(const char *path, const unsigned char *data,
                                                      size_t bytes, fsdp_torch_archive **archive);
void fsdp_torch_archive_destroy(fsdp_torch_archive *archive); /* accepts NULL */
const fsdp_pickle_value *fsdp_torch_archive_root(const fsdp_torch_archive *archive);

/* Make later calls of fsdp_torch_archive_tensor() verify the checksums of storages of any size. */
void fsdp_torch_archive_check_all(fsdp_torch_archive *archive);

/* Return FSDP_ERR_UNSUPPORTED if `root`, the outermost value, is OPAQUE. This happens, for example,
 * if a module was saved instead of its state dict. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_refuse_object(const char *path,
                                                     const fsdp_pickle_value *root);
bool fsdp_torch_is_tensor(const fsdp_pickle_value *value);

/* Set *entry to a description of the tensor `value`. *entry borrows `name` from the caller, and
 * everything else from the archive. If the tensor is contiguous, entry->data is in the mapping.
 * Other tensors (transposed, expanded) are copied in row-major order. Returns FSDP_ERR_UNSUPPORTED
 * if all copies together would need more than 1 MiB plus twice the size of the archive.
 *
 * The checksum of the tensor's storage is verified if the storage has at most 4 KiB, or if
 * fsdp_torch_archive_check_all() was called. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_tensor(fsdp_torch_archive *archive,
                                                      const fsdp_pickle_value *value,
                                                      const char *name,
                                                      fsdp_checkpoint_entry *entry);

/* Read the whole storage of the tensor `value`, whatever its size, and verify its checksum. Pages
 * are released as soon as they have been read. The archive must therefore be in a mapped file, from
 * which the kernel can read them again. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_check(fsdp_torch_archive *archive,
                                                     const fsdp_pickle_value *value,
                                                     const char *name);
/* Verify the checksum of each record that fsdp_torch_archive_check() has not verified. This
 * includes the data of tensors for which that function was never called. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_check_rest(fsdp_torch_archive *archive);
