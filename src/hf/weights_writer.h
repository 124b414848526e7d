/* Writes a model's weights as Hugging Face stores them in a folder: model.safetensors, or
 * model-00001-of-0000N.safetensors and model.safetensors.index.json. */
#pragma once
#include <fsdp/hf.h>

typedef struct fsdp_weights_writer fsdp_weights_writer;

/* The files that a writer creates. A field other than `dir` that is 0 or NULL has its default. */
typedef struct fsdp_weights_files {
    const char *dir;        /* an existing directory */
    const char *stem;       /* what the names of the files begin with, before ".safetensors" or
                               "-00001-of-0000N.safetensors"; at most 30 bytes; NULL: "model" */
    int64_t max_file_bytes; /* a new file begins if the next tensor would make the current file
                               larger than this; 0: 50e9, transformers' "50GB" */
    bool is_sparse; /* blocks of zeros become holes in the files, and no disk space is reserved */
} fsdp_weights_files;

/* Start writing the tensors `specs` [n]. The files contain them in the order of `specs`. *files is
 * copied. `files->dir`, `files->stem`, `specs`, and the names and shapes in `specs` are borrowed
 * until the writer is freed. */
FSDP_MUST_CHECK fsdp_status fsdp_weights_writer_create(const fsdp_weights_files *files,
                                                       const fsdp_safetensors_spec *specs, size_t n,
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
