/* See uploads.h. */
#include "src/kernels/cuda/uploads.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"

enum {
    ALIGNMENT = 256,
    N_SEGMENTS = 4,
    SEGMENT_BYTES = 1 << 20,
    MOST_REMEMBERED = 32,
    /* The size in bytes of the largest array that fsdp_cuda_from_host() copies through the ring. */
    STAGED_BYTES = 1 << 16
};

/* An array that was uploaded. It is remembered so that an equal array need not be copied again. */
typedef struct remembered_upload {
    /* The key of the upload is the key_bytes bytes at offset `key` of the host's ring. key_bytes is
     * 0 if the entry is unused. */
    size_t key, key_bytes;
    size_t data; /* the offset of the array in the device's ring */
    int segment;
    bool is_content; /* true: the key is the contents of the array itself */
    /* The value of upload_ring.n_uses when this entry was last used. n_uses is incremented each
     * time any entry is used. */
    uint64_t used;
} remembered_upload;

typedef struct upload_ring {
    char *host, *device;
    size_t segment_bytes;
    size_t used; /* number of bytes in use in the current segment */
    int segment;
    cudaEvent_t copied[N_SEGMENTS]; /* recorded when the host moves to the next segment */
    remembered_upload remembered[MOST_REMEMBERED];
    uint64_t n_uses, n_copies;
} upload_ring;

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* --- the ring --- */

static void close_ring(fsdp_cuda_context *c, upload_ring *r)
{
    const uint64_t n_copies = r->n_copies;
    for (int i = 0; i < N_SEGMENTS; i++)
        if (r->copied[i])
            cudaEventDestroy(r->copied[i]);
    if (r->device)
        cudaFreeAsync(r->device, fsdp_cuda_stream(c));
    if (r->host)
        cudaFreeHost(r->host);
    *r = (upload_ring){.n_copies = n_copies};
}

/* Allocate the ring, with segments of at least `bytes` bytes. The caller must have closed the old
 * ring and waited for the stream. Return false on failure; the context then keeps the failure. */
static bool open_ring(fsdp_cuda_context *c, upload_ring *r, size_t bytes)
{
    const size_t segment = bytes > SEGMENT_BYTES ? aligned(bytes) : SEGMENT_BYTES;
    const size_t all = N_SEGMENTS * segment;
    bool ok = fsdp_cuda_check(c, cudaHostAlloc((void **)&r->host, all, 0), "upload");
    ok = ok && fsdp_cuda_check(c, cudaMallocAsync((void **)&r->device, all, fsdp_cuda_stream(c)),
                               "upload");
    for (int i = 0; ok && i < N_SEGMENTS; i++)
        ok = fsdp_cuda_check(c, cudaEventCreateWithFlags(&r->copied[i], cudaEventDisableTiming),
                             "upload");
    if (!ok)
        close_ring(c, r);
    r->segment_bytes = ok ? segment : 0;
    return ok;
}

static void destroy_uploads(fsdp_cuda_context *c, void *data)
{
    close_ring(c, data);
    fsdp_free(data);
}

fsdp_status fsdp_cuda_uploads_create(fsdp_cuda_context *c)
{
    upload_ring *r = fsdp_calloc(1, sizeof *r);
    if (!r)
        return fsdp_error_nomem();
    *fsdp_cuda_attachment_of(c, FSDP_CUDA_UPLOADS) = (fsdp_cuda_attachment){r, destroy_uploads};
    open_ring(c, r, 0);
    return fsdp_cuda_status(c);
}

static upload_ring *ring_of(fsdp_cuda_context *c)
{
    return fsdp_cuda_attachment_of(c, FSDP_CUDA_UPLOADS)->data;
}

static void forget_segment(upload_ring *r, int segment)
{
    for (int i = 0; i < MOST_REMEMBERED; i++)
        if (r->remembered[i].segment == segment)
            r->remembered[i].key_bytes = 0;
}

static bool enter_next_segment(fsdp_cuda_context *c, upload_ring *r)
{
    if (!fsdp_cuda_check(c, cudaEventRecord(r->copied[r->segment], fsdp_cuda_stream(c)), "upload"))
        return false;
    r->segment = (r->segment + 1) % N_SEGMENTS;
    r->used = 0;
    forget_segment(r, r->segment);
    return fsdp_cuda_check(c, cudaEventSynchronize(r->copied[r->segment]), "upload");
}

/* Make sure that the current segment has `bytes` free bytes. If the current segment is too full,
 * move to the next segment. If even an empty segment is too small, replace the ring by a larger
 * one. Return false on failure; the context then keeps the failure. */
static bool reserve(fsdp_cuda_context *c, upload_ring *r, size_t bytes)
{
    if (bytes > r->segment_bytes) {
        if (fsdp_cuda_synchronize(c) != FSDP_OK)
            return false;
        close_ring(c, r);
        return open_ring(c, r, bytes);
    }
    return bytes <= r->segment_bytes - r->used || enter_next_segment(c, r);
}

/* Mark `bytes` bytes of the current segment as used, and return their offset in the ring. */
static size_t take(upload_ring *r, size_t bytes)
{
    const size_t at = (size_t)r->segment * r->segment_bytes + r->used;
    r->used += aligned(bytes);
    if (r->used > r->segment_bytes)
        r->used = r->segment_bytes;
    return at;
}

static bool copy_to_device(fsdp_cuda_context *c, void *dst, const void *src, size_t bytes,
                           const char *what)
{
    return fsdp_cuda_check(
        c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, fsdp_cuda_stream(c)), what);
}

/* --- uploads --- */

static const void *find(upload_ring *r, const void *key, size_t key_bytes, bool is_content)
{
    const int next = (r->segment + 1) % N_SEGMENTS;
    for (int i = 0; i < MOST_REMEMBERED; i++) {
        remembered_upload *u = &r->remembered[i];
        if (u->key_bytes != key_bytes || u->is_content != is_content || u->segment == next ||
            memcmp(r->host + u->key, key, key_bytes) != 0)
            continue;
        u->used = ++r->n_uses;
        return r->device + u->data;
    }
    return NULL;
}

/* Add an upload to the remembered uploads. It replaces the remembered upload that has not been used
 * for the longest time. */
static void remember(upload_ring *r, remembered_upload upload)
{
    remembered_upload *oldest = &r->remembered[0];
    for (int i = 1; i < MOST_REMEMBERED && oldest->key_bytes; i++)
        if (!r->remembered[i].key_bytes || r->remembered[i].used < oldest->used)
            oldest = &r->remembered[i];
    upload.segment = r->segment;
    upload.used = ++r->n_uses;
    *oldest = upload;
}

const void *fsdp_cuda_upload(fsdp_cuda_context *c, const void *src, size_t bytes)
{
    upload_ring *r = ring_of(c);
    const void *found = src && bytes ? find(r, src, bytes, true) : NULL;
    if (found || !src || !bytes || !reserve(c, r, bytes))
        return found;
    const size_t at = take(r, bytes);
    memcpy(r->host + at, src, bytes);
    if (!copy_to_device(c, r->device + at, r->host + at, bytes, "upload"))
        return NULL;
    r->n_copies++;
    remember(r, (remembered_upload){.key = at, .key_bytes = bytes, .data = at, .is_content = true});
    return r->device + at;
}

const void *fsdp_cuda_find_upload(fsdp_cuda_context *c, const void *key, size_t key_bytes)
{
    return find(ring_of(c), key, key_bytes, false);
}

const void *fsdp_cuda_upload_for(fsdp_cuda_context *c, const void *key, size_t key_bytes,
                                 const void *src, size_t bytes)
{
    upload_ring *r = ring_of(c);
    if (!reserve(c, r, aligned(key_bytes) + bytes))
        return NULL;
    const size_t key_at = take(r, key_bytes), at = take(r, bytes);
    memcpy(r->host + key_at, key, key_bytes);
    memcpy(r->host + at, src, bytes);
    if (!copy_to_device(c, r->device + at, r->host + at, bytes, "upload"))
        return NULL;
    r->n_copies++;
    remember(r, (remembered_upload){.key = key_at, .key_bytes = key_bytes, .data = at});
    return r->device + at;
}

int64_t fsdp_cuda_upload_copies(fsdp_kernel_context *context)
{
    return (int64_t)ring_of(fsdp_cuda_of(context))->n_copies;
}

void fsdp_cuda_from_host(fsdp_cuda_context *c, void *dst, const void *src, size_t bytes)
{
    upload_ring *r = ring_of(c);
    if (bytes > STAGED_BYTES) {
        if (copy_to_device(c, dst, src, bytes, "copy"))
            fsdp_cuda_check(c, cudaStreamSynchronize(fsdp_cuda_stream(c)), "copy");
    } else if (bytes && reserve(c, r, bytes)) {
        char *staged = r->host + take(r, bytes);
        memcpy(staged, src, bytes);
        copy_to_device(c, dst, staged, bytes, "copy");
    }
}
