/* One open file of weights, whatever its format. */
#pragma once
#include <fsdp/hf.h>

#include "src/torchfile/torch_file.h"

/* Exactly one of these is open, or neither if all is zero. */
typedef struct fsdp_weights_file {
    fsdp_safetensors *safetensors;
    fsdp_torch_file *torch;
} fsdp_weights_file;

/* Files of torch.save end in .bin, .pt or .pth; all others are safetensors. */
FSDP_MUST_CHECK fsdp_status fsdp_weights_file_open(const char *path, fsdp_weights_file *file);
void fsdp_weights_file_close(fsdp_weights_file *file); /* accepts all zero */
size_t fsdp_weights_file_count(const fsdp_weights_file *file);
/* Entry `i` in byte order of names. */
const fsdp_checkpoint_entry *fsdp_weights_file_at(const fsdp_weights_file *file, size_t i);
/* NULL if there is none. O(log n). */
const fsdp_checkpoint_entry *fsdp_weights_file_find(const fsdp_weights_file *file,
                                                    const char *name);
