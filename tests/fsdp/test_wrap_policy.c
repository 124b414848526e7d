/* Which modules a wrap policy makes units, in toy trees and models; that all policies give the same
 * bits; fsdp_unit_get_info(), and how a tree is printed. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/str.h"
#include "src/pretrained/model.h"
#include "tests/fsdp/tree.h"
#include "tests/models/model_checks.h"
#include "tests/train/odd_models.h"

enum {
    LEAVES = 2,
    WIDTH = TREE_EXAMPLE_WIDTH
};

#define NAMES(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static fsdp_wrap_policy by_class(const char *const *classes)
{
    return (fsdp_wrap_policy){.kind = FSDP_WRAP_TRANSFORMER, .transformer_layer_cls = classes};
}

static fsdp_wrap_policy by_size(int64_t min_num_params)
{
    return (fsdp_wrap_policy){.kind = FSDP_WRAP_SIZE, .min_num_params = min_num_params};
}

/* --- units as text --- */

static fsdp_status append_unit(const char *path, fsdp_module *m, void *arg)
{
    fsdp_str *text = arg;
    if (*path && fsdp_module_is_unit(m))
        fsdp_str_printf(text, "%s%s", text->len ? " " : "", path);
    return FSDP_OK;
}

/* Check that the root is a unit, and that the units below it are `expected`: their paths, parents
 * first. */
static void check_units(fsdp_test *t, fsdp_module *root, const char *expected)
{
    fsdp_str text = {0};
    ASSERT(fsdp_module_is_unit(root));
    ASSERT_OK(fsdp_module_visit(root, append_unit, &text));
    char *paths = fsdp_str_take(&text);
    ASSERT_STR(paths, expected);
    fsdp_free(paths);
}

static int64_t numel_of(fsdp_module *root, const char *path)
{
    fsdp_unit_info info;
    return fsdp_unit_get_info(fsdp_module_find(root, path), &info) == FSDP_OK ? info.numel : -1;
}

static fsdp_status open_model(fsdp_group *group, const char *device,
                              const fsdp_model_config *config, trainee *m)
{
    FSDP_TRY(trainee_open(group, device, FSDP_DTYPE_F32, m));
    return fsdp_model_create(config, &m->model);
}

/* Check the units of the model `config` when wrapped by `policy`, without allocating memory. */
static void check_model_units(fsdp_test *t, const fsdp_model_config *config,
                              const fsdp_wrap_policy *policy, const char *expected)
{
    trainee m;
    ASSERT_OK(open_model(NULL, "meta", config, &m));
    ASSERT_OK(fsdp_auto_wrap(m.model, policy, NULL, m.device, NULL));
    check_units(t, m.model, expected);
    ASSERT_OK(trainee_close(&m));
}

/* --- by class --- */

TEST(blocks_and_modules_inside_them_are_chosen_by_class)
{
    const fsdp_wrap_policy blocks = by_class(NAMES("T5Block")),
                           stacks = by_class(NAMES("T5Stack", "T5Block")),
                           nested = by_class(
                               NAMES("BertSelfOutput", "BertLayer", "BertEmbeddings", "BertLayer")),
                           root = by_class(NAMES("T5ForConditionalGeneration"));
    check_model_units(t, &odd_t5, &blocks, "encoder.block.0 encoder.block.1 decoder.block.0");
    check_model_units(t, &odd_t5, &stacks,
                      "encoder encoder.block.0 encoder.block.1 decoder decoder.block.0");
    check_model_units(t, &odd_t5, &root, "");
    fsdp_model_config bert = odd_bert;
    bert.bert.num_hidden_layers = 2;
    check_model_units(t, &bert, &nested,
                      "bert.embeddings bert.encoder.layer.0 "
                      "bert.encoder.layer.0.attention.output bert.encoder.layer.1 "
                      "bert.encoder.layer.1.attention.output");
}

TEST(no_policy_and_none_wrap_the_root_alone)
{
    const fsdp_wrap_policy none = {.kind = FSDP_WRAP_NONE};
    check_model_units(t, &odd_t5, &none, "");
    check_model_units(t, &odd_t5, NULL, "");
}

static void refuse(fsdp_test *t, trainee *m, const fsdp_wrap_policy *policy, const char *text)
{
    ASSERT_ERROR(fsdp_auto_wrap(m->model, policy, NULL, m->device, NULL), FSDP_ERR_INVALID, text);
    ASSERT(!fsdp_module_is_unit(m->model));
    ASSERT(!fsdp_module_is_unit(fsdp_module_find(m->model, "encoder.block.0")));
}

static bool wrap_all(const char *path, const fsdp_module *module, void *arg,
                     fsdp_fully_shard_options *options)
{
    (void)path, (void)module, (void)arg, (void)options;
    return true;
}

TEST(what_is_no_policy_is_refused_and_changes_nothing)
{
    trainee m;
    ASSERT_OK(open_model(NULL, "meta", &odd_t5, &m));
    const fsdp_wrap_policy typo = by_class(NAMES("T5Block", "T5Blok")),
                           capitals = by_class(NAMES("t5BLOCK")),
                           far = by_class(NAMES("GPTNeoXLayer")),
                           linear = by_class(NAMES("T5Block", "Linear")),
                           empty = by_class(NAMES(NULL)), null = by_class(NULL), size = by_size(-1),
                           custom = {.kind = FSDP_WRAP_CUSTOM},
                           all = {.kind = FSDP_WRAP_CUSTOM, .custom = wrap_all},
                           blocks = by_class(NAMES("T5Block"));
    refuse(t, &m, &typo, "T5Blok: no module of this model is one; did you mean T5Block?");
    refuse(t, &m, &typo,
           "Units can be: T5Stack, T5Block, T5LayerSelfAttention, T5LayerFF, "
           "T5LayerCrossAttention");
    refuse(t, &m, &capitals, "did you mean T5Block? Units can be: ");
    refuse(t, &m, &far, "GPTNeoXLayer: no module of this model is one. Units can be: T5Stack");
    refuse(t, &m, &linear, "Linear: module '");
    refuse(t, &m, &linear, "' has no forward of its own, the module around it reads it");
    refuse(t, &m, &empty, "names no class");
    refuse(t, &m, &null, "names no class");
    refuse(t, &m, &size, "min_num_params is -1");
    refuse(t, &m, &custom, "no function");
    refuse(t, &m, &all, "'shared' (Embedding) has no forward of its own");
    ASSERT_ERROR(fsdp_auto_wrap(m.model, &blocks, NULL, NULL, NULL), FSDP_ERR_INVALID, "device");
    ASSERT_OK(fsdp_auto_wrap(m.model, &blocks, NULL, m.device, NULL));
    ASSERT_ERROR(fsdp_auto_wrap(m.model, &blocks, NULL, m.device, NULL), FSDP_ERR_INVALID,
                 "is a unit already");
    ASSERT_OK(trainee_close(&m));
}

/* --- by size --- */

static void rename_class(fsdp_module *m, const char *class_name)
{
    fsdp_free(m->class_name);
    m->class_name = fsdp_strdup(class_name);
}

/* The example's numels, of width 7: root 77, first 63, second 105, second.inner 49. */
static void check_sizes(fsdp_test *t, const fsdp_wrap_policy *policy, const char *second,
                        const char *expected)
{
    trainee m;
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(WIDTH, &m.model));
    rename_class(trainee_unit(&m, "second"), second);
    ASSERT_OK(fsdp_auto_wrap(m.model, policy, NULL, m.device, NULL));
    check_units(t, m.model, expected);
    ASSERT_OK(trainee_close(&m));
}

TEST(a_module_is_chosen_if_enough_of_its_parameters_are_left)
{
    static const struct {
        int64_t least;
        const char *second, *expected;
    } cases[] = {
        {1, "Tree", "first second second.inner"},
        {49, "Tree", "first second second.inner"},
        {50, "Tree", "first second"}, /* second then has 154 elements */
        {64, "Tree", "second"},
        {154, "Tree", "second"},
        {155, "Tree", ""},
        {0, "Tree", ""},
        {49, "ModuleList", "first second.inner"},
        {50, "ModuleDict", "first"},
        {49, "MultiheadAttention", "first"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fsdp_wrap_policy policy = by_size(cases[i].least);
        check_sizes(t, &policy, cases[i].second, cases[i].expected);
        CHECK_HERE();
    }
}

TEST(other_classes_can_be_excluded_or_leaves)
{
    fsdp_wrap_policy policy = by_size(49);
    policy.exclude_wrap_modules = NAMES("Tree");
    check_sizes(t, &policy, "ModuleList", "second");
    policy.exclude_wrap_modules = NULL;
    policy.force_leaf_modules = NAMES("Other", "Second");
    check_sizes(t, &policy, "Second", "first");
    check_sizes(t, &policy, "MultiheadAttention", "first second second.inner");
}

/* `second` has 154 elements, 49 of which are in second.inner. */
TEST(what_is_in_joint_modules_does_not_count_for_the_module_around_them)
{
    for (int least = 49; least <= 106; least++) {
        trainee m;
        fsdp_wrap_policy policy = by_size(least);
        ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
        ASSERT_OK(tree_example(WIDTH, &m.model));
        fsdp_module *const joint[] = {trainee_unit(&m, "first"), trainee_unit(&m, "second.inner")};
        policy.joint_modules = joint;
        policy.n_joint_modules = 2;
        ASSERT_OK(fsdp_auto_wrap(m.model, &policy, NULL, m.device, NULL));
        check_units(t, m.model, least <= 105 ? "first second second.inner" : "first second.inner");
        CHECK_HERE();
        ASSERT_OK(trainee_close(&m));
    }
}

/* `second` has 175 elements, 21 of which are in second.inner.deep. That second.inner is too small
 * for a unit does not hide the joint module in it. */
TEST(a_joint_module_in_a_small_module_does_not_count_either)
{
    for (int least = 154; least <= 155; least++) {
        trainee m;
        fsdp_module *deep;
        fsdp_wrap_policy policy = by_size(least);
        ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
        ASSERT_OK(tree_example(WIDTH, &m.model));
        ASSERT_OK(tree_add(trainee_unit(&m, "second.inner"), "deep", WIDTH, 1, &deep));
        policy.joint_modules = &deep;
        policy.n_joint_modules = 1;
        ASSERT_OK(fsdp_auto_wrap(m.model, &policy, NULL, m.device, NULL));
        check_units(t, m.model, least == 154 ? "second second.inner.deep" : "second.inner.deep");
        CHECK_HERE();
        ASSERT_OK(trainee_close(&m));
    }
}

/* Without its two matrices, `second` has 56 elements, including those of modules inside it. */
TEST(what_is_ignored_does_not_count)
{
    for (int enough = 0; enough < 2; enough++) {
        trainee m;
        const fsdp_wrap_policy policy = by_size(enough ? 56 : 57);
        ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
        ASSERT_OK(tree_example(WIDTH, &m.model));
        const tree *second = tree_of(trainee_unit(&m, "second"));
        fsdp_parameter *ignored[] = {second->up, second->down};
        const fsdp_fully_shard_options options = {.ignored_params = ignored, .n_ignored_params = 2};
        ASSERT_OK(fsdp_auto_wrap(m.model, &policy, NULL, m.device, &options));
        check_units(t, m.model, enough ? "first second" : "first");
        CHECK_HERE();
        ASSERT_OK(trainee_close(&m));
    }
}

/* Layers 0 and 1 form one unit, although there are units inside them. The units inside them have no
 * neighbors, so they are not joined. */
TEST(neighbors_may_be_one_unit)
{
    const char *const *classes = NAMES("BertLayer", "BertSelfOutput");
    fsdp_wrap_policy policy = by_class(classes);
    fsdp_unit_info info[2];
    trainee m;
    policy.modules_per_unit = 2;
    ASSERT_OK(open_model(NULL, "meta", &odd_bert, &m));
    ASSERT_OK(fsdp_auto_wrap(m.model, &policy, NULL, m.device, NULL));
    fsdp_module *layers[2] = {fsdp_module_find(m.model, "bert.encoder.layer.0"),
                              fsdp_module_find(m.model, "bert.encoder.layer.1")};
    fsdp_module *inside = fsdp_module_find(m.model, "bert.encoder.layer.1.attention.output");
    for (int i = 0; i < 2; i++)
        ASSERT_OK(fsdp_unit_get_info(layers[i], &info[i]));
    ASSERT(info[0].first_module == layers[0] && info[1].first_module == layers[0]);
    ASSERT_INT(info[0].numel, info[1].numel);
    ASSERT_OK(fsdp_unit_get_info(inside, &info[1]));
    ASSERT(info[1].first_module == inside);
    ASSERT_OK(trainee_close(&m));
    policy.modules_per_unit = -1;
    ASSERT_OK(open_model(NULL, "meta", &odd_bert, &m));
    ASSERT_ERROR(fsdp_auto_wrap(m.model, &policy, NULL, m.device, NULL), FSDP_ERR_INVALID,
                 "modules_per_unit is -1");
    ASSERT_OK(trainee_close(&m));
}

/* bfloat16 for the root, float16 for layer 1. */
static void set_dtypes(const char *path, const fsdp_module *module, void *arg,
                       fsdp_fully_shard_options *options)
{
    (void)module;
    ++*(int *)arg;
    if (!*path)
        options->mp_policy.param_dtype = FSDP_DTYPE_BF16;
    if (strcmp(path, "model.layers.1") == 0)
        options->mp_policy.param_dtype = FSDP_DTYPE_F16;
}

TEST(units_may_have_options_of_their_own)
{
    static const struct {
        const char *path;
        fsdp_dtype dtype;
    } expected[] = {{"", FSDP_DTYPE_BF16},
                    {"model.layers.0", FSDP_DTYPE_F32},
                    {"model.layers.1", FSDP_DTYPE_F16}};
    int calls = 0;
    fsdp_wrap_policy policy = by_class(NAMES("LlamaDecoderLayer"));
    trainee m;
    policy.unit_options = set_dtypes;
    policy.unit_options_arg = &calls;
    ASSERT_OK(open_model(NULL, "meta", &odd_llama, &m));
    ASSERT_OK(fsdp_auto_wrap(m.model, &policy, NULL, m.device, NULL));
    for (size_t i = 0; i < 3; i++) {
        fsdp_unit_info info;
        ASSERT_OK(fsdp_unit_get_info(fsdp_module_find(m.model, expected[i].path), &info));
        ASSERT_INT(info.mp_policy.param_dtype, expected[i].dtype);
    }
    ASSERT_INT(calls, 3);
    ASSERT_OK(trainee_close(&m));
    /* Layers 0 and 1 form one unit, and the function chooses float16 only for layer 1. */
    policy.modules_per_unit = 2;
    ASSERT_OK(open_model(NULL, "meta", &odd_llama, &m));
    ASSERT_ERROR(fsdp_auto_wrap(m.model, &policy, NULL, m.device, NULL), FSDP_ERR_INVALID,
                 "'model.layers.1' is in one unit with 'model.layers.0'");
    ASSERT_OK(trainee_close(&m));
    policy.modules_per_unit = 0;
    ASSERT_OK(open_model(NULL, "meta", &odd_llama, &m));
    policy.joint_modules = (fsdp_module *[]){fsdp_module_find(m.model, "model.layers.0"),
                                             fsdp_module_find(m.model, "model.layers.1")};
    policy.n_joint_modules = 2;
    ASSERT_ERROR(fsdp_auto_wrap(m.model, &policy, NULL, m.device, NULL), FSDP_ERR_INVALID,
                 "'model.layers.1' is in one unit with 'model.layers.0'");
    ASSERT_OK(trainee_close(&m));
}

static int shard_dim_0(const char *name, const fsdp_parameter *parameter, void *arg)
{
    (void)name, (void)parameter, (void)arg;
    return 0;
}

/* Give model.layers.1 another value of option number *arg. */
static void set_one_option(const char *path, const fsdp_module *module, void *arg,
                           fsdp_fully_shard_options *options)
{
    static char here[] = "here";
    (void)module;
    if (strcmp(path, "model.layers.1") != 0)
        return;
    switch (*(const int *)arg) {
    case 0:
        options->set_internode_reduce_dtype = true;
        options->internode_reduce_dtype = FSDP_DTYPE_BF16;
        break;
    case 1:
        options->shard_placement_fn = shard_dim_0;
        break;
    case 2:
        options->sync_module_states = true;
        break;
    case 3:
        options->offload_policy.dir = "there";
        break;
    case 4: /* the same path at another address */
        options->offload_policy.dir = here;
        break;
    case 5: /* all units have that of the outermost one */
        options->backward_prefetch = FSDP_BACKWARD_NONE;
        break;
    }
}

/* A member of a joint unit has another option than the unit, which would have no effect. */
TEST(a_member_of_a_joint_unit_cannot_have_other_options)
{
    const fsdp_fully_shard_options options = {
        .offload_policy = {.kind = FSDP_OFFLOAD_DIR, .dir = "here"}};
    fsdp_wrap_policy policy = by_class(NAMES("LlamaDecoderLayer"));
    policy.modules_per_unit = 2;
    policy.unit_options = set_one_option;
    for (int i = 0; i < 6; i++) {
        trainee m;
        policy.unit_options_arg = &i;
        ASSERT_OK(open_model(NULL, "meta", &odd_llama, &m));
        if (i < 4)
            ASSERT_ERROR(fsdp_auto_wrap(m.model, &policy, NULL, m.device, &options),
                         FSDP_ERR_INVALID, "'model.layers.1' is in one unit with 'model.layers.0'");
        else
            ASSERT_OK(fsdp_auto_wrap(m.model, &policy, NULL, m.device, &options));
        ASSERT_OK(trainee_close(&m));
    }
}

/* T5-base's stacks have 85 and 113 million parameters of their own, and share 25 million. */
TEST(shared_parameters_count_for_the_module_around_all_their_names)
{
    fsdp_model_config config;
    const fsdp_wrap_policy policy = by_size(0);
    ASSERT_OK(fsdp_model_config_preset("t5-base", &config));
    check_model_units(t, &config, &policy, "decoder");
}

/* --- by a function --- */

static bool choose_second(const char *path, const fsdp_module *module, void *arg,
                          fsdp_fully_shard_options *options)
{
    fsdp_str *asked = arg;
    (void)module;
    fsdp_str_printf(asked, "%s ", path);
    if (strcmp(path, "second") != 0)
        return false;
    options->reshard_after_forward = FSDP_RESHARD_FALSE;
    options->mp_policy.param_dtype = FSDP_DTYPE_BF16;
    return true;
}

TEST_RANKS(a_function_chooses_and_gives_a_unit_its_options, 2)
{
    trainee m;
    fsdp_str asked = {0};
    fsdp_unit_info info;
    const fsdp_wrap_policy policy = {
        .kind = FSDP_WRAP_CUSTOM, .custom = choose_second, .custom_arg = &asked};
    const fsdp_fully_shard_options options = {.reshard_after_forward = FSDP_RESHARD_TRUE};
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(WIDTH, &m.model));
    ASSERT_OK(fsdp_auto_wrap(m.model, &policy, t->group, m.device, &options));
    check_units(t, m.model, "second");
    ASSERT_STR(asked.data, "first second.inner second ");
    ASSERT_OK(fsdp_unit_get_info(trainee_unit(&m, "second"), &info));
    ASSERT(!info.reshard_after_forward && info.mp_policy.param_dtype == FSDP_DTYPE_BF16);
    ASSERT_OK(fsdp_unit_get_info(m.model, &info));
    ASSERT(info.reshard_after_forward && info.mp_policy.param_dtype == FSDP_DTYPE_F32);
    fsdp_str_fini(&asked);
    ASSERT_OK(trainee_close(&m));
}

/* --- the same bits --- */

static const int32_t ids[] = {3, 9, 4, 16, 5, 8, 2, 1, 7, 7, 11, 1};
static const int32_t labels[] = {5, 2, 14, 1, -100, 6, 1};
static const fsdp_batch_row t5_rows[] = {
    {.source = ids, .labels = labels, .source_len = 5, .labels_len = 3},
    {.source = ids + 5, .labels = labels + 3, .source_len = 7, .labels_len = 4}};
static const fsdp_batch_row bert_rows[] = {
    {.source = ids, .labels = &labels[1], .source_len = 5, .labels_len = 1},
    {.source = ids + 5, .labels = &labels[3], .source_len = 7, .labels_len = 1}};

static fsdp_status train_leaf(trainee *m, const fsdp_batch *batch, int step, int micro_step,
                              int n_micro_steps)
{
    fsdp_scope *s;
    const fsdp_scope_options options = {
        .training = true,
        .step = (uint32_t)step,
        .micro_batch = (uint32_t)(micro_step * trainee_world_size(m) + trainee_rank(m)),
        .batch = batch,
        .micro_step = micro_step,
        .n_micro_steps = n_micro_steps};
    FSDP_TRY(fsdp_scope_open(m->device, m->tape, &options, &s));
    fsdp_tensor *loss = fsdp_model_loss(s, m->model, 0.25f);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_backward(m->tape, &loss, NULL, 1);
    fsdp_scope_close(s);
    return status;
}

/* Two steps of two leaves with dropout, from weights drawn by name. */
static fsdp_status train(trainee *m, const fsdp_batch *batch)
{
    const int micro_steps = LEAVES / trainee_world_size(m);
    FSDP_TRY(fsdp_module_init(m->model, 3));
    FSDP_TRY(fsdp_set_gradient_divide_factor(m->model, LEAVES));
    for (int step = 0; step < 2; step++) {
        fsdp_module_zero_grad(m->model);
        for (int a = 0; a < micro_steps; a++)
            FSDP_TRY(train_leaf(m, batch, step, a, micro_steps));
        FSDP_TRY(tree_sgd(m->model, 0.1f));
    }
    return FSDP_OK;
}

/* Check that two ranks with `policy` give the bits of one rank with a single unit. */
static void check_bits(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                       const fsdp_wrap_policy *policy, const fsdp_fully_shard_options *options)
{
    trainee m, one;
    fsdp_batch *batch;
    model_make_batch(t, config, rows, &batch);
    CHECK_HERE();
    ASSERT_OK(open_model(t->group, NULL, config, &m));
    ASSERT_OK(open_model(NULL, NULL, config, &one));
    ASSERT_OK(fsdp_auto_wrap(m.model, policy, t->group, m.device, options));
    ASSERT_OK(fsdp_auto_wrap(one.model, NULL, NULL, one.device, options));
    ASSERT_OK(train(&m, batch));
    ASSERT_OK(train(&one, batch));
    ASSERT_OK(tree_same_params(&m, &one));
    fsdp_batch_release(batch);
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&one));
}

static void check_bits_of_all(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                              const fsdp_wrap_policy *policies, size_t n)
{
    fsdp_model_config dropping = *config;
    fsdp_model_config_set_dropout(&dropping, 0.2);
    for (size_t i = 0; i < n; i++)
        for (size_t v = 0; v < TREE_VARIANTS; v++) {
            check_bits(t, &dropping, rows, &policies[i], &tree_variants[v]);
            CHECK_HERE();
        }
}

/* With T5Stack as the only class: encoder, decoder and head read the root's embedding. */
TEST_RANKS(t5_trains_to_the_same_bits_with_any_policy, 2)
{
    const fsdp_wrap_policy policies[] = {
        by_class(NAMES("T5Block")), by_class(NAMES("T5Stack")),
        by_class(NAMES("T5Block", "T5LayerSelfAttention", "T5LayerFF", "T5Stack")), by_size(1000),
        by_size(1)};
    fsdp_model_config tied = odd_t5;
    tied.t5.tie_word_embeddings = true;
    check_bits_of_all(t, &tied, (model_rows){t5_rows, 2}, policies,
                      sizeof policies / sizeof *policies);
}

TEST_RANKS(bert_trains_to_the_same_bits_with_any_policy, 2)
{
    const fsdp_wrap_policy policies[] = {
        by_class(NAMES("BertLayer", "BertEmbeddings", "BertSelfOutput")),
        by_class(NAMES("BertModel")), by_size(500), by_size(1)};
    check_bits_of_all(t, &odd_bert, (model_rows){bert_rows, 2}, policies,
                      sizeof policies / sizeof *policies);
}

/* --- shared parameters --- */

TEST_RANKS(t5_s_shared_embedding_stays_with_the_root, 2)
{
    trainee m;
    const fsdp_t5_config *c = &odd_t5.t5;
    fsdp_model_config tied = odd_t5;
    tied.t5.tie_word_embeddings = true;
    const fsdp_wrap_policy stacks = by_class(NAMES("T5Stack"));
    ASSERT_OK(open_model(t->group, NULL, &tied, &m));
    ASSERT_OK(fsdp_auto_wrap(m.model, &stacks, t->group, m.device, NULL));
    check_units(t, m.model, "encoder decoder");
    ASSERT_INT(numel_of(m.model, ""), c->vocab_size * c->d_model);
    ASSERT_OK(trainee_close(&m));
}

/* A matrix that inner and second share. */
static fsdp_status open_tied(fsdp_group *group, const fsdp_fully_shard_options *o,
                             const fsdp_wrap_policy *policy, trainee *m)
{
    FSDP_TRY(trainee_open(group, NULL, o->mp_policy.param_dtype, m));
    FSDP_TRY(tree_example(WIDTH, &m->model));
    fsdp_module *second = trainee_unit(m, "second"), *inner = trainee_unit(m, "second.inner");
    FSDP_TRY(fsdp_module_add_parameter(inner, "tied", 2, (int64_t[]){WIDTH, WIDTH},
                                       (fsdp_init){.std = 0.3f}, &tree_of(inner)->tied));
    tree_of(second)->tied = tree_of(inner)->tied;
    FSDP_TRY(fsdp_module_share_parameter(second, "tied", tree_of(inner)->tied));
    FSDP_TRY(fsdp_auto_wrap(m->model, policy, group, m->device, o));
    return fsdp_module_init(m->model, 5);
}

TEST_RANKS(a_parameter_of_two_units_belongs_to_the_one_around_both, 2)
{
    const fsdp_wrap_policy all = by_size(1);
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee m, one;
        ASSERT_OK(open_tied(t->group, &tree_variants[v], &all, &m));
        ASSERT_OK(open_tied(NULL, &tree_variants[v], NULL, &one));
        check_units(t, m.model, "first second second.inner");
        ASSERT_INT(numel_of(m.model, "second.inner"), 49);
        ASSERT_INT(numel_of(m.model, "second"), 105 + WIDTH * WIDTH);
        ASSERT_INT(numel_of(m.model, ""), 77);
        for (int step = 0; step < 3; step++) {
            ASSERT_OK(tree_step(&m, step, LEAVES));
            ASSERT_OK(tree_step(&one, step, LEAVES));
        }
        ASSERT_OK(tree_same_params(&m, &one));
        ASSERT_OK(trainee_close(&m));
        ASSERT_OK(trainee_close(&one));
    }
}

/* --- unit info --- */

TEST_RANKS(the_info_of_a_unit_has_its_numbers, 2)
{
    trainee m;
    fsdp_unit_info info;
    const fsdp_fully_shard_options options = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}};
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_BF16, &m));
    ASSERT_OK(tree_example(WIDTH, &m.model));
    ASSERT_ERROR(fsdp_unit_get_info(m.model, &info), FSDP_ERR_INVALID, "is no unit");
    const fsdp_wrap_policy large = by_size(105);
    ASSERT_OK(fsdp_auto_wrap(m.model, &large, t->group, m.device, &options));
    ASSERT_OK(fsdp_unit_get_info(m.model, &info));
    ASSERT(info.group == t->group && !info.no_shard && !info.reshard_after_forward);
    ASSERT_INT(info.mp_policy.param_dtype, FSDP_DTYPE_BF16);
    ASSERT_INT(info.mp_policy.master_dtype, FSDP_DTYPE_F32);
    ASSERT_INT(info.n_parameters, 6);
    ASSERT_INT(info.numel, 77 + 63);
    /* The first rank has 4 of 7 rows of the norms and of `down`, 3 of 5 and 2 of 4 rows of `up`. */
    const int64_t first = 4 + 3 * 7 + 4 * 5 + 4 + 2 * 7 + 4 * 4;
    ASSERT_INT(info.local_numel, t->rank ? 77 + 63 - first : first);
    ASSERT_OK(fsdp_unit_get_info(trainee_unit(&m, "second"), &info));
    ASSERT(info.reshard_after_forward);
    ASSERT_OK(trainee_close(&m));
}

/* --- printing --- */

static char *printed(fsdp_module *m, fsdp_print_form form)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    const fsdp_status status = fsdp_module_print(m, out, form);
    fclose(out);
    if (status == FSDP_OK)
        return text;
    free(text);
    return NULL;
}

static void check_printed(fsdp_test *t, fsdp_module *m, fsdp_print_form form, const char *expected)
{
    char *text = printed(m, form);
    ASSERT_STR(text, expected);
    free(text);
}

TEST(a_tree_without_units_is_printed_as_torch_prints_it)
{
    fsdp_module *m;
    fsdp_model_config config = odd_t5;
    config.t5.num_layers = 3;
    config.t5.dropout_rate = 0.1;
    ASSERT_OK(fsdp_model_create(&config, &m));
    check_printed(t, fsdp_module_find(m, "encoder.block.1"), FSDP_PRINT_FSDP1,
                  "T5Block(\n"
                  "  (layer): ModuleList(\n"
                  "    (0): T5LayerSelfAttention(\n"
                  "      (SelfAttention): T5Attention(\n"
                  "        (q): Linear(in_features=24, out_features=45, bias=False)\n"
                  "        (k): Linear(in_features=24, out_features=45, bias=False)\n"
                  "        (v): Linear(in_features=24, out_features=45, bias=False)\n"
                  "        (o): Linear(in_features=45, out_features=24, bias=False)\n"
                  "      )\n"
                  "      (layer_norm): T5LayerNorm()\n"
                  "      (dropout): Dropout(p=0.1, inplace=False)\n"
                  "    )\n"
                  "    (1): T5LayerFF(\n"
                  "      (DenseReluDense): T5DenseGatedActDense(\n"
                  "        (wi_0): Linear(in_features=24, out_features=40, bias=False)\n"
                  "        (wi_1): Linear(in_features=24, out_features=40, bias=False)\n"
                  "        (wo): Linear(in_features=40, out_features=24, bias=False)\n"
                  "        (dropout): Dropout(p=0.1, inplace=False)\n"
                  "        (act): NewGELUActivation()\n"
                  "      )\n"
                  "      (layer_norm): T5LayerNorm()\n"
                  "      (dropout): Dropout(p=0.1, inplace=False)\n"
                  "    )\n"
                  "  )\n"
                  ")\n");
    char *text = printed(fsdp_module_find(m, "encoder"), FSDP_PRINT_FSDP2);
    ASSERT(strstr(text, "\n  (embed_tokens): Embedding(97, 24)\n"));
    ASSERT(strstr(text, "\n    (0): T5Block(\n"));
    ASSERT(strstr(text, "\n    (1-2): 2 x T5Block(\n"));
    free(text);
    fsdp_module_destroy(m);
}

static void check_lines(fsdp_test *t, const fsdp_model_config *config, const char *const *lines)
{
    fsdp_module *m;
    ASSERT_OK(fsdp_model_create(config, &m));
    char *text = printed(m, FSDP_PRINT_FSDP2);
    for (; *lines; lines++)
        if (!strstr(text, *lines))
            FAIL("'%s' is missing in:\n%s", *lines, text);
    free(text);
    fsdp_module_destroy(m);
}

TEST(layers_are_printed_as_torch_prints_them)
{
    fsdp_model_config gpt2 = odd_gpt2, bert = odd_bert, llama = odd_llama;
    llama.llama.rms_norm_eps = 1e-6;
    check_lines(t, &llama, NAMES("(norm): LlamaRMSNorm((23,), eps=1e-06)\n"));
    gpt2.gpt2.layer_norm_epsilon = 1e-5;
    gpt2.gpt2.attn_pdrop = 0.0;
    gpt2.gpt2.resid_pdrop = 0.125;
    gpt2.gpt2.embd_pdrop = 0.3;
    check_lines(t, &gpt2,
                NAMES("(c_attn): Conv1D(nf=75, nx=25)\n", "(wte): Embedding(71, 25)\n",
                      "(ln_f): LayerNorm((25,), eps=1e-05, elementwise_affine=True, bias=True)\n",
                      "(attn_dropout): Dropout(p=0.0, inplace=False)\n",
                      "(resid_dropout): Dropout(p=0.125, inplace=False)\n",
                      "(drop): Dropout(p=0.3, inplace=False)\n"));
    bert.bert.layer_norm_eps = 1e-12;
    bert.bert.hidden_dropout_prob = 0.1;
    bert.bert.attention_probs_dropout_prob = 0.2;
    bert.bert.classifier_dropout = 0.3;
    check_lines(t, &bert,
                NAMES("padding_idx=0)\n", "out_features=3, bias=True)\n", "eps=1e-12, element",
                      "\n  (dropout): Dropout(p=0.3, inplace=False)\n",
                      "\n      (dropout): Dropout(p=0.1, inplace=False)\n",
                      "\n              (dropout): Dropout(p=0.2, inplace=False)\n"));
}

/* Make a tree with a list of six modules, four of which are equal neighbors. The class of the list
 * is `class_name`. */
static fsdp_status list_tree(const char *class_name, fsdp_module **root)
{
    static const int64_t hidden[] = {2, 3, 3, 3, 3, 2};
    char name[2] = "0";
    fsdp_module *list, *child;
    FSDP_TRY(tree_add(NULL, "", WIDTH, 0, root));
    FSDP_TRY(tree_add(*root, "list", WIDTH, 0, &list));
    rename_class(list, class_name);
    for (; *name < '6'; ++*name) {
        FSDP_TRY(tree_add(list, name, WIDTH, hidden[*name - '0'], &child));
        rename_class(child, "Block");
    }
    return FSDP_OK;
}

static void check_list(fsdp_test *t, fsdp_print_form form, const char *expected)
{
    trainee m;
    const fsdp_wrap_policy blocks = by_class(NAMES("Block"));
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(list_tree("ModuleList", &m.model));
    ASSERT_OK(fsdp_auto_wrap(m.model, &blocks, NULL, m.device, NULL));
    check_printed(t, m.model, form, expected);
    ASSERT_OK(trainee_close(&m));
}

TEST(units_are_printed_as_fsdp2_and_as_fsdp1_prints_them)
{
    check_list(t, FSDP_PRINT_FSDP2,
               "FSDPTree(  # float32, 0 of 0 elements\n"
               "  (list): ModuleList(\n"
               "    (0): FSDPBlock()  # float32, 35 of 35 elements\n"
               "    (1-4): 4 x FSDPBlock()  # float32, 49 of 49 elements\n"
               "    (5): FSDPBlock()  # float32, 35 of 35 elements\n"
               "  )\n"
               ")\n");
    check_list(t, FSDP_PRINT_FSDP1,
               "FullyShardedDataParallel(  # float32, 0 of 0 elements\n"
               "  (_fsdp_wrapped_module): Tree(\n"
               "    (list): ModuleList(\n"
               "      (0): FullyShardedDataParallel(  # float32, 35 of 35 elements\n"
               "        (_fsdp_wrapped_module): Block()\n"
               "      )\n"
               "      (1-4): 4 x FullyShardedDataParallel(  # float32, 49 of 49 elements\n"
               "        (_fsdp_wrapped_module): Block()\n"
               "      )\n"
               "      (5): FullyShardedDataParallel(  # float32, 35 of 35 elements\n"
               "        (_fsdp_wrapped_module): Block()\n"
               "      )\n"
               "    )\n"
               "  )\n"
               ")\n");
}

TEST(only_a_module_list_is_printed_short)
{
    fsdp_module *m;
    ASSERT_OK(list_tree("Sequential", &m));
    char *text = printed(m, FSDP_PRINT_FSDP2);
    ASSERT(strstr(text, "    (1): Block()\n    (2): Block()\n"));
    free(text);
    fsdp_module_destroy(m);
}

TEST_RANKS(a_unit_s_line_says_dtypes_and_this_rank_s_share, 2)
{
    trainee m;
    const fsdp_wrap_policy large = by_size(154);
    const fsdp_fully_shard_options options = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}};
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_BF16, &m));
    ASSERT_OK(tree_example(WIDTH, &m.model));
    ASSERT_OK(fsdp_auto_wrap(m.model, &large, t->group, m.device, &options));
    char *text = printed(m.model, FSDP_PRINT_FSDP2);
    const char *head = t->rank ? "\n  (second): FSDPTree(  # bfloat16 of float32, reduced in "
                                 "float32, 64 of 154 elements"
                               : "\n  (second): FSDPTree(  # bfloat16 of float32, reduced in "
                                 "float32, 90 of 154 elements";
    ASSERT(strstr(text, head));
    ASSERT(strstr(text, " elements\n    (inner): Tree()\n  )\n"));
    free(text);
    ASSERT_OK(trainee_close(&m));
}

TEST(a_unit_s_line_says_in_which_dtype_it_reduces_and_what_it_returns)
{
    static const struct {
        fsdp_mp_policy policy;
        const char *line;
    } cases[] = {{{.reduce_dtype = FSDP_DTYPE_BF16}, "# float32, reduced in bfloat16, 49 of"},
                 {{.param_dtype = FSDP_DTYPE_BF16, .reduce_dtype = FSDP_DTYPE_BF16},
                  "# bfloat16 of float32, 49 of"},
                 {{.set_output_dtype = true, .output_dtype = FSDP_DTYPE_BF16},
                  "# float32, returns bfloat16, 49 of"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trainee m;
        const fsdp_fully_shard_options options = {.mp_policy = cases[i].policy};
        ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
        ASSERT_OK(tree_add(NULL, "", WIDTH, 3, &m.model));
        ASSERT_OK(fsdp_fully_shard(m.model, NULL, m.device, &options));
        char *text = printed(m.model, FSDP_PRINT_FSDP2);
        if (!text || !strstr(text, cases[i].line))
            FAIL("'%s' is missing in %s", cases[i].line, text ? text : "(null)");
        free(text);
        ASSERT_OK(trainee_close(&m));
    }
}

TEST(a_full_disk_is_reported)
{
    fsdp_module *m;
    FILE *full = fopen("/dev/full", "w");
    if (!full)
        SKIP("there is no /dev/full");
    ASSERT_OK(tree_example(WIDTH, &m));
    ASSERT_ERROR(fsdp_module_print(m, full, FSDP_PRINT_FSDP2), FSDP_ERR_IO, "No space left");
    fsdp_module_destroy(m);
    fclose(full);
}

/* --- out of memory --- */

TEST(every_failing_allocation_is_reported_and_nothing_leaks)
{
    fsdp_status status = FSDP_ERR_NOMEM;
    const fsdp_wrap_policy all = by_size(1);
    for (long n = 1; status != FSDP_OK; n++) {
        trainee m;
        char *text = NULL;
        size_t length;
        ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
        ASSERT_OK(tree_example(WIDTH, &m.model));
        FILE *out = open_memstream(&text, &length);
        fsdp_alloc_fail_at(n);
        status = fsdp_auto_wrap(m.model, &all, NULL, m.device, NULL);
        if (status == FSDP_OK)
            status = fsdp_module_print(m.model, out, FSDP_PRINT_FSDP1);
        fsdp_alloc_fail_at(0);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
        fclose(out);
        free(text);
        ASSERT_OK(trainee_close(&m));
        ASSERT(n < 2000);
    }
}
