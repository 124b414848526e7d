/* Reads the variables that Accelerate's launcher sets for its workers
 * (fsdp_options_from_environment() in include/fsdp/fsdp.h). `fsdp train` reads the same variables
 * with its own option table. */
#include "src/fsdp/environment.h"

#include <string.h>
#include <strings.h>

#include <fsdp/options.h>

#include "src/base/assert.h"
#include "src/fsdp/reshard_menu.h"

typedef struct variables {
    int precision; /* index into `precisions` */
    int version;   /* 0: FSDP1, 1: FSDP2 */
    int strategy;  /* fsdp_sharding_strategy */
    int reshard;   /* 0: false; 1: true; more: a number of ranks; negative: -1 - strategy */
    int backward_prefetch;
    bool offload_params, forward_prefetch, activation_checkpointing;
} variables;

static const char *const precisions[] = {"no|fp32", "fp16", "bf16", NULL};
static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_F16, FSDP_DTYPE_BF16};
static const char *const versions[] = {"1", "2", NULL};

#define PLACE(field) .offset = offsetof(variables, field)

/* clang-format off */
static const fsdp_option table[] = {
    /* This row is the first, so that fsdp_environment_read() can leave it out. */
    {.name = "mixed-precision", .type = FSDP_OPTION_CHOICE, PLACE(precision), .value = "no",
     .choices = precisions, .env = "ACCELERATE_MIXED_PRECISION"},
    {.name = "version", .type = FSDP_OPTION_CHOICE, PLACE(version), .value = "2",
     .choices = versions},
    {.name = "sharding-strategy", .type = FSDP_OPTION_CHOICE, PLACE(strategy),
     .value = "FULL_SHARD", .choices = fsdp_sharding_strategy_choices},
    {.name = "reshard-after-forward", .type = FSDP_OPTION_BOOL_OR_INT, PLACE(reshard),
     .value = "true", .bounds = FSDP_BETWEEN(0, 1048576),
     .choices = fsdp_sharding_strategy_choices},
    {.name = "backward-prefetch", .type = FSDP_OPTION_CHOICE, PLACE(backward_prefetch),
     .value = "BACKWARD_PRE", .choices = fsdp_backward_prefetch_choices},
    {.name = "forward-prefetch", .type = FSDP_OPTION_BOOL, PLACE(forward_prefetch)},
    {.name = "offload-params", .type = FSDP_OPTION_BOOL, PLACE(offload_params)},
    {.name = "activation-checkpointing", .type = FSDP_OPTION_BOOL,
     PLACE(activation_checkpointing)},
};
/* clang-format on */

/* Return the strategy that the user chose. The launcher always sets both FSDP_SHARDING_STRATEGY and
 * FSDP_RESHARD_AFTER_FORWARD, so one of them may contain only the launcher's default. With FSDP1,
 * `true` in FSDP_RESHARD_AFTER_FORWARD is the default, and any other value is the user's choice.
 * With FSDP2, the value of FSDP_SHARDING_STRATEGY may be the default, so
 * FSDP_RESHARD_AFTER_FORWARD decides whether parameters are resharded. FSDP_SHARDING_STRATEGY then
 * only decides whether the strategy is NO_SHARD or hybrid. */
static fsdp_sharding_strategy strategy_of(const variables *v, const fsdp_options *options)
{
    const bool is_hybrid = v->strategy >= FSDP_SHARDING_HYBRID_SHARD;
    const bool says_nothing = !fsdp_options_given(options, "reshard-after-forward") ||
                              (v->version == 0 && v->reshard == 1);
    if (v->reshard < 0)
        return (fsdp_sharding_strategy)(-1 - v->reshard);
    if (says_nothing || v->strategy == FSDP_SHARDING_NO_SHARD)
        return (fsdp_sharding_strategy)v->strategy;
    if (is_hybrid)
        return v->reshard ? FSDP_SHARDING_HYBRID_SHARD : FSDP_SHARDING_HYBRID_SHARD_ZERO2;
    return v->reshard ? FSDP_SHARDING_FULL_SHARD : FSDP_SHARDING_SHARD_GRAD_OP;
}

fsdp_status fsdp_environment_read(bool has_precision, fsdp_environment_options *environment)
{
    const size_t first = has_precision ? 1 : 0;
    const fsdp_options_spec spec = {
        .program = "environment", .table = table + first, .count = FSDP_LENGTH(table) - first};
    char name[] = "environment", *argv[] = {name, NULL};
    variables v = {0};
    fsdp_options *options;
    FSDP_TRY(fsdp_options_parse(&spec, 1, argv, &v, &options));
    if (v.version == 0)
        v.reshard =
            fsdp_reshard_of_menu(fsdp_options_text(options, "reshard-after-forward"), v.reshard);
    const fsdp_sharding_strategy strategy = strategy_of(&v, options);
    const bool keeps =
        strategy == FSDP_SHARDING_SHARD_GRAD_OP || strategy == FSDP_SHARDING_HYBRID_SHARD_ZERO2;
    fsdp_options_destroy(options);
    *environment = (fsdp_environment_options){
        .sharding_strategy = strategy,
        .activation_checkpointing = v.activation_checkpointing,
        .fully_shard = {
            .mp_policy = {.param_dtype = dtypes[v.precision]},
            .reshard_after_forward = v.reshard > 1 ? FSDP_RESHARD_TO_SMALLER
                                     : keeps       ? FSDP_RESHARD_FALSE
                                                   : FSDP_RESHARD_DEFAULT,
            .reshard_ranks = v.reshard > 1 ? v.reshard : 0,
            .no_shard = strategy == FSDP_SHARDING_NO_SHARD,
            .backward_prefetch = (fsdp_backward_prefetch)v.backward_prefetch,
            .forward_prefetch = v.forward_prefetch ? FSDP_FORWARD_STRICT : FSDP_FORWARD_IMPLICIT,
            .offload_policy = {.kind = v.offload_params ? FSDP_OFFLOAD_CPU : FSDP_OFFLOAD_NONE}}};
    return FSDP_OK;
}

fsdp_status fsdp_options_from_environment(fsdp_environment_options *environment)
{
    return fsdp_environment_read(false, environment);
}
