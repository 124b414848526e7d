/* Storages of float32 values, each stored in two halves.
 *
 * Note [Halved storages]. Operations may read a parameter as bfloat16 while the optimizer reads it
 * as float32. The bits of the bfloat16 value are half of the bits of the float32 value (Note
 * [Halves] in src/base/halves.h), so the value is stored only once. The upper halves are in memory
 * that operations read. This memory does not belong to the storage, and all ranks may map it. The
 * memory of the lower halves and of the mark bits belongs to the storage.
 *
 * While no read or write is open, the storage has no data. During a read or a write, it has a
 * joined copy of the values. A read lasts from fsdp_tensor_begin_read() to the matching end, and a
 * write lasts from fsdp_tensor_begin_write() to the matching end. The end of a write splits the
 * joined copy into halves again. Two kinds of callers do not need the whole copy and join block by
 * block. One is an optimizer that works element by element (fsdp_writing.in_halves), the other is
 * code that copies bytes (fsdp_halved_read()).
 *
 * On meta, memory is counted as it would be in a real run. */
#pragma once
#include "src/base/halves.h"
#include "src/tensor/tensor.h"

/* Create a contiguous float32 tensor with undefined values. Its upper halves are stored in `hi`
 * [numel], which is NULL on meta. `together` is the value that fsdp_tensor_key() will return for
 * the tensor. Pass the same value for all halved tensors of one unit, so that callers process these
 * tensors one after the other. */
FSDP_MUST_CHECK fsdp_status fsdp_halved_tensor(fsdp_device *device, uint16_t *hi,
                                               const void *together, int ndim, const int64_t *shape,
                                               fsdp_tag tag, fsdp_tensor **tensor);
/* Take the upper halves away from the storage. Afterwards, the storage has no values. The caller
 * must call this before it frees the memory of the upper halves. No effect on a storage that is not
 * halved. */
void fsdp_halved_detach(fsdp_storage *storage);
static inline bool fsdp_tensor_is_halved(const fsdp_tensor *t)
{
    return t->storage->halved != NULL;
}
/* Return the halves of a halved tensor. The caller may write to them. */
fsdp_halves fsdp_tensor_halves(const fsdp_tensor *tensor);
/* Copy bytes [offset, offset + bytes) of the joined values to `out`. Any thread may call this while
 * no thread writes to the storage. */
FSDP_MUST_CHECK fsdp_status fsdp_halved_read(const fsdp_storage *storage, size_t offset, void *out,
                                             size_t bytes);
