/* See config_float8.h. */
#include "src/train_config/config_float8.h"

#include "src/base/assert.h"
#include "src/train_config/config_device.h"
#include "src/train_config/config_lora.h"
#include "src/train_config/precision.h"

/* The backends of Accelerate's fp8_config, in the order of the choices of --fp8-backend. */
enum {
    BACKEND_NONE,
    BACKEND_AO,
    BACKEND_TE,
    BACKEND_MSAMP
};

const char *const fsdp_train_float8_recipes[] = {"none|no", "tensorwise", "rowwise",
                                                 "rowwise_with_gw_hp", NULL};

bool fsdp_train_has_float8(const fsdp_train_config *c)
{
    return c->float8_recipe > 0;
}

void fsdp_train_float8_derive(fsdp_train_config *c, const fsdp_options *options)
{
    c->float8_skip_first = false;
    if (!fsdp_train_precision_is_fp8(c))
        return;
    if (!fsdp_options_given(options, "float8-recipe"))
        c->float8_recipe = 1 + FSDP_FLOAT8_TENSORWISE;
    if (!fsdp_options_given(options, "float8-enable-fsdp-all-gather"))
        c->float8_all_gather = c->float8_recipe == 1 + FSDP_FLOAT8_TENSORWISE;
    c->float8_skip_first = !c->float8_filter_fqns.count;
}

static fsdp_status check_backend(const fsdp_train_config *c)
{
    if (c->fp8_backend == BACKEND_TE || c->fp8_backend == BACKEND_MSAMP)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--fp8-backend %s: is not supported: products in float8 are those of "
                          "torchao, --fp8-backend ao",
                          c->fp8_backend == BACKEND_TE ? "te" : "msamp");
    return FSDP_OK;
}

static fsdp_status check_effect(const fsdp_options *options)
{
    static const char *const names[] = {"float8-enable-fsdp-all-gather", "float8-filter-fqns",
                                        "fp8-backend"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (fsdp_options_origin(options, names[i]) > FSDP_ORIGIN_ENV)
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: has no effect without --float8-recipe or --mixed-precision "
                              "fp8, which compute linear layers in float8",
                              fsdp_options_source(options, names[i]));
    return FSDP_OK;
}

fsdp_status fsdp_train_float8_check(const fsdp_train_config *c, const fsdp_options *options)
{
    FSDP_TRY(check_backend(c));
    if (!fsdp_train_has_float8(c))
        return check_effect(options);
    const char *name = fsdp_float8_recipe_name((fsdp_float8_recipe)(c->float8_recipe - 1));
    if (c->float8_all_gather && c->float8_recipe != 1 + FSDP_FLOAT8_TENSORWISE)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "--float8-enable-fsdp-all-gather: needs --float8-recipe tensorwise, whose "
            "weights have one scale; %s has several",
            name);
    if (c->quantize.load_in_4bit)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "--float8-recipe %s: computes products of weights in 8 bits, not with "
                          "--load-in-4bit, which stores weights in 4 bits; leave out one of both",
                          name);
    return FSDP_OK;
}

void fsdp_train_float8_init(fsdp_float8_linear_config *config, const fsdp_train_config *c)
{
    *config = (fsdp_float8_linear_config){
        .recipe = (fsdp_float8_recipe)(c->float8_recipe - 1),
        .enable_fsdp_float8_all_gather = c->float8_all_gather,
        .filter_first_and_last = c->float8_skip_first,
        .filter_fqns = (const char *const *)c->float8_filter_fqns.items,
        .n_filter_fqns = c->float8_filter_fqns.count,
    };
}
