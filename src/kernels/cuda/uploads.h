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

enum {
    FSDP_UPLOAD_SEGMENTS = 4,
    FSDP_UPLOAD_MOST = 32 /* uploads that the ring remembers */
};

/* An upload that may be found again. */
typedef struct fsdp_remembered_upload {
    size_t key, key_bytes; /* the key's offset in the host's ring; 0 bytes: there is no upload */
    size_t data;           /* the offset of the array in the device's ring */
    int segment;
    bool is_content; /* the key is the array itself */
    uint64_t used;   /* the number of the upload that used it last */
} fsdp_remembered_upload;

typedef struct fsdp_upload_ring {
    char *host, *device;
    size_t segment_bytes;
    size_t used; /* bytes of the current segment */
    int segment;
    cudaEvent_t copied[FSDP_UPLOAD_SEGMENTS]; /* recorded when the host leaves the segment */
    fsdp_remembered_upload remembered[FSDP_UPLOAD_MOST];
    uint64_t n_uses, n_copies;
} fsdp_upload_ring;

/* Make a ring whose segments have at least `bytes` bytes. Returns false on failure (kept). */
bool fsdp_upload_ring_open(fsdp_cuda_context *c, fsdp_upload_ring *ring, size_t bytes);
void fsdp_upload_ring_close(fsdp_cuda_context *c, fsdp_upload_ring *ring);
/* The ring of a context. */
fsdp_upload_ring *fsdp_cuda_upload_ring(fsdp_cuda_context *c);

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
