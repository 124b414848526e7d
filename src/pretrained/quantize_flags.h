/* Options of commands that open a model with weights in 4 bits. Their names are those of
 * transformers' BitsAndBytesConfig. */
#pragma once
#include <stddef.h>

#include <fsdp/options.h>

#include "src/pretrained/quantize.h"

typedef struct fsdp_quantize_flags {
    bool load_in_4bit;
    int quant_type; /* fsdp_quant_type */
    bool double_quant;
    const char *compute_dtype; /* NULL: not given */
    fsdp_option_list skip_modules;
} fsdp_quantize_flags;

typedef enum fsdp_quant_type {
    FSDP_QUANT_NF4,
    FSDP_QUANT_FP4
} fsdp_quant_type;

extern const char *const fsdp_quant_types[];

/* Rows for a command's option table. `at` is the offset of an fsdp_quantize_flags in the command's
 * struct. */
/* clang-format off */
#define FSDP_QUANTIZE_OPTIONS(at)                                                                  \
    {.name = "load-in-4bit", .type = FSDP_OPTION_BOOL, FSDP_QUANTIZE(at, load_in_4bit),            \
     .group = "weights in 4 bits (QLoRA), with bitsandbytes' options",                             \
     .help = "store the linear layers of the frozen model in NF4: a quarter of the memory of "     \
             "bfloat16. A model whose files are in NF4 is loaded so without this option"},         \
    {.name = "bnb-4bit-quant-type", .type = FSDP_OPTION_CHOICE, FSDP_QUANTIZE(at, quant_type),     \
     .value = "nf4", .choices = fsdp_quant_types,                                                  \
     .help = "the 16 numbers that a weight may have; fp4 is refused"},                             \
    {.name = "bnb-4bit-use-double-quant", .aliases = "use-bnb-nested-quant", .type = FSDP_OPTION_BOOL,     \
     FSDP_QUANTIZE(at, double_quant),                                                              \
     .help = "store the scales in 8 bits, too: 4.13 instead of 4.5 bits a weight"},                \
    {.name = "bnb-4bit-compute-dtype", .type = FSDP_OPTION_STRING,                                 \
     FSDP_QUANTIZE(at, compute_dtype), .metavar = "DTYPE", .shown_default = "--param-dtype",       \
     .help = "the dtype in which operations read the weights; here the whole forward has "         \
             "one dtype, so another value than --param-dtype is refused"},                         \
    {.name = "quant-skip-modules", .aliases = "llm-int8-skip-modules", .type = FSDP_OPTION_LIST,   \
     FSDP_QUANTIZE(at, skip_modules), .metavar = "NAME,...",                                       \
     .help = "layers that keep their dtype: beginnings or ends of their names; the head always "   \
             "does"}
/* clang-format on */
#define FSDP_QUANTIZE(at, name) .offset = (at) + offsetof(fsdp_quantize_flags, name)

/* Check the flags. Returns FSDP_ERR_INVALID if a flag has no effect because --load-in-4bit is
 * missing, or if the compute dtype is not param_dtype. Returns FSDP_ERR_UNSUPPORTED for fp4. */
FSDP_MUST_CHECK fsdp_status fsdp_quantize_flags_check(const fsdp_quantize_flags *flags,
                                                      fsdp_dtype param_dtype);
/* Fill in *options from the flags, and return it, for fsdp_model_options.quantize. Returns NULL
 * without --load-in-4bit. */
const fsdp_quantize_options *fsdp_quantize_flags_options(const fsdp_quantize_flags *flags,
                                                         fsdp_quantize_options *options);
