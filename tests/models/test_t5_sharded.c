/* T5 sharded compared with one rank, for shapes that divide badly, empty batches, dropout, mixed
 * precision, and on the meta device. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "tests/elements.h"
#include "tests/models/model_checks.h"
#include "tests/models/t5_shape.h"

static const int32_t source[] = {3, 9, 4, 16, 5, 8, 2, 1, 7, 7, 11, 1};
static const int32_t labels[] = {5, 2, 14, 1, -100, 6, 1};

static const fsdp_batch_row three_rows[] = {
    {.source = source, .labels = labels, .source_len = 5, .labels_len = 3},
    {.source = source + 5, .labels = labels + 3, .source_len = 7, .labels_len = 4},
    {.source = source + 2, .labels = labels, .source_len = 1, .labels_len = 7}};
static const model_rows three = {three_rows, 3};

/* --- sharded = unsharded, for shapes that divide badly --- */

static void check_shapes(fsdp_test *t)
{
    static const int64_t dims[][4] = {
        /* vocabulary, D, F, heads */
        {17, 15, 7, 3},
        {16, 16, 16, 2},
        {7, 1, 1, 1},
        {31, 17, 15, 3},
    };
    static const fsdp_hidden_act acts[] = {FSDP_HIDDEN_ACT_GELU_NEW, FSDP_HIDDEN_ACT_RELU,
                                           FSDP_HIDDEN_ACT_SILU, FSDP_HIDDEN_ACT_GELU};
    fsdp_model_config configs[FSDP_LENGTH(dims)];
    for (size_t i = 0; i < FSDP_LENGTH(dims); i++) {
        configs[i] = t5_odd_shape();
        fsdp_t5_config *c = &configs[i].t5;
        c->vocab_size = dims[i][0] < 17 ? 17 : dims[i][0];
        c->d_model = dims[i][1];
        c->d_ff = dims[i][2];
        c->num_heads = dims[i][3];
        c->is_gated_act = i % 2 == 0;
        c->dense_act_fn = acts[i];
        c->family = i < 2 ? FSDP_T5 : FSDP_UMT5;
        c->tie_word_embeddings = c->scale_decoder_outputs = i % 2 == 1;
    }
    model_check_shapes(t, configs, FSDP_LENGTH(dims), three);
}

TEST_RANKS(odd_shapes_on_2_ranks_give_one_ranks_numbers, 2)
{
    check_shapes(t);
}
TEST_RANKS(odd_shapes_on_3_ranks_give_one_ranks_numbers, 3)
{
    check_shapes(t);
}
TEST_RANKS(odd_shapes_on_4_ranks_give_one_ranks_numbers, 4)
{
    check_shapes(t);
}

/* Units may be smaller than blocks: single layers. A block around them has the rest, which may be
 * empty. */
TEST_RANKS(each_layer_may_be_a_unit, 2)
{
    static const char *const units[] = {
        "encoder.block.0.layer.0", "encoder.block.0.layer.1",
        "encoder.block.1.layer.1", "decoder.block.0.layer.0",
        "decoder.block.0.layer.1", "decoder.block.0.layer.2",
        "encoder.block.0",         "encoder.block.1",
        "decoder.block.0",         "",
    };
    const fsdp_model_config config = t5_odd_shape();
    model_case c = {0};
    ASSERT_OK(fsdp_device_create(NULL, &c.device));
    ASSERT_OK(fsdp_tape_create(&c.tape));
    ASSERT_OK(fsdp_model_create(&config, &c.model));
    for (size_t i = 0; i < FSDP_LENGTH(units); i++)
        ASSERT_OK(fsdp_fully_shard(fsdp_module_find(c.model, units[i]), t->group, c.device, NULL));
    ASSERT_OK(fsdp_module_init(c.model, 1));
    model_check_sharded(t, &config, three, &c);
}

/* --- nothing to do --- */

/* No rows; rows without labels; a row whose labels are all ignored. */
static void check_nothing_to_learn(fsdp_test *t)
{
    static const int32_t ignored[] = {-100, -100};
    const fsdp_batch_row rows[] = {
        {.source = source, .labels = NULL, .source_len = 4, .labels_len = 0},
        {.source = source, .labels = ignored, .source_len = 3, .labels_len = 2}};
    const fsdp_model_config config = t5_odd_shape();
    model_check_nothing_to_learn(t, &config, (model_rows){rows, 2});
}

TEST(a_batch_without_labels_has_loss_0_and_gradients_0)
{
    check_nothing_to_learn(t);
}
TEST_RANKS(a_batch_without_labels_has_loss_0_and_gradients_0_on_2_ranks, 2)
{
    check_nothing_to_learn(t);
}

/* Rank 1 has no rows, so the gradients are half of rank 0's. */
TEST_RANKS(a_rank_without_rows_takes_part, 2)
{
    model_case sharded, alone;
    fsdp_test single = {.rank = t->rank, .world_size = 1};
    double loss;
    const fsdp_model_config config = t5_odd_shape();
    model_case_create(t, &config, &sharded);
    model_case_create(&single, &config, &alone);
    CHECK_HERE();
    ASSERT_OK(fsdp_set_gradient_divide_factor(sharded.model, 1.0)); /* the sum over ranks */
    model_make_batch(t, &config, (model_rows){three_rows, t->rank ? 0 : 3}, &sharded.batch);
    model_make_batch(t, &config, three, &alone.batch);
    CHECK_HERE();
    model_case_step(t, &sharded, &loss);
    model_case_step(t, &alone, &loss);
    CHECK_HERE();
    model_case_compare_gradients(t, &sharded, &alone, model_case_spread(&sharded), 0.0f);
    CHECK_HERE();
    model_case_close(&sharded);
    model_case_close(&alone);
}

/* --- dropout --- */

TEST(dropout_is_drawn_by_step_and_leaf_and_off_outside_of_training)
{
    const fsdp_model_config config = t5_odd_shape();
    model_check_dropout(t, &config, three);
}

static void loss_with_dropout(fsdp_test *t, model_case *c, double *loss)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.training = true, .seed = 5, .step = 1, .batch = c->batch};
    ASSERT_OK(fsdp_scope_open(c->device, NULL, &options, &s));
    fsdp_tensor *value = fsdp_model_loss(s, c->model, 1.0f);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_item(value, loss));
    fsdp_scope_close(s);
}

/* Backward uses the masks of its forward: gradients agree with differences of the loss. */
TEST(gradients_under_dropout_are_those_of_the_masked_loss)
{
    fsdp_model_config config = t5_odd_shape();
    config.t5.dropout_rate = 0.2;
    model_case c;
    model_case_create(t, &config, &c);
    model_make_batch(t, &config, three, &c.batch);
    CHECK_HERE();
    fsdp_scope *s;
    fsdp_scope_options options = {.training = true, .seed = 5, .step = 1, .batch = c.batch};
    ASSERT_OK(fsdp_scope_open(c.device, c.tape, &options, &s));
    fsdp_tensor *value = fsdp_model_loss(s, c.model, 1.0f);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_backward(c.tape, &value, NULL, 1));
    fsdp_scope_close(s);
    const char *const probed[] = {"encoder.block.0.layer.0.SelfAttention.v",
                                  "decoder.block.0.layer.2.DenseReluDense.wo", "lm_head"};
    for (int i = 0; i < 3; i++) {
        fsdp_parameter *p = fsdp_module_parameter(fsdp_module_find(c.model, probed[i]), "weight");
        fsdp_tensor *local = fsdp_parameter_local(p);
        float *values = elements_of(local), before = values[4];
        double up, down, step = 1e-2;
        values[4] = before + (float)step;
        elements_changed(local, values);
        loss_with_dropout(t, &c, &up);
        values[4] = before - (float)step;
        elements_changed(local, values);
        loss_with_dropout(t, &c, &down);
        CHECK_HERE();
        values[4] = before;
        elements_changed(local, values);
        const float *grad = elements_of(fsdp_parameter_grad(p));
        ASSERT_NEAR(grad[4], (up - down) / (2 * step), 2e-2 * fmax(0.1, fabs((double)grad[4])));
    }
    model_case_close(&c);
}

/* --- mixed precision --- */

/* |a - b| / |b| over all gradients. PyTorch in bfloat16: 0.079 and 0.043. */
static double gradient_distance(fsdp_test *t, const model_case *a, const model_case *b)
{
    fsdp_parameter_list list;
    double apart = 0, whole = 0;
    if (fsdp_module_parameters(a->model, false, &list) != FSDP_OK)
        return (double)INFINITY;
    for (size_t i = 0; i < list.n; i++) {
        float *x = NULL, *y = NULL;
        model_case_gradient(t, a, list.items[i].name, &x);
        model_case_gradient(t, b, list.items[i].name, &y);
        for (int64_t k = 0; x && y && k < fsdp_parameter_numel(list.items[i].parameter); k++) {
            apart += pow((double)x[k] - (double)y[k], 2);
            whole += pow((double)y[k], 2);
        }
        fsdp_free(x);
        fsdp_free(y);
    }
    fsdp_parameter_list_free(&list);
    return sqrt(apart / whole);
}

TEST_RANKS(in_bfloat16_the_loss_is_near_float32s, 2)
{
    static const char *const names[] = {"t5_v1_0", "t5_v1_1"};
    fsdp_fully_shard_options options = {.mp_policy.param_dtype = FSDP_DTYPE_BF16};
    for (int i = 0; i < 2; i++) {
        model_case half, full;
        double half_loss, full_loss;
        model_case_open(t, names[i], "inputs", &options, &half);
        model_case_open(t, names[i], "inputs", NULL, &full);
        CHECK_HERE();
        model_case_step(t, &half, &half_loss);
        model_case_step(t, &full, &full_loss);
        CHECK_HERE();
        ASSERT_NEAR(half_loss, full_loss, 0.05);
        ASSERT(half_loss != full_loss);
        ASSERT_NEAR(gradient_distance(t, &half, &full), 0, 0.1);
        CHECK_HERE();
        model_case_close(&half);
        model_case_close(&full);
    }
}

/* --- the meta device --- */

static void check_meta(fsdp_test *t)
{
    enum {
        SOURCE = 400,
        TARGET = 400 /* more than the head's chunk of 352 rows */
    };
    int32_t many[SOURCE + TARGET];
    for (int i = 0; i < SOURCE + TARGET; i++)
        many[i] = i % 17;
    for (int i = 0; i < 30; i++)
        many[SOURCE + 3 * i] = -100;
    const fsdp_batch_row rows[] = {
        {.source = many, .labels = many + SOURCE, .source_len = 100, .labels_len = 360},
        {.source = many + 100, .labels = many + SOURCE, .source_len = 300, .labels_len = 40}};
    fsdp_model_config config = t5_odd_shape();
    model_check_meta(t, &config, (model_rows){rows, 2});
    CHECK_HERE();
    fsdp_t5_config *c = &config.t5;
    c->vocab_size = 600;
    c->d_model = 16;
    c->d_ff = 33;
    c->relative_attention_num_buckets = 32;
    c->relative_attention_max_distance = 128;
    c->is_gated_act = false;
    c->dense_act_fn = FSDP_HIDDEN_ACT_RELU;
    model_check_meta(t, &config, (model_rows){rows, 2});
    CHECK_HERE();
    c->family = FSDP_UMT5;
    c->dense_act_fn = FSDP_HIDDEN_ACT_GELU;
    c->tie_word_embeddings = c->scale_decoder_outputs = true;
    model_check_meta(t, &config, (model_rows){rows, 2});
}

TEST_RANKS(it_asks_for_the_same_bytes_on_meta_at_1_rank, 1)
{
    if (UNDER_SANITIZER)
        SKIP("two ranks make the same accesses");
    check_meta(t);
}
TEST_RANKS(it_asks_for_the_same_bytes_on_meta_at_2_ranks, 2)
{
    check_meta(t);
}
