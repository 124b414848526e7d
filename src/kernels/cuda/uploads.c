/* See uploads.h. */
#include "src/kernels/cuda/uploads.h"

#include <string.h>

enum {
    ALIGNMENT = 256,
    SEGMENT_BYTES = 1 << 20,
    /* A copy from the host of at most this many bytes goes through the ring. */
    STAGED_BYTES = 1 << 16
};

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* --- the ring --- */

void fsdp_upload_ring_close(fsdp_cuda_context *c, fsdp_upload_ring *r)
{
    const uint64_t n_copies = r->n_copies;
    for (int i = 0; i < FSDP_UPLOAD_SEGMENTS; i++)
        if (r->copied[i])
            cudaEventDestroy(r->copied[i]);
    if (r->device)
        cudaFreeAsync(r->device, fsdp_cuda_stream(c));
    if (r->host)
        cudaFreeHost(r->host);
    *r = (fsdp_upload_ring){.n_copies = n_copies};
}

/* The caller has waited for the stream. */
bool fsdp_upload_ring_open(fsdp_cuda_context *c, fsdp_upload_ring *r, size_t bytes)
{
    const size_t segment = bytes > SEGMENT_BYTES ? aligned(bytes) : SEGMENT_BYTES;
    const size_t all = FSDP_UPLOAD_SEGMENTS * segment;
    bool ok = fsdp_cuda_check(c, cudaHostAlloc((void **)&r->host, all, 0), "upload");
    ok = ok && fsdp_cuda_check(c, cudaMallocAsync((void **)&r->device, all, fsdp_cuda_stream(c)),
                               "upload");
    for (int i = 0; ok && i < FSDP_UPLOAD_SEGMENTS; i++)
        ok = fsdp_cuda_check(c, cudaEventCreateWithFlags(&r->copied[i], cudaEventDisableTiming),
                             "upload");
    if (!ok)
        fsdp_upload_ring_close(c, r);
    r->segment_bytes = ok ? segment : 0;
    return ok;
}

static void forget_segment(fsdp_upload_ring *r, int segment)
{
    for (int i = 0; i < FSDP_UPLOAD_MOST; i++)
        if (r->remembered[i].segment == segment)
            r->remembered[i].key_bytes = 0;
}

static bool enter_next_segment(fsdp_cuda_context *c, fsdp_upload_ring *r)
{
    if (!fsdp_cuda_check(c, cudaEventRecord(r->copied[r->segment], fsdp_cuda_stream(c)), "upload"))
        return false;
    r->segment = (r->segment + 1) % FSDP_UPLOAD_SEGMENTS;
    r->used = 0;
    forget_segment(r, r->segment);
    return fsdp_cuda_check(c, cudaEventSynchronize(r->copied[r->segment]), "upload");
}

/* Make room for `bytes` bytes in the current segment, or go to the next one. */
static bool reserve(fsdp_cuda_context *c, fsdp_upload_ring *r, size_t bytes)
{
    if (bytes > r->segment_bytes) {
        if (fsdp_cuda_synchronize(c) != FSDP_OK)
            return false;
        fsdp_upload_ring_close(c, r);
        return fsdp_upload_ring_open(c, r, bytes);
    }
    return bytes <= r->segment_bytes - r->used || enter_next_segment(c, r);
}

/* Take `bytes` bytes, for which there is room, and return their offset in the ring. */
static size_t take(fsdp_upload_ring *r, size_t bytes)
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

static const void *find(fsdp_upload_ring *r, const void *key, size_t key_bytes, bool is_content)
{
    const int next = (r->segment + 1) % FSDP_UPLOAD_SEGMENTS;
    for (int i = 0; i < FSDP_UPLOAD_MOST; i++) {
        fsdp_remembered_upload *u = &r->remembered[i];
        if (u->key_bytes != key_bytes || u->is_content != is_content || u->segment == next ||
            memcmp(r->host + u->key, key, key_bytes) != 0)
            continue;
        u->used = ++r->n_uses;
        return r->device + u->data;
    }
    return NULL;
}

/* Remember an upload in place of the one that was used longest ago. */
static void remember(fsdp_upload_ring *r, fsdp_remembered_upload upload)
{
    fsdp_remembered_upload *oldest = &r->remembered[0];
    for (int i = 1; i < FSDP_UPLOAD_MOST && oldest->key_bytes; i++)
        if (!r->remembered[i].key_bytes || r->remembered[i].used < oldest->used)
            oldest = &r->remembered[i];
    upload.segment = r->segment;
    upload.used = ++r->n_uses;
    *oldest = upload;
}

const void *fsdp_cuda_upload(fsdp_cuda_context *c, const void *src, size_t bytes)
{
    fsdp_upload_ring *r = fsdp_cuda_upload_ring(c);
    const void *found = src && bytes ? find(r, src, bytes, true) : NULL;
    if (found || !src || !bytes || !reserve(c, r, bytes))
        return found;
    const size_t at = take(r, bytes);
    memcpy(r->host + at, src, bytes);
    if (!copy_to_device(c, r->device + at, r->host + at, bytes, "upload"))
        return NULL;
    r->n_copies++;
    remember(
        r, (fsdp_remembered_upload){.key = at, .key_bytes = bytes, .data = at, .is_content = true});
    return r->device + at;
}

const void *fsdp_cuda_find_upload(fsdp_cuda_context *c, const void *key, size_t key_bytes)
{
    return find(fsdp_cuda_upload_ring(c), key, key_bytes, false);
}

const void *fsdp_cuda_upload_for(fsdp_cuda_context *c, const void *key, size_t key_bytes,
                                 const void *src, size_t bytes)
{
    fsdp_upload_ring *r = fsdp_cuda_upload_ring(c);
    if (!reserve(c, r, aligned(key_bytes) + bytes))
        return NULL;
    const size_t key_at = take(r, key_bytes), at = take(r, bytes);
    memcpy(r->host + key_at, key, key_bytes);
    memcpy(r->host + at, src, bytes);
    if (!copy_to_device(c, r->device + at, r->host + at, bytes, "upload"))
        return NULL;
    r->n_copies++;
    remember(r, (fsdp_remembered_upload){.key = key_at, .key_bytes = key_bytes, .data = at});
    return r->device + at;
}

int64_t fsdp_cuda_upload_copies(fsdp_kernel_context *context)
{
    return (int64_t)fsdp_cuda_upload_ring(fsdp_cuda_of(context))->n_copies;
}

void fsdp_cuda_from_host(fsdp_cuda_context *c, void *dst, const void *src, size_t bytes)
{
    fsdp_upload_ring *r = fsdp_cuda_upload_ring(c);
    if (bytes > STAGED_BYTES) {
        if (copy_to_device(c, dst, src, bytes, "copy"))
            fsdp_cuda_check(c, cudaStreamSynchronize(fsdp_cuda_stream(c)), "copy");
    } else if (bytes && reserve(c, r, bytes)) {
        char *staged = r->host + take(r, bytes);
        memcpy(staged, src, bytes);
        copy_to_device(c, dst, staged, bytes, "copy");
    }
}
