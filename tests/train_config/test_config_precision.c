/* The names of precisions of `fsdp train`. */
#include <math.h>
#include <stdlib.h>

#include "src/train_config/precision.h"
#include "tests/train_config/parse.h"

static void check_dtypes(fsdp_test *t, const char *line, fsdp_dtype param, fsdp_dtype reduce,
                         fsdp_dtype buffer)
{
    fsdp_train_config c;
    ASSERT_OK(parse(&c, line));
    ASSERT_INT(c.param_dtype, param);
    ASSERT_INT(c.reduce_dtype, reduce);
    ASSERT_INT(c.buffer_dtype, buffer);
    const fsdp_mp_policy mp = fsdp_train_mp_policy(&c);
    ASSERT_INT(mp.param_dtype, param);
    ASSERT_INT(mp.reduce_dtype, reduce);
    ASSERT_INT(mp.buffer_dtype, buffer);
    ASSERT(fsdp_train_needs_grad_scaler(&c) ==
           (param == FSDP_DTYPE_F16 || reduce == FSDP_DTYPE_F16));
}

TEST(precision_has_many_names)
{
    const fsdp_dtype f32 = FSDP_DTYPE_F32, f16 = FSDP_DTYPE_F16, bf16 = FSDP_DTYPE_BF16;
    check_dtypes(t, "", f32, f32, f32);
    check_dtypes(t, "--fp16", f16, f32, f32);
    check_dtypes(t, "--mixed_precision fp16 --fp16", f16, f32, f32);
    check_dtypes(t, "--precision 16-mixed --reduce-dtype fp16", f16, f16, f32);
    check_dtypes(t, "--mixed-precision bfSixteen", bf16, bf16, bf16);
    check_dtypes(t, "--mixed-precision fpSixteen", f16, f16, f16);
    check_dtypes(t, "--mixed-precision fp32_policy", f32, f32, f32);
    check_dtypes(t, "--mixed-precision grad_bf16", f32, bf16, f32);
    check_dtypes(t, "--mixed-precision grad_bf16 --bf16", bf16, bf16, f32);
    check_dtypes(t, "--no-bf16 --fp16 --buffer-dtype bf16", f16, f32, bf16);
    setenv("FSDP_MIXED_PRECISION", "bf16", 1); /* lower precedence than a flag */
    check_dtypes(t, "", bf16, f32, f32);
    check_dtypes(t, "--fp16", f16, f32, f32);
    check_dtypes(t, "--param-dtype float32", f32, f32, f32);
    setenv("FSDP_MIXED_PRECISION", "no", 1); /* as Accelerate exports it: counts as not given */
    setenv("FSDP_BF16", "true", 1);
    check_dtypes(t, "", bf16, f32, f32);
    unsetenv("FSDP_MIXED_PRECISION");
    unsetenv("FSDP_BF16");
    fsdp_train_config c;
    ASSERT_OK(parse(&c, "--mixed-precision bfSixteen"));
    ASSERT(fsdp_train_mp_policy(&c).no_cast_forward_inputs); /* FSDP1's default */
    ASSERT(fsdp_train_mp_policy(&c).cast_root_forward_inputs);
    ASSERT_OK(parse(&c, "--mixed-precision bfSixteen --no-cast-root-forward-inputs"));
    ASSERT(!fsdp_train_mp_policy(&c).cast_root_forward_inputs);
    ASSERT_OK(parse(&c, "--bf16 --no-cast-forward-inputs --cast-root-forward-inputs"));
    ASSERT(fsdp_train_mp_policy(&c).cast_root_forward_inputs);
    ASSERT(!fsdp_train_mp_policy(&c).set_output_dtype);
    ASSERT_OK(parse(&c, "--mixed-precision bfSixteen --cast-forward-inputs --output-dtype fp32"));
    ASSERT(!fsdp_train_mp_policy(&c).no_cast_forward_inputs);
    ASSERT(fsdp_train_mp_policy(&c).set_output_dtype);
    ASSERT_OK(parse(&c, "--bf16 --no-cast-forward-inputs --output-dtype bf16"));
    ASSERT(fsdp_train_mp_policy(&c).no_cast_forward_inputs);
    ASSERT_INT(fsdp_train_mp_policy(&c).output_dtype, FSDP_DTYPE_BF16);
    ASSERT_OK(parse(&c, "--fp16 --clip-value 0.5 --norm-type inf --init-scale 8"));
    ASSERT(!fsdp_train_mp_policy(&c).no_cast_forward_inputs);
    ASSERT_F32(c.clip_value, 0.5);
    ASSERT(isinf(c.grad_norm_type));
    ASSERT_F32(c.init_scale, 8);
    ASSERT_INT(c.growth_interval, 2000);
}
