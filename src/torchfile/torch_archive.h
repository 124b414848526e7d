/* One archive of torch.save (https://pytorch.org/docs/stable/notes/serialization.html): a value of
 * Python with tensors in it.
 *
 * A zip of data.pkl, which is the value, and one record of raw data for each storage. A file is one
 * archive; files of torch.distributed.checkpoint hold one after the other. */
#pragma once
#include <fsdp/checkpoint_entry.h>

#include "src/torchfile/pickle_reader.h"

typedef struct fsdp_torch_archive fsdp_torch_archive;

/* Read the archive `data` [bytes], a mapping that must outlive it; `path` begins the messages.
 * Checksums are compared for data.pkl here and for small storages when a tensor in them is asked
 * for. FSDP_ERR_FORMAT for what is malformed; FSDP_ERR_UNSUPPORTED with advice for old formats of
 * torch.save, TorchScript, big-endian data and compressed archives. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_create(const char *path, const unsigned char *data,
                                                      size_t bytes, fsdp_torch_archive **archive);
void fsdp_torch_archive_destroy(fsdp_torch_archive *archive); /* accepts NULL */
const fsdp_pickle_value *fsdp_torch_archive_root(const fsdp_torch_archive *archive);

/* Compare checksums of storages of any size, when a tensor in them is asked for. */
void fsdp_torch_archive_check_all(fsdp_torch_archive *archive);

/* FSDP_ERR_UNSUPPORTED if the whole value is an object, as when a module itself was saved. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_refuse_object(const char *path,
                                                     const fsdp_pickle_value *root);
bool fsdp_torch_is_tensor(const fsdp_pickle_value *value);

/* What the tensor `value` is: borrowed from the archive, as `name` is from the caller. Data of a
 * contiguous tensor are in the mapping; others (transposed, expanded) are copied in row-major
 * order, as long as all copies together need no more than twice the archive's size. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_tensor(fsdp_torch_archive *archive,
                                                      const fsdp_pickle_value *value,
                                                      const char *name,
                                                      fsdp_checkpoint_entry *entry);

/* Read the storage of tensor `value` through and compare its checksum, whatever its size. The
 * archive is a mapped file, whose pages need not stay in memory. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_check(fsdp_torch_archive *archive,
                                                     const fsdp_pickle_value *value,
                                                     const char *name);
/* The same for all records that were not compared yet: storages of tensors within values, too. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_archive_check_rest(fsdp_torch_archive *archive);
