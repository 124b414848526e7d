/* The Python names in files that torch.save wrote, and the element types that some of these names
 * mean. */
#pragma once
#include "src/torchfile/pickle_reader.h"
#include "src/torchfile/safetensors_dtype.h"

/* The Python names that this library recognizes. Pass this list to fsdp_pickle_create(). */
extern const fsdp_pickle_names fsdp_torch_names;

/* `name` is a value of kind FSDP_PICKLE_NAME, such as the storage class "FloatStorage" or the dtype
 * "float8_e4m3fn". Return the element type that this name means, or NULL if this library does not
 * know the name. */
const fsdp_safetensors_dtype *fsdp_torch_dtype(const fsdp_pickle_value *name);

typedef struct fsdp_torch_dtype_names {
    const char *dtype;   /* "float32"; NULL: torch has no such dtype */
    const char *storage; /* "FloatStorage"; NULL: torch stores the data in an UntypedStorage */
} fsdp_torch_dtype_names;

fsdp_torch_dtype_names fsdp_torch_names_of(const fsdp_safetensors_dtype *dtype);
