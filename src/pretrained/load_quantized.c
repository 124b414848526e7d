/* See load_quantized.h.
 *
 * With double quantization, every rank needs two things that are computed from the scales of all
 * ranks: the mean of the scales, and the whole nested absmax, which has a scale for each block of
 * scales (Note [Files of bitsandbytes] in nf4_entry.h). For the mean, the ranks exchange the
 * sums of blocks of scales, and every rank adds these sums in the order of the blocks. So the mean
 * does not depend on the number of ranks. */
#include "src/pretrained/load_quantized.h"

#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/tensor/device.h"
#include "src/tensor/host_copy.h"
#include "src/torchfile/entry.h"

enum {
    PIECE = 1 << 14 /* number of elements that are read at a time, unless one block of weights is
                       larger */
};

/* A quantized parameter that is being loaded from floating-point numbers. */
typedef struct quantizing {
    const fsdp_checkpoint_entry *entry;
    const char *name;
    fsdp_dtype dtype; /* dtype of `entry` */
    fsdp_quantized *q;
    fsdp_quantized_part part;
    /* Kernels that compute in host memory, with their context. */
    const fsdp_kernels *kernels;
    fsdp_kernel_context *context;
    fsdp_group *group; /* the ranks that share the parameter; NULL: this rank alone */
    uint8_t *stored;   /* [part.bytes] in host memory */
    float *absmax;     /* [part.blocks] */
} quantizing;

static bool has_shape(const fsdp_parameter *p, int ndim, const int64_t *shape)
{
    bool same = p->ndim == ndim;
    for (int i = 0; same && i < ndim; i++)
        same = p->shape[i] == shape[i];
    return same;
}

fsdp_status fsdp_load_check_quantized(const fsdp_checkpoint_reader *reader,
                                      const fsdp_checkpoint_entry *entry, const fsdp_parameter *p)
{
    fsdp_nf4_entry nf4;
    bool found;
    fsdp_dtype dtype;
    if (!p->owner)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "%s: tensor '%s': a weight in NF4 (--load-in-4bit) must belong to a unit, "
            "and this one does not (--ignored-modules)",
            entry->path, entry->name);
    FSDP_TRY(fsdp_nf4_entry_find(reader, entry, &nf4, &found));
    if (!found) {
        FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, p->shape, p->ndim));
        FSDP_TRY(fsdp_checkpoint_entry_dtype(entry, &dtype));
        return fsdp_dtype_is_floating(dtype)
                   ? FSDP_OK
                   : fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: tensor '%s': a parameter of %s",
                                entry->path, entry->name, fsdp_dtype_name(dtype));
    }
    if (has_shape(p, nf4.ndim, nf4.shape) &&
        memcmp(&nf4.how, &p->quantized->how, sizeof nf4.how) == 0)
        return FSDP_OK;
    char has[128], wanted[128];
    fsdp_checkpoint_shape_text(nf4.shape, nf4.ndim, has, sizeof has);
    fsdp_checkpoint_shape_text(p->shape, p->ndim, wanted, sizeof wanted);
    return fsdp_error(
        FSDP_ERR_FORMAT,
        "%s: tensor '%s' is a weight of shape %s in NF4 with blocks of %lld; the model "
        "has %s with blocks of %lld there",
        entry->path, entry->name, has, (long long)nf4.how.block, wanted,
        (long long)p->quantized->how.block);
}

/* --- elements --- */

/* Read elements [first, first + n) as floats. `raw` is a buffer for n elements of up to 8 bytes. */
static void read_elements(const quantizing *z, int64_t first, int64_t n, void *raw, float *values)
{
    const size_t size = fsdp_dtype_size(z->dtype);
    const char *from = (const char *)z->entry->data + (size_t)first * size;
    memcpy(raw, from, (size_t)n * size);
    z->kernels->cast(z->context, values, FSDP_DTYPE_F32, raw, z->dtype, n);
}

static fsdp_status quantize_pieces(const quantizing *z, int64_t piece, void *raw, float *values)
{
    const int64_t block = z->q->how.block;
    for (int64_t at = 0, n; at < z->part.n; at += n) {
        n = z->part.n - at < piece ? z->part.n - at : piece;
        read_elements(z, z->part.first + at, n, raw, values);
        const int64_t done =
            fsdp_nf4_quantize(values, n, block, z->stored + at / 2, z->absmax + at / block);
        if (done < n)
            return fsdp_error(
                FSDP_ERR_INVALID,
                "%s: element %lld of tensor '%s' is infinite or NaN, so '%s' cannot be "
                "quantized (--load-in-4bit)",
                z->entry->path, (long long)(z->part.first + at + done), z->entry->name, z->name);
    }
    return FSDP_OK;
}

static fsdp_status quantize_elements(const quantizing *z)
{
    const int64_t block = z->q->how.block;
    const int64_t piece = block > PIECE ? block : PIECE / block * block;
    void *raw = fsdp_calloc((size_t)piece, sizeof(double));
    float *values = fsdp_calloc((size_t)piece, sizeof *values);
    const fsdp_status status =
        raw && values ? quantize_pieces(z, piece, raw, values) : FSDP_ERR_NOMEM;
    fsdp_free(raw);
    fsdp_free(values);
    return status;
}

/* --- scales --- */

/* Set q->offset to the mean of all scales. The caller has filled `sums` [q->nested_blocks] with
 * zeros. */
static fsdp_status average_scales(const quantizing *z, double *sums)
{
    fsdp_quantized *q = z->q;
    for (int64_t i = 0; i < z->part.blocks; i++)
        sums[(z->part.first_block + i) / q->how.nested_block] += (double)z->absmax[i];
    if (z->group)
        FSDP_TRY(fsdp_all_reduce(z->group, sums, (size_t)q->nested_blocks, FSDP_DTYPE_F64,
                                 FSDP_REDUCE_SUM));
    double sum = 0.0;
    for (int64_t i = 0; i < q->nested_blocks; i++)
        sum += sums[i];
    q->offset = (float)(sum / (double)q->blocks);
    return FSDP_OK;
}

static fsdp_status quantize_scales(const quantizing *z, double *sums)
{
    fsdp_quantized *q = z->q;
    FSDP_TRY(average_scales(z, sums));
    fsdp_nf4_fill_map(q->map);
    memset(q->nested, 0, (size_t)q->nested_blocks * sizeof *q->nested);
    if (z->part.blocks)
        fsdp_nf4_quantize_scales(z->absmax, z->part.blocks, q->how.nested_block, q->offset, q->map,
                                 z->stored + z->part.scales,
                                 q->nested + z->part.first_block / q->how.nested_block);
    return z->group ? fsdp_all_reduce(z->group, q->nested, (size_t)q->nested_blocks, FSDP_DTYPE_F32,
                                      FSDP_REDUCE_SUM)
                    : FSDP_OK;
}

static fsdp_status store_scales(const quantizing *z)
{
    if (!z->q->how.is_double) {
        if (z->part.blocks)
            memcpy(z->stored + z->part.scales, z->absmax,
                   (size_t)z->part.blocks * sizeof *z->absmax);
        return FSDP_OK;
    }
    double *sums = fsdp_calloc((size_t)z->q->nested_blocks, sizeof *sums);
    fsdp_status status = fsdp_agree(z->group, sums ? FSDP_OK : FSDP_ERR_NOMEM);
    if (status == FSDP_OK)
        status = quantize_scales(z, sums);
    fsdp_free(sums);
    return status;
}

/* `status` is FSDP_OK, or the error with which this rank failed to prepare the quantization. If one
 * rank has failed, all ranks return an error. */
static fsdp_status quantize(quantizing *z, fsdp_status status)
{
    if (status == FSDP_OK)
        status = fsdp_checkpoint_entry_dtype(z->entry, &z->dtype);
    z->absmax = fsdp_calloc((size_t)z->part.blocks + 1, sizeof *z->absmax);
    if (status == FSDP_OK)
        status = z->absmax ? quantize_elements(z) : FSDP_ERR_NOMEM;
    status = fsdp_agree(z->group, status);
    if (status == FSDP_OK)
        status = store_scales(z);
    fsdp_free(z->absmax);
    return status;
}

/* Quantize with the kernels of `device` or, if the host cannot read the memory of `device`, with
 * the kernels of the CPU. */
static fsdp_status quantize_on_host(quantizing *z, const fsdp_device *device, fsdp_status status)
{
    fsdp_kernel_context *own = NULL;
    z->kernels = device->kernels;
    z->context = device->context;
    if (status == FSDP_OK && fsdp_device_has_own_memory(device)) {
        status = fsdp_kernels_cpu_open(NULL, 1, &own, &z->kernels);
        z->context = own;
    }
    status = quantize(z, status);
    fsdp_kernels_cpu_close(own);
    return status;
}

/* --- one parameter --- */

/* Let the system know that the bytes of this rank's elements need not stay in memory. */
static void leave_bytes(const fsdp_checkpoint_entry *entry, const fsdp_quantized *q,
                        const fsdp_quantized_part *part)
{
    const size_t per_element = q->numel ? entry->bytes / (size_t)q->numel : 0;
    const size_t first = per_element ? (size_t)part->first * per_element : (size_t)part->first / 2;
    const size_t bytes = per_element ? (size_t)part->n * per_element : (size_t)part->n / 2;
    fsdp_checkpoint_advise((const char *)entry->data + first, bytes, FSDP_CHECKPOINT_DONE);
}

fsdp_status fsdp_load_quantized(const fsdp_checkpoint_reader *reader,
                                const fsdp_checkpoint_entry *entry, const char *name,
                                fsdp_parameter *p)
{
    fsdp_group *group = fsdp_parameter_shard(p).group;
    const fsdp_device *device = p->local->storage->device;
    fsdp_host_copy copy = {0};
    quantizing z = {.entry = entry,
                    .name = name,
                    .q = p->quantized,
                    .part = fsdp_quantized_part_of(p->quantized, fsdp_group_world_size(group),
                                                   fsdp_group_rank(group)),
                    .group = group};
    fsdp_nf4_entry nf4;
    bool found;
    if (!device->kernels)
        return FSDP_OK;
    FSDP_TRY(fsdp_nf4_entry_find(reader, entry, &nf4, &found));
    fsdp_status status = fsdp_host_copy_create(&copy, p->local);
    z.stored = copy.data;
    if (!found) {
        status = quantize_on_host(&z, device, status);
    } else if (status == FSDP_OK) {
        fsdp_nf4_entry_take_nested(&nf4, z.q);
        fsdp_nf4_entry_take_part(&nf4, &z.part, z.stored);
    }
    if (status == FSDP_OK)
        fsdp_host_copy_write(&copy);
    fsdp_host_copy_destroy(&copy);
    FSDP_TRY(status);
    leave_bytes(entry, z.q, &z.part);
    return FSDP_OK;
}
