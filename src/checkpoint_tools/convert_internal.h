/* Declarations that the files that implement convert.h share. convert.c calls convert_select.c and
 * the writers, convert_torch.c and convert_weights.c. All of these call convert_pieces.c. */
#pragma once
#include <fsdp/tensor.h>

#include "src/base/str.h"
#include "src/checkpoint_tools/convert.h"
#include "src/source/selection.h"
#include "src/torchfile/safetensors_dtype.h"

/* A selected item and what it is converted to. */
typedef struct fsdp_converted {
    struct fsdp_conversion *run;
    const fsdp_selected *from;
    const fsdp_safetensors_dtype *dtype; /* dtype of the written tensor; NULL: a plain value */
    int64_t bytes;                       /* size of the written tensor */
} fsdp_converted;

typedef struct fsdp_conversion {
    fsdp_source *source;
    const char *to;
    const fsdp_convert_options *options;
    fsdp_convert_result *result;
    fsdp_selection selection;
    fsdp_converted *items; /* [selection.n] */
    fsdp_device *device;   /* its kernels convert dtypes */
    unsigned char *raw;    /* [FSDP_CONVERT_PIECE_BYTES] elements in the source's dtype */
    unsigned char *piece;  /* [FSDP_CONVERT_PIECE_BYTES] elements in the target's dtype */
    size_t done;           /* number of written items */
    bool is_sparse;        /* the source has holes, so the target gets holes too */
    int64_t n_too_large;   /* number of finite elements that became infinite in float16 */
    const char *too_large; /* name of the tensor that contains the first of these elements */
    fsdp_str replaced;     /* old files that are removed and not replaced: "'a', 'b'" */
} fsdp_conversion;

enum {
    FSDP_CONVERT_PIECE_BYTES = 4 << 20
};

/* Read bytes [offset, offset + bytes) of the converted tensor. This range must consist of whole
 * elements. If it begins at 0, first compare the checksums of the whole tensor with its data. */
FSDP_MUST_CHECK fsdp_status fsdp_converted_read(const fsdp_converted *item, uint64_t offset,
                                                void *out, size_t bytes);
/* Receives the bytes [offset, offset + bytes) of a tensor. */
typedef fsdp_status fsdp_convert_write_fn(void *context, uint64_t offset, const void *data,
                                          size_t bytes);
/* Pass the whole tensor to `write`, piece by piece, and count it as written. */
FSDP_MUST_CHECK fsdp_status fsdp_converted_stream(const fsdp_converted *item,
                                                  fsdp_convert_write_fn *write, void *context);
/* Count an item as written and report progress. */
void fsdp_conversion_step(fsdp_conversion *run);
void fsdp_conversion_report_progress(const fsdp_conversion *run);
/* Report `note` and free it. NULL means that memory ran out. */
FSDP_MUST_CHECK fsdp_status fsdp_conversion_note(const fsdp_conversion *run, char *note);

/* Return whether the file `name` of the old target must be removed. This is an fsdp_is_stale_fn
 * whose `context` is the fsdp_conversion. If no new file replaces it, `name` is added to
 * run->replaced. */
bool fsdp_conversion_drops(void *context, const char *old, const char *fresh, const char *name);

/* Set run->selection and run->items to what the options select, and report the items that are left
 * out. */
FSDP_MUST_CHECK fsdp_status fsdp_conversion_select(fsdp_conversion *run);

/* Write the target. There is one function for each format; in each of them, the target appears
 * complete or not at all. */
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_torch(fsdp_conversion *run);
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_dcp(fsdp_conversion *run);
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_safetensors(fsdp_conversion *run);
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_hf(fsdp_conversion *run);
