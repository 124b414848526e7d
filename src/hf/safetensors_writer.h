/* What others in this folder may ask of a file of safetensors beyond <fsdp/ckpt.h>. */
#pragma once
#include <fsdp/hf.h>

/* fsdp_safetensors_writer_create(); `is_sparse`: blocks of zeros become holes of the file, and no
 * room is reserved for it. */
FSDP_MUST_CHECK fsdp_status fsdp_safetensors_writer_begin(const char *path,
                                                          const fsdp_safetensors_spec *specs,
                                                          size_t n, bool is_sparse,
                                                          fsdp_safetensors_writer **writer);
