/* A first layer that is checkpointed calls the embeddings itself (Note [Input of the first layer]
 * in src/nn/module.h). With any units and dtypes the result is bit for bit the same as without. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/kernels/kernels.h"
#include "src/nn/module.h"
#include "src/tensor/device.h"
#include "tests/models/checkpointing.h"

/* Bytes of activations that a forward keeps for its backward, with every layer checkpointed. */
static void measure_kept(fsdp_test *t, const fsdp_model_config *config, int64_t *bytes)
{
    model_case c;
    fsdp_scope *s;
    fsdp_memory_stats stats;
    const fsdp_fully_shard_options options = {.reshard_after_forward = FSDP_RESHARD_DEFAULT};
    model_case_shard(t, config, &options, &c);
    CHECK_HERE();
    ac_make_rows(t, config, false, &c.batch);
    CHECK_HERE();
    ASSERT_OK(ac_checkpoint_blocks(c.model, &(ac_options){0}, BLOCKS));
    ASSERT_OK(fsdp_scope_open(c.device, c.tape,
                              &(fsdp_scope_options){.batch = c.batch, .training = true}, &s));
    (void)fsdp_model_loss(s, c.model, 1.0f);
    ASSERT_OK(fsdp_scope_status(s));
    fsdp_device_memory(c.device, &stats);
    *bytes = stats.tag_allocated[FSDP_TAG_ACTIVATION];
    fsdp_scope_close(s);
    fsdp_tape_reset(c.tape);
    model_case_close(&c);
}

/* With one layer its input is kept. With two layers only the second layer's input is kept, and the
 * first one's is computed again from the ids. With three layers there is one more. */
TEST(the_input_of_the_first_layer_is_made_twice)
{
    static const char *const names[] = {"llama3", "t5_v1_1", "gpt2", "bert"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fsdp_model_config config;
        int64_t kept[3];
        ac_read_config(t, names[i], &config);
        CHECK_HERE();
        for (int n = 0; n < 3; n++) {
            ac_set_layers(&config, names[i], n + 1);
            measure_kept(t, &config, &kept[n]);
            CHECK_HERE();
        }
        const int64_t input = kept[2] - kept[1];
        ASSERT(input > 4000);
        if (kept[1] - kept[0] > input / 8) /* T5 also keeps its position bias */
            FAIL("%s: %lld bytes kept of one layer, %lld of two, %lld of three", names[i],
                 (long long)kept[0], (long long)kept[1], (long long)kept[2]);
    }
}

typedef struct model_classes {
    const char *name, *block, *body, *embeddings;
} model_classes;

static const model_classes models[] = {
    {"llama3", "LlamaDecoderLayer", "LlamaModel", "embed_tokens"},
    {"gpt2", "GPT2Block", "GPT2Model", "wte"},
    {"bert", "BertLayer", "BertEncoder", "embeddings"},
    {"t5_v1_1", "T5Block", "T5Stack", "shared"},
};

/* The modules that are units, and their compute dtype. */
typedef struct setup {
    const char *what;
    fsdp_dtype root, body, block;
    bool body_is_unit, nested,
        frozen; /* nested: the body is checkpointed too; frozen: the embeddings */
} setup;

static const setup setups[] = {
    {.what = "blocks"},
    {.what = "checkpointed in a checkpointed body", .nested = true},
    {.what = "frozen embeddings", .frozen = true},
    {.what = "blocks in bfloat16", .block = FSDP_DTYPE_BF16},
    {.what = "the root in bfloat16", .root = FSDP_DTYPE_BF16},
    {.what = "a body in bfloat16", .body = FSDP_DTYPE_BF16, .body_is_unit = true},
};

typedef struct chosen {
    const setup *setup;
    const model_classes *classes;
} chosen;

static void options_of_unit(const char *path, const fsdp_module *m, void *arg,
                            fsdp_fully_shard_options *options)
{
    const chosen *c = arg;
    const bool is_root = !*path, is_body = strcmp(fsdp_module_class(m), c->classes->body) == 0;
    fsdp_mp_policy *mp = &options->mp_policy;
    mp->param_dtype = is_root ? c->setup->root : is_body ? c->setup->body : c->setup->block;
    mp->set_output_dtype = !is_root;
    mp->output_dtype = c->setup->root;
}

static bool is_checkpointed(const char *path, const fsdp_module *m, void *arg)
{
    const chosen *c = arg;
    (void)path;
    return strcmp(fsdp_module_class(m), c->classes->block) == 0 ||
           (c->setup->nested && strcmp(fsdp_module_class(m), c->classes->body) == 0);
}

static void freeze(fsdp_test *t, fsdp_module *model, const char *part)
{
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_module_parameters(model, false, &list));
    for (size_t i = 0; i < list.n; i++)
        if (strstr(list.items[i].name, part))
            fsdp_parameter_set_requires_grad(list.items[i].parameter, false);
    fsdp_parameter_list_free(&list);
}

static void open_case(fsdp_test *t, const fsdp_model_config *config, const chosen *how,
                      bool checkpointed, model_case *c)
{
    *c = (model_case){0};
    ASSERT_OK(fsdp_device_create(NULL, &c->device));
    ASSERT_OK(fsdp_tape_create(&c->tape));
    ASSERT_OK(fsdp_model_create(config, &c->model));
    if (how->setup->frozen)
        freeze(t, c->model, how->classes->embeddings);
    CHECK_HERE();
    const char *units[] = {how->classes->block,
                           how->setup->body_is_unit ? how->classes->body : NULL, NULL};
    const fsdp_wrap_policy policy = {.kind = FSDP_WRAP_TRANSFORMER,
                                     .transformer_layer_cls = units,
                                     .unit_options = options_of_unit,
                                     .unit_options_arg = (void *)(uintptr_t)how};
    const fsdp_fully_shard_options options = {.reshard_after_forward = FSDP_RESHARD_DEFAULT};
    ASSERT_OK(fsdp_auto_wrap(c->model, &policy, t->group, c->device, &options));
    ASSERT_OK(fsdp_module_init(c->model, 1));
    if (checkpointed)
        ASSERT_OK(fsdp_apply_activation_checkpointing(c->model, is_checkpointed,
                                                      (void *)(uintptr_t)how, NULL));
    ac_make_rows(t, config, false, &c->batch);
}

static int64_t peak_of(const model_case *c, fsdp_tag tag)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(c->device, &stats);
    return stats.tag_peak[tag];
}

static void check_setup(fsdp_test *t, const chosen *how)
{
    fsdp_model_config config;
    model_case plain, again;
    double loss, loss_again;
    ac_read_config(t, how->classes->name, &config);
    CHECK_HERE();
    ac_set_layers(&config, how->classes->name, 3);
    open_case(t, &config, how, false, &plain);
    CHECK_HERE();
    open_case(t, &config, how, true, &again);
    CHECK_HERE();
    for (int step = 0; step < 2; step++) {
        ac_train_step(t, &plain, step, &loss);
        ac_train_step(t, &again, step, &loss_again);
        CHECK_HERE();
        if (loss != loss_again)
            FAIL("%s, %s: loss %.9g, not %.9g", how->classes->name, how->setup->what, loss_again,
                 loss);
        ac_compare(t, &plain, &again);
        CHECK_HERE();
    }
    /* Includes rows of the embeddings' gradients, which are reserved in both runs. */
    const int64_t grad = peak_of(&plain, FSDP_TAG_GRAD);
    if (peak_of(&again, FSDP_TAG_GRAD) > grad)
        FAIL("%s, %s: %lld bytes of gradients, without a second run %lld", how->classes->name,
             how->setup->what, (long long)peak_of(&again, FSDP_TAG_GRAD), (long long)grad);
    model_case_close(&plain);
    model_case_close(&again);
}

TEST_RANKS(units_and_dtypes_change_no_bit, 2)
{
    for (size_t m = 0; m < FSDP_LENGTH(models); m++)
        for (size_t i = 0; i < FSDP_LENGTH(setups); i++) {
            check_setup(t, &(chosen){&setups[i], &models[m]});
            CHECK_HERE();
        }
}

static int n_products;
static const fsdp_kernels *real_kernels;

static fsdp_status count_product(fsdp_kernel_context *c, const fsdp_gemm_args *args)
{
    n_products++;
    return real_kernels->gemm(c, args);
}

/* Counts the products of a step with frozen embeddings. They are called within the first layer or,
 * since they have hooks, before it. */
static void count_products(fsdp_test *t, const char *name, const char *embeddings, bool within,
                           int *products, int64_t *activations)
{
    static fsdp_region_hooks no_hooks;
    fsdp_model_config config;
    model_case c;
    double loss;
    ac_read_config(t, name, &config);
    CHECK_HERE();
    ac_set_layers(&config, name, 3);
    model_case_create(t, &config, &c);
    CHECK_HERE();
    fsdp_module *m = fsdp_module_find(c.model, embeddings);
    ASSERT(m);
    if (!within)
        ASSERT_OK(fsdp_module_add_hooks(m, &no_hooks, NULL));
    freeze(t, c.model, embeddings);
    CHECK_HERE();
    ac_make_rows(t, &config, false, &c.batch);
    ASSERT_OK(ac_checkpoint_blocks(c.model, &(ac_options){0}, BLOCKS));
    real_kernels = c.device->kernels;
    fsdp_kernels counting = *real_kernels;
    counting.gemm = count_product;
    c.device->kernels = &counting;
    n_products = 0;
    ac_train_step(t, &c, 0, &loss);
    c.device->kernels = real_kernels;
    *products = n_products;
    *activations = model_case_activations(&c);
    model_case_close(&c);
}

/* A lookup that needs no gradient is counted in both runs, so the second run stops in time. */
TEST(frozen_embeddings_cost_no_product)
{
    static const char *const names[][2] = {
        {"llama3", "model.embed_tokens"}, {"gpt2", "transformer.wte"}, {"bert", "bert.embeddings"}};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        int products[2];
        int64_t activations[2];
        for (int within = 0; within < 2; within++) {
            count_products(t, names[i][0], names[i][1], within, &products[within],
                           &activations[within]);
            CHECK_HERE();
        }
        ASSERT(products[0] > 20);
        ASSERT_INT(products[1], products[0]);
        if (activations[1] >= activations[0])
            FAIL("%s: %lld bytes of activations, kept %lld", names[i][0], (long long)activations[1],
                 (long long)activations[0]);
    }
}
