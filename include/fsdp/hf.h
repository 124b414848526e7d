/**
 * @file
 * Reads and writes Hugging Face weights: safetensors files, which are read by mmap and written
 * tensor by tensor; files of torch.save, which are only read; and directories with several files
 * and an index.
 *
 * Readers and writers do not use the tensors of this library: their data are bytes, dtypes and
 * shapes. The functions of <fsdp/pretrained.h> move data into and out of the parameters of a
 * module. The format of safetensors files is described at https://huggingface.co/docs/safetensors.
 * This library accepts the same files as version 0.8 of the safetensors library.
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
 * Map a file and check its whole header: length, JSON, dtypes, shapes, and that the tensors cover
 * the data without holes, overlaps or a remainder. Does not read the data. Unknown fields are
 * ignored. If a name occurs twice in the header, the last occurrence counts.
 *
 * @param file out: owned by the caller, ended by fsdp_safetensors_close(). The file must not be
 *             shortened while it is open.
 * @return FSDP_ERR_FORMAT naming path and tensor; FSDP_ERR_NOT_FOUND, FSDP_ERR_IO
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_safetensors_open(const char *path,
                                                           fsdp_safetensors **file);
FSDP_API void fsdp_safetensors_close(fsdp_safetensors *file); /**< accepts NULL */
FSDP_API size_t fsdp_safetensors_count(const fsdp_safetensors *file);
/** Get entry `i`, in byte order of names. */
FSDP_API const fsdp_checkpoint_entry *fsdp_safetensors_at(const fsdp_safetensors *file, size_t i);
/** Find an entry by name; NULL if there is none. O(log n). */
FSDP_API const fsdp_checkpoint_entry *fsdp_safetensors_find(const fsdp_safetensors *file,
                                                            const char *name);
/** Get the value of `key` in the header's __metadata__, e.g. "format"; NULL if there is none. */
FSDP_API const char *fsdp_safetensors_metadata(const fsdp_safetensors *file, const char *key);

/** All tensors of a model, in one file or several. */
typedef struct fsdp_checkpoint_reader fsdp_checkpoint_reader;

/**
 * Open a model directory, a file of weights, or the index of several files. In a directory, the
 * first of the following files that exists is used, as in transformers: model.safetensors,
 * model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json.
 *
 * Files named .bin, .pt or .pth have the format of torch.save since PyTorch 1.6. They contain a
 * dict of names and tensors, or a dict that has such a dict under "state_dict", "model_state_dict"
 * or "model". Pickles are read as data: no code is run, and objects that are neither tensors nor
 * plain values (NumPy's scalars, paths, namespaces) are skipped. Values of the state dict that are
 * not tensors are ignored. The checksums of the pickle and of storages up to 4 KiB are checked;
 * larger storages are not read at this time. Tensors that are not contiguous (transposed, expanded)
 * are copied when the file is opened. All other tensors point into the mapped file, even if several
 * share a storage.
 *
 * @param reader out: owned by the caller, ended by fsdp_checkpoint_close()
 * @return FSDP_ERR_NOT_FOUND if there are no weights or a file of the index is missing;
 *         FSDP_ERR_FORMAT if a file is malformed, lacks a tensor that the index names, or has a
 *         tensor that the index does not name; FSDP_ERR_UNSUPPORTED, with a message that says what
 *         to do in PyTorch, for files of torch.save in the format before 1.6, TorchScript programs,
 *         big-endian data, compressed archives, and files that contain a single object, such as a
 *         whole module
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_open(const char *path,
                                                          fsdp_checkpoint_reader **reader);
FSDP_API void fsdp_checkpoint_close(fsdp_checkpoint_reader *reader); /**< accepts NULL */
/** Return the path that was opened. */
FSDP_API const char *fsdp_checkpoint_path(const fsdp_checkpoint_reader *reader);
FSDP_API size_t fsdp_checkpoint_count(const fsdp_checkpoint_reader *reader);
/** Get entry `i`, in byte order of names. */
FSDP_API const fsdp_checkpoint_entry *fsdp_checkpoint_at(const fsdp_checkpoint_reader *reader,
                                                         size_t i);
/** Find an entry by name; NULL if there is none. O(log n). */
FSDP_API const fsdp_checkpoint_entry *fsdp_checkpoint_find(const fsdp_checkpoint_reader *reader,
                                                           const char *name);
/** Like fsdp_checkpoint_find(); FSDP_ERR_NOT_FOUND naming path and tensor if there is none. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_get(const fsdp_checkpoint_reader *reader,
                                                         const char *name,
                                                         const fsdp_checkpoint_entry **entry);

/* ---- writing --------------------------------------------------------------------------------- */

/** A tensor that will be written. Strings and shapes are copied. */
typedef struct fsdp_safetensors_spec {
    const char *name;
    fsdp_dtype dtype;
    const char *dtype_name; /**< for types that fsdp_dtype does not have, e.g. "BOOL"; NULL: the
                                 name of `dtype` */
    const int64_t *shape;   /**< [ndim] */
    int ndim;               /**< 0: a scalar */
} fsdp_safetensors_spec;

/** A file that is being written. Its layout is fixed at the start; data may be written in any order
 * and in pieces of any size. */
typedef struct fsdp_safetensors_writer fsdp_safetensors_writer;

/**
 * Begin a file that will become `path`: lay out all tensors as the safetensors library does (by
 * dtype, then by name), reserve the file's size on the disk, and write its header. `__metadata__`
 * is {"format": "pt"}, which older versions of transformers require. Files with equal tensors have
 * equal bytes.
 *
 * @param specs  [n], names distinct
 * @param writer out: owned by the caller, ended by fsdp_safetensors_writer_finish() or
 *               fsdp_safetensors_writer_discard(). `path` does not change before finish
 * @return FSDP_ERR_INVALID naming the tensor; FSDP_ERR_IO naming path and bytes if the disk is full
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_safetensors_writer_create(const char *path, const fsdp_safetensors_spec *specs, size_t n,
                               fsdp_safetensors_writer **writer);

/**
 * Write bytes [offset_bytes, offset_bytes + bytes) of tensor `name`. One thread at a time.
 * @return FSDP_ERR_NOT_FOUND for a name that is not in `specs`; FSDP_ERR_INVALID if the bytes are
 *         beyond the tensor's end or were written before; FSDP_ERR_IO
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_safetensors_writer_write(fsdp_safetensors_writer *writer,
                                                                   const char *name,
                                                                   uint64_t offset_bytes,
                                                                   const void *data, size_t bytes);

/**
 * Check that every byte was written, sync the file, and rename it to `path`. Frees `writer`, even
 * if it fails; a failure leaves no file behind.
 * @return FSDP_ERR_STATE naming the first incomplete tensor; FSDP_ERR_IO
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_safetensors_writer_finish(fsdp_safetensors_writer *writer);

/** Delete the unfinished file and free `writer`. Accepts NULL. */
FSDP_API void fsdp_safetensors_writer_discard(fsdp_safetensors_writer *writer);

#ifdef __cplusplus
}
#endif
