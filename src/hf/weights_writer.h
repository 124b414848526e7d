/* Writes a model's weights as Hugging Face stores them in a folder: model.safetensors, or
 * model-00001-of-0000N.safetensors and model.safetensors.index.json. */
#pragma once
#include <fsdp/hf.h>

typedef struct fsdp_weights_writer fsdp_weights_writer;

/* Start writing the tensors `specs` [n] into the existing directory `dir`. The files contain them
 * in the order of `specs`. A new file begins if the next tensor would make the current file larger
 * than `max_file_bytes` (0: 50e9, transformers' "50GB"). If `is_sparse`, blocks of zeros become
 * holes in the files, and no disk space is reserved. `dir`, `specs`, and the names and shapes in
 * `specs` are borrowed until the writer is freed. */
FSDP_MUST_CHECK fsdp_status fsdp_weights_writer_create(const char *dir,
                                                       const fsdp_safetensors_spec *specs, size_t n,
                                                       int64_t max_file_bytes, bool is_sparse,
                                                       fsdp_weights_writer **writer);
/* Write bytes [offset_bytes, offset_bytes + bytes) of tensor `i`. The caller must write the tensors
 * in the order of `specs`. The errors are those of fsdp_safetensors_writer_create(),
 * fsdp_safetensors_writer_write() and fsdp_safetensors_writer_finish(). */
FSDP_MUST_CHECK fsdp_status fsdp_weights_writer_write(fsdp_weights_writer *writer, size_t i,
                                                      uint64_t offset_bytes, const void *data,
                                                      size_t bytes);
/* Finish the last file and write the index. `writer` is freed, also after a failure. A failure
 * leaves the completed files in `dir`. If the caller needs all files or none, `dir` must be a
 * temporary folder. */
FSDP_MUST_CHECK fsdp_status fsdp_weights_writer_finish(fsdp_weights_writer *writer);
void fsdp_weights_writer_discard(fsdp_weights_writer *writer); /* accepts NULL */
