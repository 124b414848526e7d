/* Reads one archive of torch.save (https://pytorch.org/docs/stable/notes/serialization.html): a
 * Python value with tensors in it.
 *
 * An archive is a zip of data.pkl, which holds the value, and one record of raw data for each
 * storage. A file of torch.save is one archive; files of torch.distributed.checkpoint hold several
 * in sequence. */
#pragma once
#include <fsdp/checkpoint_entry.h>

#include "src/torchfile/pickle_reader.h"

typedef struct fsdp_torch_archive fsdp_torch_archive;

/* Read the archive `data` [bytes], a mapping that must outlive *archive; `path` is the prefix of
 * messages. Checksums are compared for data.pkl here, and for small storages when a tensor in them
 * is requested. FSDP_ERR_FORMAT for malformed archives; FSDP_ERR_UNSUPPORTED with advice for old
 * formats of torch.save, TorchScript, big-endian data and compressed archives. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_create(const char *path, const unsigned char *data,
                                                      size_t bytes, fsdp_torch_archive **archive);
void fsdp_torch_archive_destroy(fsdp_torch_archive *archive); /* accepts NULL */
const fsdp_pickle_value *fsdp_torch_archive_root(const fsdp_torch_archive *archive);

/* From now on, compare checksums of storages of any size when a tensor in them is requested. */
void fsdp_torch_archive_check_all(fsdp_torch_archive *archive);

/* FSDP_ERR_UNSUPPORTED if the outermost value is an object, for example because a module was saved
 * instead of its state dict. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_refuse_object(const char *path,
                                                     const fsdp_pickle_value *root);
bool fsdp_torch_is_tensor(const fsdp_pickle_value *value);

/* Describe the tensor `value` in *entry. *entry borrows `name` from the caller, and all else from
 * the archive. Data of a contiguous tensor are in the mapping. Other tensors (transposed, expanded)
 * are copied in row-major order, if all copies together need at most twice the archive's size. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_tensor(fsdp_torch_archive *archive,
                                                      const fsdp_pickle_value *value,
                                                      const char *name,
                                                      fsdp_checkpoint_entry *entry);

/* Read all of the storage of tensor `value`, whatever its size, and compare its checksum. The
 * archive must be in a mapped file: pages are released after they were read. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_check(fsdp_torch_archive *archive,
                                                     const fsdp_pickle_value *value,
                                                     const char *name);
/* Compare the checksums of all records that were not compared yet, also of storages of tensors
 * inside other values. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_check_rest(fsdp_torch_archive *archive);
