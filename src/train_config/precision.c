/* See precision.h. Each option that affects dtypes makes one request for each dtype field that it
 * affects. The request with the highest precedence sets the field. */
#include <stdio.h>
#include <string.h>

#include "src/train_config/precision.h"

typedef enum field {
    FIELD_PARAM,
    FIELD_REDUCE,
    FIELD_MASTER,
    FIELD_BUFFER,
    FIELD_STATE,
    FIELD_COUNT
} field;

static const char *const field_options[FIELD_COUNT] = {
    "param-dtype", "reduce-dtype", "master-dtype", "buffer-dtype", "optimizer-state-dtype"};

enum {
    PRECISION_NO,
    PRECISION_16_TRUE = 4,
    PRECISION_FP8 = 5, /* Accelerate's: bfloat16, with products of linear layers in float8 */
    FIRST_PRESET = 6   /* index of bfSixteen, the first of the FSDP tutorials' policies */
};

const char *const fsdp_train_precisions[] = {"no|fp32|float32|32-true|32|false|off",
                                             "bf16|bfloat16|bf16-mixed",
                                             "bf16-true",
                                             "fp16|float16|16-mixed|16",
                                             "16-true|fp16-true",
                                             "fp8",
                                             "bfSixteen",
                                             "fpSixteen",
                                             "fp32_policy",
                                             "grad_bf16",
                                             NULL};

/* The dtype that each precision before FIRST_PRESET sets for each field; -1: the precision does not
 * set this field. */
static const int simple[FIRST_PRESET][FIELD_COUNT] = {
    {FSDP_DTYPE_F32, -1, -1, -1, -1},
    {FSDP_DTYPE_BF16, -1, -1, -1, -1},
    {FSDP_DTYPE_BF16, -1, FSDP_DTYPE_BF16, -1, FSDP_DTYPE_BF16},
    {FSDP_DTYPE_F16, -1, -1, -1, -1},
    {FSDP_DTYPE_F16, -1, FSDP_DTYPE_F16, -1, -1},
    {FSDP_DTYPE_BF16, -1, -1, -1, -1},
};

static fsdp_mixed_precision preset_of(int precision)
{
    fsdp_mixed_precision mp = {0};
    if (precision >= FIRST_PRESET &&
        fsdp_mixed_precision_preset(fsdp_train_precisions[precision], &mp) != FSDP_OK)
        return (fsdp_mixed_precision){0};
    return mp;
}

static int dtype_of(int precision, field f)
{
    if (precision < FIRST_PRESET)
        return simple[precision][f];
    const fsdp_mixed_precision mp = preset_of(precision);
    const int dtypes[FIELD_COUNT] = {
        [FIELD_PARAM] = mp.set_param_dtype ? (int)mp.param_dtype : -1,
        [FIELD_REDUCE] = mp.set_reduce_dtype ? (int)mp.reduce_dtype : -1,
        [FIELD_MASTER] = -1,
        [FIELD_STATE] = -1,
        [FIELD_BUFFER] = mp.set_buffer_dtype ? (int)mp.buffer_dtype : -1};
    return dtypes[f];
}

static fsdp_dtype *place_of(fsdp_train_config *c, field f)
{
    fsdp_dtype *const places[FIELD_COUNT] = {&c->param_dtype, &c->reduce_dtype, &c->master_dtype,
                                             &c->buffer_dtype, &c->optimizer_state_dtype};
    return places[f];
}

bool fsdp_train_precision_is_fp8(const fsdp_train_config *c)
{
    return c->mixed_precision == PRECISION_FP8;
}

/* --- requests --- */

typedef struct request {
    const char *option;
    char value[32]; /* the option's value as shown in messages; "" for a boolean option */
    fsdp_option_origin origin;
    fsdp_dtype dtype;
} request;

enum {
    MAX_REQUESTS = 4
};

static void add_request(request *list, int *n, const fsdp_options *options, const char *option,
                        const char *value, int dtype)
{
    if (dtype < 0 || !fsdp_options_given(options, option))
        return;
    request *r = &list[(*n)++];
    *r = (request){.option = option,
                   .origin = fsdp_options_origin(options, option),
                   .dtype = (fsdp_dtype)dtype};
    snprintf(r->value, sizeof r->value, "%s%.*s", *value ? " " : "", (int)strcspn(value, "|"),
             value);
}

/* Return true if --mixed-precision sets any dtypes. Every value except "no" sets dtypes. "no" sets
 * dtypes only if it is given on the command line, because configuration files and Accelerate's
 * environment variables often contain "no" without a decision of the user. */
static bool says_something(const fsdp_train_config *c, const fsdp_options *options)
{
    return c->mixed_precision != PRECISION_NO ||
           fsdp_options_origin(options, "mixed-precision") == FSDP_ORIGIN_FLAG;
}

static int requests_of(fsdp_train_config *c, const fsdp_options *options, field f, request *list)
{
    int n = 0;
    add_request(list, &n, options, field_options[f], fsdp_dtype_name(*place_of(c, f)),
                (int)*place_of(c, f));
    if (f == FIELD_PARAM && c->bf16)
        add_request(list, &n, options, "bf16", "", FSDP_DTYPE_BF16);
    if (f == FIELD_PARAM && c->fp16)
        add_request(list, &n, options, "fp16", "", FSDP_DTYPE_F16);
    if (says_something(c, options))
        add_request(list, &n, options, "mixed-precision", fsdp_train_precisions[c->mixed_precision],
                    dtype_of(c->mixed_precision, f));
    return n;
}

static const request *strongest(const request *list, int n)
{
    const request *best = NULL;
    for (int i = 0; i < n; i++)
        if (!best || list[i].origin > best->origin)
            best = &list[i];
    return best;
}

void fsdp_train_precision_derive(fsdp_train_config *c, const fsdp_options *options)
{
    for (int f = 0; f < FIELD_COUNT; f++) {
        request list[MAX_REQUESTS];
        const request *best = strongest(list, requests_of(c, options, (field)f, list));
        if (best)
            *place_of(c, (field)f) = best->dtype;
    }
    if (!fsdp_optimizer_is_adam(c->optimizer) &&
        !fsdp_options_given(options, field_options[FIELD_STATE]))
        c->optimizer_state_dtype = FSDP_DTYPE_F32;
    c->set_output_dtype = fsdp_options_given(options, "output-dtype");
    c->set_internode_reduce_dtype = fsdp_options_given(options, "internode-reduce-dtype");
    if (c->mixed_precision >= FIRST_PRESET && !fsdp_options_given(options, "cast-forward-inputs"))
        c->cast_forward_inputs = preset_of(c->mixed_precision).cast_forward_inputs;
    if (!fsdp_options_given(options, "cast-root-forward-inputs"))
        c->cast_root_forward_inputs = c->mixed_precision >= FIRST_PRESET &&
                                      !preset_of(c->mixed_precision).no_cast_root_forward_inputs;
}

/* --- checks --- */

static fsdp_status check_agreement(const request *list, int n)
{
    const request *best = strongest(list, n);
    for (int i = 0; i < n; i++)
        if (list[i].origin == best->origin && list[i].dtype != best->dtype)
            return fsdp_error(FSDP_ERR_INVALID, "--%s%s contradicts --%s%s", best->option,
                              best->value, list[i].option, list[i].value);
    return FSDP_OK;
}

static fsdp_status check_dtype(field f, fsdp_dtype dtype)
{
    char flag[32];
    snprintf(flag, sizeof flag, "--%s", field_options[f]);
    if (f == FIELD_MASTER && dtype == FSDP_DTYPE_F16)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "%s float16: must be float32 or bfloat16, since float16 loses small updates", flag);
    if (f == FIELD_STATE && dtype == FSDP_DTYPE_F16)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s float16: must be float32 or bfloat16, since squares of gradients are "
                          "below its range",
                          flag);
    return fsdp_check_compute_dtype(flag, dtype);
}

static fsdp_status check_internode_dtype(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32 || dtype == FSDP_DTYPE_BF16
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_INVALID,
                            "--internode-reduce-dtype %s: sums of gradients are sent to other "
                            "hosts in float32 or bfloat16",
                            fsdp_dtype_name(dtype));
}

fsdp_status fsdp_train_precision_check(const fsdp_train_config *config, const fsdp_options *options)
{
    fsdp_train_config c = *config;
    if (c.mixed_precision == PRECISION_16_TRUE)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "--mixed-precision 16-true: master weights are "
                                                "float32 or bfloat16; fp16 computes in float16");
    if (c.set_output_dtype && c.output_dtype == FSDP_DTYPE_F16)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--output-dtype float16: sums of losses exceed its range");
    FSDP_TRY(fsdp_check_compute_dtype("--output-dtype", c.output_dtype));
    if (c.set_internode_reduce_dtype)
        FSDP_TRY(check_internode_dtype(c.internode_reduce_dtype));
    for (size_t i = 0; i < c.named.unit_mp_policy.count; i++) {
        fsdp_unit_mp_policy policy;
        FSDP_TRY(fsdp_unit_mp_policy_parse(c.named.unit_mp_policy.items[i], &policy));
    }
    for (int f = 0; f < FIELD_COUNT; f++) {
        request list[MAX_REQUESTS];
        FSDP_TRY(check_agreement(list, requests_of(&c, options, (field)f, list)));
        FSDP_TRY(check_dtype((field)f, *place_of(&c, (field)f)));
    }
    return FSDP_OK;
}

fsdp_mp_policy fsdp_train_mp_policy(const fsdp_train_config *c)
{
    return (fsdp_mp_policy){.param_dtype = c->param_dtype,
                            .reduce_dtype = c->reduce_dtype,
                            .master_dtype = c->master_dtype,
                            .buffer_dtype = c->buffer_dtype,
                            .set_output_dtype = c->set_output_dtype,
                            .output_dtype = c->output_dtype,
                            .no_cast_forward_inputs = !c->cast_forward_inputs,
                            .cast_root_forward_inputs = c->cast_root_forward_inputs};
}

/* Return true if a policy in --unit-mp-policy computes in float16. If `reduces` is true, a policy
 * that reduces in float16 counts, too. fsdp_train_precision_check() has already parsed the
 * policies. */
static bool has_float16_unit(const fsdp_train_config *c, bool reduces)
{
    fsdp_unit_mp_policy p;
    for (size_t i = 0; i < c->named.unit_mp_policy.count; i++)
        if (fsdp_unit_mp_policy_parse(c->named.unit_mp_policy.items[i], &p) == FSDP_OK &&
            (p.param_dtype == FSDP_DTYPE_F16 || (reduces && p.reduce_dtype == FSDP_DTYPE_F16)))
            return true;
    return false;
}

bool fsdp_train_is_in_float16(const fsdp_train_config *c)
{
    return c->param_dtype == FSDP_DTYPE_F16 || has_float16_unit(c, false);
}

bool fsdp_train_needs_grad_scaler(const fsdp_train_config *c)
{
    return c->param_dtype == FSDP_DTYPE_F16 || c->reduce_dtype == FSDP_DTYPE_F16 ||
           has_float16_unit(c, true);
}
