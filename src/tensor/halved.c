/* See halved.h. */
#include "src/tensor/halved.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

struct fsdp_halved {
    /* halves.hi is borrowed, and NULL on meta and after fsdp_halved_detach(). The other pointers of
     * `halves` point into `block`. */
    fsdp_halves halves;
    fsdp_block *block;
    int64_t numel;
    const void *together; /* the result of fsdp_tensor_key() */
    int users; /* number of open reads and writes; a joined copy exists while this is not 0 */
    /* True if the halves may have been written. While it is false, open_copy() does not read the
     * halves, but fills the joined copy with zeros. Reading a page before it is written would cause
     * two page faults instead of one. */
    bool written;
};

/* --- the joined copy --- */

/* Free the joined copy. No read or write may be open. */
static void close_copy(fsdp_storage *st)
{
    fsdp_allocator_free(st->device->allocator, st->block);
    st->block = NULL;
    st->data = NULL;
}

/* Begin a read or a write: make the joined copy if there is none. The joined copy has the old
 * values even for a write, because the write may change only some of them. */
static fsdp_status open_copy(fsdp_storage *st, __attribute__((unused)) bool write)
{
    fsdp_halved *h = st->halved;
    const fsdp_device *device = st->device;
    if (!h->users && (h->halves.hi || !device->kernels)) {
        FSDP_TRY(
            fsdp_allocator_alloc(device->allocator, st->bytes, st->tag, &st->block, &st->data));
        if (st->data && h->written)
            device->kernels->join(device->context, st->data, h->halves, h->numel);
        else if (st->data)
            fsdp_device_memset(device, st->data, 0, st->bytes);
    }
    h->users++;
    return FSDP_OK;
}

static void end_use(fsdp_storage *st, bool wrote)
{
    fsdp_halved *h = st->halved;
    const fsdp_device *device = st->device;
    FSDP_ASSERT(h->users > 0);
    h->written |= wrote;
    if (wrote && st->data)
        device->kernels->split(device->context, h->halves, st->data, h->numel);
    if (--h->users == 0)
        close_copy(st);
}

/* --- tensors --- */

static void remove_halves(fsdp_storage *st)
{
    fsdp_halved *h = st->halved;
    fsdp_allocator_free(st->device->allocator, h->block);
    fsdp_free(h);
    st->halved = NULL;
}

static const void *key_of(const fsdp_storage *st)
{
    return st->halved->together;
}

static const fsdp_storage_kind halved_kind = {open_copy, end_use, remove_halves, key_of};

static fsdp_status create_storage(fsdp_device *device, uint16_t *hi, int64_t numel, fsdp_tag tag,
                                  fsdp_storage **storage)
{
    fsdp_storage *st = NULL;
    fsdp_halved *h = fsdp_calloc(1, sizeof *h);
    void *data = NULL;
    if (!h)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_allocator_alloc_lasting(
        device->allocator, (size_t)(numel + fsdp_halves_words(numel)) * sizeof(uint16_t), tag,
        &h->block, &data);
    if (status == FSDP_OK)
        status = fsdp_storage_from_memory(device, NULL, (size_t)numel * sizeof(float), &st);
    if (status != FSDP_OK) {
        fsdp_allocator_free(device->allocator, h->block);
        fsdp_free(h);
        return status;
    }
    h->numel = numel;
    if (data)
        h->halves = (fsdp_halves){hi, data, (uint16_t *)data + numel};
    st->tag = tag;
    st->halved = h;
    st->kind = &halved_kind;
    *storage = st;
    return FSDP_OK;
}

fsdp_status fsdp_halved_tensor(fsdp_device *device, uint16_t *hi, const void *together, int ndim,
                               const int64_t *shape, fsdp_tag tag, fsdp_tensor **tensor)
{
    int64_t numel;
    fsdp_storage *storage;
    FSDP_TRY(fsdp_shape_numel(ndim, shape, &numel));
    FSDP_TRY(create_storage(device, hi, numel, tag, &storage));
    storage->halved->together = together;
    fsdp_status status = fsdp_tensor_over(storage, FSDP_DTYPE_F32, ndim, shape, 0, tensor);
    fsdp_storage_release(storage);
    return status;
}

void fsdp_halved_detach(fsdp_storage *st)
{
    if (!st->halved)
        return;
    st->halved->halves.hi = NULL;
    close_copy(st);
}

fsdp_halves fsdp_tensor_halves(const fsdp_tensor *t)
{
    FSDP_ASSERT(fsdp_tensor_is_halved(t));
    FSDP_ASSERT(t->offset == 0);
    t->storage->halved->written = true;
    return t->storage->halved->halves;
}

/* Join halves in host memory, and write bytes [offset, offset + bytes) of the float32 values to
 * `out`. */
static void join_bytes(fsdp_halves halves, size_t offset, void *out, size_t bytes)
{
    for (size_t done = 0, n; done < bytes; done += n) {
        const size_t at = offset + done, i = at / sizeof(float), within = at % sizeof(float);
        const bool mark = halves.marks[i / FSDP_HALVES_WORD] >> i % FSDP_HALVES_WORD & 1;
        const float f = fsdp_join_half(halves.hi[i], halves.lo[i], mark);
        n = sizeof f - within < bytes - done ? sizeof f - within : bytes - done;
        if (n == sizeof f)
            memcpy((char *)out + done, &f, sizeof f);
        else
            memcpy((char *)out + done, (const char *)&f + within, n);
    }
}

/* Copy n elements from the halves `from` in device memory to the halves `to` in host memory. */
static fsdp_status peek_halves(const fsdp_device *device, fsdp_halves to, fsdp_halves from,
                               int64_t n)
{
    const size_t bytes = (size_t)n * sizeof(uint16_t);
    FSDP_TRY(fsdp_device_peek(device, to.hi, from.hi, bytes));
    FSDP_TRY(fsdp_device_peek(device, to.lo, from.lo, bytes));
    return fsdp_device_peek(device, to.marks, from.marks,
                            (size_t)fsdp_halves_words(n) * sizeof(uint16_t));
}

/* Join values whose halves are in memory of the device: copy the halves to host memory first. */
static fsdp_status copy_and_join(const fsdp_storage *st, size_t offset, void *out, size_t bytes)
{
    const fsdp_halved *h = st->halved;
    const int64_t word = FSDP_HALVES_WORD;
    const int64_t first = (int64_t)(offset / sizeof(float)) / word * word;
    const int64_t end = (int64_t)((offset + bytes + sizeof(float) - 1) / sizeof(float));
    const int64_t n = end - first;
    uint16_t *copy = fsdp_realloc(NULL, (size_t)(2 * n + fsdp_halves_words(n)), sizeof *copy);
    if (!copy)
        return FSDP_ERR_NOMEM;
    const fsdp_halves halves = {copy, copy + n, copy + 2 * n};
    const fsdp_status status = peek_halves(st->device, halves, fsdp_halves_at(h->halves, first), n);
    if (status == FSDP_OK)
        join_bytes(halves, offset - (size_t)first * sizeof(float), out, bytes);
    fsdp_free(copy);
    return status;
}

fsdp_status fsdp_halved_read(const fsdp_storage *st, size_t offset, void *out, size_t bytes)
{
    const fsdp_halved *h = st->halved;
    FSDP_ASSERT(offset <= st->bytes && bytes <= st->bytes - offset);
    FSDP_ASSERT(h->halves.hi || !bytes);
    if (bytes && fsdp_device_has_own_memory(st->device))
        return copy_and_join(st, offset, out, bytes);
    join_bytes(h->halves, offset, out, bytes);
    return FSDP_OK;
}
