/* The Python names in files that torch.save wrote, and the element types that some of these names
 * mean. */
#pragma once
#include "src/torchfile/pickle_reader.h"
#include "src/torchfile/safetensors_dtype.h"

/* The Python names that this library recognises. Pass this list to fsdp_pickle_create(). */
extern const fsdp_pickle_names fsdp_torch_names;

/* Return the element type that the NAME `name` means. It is the name of a storage class
 * ("FloatStorage") or of a dtype ("float8_e4m3fn"). Returns NULL if this library does not know the
 * name. */
const fsdp_safetensors_dtype *fsdp_torch_dtype(const fsdp_pickle_value *name);

typedef struct fsdp_torch_dtype_names {
    const char *dtype;   /* "float32"; NULL: torch has no such dtype */
    const char *storage; /* "FloatStorage"; NULL: torch stores the data in an UntypedStorage */
} fsdp_torch_dtype_names;

fsdp_torch_dtype_names fsdp_torch_names_of(const fsdp_safetensors_dtype *dtype);
