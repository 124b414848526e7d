/* Copies of small host arrays to the device, in order with kernels: fsdp_cuda_upload() and
 * fsdp_cuda_from_host() of context.h.
 *
 * Note [Uploads]. Uploads go through a ring of pinned host memory and an equally large ring of
 * device memory: a copy in the stream moves each array to the same offset of the device's ring. The
 * device's ring needs no waits, since a later copy is ordered behind the kernels that read the
 * older array. The host's ring is divided into segments. Before the host writes to a segment again,
 * it waits for the event that follows the last copy from that segment.
 *
 * The layers of a model need the same arrays again and again: positions, offsets, lists of tiles. A
 * copy costs the host several us, and the card about 4 us. So the ring remembers its latest
 * uploads. Each has a key in the host's ring: the array itself, or the input that the array was
 * computed from. If an upload with an equal key is remembered, the array is not copied again. When
 * the host enters a segment, all uploads in it are forgotten. Uploads in the next segment are not
 * used, either, because the caller's next upload may enter this segment before the caller starts
 * its kernel. */
#pragma once
#include "src/kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Create the ring of a context. The context destroys it. */
FSDP_MUST_CHECK fsdp_status fsdp_cuda_uploads_create(fsdp_cuda_context *c);

/* Return the device address of the array that was uploaded with this key, if it is still on the
 * device; otherwise NULL. The address is valid as long as one of fsdp_cuda_upload(). */
const void *fsdp_cuda_find_upload(fsdp_cuda_context *c, const void *key, size_t key_bytes);
/* Upload an array that is computed from `key`, as fsdp_cuda_upload() does, and remember the key.
 * The key must not be empty. Keys for different kinds of arrays must differ. */
const void *fsdp_cuda_upload_for(fsdp_cuda_context *c, const void *key, size_t key_bytes,
                                 const void *src, size_t bytes);
/* Return how many arrays have been copied so far, for tests. */
int64_t fsdp_cuda_upload_copies(fsdp_kernel_context *context);

#ifdef __cplusplus
}
#endif
