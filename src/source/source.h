/* A checkpoint of any format as a list of items: tensors and plain values by name. Tools that show,
 * check, compare and convert checkpoints use it without knowing the model.
 *
 * Formats: a directory of torch.distributed.checkpoint (DCP), a file of torch.save, or one file of
 * each rank with DTensors, any of which can be opened; a file of safetensors, or a folder with one
 * file of each rank; the folder or index of a Hugging Face model. Tensors stay on disk until they
 * are read, piece by piece, and are not kept in memory afterwards. */
#pragma once
#include "src/base/str.h"
#include "src/torchfile/nesting.h"
#include "src/torchfile/pickle_reader.h"

typedef enum fsdp_source_format {
    FSDP_SOURCE_DCP,
    FSDP_SOURCE_TORCH,
    FSDP_SOURCE_SAFETENSORS,
    FSDP_SOURCE_HF, /* a folder, or the index in it */
} fsdp_source_format;

typedef struct fsdp_source_item {
    const char *fqn;              /* keys joined with dots */
    const fsdp_nesting_key *keys; /* [n_keys] */
    int n_keys;
    const char *dtype_name; /* safetensors' name; NULL: a plain value */
    const int64_t *shape;   /* [ndim] */
    int ndim;
    int64_t numel, bytes;
    const char *file; /* the file that has it, or the first chunk of it */
    size_t n_chunks;  /* 1 but for DCP */

    /* Private to the reader. One of these is set, except for plain values of DCP, which are read on
     * request. */
    const struct fsdp_checkpoint_entry *entry;
    const struct fsdp_dcp_item *dcp;
    const struct fsdp_joined *joined; /* a tensor whose parts are in the files of several ranks */
    const fsdp_pickle_value *value;   /* in files of torch.save; set for tensors too */
} fsdp_source_item;

typedef struct fsdp_source fsdp_source;

/* Reports the progress of a tool: `done` of `total` items. The first call has `done` 0. */
typedef void fsdp_source_progress_fn(void *context, size_t done, size_t total);

/* Open `path`. The format's reader checks bounds, shapes, holes and overlaps. Data are not touched.
 * FSDP_ERR_NOT_FOUND if it has none of the formats; FSDP_ERR_INVALID for pipes and devices; other
 * errors are those of fsdp_dcp_reader_open() and fsdp_checkpoint_open(). */
FSDP_MUST_CHECK fsdp_status fsdp_source_open(const char *path, fsdp_source **source);
void fsdp_source_close(fsdp_source *source); /* accepts NULL */
const char *fsdp_source_path(const fsdp_source *source);
fsdp_source_format fsdp_source_format_of(const fsdp_source *source);
/* "torch.distributed.checkpoint", "torch.save", ...; static. */
const char *fsdp_source_format_name(fsdp_source_format format);
/* "fsdp.c" or "PyTorch"; static, NULL if unknown. */
const char *fsdp_source_writer(const fsdp_source *source);
/* How a tensor is distributed over files: "Replicate", "Shard(0)", or "boxes" if it is cut along
 * several dimensions. The function returns false if the format does not cut tensors. */
typedef struct fsdp_source_placement {
    char text[24];
} fsdp_source_placement;
bool fsdp_source_placement_of(const fsdp_source_item *item, fsdp_source_placement *placement);
/* *is_sparse: does one of its files have holes (fsdp_path_is_sparse())? */
FSDP_MUST_CHECK fsdp_status fsdp_source_is_sparse(const fsdp_source *source, bool *is_sparse);
/* Is `path`, as realpath() gives it, one of the files with items: those that an index names, those
 * of the other ranks? */
bool fsdp_source_has_file(const fsdp_source *source, const char *path);
size_t fsdp_source_count(const fsdp_source *source);
/* Items of one dict or list are next to each other. */
const fsdp_source_item *fsdp_source_at(const fsdp_source *source, size_t i);

/* Read bytes [offset, offset + bytes), whole elements, of a row-major tensor. Fast for increasing
 * offsets, because rows of a DCP tensor are kept until others are read. */
FSDP_MUST_CHECK fsdp_status fsdp_source_read(fsdp_source *source, const fsdp_source_item *item,
                                             uint64_t offset, void *out, size_t bytes);
/* Read a plain value, which is borrowed from the source. */
FSDP_MUST_CHECK fsdp_status fsdp_source_value(fsdp_source *source, const fsdp_source_item *item,
                                              const fsdp_pickle_value **value);
/* Read a tensor inside that value. The entry is borrowed from the source; its data are as in the
 * file. */
FSDP_MUST_CHECK fsdp_status fsdp_source_tensor_within(fsdp_source *source,
                                                      const fsdp_source_item *item,
                                                      const fsdp_pickle_value *tensor,
                                                      struct fsdp_checkpoint_entry *entry);
/* Read all bytes of the item and compare its checksums. Formats without checksums (safetensors):
 * nothing to do. FSDP_ERR_FORMAT naming file and item. Nothing is compared for a folder of
 * pytorch_model.bin: open its files instead. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check(fsdp_source *source, const fsdp_source_item *item);
/* Compare the checksums of whole files, where the format has them (block_sums.h), and those of all
 * records of a file of torch.save. These include bytes between the items. FSDP_ERR_FORMAT naming
 * the first file that differs. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check_files(const fsdp_source *source);
/* FSDP_ERR_NOT_FOUND if a further file that the checkpoint names does not exist, such as
 * trainer_state.json in a folder of `fsdp train`. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check_companion(const fsdp_source *source);

/* Append a plain value as Python's repr shows it, truncated after about `max` bytes with "...". */
void fsdp_source_repr(const fsdp_pickle_value *value, size_t max, fsdp_str *text);
