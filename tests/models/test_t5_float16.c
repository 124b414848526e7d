/* T5 whose feed-forward layers exceed float16's range. The residual stream is clamped, so loss,
 * gradients and decoding stay close to float32's. */
#include "src/base/alloc.h"
#include "src/models/t5_decode.h"
#include "tests/elements.h"
#include "tests/models/checkpointing.h"
#include "tests/models/t5_shape.h"

static const int32_t source[] = {3, 9, 4, 16, 5, 8, 2, 1, 7, 7, 11, 1};
static const int32_t labels[] = {5, 2, 14, 1, 3, 6, 1};
static const fsdp_batch_row two_rows[] = {
    {.source = source, .labels = labels, .source_len = 5, .labels_len = 4},
    {.source = source + 5, .labels = labels + 4, .source_len = 7, .labels_len = 3}};
static const model_rows rows = {two_rows, 2};
static const fsdp_fully_shard_options in_float16 = {.mp_policy.param_dtype = FSDP_DTYPE_F16};

static fsdp_model_config shape(void)
{
    fsdp_model_config config = t5_odd_shape();
    config.t5.d_model = 16;
    config.t5.d_ff = 24;
    config.t5.num_decoder_layers = 2;
    config.t5.is_gated_act = false;
    config.t5.dense_act_fn = FSDP_HIDDEN_ACT_RELU;
    config.t5.scale_decoder_outputs = config.t5.tie_word_embeddings = true;
    return config;
}

/* Feed-forward layers then give about 1e5; float16 ends at 65504. */
static void enlarge(fsdp_test *t, fsdp_module *model)
{
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_module_parameters(model, false, &list));
    for (size_t i = 0; i < list.n; i++) {
        fsdp_tensor *local = fsdp_parameter_local(list.items[i].parameter);
        if (!strstr(list.items[i].name, "DenseReluDense.wo") || !fsdp_tensor_numel(local))
            continue;
        ASSERT_OK(fsdp_tensor_begin_write(local));
        float *values = elements_of(local);
        for (int64_t k = 0; k < fsdp_tensor_numel(local); k++)
            values[k] *= 30000.0f;
        elements_changed(local, values);
        fsdp_tensor_end_write(local);
    }
    fsdp_parameter_list_free(&list);
}

static void open_case(fsdp_test *t, const fsdp_fully_shard_options *options, model_case *c)
{
    const fsdp_model_config config = shape();
    model_case_shard(t, &config, options, c);
    CHECK_HERE();
    enlarge(t, c->model);
    CHECK_HERE();
    model_make_batch(t, &config, rows, &c->batch);
}

static void check_loss(fsdp_test *t)
{
    model_case half, full;
    double half_loss, full_loss;
    fsdp_parameter_list list;
    open_case(t, &in_float16, &half);
    open_case(t, NULL, &full);
    CHECK_HERE();
    model_case_step(t, &half, &half_loss);
    model_case_step(t, &full, &full_loss);
    CHECK_HERE();
    ASSERT_NEAR(half_loss, full_loss, 0.02 * full_loss);
    ASSERT_OK(fsdp_module_parameters(half.model, false, &list));
    for (size_t i = 0; i < list.n; i++) {
        float *gradient = NULL;
        model_case_gradient(t, &half, list.items[i].name, &gradient);
        CHECK_HERE();
        for (int64_t k = 0; k < fsdp_parameter_numel(list.items[i].parameter); k++)
            ASSERT(isfinite(gradient[k]));
        fsdp_free(gradient);
    }
    fsdp_parameter_list_free(&list);
    model_case_close(&half);
    model_case_close(&full);
}

TEST_RANKS(loss_and_gradients_are_finite, 1)
{
    check_loss(t);
}
TEST_RANKS(loss_and_gradients_are_finite_on_2_ranks, 2)
{
    check_loss(t);
}

/* The second run of a block clamps the same values as the first. */
TEST_RANKS(blocks_that_run_again_give_the_same_bits, 1)
{
    static const ac_scope scopes[] = {BLOCKS, NESTED_IN_BLOCKS, LAYERS};
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++) {
        model_case plain, again;
        double loss, loss_again;
        open_case(t, &in_float16, &plain);
        open_case(t, &in_float16, &again);
        CHECK_HERE();
        ASSERT_OK(ac_checkpoint_blocks(again.model, &(ac_options){0}, scopes[i]));
        model_case_step(t, &plain, &loss);
        model_case_step(t, &again, &loss_again);
        CHECK_HERE();
        ASSERT(loss == loss_again);
        ac_compare(t, &plain, &again);
        CHECK_HERE();
        model_case_close(&plain);
        model_case_close(&again);
    }
}

TEST_RANKS(decoding_gives_finite_logits, 1)
{
    enum {
        STEPS = 3
    };
    const fsdp_decoder *d = &fsdp_t5_decoder;
    static const int32_t ids[2] = {5, 3};
    model_case c;
    fsdp_decode_cache *cache;
    open_case(t, &in_float16, &c);
    CHECK_HERE();
    ASSERT_OK(d->create(c.model, &cache));
    for (int step = 0; step < STEPS; step++) {
        fsdp_scope *s;
        float logits[2 * 17];
        ASSERT_OK(fsdp_scope_open(c.device, NULL, &(fsdp_scope_options){.batch = c.batch}, &s));
        fsdp_tensor *out = step ? d->step(s, c.model, cache, ids) : d->prompt(s, c.model, cache);
        ASSERT_OK(fsdp_scope_status(s));
        ASSERT_INT(fsdp_tensor_numel(out), 2 * 17);
        ASSERT_OK(fsdp_tensor_to_floats(out, logits));
        for (int i = 0; i < 2 * 17; i++)
            ASSERT(isfinite(logits[i]));
        fsdp_scope_close(s);
    }
    d->destroy(cache);
    model_case_close(&c);
}

/* The plan of a run also counts what the clamp keeps. */
TEST_RANKS(it_asks_for_the_same_bytes_on_meta, 1)
{
    const fsdp_model_config config = shape();
    model_check_meta(t, &config, rows);
}
