/* Which layers are computed in float8, and what is refused. */
#include <fsdp/float8.h>
#include <fsdp/lora.h>
#include <fsdp/models.h>

#include "src/nn/float8_weight.h"
#include "tests/test.h"

/* The golden Llama with two layers, another width, and 48 features in the feed-forward layers. */
static fsdp_status open_llama(int64_t width, fsdp_module **model)
{
    fsdp_model_config c;
    FSDP_TRY(fsdp_model_config_read(fsdp_test_path("golden/llama2/model"), &c));
    c.llama.hidden_size = width;
    c.llama.intermediate_size = 48;
    return fsdp_model_create(&c, model);
}

static bool is_converted(fsdp_module *model, const char *path)
{
    fsdp_module *m = fsdp_module_find(model, path);
    return m && fsdp_module_parameter(m, "weight")->float8 != NULL;
}

TEST(all_linear_layers_but_the_head_are_converted)
{
    fsdp_module *model;
    size_t n;
    const fsdp_float8_linear_config config = {.recipe = FSDP_FLOAT8_ROWWISE};
    ASSERT_OK(open_llama(32, &model));
    ASSERT_OK(fsdp_convert_to_float8_training(model, &config, &n));
    ASSERT_INT((int64_t)n, 14);
    ASSERT(is_converted(model, "model.layers.0.self_attn.q_proj"));
    ASSERT(is_converted(model, "model.layers.1.mlp.down_proj"));
    ASSERT(!is_converted(model, "lm_head"));
    ASSERT(!is_converted(model, "model.embed_tokens"));
    const fsdp_parameter *p =
        fsdp_module_parameter(fsdp_module_find(model, "model.layers.0.mlp.up_proj"), "weight");
    ASSERT_INT(p->float8->recipe, FSDP_FLOAT8_ROWWISE);
    ASSERT(!p->float8->gathers);
    fsdp_module_destroy(model);
}

/* The head dimension 16 and the 48 features of the feed-forward layer are multiples of 16; a width
 * of 24 is none, and every layer has it on one side. */
TEST(odd_layers_are_left_out_and_none_is_an_error)
{
    fsdp_module *model;
    const fsdp_float8_linear_config config = {0};
    ASSERT_OK(open_llama(24, &model));
    ASSERT_ERROR(fsdp_convert_to_float8_training(model, &config, NULL), FSDP_ERR_INVALID,
                 "14 have features that are no multiples of 16");
    fsdp_module_destroy(model);
}

TEST(names_filter_layers)
{
    fsdp_module *model;
    size_t n;
    const char *const names[] = {"layers.0.", "v_proj"};
    const fsdp_float8_linear_config config = {
        .enable_fsdp_float8_all_gather = true, .filter_fqns = names, .n_filter_fqns = 2};
    ASSERT_OK(open_llama(32, &model));
    ASSERT_OK(fsdp_convert_to_float8_training(model, &config, &n));
    ASSERT_INT((int64_t)n, 6);
    ASSERT(!is_converted(model, "model.layers.0.self_attn.q_proj"));
    ASSERT(!is_converted(model, "model.layers.1.self_attn.v_proj"));
    ASSERT(is_converted(model, "model.layers.1.self_attn.q_proj"));
    fsdp_module_destroy(model);
}

/* The rank is a multiple of 16, so only their being in an adapter leaves the matrices out. */
TEST(the_matrices_of_an_adapter_are_left_out)
{
    fsdp_module *model;
    size_t n;
    const fsdp_float8_linear_config config = {.enable_fsdp_float8_all_gather = true};
    const fsdp_lora_config lora = {.r = 16, .target_pattern = "all-linear"};
    ASSERT_OK(open_llama(32, &model));
    ASSERT_OK(fsdp_lora_apply(model, &lora));
    ASSERT_OK(fsdp_convert_to_float8_training(model, &config, &n));
    ASSERT_INT((int64_t)n, 14);
    ASSERT(is_converted(model, "model.layers.0.self_attn.q_proj"));
    ASSERT(!is_converted(model, "model.layers.0.self_attn.q_proj.lora_A"));
    ASSERT(!is_converted(model, "model.layers.0.self_attn.q_proj.lora_B"));
    fsdp_module_destroy(model);
}

/* Accelerate leaves out the first and the last linear layer; the last is the head. */
TEST(the_first_layer_may_be_left_out)
{
    fsdp_module *model;
    size_t n;
    const fsdp_float8_linear_config config = {.filter_first_and_last = true};
    ASSERT_OK(open_llama(32, &model));
    ASSERT_OK(fsdp_convert_to_float8_training(model, &config, &n));
    ASSERT_INT((int64_t)n, 13);
    ASSERT(!is_converted(model, "model.layers.0.self_attn.q_proj"));
    ASSERT(is_converted(model, "model.layers.0.self_attn.k_proj"));
    fsdp_module_destroy(model);
}

TEST(mistakes_are_refused)
{
    fsdp_module *model;
    fsdp_device *device;
    const char *const wrong[] = {"o_porj"}, *const small[] = {"auto_filter_small_kn"};
    fsdp_float8_linear_config config = {.filter_fqns = wrong, .n_filter_fqns = 1};
    ASSERT_OK(open_llama(32, &model));
    ASSERT_ERROR(fsdp_convert_to_float8_training(model, &config, NULL), FSDP_ERR_INVALID, "o_porj");
    fsdp_module_destroy(model);

    ASSERT_OK(open_llama(32, &model));
    config = (fsdp_float8_linear_config){.recipe = FSDP_FLOAT8_ROWWISE,
                                         .enable_fsdp_float8_all_gather = true};
    ASSERT_ERROR(fsdp_convert_to_float8_training(model, &config, NULL), FSDP_ERR_UNSUPPORTED,
                 "tensorwise");
    config = (fsdp_float8_linear_config){
        .recipe = FSDP_FLOAT8_ROWWISE_WITH_GW_HP, .filter_fqns = small, .n_filter_fqns = 1};
    ASSERT_ERROR(fsdp_convert_to_float8_training(model, &config, NULL), FSDP_ERR_UNSUPPORTED,
                 "auto_filter_small_kn");
    config.recipe = FSDP_FLOAT8_TENSORWISE; /* all layers are small */
    ASSERT_ERROR(fsdp_convert_to_float8_training(model, &config, NULL), FSDP_ERR_INVALID,
                 "14 are left out as too small");
    const fsdp_lora_config dora = {.r = 2, .use_dora = true};
    ASSERT_OK(fsdp_lora_apply(model, &dora));
    config = (fsdp_float8_linear_config){0};
    ASSERT_ERROR(fsdp_convert_to_float8_training(model, &config, NULL), FSDP_ERR_UNSUPPORTED,
                 "'model.layers.0.self_attn.q_proj' has an adapter of DoRA");
    fsdp_module_destroy(model);

    ASSERT_OK(open_llama(32, &model));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_module_to_empty(model, device));
    ASSERT_ERROR(fsdp_convert_to_float8_training(model, &config, NULL), FSDP_ERR_STATE,
                 "before it is sharded");
    fsdp_module_destroy(model);
    fsdp_device_destroy(device);
}

TEST(recipes_have_the_names_of_torchao)
{
    ASSERT_STR(fsdp_float8_recipe_name(FSDP_FLOAT8_TENSORWISE), "tensorwise");
    ASSERT_STR(fsdp_float8_recipe_name(FSDP_FLOAT8_ROWWISE), "rowwise");
    ASSERT_STR(fsdp_float8_recipe_name(FSDP_FLOAT8_ROWWISE_WITH_GW_HP), "rowwise_with_gw_hp");
}
