/* See quantize_flags.h. */
#include "src/pretrained/quantize_flags.h"

#include "src/base/assert.h"

const char *const fsdp_quant_types[] = {"nf4", "fp4", NULL};

static fsdp_status check_compute_dtype(const char *name, fsdp_dtype param_dtype)
{
    fsdp_dtype dtype;
    if (fsdp_dtype_from_name(name, &dtype) != FSDP_OK || !fsdp_dtype_is_floating(dtype))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--bnb-4bit-compute-dtype %s: expected float32, bfloat16 or float16",
                          name);
    if (dtype == param_dtype)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--bnb-4bit-compute-dtype %s: the forward has one dtype, which is %s: give "
                      "--param-dtype %s, too",
                      name, fsdp_dtype_name(param_dtype), fsdp_dtype_name(dtype));
}

fsdp_status fsdp_quantize_flags_check(const fsdp_quantize_flags *f, fsdp_dtype param_dtype)
{
    const struct {
        const char *flag;
        bool given;
    } flags[] = {{"--bnb-4bit-quant-type fp4", f->quant_type != FSDP_QUANT_NF4},
                 {"--bnb-4bit-use-double-quant", f->double_quant},
                 {"--bnb-4bit-compute-dtype", f->compute_dtype},
                 {"--quant-skip-modules", f->skip_modules.count > 0}};
    for (size_t i = 0; i < FSDP_LENGTH(flags) && !f->load_in_4bit; i++)
        if (flags[i].given)
            return fsdp_error(FSDP_ERR_INVALID, "%s: has no effect without --load-in-4bit",
                              flags[i].flag);
    if (f->quant_type == FSDP_QUANT_FP4)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--bnb-4bit-quant-type fp4: bitsandbytes' FP4 is not supported; nf4 has "
                          "the same size and smaller errors");
    return f->compute_dtype ? check_compute_dtype(f->compute_dtype, param_dtype) : FSDP_OK;
}

const fsdp_quantize_options *fsdp_quantize_flags_options(const fsdp_quantize_flags *flags,
                                                         fsdp_quantize_options *options)
{
    *options = (fsdp_quantize_options){.double_quant = flags->double_quant,
                                       .skip_modules = flags->skip_modules.items,
                                       .n_skip_modules = flags->skip_modules.count};
    return flags->load_in_4bit ? options : NULL;
}
