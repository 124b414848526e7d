/* See quantized.h. */
#include "src/nn/quantized.h"

#include "src/base/alloc.h"
#include "src/tensor/device.h"

enum {
    SCALE_ALIGN = 64
};

static int64_t ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

fsdp_status fsdp_quantized_create(const fsdp_quantization *how, int64_t numel, fsdp_quantized **out)
{
    fsdp_quantized *q = fsdp_calloc(1, sizeof *q);
    if (!q)
        return FSDP_ERR_NOMEM;
    q->how = *how;
    q->numel = numel;
    q->blocks = ceil_div(numel, how->block);
    if (how->is_double) {
        q->nested_blocks = ceil_div(q->blocks, how->nested_block);
        q->nested = fsdp_calloc((size_t)q->nested_blocks, sizeof *q->nested);
        fsdp_nf4_fill_map(q->map);
    }
    if (how->is_double && !q->nested) {
        fsdp_free(q);
        return FSDP_ERR_NOMEM;
    }
    *out = q;
    return FSDP_OK;
}

void fsdp_quantized_free(fsdp_quantized *q)
{
    if (q)
        fsdp_free(q->nested);
    fsdp_free(q);
}

int64_t fsdp_quantized_step(const fsdp_quantization *how)
{
    return how->block * (how->is_double ? how->nested_block : 1);
}

fsdp_quantized_part fsdp_quantized_part_at(const fsdp_quantized *q, int64_t first, int64_t n)
{
    fsdp_quantized_part part = {.first_block = first / q->how.block,
                                .blocks = ceil_div(n, q->how.block),
                                .first = first,
                                .n = n};
    part.scales = ((size_t)(n + 1) / 2 + SCALE_ALIGN - 1) / SCALE_ALIGN * SCALE_ALIGN;
    part.bytes = part.scales + (size_t)part.blocks * fsdp_quantized_scale_bytes(&q->how);
    return part;
}

fsdp_quantized_part fsdp_quantized_part_of(const fsdp_quantized *q, int world, int rank)
{
    const int64_t step = fsdp_quantized_step(&q->how);
    const int64_t most = ceil_div(ceil_div(q->numel, step), world) * step;
    const int64_t first = most * rank < q->numel ? most * rank : q->numel;
    return fsdp_quantized_part_at(q, first, q->numel - first < most ? q->numel - first : most);
}

bool fsdp_device_reads_quantized(const fsdp_device *device)
{
    return !device->kernels || device->kernels->nf4_dequantize;
}

void fsdp_quantized_read(const fsdp_quantized *q, const fsdp_quantized_part *part,
                         const fsdp_device *device, const void *stored, void *out, fsdp_dtype dtype)
{
    const uint8_t *scales = (const uint8_t *)stored + part->scales;
    fsdp_nf4_args args = {
        .out = out, .dtype = dtype, .n = part->n, .packed = stored, .block = q->how.block};
    if (q->how.is_double) {
        args.codes = scales;
        args.nested = q->nested + part->first_block / q->how.nested_block;
        args.nested_block = q->how.nested_block;
        args.offset = q->offset;
        args.map = q->map;
    } else {
        args.absmax = (const float *)(const void *)scales;
    }
    if (part->n)
        device->kernels->nf4_dequantize(device->context, &args);
}
