/* The names that the pickle reader knows in files that torch.save wrote. All other names become
 * OPAQUE values. */
#include <string.h>

#include "src/base/assert.h"
#include "src/torchfile/torch_names.h"

/* Each row has three names: the name of a dtype in torch, the name of its storage class, and the
 * name of the dtype in safetensors. Some dtypes have no storage class. For such a dtype, the second
 * name repeats the first. torch pickles a tensor of such a dtype with an UntypedStorage, and adds
 * the dtype as a separate argument. */
#define TORCH_DTYPES(ROW)                                                                          \
    ROW("float32", "FloatStorage", "F32")                                                          \
    ROW("float16", "HalfStorage", "F16")                                                           \
    ROW("bfloat16", "BFloat16Storage", "BF16")                                                     \
    ROW("float64", "DoubleStorage", "F64")                                                         \
    ROW("int64", "LongStorage", "I64")                                                             \
    ROW("int32", "IntStorage", "I32")                                                              \
    ROW("int16", "ShortStorage", "I16")                                                            \
    ROW("int8", "CharStorage", "I8")                                                               \
    ROW("uint8", "ByteStorage", "U8")                                                              \
    ROW("bool", "BoolStorage", "BOOL")                                                             \
    ROW("complex64", "ComplexFloatStorage", "C64")                                                 \
    ROW("uint16", "uint16", "U16")                                                                 \
    ROW("uint32", "uint32", "U32")                                                                 \
    ROW("uint64", "uint64", "U64")                                                                 \
    ROW("float8_e4m3fn", "float8_e4m3fn", "F8_E4M3")                                               \
    ROW("float8_e5m2", "float8_e5m2", "F8_E5M2")                                                   \
    ROW("float8_e4m3fnuz", "float8_e4m3fnuz", "F8_E4M3FNUZ")                                       \
    ROW("float8_e5m2fnuz", "float8_e5m2fnuz", "F8_E5M2FNUZ")                                       \
    ROW("float8_e8m0fnu", "float8_e8m0fnu", "F8_E8M0")

#define TWO_NAMES(dtype, storage, safetensors)                                                     \
    {"torch", dtype, FSDP_PICKLE_CONSTANT}, {"torch", storage, FSDP_PICKLE_CONSTANT},
#define ALL_THREE(dtype, storage, safetensors) {dtype, storage, safetensors},

static const fsdp_pickle_name names[] = {
    {"collections", "OrderedDict", FSDP_PICKLE_EMPTY},
    {"collections", "Counter", FSDP_PICKLE_COUNT},
    {"__builtin__", "set", FSDP_PICKLE_MAKE_SET},
    {"builtins", "set", FSDP_PICKLE_MAKE_SET},
    {"__builtin__", "bytes", FSDP_PICKLE_ENCODE},
    {"_codecs", "encode", FSDP_PICKLE_ENCODE},
    {"torch", "Size", FSDP_PICKLE_FIRST},
    {"torch", "device", FSDP_PICKLE_CALL},
    {"torch.serialization", "_get_layout", FSDP_PICKLE_CALL},
    {"torch._utils", "_rebuild_tensor_v2", FSDP_PICKLE_CALL},
    {"torch._utils", "_rebuild_tensor_v3", FSDP_PICKLE_CALL},
    {"torch._utils", "_rebuild_parameter", FSDP_PICKLE_FIRST},
    {"torch._utils", "_rebuild_parameter_with_state", FSDP_PICKLE_FIRST},
    {"torch._tensor", "_rebuild_from_type_v2", FSDP_PICKLE_REBUILD},
    {"torch", "Tensor", FSDP_PICKLE_TYPE},
    /* Names that occur in pickled DTensors. Different versions of PyTorch have these classes in
     * different modules below torch.distributed. */
    {"torch._utils", "_rebuild_wrapper_subclass", FSDP_PICKLE_CALL},
    {"torch.distributed.*", "DTensor", FSDP_PICKLE_TYPE},
    {"torch.distributed.*", "DTensorSpec", FSDP_PICKLE_CALL},
    {"torch.distributed.*", "TensorMeta", FSDP_PICKLE_CALL},
    {"torch.distributed.*", "DeviceMesh", FSDP_PICKLE_CALL},
    {"torch.distributed.*", "Shard", FSDP_PICKLE_CALL},
    {"torch.distributed.*", "Replicate", FSDP_PICKLE_CALL},
    {"torch.nn.parameter", "Parameter", FSDP_PICKLE_TYPE},
    {"torch.storage", "UntypedStorage", FSDP_PICKLE_CONSTANT},
    TORCH_DTYPES(TWO_NAMES)};

const fsdp_pickle_names fsdp_torch_names = {names, FSDP_LENGTH(names), NULL};

static const struct {
    const char *dtype, *storage, *safetensors;
} dtypes[] = {TORCH_DTYPES(ALL_THREE)};

const fsdp_safetensors_dtype *fsdp_torch_dtype(const fsdp_pickle_value *name)
{
    if (!fsdp_pickle_is(name, FSDP_PICKLE_NAME))
        return NULL;
    for (size_t i = 0; i < FSDP_LENGTH(dtypes); i++)
        if (strcmp(name->name->name, dtypes[i].dtype) == 0 ||
            strcmp(name->name->name, dtypes[i].storage) == 0)
            return fsdp_safetensors_dtype_by_name(dtypes[i].safetensors);
    return NULL;
}

fsdp_torch_dtype_names fsdp_torch_names_of(const fsdp_safetensors_dtype *dtype)
{
    fsdp_torch_dtype_names found = {0};
    for (size_t i = 0; i < FSDP_LENGTH(dtypes); i++)
        if (strcmp(dtype->name, dtypes[i].safetensors) == 0) {
            bool typed = strcmp(dtypes[i].dtype, dtypes[i].storage) != 0;
            found.dtype = dtypes[i].dtype;
            found.storage = typed ? dtypes[i].storage : NULL;
        }
    return found;
}
