/* Storages of float32 that lie in two halves.
 *
 * Note [Halved storages]. Of a parameter that operations read as bfloat16 and the optimizer as
 * float32, the bfloat16 is half of the float32 (Note [Halves] in src/base/halves.h). So the value
 * lies once: the upper halves where operations read them, in memory of somebody else's, which all
 * ranks may see; the lower halves and marks here. Between uses such a storage has no data. From
 * the begin of a read or a write (fsdp_tensor_begin_read(), fsdp_tensor_begin_write()) to its end
 * it has a joined copy, which the end of a write splits again. Who can do with less joins by
 * blocks: an optimizer that goes by elements (fsdp_writing.in_halves), and whoever copies bytes
 * (fsdp_halved_read()).
 *
 * On meta memory is counted as it would be. */
#pragma once
#include "src/base/halves.h"
#include "src/tensor/tensor.h"

/* A contiguous float32 tensor, undefined, whose upper halves are `hi` [numel] (NULL on meta).
 * `together`: tensors that have it in common are best used together. */
FSDP_MUST_CHECK fsdp_status fsdp_halved_tensor(fsdp_device *device, uint16_t *hi,
                                               const void *together, int ndim, const int64_t *shape,
                                               fsdp_tag tag, fsdp_tensor **tensor);
/* The memory of the upper halves goes: from here on the storage is empty. No effect on others. */
void fsdp_halved_leave(fsdp_storage *storage);
static inline bool fsdp_tensor_is_halved(const fsdp_tensor *t)
{
    return t->storage->halved != NULL;
}
/* All halves of such a tensor. */
fsdp_halves fsdp_tensor_halves(const fsdp_tensor *tensor);
/* Joined bytes [offset, offset + bytes) of the storage. From any thread, while nobody writes. */
void fsdp_halved_read(const fsdp_storage *storage, size_t offset, void *out, size_t bytes);

/* For storage.c. */
FSDP_MUST_CHECK fsdp_status fsdp_halved_begin(fsdp_storage *storage);
void fsdp_halved_end(fsdp_storage *storage, bool wrote);
void fsdp_halved_remove(fsdp_storage *storage);
const void *fsdp_halved_key(const fsdp_storage *storage);
