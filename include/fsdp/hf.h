/**
 * @file
 * Reads and writes Hugging Face weights. Safetensors files are read with mmap() and written in
 * pieces of any size. Files of torch.save are only read. A model can be one file, or a directory
 * with several files and an index.
 *
 * Readers and writers do not use fsdp_tensor: their tensors are bytes with a dtype and a shape. The
 * functions of <fsdp/pretrained.h> copy such bytes into and out of the parameters of a module. The
 * format of safetensors files is described at https://huggingface.co/docs/safetensors. This library
 * accepts the same files as version 0.8 of the safetensors library.
 */
#pragma once
#include <fsdp/base.h>
#include <fsdp/checkpoint_entry.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading --------------------------------------------------------------------------------- */

/** An open .safetensors file. */
typedef struct fsdp_safetensors fsdp_safetensors;

/**
 * Map a file and check its header: length, JSON, dtypes and shapes. Also check that the tensors
 * cover the data without holes, overlaps or a remainder. The data are not read. Unknown fields are
 * ignored. If the header has a name twice, the second entry is used.
 *
 * @param file out: owned by the caller, closed with fsdp_safetensors_close(). The file must not be
 *             shortened while it is open.
 * @return FSDP_ERR_FORMAT if the header is wrong; the message names the file and the tensor.
 *         FSDP_ERR_NOT_FOUND, FSDP_ERR_IO
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_safetensors_open(const char *path,
                                                           fsdp_safetensors **file);
FSDP_API void fsdp_safetensors_close(fsdp_safetensors *file); /**< accepts NULL */
FSDP_API size_t fsdp_safetensors_count(const fsdp_safetensors *file);
/** Get entry `i`. Entries are in byte order of their names. */
FSDP_API const fsdp_checkpoint_entry *fsdp_safetensors_at(const fsdp_safetensors *file, size_t i);
/** Find an entry by name; NULL if there is none. O(log n). */
FSDP_API const fsdp_checkpoint_entry *fsdp_safetensors_find(const fsdp_safetensors *file,
                                                            const char *name);
/** Get the text of `key`, e.g. "format", in the header's __metadata__; NULL if the key is
 * missing. */
FSDP_API const char *fsdp_safetensors_metadata(const fsdp_safetensors *file, const char *key);

/** The tensors of a model, which are in one open file or in several. */
typedef struct fsdp_checkpoint_reader fsdp_checkpoint_reader;

/**
 * Open a model directory, a file of weights, or the index of several files. In a directory, the
 * first of the following files that exists is used. As in transformers: model.safetensors,
 * model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json. Then LitGPT's
 * lit_model.pth.
 *
 * Files named .bin, .pt or .pth have the format of torch.save since PyTorch 1.6. They contain a
 * dict of names and tensors, or a dict that has such a dict under "state_dict", "model_state_dict"
 * or "model". Pickles are read as data: no code is run, and objects that are neither tensors nor
 * plain values are skipped (NumPy's scalars, paths, namespaces). Values of the state dict that are
 * not tensors are ignored. The checksums of the pickle and of storages up to 4 KiB are checked;
 * larger storages are not read when the file is opened. Tensors that are not contiguous
 * (transposed, expanded) are copied when the file is opened. All other tensors point into the
 * mapped file, even if several tensors share a storage.
 *
 * @param reader out: owned by the caller, closed with fsdp_checkpoint_close()
 * @return FSDP_ERR_NOT_FOUND if there are no weights or a file of the index is missing;
 *         FSDP_ERR_FORMAT if a file is malformed, or if its tensors are not the ones that the index
 *         lists; FSDP_ERR_UNSUPPORTED for torch.save's format before PyTorch 1.6, TorchScript
 *         programs, big-endian data, compressed archives, and files that contain a single object,
 *         such as a whole module. The message of FSDP_ERR_UNSUPPORTED says what to do in PyTorch
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_open(const char *path,
                                                          fsdp_checkpoint_reader **reader);
FSDP_API void fsdp_checkpoint_close(fsdp_checkpoint_reader *reader); /**< accepts NULL */
/** Return the path that was opened. */
FSDP_API const char *fsdp_checkpoint_path(const fsdp_checkpoint_reader *reader);
FSDP_API size_t fsdp_checkpoint_count(const fsdp_checkpoint_reader *reader);
/** Get entry `i`. Entries are in byte order of their names. */
FSDP_API const fsdp_checkpoint_entry *fsdp_checkpoint_at(const fsdp_checkpoint_reader *reader,
                                                         size_t i);
/** Find an entry by name; NULL if there is none. O(log n). */
FSDP_API const fsdp_checkpoint_entry *fsdp_checkpoint_find(const fsdp_checkpoint_reader *reader,
                                                           const char *name);
/** Like fsdp_checkpoint_find(), but returns FSDP_ERR_NOT_FOUND if there is no such entry. The
 * message names the file and the tensor. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_get(const fsdp_checkpoint_reader *reader,
                                                         const char *name,
                                                         const fsdp_checkpoint_entry **entry);

/* ---- writing --------------------------------------------------------------------------------- */

/** A tensor that will be written. Strings and shapes are copied. */
typedef struct fsdp_safetensors_spec {
    const char *name;
    fsdp_dtype dtype;
    const char *dtype_name; /**< name of a type that fsdp_dtype does not have, e.g. "BOOL"; NULL:
                                 the name of `dtype` */
    const int64_t *shape;   /**< [ndim] */
    int ndim;               /**< 0: a scalar */
} fsdp_safetensors_spec;

/** A file that is being written. The place of each tensor in the file is fixed at the start, so
 * data may be written in any order and in pieces of any size. */
typedef struct fsdp_safetensors_writer fsdp_safetensors_writer;

/**
 * Begin a file that will be renamed to `path`. Lay out all tensors as the safetensors library does
 * (by dtype, then by name), reserve the file's size on the disk, and write its header.
 * `__metadata__` is {"format": "pt"}, which older versions of transformers require. Two files with
 * the same tensors have the same bytes.
 *
 * @param specs  [n], names distinct
 * @param writer out: owned by the caller, freed with fsdp_safetensors_writer_finish() or
 *               fsdp_safetensors_writer_discard(). Until fsdp_safetensors_writer_finish(), an
 *               existing file `path` is unchanged
 * @return FSDP_ERR_INVALID if a tensor is invalid; the message names the tensor. FSDP_ERR_IO if the
 *         disk is full; the message gives the path and the size of the file
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_safetensors_writer_create(const char *path, const fsdp_safetensors_spec *specs, size_t n,
                               fsdp_safetensors_writer **writer);

/**
 * Write bytes [offset_bytes, offset_bytes + bytes) of tensor `name`. Only one thread at a time may
 * call this.
 * @return FSDP_ERR_NOT_FOUND for a name that is not in `specs`; FSDP_ERR_INVALID if the bytes are
 *         beyond the tensor's end or were written before; FSDP_ERR_IO
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_safetensors_writer_write(fsdp_safetensors_writer *writer,
                                                                   const char *name,
                                                                   uint64_t offset_bytes,
                                                                   const void *data, size_t bytes);

/**
 * Check that every byte was written, sync the file, and rename it to `path`. `writer` is always
 * freed, even after a failure. After a failure, the new file is deleted, too.
 * @return FSDP_ERR_STATE if a tensor is incomplete; the message names the first incomplete tensor.
 *         FSDP_ERR_IO
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_safetensors_writer_finish(fsdp_safetensors_writer *writer);

/** Delete the unfinished file and free `writer`. Accepts NULL. */
FSDP_API void fsdp_safetensors_writer_discard(fsdp_safetensors_writer *writer);

#ifdef __cplusplus
}
#endif
