/* Declarations that the convert*.c files share. convert.c calls convert_select.c, and then a
 * writer: convert_torch.c or convert_weights.c. All of them call convert_pieces.c. */
#pragma once
#include <fsdp/tensor.h>

#include "src/base/str.h"
#include "src/checkpoint_tools/convert.h"
#include "src/checkpoint_tools/too_large.h"
#include "src/source/selection.h"
#include "src/torchfile/safetensors_dtype.h"

/* A selected item of the source, with its dtype and size in the target. */
typedef struct fsdp_converted {
    struct fsdp_conversion *run;
    const fsdp_selected *from;
    const fsdp_safetensors_dtype *dtype; /* dtype in the target; NULL: the item is a plain value */
    int64_t bytes;                       /* size of the tensor in the target; 0 for a plain value */
} fsdp_converted;

typedef struct fsdp_conversion {
    fsdp_source *source;
    const char *to;
    const fsdp_convert_options *options;
    fsdp_convert_result *result;
    fsdp_selection selection;
    fsdp_converted *items; /* [selection.n] */
    fsdp_device *device;   /* the CPU device; its kernels convert dtypes */
    unsigned char *raw;    /* [FSDP_CONVERT_PIECE_BYTES] a piece of a tensor, in the source's
                              dtype */
    unsigned char *piece;  /* [FSDP_CONVERT_PIECE_BYTES] a piece of a tensor, in the target's
                              dtype */
    size_t done;           /* number of items written so far */
    bool is_sparse;        /* files of the source have holes, so the target is written with holes */
    fsdp_too_large too_large; /* elements that became infinite as float16 */
    /* Names of the files that the old target had and the new target does not have. They are stored
     * as one text: "'a', 'b'". */
    fsdp_str replaced;
} fsdp_conversion;

enum {
    FSDP_CONVERT_PIECE_BYTES = 4 << 20
};

/* Read bytes [offset, offset + bytes) of the tensor, converted to the target's dtype. The range
 * must consist of whole elements. If `offset` is 0, first verify the checksums of the whole tensor
 * in the source. */
FSDP_MUST_CHECK fsdp_status fsdp_converted_read(const fsdp_converted *item, uint64_t offset,
                                                void *out, size_t bytes);
/* Writes bytes [offset, offset + bytes) of a tensor to the target. */
typedef fsdp_status fsdp_convert_write_fn(void *context, uint64_t offset, const void *data,
                                          size_t bytes);
/* Read and convert the whole tensor, and pass it to write() piece by piece. Then call
 * fsdp_conversion_step(). */
FSDP_MUST_CHECK fsdp_status fsdp_converted_stream(const fsdp_converted *item,
                                                  fsdp_convert_write_fn *write, void *context);
/* Add 1 to the number of written items, and report the progress. */
void fsdp_conversion_step(fsdp_conversion *run);
void fsdp_conversion_report_progress(const fsdp_conversion *run);
/* Pass `note` to options->note() and free it. If `note` is NULL, return FSDP_ERR_NOMEM. */
FSDP_MUST_CHECK fsdp_status fsdp_conversion_note(const fsdp_conversion *run, char *note);

/* An fsdp_is_stale_fn. `context` is the fsdp_conversion. The folder `fresh` will replace the old
 * target, the folder `old`. Returns true if the file `name` of `old` must not be kept. In this
 * case, also adds the name to the conversion's `replaced`, unless `fresh` has a file of that
 * name. */
bool fsdp_conversion_drops(void *context, const char *old, const char *fresh, const char *name);

/* Set run->selection and run->items to the items that the options select. Reports in notes which
 * items are left out. */
FSDP_MUST_CHECK fsdp_status fsdp_conversion_select(fsdp_conversion *run);

/* The writers, one for each format. Each writes run->items to run->to, which appears complete or
 * not at all. */
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_torch(fsdp_conversion *run);
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_dcp(fsdp_conversion *run);
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_safetensors(fsdp_conversion *run);
FSDP_MUST_CHECK fsdp_status fsdp_convert_to_hf(fsdp_conversion *run);
