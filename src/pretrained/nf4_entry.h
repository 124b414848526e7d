/* Weights in NF4 as bitsandbytes saves them in safetensors files.
 *
 * Note [Files of bitsandbytes]. A weight NAME in NF4 is several tensors. (Note [NF4] in
 * src/kernels/nf4.h explains the parts.)
 *
 * - NAME: U8 [bytes, 1], two indices in each byte. The bytes may also be stored as another dtype
 *   (bnb_4bit_quant_storage).
 * - NAME.absmax: a scale for each block: F32, or U8 with double quantization.
 * - NAME.quant_map: the levels, F32 [16].
 * - NAME.nested_absmax: only with double quantization: F32, one for 256 scales.
 * - NAME.nested_quant_map: only with double quantization: the map, F32 [256].
 * - NAME.quant_state.bitsandbytes__nf4: the bytes of a JSON object with the keys quant_type,
 *   blocksize, dtype and shape; with double quantization also nested_blocksize, nested_dtype and
 *   nested_offset.
 *
 * The folder's config.json has the key quantization_config. */
#pragma once
#include <fsdp/hf.h>

#include "src/nn/quantized.h"

typedef struct fsdp_nf4_entry {
    fsdp_quantization how;
    const fsdp_checkpoint_entry *packed, *absmax; /* borrowed from the reader */
    /* double quantization: the companion tensors nested_absmax and nested_quant_map, borrowed from
     * the reader; otherwise NULL */
    const fsdp_checkpoint_entry *nested, *map;
    float offset;     /* double quantization: nested_offset; otherwise 0 */
    fsdp_dtype dtype; /* the dtype that the weight had before it was quantized */
    int ndim;
    int64_t shape[FSDP_MAX_DIMS]; /* shape of the weight */
    int64_t numel;
} fsdp_nf4_entry;

/* Set *found to true, and fill in *nf4, if the tensor `entry` is a weight in NF4. Also check that
 * the companion tensors of the weight (scales, levels) have the sizes that its shape requires.
 * Return FSDP_ERR_UNSUPPORTED for FP4. */
FSDP_MUST_CHECK fsdp_status fsdp_nf4_entry_find(const fsdp_checkpoint_reader *reader,
                                                const fsdp_checkpoint_entry *entry,
                                                fsdp_nf4_entry *nf4, bool *found);
/* If `name` is the name of a companion tensor (scales, levels, quant_state) of a weight in NF4,
 * return the length of the weight's name, which is the beginning of `name`. Otherwise return 0. */
size_t fsdp_nf4_weight_name(const char *name);
/* Reads the values of a weight in NF4 in pieces. */
typedef struct fsdp_nf4_values {
    const fsdp_nf4_entry *nf4; /* borrowed */
    const fsdp_device *device; /* the CPU; borrowed */
    fsdp_quantized *q;
    int64_t most;  /* largest number of elements of a piece */
    void *stored;  /* buffer for the bytes of a piece */
    float *values; /* buffer for the values of a piece */
} fsdp_nf4_values;

/* Allocate what is needed to read pieces of up to `most` elements. `v` must be freed with
 * fsdp_nf4_values_fini(), also after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_nf4_values_init(fsdp_nf4_values *v, const fsdp_nf4_entry *nf4,
                                                 const fsdp_device *device, int64_t most);
/* Return the values of elements [first, first + n), which are valid until the next call. */
const float *fsdp_nf4_values_read(fsdp_nf4_values *v, int64_t first, int64_t n);
void fsdp_nf4_values_fini(fsdp_nf4_values *v);
/* With double quantization, copy the offset, the map and the nested absmax to `q`. They are the
 * same on every rank. Without double quantization, do nothing. */
void fsdp_nf4_entry_take_nested(const fsdp_nf4_entry *nf4, fsdp_quantized *q);
/* Copy the part `part` of the weight to `stored`, in the layout of Note [Quantized parameters] in
 * src/nn/quantized.h. */
void fsdp_nf4_entry_take_part(const fsdp_nf4_entry *nf4, const fsdp_quantized_part *part,
                              void *stored);
