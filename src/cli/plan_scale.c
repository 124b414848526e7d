/* See plan_scale.h. */
#include "src/cli/plan_scale.h"

#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/cpus.h"
#include "src/bench/bench.h"
#include "src/plan/memory_limit.h"
#include "src/plan/scale.h"
#include "src/tensor/device.h"
#include "src/train_config/config_device.h"

enum {
    /* Largest sizes of the matrices whose product is measured. If the model has larger matrices,
     * the measurement uses these sizes, so that it needs little memory. */
    MOST_ROWS = 512,
    MOST_FEATURES = 4096
};

/* --- options --- */

static fsdp_status check_without_estimate(const fsdp_options *options, bool is_range)
{
    static const char *const needs[] = {"flops-per-rank", "straggler"};
    if (is_range)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--world-size %s: several numbers of ranks are for an estimate, which "
                          "needs --interconnect, for example --interconnect 100Gb,2us",
                          fsdp_options_text(options, "world-size"));
    for (size_t i = 0; i < FSDP_LENGTH(needs); i++)
        if (fsdp_options_given(options, needs[i]))
            return fsdp_error(FSDP_ERR_INVALID,
                              "--%s %s is for an estimate, which needs --interconnect, for example "
                              "--interconnect 100Gb,2us",
                              needs[i], fsdp_options_text(options, needs[i]));
    return FSDP_OK;
}

fsdp_status fsdp_plan_scale_check(fsdp_plan_scale_config *c, const fsdp_options *options,
                                  bool is_range, int local_world_size)
{
    fsdp_interconnect net;
    double value;
    if (!c->interconnect)
        return check_without_estimate(options, is_range);
    FSDP_TRY(fsdp_scale_parse_interconnect(c->interconnect, &net));
    if (c->flops_per_rank)
        FSDP_TRY(fsdp_scale_parse_flops(c->flops_per_rank, &value));
    FSDP_TRY(fsdp_scale_parse_straggler(c->straggler, &value));
    if (is_range && !local_world_size)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--world-size %s needs --local-world-size, the number of ranks of one "
                          "host, for example --local-world-size 8",
                          fsdp_options_text(options, "world-size"));
    return FSDP_OK;
}

/* --- the rate of a rank --- */

/* Measure the rate of the model's fastest matrix product on one thread, and multiply it by the
 * number of threads that a rank would have on this machine. */
static fsdp_status measure_flops(const fsdp_train_config *train, const fsdp_plan *plan,
                                 double *flops_per_s, char source[160])
{
    const fsdp_device_options options = {.name = "cpu", .threads = 1, .isa = train->isa};
    const int64_t tokens = plan->rows * plan->source_length;
    const int cores = fsdp_available_cpus() / plan->local_world_size;
    const int threads = train->threads_per_rank ? train->threads_per_rank : cores > 1 ? cores : 1;
    fsdp_model_work work = plan->work;
    fsdp_device *device;
    double gflops = 0.0;
    if (fsdp_train_uses_cards(train))
        return fsdp_error(FSDP_ERR_INVALID,
                          "an estimate for cards needs --flops-per-rank, the rate that a card "
                          "reaches in a step: 'fsdp bench train --device cuda' measures it");
    for (int i = 0; i < work.n_products; i++)
        for (int k = 0; k < 2; k++)
            if (work.products[i][k] > MOST_FEATURES)
                work.products[i][k] = MOST_FEATURES;
    FSDP_TRY(fsdp_device_create(&options, &device));
    const fsdp_status status = fsdp_bench_product_rate(
        device, train->param_dtype, tokens < MOST_ROWS ? tokens : MOST_ROWS, &work, &gflops);
    fsdp_device_destroy(device);
    *flops_per_s = gflops * 1e9 * threads;
    snprintf(source, 160,
             "measured here: %d thread%s at the rate of the fastest product; a step reaches less",
             threads, threads == 1 ? "" : "s");
    return status;
}

/* Set *options to the values that the user gave. If the user did not give --flops-per-rank, measure
 * the rate with the matrix products of `plan`, which may be any one of the plans. */
static fsdp_status read_options(const fsdp_train_config *train, const fsdp_plan_scale_config *c,
                                const fsdp_plan *plan, fsdp_scale_options *options,
                                char source[160])
{
    *options = (fsdp_scale_options){0};
    FSDP_TRY(fsdp_scale_parse_interconnect(c->interconnect, &options->interconnect));
    FSDP_TRY(fsdp_scale_parse_straggler(c->straggler, &options->straggler));
    if (!c->flops_per_rank)
        return measure_flops(train, plan, &options->flops_per_s, source);
    snprintf(source, 160, "--flops-per-rank");
    return fsdp_scale_parse_flops(c->flops_per_rank, &options->flops_per_s);
}

/* --- printing --- */

static fsdp_status print_report(const fsdp_train_config *train, const fsdp_scale_report *report,
                                bool json)
{
    fsdp_scale_report r = *report;
    r.strategy = fsdp_sharding_strategy_name((fsdp_sharding_strategy)train->sharding_strategy);
    return json ? fsdp_scale_print_json(&r, stdout) : fsdp_scale_print(&r, stdout);
}

fsdp_status fsdp_plan_scale_print(const fsdp_train_config *train, const fsdp_plan_scale_config *c,
                                  const fsdp_plan *plan, bool json)
{
    fsdp_scale_options options;
    fsdp_scale_estimate estimate;
    char source[160];
    FSDP_TRY(read_options(train, c, plan, &options, source));
    FSDP_TRY(fsdp_scale_estimate_step(plan, &options, &estimate));
    return print_report(train,
                        &(fsdp_scale_report){.estimates = &estimate,
                                             .n = 1,
                                             .plan = plan,
                                             .options = &options,
                                             .flops_source = source},
                        json);
}

/* A plan and its estimate for each number of ranks. */
typedef struct plan_set {
    fsdp_plan **plans;              /* [n] */
    fsdp_scale_estimate *estimates; /* [n] */
    size_t n;
} plan_set;

static int local_size(int world_size, int local_world_size)
{
    return world_size < local_world_size ? world_size : local_world_size;
}

static fsdp_status make_estimates(const fsdp_train_config *train, const fsdp_plan_scale_config *c,
                                  const int *sizes, int local_world_size, plan_set *set,
                                  fsdp_scale_options *options, char source[160])
{
    for (size_t i = 0; i < set->n; i++) {
        fsdp_status status = fsdp_plan_create(
            train, sizes[i], local_size(sizes[i], local_world_size), &set->plans[i]);
        if (i == 0 && status == FSDP_OK)
            status = read_options(train, c, set->plans[0], options, source);
        if (status == FSDP_OK)
            status = fsdp_scale_estimate_step(set->plans[i], options, &set->estimates[i]);
        if (status != FSDP_OK) {
            fsdp_error_context(status, "--world-size %d", sizes[i]);
            return status;
        }
    }
    return FSDP_OK;
}

static fsdp_status print_sizes(const fsdp_train_config *train, const fsdp_plan_scale_config *c,
                               const int *sizes, int local_world_size, plan_set *set, bool json)
{
    fsdp_scale_options options;
    char source[160];
    FSDP_TRY(make_estimates(train, c, sizes, local_world_size, set, &options, source));
    return print_report(train,
                        &(fsdp_scale_report){.estimates = set->estimates,
                                             .n = set->n,
                                             .plan = set->plans[0],
                                             .options = &options,
                                             .flops_source = source},
                        json);
}

fsdp_status fsdp_plan_scale_print_sizes(const fsdp_train_config *train,
                                        const fsdp_plan_scale_config *c, const int *sizes, size_t n,
                                        int local_world_size, bool json)
{
    plan_set set = {.plans = fsdp_calloc(n, sizeof *set.plans),
                    .estimates = fsdp_calloc(n, sizeof *set.estimates),
                    .n = n};
    fsdp_status status = set.plans && set.estimates ? FSDP_OK : fsdp_error_nomem();
    if (status == FSDP_OK)
        status = print_sizes(train, c, sizes, local_world_size, &set, json);
    for (size_t i = 0; set.plans && i < n; i++)
        fsdp_plan_destroy(set.plans[i]);
    fsdp_free(set.plans);
    fsdp_free(set.estimates);
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        status = fsdp_memory_limit_check(train, sizes[i], local_size(sizes[i], local_world_size));
        if (status != FSDP_OK)
            fsdp_error_context(status, "--world-size %d", sizes[i]);
    }
    return status;
}
