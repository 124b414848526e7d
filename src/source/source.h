/* Any checkpoint, whatever its format, as a list of items: tensors and plain values by name. For
 * tools that look into checkpoints, check, compare and convert them without knowing the model.
 *
 * Formats: a directory of torch.distributed.checkpoint (DCP), a file of torch.save, or one file of
 * each rank with DTensors, of which any is named; a file of safetensors, or a folder of one file of
 * each rank; the folder or index of a model of Hugging Face. Tensors stay on the disk until they
 * are read, piece by piece; what was read need not stay in memory. */
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
    const char *file; /* where it lies: of a tensor in chunks, the first one */
    size_t n_chunks;  /* 1 but for DCP */

    /* The reader's own: one of these, but for plain values of DCP, which are opened when asked for.
     */
    const struct fsdp_checkpoint_entry *entry;
    const struct fsdp_dcp_item *dcp;
    const struct fsdp_joined
        *joined;                    /* of a tensor whose parts are in the files of several ranks */
    const fsdp_pickle_value *value; /* of files of torch.save: also of tensors */
} fsdp_source_item;

typedef struct fsdp_source fsdp_source;

/* How far a tool has come: items of those that it goes through. Called first with `done` 0. */
typedef void fsdp_source_progress_fn(void *context, size_t done, size_t total);

/* Open `path`. What its format's reader checks when it opens is checked: bounds, shapes, holes and
 * overlaps. Data are not touched. FSDP_ERR_NOT_FOUND if it is none of the formats;
 * FSDP_ERR_INVALID for pipes and devices; else what
 * fsdp_dcp_reader_open() and fsdp_checkpoint_open() return. */
FSDP_MUST_CHECK fsdp_status fsdp_source_open(const char *path, fsdp_source **source);
void fsdp_source_close(fsdp_source *source); /* accepts NULL */
const char *fsdp_source_path(const fsdp_source *source);
fsdp_source_format fsdp_source_format_of(const fsdp_source *source);
/* "torch.distributed.checkpoint", "torch.save", ...; static. */
const char *fsdp_source_format_name(fsdp_source_format format);
/* "fsdp.c", "PyTorch"; static, NULL if the files do not say. */
const char *fsdp_source_writer(const fsdp_source *source);
/* How a tensor is cut into the files: "Replicate", "Shard(0)", "boxes" if along several dimensions.
 * false: its format has no pieces. */
typedef struct fsdp_source_placement {
    char text[24];
} fsdp_source_placement;
bool fsdp_source_placement_of(const fsdp_source_item *item, fsdp_source_placement *placement);
/* Has one of its files holes (fsdp_path_is_sparse())? */
FSDP_MUST_CHECK fsdp_status fsdp_source_is_sparse(const fsdp_source *source, bool *is_sparse);
size_t fsdp_source_count(const fsdp_source *source);
/* Items of one dict or list are next to each other. */
const fsdp_source_item *fsdp_source_at(const fsdp_source *source, size_t i);

/* Bytes [offset, offset + bytes) of a tensor, row-major: whole elements. Fast for rising offsets:
 * of a DCP tensor whole rows are kept until others are wanted. */
FSDP_MUST_CHECK fsdp_status fsdp_source_read(fsdp_source *source, const fsdp_source_item *item,
                                             uint64_t offset, void *out, size_t bytes);
/* A plain value; borrowed from the source. */
FSDP_MUST_CHECK fsdp_status fsdp_source_value(fsdp_source *source, const fsdp_source_item *item,
                                              const fsdp_pickle_value **value);
/* A tensor somewhere in that value; borrowed from the source, its data as they lie in the file. */
FSDP_MUST_CHECK fsdp_status fsdp_source_tensor_within(fsdp_source *source,
                                                      const fsdp_source_item *item,
                                                      const fsdp_pickle_value *tensor,
                                                      struct fsdp_checkpoint_entry *entry);
/* Read all bytes of the item and compare its checksums. Formats without checksums (safetensors):
 * nothing to do. FSDP_ERR_FORMAT naming file and item. Of a folder of pytorch_model.bin nothing is
 * compared: open its files. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check(fsdp_source *source, const fsdp_source_item *item);
/* Compare the checksums of whole files, where the format has them (block_sums.h), and those of all
 * records of a file of torch.save: what lies between the items is in them as well. FSDP_ERR_FORMAT
 * naming the first file that differs. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check_files(const fsdp_source *source);
/* FSDP_ERR_NOT_FOUND if a file is gone that the checkpoint says lies beside it: trainer_state.json
 * of a folder of `fsdp train`. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check_companion(const fsdp_source *source);

/* A plain value as Python's repr shows it, cut after about `max` bytes with "...". */
void fsdp_source_repr(const fsdp_pickle_value *value, size_t max, fsdp_str *text);
