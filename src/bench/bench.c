/* The work of one rank in `fsdp bench train`; see bench.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <fsdp/autograd.h>
#include <fsdp/batch.h>
#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/philox.h"
#include "src/bench/bench.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/models/model_type.h"
#include "src/optim/clip_grad.h"
#include "src/pretrained/model.h"
#include "src/profile/profile.h"
#include "src/tensor/cards.h"
#include "src/tensor/device.h"

enum {
    MIN_MEMORY_STEPS = 2,
    MAX_MEMORY_STEPS = 50,
    RATE_TRIES = 8
};
/* Memory is sampled while untimed steps run, for about this many seconds. */
static const double MEMORY_SECONDS = 1.5;
/* Each shape of matrix product is tried for about TRIAL_SECONDS. The rate of the fastest one is
 * then measured for about RATE_SECONDS. */
static const double TRIAL_SECONDS = 0.03, RATE_SECONDS = 0.15;

/* --- running steps --- */

typedef struct run {
    const fsdp_bench_config *config;
    fsdp_group *group;
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_model *model;
    fsdp_optimizer *optimizer;
    /* [batch, source + n_labels]: memory for one batch. Each row has the source ids, then the label
     * ids. */
    int32_t *ids;
    /* Number of label ids in a row. It is 0 for causal models, because their labels are the source
     * ids. */
    int32_t n_labels;
    fsdp_profile *profile; /* NULL: nothing is profiled */
    double loss, grad_norm;
    double forward_s, backward_s, clip_s, optimizer_s; /* times in the last step */
} run;

static fsdp_status open_profile(run *r)
{
    const fsdp_bench_config *c = r->config;
    fsdp_profile_options options = {.path = c->profile, .device = r->device};
    if (!c->profile && !c->breakdown)
        return FSDP_OK;
    FSDP_TRY(fsdp_profile_choose_steps("--profile-steps", c->profile_steps, 0, c->steps, &options));
    /* The first step allocates memory that later steps use again, so it is not profiled by
     * default. */
    if (!c->profile_steps && options.first_step == 0) {
        options.first_step = 1;
        options.n_steps = c->steps - 1;
    }
    return fsdp_profile_create(r->group, &options, &r->profile);
}

static fsdp_status open_run(const fsdp_bench_config *config, fsdp_group *group, run *r)
{
    const fsdp_device_options device = {
        .name = config->device, .threads = config->threads, .isa = config->isa};
    const fsdp_float8_linear_config float8 = {.recipe =
                                                  (fsdp_float8_recipe)(config->float8_recipe - 1)};
    fsdp_model_options model = {
        .config = &config->shape,
        .float8 = config->float8_recipe ? &float8 : NULL,
        .seed = config->seed,
        .activation_checkpointing = config->activation_checkpointing,
        .checkpointing = {.kind = config->checkpointing_kind},
        .shard = {.mp_policy = {.param_dtype = config->dtype},
                  .reshard_after_forward = config->reshard_after_forward,
                  .backward_prefetch = config->backward_prefetch},
    };
    fsdp_adamw_options adamw = fsdp_adamw_defaults();
    adamw.lr = 1e-4;
    *r = (run){.config = config, .group = group};
    r->n_labels = fsdp_model_config_info(&config->shape).format.task == FSDP_TASK_CLASSIFICATION
                      ? 1
                      : config->target;
    size_t tokens = (size_t)config->batch * (size_t)(config->source + r->n_labels);
    r->ids = fsdp_calloc(tokens, sizeof *r->ids);
    fsdp_status status = r->ids ? fsdp_tape_create(&r->tape) : fsdp_error_nomem();
    FSDP_TRY(fsdp_agree(group, status));
    FSDP_TRY(fsdp_rank_device_create(group, &device, &r->device));
    fsdp_group_set_threads(group, config->threads);
    FSDP_TRY(fsdp_model_open(&model, group, r->device, &r->model));
    if (config->save_model)
        FSDP_TRY(fsdp_model_save(r->model, config->save_model, NULL));
    FSDP_TRY(fsdp_adamw_create(r->model->module, &adamw, &r->optimizer));
    return open_profile(r);
}

static void close_run(run *r)
{
    fsdp_profile_destroy(r->profile);
    fsdp_optimizer_destroy(r->optimizer);
    fsdp_tape_destroy(r->tape);
    fsdp_model_close(r->model);
    fsdp_device_destroy(r->device);
    fsdp_free(r->ids);
}

/* Draw random token ids for a row. Every id is at least 2, because in T5 id 0 is padding and id 1
 * is end of sequence. For a classification model, the label is a random class. */
static void draw_row(const run *r, uint64_t micro_batch, int64_t row, fsdp_batch_row *out)
{
    const fsdp_bench_config *c = r->config;
    const fsdp_model_info *info = &r->model->info;
    const int64_t width = c->source + r->n_labels;
    int32_t *ids = r->ids + row * width;
    for (int64_t i = 0; i < width; i++) {
        uint32_t drawn = fsdp_philox4x32(c->seed, micro_batch, (uint64_t)(row * width + i)).v[0];
        bool is_class = i >= c->source && info->num_labels > 0;
        ids[i] = is_class ? (int32_t)(drawn % (uint32_t)info->num_labels)
                          : (int32_t)(2 + drawn % (uint32_t)(info->vocab_size - 2));
    }
    *out = (fsdp_batch_row){.source = ids,
                            .labels = r->n_labels ? ids + c->source : NULL,
                            .source_len = c->source,
                            .labels_len = r->n_labels};
}

static fsdp_status make_batch(run *r, uint64_t micro_batch, fsdp_batch **batch)
{
    const int32_t n = r->config->batch;
    fsdp_batch_row *rows = fsdp_calloc((size_t)n, sizeof *rows);
    if (!rows)
        return fsdp_error_nomem();
    for (int64_t i = 0; i < n; i++)
        draw_row(r, micro_batch, i, &rows[i]);
    fsdp_status status = fsdp_batch_create(rows, n, &r->model->info.format, batch);
    fsdp_free(rows);
    return status;
}

/* Run the forward and the backward pass. Set *out to the loss. On a device with a stream, the loss
 * may not have been computed yet when this returns. */
static fsdp_status forward_backward(run *r, const fsdp_batch *batch, int step, fsdp_tensor **out)
{
    fsdp_scope *s;
    fsdp_scope_options options = {.training = true,
                                  .seed = r->config->seed,
                                  .step = (uint32_t)step,
                                  .micro_batch = (uint32_t)fsdp_group_rank(r->group),
                                  .batch = batch};
    double begin = fsdp_clock_s();
    FSDP_TRY(fsdp_scope_open(r->device, r->tape, &options, &s));
    fsdp_tensor *loss = fsdp_model_loss(s, r->model->module, 1.0f / (float)batch->label_tokens);
    fsdp_status status = fsdp_scope_status(s);
    double middle = fsdp_clock_s();
    if (status == FSDP_OK)
        status = fsdp_backward(r->tape, &loss, NULL, 1);
    if (status == FSDP_OK)
        *out = fsdp_tensor_retain(loss);
    fsdp_scope_close(s);
    r->forward_s = middle - begin;
    r->backward_s = fsdp_clock_s() - middle;
    return status;
}

static fsdp_status update(run *r, fsdp_clip *clip)
{
    const double begin = fsdp_clock_s();
    FSDP_TRY(fsdp_clip_compute(clip, NULL));
    const double middle = fsdp_clock_s();
    FSDP_TRY(fsdp_optimizer_step_clipped(r->optimizer, clip));
    FSDP_TRY(fsdp_clip_end(clip, &r->grad_norm, NULL));
    r->clip_s += middle - begin;
    r->optimizer_s = fsdp_clock_s() - middle;
    return FSDP_OK;
}

/* Start the kernels of a step. With one rank, the host does not wait until they end. With several
 * ranks, it waits as described in Note [Late norm] in src/optim/clip_grad.h. */
static fsdp_status start_step(run *r, const fsdp_batch *batch, int step, fsdp_tensor **loss)
{
    fsdp_clip *clip;
    FSDP_TRY(forward_backward(r, batch, step, loss));
    const double begin = fsdp_clock_s();
    FSDP_TRY(fsdp_clip_begin(fsdp_optimizer_parameters(r->optimizer), 1.0, NULL, &clip));
    r->clip_s = fsdp_clock_s() - begin;
    const fsdp_status status = update(r, clip);
    fsdp_clip_destroy(clip);
    return status;
}

/* Run one step. Set *took to its duration, from the time when the batch is ready to the time when
 * the device has completed all kernels of the step. */
static fsdp_status train_step(run *r, int step, double *took)
{
    fsdp_batch *batch;
    fsdp_tensor *loss = NULL;
    uint64_t micro_batch = (uint64_t)step * (uint64_t)fsdp_group_world_size(r->group) +
                           (uint64_t)fsdp_group_rank(r->group);
    fsdp_trace_begin(FSDP_TRACE_DATA, "draw batch", NULL);
    fsdp_status status = make_batch(r, micro_batch, &batch);
    fsdp_trace_end();
    if (status != FSDP_OK)
        return status;
    double begin = fsdp_clock_s();
    status = start_step(r, batch, step, &loss);
    fsdp_optimizer_zero_grad(r->optimizer);
    if (status == FSDP_OK)
        /* fsdp_tensor_item() waits until the device has computed the loss */
        status = fsdp_tensor_item(loss, &r->loss);
    *took = fsdp_clock_s() - begin;
    fsdp_tensor_release(loss);
    fsdp_batch_release(batch);
    return status;
}

/* --- measuring --- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

typedef struct used {
    double cpu_s, faults, waited_s;
} used;

/* Return the processor time and the number of minor page faults of this process since it began, and
 * the time that this rank has waited for peers since the group was created. */
static used used_so_far(const fsdp_group *group)
{
    struct rusage u = {0};
    const fsdp_comm_counters counters = fsdp_group_get_counters(group);
    getrusage(RUSAGE_SELF, &u);
    return (used){.cpu_s = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec),
                  .faults = (double)u.ru_minflt,
                  .waited_s = (double)fsdp_comm_counters_wait_ns(&counters) * 1e-9};
}

static fsdp_status timed_steps(run *r, fsdp_bench_result *result)
{
    const fsdp_bench_config *c = r->config;
    int later = c->steps - 1;
    double *took = fsdp_calloc((size_t)c->steps, sizeof *took);
    used before = {0}, last = {0};
    if (!took)
        return fsdp_error_nomem();
    result->ready_after_s = fsdp_clock_s() - c->start_s;
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < c->steps && status == FSDP_OK; i++) {
        last = used_so_far(r->group);
        status = fsdp_profile_step_begin(r->profile);
        if (status == FSDP_OK)
            status = train_step(r, i, &took[i]);
        if (status == FSDP_OK)
            status = fsdp_profile_step_end(r->profile);
        if (i == 0) {
            result->first_step_after_s = fsdp_clock_s() - c->start_s;
            result->first_step_s = took[0];
            result->first_loss = r->loss;
            before = used_so_far(r->group);
            continue;
        }
        result->forward_s += r->forward_s / later;
        result->backward_s += r->backward_s / later;
        result->clip_s += r->clip_s / later;
        result->optimizer_s += r->optimizer_s / later;
    }
    used after = used_so_far(r->group);
    result->cpu_s = (after.cpu_s - before.cpu_s) / later;
    result->page_faults = (after.faults - before.faults) / later;
    result->page_faults_last = after.faults - last.faults;
    result->wait_s = (after.waited_s - before.waited_s) / later;
    result->last_loss = r->loss;
    result->grad_norm = r->grad_norm;
    if (status == FSDP_OK)
        result->step_s = median(took + 1, later);
    fsdp_free(took);
    return status;
}

/* Run steps that are not timed. During these steps, the launching process samples the memory of the
 * ranks. Rank 0 decides how many steps all ranks run. */
static fsdp_status memory_steps(run *r, double step_s)
{
    double n = ceil(MEMORY_SECONDS / step_s), took;
    n = fmin(fmax(n, MIN_MEMORY_STEPS), MAX_MEMORY_STEPS);
    FSDP_TRY(fsdp_broadcast(r->group, &n, sizeof n, 0));
    for (int i = 0; i < (int)n; i++)
        FSDP_TRY(train_step(r, r->config->steps + i, &took));
    return FSDP_OK;
}

fsdp_status fsdp_bench_product_rate(fsdp_device *device, fsdp_dtype dtype, int64_t tokens,
                                    const fsdp_model_work *work, double *gflops)
{
    double best = 0.0, rate;
    int fastest = 0;
    for (int i = 0; i < work->n_products; i++) {
        FSDP_TRY(fsdp_device_gemm_rate(device, dtype, tokens, work->products[i][0],
                                       work->products[i][1], TRIAL_SECONDS, &rate));
        if (rate > best) {
            best = rate;
            fastest = i;
        }
    }
    if (work->n_products) {
        FSDP_TRY(fsdp_device_gemm_rate(device, dtype, tokens, work->products[fastest][0],
                                       work->products[fastest][1], RATE_SECONDS, &rate));
        best = fmax(best, rate);
    }
    *gflops = best;
    return FSDP_OK;
}

/* On each rank, measure matrix products in the largest shapes of a step, on one thread, and take
 * the highest rate. Set *gflops to the mean of these rates over the ranks. */
static fsdp_status measure_products(run *r, const fsdp_model_work *work, double *gflops)
{
    const fsdp_bench_config *c = r->config;
    FSDP_TRY(fsdp_barrier(r->group));
    FSDP_TRY(
        fsdp_bench_product_rate(r->device, c->dtype, (int64_t)c->batch * c->source, work, gflops));
    return fsdp_all_reduce(r->group, gflops, 1, FSDP_DTYPE_F64, FSDP_REDUCE_AVG);
}

/* Measure the rate of matrix products several times, and set *gflops to the highest rate. Single
 * matrix products must have a higher rate than a whole step. If they do not, other processes have
 * used the cores during the measurement, so measure again, up to RATE_TRIES times in all. */
static fsdp_status measure_rate(run *r, const fsdp_model_work *work, double step_s, double *gflops)
{
    double least = work->flops / (step_s * r->config->threads * 1e9), rate;
    FSDP_TRY(fsdp_broadcast(r->group, &least, sizeof least, 0));
    *gflops = 0.0;
    for (int i = 0; i < RATE_TRIES && *gflops <= least; i++) {
        FSDP_TRY(measure_products(r, work, &rate));
        *gflops = fmax(*gflops, rate);
    }
    return FSDP_OK;
}

static fsdp_status sum_memory(run *r, fsdp_memory_stats *memory)
{
    _Static_assert(sizeof *memory % sizeof(int64_t) == 0, "memory stats are int64 only");
    fsdp_device_memory(r->device, memory);
    return fsdp_all_reduce(r->group, memory, sizeof *memory / sizeof(int64_t), FSDP_DTYPE_I64,
                           FSDP_REDUCE_SUM);
}

static int64_t count_parameters(const run *r)
{
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(r->optimizer);
    int64_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        n += fsdp_parameter_numel(list->items[i].parameter);
    return n;
}

static fsdp_status report_profile(const run *r, fsdp_bench_result *result)
{
    const fsdp_profile_row *rows =
        r->profile ? fsdp_profile_rows(r->profile, &result->n_where) : NULL;
    if (!result->n_where)
        return FSDP_OK;
    memcpy(result->where, rows, sizeof result->where);
    FSDP_TRY(fsdp_profile_names(r->profile, result->names, &result->n_names));
    if (!r->config->profile_out || fsdp_group_rank(r->group) != 0)
        return FSDP_OK;
    return fsdp_profile_print(r->profile, r->config->profile_out);
}

static fsdp_status measure(run *r, fsdp_bench_stage_fn *report_stage, void *arg,
                           fsdp_bench_result *result)
{
    const fsdp_bench_config *c = r->config;
    const fsdp_model_work work = c->shape.type->work(&c->shape, c->batch, c->source, c->target);
    bool first = fsdp_group_rank(r->group) == 0;
    if (first)
        report_stage(arg, FSDP_BENCH_BUILT);
    FSDP_TRY(timed_steps(r, result));
    FSDP_TRY(report_profile(r, result));
    if (first)
        report_stage(arg, FSDP_BENCH_MEMORY_BEGIN);
    FSDP_TRY(memory_steps(r, result->step_s));
    if (first)
        report_stage(arg, FSDP_BENCH_MEMORY_END);
    FSDP_TRY(sum_memory(r, &result->memory));
    result->gemm_gflops = (double)NAN;
    if (r->device->ops->gemm_rate)
        FSDP_TRY(measure_rate(r, &work, result->step_s, &result->gemm_gflops));
    fsdp_device_describe(r->device, result->device);
    double tokens = (double)c->batch * (double)(c->source + c->target);
    result->parameters = count_parameters(r);
    result->tokens_per_s = tokens * fsdp_group_world_size(r->group) / result->step_s;
    result->flops = work.flops;
    result->mfu = result->flops / (result->step_s * c->threads * result->gemm_gflops * 1e9);
    return FSDP_OK;
}

static fsdp_status check_shape(const fsdp_bench_config *config)
{
    const fsdp_model_info info = fsdp_model_config_info(&config->shape);
    if (info.max_positions && config->source > info.max_positions)
        return fsdp_error(FSDP_ERR_INVALID,
                          "seq is %d, but %s of this shape has only %lld positions", config->source,
                          info.class_name, (long long)info.max_positions);
    if (info.format.task == FSDP_TASK_CAUSAL_LM && config->source < 2)
        return fsdp_error(FSDP_ERR_INVALID,
                          "seq is %d: %s learns each token's successor, so at least 2",
                          config->source, info.class_name);
    if (info.vocab_size < 3)
        return fsdp_error(FSDP_ERR_INVALID,
                          "vocab_size is %lld, but must be more than 2: ids below 2 are not used",
                          (long long)info.vocab_size);
    return FSDP_OK;
}

fsdp_status fsdp_bench_train(const fsdp_bench_config *config, fsdp_group *group,
                             fsdp_bench_stage_fn *report_stage, void *arg,
                             fsdp_bench_result *result)
{
    run r;
    *result = (fsdp_bench_result){0};
    if (config->steps < 2)
        return fsdp_error(FSDP_ERR_INVALID, "steps is %d: the first is not counted, so at least 2",
                          config->steps);
    FSDP_TRY(check_shape(config));
    fsdp_status status = open_run(config, group, &r);
    if (status == FSDP_OK)
        status = measure(&r, report_stage, arg, result);
    close_run(&r);
    return status;
}

/* --- the JSON report --- */

/* Set a value for which three decimal places are enough: a rate, or a number of MiB or ms. */
static void set(fsdp_json_node object, const char *key, double value)
{
    fsdp_json_set_f64(object, key, round(value * 1000.0) / 1000.0);
}

static void set_seconds(fsdp_json_node object, const char *key, double value)
{
    fsdp_json_set_f64(object, key, round(value * 1e6) / 1e6);
}

static double mib(int64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

/* Set the time of a category. The key is the name of the category, with underscores instead of
 * spaces: "waiting for peers" becomes waiting_for_peers. */
static void set_row(fsdp_json_node object, const char *name, double ms)
{
    char key[64];
    size_t n = 0;
    for (; name[n] && n + 1 < sizeof key; n++)
        key[n] = name[n] == ' ' ? '_' : name[n];
    key[n] = '\0';
    set(object, key, ms);
}

static void report_where(const fsdp_bench_result *r, fsdp_json_node object)
{
    fsdp_json_node wall = fsdp_json_set_object(object, "where_ms");
    fsdp_json_node processor = fsdp_json_set_object(object, "where_processor_ms");
    const bool has_device = r->n_where && r->where[r->n_where - 1].device_ms > 0.0;
    fsdp_json_node device = {0};
    if (has_device)
        device = fsdp_json_set_object(object, "where_device_ms");
    for (size_t i = 0; i < r->n_where; i++) {
        if (has_device)
            set_row(device, r->where[i].name, r->where[i].device_ms);
        set_row(wall, r->where[i].name, r->where[i].ms);
        set_row(processor, r->where[i].name, r->where[i].cpu_ms);
        if (strcmp(r->where[i].name, "sharding itself") == 0)
            set(object, "sharding_percent", 100.0 * r->where[i].cpu_share);
    }
    fsdp_json_node operations = fsdp_json_set_array(object, "operations");
    for (size_t i = 0; i < r->n_names; i++) {
        const fsdp_profile_name *name = &r->names[i];
        fsdp_json_node line = fsdp_json_append_object(operations);
        char text[160];
        snprintf(text, sizeof text, "%s%s%s", name->name, name->detail ? " " : "",
                 name->detail ? name->detail : "");
        fsdp_json_set_str(line, "operation", text);
        fsdp_json_set_str(line, "category", name->category);
        set(line, "calls", name->calls);
        set(line, "ms", name->ms);
        set(line, "processor_ms", name->cpu_ms);
        if (has_device)
            set(line, "device_ms", name->device_ms);
    }
}

void fsdp_bench_report(const fsdp_bench_config *c, int ranks, const fsdp_bench_result *r,
                       fsdp_json_node object)
{
    fsdp_json_set_any_str(object, "shape", c->shape_name);
    fsdp_json_set_str(object, "dtype", fsdp_dtype_name(c->dtype));
    if (c->float8_recipe)
        fsdp_json_set_str(object, "float8_recipe",
                          fsdp_float8_recipe_name((fsdp_float8_recipe)(c->float8_recipe - 1)));
    fsdp_json_set_i64(object, "ranks", ranks);
    fsdp_json_set_i64(object, "threads_per_rank", c->threads);
    fsdp_json_set_i64(object, "batch", c->batch);
    fsdp_json_set_i64(object, "seq", c->source);
    fsdp_json_set_i64(object, "target", c->target);
    fsdp_json_set_i64(object, "steps", c->steps);
    fsdp_json_set_i64(object, "parameters", r->parameters);
    set_seconds(object, "step_s", r->step_s);
    set(object, "tok_per_s", r->tokens_per_s);
    set_seconds(object, "first_step_after_s", r->first_step_after_s);
    set_seconds(object, "ready_after_s", r->ready_after_s);
    set_seconds(object, "first_step_s", r->first_step_s);
    fsdp_json_node split = fsdp_json_set_object(object, "seconds");
    set_seconds(split, "forward", r->forward_s);
    set_seconds(split, "backward", r->backward_s);
    set_seconds(split, "clip", r->clip_s);
    set_seconds(split, "optimizer", r->optimizer_s);
    set_seconds(split, "of_it_waiting", r->wait_s);
    set_seconds(split, "processor", r->cpu_s);
    set(object, "page_faults_per_step", r->page_faults);
    set(object, "page_faults_last_step", r->page_faults_last);
    fsdp_json_set_str(object, "device", r->device);
    if (!isnan(r->gemm_gflops))
        set(object, "gemm_gflops", r->gemm_gflops);
    set(object, "step_gflop", r->flops * 1e-9);
    set(object, "gflops", r->flops * 1e-9 / (r->step_s * c->threads));
    if (!isnan(r->mfu))
        set(object, "mfu", r->mfu);
    set(object, "peak_allocated_mib", mib(r->memory.allocated_peak));
    set(object, "peak_reserved_mib", mib(r->memory.reserved_peak));
    fsdp_json_node tags = fsdp_json_set_object(object, "peak_mib");
    for (int i = 0; i < FSDP_TAG_COUNT; i++)
        set(tags, fsdp_tag_name((fsdp_tag)i), mib(r->memory.tag_peak[i]));
    fsdp_json_set_f64(object, "first_loss", r->first_loss);
    fsdp_json_set_f64(object, "last_loss", r->last_loss);
    fsdp_json_set_f64(object, "grad_norm", r->grad_norm);
    if (r->n_where)
        report_where(r, object);
}
