/* See model_checks.h. */
#include "tests/models/model_checks.h"

#include <math.h>

#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/fsdp/state.h"
#include "src/pretrained/model.h"

void model_check_classes(fsdp_test *t, fsdp_module *model, const char *const (*expected)[2],
                         size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fsdp_module *m = fsdp_module_find(model, expected[i][0]);
        if (!m)
            FAIL("there is no %s", expected[i][0]);
        ASSERT_STR(fsdp_module_class(m), expected[i][1]);
    }
}

void model_make_batch(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                      fsdp_batch **batch)
{
    const fsdp_model_info info = fsdp_model_config_info(config);
    ASSERT_OK(fsdp_batch_create(rows.rows, rows.n, &info.format, batch));
}

/* The training loss of c->batch, and its gradients if `gradients`. */
static void train_step(fsdp_test *t, model_case *c, uint32_t step, uint32_t leaf, bool gradients,
                       double *loss)
{
    fsdp_scope *s;
    const int32_t labels = c->batch->label_tokens;
    fsdp_scope_options options = {
        .training = true, .seed = 5, .step = step, .micro_batch = leaf, .batch = c->batch};
    ASSERT_OK(fsdp_scope_open(c->device, gradients ? c->tape : NULL, &options, &s));
    fsdp_tensor *value = fsdp_model_loss(s, c->model, labels ? 1.0f / (float)labels : 0.0f);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_item(value, loss));
    if (gradients)
        ASSERT_OK(fsdp_backward(c->tape, &value, NULL, 1));
    fsdp_scope_close(s);
}

/* --- sharding --- */

void model_check_sharded(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                         model_case *sharded)
{
    model_case alone;
    fsdp_test single = {.rank = t->rank, .world_size = 1};
    model_case_create(&single, config, &alone);
    ASSERT(!single.failed);
    model_make_batch(t, config, rows, &sharded->batch);
    CHECK_HERE();
    alone.batch = fsdp_batch_retain(sharded->batch);
    for (uint32_t step = 0; step < 2; step++) { /* the second step prefetches */
        double sharded_loss, alone_loss;
        fsdp_module_zero_grad(sharded->model);
        fsdp_module_zero_grad(alone.model);
        train_step(t, sharded, step, 3, true, &sharded_loss);
        train_step(t, &alone, step, 3, true, &alone_loss);
        CHECK_HERE();
        const float spread = model_case_spread(sharded);
        ASSERT_NEAR(sharded_loss, alone_loss, (double)spread * fabs(alone_loss));
        model_case_compare_gradients(t, sharded, &alone,
                                     t->world_size == 3 ? 3e-7f + spread : spread, 0.0f);
        CHECK_HERE();
    }
    model_case_close(sharded);
    model_case_close(&alone);
}

void model_check_sharding(fsdp_test *t, const fsdp_model_config *config,
                          const fsdp_fully_shard_options *options, model_rows rows)
{
    model_case sharded;
    model_case_shard(t, config, options, &sharded);
    CHECK_HERE();
    model_check_sharded(t, config, rows, &sharded);
}

void model_check_shapes(fsdp_test *t, const fsdp_model_config *configs, size_t n, model_rows rows)
{
    for (size_t i = 0; i < n; i++) {
        fsdp_model_config config = configs[i];
        model_check_sharding(t, &config, NULL, rows);
        CHECK_HERE();
        fsdp_model_config_set_dropout(&config, 0.2);
        model_check_sharding(t, &config, NULL, rows);
        CHECK_HERE();
    }
    const fsdp_fully_shard_options keep = {.reshard_after_forward = FSDP_RESHARD_FALSE};
    const fsdp_fully_shard_options whole = {.no_shard = true};
    model_check_sharding(t, &configs[0], &keep, rows);
    CHECK_HERE();
    model_check_sharding(t, &configs[0], &whole, rows);
}

static fsdp_status put_in_sections(const char *path, fsdp_module *m, void *arg)
{
    (void)path, (void)arg;
    if (m->fsdp_state)
        ((fsdp_state *)m->fsdp_state)->param_group->grads.least_in_sections = 0;
    return FSDP_OK;
}

/* Checks that the gradient of `name` in one of `n` models is the mean of theirs. */
static void compare_with_mean(fsdp_test *t, const char *name, int64_t numel, const model_case *c,
                              const model_case *alone, int n)
{
    float *got, *one, *mean = fsdp_calloc((size_t)numel, sizeof *mean);
    ASSERT(mean);
    for (int r = 0; r < n; r++) {
        model_case_gradient(t, &alone[r], name, &one);
        CHECK_HERE();
        for (int64_t i = 0; i < numel; i++)
            mean[i] += one[i] / (float)n;
        fsdp_free(one);
    }
    model_case_gradient(t, c, name, &got);
    CHECK_HERE();
    for (int64_t i = 0; i < numel; i++)
        if (!(fabsf(got[i] - mean[i]) <= 1e-6f + 1e-5f * fabsf(mean[i])))
            FAIL("%s[%lld] is %g, not %g", name, (long long)i, (double)got[i], (double)mean[i]);
    fsdp_free(got);
    fsdp_free(mean);
}

void model_check_batches_of_ranks(fsdp_test *t, const fsdp_model_config *config,
                                  const model_rows *rows)
{
    model_case sharded, *alone = fsdp_calloc((size_t)t->world_size, sizeof *alone);
    fsdp_test single = {.rank = t->rank, .world_size = 1};
    fsdp_parameter_list list;
    double loss;
    ASSERT(alone);
    model_case_shard(t, config, NULL, &sharded);
    CHECK_HERE();
    ASSERT_OK(fsdp_module_visit(sharded.model, put_in_sections, NULL));
    model_make_batch(t, config, rows[t->rank], &sharded.batch);
    model_case_step(t, &sharded, &loss);
    CHECK_HERE();
    for (int r = 0; r < t->world_size; r++) {
        model_case_create(&single, config, &alone[r]);
        ASSERT(!single.failed);
        model_make_batch(t, config, rows[r], &alone[r].batch);
        model_case_step(t, &alone[r], &loss);
        CHECK_HERE();
    }
    ASSERT_OK(fsdp_module_parameters(sharded.model, false, &list));
    for (size_t i = 0; i < list.n; i++) {
        compare_with_mean(t, list.items[i].name, fsdp_parameter_numel(list.items[i].parameter),
                          &sharded, alone, t->world_size);
        CHECK_HERE();
    }
    fsdp_parameter_list_free(&list);
    for (int r = 0; r < t->world_size; r++)
        model_case_close(&alone[r]);
    fsdp_free(alone);
    model_case_close(&sharded);
}

/* --- nothing to do --- */

static void assert_zero_gradients(fsdp_test *t, const model_case *c)
{
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_module_parameters(c->model, false, &list));
    for (size_t i = 0; i < list.n; i++) {
        float *g;
        model_case_gradient(t, c, list.items[i].name, &g);
        CHECK_HERE();
        for (int64_t k = 0; k < fsdp_parameter_numel(list.items[i].parameter); k++)
            ASSERT_F32(g[k], 0.0);
        fsdp_free(g);
    }
    fsdp_parameter_list_free(&list);
}

void model_check_nothing_to_learn(fsdp_test *t, const fsdp_model_config *config,
                                  model_rows unlabelled)
{
    for (int32_t n = 0; n <= unlabelled.n; n++) {
        model_case c;
        double loss = 1;
        model_case_create(t, config, &c);
        CHECK_HERE();
        model_make_batch(t, config, (model_rows){unlabelled.rows, n}, &c.batch);
        CHECK_HERE();
        model_case_step(t, &c, &loss);
        CHECK_HERE();
        ASSERT_F32(loss, 0.0);
        assert_zero_gradients(t, &c);
        CHECK_HERE();
        model_case_close(&c);
    }
}

/* --- rows --- */

/* The number of rows of logits for one row of a batch. */
static size_t logits_rows(fsdp_task task, const fsdp_batch_row *row)
{
    if (task == FSDP_TASK_CLASSIFICATION)
        return 1;
    return (size_t)(task == FSDP_TASK_SEQ2SEQ ? row->labels_len : row->source_len);
}

/* Logits of rows `first` and `second`, owned by the caller, and their number. */
static void logits_of_two(fsdp_test *t, model_case *c, const fsdp_model_config *config,
                          const fsdp_batch_row *first, const fsdp_batch_row *second, float **logits)
{
    const fsdp_batch_row rows[] = {*first, *second};
    fsdp_batch_release(c->batch);
    c->batch = NULL;
    model_make_batch(t, config, (model_rows){rows, 2}, &c->batch);
    CHECK_HERE();
    model_case_logits(t, c, logits);
}

void model_check_needs_batch(fsdp_test *t, const fsdp_model_config *config)
{
    model_case c;
    fsdp_scope *s;
    model_case_create(t, config, &c);
    CHECK_HERE();
    ASSERT_OK(fsdp_scope_open(c.device, NULL, NULL, &s));
    ASSERT(!fsdp_model_loss(s, c.model, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "no batch");
    fsdp_scope_close(s);
    model_case_close(&c);
}

void model_check_rows_are_apart(fsdp_test *t, const fsdp_model_config *config,
                                const fsdp_batch_row *first, const fsdp_batch_row *other,
                                const fsdp_batch_row *second)
{
    model_case c;
    float *x, *y;
    const fsdp_model_info info = fsdp_model_config_info(config);
    const bool by_row = info.format.task == FSDP_TASK_CLASSIFICATION;
    const size_t width = (size_t)(by_row ? info.num_labels : info.vocab_size);
    const size_t before = width * logits_rows(info.format.task, first);
    const size_t after = width * logits_rows(info.format.task, second);
    model_case_create(t, config, &c);
    CHECK_HERE();
    logits_of_two(t, &c, config, first, second, &x);
    logits_of_two(t, &c, config, other, second, &y);
    CHECK_HERE();
    ASSERT(memcmp(x, y, before * sizeof *x) != 0);
    ASSERT(memcmp(x + before, y + before, after * sizeof *x) == 0);
    fsdp_free(x);
    fsdp_free(y);
    model_case_close(&c);
}

/* --- dropout --- */

void model_check_dropout(fsdp_test *t, const fsdp_model_config *config, model_rows rows)
{
    model_case c;
    fsdp_model_config dropping = *config;
    double first, again, other_step, other_leaf, off;
    fsdp_model_config_set_dropout(&dropping, 0.3);
    model_case_create(t, &dropping, &c);
    CHECK_HERE();
    model_make_batch(t, config, rows, &c.batch);
    CHECK_HERE();
    train_step(t, &c, 1, 0, false, &first);
    train_step(t, &c, 1, 0, false, &again);
    train_step(t, &c, 2, 0, false, &other_step);
    train_step(t, &c, 1, 1, false, &other_leaf);
    model_case_step(t, &c, &off);
    CHECK_HERE();
    ASSERT_F32(again, first);
    ASSERT(other_step != first && other_leaf != first && off != first);
    model_case_close(&c);
}

/* --- the meta device --- */

static fsdp_status micro_step(fsdp_device *device, fsdp_tape *tape, fsdp_module *model,
                              const fsdp_batch *batch, int index)
{
    fsdp_scope *s;
    fsdp_scope_options options = {
        .training = true, .batch = batch, .micro_step = index, .n_micro_steps = 2};
    FSDP_TRY(fsdp_scope_open(device, tape, &options, &s));
    fsdp_tensor *loss = fsdp_model_loss(s, model, 1.0f);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_backward(tape, &loss, NULL, 1);
    fsdp_scope_close(s);
    return status;
}

/* Two steps of two micro-steps with clipping and AdamW. */
static fsdp_status train(fsdp_device *device, fsdp_tape *tape, fsdp_module *model,
                         const fsdp_batch *batch)
{
    fsdp_optimizer *optimizer;
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_adamw_create(model, NULL, &optimizer));
    FSDP_TRY(fsdp_module_parameters(model, false, &list));
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < 4 && status == FSDP_OK; i++) {
        float scale = 1.0f;
        double norm;
        status = micro_step(device, tape, model, batch, i % 2);
        if (i % 2 == 0 || status != FSDP_OK)
            continue;
        status = fsdp_clip_grad_norm(&list, 1.0, NULL, &norm, &scale);
        if (status == FSDP_OK)
            status = fsdp_optimizer_step(optimizer, scale);
        fsdp_optimizer_zero_grad(optimizer);
    }
    fsdp_parameter_list_free(&list);
    fsdp_optimizer_destroy(optimizer);
    return status;
}

static fsdp_status requests(fsdp_group *group, const char *name, const fsdp_model_config *config,
                            const fsdp_fully_shard_options *o, const fsdp_batch *batch,
                            fsdp_memory_stats *stats)
{
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_module *model;
    const char *const *blocks = fsdp_model_config_info(config).block_classes;
    FSDP_TRY(fsdp_device_create(&(fsdp_device_options){.name = name}, &device));
    FSDP_TRY(fsdp_tape_create(&tape));
    FSDP_TRY(fsdp_model_create(config, &model));
    fsdp_status status = fsdp_model_shard(model, blocks, group, device, o);
    if (status == FSDP_OK)
        status = fsdp_module_init(model, 1);
    if (status == FSDP_OK)
        status = train(device, tape, model, batch);
    fsdp_device_memory(device, stats);
    fsdp_tape_destroy(tape);
    fsdp_module_destroy(model);
    fsdp_device_destroy(device);
    return status;
}

static void compare_memory(fsdp_test *t, int policy, const fsdp_memory_stats *meta,
                           const fsdp_memory_stats *cpu)
{
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++) {
        if (meta->tag_peak[tag] != cpu->tag_peak[tag])
            FAIL("policy %d: %s peaks at %lld on meta, at %lld on the CPU", policy,
                 fsdp_tag_name((fsdp_tag)tag), (long long)meta->tag_peak[tag],
                 (long long)cpu->tag_peak[tag]);
        ASSERT_INT(meta->tag_at_peak[tag], cpu->tag_at_peak[tag]);
        ASSERT_INT(meta->tag_allocated[tag], cpu->tag_allocated[tag]);
    }
    ASSERT_INT(meta->allocated_peak, cpu->allocated_peak);
}

static void check_meta(fsdp_test *t, const fsdp_model_config *config, const fsdp_batch *batch)
{
    const fsdp_fully_shard_options policies[] = {
        {.reshard_after_forward = FSDP_RESHARD_DEFAULT},
        {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}},
        {.mp_policy = {.param_dtype = FSDP_DTYPE_F16}},
        {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16, .reduce_dtype = FSDP_DTYPE_BF16},
         .reshard_after_forward = FSDP_RESHARD_FALSE}};
    for (int i = 0; i < 4; i++) {
        fsdp_memory_stats cpu, meta;
        ASSERT_OK(requests(t->group, NULL, config, &policies[i], batch, &cpu));
        ASSERT_OK(requests(t->group, fsdp_test_meta(), config, &policies[i], batch, &meta));
        compare_memory(t, i, &meta, &cpu);
        CHECK_HERE();
    }
}

void model_check_meta(fsdp_test *t, const fsdp_model_config *config, model_rows rows)
{
    fsdp_batch *batch;
    fsdp_model_config dropping = *config;
    fsdp_model_config_set_dropout(&dropping, 0.1);
    model_make_batch(t, config, rows, &batch);
    CHECK_HERE();
    check_meta(t, config, batch);
    CHECK_HERE();
    check_meta(t, &dropping, batch);
    fsdp_batch_release(batch);
}

/* --- mixed precision --- */

static void check_half(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                       fsdp_dtype dtype, double tolerance)
{
    const fsdp_fully_shard_options options = {.mp_policy.param_dtype = dtype};
    model_case half, full;
    double half_loss, full_loss;
    model_case_shard(t, config, &options, &half);
    model_case_create(t, config, &full);
    CHECK_HERE();
    model_make_batch(t, config, rows, &half.batch);
    CHECK_HERE();
    full.batch = fsdp_batch_retain(half.batch);
    model_case_step(t, &half, &half_loss);
    model_case_step(t, &full, &full_loss);
    CHECK_HERE();
    ASSERT_NEAR(half_loss, full_loss, tolerance);
    ASSERT(half_loss != full_loss);
    model_case_close(&half);
    model_case_close(&full);
}

/* float16 has three more bits of mantissa. */
void model_check_halves(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                        double tolerance)
{
    check_half(t, config, rows, FSDP_DTYPE_BF16, tolerance);
    CHECK_HERE();
    check_half(t, config, rows, FSDP_DTYPE_F16, tolerance / 4);
}

/* --- what a loss computes --- */

/* The loss and gradients from logits of all tokens. */
static void step_by_all_tokens(fsdp_test *t, const model_case *c, double *loss)
{
    fsdp_scope *s;
    ASSERT_OK(fsdp_scope_open(c->device, c->tape, &(fsdp_scope_options){.batch = c->batch}, &s));
    fsdp_model_outputs out = fsdp_model_logits(s, c->model);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_INT(fsdp_tensor_size(out.last_hidden, 0), c->batch->source_tokens);
    fsdp_tensor *value =
        fsdp_cross_entropy(s, out.logits, c->batch->labels, 1.0f / (float)c->batch->label_tokens);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_item(value, loss));
    ASSERT_OK(fsdp_backward(c->tape, &value, NULL, 1));
    fsdp_scope_close(s);
}

void model_check_rows_read(fsdp_test *t, const fsdp_model_config *config, model_rows rows,
                           int percent)
{
    model_case some, all;
    double loss, expected;
    model_case_create(t, config, &some);
    model_case_create(t, config, &all);
    CHECK_HERE();
    model_make_batch(t, config, rows, &some.batch);
    CHECK_HERE();
    all.batch = fsdp_batch_retain(some.batch);
    model_case_step(t, &some, &loss);
    step_by_all_tokens(t, &all, &expected);
    CHECK_HERE();
    ASSERT_NEAR(loss, expected, 1e-6 * fabs(expected));
    /* The absolute term is for biases of keys, whose gradients are sums that are zero except for
     * rounding. */
    model_case_compare_gradients(t, &some, &all, 1e-5f, 1e-6f);
    CHECK_HERE();
    const int64_t low = model_case_activations(&some), high = model_case_activations(&all);
    if (low * 100 > high * percent)
        FAIL("%lld bytes of activations are more than %d %% of %lld", (long long)low, percent,
             (long long)high);
    model_case_close(&some);
    model_case_close(&all);
}
