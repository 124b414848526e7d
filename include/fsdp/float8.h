/**
 * @file
 * Training with products of 8-bit floats, with torchao's recipes and names (torchao.float8).
 *
 *     fsdp_float8_linear_config float8 = {.recipe = FSDP_FLOAT8_TENSORWISE,
 *                                         .enable_fsdp_float8_all_gather = true};
 *     FSDP_TRY(fsdp_model_create(&config, &model));
 *     FSDP_TRY(fsdp_convert_to_float8_training(model, &float8, &n));
 *     FSDP_TRY(fsdp_fully_sharded_data_parallel(model, group, device, &options));
 *     ... forward, backward ...
 *     FSDP_TRY(fsdp_optimizer_step(optimizer, scale));
 *     FSDP_TRY(fsdp_precompute_float8_dynamic_scale_for_fsdp(model));
 *
 * The master weights, gradients and optimizer state keep their dtypes, and checkpoints are those of
 * a run without float8.
 */
#pragma once
#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** torchao.float8.Float8LinearConfig, and which layers are converted. A zeroed struct is the recipe
 * "tensorwise" for all layers whose dimensions are multiples of 16. */
typedef struct fsdp_float8_linear_config {
    fsdp_float8_recipe recipe;
    /** true: the ranks gather the converted weights in float8, one byte for each element. Allowed
     * only with FSDP_FLOAT8_TENSORWISE. */
    bool enable_fsdp_float8_all_gather;
    /** [n_filter_fqns] torchtitan's filter_fqns: a layer is not converted if its path contains one
     * of these texts. The text "auto_filter_small_kn" chooses torchao's automatic filter, which
     * leaves out small layers. Borrowed for the call. */
    const char *const *filter_fqns;
    size_t n_filter_fqns;
    /** true: the first and the last linear layer of the model are not converted, as in
     * Accelerate. */
    bool filter_first_and_last;
} fsdp_float8_linear_config;

/** Get torchao's name of a recipe: "tensorwise", ...; static storage. */
FSDP_API const char *fsdp_float8_recipe_name(fsdp_float8_recipe recipe);

/**
 * torchao.float8.convert_to_float8_training(): from now on, compute the products of linear layers
 * in float8. A layer is converted only if its class is Linear and its numbers of input and output
 * features are multiples of 16. The head is never converted, because the logits need more
 * precision. If layers have adapters (lora.h), the products of their frozen weights are computed in
 * float8, but the products of lora_A and lora_B are not. Call this before sharding and before
 * memory is allocated.
 *
 * @param n_converted out: number of layers that were converted; may be NULL
 * @return FSDP_ERR_INVALID if no layer is converted (the message says why) or if an entry of
 *         filter_fqns occurs in no path; FSDP_ERR_UNSUPPORTED if the recipe does not allow
 *         enable_fsdp_float8_all_gather or the automatic filter, or for a layer with an adapter of
 *         DoRA; FSDP_ERR_STATE if the model is sharded or has memory
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_convert_to_float8_training(
    fsdp_module *model, const fsdp_float8_linear_config *config, size_t *n_converted);

/**
 * torchao.float8.precompute_float8_dynamic_scale_for_fsdp(): compute the scales of all weights that
 * are gathered in float8, by one reduction over the ranks. Call this after the optimizer's step.
 * Without this call, each unit computes the scales of its weights when it is gathered, by a
 * reduction of its own; the results have the same bits. No effect if no weight is gathered in
 * float8. Collective.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_precompute_float8_dynamic_scale_for_fsdp(fsdp_module *model);

#ifdef __cplusplus
}
#endif
