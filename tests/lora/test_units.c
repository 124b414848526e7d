/* The matrices of adapters as parts of their block's unit, as one unit for each block, and as a
 * unit for each matrix. All train to the same bits. With FSDP_MEASURE=1, the test prints what each
 * way gathers, computes, waits and stores, which is the table of
 * docs/decisions/40-adapter-units.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <fsdp/fsdp.h>
#include <fsdp/lora.h>
#include <fsdp/models.h>
#include <fsdp/optim.h>
#include <fsdp/train.h>

#include "src/base/assert.h"
#include "src/comm/comm.h"
#include "src/nn/module.h"
#include "src/tensor/tensor.h"
#include "tests/test.h"

typedef enum division {
    PART_OF_BLOCK,
    UNIT_PER_BLOCK,
    UNIT_PER_MATRIX,
    DIVISIONS
} division;

static const char *const division_names[] = {"part of the block", "a unit for each block",
                                             "a unit for each matrix"};

enum {
    MAX_MATRICES = 64,
    MAX_TOKENS = 512
};

/* The size of a model and of a run. */
typedef struct scale {
    const char *preset;
    int64_t layers, hidden, intermediate;
    int tokens, steps, warmup;
} scale;

typedef struct run_result {
    double loss, cpu_s;
    uint64_t gathers, gathered, reduces, reduced;
    int64_t wait_ns, peak, param, comm;
    float *values; /* [n] the matrices of the adapter after the last step; rank 0 */
    size_t n;
} run_result;

typedef struct matrices {
    fsdp_module *items[MAX_MATRICES];
    size_t n;
} matrices;

static fsdp_status add_matrix(const char *path, fsdp_module *m, void *arg)
{
    matrices *list = arg;
    const char *name = fsdp_module_name(m);
    (void)path;
    if ((strcmp(name, "lora_A") == 0 || strcmp(name, "lora_B") == 0) && list->n < MAX_MATRICES)
        list->items[list->n++] = m;
    return FSDP_OK;
}

typedef struct sharding {
    division how;
    fsdp_group *group;
    fsdp_device *device;
} sharding;

static fsdp_status shard_block(const char *path, fsdp_module *m, void *arg)
{
    const sharding *s = arg;
    matrices list = {.n = 0};
    (void)path;
    if (strcmp(fsdp_module_class(m), "LlamaDecoderLayer") != 0)
        return FSDP_OK;
    FSDP_TRY(fsdp_module_visit(m, add_matrix, &list));
    if (s->how == UNIT_PER_BLOCK)
        FSDP_TRY(fsdp_fully_shard_modules(list.items, list.n, s->group, s->device, NULL));
    for (size_t i = 0; i < list.n && s->how == UNIT_PER_MATRIX; i++)
        FSDP_TRY(fsdp_fully_shard(list.items[i], s->group, s->device, NULL));
    return fsdp_fully_shard(m, s->group, s->device, NULL);
}

static fsdp_status open_model(const scale *size, division how, bool use_dora, fsdp_group *group,
                              fsdp_device *device, fsdp_module **model)
{
    const fsdp_lora_config lora = {
        .r = 4, .lora_alpha = 8, .target_pattern = "all-linear", .use_dora = use_dora};
    sharding s = {how, group, device};
    fsdp_model_config config;
    FSDP_TRY(fsdp_model_config_preset(size->preset, &config));
    config.llama.num_hidden_layers = size->layers;
    config.llama.hidden_size = size->hidden;
    config.llama.intermediate_size = size->intermediate;
    config.llama.vocab_size = 131;
    config.llama.num_attention_heads = config.llama.num_key_value_heads = 4;
    config.llama.head_dim = size->hidden / 4;
    FSDP_TRY(fsdp_model_create(&config, model));
    FSDP_TRY(fsdp_lora_apply(*model, &lora));
    FSDP_TRY(fsdp_module_visit(*model, shard_block, &s));
    FSDP_TRY(fsdp_fully_shard(*model, group, device, NULL));
    return fsdp_module_init(*model, 3);
}

static fsdp_status make_batch(const scale *size, int micro_batch, fsdp_batch **batch)
{
    int32_t ids[MAX_TOKENS];
    for (int i = 0; i < size->tokens; i++)
        ids[i] = 3 + (micro_batch * 29 + i * i * 7 + i) % 120;
    const fsdp_batch_row row = {
        .source = ids, .labels = ids, .source_len = size->tokens, .labels_len = size->tokens};
    return fsdp_batch_create(&row, 1, &(fsdp_batch_format){.task = FSDP_TASK_CAUSAL_LM}, batch);
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Four micro-batches a step, whatever the number of ranks. */
static fsdp_status take_step(const scale *size, fsdp_module *model, fsdp_device *device,
                             fsdp_tape *tape, fsdp_group *group, int step, double *loss)
{
    const int ranks = fsdp_group_world_size(group), rank = fsdp_group_rank(group);
    for (int a = 0; a < 4 / ranks; a++) {
        fsdp_batch *batch;
        FSDP_TRY(make_batch(size, 4 * step + a * ranks + rank, &batch));
        const fsdp_forward_backward_options options = {
            .training = true, .tape = tape, .micro_step = a, .n_micro_steps = 4 / ranks};
        const fsdp_status status = fsdp_forward_backward(model, device, batch, &options, loss);
        fsdp_batch_release(batch);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* Return this rank's rows of all matrices of the adapter, [*n] elements. The caller frees them. */
static float *copy_adapter(fsdp_test *t, fsdp_module *model, size_t *n)
{
    fsdp_parameter_list list;
    float *values = NULL;
    *n = 0;
    if (fsdp_module_parameters(model, false, &list) != FSDP_OK)
        return NULL;
    for (size_t i = 0; i < list.n; i++) {
        const fsdp_tensor *local = list.items[i].parameter->local;
        if (!list.items[i].parameter->in_adapter)
            continue;
        const size_t numel = (size_t)fsdp_tensor_numel(local);
        values = realloc(values, (*n + numel + 1) * sizeof *values);
        if (!values || fsdp_tensor_to_floats(local, values + *n) != FSDP_OK)
            fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
        *n += numel;
    }
    fsdp_parameter_list_free(&list);
    return values;
}

static void note_costs(const fsdp_comm_counters *before, const fsdp_comm_counters *after,
                       run_result *r)
{
    r->gathers = after->calls[FSDP_KIND_ALL_GATHER] - before->calls[FSDP_KIND_ALL_GATHER];
    r->gathered =
        after->logical_bytes[FSDP_KIND_ALL_GATHER] - before->logical_bytes[FSDP_KIND_ALL_GATHER];
    r->reduces = after->calls[FSDP_KIND_REDUCE_SCATTER] - before->calls[FSDP_KIND_REDUCE_SCATTER];
    r->reduced = after->logical_bytes[FSDP_KIND_REDUCE_SCATTER] -
                 before->logical_bytes[FSDP_KIND_REDUCE_SCATTER];
    r->wait_ns = fsdp_comm_counters_wait_ns(after) - fsdp_comm_counters_wait_ns(before);
}

static void train(fsdp_test *t, const scale *size, division how, run_result *r)
{
    fsdp_device *device;
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    fsdp_tape *tape;
    fsdp_memory_stats memory;
    fsdp_comm_counters before = {0};
    double cpu = 0.0;
    ASSERT_OK(fsdp_rank_device_create(t->group, &(fsdp_device_options){.threads = 1}, &device));
    ASSERT_OK(open_model(size, how, false, t->group, device, &model));
    fsdp_sgd_options sgd = fsdp_sgd_defaults();
    sgd.lr = 0.05;
    ASSERT_OK(fsdp_sgd_create(model, &sgd, &optimizer));
    ASSERT_OK(fsdp_tape_create(&tape));
    for (int step = 0; step < size->warmup + size->steps; step++) {
        if (step == size->warmup) {
            before = fsdp_group_get_counters(t->group);
            cpu = cpu_seconds();
        }
        ASSERT_OK(take_step(size, model, device, tape, t->group, step, &r->loss));
        ASSERT_OK(fsdp_optimizer_step(optimizer, 1.0f));
        fsdp_module_zero_grad(model);
    }
    r->cpu_s = cpu_seconds() - cpu;
    const fsdp_comm_counters after = fsdp_group_get_counters(t->group);
    note_costs(&before, &after, r);
    fsdp_device_memory(device, &memory);
    r->peak = memory.allocated_peak;
    r->param = memory.tag_peak[FSDP_TAG_PARAM];
    r->comm = memory.tag_peak[FSDP_TAG_COMM];
    r->values = copy_adapter(t, model, &r->n);
    fsdp_tape_destroy(tape);
    fsdp_optimizer_destroy(optimizer);
    fsdp_module_destroy(model);
    fsdp_device_destroy(device);
}

static void print_costs(const fsdp_test *t, const scale *size, division how, const run_result *r)
{
    const double steps = size->steps;
    if (t->rank == 0)
        printf("%d ranks, %-24s: a step: %6.0f gathers, %9.0f bytes gathered, %6.0f reduces, "
               "%8.0f bytes reduced, %7.2f ms CPU, %7.2f ms waits; peak %lld, param %lld, comm "
               "%lld bytes\n",
               t->world_size, division_names[how], (double)r->gathers / steps,
               (double)r->gathered / steps, (double)r->reduces / steps, (double)r->reduced / steps,
               1e3 * r->cpu_s / steps, 1e-6 * (double)r->wait_ns / steps, (long long)r->peak,
               (long long)r->param, (long long)r->comm);
}

static void compare_divisions(fsdp_test *t)
{
    static const scale small = {"TinyLlama-1.1B", 2, 24, 36, 13, 2, 1};
    run_result results[DIVISIONS] = {{.n = 0}};
    for (division how = PART_OF_BLOCK; how < DIVISIONS; how++) {
        train(t, &small, how, &results[how]);
        CHECK_HERE();
        ASSERT(results[how].n == results[0].n && results[how].values);
        ASSERT(memcmp(results[how].values, results[0].values,
                      results[0].n * sizeof *results[0].values) == 0);
        ASSERT(results[how].loss == results[0].loss);
        /* The bytes are the same; what differs is the number of collectives. */
        ASSERT(results[how].gathered == results[0].gathered);
        ASSERT(results[how].reduced == results[0].reduced);
        if (t->world_size > 1 && how)
            ASSERT(results[how].gathers > results[how - 1].gathers);
    }
    for (int how = 0; how < DIVISIONS; how++)
        free(results[how].values);
}

/* Print the costs of each way, three times in turn. */
static void measure(fsdp_test *t)
{
    static const scale large = {"TinyLlama-1.1B", 4, 256, 688, 128, 20, 3};
    for (int round = 0; round < 3 && getenv("FSDP_MEASURE"); round++)
        for (division how = PART_OF_BLOCK; how < DIVISIONS; how++) {
            run_result r = {.n = 0};
            train(t, &large, how, &r);
            CHECK_HERE();
            print_costs(t, &large, how, &r);
            free(r.values);
        }
}

TEST_RANKS(adapters_as_units_train_to_the_same_bits_at_1_rank, 1)
{
    compare_divisions(t);
}

TEST_RANKS(adapters_as_units_train_to_the_same_bits_at_2_ranks, 2)
{
    compare_divisions(t);
    CHECK_HERE();
    measure(t);
}

TEST_RANKS(adapters_as_units_train_to_the_same_bits_at_4_ranks, 4)
{
    compare_divisions(t);
    CHECK_HERE();
    measure(t);
}

/* DoRA needs the matrices of an adapter together with the weight. The error names the unit and says
 * what to do, both when norms are computed before training and in a forward. */
TEST_RANKS(dora_with_matrices_as_units_is_refused_by_name, 2)
{
    static const scale small = {"TinyLlama-1.1B", 1, 24, 36, 13, 1, 0};
    static const char said[] =
        "'model.layers.0.self_attn.q_proj.lora_A' is a unit of its own, but DoRA";
    for (division how = UNIT_PER_BLOCK; how < DIVISIONS; how++) {
        fsdp_device *device;
        fsdp_module *model;
        fsdp_tape *tape;
        double loss;
        ASSERT_OK(fsdp_rank_device_create(t->group, &(fsdp_device_options){.threads = 1}, &device));
        ASSERT_OK(open_model(&small, how, true, t->group, device, &model));
        ASSERT_OK(fsdp_tape_create(&tape));
        ASSERT_ERROR(fsdp_lora_init_magnitudes(model), FSDP_ERR_UNSUPPORTED, said);
        ASSERT_ERROR(take_step(&small, model, device, tape, t->group, 0, &loss),
                     FSDP_ERR_UNSUPPORTED, said);
        fsdp_tape_destroy(tape);
        fsdp_module_destroy(model);
        fsdp_device_destroy(device);
    }
}
