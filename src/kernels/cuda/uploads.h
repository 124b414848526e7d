/* Copies of small host arrays to the device, in order with kernels: fsdp_cuda_upload() and
 * fsdp_cuda_from_host() of context.h.
 *
 * Note [Uploads]. Uploads go through a ring of pinned host memory and an equally large ring of
 * device memory: a copy in the stream moves each array to the same offset of the other ring. The
 * device's side needs no waits, since a later copy is ordered behind the kernels that read the
 * older array. The host's side is divided into segments. Before the host writes a segment again, it
 * waits for the event that follows the last copy out of it.
 *
 * The layers of a model need the same arrays again and again: positions, offsets, lists of tiles. A
 * copy costs the host several us, and the card about 4 us. So the ring remembers its latest
 * uploads, each by a key in the host's ring: the array itself, or what it was computed from. An
 * array whose key is there is not copied again. When the host enters a segment, what was in it is
 * forgotten. The same holds for what is in the segment that comes next, because a second upload of
 * the caller may enter this segment before the caller starts its kernel. */
#pragma once
#include "src/kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Create the ring of a context, which destroys it. */
FSDP_MUST_CHECK fsdp_status fsdp_cuda_uploads_create(fsdp_cuda_context *c);

/* Return the address of the array that was uploaded with this key, if it is still on the device,
 * else NULL. It is valid as that of fsdp_cuda_upload() is. */
const void *fsdp_cuda_find_upload(fsdp_cuda_context *c, const void *key, size_t key_bytes);
/* Upload an array that is computed from `key`, which is not empty, as fsdp_cuda_upload() does. Keys
 * of different kinds must differ. */
const void *fsdp_cuda_upload_for(fsdp_cuda_context *c, const void *key, size_t key_bytes,
                                 const void *src, size_t bytes);
/* Return how many arrays were copied, for tests. */
int64_t fsdp_cuda_upload_copies(fsdp_kernel_context *context);

#ifdef __cplusplus
}
#endif
