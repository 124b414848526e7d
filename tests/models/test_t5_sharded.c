/* T5 sharded against T5 alone, for shapes that divide badly, batches with nothing in them, dropout,
 * mixed precision. */
#include <stdio.h>

#include "src/base/alloc.h"
#include "tests/models/t5_case.h"

static const fsdp_t5_config odd_shape = {.vocab_size = 17,
                                         .d_model = 15,
                                         .d_ff = 7,
                                         .d_kv = 5,
                                         .num_layers = 2,
                                         .num_decoder_layers = 1,
                                         .num_heads = 3,
                                         .relative_attention_num_buckets = 8,
                                         .relative_attention_max_distance = 20,
                                         .layer_norm_epsilon = 1e-6,
                                         .initializer_factor = 1.0,
                                         .is_gated_act = true,
                                         .eos_token_id = 1};

static const int32_t source[] = {3, 9, 4, 16, 5, 8, 2, 1, 7, 7, 11, 1};
static const int32_t labels[] = {5, 2, 14, 1, -100, 6, 1};

static void make_batch(fsdp_test *t, const fsdp_batch_row *rows, int n, fsdp_batch **batch)
{
    ASSERT_OK(fsdp_batch_create(rows, n, NULL, batch));
}

/* --- sharded = unsharded, for shapes that divide badly --- */

static const fsdp_batch_row three_rows[] = {
    {.source = source, .labels = labels, .source_len = 5, .labels_len = 3},
    {.source = source + 5, .labels = labels + 3, .source_len = 7, .labels_len = 4},
    {.source = source + 2, .labels = labels, .source_len = 1, .labels_len = 7}};

static void assert_close(fsdp_test *t, const char *name, const float *x, const float *y, int64_t n,
                         float tolerance)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(y[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i] - y[i]) <= tolerance * largest))
            FAIL("%s[%lld] is %g, not %g", name, (long long)i, (double)x[i], (double)y[i]);
}

/* Gradients of `a` and `b`, which both ran a step; tolerance 0: to the last bit. */
static void compare_gradients(fsdp_test *t, const t5_case *a, const t5_case *b, float tolerance)
{
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_module_parameters(a->model, false, &list));
    for (size_t i = 0; i < list.n; i++) {
        float *x, *y;
        t5_case_gradient(t, a, list.items[i].name, &x);
        t5_case_gradient(t, b, list.items[i].name, &y);
        CHECK_HERE();
        assert_close(t, list.items[i].name, x, y, fsdp_parameter_numel(list.items[i].parameter),
                     tolerance);
        CHECK_HERE();
        fsdp_free(x);
        fsdp_free(y);
    }
    fsdp_parameter_list_free(&list);
}

static void check_sharding(fsdp_test *t, const fsdp_t5_config *config,
                           const fsdp_fully_shard_options *options)
{
    t5_case sharded, alone;
    double sharded_loss, alone_loss;
    fsdp_test single = {.rank = t->rank, .world_size = 1};
    t5_case_create(t, config, options, &sharded);
    t5_case_create(&single, config, NULL, &alone);
    CHECK_HERE();
    ASSERT(!single.failed);
    make_batch(t, three_rows, 3, &sharded.batch);
    CHECK_HERE();
    alone.batch = fsdp_batch_retain(sharded.batch);
    for (int step = 0; step < 2; step++) { /* the second one prefetches */
        fsdp_module_zero_grad(sharded.model);
        fsdp_module_zero_grad(alone.model);
        t5_case_step(t, &sharded, &sharded_loss);
        t5_case_step(t, &alone, &alone_loss);
        CHECK_HERE();
        ASSERT_F32(sharded_loss, alone_loss);
        /* the mean of 3 equal numbers may round */
        compare_gradients(t, &sharded, &alone, t->world_size == 3 ? 3e-7f : 0.0f);
        CHECK_HERE();
    }
    t5_case_close(&sharded);
    t5_case_close(&alone);
}

static void check_shapes(fsdp_test *t)
{
    static const int64_t dims[][4] = {
        /* vocabulary, D, F, heads */
        {17, 15, 7, 3},
        {16, 16, 16, 2},
        {7, 1, 1, 1},
        {31, 17, 15, 3},
    };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        fsdp_t5_config config = odd_shape;
        config.vocab_size = dims[i][0] < 17 ? 17 : dims[i][0];
        config.d_model = dims[i][1];
        config.d_ff = dims[i][2];
        config.num_heads = dims[i][3];
        config.is_gated_act = i % 2 == 0;
        config.tie_word_embeddings = config.scale_decoder_outputs = i % 2 == 1;
        check_sharding(t, &config, NULL);
        CHECK_HERE();
    }
    fsdp_fully_shard_options keep = {.reshard_after_forward = FSDP_RESHARD_FALSE};
    check_sharding(t, &odd_shape, &keep);
    CHECK_HERE();
    fsdp_fully_shard_options whole = {.no_shard = true};
    check_sharding(t, &odd_shape, &whole);
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

/* Units may be smaller than blocks: layers by themselves, the blocks around them with what is left,
 * which may be nothing. */
TEST_RANKS(each_layer_may_be_a_unit, 2)
{
    static const char *const units[] = {
        "encoder.block.0.layer.0", "encoder.block.0.layer.1", "encoder.block.1.layer.1",
        "decoder.block.0.layer.0", "decoder.block.0.layer.1", "decoder.block.0.layer.2",
    };
    t5_case sharded = {0}, alone;
    double sharded_loss, alone_loss;
    fsdp_test single = {.rank = t->rank, .world_size = 1};
    t5_case_create(&single, &odd_shape, NULL, &alone);
    ASSERT(!single.failed);
    ASSERT_OK(fsdp_device_create(NULL, &sharded.device));
    ASSERT_OK(fsdp_tape_create(&sharded.tape));
    ASSERT_OK(fsdp_t5_create(&odd_shape, &sharded.model));
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        ASSERT_OK(fsdp_fully_shard(fsdp_module_find(sharded.model, units[i]), t->group,
                                   sharded.device, NULL));
    t5_case_shard(t, NULL, &sharded);
    CHECK_HERE();
    ASSERT_OK(fsdp_module_init(sharded.model, 1));
    make_batch(t, three_rows, 3, &sharded.batch);
    CHECK_HERE();
    alone.batch = fsdp_batch_retain(sharded.batch);
    for (int step = 0; step < 2; step++) {
        fsdp_module_zero_grad(sharded.model);
        fsdp_module_zero_grad(alone.model);
        t5_case_step(t, &sharded, &sharded_loss);
        t5_case_step(t, &alone, &alone_loss);
        CHECK_HERE();
        ASSERT_F32(sharded_loss, alone_loss);
        compare_gradients(t, &sharded, &alone, 0.0f);
        CHECK_HERE();
    }
    t5_case_close(&sharded);
    t5_case_close(&alone);
}

/* --- nothing to do --- */

static void assert_zero_gradients(fsdp_test *t, const t5_case *c)
{
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_module_parameters(c->model, false, &list));
    for (size_t i = 0; i < list.n; i++) {
        float *g;
        t5_case_gradient(t, c, list.items[i].name, &g);
        CHECK_HERE();
        for (int64_t k = 0; k < fsdp_parameter_numel(list.items[i].parameter); k++)
            ASSERT_F32(g[k], 0.0);
        fsdp_free(g);
    }
    fsdp_parameter_list_free(&list);
}

/* No rows; rows without labels; a row whose labels are all ignored. */
static void check_empty(fsdp_test *t)
{
    const int32_t ignored[] = {-100, -100};
    const fsdp_batch_row rows[] = {
        {.source = source, .labels = NULL, .source_len = 4, .labels_len = 0},
        {.source = source, .labels = ignored, .source_len = 3, .labels_len = 2}};
    for (int n = 0; n <= 2; n++) {
        t5_case c;
        double loss = 1;
        t5_case_create(t, &odd_shape, NULL, &c);
        CHECK_HERE();
        make_batch(t, rows, n, &c.batch);
        CHECK_HERE();
        t5_case_step(t, &c, &loss);
        CHECK_HERE();
        ASSERT_F32(loss, 0.0);
        assert_zero_gradients(t, &c);
        CHECK_HERE();
        t5_case_close(&c);
    }
}

TEST(a_batch_without_labels_has_loss_0_and_gradients_0)
{
    check_empty(t);
}
TEST_RANKS(a_batch_without_labels_has_loss_0_and_gradients_0_on_2_ranks, 2)
{
    check_empty(t);
}

/* Rank 1 has nothing: the gradients are half of rank 0's. */
TEST_RANKS(a_rank_without_rows_takes_part, 2)
{
    t5_case sharded, alone;
    fsdp_test single = {.rank = t->rank, .world_size = 1};
    double loss;
    t5_case_create(t, &odd_shape, NULL, &sharded);
    t5_case_create(&single, &odd_shape, NULL, &alone);
    CHECK_HERE();
    ASSERT_OK(fsdp_set_gradient_divide_factor(sharded.model, 1.0)); /* the sum over ranks */
    make_batch(t, three_rows, t->rank ? 0 : 3, &sharded.batch);
    make_batch(t, three_rows, 3, &alone.batch);
    CHECK_HERE();
    t5_case_step(t, &sharded, &loss);
    t5_case_step(t, &alone, &loss);
    CHECK_HERE();
    compare_gradients(t, &sharded, &alone, 0.0f);
    CHECK_HERE();
    t5_case_close(&sharded);
    t5_case_close(&alone);
}

/* --- dropout --- */

static void loss_with_dropout(fsdp_test *t, t5_case *c, bool training, uint32_t step, double *loss)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.training = training, .seed = 5, .step = step, .batch = c->batch};
    ASSERT_OK(fsdp_scope_open(c->device, NULL, &options, &s));
    fsdp_tensor *value = fsdp_t5_loss(s, c->model, 1.0f);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_item(value, loss));
    fsdp_scope_close(s);
}

TEST(dropout_is_drawn_by_step_and_off_outside_of_training)
{
    fsdp_t5_config config = odd_shape;
    config.dropout_rate = 0.3;
    t5_case c;
    double first, again, other, off, plain;
    t5_case_create(t, &config, NULL, &c);
    make_batch(t, three_rows, 3, &c.batch);
    CHECK_HERE();
    loss_with_dropout(t, &c, true, 1, &first);
    loss_with_dropout(t, &c, true, 1, &again);
    loss_with_dropout(t, &c, true, 2, &other);
    loss_with_dropout(t, &c, false, 1, &off);
    loss_with_dropout(t, &c, false, 2, &plain);
    CHECK_HERE();
    ASSERT_F32(again, first);
    ASSERT(other != first && off != first);
    ASSERT_F32(off, plain);
    t5_case_close(&c);
}

/* Backward repeats the masks of its forward: gradients agree with differences of the loss. */
TEST(gradients_under_dropout_are_those_of_the_masked_loss)
{
    fsdp_t5_config config = odd_shape;
    config.dropout_rate = 0.2;
    t5_case c;
    t5_case_create(t, &config, NULL, &c);
    make_batch(t, three_rows, 3, &c.batch);
    CHECK_HERE();
    fsdp_scope *s;
    fsdp_scope_options options = {.training = true, .seed = 5, .step = 1, .batch = c.batch};
    ASSERT_OK(fsdp_scope_open(c.device, c.tape, &options, &s));
    fsdp_tensor *value = fsdp_t5_loss(s, c.model, 1.0f);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_backward(c.tape, &value, NULL, 1));
    fsdp_scope_close(s);
    const char *const probed[] = {"encoder.block.0.layer.0.SelfAttention.v",
                                  "decoder.block.0.layer.2.DenseReluDense.wo", "lm_head"};
    for (int i = 0; i < 3; i++) {
        fsdp_parameter *p = fsdp_module_parameter(fsdp_module_find(c.model, probed[i]), "weight");
        float *values = fsdp_tensor_data(fsdp_parameter_local(p)), before = values[4];
        double up, down, step = 1e-2;
        values[4] = before + (float)step;
        loss_with_dropout(t, &c, true, 1, &up);
        values[4] = before - (float)step;
        loss_with_dropout(t, &c, true, 1, &down);
        CHECK_HERE();
        values[4] = before;
        const float *grad = fsdp_tensor_data(fsdp_parameter_grad(p));
        ASSERT_NEAR(grad[4], (up - down) / (2 * step), 2e-2 * fmax(0.1, fabs((double)grad[4])));
    }
    t5_case_close(&c);
}

/* --- mixed precision --- */

/* |a - b| / |b| over all gradients. PyTorch in bfloat16: 0.079 and 0.043. */
static double gradient_distance(fsdp_test *t, const t5_case *a, const t5_case *b)
{
    fsdp_parameter_list list;
    double apart = 0, whole = 0;
    if (fsdp_module_parameters(a->model, false, &list) != FSDP_OK)
        return (double)INFINITY;
    for (size_t i = 0; i < list.n; i++) {
        float *x = NULL, *y = NULL;
        t5_case_gradient(t, a, list.items[i].name, &x);
        t5_case_gradient(t, b, list.items[i].name, &y);
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
        t5_case half, full;
        double half_loss, full_loss;
        t5_case_open(t, names[i], &options, &half);
        t5_case_open(t, names[i], NULL, &full);
        CHECK_HERE();
        t5_case_step(t, &half, &half_loss);
        t5_case_step(t, &full, &full_loss);
        CHECK_HERE();
        ASSERT_NEAR(half_loss, full_loss, 0.05);
        ASSERT(half_loss != full_loss);
        ASSERT_NEAR(gradient_distance(t, &half, &full), 0, 0.1);
        CHECK_HERE();
        t5_case_close(&half);
        t5_case_close(&full);
    }
}
