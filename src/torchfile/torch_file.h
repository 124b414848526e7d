/* Reads a model's weights from a file of torch.save: pytorch_model.bin, or a checkpoint that a
 * training script wrote. fsdp_safetensors has the same functions for safetensors. */
#pragma once
#include <fsdp/checkpoint_entry.h>

typedef struct fsdp_torch_file fsdp_torch_file;

/* Map a file and read its state dict. This is a dict of names and tensors, either the outermost
 * value or the value of "state_dict", "model_state_dict" or "model" in the outermost dict. No name
 * may occur twice; values that are not tensors, and keys that are not text, are skipped. Data are
 * not read, with two exceptions: tensors that are not contiguous are copied, and checksums of
 * storages of up to 4 KiB are verified. The file must not be truncated while it is open.
 * FSDP_ERR_FORMAT naming path and tensor; FSDP_ERR_UNSUPPORTED with advice; FSDP_ERR_NOT_FOUND,
 * FSDP_ERR_IO. */
FSDP_MUST_CHECK fsdp_status fsdp_torch_file_open(const char *path, fsdp_torch_file **file);
void fsdp_torch_file_close(fsdp_torch_file *file); /* accepts NULL */
size_t fsdp_torch_file_count(const fsdp_torch_file *file);
/* Return entry `i` in byte order of names. */
const fsdp_checkpoint_entry *fsdp_torch_file_at(const fsdp_torch_file *file, size_t i);
/* Return the entry `name`, or NULL if there is none. O(log n). */
const fsdp_checkpoint_entry *fsdp_torch_file_find(const fsdp_torch_file *file, const char *name);
/* Return the number of skipped values of the state dict. */
size_t fsdp_torch_file_ignored(const fsdp_torch_file *file);
