/* Reads a file of weights, which may be a safetensors file or a file written by torch.save. */
#pragma once
#include <fsdp/hf.h>

#include "src/torchfile/torch_file.h"

/* An open file of weights. One of the two pointers is set, and the other is NULL. {0}: no file is
 * open. */
typedef struct fsdp_weights_file {
    fsdp_safetensors *safetensors;
    fsdp_torch_file *torch;
} fsdp_weights_file;

/* Open a file of weights. It is read as a file written by torch.save if its name ends in .bin, .pt
 * or .pth, and as a safetensors file otherwise. */
FSDP_MUST_CHECK fsdp_status fsdp_weights_file_open(const char *path, fsdp_weights_file *file);
void fsdp_weights_file_close(fsdp_weights_file *file); /* accepts {0} */
size_t fsdp_weights_file_count(const fsdp_weights_file *file);
/* Return entry `i` in byte order of names. */
const fsdp_checkpoint_entry *fsdp_weights_file_at(const fsdp_weights_file *file, size_t i);
/* Return the entry `name`, or NULL if there is none. O(log n). */
const fsdp_checkpoint_entry *fsdp_weights_file_find(const fsdp_weights_file *file,
                                                    const char *name);
