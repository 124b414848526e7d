/* The Python names in files of torch.save, and the element types that some of these names mean. */
#pragma once
#include "src/torchfile/pickle_reader.h"
#include "src/torchfile/safetensors_dtype.h"

/* Names that pickles of torch.save may use. */
extern const fsdp_pickle_names fsdp_torch_names;

/* Return the element type of a storage class ("FloatStorage") or a dtype ("float8_e4m3fn"), or NULL
 * if this library does not know it. */
const fsdp_safetensors_dtype *fsdp_torch_dtype(const fsdp_pickle_value *name);

typedef struct fsdp_torch_dtype_names {
    const char *dtype;   /* "float32"; NULL: torch has no such type */
    const char *storage; /* "FloatStorage"; NULL: data are in an UntypedStorage */
} fsdp_torch_dtype_names;

fsdp_torch_dtype_names fsdp_torch_names_of(const fsdp_safetensors_dtype *dtype);
