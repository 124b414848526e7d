/* The layers that get an adapter, and their ranks, are those that PEFT chooses. */
#include <math.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/lora/targets.h"
#include "src/models/model_type.h"
#include "src/nn/adapter.h"
#include "tests/test.h"

static fsdp_status make_model(const char *preset, fsdp_module **model)
{
    fsdp_model_config config;
    FSDP_TRY(fsdp_model_config_preset(preset, &config));
    return fsdp_model_create(&config, model);
}

/* Return the number of the model's weights that have an adapter. */
static int count_adapters(fsdp_module *m)
{
    const fsdp_parameter *weight = fsdp_module_parameter(m, "weight");
    int n = weight && weight->adapter;
    for (int i = 0; i < fsdp_module_n_children(m); i++)
        n += count_adapters(fsdp_module_child(m, i));
    return n;
}

static const fsdp_adapter *adapter_at(fsdp_module *model, const char *path)
{
    const fsdp_module *m = fsdp_module_find(model, path);
    const fsdp_parameter *weight = m ? fsdp_module_parameter(m, "weight") : NULL;
    return weight ? weight->adapter : NULL;
}

TEST(without_names_the_layers_are_those_of_peft)
{
    static const struct {
        const char *preset, *path;
        int n;
    } cases[] = {{"t5-small", "decoder.block.3.layer.1.EncDecAttention.v", 2 * (6 + 2 * 6)},
                 {"gpt2", "transformer.h.11.attn.c_attn", 12},
                 {"bert-base-uncased", "bert.encoder.layer.0.attention.self.query", 24},
                 {"TinyLlama-1.1B", "model.layers.21.self_attn.q_proj", 44}};
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_module *model;
        const fsdp_lora_config config = {.r = 2};
        ASSERT_OK(make_model(cases[i].preset, &model));
        ASSERT_OK(fsdp_lora_apply(model, &config));
        ASSERT_INT(count_adapters(model), cases[i].n);
        const fsdp_adapter *adapter = adapter_at(model, cases[i].path);
        ASSERT(adapter);
        ASSERT_INT(adapter->a->shape[0], 2);
        fsdp_module_destroy(model);
    }
}

TEST(all_linear_layers_are_all_but_the_head)
{
    fsdp_module *model;
    const fsdp_lora_config config = {.target_pattern = "all-linear"};
    ASSERT_OK(make_model("t5-small", &model));
    ASSERT_OK(fsdp_lora_apply(model, &config));
    ASSERT_INT(count_adapters(model), 6 * 6 + 6 * 10);
    ASSERT(!adapter_at(model, "lm_head"));
    fsdp_module_destroy(model);
}

/* peft, too, gives an adapter to the layer of BERT's head that comes before the output layer. */
TEST(all_linear_layers_include_the_transform_of_bert)
{
    fsdp_model_config shape;
    fsdp_module *model;
    const fsdp_lora_config config = {.target_pattern = "All-Linear"}; /* in any case, as in PEFT */
    ASSERT_OK(fsdp_model_config_preset("bert-base-uncased", &shape));
    ASSERT_OK(fsdp_model_config_set_task(&shape, FSDP_TASK_MASKED_LM));
    ASSERT_OK(fsdp_model_create(&shape, &model));
    ASSERT_OK(fsdp_lora_apply(model, &config));
    ASSERT_INT(count_adapters(model), 12 * 6 + 1);
    ASSERT(adapter_at(model, "cls.predictions.transform.dense"));
    ASSERT(!adapter_at(model, "cls.predictions.decoder"));
    fsdp_module_destroy(model);
}

typedef struct selection {
    const char *what;
    fsdp_lora_config config;
    const char *selected, *not_selected; /* paths of layers */
    int n;
} selection;

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(names_patterns_and_layers_select_as_in_peft)
{
    const selection cases[] = {
        {"the end of a path",
         {.target_modules = NAMES("mlp.down_proj", "o_proj")},
         "model.layers.3.mlp.down_proj",
         "model.layers.3.mlp.up_proj",
         2 * 22},
        {"a name is not a part of a component",
         {.target_modules = NAMES("proj", "q_proj")},
         "model.layers.3.self_attn.q_proj",
         "model.layers.3.mlp.up_proj",
         22},
        {"a regular expression matches the whole path",
         {.target_pattern = "model\\.layers\\.(3|4)\\..*(q|k)_proj"},
         "model.layers.4.self_attn.k_proj",
         "model.layers.5.self_attn.k_proj",
         4},
        {"layers_to_transform",
         {.target_modules = NAMES("q_proj"),
          .layers_to_transform = (const int64_t[]){0, 21},
          .n_layers_to_transform = 2},
         "model.layers.21.self_attn.q_proj",
         "model.layers.1.self_attn.q_proj",
         2},
        {"layers_pattern of another list",
         {.target_modules = NAMES("q_proj"),
          .layers_to_transform = (const int64_t[]){0, 21},
          .n_layers_to_transform = 2,
          .layers_pattern = NAMES("layers")},
         "model.layers.0.self_attn.q_proj",
         "model.layers.20.self_attn.q_proj",
         2},
        {"a regular expression as layers_pattern",
         {.target_modules = NAMES("q_proj"),
          .layers_to_transform = (const int64_t[]){0, 21},
          .n_layers_to_transform = 2,
          .layers_pattern = NAMES("blocks", "lay(er|ers)")},
         "model.layers.21.self_attn.q_proj",
         "model.layers.20.self_attn.q_proj",
         2},
        {"exclude_modules",
         {.target_pattern = "all-linear", .exclude_modules = NAMES("down_proj", "up_proj")},
         "model.layers.3.mlp.gate_proj",
         "model.layers.3.mlp.up_proj",
         5 * 22},
        {"an excluded pattern",
         {.target_modules = NAMES("q_proj"), .exclude_pattern = ".*layers\\.[0-9]\\..*"},
         "model.layers.10.self_attn.q_proj",
         "model.layers.9.self_attn.q_proj",
         12},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_module *model;
        ASSERT_OK(make_model("TinyLlama-1.1B", &model));
        ASSERT_OK(fsdp_lora_apply(model, &cases[i].config));
        if (count_adapters(model) != cases[i].n || !adapter_at(model, cases[i].selected) ||
            adapter_at(model, cases[i].not_selected))
            FAIL("%s: %d adapters", cases[i].what, count_adapters(model));
        fsdp_module_destroy(model);
    }
}

TEST(the_update_is_scaled_by_alpha_over_r)
{
    fsdp_module *model;
    const fsdp_lora_config config = {
        .r = 16,
        .lora_alpha = 32,
        .target_modules = NAMES("q_proj", "v_proj"),
        .rank_pattern = (const fsdp_lora_pattern[]){{"layers.0.*v_proj", 4}},
        .n_rank_pattern = 1,
        .alpha_pattern = (const fsdp_lora_pattern[]){{"v_proj", 6}, {".*q_proj", 7}},
        .n_alpha_pattern = 2};
    ASSERT_OK(make_model("TinyLlama-1.1B", &model));
    ASSERT_OK(fsdp_lora_apply(model, &config));
    const fsdp_adapter *v = adapter_at(model, "model.layers.0.self_attn.v_proj");
    ASSERT(v && v->scaling == 6.0f / 4.0f && v->b->shape[0] == 256 && v->b->shape[1] == 4);
    const fsdp_adapter *q = adapter_at(model, "model.layers.1.self_attn.q_proj");
    ASSERT(q && q->scaling == 7.0f / 16.0f && q->a->shape[0] == 16 && q->a->shape[1] == 2048);
    fsdp_module_destroy(model);

    /* peft puts the whole key into a group: each alternative may follow a dot. */
    const fsdp_lora_config alternatives = {.r = 16,
                                           .lora_alpha = 32,
                                           .target_modules = NAMES("q_proj", "v_proj"),
                                           .rank_pattern =
                                               (const fsdp_lora_pattern[]){{"q_proj|v_proj", 8}},
                                           .n_rank_pattern = 1};
    ASSERT_OK(make_model("TinyLlama-1.1B", &model));
    ASSERT_OK(fsdp_lora_apply(model, &alternatives));
    v = adapter_at(model, "model.layers.0.self_attn.v_proj");
    q = adapter_at(model, "model.layers.0.self_attn.q_proj");
    ASSERT(v && v->b->shape[1] == 8 && q && q->b->shape[1] == 8);
    fsdp_module_destroy(model);

    const fsdp_lora_config stable = {.r = 16, .lora_alpha = 32, .use_rslora = true};
    ASSERT_OK(make_model("gpt2", &model));
    ASSERT_OK(fsdp_lora_apply(model, &stable));
    const fsdp_adapter *c_attn = adapter_at(model, "transformer.h.0.attn.c_attn");
    ASSERT(c_attn && c_attn->transposed && c_attn->scaling == 8.0f);
    ASSERT_INT(c_attn->a->shape[1], 768);
    ASSERT_INT(c_attn->b->shape[0], 3 * 768);
    fsdp_module_destroy(model);
}

/* Return the number of elements of the parameters that are trained. */
static int64_t count_trained(fsdp_module *model)
{
    fsdp_parameter_list list;
    int64_t n = 0;
    if (fsdp_module_parameters(model, false, &list) != FSDP_OK)
        return -1;
    for (size_t i = 0; i < list.n; i++)
        if (fsdp_parameter_requires_grad(list.items[i].parameter))
            n += fsdp_parameter_numel(list.items[i].parameter);
    fsdp_parameter_list_free(&list);
    return n;
}

TEST(only_the_adapter_is_trained_unless_biases_or_modules_are_named)
{
    const int64_t adapter = 24 * (2 * 768 + 2 * 768), head = 2 * 768 + 2;
    const struct {
        fsdp_lora_config config;
        int64_t more;
    } cases[] = {{{.r = 2}, 0},
                 {{.r = 2, .bias = FSDP_LORA_BIAS_LORA_ONLY}, 24 * 768},
                 {{.r = 2, .modules_to_save = NAMES("pooler", "score")}, 768 * 768 + 768}};
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_module *model;
        ASSERT_OK(make_model("bert-base-uncased", &model));
        ASSERT_OK(fsdp_lora_apply(model, &cases[i].config));
        ASSERT_INT(count_trained(model), adapter + head + cases[i].more);
        fsdp_module_destroy(model);
    }
}

TEST(configurations_that_select_nothing_or_the_impossible_are_refused)
{
    const struct {
        fsdp_lora_config config;
        const char *message;
        fsdp_status status;
    } cases[] = {
        {{.target_modules = NAMES("qproj")},
         "target_modules: 'qproj': no layer has such a name",
         FSDP_ERR_INVALID},
        {{.target_pattern = "all-linear", .exclude_pattern = ".*"},
         "no layer has such a name",
         FSDP_ERR_INVALID},
        {{.target_modules = NAMES("lm_head")}, "is a part of the head", FSDP_ERR_UNSUPPORTED},
        {{.target_modules = NAMES("embed_tokens")},
         "is a Embedding; only linear layers",
         FSDP_ERR_UNSUPPORTED},
        {{.target_pattern = "(q_proj"}, "target_modules '(q_proj'", FSDP_ERR_FORMAT},
        {{.layers_to_transform = (const int64_t[]){0},
          .n_layers_to_transform = 1,
          .layers_pattern = NAMES("(layers")},
         "layers_pattern '(layers'",
         FSDP_ERR_FORMAT},
        {{.r = -1}, "r is -1", FSDP_ERR_INVALID},
        {{.lora_dropout = 1.0}, "lora_dropout is 1", FSDP_ERR_INVALID},
        {{.lora_alpha = (double)NAN}, "lora_alpha is nan", FSDP_ERR_INVALID},
        {{.target_pattern = "all-linear",
          .layers_to_transform = (const int64_t[]){0},
          .n_layers_to_transform = 1},
         "layers_to_transform needs target_modules",
         FSDP_ERR_INVALID},
        {{.modules_to_save = NAMES("scores")}, "modules_to_save: no module", FSDP_ERR_INVALID},
        {{.rank_pattern = (const fsdp_lora_pattern[]){{"q_proj", 1.5}}, .n_rank_pattern = 1},
         "a rank of rank_pattern is 1.5",
         FSDP_ERR_INVALID},
        {{.alpha_pattern = (const fsdp_lora_pattern[]){{"q_proj", (double)INFINITY}},
          .n_alpha_pattern = 1},
         "an alpha of alpha_pattern is inf",
         FSDP_ERR_INVALID},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        fsdp_module *model;
        ASSERT_OK(make_model("TinyLlama-1.1B", &model));
        const fsdp_status status = fsdp_lora_apply(model, &cases[i].config);
        ASSERT_INT(status, cases[i].status);
        if (!strstr(fsdp_last_error(), cases[i].message))
            FAIL("\"%s\" does not contain \"%s\"", fsdp_last_error(), cases[i].message);
        fsdp_module_destroy(model);
    }
}

TEST(a_model_has_one_adapter)
{
    fsdp_module *model;
    const fsdp_lora_config config = {.r = 2};
    ASSERT_OK(make_model("gpt2", &model));
    ASSERT_OK(fsdp_lora_apply(model, &config));
    ASSERT_ERROR(fsdp_lora_apply(model, &config), FSDP_ERR_STATE, "has an adapter already");
    fsdp_module_destroy(model);
}

TEST(the_first_list_of_a_path_says_which_block_it_is)
{
    fsdp_module *model;
    const fsdp_lora_config config = {.target_modules = NAMES("q"),
                                     .layers_to_transform = (const int64_t[]){1},
                                     .n_layers_to_transform = 1};
    ASSERT_OK(make_model("t5-small", &model));
    ASSERT_OK(fsdp_lora_apply(model, &config));
    ASSERT_INT(count_adapters(model), 3);
    ASSERT(adapter_at(model, "decoder.block.1.layer.1.EncDecAttention.q"));
    ASSERT(!adapter_at(model, "decoder.block.0.layer.1.EncDecAttention.q"));
    fsdp_module_destroy(model);
}
