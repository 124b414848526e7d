/* Parameters whose values are stored in 4 bits.
 *
 * Note [Quantized parameters]. QLoRA freezes a model, stores its linear layers in NF4 (Note [NF4]
 * in src/kernels/nf4.h) and trains an adapter. A quantized parameter has the shape of the weight.
 * Its values never exist as a whole except while its unit is gathered: then operations read them in
 * param_dtype (src/fsdp/storage_quantized.c).
 *
 * The parameter is cut among ranks where a block of scales begins, that is after each 256 * 64
 * elements with double quantization, and after each 64 elements without. So a rank stores the bytes
 * that a single rank would store there. The part of a rank has the indices of its elements, then
 * zeros up to a multiple of 64 bytes, and then the scales of its blocks: a byte each with double
 * quantization, and a float32 each without.
 *
 * What double quantization has besides, one float32 for 256 scales and the numbers of the map, is
 * small, and every rank has all of it. */
#pragma once
#include "src/kernels/kernels.h"
#include "src/nn/module.h"

typedef struct fsdp_quantization {
    int64_t block;        /* elements that share a scale; even */
    bool is_double;       /* the scales are stored in 8 bits */
    int64_t nested_block; /* scales that share a nested absmax; 0 if is_double is false */
} fsdp_quantization;

struct fsdp_quantized {
    fsdp_quantization how;
    int64_t numel;
    int64_t blocks;
    /* The other fields are those of double quantization. They are 0 and NULL without it. */
    int64_t nested_blocks;
    float offset;
    float map[FSDP_NF4_MAP];
    float *nested; /* [nested_blocks] the nested absmax of all ranks' blocks. Owned */
};

/* The part of a quantized parameter that one rank has. */
typedef struct fsdp_quantized_part {
    int64_t first_block, blocks;
    int64_t first, n; /* elements */
    size_t scales;    /* where the scales begin, in bytes; a multiple of 64 */
    size_t bytes;     /* size of the part */
} fsdp_quantized_part;

/* Create what describes a tensor of `numel` elements that is quantized in the way `how`. The nested
 * absmax are 0. The caller frees *q with fsdp_quantized_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_quantized_create(const fsdp_quantization *how, int64_t numel,
                                                  fsdp_quantized **q);
/* Store p in 4 bits from now on, and freeze it. p must not have memory yet. FSDP_ERR_STATE if it
 * has. */
FSDP_MUST_CHECK fsdp_status fsdp_parameter_set_quantized(fsdp_parameter *p,
                                                         const fsdp_quantization *how);
void fsdp_quantized_free(fsdp_quantized *q); /* accepts NULL */
/* Return the number of elements after which a tensor may be cut. */
int64_t fsdp_quantized_step(const fsdp_quantization *how);
/* Return the part that has elements [first, first + n). `first` is a multiple of
 * fsdp_quantized_step(), or the number of elements if n is 0. So is n, unless the part is the last
 * one. */
fsdp_quantized_part fsdp_quantized_part_at(const fsdp_quantized *q, int64_t first, int64_t n);
/* Return the part of rank `rank` of `world` ranks. As with rows, the first ranks have equal parts,
 * and the last ones may have less or nothing. */
fsdp_quantized_part fsdp_quantized_part_of(const fsdp_quantized *q, int world, int rank);
/* Return the size of a scale in bytes. */
static inline size_t fsdp_quantized_scale_bytes(const fsdp_quantization *how)
{
    return how->is_double ? sizeof(uint8_t) : sizeof(float);
}
/* Write the values of a part to `out` [part->n], in `dtype`. `stored` [part->bytes] is the part; it
 * must be aligned to 64 bytes. */
void fsdp_quantized_read(const fsdp_quantized *q, const fsdp_quantized_part *part,
                         const fsdp_device *device, const void *stored, void *out,
                         fsdp_dtype dtype);
/* Return true if the kernels of `device` can read quantized parameters, or if it has no values. */
bool fsdp_device_reads_quantized(const fsdp_device *device);
