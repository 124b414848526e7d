/* Parameters whose values are stored in 4 bits.
 *
 * Note [Quantized parameters]. QLoRA freezes a model, stores its linear layers in NF4 (Note [NF4]
 * in src/kernels/nf4.h) and trains an adapter. A quantized parameter has the shape of the weight.
 * Its values never exist as a whole except while its unit is gathered: then operations read them in
 * param_dtype (src/fsdp/storage_quantized.c).
 *
 * The parameter is cut among ranks where a block of scales begins. With the usual block sizes, this
 * is after each 256 * 64 elements with double quantization, and after each 64 elements without. (A
 * file may have other block sizes.) So a rank stores the same bytes that a single rank would store
 * for these elements. The part of a rank has the indices of its elements, then zeros up to a
 * multiple of 64 bytes, and then the scales of its blocks: a byte each with double quantization,
 * and a float32 each without.
 *
 * Double quantization also needs one float32, the nested absmax, for each block of scales (usually
 * 256 scales), and the numbers of a map from the codes of scales to values. These are small, so
 * every rank has all of them. */
#pragma once
#include "src/kernels/kernels.h"
#include "src/nn/module.h"

typedef struct fsdp_quantization {
    int64_t block;        /* number of elements that share a scale; an even number */
    bool is_double;       /* the scales are stored in 8 bits */
    int64_t nested_block; /* number of scales that share a nested absmax; 0 if is_double is false */
} fsdp_quantization;

struct fsdp_quantized {
    fsdp_quantization how;
    int64_t numel;
    int64_t blocks;
    /* The fields below are only for double quantization. Without it, they are 0 and NULL. */
    int64_t nested_blocks;
    float offset;
    float map[FSDP_NF4_MAP];
    float *nested; /* [nested_blocks] the nested absmax of all ranks' blocks. Owned */
};

/* The part of a quantized parameter that one rank has. */
typedef struct fsdp_quantized_part {
    int64_t first_block, blocks;
    int64_t first, n; /* elements */
    size_t scales;    /* offset of the scales in the part, in bytes; a multiple of 64 */
    size_t bytes;     /* size of the part */
} fsdp_quantized_part;

/* Create the description of a tensor of `numel` elements that is quantized as `how` says. Each
 * nested absmax is 0. The caller frees *q with fsdp_quantized_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_quantized_create(const fsdp_quantization *how, int64_t numel,
                                                  fsdp_quantized **q);
/* Store p in 4 bits from now on, and freeze it. Return FSDP_ERR_STATE if p has memory already. */
FSDP_MUST_CHECK fsdp_status fsdp_parameter_set_quantized(fsdp_parameter *p,
                                                         const fsdp_quantization *how);
void fsdp_quantized_free(fsdp_quantized *q); /* accepts NULL */
/* Return the step at which a tensor may be cut: after each multiple of this number of elements. */
int64_t fsdp_quantized_step(const fsdp_quantization *how);
/* Return the part that has elements [first, first + n). `first` is a multiple of
 * fsdp_quantized_step(), or the number of elements if n is 0. n is also such a multiple, unless the
 * part is the last one. */
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
/* Return true if the kernels of `device` can read quantized parameters, or if `device` is meta,
 * which has no values. */
bool fsdp_device_reads_quantized(const fsdp_device *device);
