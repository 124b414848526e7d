/* Reads the weights of a model from a file that torch.save wrote: pytorch_model.bin, or the
 * checkpoint of a training script. These functions correspond to those of fsdp_safetensors
 * (<fsdp/hf.h>). */
#pragma once
#include <fsdp/checkpoint_entry.h>

typedef struct fsdp_torch_file fsdp_torch_file;

/* Map a file and read its state dict, a dict of names and tensors. The state dict is the value of
 * "state_dict", "model_state_dict" or "model" in the outermost dict, or the outermost dict itself.
 * Values that are not tensors, and keys that are not text, are skipped. The file must not be
 * truncated while it is open.
 *
 * Opening reads the data of only some tensors: tensors that are not contiguous are copied, and the
 * checksums of storages of up to 4 KiB are verified.
 *
 * Returns FSDP_ERR_FORMAT if the file is malformed or a name occurs twice; the message contains the
 * path and the name. Returns FSDP_ERR_UNSUPPORTED for formats and tensors that are not supported;
 * the message says what to do instead. Can also return FSDP_ERR_NOT_FOUND and FSDP_ERR_IO. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_file_open(const char *path, fsdp_torch_file **file);
void fsdp_torch_file_close(fsdp_torch_file *file); /* accepts NULL */
size_t fsdp_torch_file_count(const fsdp_torch_file *file);
/* Return the entry with index `i`. The entries are in byte order of their names. */
const fsdp_checkpoint_entry *fsdp_torch_file_at(const fsdp_torch_file *file, size_t i);
/* Return the entry `name`, or NULL if there is none. O(log n). */
const fsdp_checkpoint_entry *fsdp_torch_file_find(const fsdp_torch_file *file, const char *name);
/* Return how many values of the state dict were skipped. */
size_t fsdp_torch_file_ignored(const fsdp_torch_file *file);
