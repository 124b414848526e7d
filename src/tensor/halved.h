/* Storages of float32 values that are kept in two halves.
 *
 * Note [Halved storages]. If operations read a parameter as bfloat16 and the optimizer reads it as
 * float32, the bits of the bfloat16 value are half of the bits of the float32 value (Note [Halves]
 * in src/base/halves.h). So the value is stored only once. The upper halves are stored where
 * operations read them, in memory that this storage does not own and that all ranks may map. The
 * storage owns the memory of the lower halves and the marks. Between uses the storage has no data.
 * During a read or a write, that is, from fsdp_tensor_begin_read() or fsdp_tensor_begin_write() to
 * the matching end, it has a joined copy of the values. The end of a write splits this copy into
 * halves again. Two kinds of callers do not need the whole copy and join block by block: an
 * optimizer that works element by element (fsdp_writing.in_halves), and code that copies bytes
 * (fsdp_halved_read()).
 *
 * On meta, memory is counted as it would be in a real run. */
#pragma once
#include "src/base/halves.h"
#include "src/tensor/tensor.h"

/* Create a contiguous float32 tensor with undefined values, whose upper halves are stored in `hi`
 * [numel] (NULL on meta). fsdp_tensor_key() of the tensor will return `together`. */
FSDP_MUST_CHECK fsdp_status fsdp_halved_tensor(fsdp_device *device, uint16_t *hi,
                                               const void *together, int ndim, const int64_t *shape,
                                               fsdp_tag tag, fsdp_tensor **tensor);
/* Make the storage empty. Must be called before the memory of the upper halves is freed. No effect
 * on a storage that is not halved. */
void fsdp_halved_detach(fsdp_storage *storage);
static inline bool fsdp_tensor_is_halved(const fsdp_tensor *t)
{
    return t->storage->halved != NULL;
}
/* Get the halves of a halved tensor. The caller may write them. */
fsdp_halves fsdp_tensor_halves(const fsdp_tensor *tensor);
/* Copy joined bytes [offset, offset + bytes) of the storage to `out`. Any thread may call this
 * while nothing writes the storage. */
void fsdp_halved_read(const fsdp_storage *storage, size_t offset, void *out, size_t bytes);
