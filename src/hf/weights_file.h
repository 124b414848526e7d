/* An open file of weights in any format. */
#pragma once
#include <fsdp/hf.h>

#include "src/torchfile/torch_file.h"

/* Exactly one of the two pointers is set while a file is open. {0}: no file is open. */
typedef struct fsdp_weights_file {
    fsdp_safetensors *safetensors;
    fsdp_torch_file *torch;
} fsdp_weights_file;

/* Open a file of weights. Files whose names end in .bin, .pt or .pth are files of torch.save; all
 * others are safetensors. */
FSDP_MUST_CHECK fsdp_status fsdp_weights_file_open(const char *path, fsdp_weights_file *file);
void fsdp_weights_file_close(fsdp_weights_file *file); /* accepts {0} */
size_t fsdp_weights_file_count(const fsdp_weights_file *file);
/* Return entry `i` in byte order of names. */
const fsdp_checkpoint_entry *fsdp_weights_file_at(const fsdp_weights_file *file, size_t i);
/* Return the entry `name`, or NULL if there is none. O(log n). */
const fsdp_checkpoint_entry *fsdp_weights_file_find(const fsdp_weights_file *file,
                                                    const char *name);
