/* The format NF4 (QLoRA, Dettmers et al. 2023, arXiv 2305.14314, appendix E), in which bitsandbytes
 * stores frozen weights in 4 bits.
 *
 * Note [NF4]. A tensor is read in row-major order and cut into blocks of 64 elements; the last
 * block may be shorter. Each block has a scale, which is the largest magnitude of its elements
 * (absmax). An element is stored as the index of one of 16 levels: the level nearest to the element
 * divided by the scale. An element exactly between two levels gets the lower one. A byte contains
 * two indices, the first of them in the upper half. If the number of elements is odd, the last byte
 * contains the index of only one element. The other half of this byte is the index of the level
 * whose value is 0.
 *
 * With double quantization the scales are stored in 8 bits. The mean of all scales of the tensor is
 * called the offset. It is subtracted from each scale, and the differences are cut into blocks of
 * 256. Each of these blocks has a float32 scale of its own, the nested absmax, and each difference
 * is stored as the index of one of the 256 numbers of a map.
 *
 * The results are those of bitsandbytes on a CPU, except for the offset. bitsandbytes computes the
 * mean in float32, so its last bit depends on the number of threads and on the CPU. Here it is the
 * exact mean, rounded once. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

enum {
    FSDP_NF4_LEVELS = 16,
    FSDP_NF4_BLOCK = 64,         /* elements that share a scale */
    FSDP_NF4_NESTED_BLOCK = 256, /* scales that share a nested absmax */
    FSDP_NF4_MAP = 256,          /* numbers in the map of double quantization */
    FSDP_NF4_ZERO = 7            /* the index of the level whose value is 0 */
};

extern const float fsdp_nf4_levels[FSDP_NF4_LEVELS];

/* Fill `map` with the numbers with which bitsandbytes quantizes scales ("dynamic map"), in
 * increasing order. */
void fsdp_nf4_fill_map(float map[FSDP_NF4_MAP]);

/* Quantize x [n], one block after the other. If x includes the end of the tensor, n may be any
 * number. If it does not, n must be a multiple of `block`. `packed` [(n + 1) / 2] gets the indices,
 * and `absmax` [ceil(n / block)] gets the scales. `block` is even. Return n if all elements are
 * finite. Otherwise return the index of the first element that is infinite or NaN; the outputs are
 * then incomplete. */
int64_t fsdp_nf4_quantize(const float *x, int64_t n, int64_t block, uint8_t *packed, float *absmax);

/* Quantize the scales absmax [n] with the offset `offset`. `codes` [n] gets the indices into `map`,
 * and `nested` [ceil(n / nested_block)] gets the nested absmax. n may be any number if absmax[n -
 * 1] is the last scale of the tensor. Otherwise n must be a multiple of nested_block. */
void fsdp_nf4_quantize_scales(const float *absmax, int64_t n, int64_t nested_block, float offset,
                              const float map[FSDP_NF4_MAP], uint8_t *codes, float *nested);

/* A part of a tensor in NF4. The part begins at the start of a block. `nested` and `map` are in
 * host memory; the kernel reads them before it returns. The other arrays are in the device's
 * memory. */
typedef struct fsdp_nf4_args {
    void *out;        /* [n] of `dtype` */
    fsdp_dtype dtype; /* float32, bfloat16 or float16 */
    int64_t n;
    const uint8_t *packed; /* [(n + 1) / 2] */
    int64_t block;         /* elements that share a scale; even */
    const float *absmax;   /* [ceil(n / block)] scales; NULL with double quantization */
    /* The other fields are used only if `absmax` is NULL. */
    const uint8_t *codes; /* [ceil(n / block)] indices into `map` */
    const float *nested;  /* [ceil(n / block / nested_block)]; nested[0] belongs to the block that
                           * begins with codes[0] */
    int64_t nested_block;
    float offset;
    const float *map; /* [FSDP_NF4_MAP] */
} fsdp_nf4_args;
