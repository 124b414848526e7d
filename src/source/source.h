/* Presents a checkpoint of any format as a list of items, which are tensors and plain values with
 * names. Tools that show, check, compare and convert checkpoints use this list without knowing the
 * model.
 *
 * The formats are:
 *
 * - a directory of torch.distributed.checkpoint (DCP);
 * - a torch.save file;
 * - torch.save files with DTensors, one file for each rank; opening one of them opens all;
 * - a safetensors file, or a folder with one safetensors file for each rank;
 * - the folder of a Hugging Face model, or the index file in it.
 *
 * Tensors are read from disk in pieces, which are not kept in memory afterwards. */
#pragma once
#include "src/base/str.h"
#include "src/hf/lit_names.h"
#include "src/torchfile/nesting.h"
#include "src/torchfile/pickle_reader.h"

typedef enum fsdp_source_format {
    FSDP_SOURCE_DCP,
    FSDP_SOURCE_TORCH,
    FSDP_SOURCE_SAFETENSORS,
    FSDP_SOURCE_HF, /* a Hugging Face model: its folder, or the index file in the folder */
} fsdp_source_format;

typedef struct fsdp_source_item {
    const char *fqn;              /* keys joined with dots */
    const fsdp_nesting_key *keys; /* [n_keys] */
    int n_keys;
    const char *dtype_name; /* name of the dtype in safetensors; NULL: a plain value */
    const int64_t *shape;   /* [ndim] */
    int ndim;
    int64_t numel, bytes;
    const char *file; /* the file that contains the item, or its first chunk if there are several;
                         for DCP, relative to the folder */
    size_t n_chunks;  /* number of pieces in which the tensor is stored; may be more than 1 in DCP
                         and in files of several ranks */

    /* The fields below are private. They say where the reader finds the data of the item. */
    const struct fsdp_checkpoint_entry *entry;
    const struct fsdp_dcp_item *dcp;
    /* Set if the parts of the tensor are in the files of several ranks; otherwise NULL. */
    const struct fsdp_joined *joined;
    /* The value of the item if the format is torch.save; NULL for a joined tensor. In all other
     * formats, this is NULL. (fsdp_source_value() reads a plain value of a DCP checkpoint when it
     * is called.) */
    const fsdp_pickle_value *value;
    /* Set by fsdp_source_translate_lit() if the item consists of rows of another tensor; otherwise
     * NULL. `base` is that tensor, and `order` says which of its rows. */
    const struct fsdp_source_item *base;
    const fsdp_row_order *order;
} fsdp_source_item;

typedef struct fsdp_source fsdp_source;

/* Reports the progress of a tool: `done` of `total` items. `done` is 0 in the first call. */
typedef void fsdp_source_progress_fn(void *context, size_t done, size_t total);

/* Open the checkpoint `path`. The reader of its format checks bounds and shapes. It also checks
 * that the parts of each tensor cover the tensor without overlaps. Data are not read. Returns
 * FSDP_ERR_NOT_FOUND if `path` is not in any of the formats. Returns FSDP_ERR_INVALID if `path` is
 * a pipe, a device, one file of a DCP checkpoint, or a folder that only contains checkpoints. Other
 * errors are those of the readers, such as fsdp_dcp_reader_open() and fsdp_checkpoint_open(). */
FSDP_MUST_CHECK fsdp_status fsdp_source_open(const char *path, fsdp_source **source);
/* Open only the list of items of a directory of torch.distributed.checkpoint, whose data files may
 * be missing. Neither tensors nor values can be read. */
FSDP_MUST_CHECK fsdp_status fsdp_source_open_names(const char *path, fsdp_source **source);
void fsdp_source_close(fsdp_source *source); /* accepts NULL */
const char *fsdp_source_path(const fsdp_source *source);
fsdp_source_format fsdp_source_format_of(const fsdp_source *source);
/* Return the name of a format, such as "torch.save", as a static string. */
const char *fsdp_source_format_name(fsdp_source_format format);
/* Return the program that wrote the checkpoint, "fsdp.c" or "PyTorch", as a static string. Return
 * NULL if it is unknown. */
const char *fsdp_source_writer(const fsdp_source *source);
/* Text that says how a tensor is distributed over files: "Replicate", "Shard(0)" or "boxes".
 * "boxes" means that the tensor is cut along several dimensions. */
typedef struct fsdp_source_placement {
    char text[24];
} fsdp_source_placement;
/* Get the placement of a tensor. Return false for a plain value, or if the format stores every
 * tensor whole. */
bool fsdp_source_placement_of(const fsdp_source_item *item, fsdp_source_placement *placement);
/* Set *is_sparse to true if at least one of the files that contain items, or parts of items, has
 * holes (fsdp_path_is_sparse()). */
FSDP_MUST_CHECK fsdp_status fsdp_source_is_sparse(const fsdp_source *source, bool *is_sparse);
/* Set *has to true if `path`, which must be a result of realpath(), is a file that contains an item
 * or a part of an item. */
FSDP_MUST_CHECK fsdp_status fsdp_source_has_file(const fsdp_source *source, const char *path,
                                                 bool *has);
size_t fsdp_source_count(const fsdp_source *source);
/* Return item i. Items of the same dict or list are adjacent. */
const fsdp_source_item *fsdp_source_at(const fsdp_source *source, size_t i);

/* Read bytes [offset, offset + bytes) of a tensor, which is row-major. The range must consist of
 * whole elements. Calls with increasing offsets are fast: if a tensor is in several files, the
 * source reads rows ahead and keeps them for the next call. */
FSDP_MUST_CHECK fsdp_status fsdp_source_read(fsdp_source *source, const fsdp_source_item *item,
                                             uint64_t offset, void *out, size_t bytes);
/* Read a plain value; the source owns *value. */
FSDP_MUST_CHECK fsdp_status fsdp_source_value(fsdp_source *source, const fsdp_source_item *item,
                                              const fsdp_pickle_value **value);
/* Set *entry to a description of `tensor`, a tensor inside the plain value of `item`. The source
 * owns the memory that *entry points to, including the tensor's data. */
FSDP_MUST_CHECK fsdp_status fsdp_source_tensor_within(fsdp_source *source,
                                                      const fsdp_source_item *item,
                                                      const fsdp_pickle_value *tensor,
                                                      struct fsdp_checkpoint_entry *entry);
/* Read all bytes of the item and verify its checksums. If a checksum does not match, return
 * FSDP_ERR_FORMAT; the message names the file and the item. Nothing is read if the format has no
 * checksums (safetensors), or if the item is a plain value in a torch.save file. Nothing is read
 * either if the source is a folder with pytorch_model.bin files: to check these, the caller opens
 * each of the files as a source of its own. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check(fsdp_source *source, const fsdp_source_item *item);
/* Verify the checksums of whole files if the format has them (block_sums.h). In torch.save files,
 * verify the checksums of all records that are not verified yet. Unlike fsdp_source_check(), this
 * also checks the bytes between items. If a file is damaged, return FSDP_ERR_FORMAT; the message
 * names the first damaged file. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check_files(const fsdp_source *source);
/* Check that other files to which the checkpoint refers exist, such as trainer_state.json in a
 * folder of `fsdp train`. Return FSDP_ERR_NOT_FOUND if one is missing. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check_companion(const fsdp_source *source);

/* The source has weights of Lit-LLaMA or LitGPT. Replace its items by the tensors of Hugging Face's
 * model that these items contain (Note [Weights of Lit-LLaMA and LitGPT] in lit_names.h). Items
 * outside of the model are no longer in the source. After a failure, only fsdp_source_close() may
 * be called.
 *
 * @param format     the result of fsdp_source_lit_format(); not FSDP_LIT_NONE
 * @param n_left_out out: the number of items outside of the model
 * @return the errors of fsdp_lit_translate() */
FSDP_MUST_CHECK fsdp_status fsdp_source_translate_lit(fsdp_source *source, fsdp_lit_format format,
                                                      const fsdp_lit_model *model,
                                                      size_t *n_left_out);
/* Find out whether Lit-LLaMA or LitGPT saved the model in `source`. If the source has no model, or
 * several, *format is FSDP_LIT_NONE. */
FSDP_MUST_CHECK fsdp_status fsdp_source_lit_format(const fsdp_source *source,
                                                   fsdp_lit_format *format);

/* Append a plain value to `text` in the form of Python's repr(). If this form is longer than `max`
 * bytes, it is truncated and "..." is appended. */
void fsdp_source_repr(const fsdp_pickle_value *value, size_t max, fsdp_str *text);
