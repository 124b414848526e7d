/**
 * @file
 * Checkpoints: safetensors files read by mmap and written tensor by tensor, files of torch.save
 * read, and the directories that Hugging Face tools write.
 *
 * Readers and writers know no tensors of this library: data are bytes, dtypes and shapes. The last
 * section moves them into and out of a module's parameters, sharded or not.
 * Format: https://huggingface.co/docs/safetensors, as version 0.8 of the library reads it.
 */
#pragma once
#include <fsdp/base.h>
#include <fsdp/comm.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading --------------------------------------------------------------------------------- */

/** One tensor of an open file; borrowed from it. */
typedef struct fsdp_checkpoint_entry {
    const char *name;
    const char *path;       /**< the file it lies in */
    const char *dtype_name; /**< the format's name: "F32", "BF16", "F8_E4M3", "BOOL", ... */
    const int64_t *shape;   /**< [ndim] */
    int ndim;               /**< 0: a scalar */
    int64_t numel;          /**< product of shape */
    const void *data;       /**< [bytes], mapped read-only, row-major, little-endian; **may be
                                 unaligned**: copy it out, do not cast the pointer */
    size_t bytes;           /**< 0 if a dimension is 0 */
} fsdp_checkpoint_entry;

/**
 * The dtype of `entry`'s elements.
 * @return FSDP_ERR_UNSUPPORTED, naming file and tensor, for types this library has no arithmetic
 *         for (8-bit floats, bool, ...): their bytes can still be copied.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_entry_dtype(const fsdp_checkpoint_entry *entry,
                                                                 fsdp_dtype *dtype);

/**
 * FSDP_OK if `entry` has exactly this shape; else FSDP_ERR_FORMAT naming file, tensor and both.
 * @param shape [ndim]
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_entry_check_shape(
    const fsdp_checkpoint_entry *entry, const int64_t *shape, int ndim);

/**
 * Rows [begin, end) along dimension 0, so that a rank touches only the pages of its own shard.
 * A scalar has one row.
 *
 * @param data  out: first byte, borrowed; may be unaligned
 * @param bytes out: of all rows; 0 if begin == end
 * @return FSDP_ERR_INVALID unless 0 <= begin <= end <= rows
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_entry_rows(const fsdp_checkpoint_entry *entry,
                                                                int64_t begin, int64_t end,
                                                                const void **data, size_t *bytes);

/** What is about to happen to mapped bytes. Hints: nothing fails. */
typedef enum fsdp_checkpoint_advice {
    FSDP_CHECKPOINT_WILL_READ, /**< start reading them from the disk */
    FSDP_CHECKPOINT_DONE,      /**< copied: they need not stay in this process's memory */
} fsdp_checkpoint_advice;
FSDP_API void fsdp_checkpoint_advise(const void *data, size_t bytes, fsdp_checkpoint_advice advice);

/** An open .safetensors file. */
typedef struct fsdp_safetensors fsdp_safetensors;

/**
 * Map a file and check its header completely: length, JSON, dtypes, shapes, and that the tensors
 * cover the data without hole, overlap or rest. Data are not touched. Unknown fields are ignored,
 * of a name given twice the last counts.
 *
 * @param file out: owned by the caller, ended by fsdp_safetensors_close(). The file must not be
 *             shortened meanwhile.
 * @return FSDP_ERR_FORMAT naming path and tensor; FSDP_ERR_NOT_FOUND, FSDP_ERR_IO
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_safetensors_open(const char *path,
                                                           fsdp_safetensors **file);
FSDP_API void fsdp_safetensors_close(fsdp_safetensors *file); /**< accepts NULL */
FSDP_API size_t fsdp_safetensors_count(const fsdp_safetensors *file);
/** Entry `i` in byte order of names. */
FSDP_API const fsdp_checkpoint_entry *fsdp_safetensors_at(const fsdp_safetensors *file, size_t i);
/** NULL if there is none. O(log n). */
FSDP_API const fsdp_checkpoint_entry *fsdp_safetensors_find(const fsdp_safetensors *file,
                                                            const char *name);
/** Value of `key` in the header's __metadata__, e.g. "format"; NULL if there is none. */
FSDP_API const char *fsdp_safetensors_metadata(const fsdp_safetensors *file, const char *key);

/** All tensors of a model, wherever they lie. */
typedef struct fsdp_checkpoint_reader fsdp_checkpoint_reader;

/**
 * Open a model directory, a file of weights, or the index of several. In a directory the first of
 * these counts, as in transformers: model.safetensors, model.safetensors.index.json,
 * pytorch_model.bin, pytorch_model.bin.index.json.
 *
 * Files named .bin, .pt or .pth are read as torch.save writes them (since PyTorch 1.6): a dict of
 * names and tensors, or a dict that holds one under "state_dict", "model_state_dict" or "model".
 * Their pickles are read as data: no code is run, and objects of classes (NumPy's scalars, paths,
 * namespaces) are passed over. What the state dict holds beside tensors is ignored. Of checksums
 * those of the pickle and of storages up to 4 KiB are compared; larger storages are not read
 * through. Tensors that are not contiguous (transposed, expanded) are copied when the file is
 * opened; all others are data of the mapped file, also when several share a storage.
 *
 * @param reader out: owned by the caller, ended by fsdp_checkpoint_close()
 * @return FSDP_ERR_NOT_FOUND if there are no weights or a file of the index is missing;
 *         FSDP_ERR_FORMAT if a file is malformed, lacks a tensor of the index or holds one that the
 *         index does not name; FSDP_ERR_UNSUPPORTED, saying what to do in PyTorch, for files of
 *         torch.save in the format before 1.6, TorchScript programs, big-endian data, compressed
 *         archives, and files that are one object, such as a whole module.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_open(const char *path,
                                                          fsdp_checkpoint_reader **reader);
FSDP_API void fsdp_checkpoint_close(fsdp_checkpoint_reader *reader); /**< accepts NULL */
/** The path that was opened. */
FSDP_API const char *fsdp_checkpoint_path(const fsdp_checkpoint_reader *reader);
FSDP_API size_t fsdp_checkpoint_count(const fsdp_checkpoint_reader *reader);
/** Entry `i` in byte order of names. */
FSDP_API const fsdp_checkpoint_entry *fsdp_checkpoint_at(const fsdp_checkpoint_reader *reader,
                                                         size_t i);
/** NULL if there is none. O(log n). */
FSDP_API const fsdp_checkpoint_entry *fsdp_checkpoint_find(const fsdp_checkpoint_reader *reader,
                                                           const char *name);
/** Like fsdp_checkpoint_find(); FSDP_ERR_NOT_FOUND naming path and tensor if there is none. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_get(const fsdp_checkpoint_reader *reader,
                                                         const char *name,
                                                         const fsdp_checkpoint_entry **entry);

/* ---- writing --------------------------------------------------------------------------------- */

/** A tensor to be written. Strings and shapes are copied. */
typedef struct fsdp_safetensors_spec {
    const char *name;
    fsdp_dtype dtype;
    const char *dtype_name; /**< for types beyond fsdp_dtype, e.g. "BOOL"; NULL: that of dtype */
    const int64_t *shape;   /**< [ndim] */
    int ndim;               /**< 0: a scalar */
} fsdp_safetensors_spec;

/** A file being written: its layout is fixed at the start, data come in any order and pieces. */
typedef struct fsdp_safetensors_writer fsdp_safetensors_writer;

/**
 * Begin the file that will be `path`, lay out all tensors as the safetensors library does (by
 * dtype, then name; `__metadata__` is {"format": "pt"}, which older transformers insist on),
 * reserve its size on the disk and write its header. Equal tensors give equal bytes.
 *
 * @param specs  [n], names distinct
 * @param writer out: owned by the caller, ended by finish or discard. Until it is finished nothing
 *               exists under `path` but what was there before.
 * @return FSDP_ERR_INVALID naming the tensor; FSDP_ERR_IO naming path and bytes if the disk is full
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_safetensors_writer_create(const char *path, const fsdp_safetensors_spec *specs, size_t n,
                               fsdp_safetensors_writer **writer);

/**
 * Write bytes [offset_bytes, offset_bytes + bytes) of tensor `name`. One thread at a time.
 * @return FSDP_ERR_NOT_FOUND for a name that was not declared; FSDP_ERR_INVALID beyond its end or
 *         over bytes written before; FSDP_ERR_IO
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_safetensors_writer_write(fsdp_safetensors_writer *writer,
                                                                   const char *name,
                                                                   uint64_t offset_bytes,
                                                                   const void *data, size_t bytes);

/**
 * Check that every byte was written, sync, and rename to `path`. `writer` is gone afterwards, also
 * on failure, which leaves nothing behind.
 * @return FSDP_ERR_STATE naming the first incomplete tensor; FSDP_ERR_IO
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_safetensors_writer_finish(fsdp_safetensors_writer *writer);

/** Give up: nothing is left behind. Accepts NULL. */
FSDP_API void fsdp_safetensors_writer_discard(fsdp_safetensors_writer *writer);

/* ---- modules --------------------------------------------------------------------------------- */

/** Zero means default. */
typedef struct fsdp_load_options {
    /** Name of the module that holds the model without its head, e.g. "bert": transformers'
     * base_model_prefix. Parameter "bert.x" is also looked for as "x", for files of the bare model;
     * parameter "x" as "bert.x", for files of a model with a head. NULL: none. */
    const char *base_prefix;
    /** Paths of modules whose parameters are drawn where the file lacks them: a new head, e.g.
     * "classifier". NULL-terminated; NULL: none. */
    const char *const *fresh_modules;
    uint64_t seed; /**< of what is drawn: the values that fsdp_module_init() gives */
    /** Draw a parameter whose tensor has another shape, and list it as mismatched; default: an
     * error. As from_pretrained(ignore_mismatched_sizes=True). */
    bool ignore_mismatched_sizes;
} fsdp_load_options;

/** In what a file and the module differ. */
typedef struct fsdp_load_report {
    char **unexpected; /**< [n_unexpected] names of tensors that no parameter has */
    size_t n_unexpected;
    char **fresh; /**< [n_fresh] names of parameters that were not in the file, but drawn */
    size_t n_fresh;
    char **mismatched; /**< [n_mismatched] names of parameters whose tensors have another shape */
    size_t n_mismatched;
} fsdp_load_report;
FSDP_API void fsdp_load_report_free(fsdp_load_report *report);

/**
 * Read every parameter of `module` from a checkpoint, converting dtypes. Each rank touches only its
 * own rows. A parameter is found under any of its names, and as transformers finds them: with the
 * prefix of `options` or without, and LayerNorm's weight and bias under their old names gamma and
 * beta. A tensor that is there under several of a tied parameter's names must be the same under
 * each.
 *
 * Collective. Everything is checked on every rank before the first value changes: if one rank
 * fails, all do and the module is as it was.
 *
 * @param group   the ranks that load; NULL: this one alone
 * @param options NULL: all defaults
 * @param report  out: freed with fsdp_load_report_free(); NULL if not wanted. Buffers that old
 *                versions of transformers stored are not listed.
 * @return FSDP_ERR_NOT_FOUND naming a parameter that is not in the file; FSDP_ERR_FORMAT naming
 *         file, tensor and both shapes; FSDP_ERR_UNSUPPORTED for a dtype that is no float;
 *         FSDP_ERR_STATE if the module has no memory.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_load(fsdp_module *module,
                                                      const fsdp_checkpoint_reader *reader,
                                                      fsdp_group *group,
                                                      const fsdp_load_options *options,
                                                      fsdp_load_report *report);
/**
 * Before fully_shard: tell frozen parameters of `module` the dtypes in which the checkpoint has
 * them, so that they get memory in these at once. fsdp_module_load() does it too, but a module that
 * is sharded already then has its memory made anew, unit by unit.
 *
 * @param options as of the load to come; NULL: all defaults
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_note_dtypes(fsdp_module *module,
                                                             const fsdp_checkpoint_reader *reader,
                                                             const fsdp_load_options *options);

/** Zero means default. */
typedef struct fsdp_save_options {
    fsdp_dtype dtype;        /**< of the file; default float32 */
    int64_t max_shard_bytes; /**< of one file, unless a single tensor is larger; 0: 50e9 */
    const char *also_as;     /**< a further name under which a tied parameter is written too */
} fsdp_save_options;

/**
 * Write the parameters of `module` as Hugging Face does: model.safetensors, or
 * model-00001-of-0000N.safetensors with model.safetensors.index.json. A parameter of several names
 * is written once, under its first.
 *
 * Collective. Parameters are gathered one at a time, and rank 0 writes. A failure on one rank is
 * one on all.
 *
 * @param dir     an existing directory, used by rank 0 alone
 * @param group   the ranks that hold the module; NULL: this one alone
 * @param options NULL: all defaults
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_save(fsdp_module *module, const char *dir,
                                                      fsdp_group *group,
                                                      const fsdp_save_options *options);

#ifdef __cplusplus
}
#endif
