/* See weights_file.h. The ending of a file's name decides which reader opens it. */
#include <string.h>

#include "src/base/assert.h"
#include "src/hf/weights_file.h"

static bool is_torch_name(const char *path)
{
    static const char *const endings[] = {".bin", ".pt", ".pth"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; i < FSDP_LENGTH(endings); i++)
        if (dot && strcmp(dot, endings[i]) == 0)
            return true;
    return false;
}

fsdp_status fsdp_weights_file_open(const char *path, fsdp_weights_file *file)
{
    return is_torch_name(path) ? fsdp_torch_file_open(path, &file->torch)
                               : fsdp_safetensors_open(path, &file->safetensors);
}

void fsdp_weights_file_close(fsdp_weights_file *file)
{
    fsdp_safetensors_close(file->safetensors);
    fsdp_torch_file_close(file->torch);
    *file = (fsdp_weights_file){0};
}

size_t fsdp_weights_file_count(const fsdp_weights_file *file)
{
    return file->torch ? fsdp_torch_file_count(file->torch)
                       : fsdp_safetensors_count(file->safetensors);
}

const fsdp_checkpoint_entry *fsdp_weights_file_at(const fsdp_weights_file *file, size_t i)
{
    return file->torch ? fsdp_torch_file_at(file->torch, i)
                       : fsdp_safetensors_at(file->safetensors, i);
}

const fsdp_checkpoint_entry *fsdp_weights_file_find(const fsdp_weights_file *file, const char *name)
{
    return file->torch ? fsdp_torch_file_find(file->torch, name)
                       : fsdp_safetensors_find(file->safetensors, name);
}
