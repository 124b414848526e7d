/* Copies of small host arrays to the device, in order with kernels: fsdp_cuda_upload() and
 * fsdp_cuda_from_host() of context.h.
 *
 * Note [Uploads]. There is a ring of pinned host memory and an equally large ring of device memory.
 * An upload stores an array in the host's ring, and a copy in the stream moves it to the same
 * offset of the device's ring. The device's ring needs no waits, because a copy that overwrites an
 * older array runs in the stream after the kernels that read the older array. The host's ring is
 * divided into segments. Before the host writes to a segment again, it waits for the event that
 * follows the last copy from that segment.
 *
 * The layers of a model need the same arrays again and again: positions, offsets, lists of tiles. A
 * copy takes several us of the host's time and about 4 us of the card's time. So the ring remembers
 * its latest uploads. Each remembered upload has a key in the host's ring: the array itself, or the
 * input from which the array was computed. If an upload with an equal key is remembered, the array
 * is not copied again. When the host begins to write to a segment, all uploads in this segment are
 * forgotten. Remembered uploads in the next segment are not used again, either: before the caller
 * starts its kernel, the caller may make another upload, which may move to the next segment and
 * overwrite them. */
#pragma once
#include "src/kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Create the ring of a context. The context destroys it. */
FSDP_MUST_CHECK fsdp_status fsdp_cuda_uploads_create(fsdp_cuda_context *c);

/* Return the device address of the array that was uploaded with this key, or NULL if the array is
 * no longer on the device. As with fsdp_cuda_upload(), only kernels that the caller starts before
 * it returns may read the array. */
const void *fsdp_cuda_find_upload(fsdp_cuda_context *c, const void *key, size_t key_bytes);
/* Upload an array that is computed from `key`, as fsdp_cuda_upload() does, and remember the key.
 * The key must not be empty. Keys for different kinds of arrays must differ. */
const void *fsdp_cuda_upload_for(fsdp_cuda_context *c, const void *key, size_t key_bytes,
                                 const void *src, size_t bytes);
/* For tests: return the number of arrays that have been copied so far. */
int64_t fsdp_cuda_upload_copies(fsdp_kernel_context *context);

#ifdef __cplusplus
}
#endif
