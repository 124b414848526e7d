/* What the files of convert.h share. */
#pragma once
#include <fsdp/tensor.h>

#include "src/base/str.h"
#include "src/checkpoint_tools/convert.h"
#include "src/torchfile/safetensors_dtype.h"
#include "src/source/selection.h"

/* What becomes of a selected item. */
typedef struct fsdp_converted {
    struct fsdp_conversion *run;
    const fsdp_selected *from;
    const fsdp_safetensors_dtype *dtype; /* of what is written; NULL: a plain value */
    int64_t bytes;                       /* of it, in that dtype */
} fsdp_converted;

typedef struct fsdp_conversion {
    fsdp_source *source;
    const char *to;
    const fsdp_convert_options *options;
    fsdp_convert_result *result;
    fsdp_selection selection;
    fsdp_converted *items; /* [selection.n] */
    fsdp_device *device;   /* whose kernels change dtypes */
    unsigned char *raw;    /* [FSDP_CONVERT_PIECE_BYTES] before its dtype is changed */
    unsigned char *piece;  /* [FSDP_CONVERT_PIECE_BYTES] */
    size_t done;           /* items */
    bool is_sparse;        /* the source has holes; so will the target have */
    int64_t n_too_large;   /* finite elements that became infinite in float16 */
    const char *too_large; /* the tensor of the first */
    fsdp_str replaced;     /* "a, b": files of what was in the target that go without a successor */
} fsdp_conversion;

enum {
    FSDP_CONVERT_PIECE_BYTES = 4 << 20
};

/* Bytes [offset, offset + bytes) of what is written of a tensor: whole elements, at most a piece.
 * Checksums are compared with the first. */
FSDP_MUST_CHECK fsdp_status fsdp_converted_read(const fsdp_converted *item, uint64_t offset,
                                                void *out, size_t bytes);
/* Call `write` with all of a tensor, piece by piece. */
typedef fsdp_status fsdp_convert_write_fn(void *context, uint64_t offset, const void *data,
                                          size_t bytes);
FSDP_MUST_CHECK fsdp_status fsdp_converted_stream(const fsdp_converted *item,
                                                  fsdp_convert_write_fn *write, void *context);
/* An item is written. */
void fsdp_conversion_step(fsdp_conversion *run);

/* An fsdp_is_stale_fn for the target; `context` is the conversion, which names the files at its
 * end. */
bool fsdp_conversion_drops(void *context, const char *old, const char *fresh, const char *name);

/* One writer for each format. What each writes is whole or not at all. */
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_torch(fsdp_conversion *run);
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_dcp(fsdp_conversion *run);
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_safetensors(fsdp_conversion *run);
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_hf(fsdp_conversion *run);
