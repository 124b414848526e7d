/* Storages of float32 values that are kept in two halves.
 *
 * Note [Halved storages]. If operations read a parameter as bfloat16 and the optimizer as float32,
 * the bfloat16 value is half of the float32 value (Note [Halves] in src/base/halves.h). So the
 * value is stored only once. The upper halves are where operations read them, in memory that this
 * storage does not own and that all ranks may map. The lower halves and the marks are in memory of
 * the storage's own. Between uses such a storage has no data. From the beginning of a read or a
 * write (fsdp_tensor_begin_read(), fsdp_tensor_begin_write()) to its end it has a joined copy,
 * which the end of a write splits again. Callers that do not need the whole copy join block by
 * block: an optimizer that works element by element (fsdp_writing.in_halves), and code that copies
 * bytes (fsdp_halved_read()).
 *
 * On meta, memory is counted as it would be in a real run. */
#pragma once
#include "src/base/halves.h"
#include "src/tensor/tensor.h"

/* A contiguous float32 tensor with undefined values whose upper halves are `hi` [numel] (NULL on
 * meta). Tensors with the same `together` are best used together. */
FSDP_MUST_CHECK fsdp_status fsdp_halved_tensor(fsdp_device *device, uint16_t *hi,
                                               const void *together, int ndim, const int64_t *shape,
                                               fsdp_tag tag, fsdp_tensor **tensor);
/* The memory of the upper halves is about to be freed: the storage is empty from now on. No effect
 * on storages that are not halved. */
void fsdp_halved_leave(fsdp_storage *storage);
static inline bool fsdp_tensor_is_halved(const fsdp_tensor *t)
{
    return t->storage->halved != NULL;
}
/* The halves of a halved tensor. */
fsdp_halves fsdp_tensor_halves(const fsdp_tensor *tensor);
/* Joined bytes [offset, offset + bytes) of the storage. Callable from any thread while no one
 * writes. */
void fsdp_halved_read(const fsdp_storage *storage, size_t offset, void *out, size_t bytes);

/* For storage.c. */
FSDP_MUST_CHECK fsdp_status fsdp_halved_begin(fsdp_storage *storage);
void fsdp_halved_end(fsdp_storage *storage, bool wrote);
void fsdp_halved_remove(fsdp_storage *storage);
const void *fsdp_halved_key(const fsdp_storage *storage);
