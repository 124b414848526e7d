/* A function of the safetensors writer that only other files of this folder use. <fsdp/hf.h>
 * declares the others. */
#pragma once
#include <fsdp/hf.h>

/* Begin a file as fsdp_safetensors_writer_create() does. If `is_sparse`, blocks of zeros become
 * holes in the file, and no disk space is reserved for it. */
FSDP_MUST_CHECK fsdp_status fsdp_safetensors_writer_begin(const char *path,
                                                          const fsdp_safetensors_spec *specs,
                                                          size_t n, bool is_sparse,
                                                          fsdp_safetensors_writer **writer);
