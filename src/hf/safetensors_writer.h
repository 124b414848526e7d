/* Declares the only function of the safetensors writer that is internal to this folder. Its public
 * functions are in <fsdp/hf.h>. */
#pragma once
#include <fsdp/hf.h>

/* Begin a file like fsdp_safetensors_writer_create(). If `is_sparse` is true, blocks of zeros
 * become holes in the file, and no disk space is reserved for the file. */
FSDP_MUST_CHECK fsdp_status fsdp_safetensors_writer_begin(const char *path,
                                                          const fsdp_safetensors_spec *specs,
                                                          size_t n, bool is_sparse,
                                                          fsdp_safetensors_writer **writer);
