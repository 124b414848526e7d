/* Casts the inputs and outputs of units as their mp_policy says, sets the dtype of buffers, and
 * converts FSDP1's MixedPrecision to an mp_policy.
 *
 * A cast is an operation on the tape, within the unit's region. So backward casts the gradients
 * back. A checkpointed module keeps its inputs, because backward recomputes its forward. If the
 * module is a unit, its inputs are cast before they are kept. If the module contains units, its
 * recomputed forward casts the inputs and outputs of these units again. */
#include <string.h>

#include "src/fsdp/state.h"

static bool is_activation(const fsdp_tensor *t)
{
    return t && !t->is_table && fsdp_dtype_is_floating(t->dtype) && t->dtype != FSDP_DTYPE_F64;
}

static fsdp_status cast_all(fsdp_scope *s, fsdp_args *args, fsdp_dtype dtype)
{
    for (int i = 0; i < args->n; i++)
        if (is_activation(args->t[i]))
            args->t[i] = fsdp_cast(s, args->t[i], dtype);
    return fsdp_scope_status(s);
}

fsdp_status fsdp_state_cast_inputs(const fsdp_state *state, fsdp_scope *s, fsdp_args *in)
{
    const fsdp_mp_policy *mp = &state->param_group->context.options.mp_policy;
    const bool is_root = state->owns_context;
    if (is_root)
        s->run->buffer_dtype = mp->buffer_dtype;
    if (mp->no_cast_forward_inputs && !(is_root && mp->cast_root_forward_inputs))
        return FSDP_OK;
    return cast_all(s, in, mp->param_dtype);
}

fsdp_status fsdp_state_cast_outputs(const fsdp_state *state, fsdp_scope *s, fsdp_args *out)
{
    const fsdp_mp_policy *mp = &state->param_group->context.options.mp_policy;
    return mp->set_output_dtype ? cast_all(s, out, mp->output_dtype) : FSDP_OK;
}

/* --- checks --- */

static bool is_half_or_float(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32 || dtype == FSDP_DTYPE_BF16 || dtype == FSDP_DTYPE_F16;
}

fsdp_status fsdp_mp_policy_check(const fsdp_mp_policy *mp)
{
    const struct {
        const char *name;
        fsdp_dtype dtype;
    } fields[] = {{"param_dtype", mp->param_dtype},
                  {"reduce_dtype", mp->reduce_dtype},
                  {"output_dtype", mp->output_dtype},
                  {"buffer_dtype", mp->buffer_dtype}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!is_half_or_float(fields[i].dtype))
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "mp_policy: %s %s: it takes float32, bfloat16 or float16",
                              fields[i].name, fsdp_dtype_name(fields[i].dtype));
    if (mp->master_dtype != FSDP_DTYPE_F32 && mp->master_dtype != FSDP_DTYPE_BF16)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED, "mp_policy: master_dtype %s: masters are float32 or bfloat16%s",
            fsdp_dtype_name(mp->master_dtype),
            mp->master_dtype == FSDP_DTYPE_F16 ? "; in float16 small updates would be lost" : "");
    return FSDP_OK;
}

/* --- FSDP1 --- */

/* Values of FSDP1's MixedPrecision that users can choose by name. The names are those in
 * policies/mixed_precision.py of PyTorch's FSDP tutorials. */
static const struct {
    const char *name;
    fsdp_mixed_precision mp;
} presets[] = {
    {"bfSixteen",
     {.set_param_dtype = true,
      .param_dtype = FSDP_DTYPE_BF16,
      .set_reduce_dtype = true,
      .reduce_dtype = FSDP_DTYPE_BF16,
      .set_buffer_dtype = true,
      .buffer_dtype = FSDP_DTYPE_BF16}},
    {"fpSixteen",
     {.set_param_dtype = true,
      .param_dtype = FSDP_DTYPE_F16,
      .set_reduce_dtype = true,
      .reduce_dtype = FSDP_DTYPE_F16,
      .set_buffer_dtype = true,
      .buffer_dtype = FSDP_DTYPE_F16}},
    {"fp32_policy", {.set_param_dtype = true, .set_reduce_dtype = true, .set_buffer_dtype = true}},
    {"grad_bf16", {.set_reduce_dtype = true, .reduce_dtype = FSDP_DTYPE_BF16}},
};

fsdp_status fsdp_mixed_precision_preset(const char *name, fsdp_mixed_precision *mp)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(name, presets[i].name) == 0) {
            *mp = presets[i].mp;
            return FSDP_OK;
        }
    return fsdp_error(FSDP_ERR_INVALID,
                      "mixed precision '%s': known are bfSixteen, fpSixteen, fp32_policy, "
                      "grad_bf16",
                      name);
}

fsdp_status fsdp_mp_policy_from_fsdp1(const fsdp_mixed_precision *mp, fsdp_dtype master_dtype,
                                      fsdp_mp_policy *policy)
{
    if (mp->keep_low_precision_grads)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "MixedPrecision: keep_low_precision_grads: gradients of the shards are "
                          "float32 here, whatever reduce_dtype is");
    fsdp_mp_policy p = {
        .master_dtype = master_dtype,
        .param_dtype = mp->set_param_dtype ? mp->param_dtype : master_dtype,
        .buffer_dtype = mp->set_buffer_dtype ? mp->buffer_dtype : FSDP_DTYPE_F32,
        .cast_root_forward_inputs = mp->set_param_dtype && !mp->no_cast_root_forward_inputs,
        .no_cast_forward_inputs = !(mp->set_param_dtype && mp->cast_forward_inputs)};
    p.reduce_dtype = mp->set_reduce_dtype  ? mp->reduce_dtype
                     : mp->set_param_dtype ? mp->param_dtype
                                           : FSDP_DTYPE_F32;
    FSDP_TRY(fsdp_mp_policy_check(&p));
    *policy = p;
    return FSDP_OK;
}
