/* `fsdp plan`: prints the memory and the collectives that a run of `fsdp train` with the same
 * options would need. It has all options of `fsdp train`, even those that do not affect a plan, and
 * a few options of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/cli/common/cli.h"
#include "src/cli/plan_scale.h"
#include "src/plan/fit.h"
#include "src/plan/memory_limit.h"
#include "src/plan/plan.h"

typedef struct plan_config {
    fsdp_train_config train; /* must be the first field: the offsets in train's table are relative
                                to it */
    fsdp_plan_scale_config scale;
    const char *world_size;
    int local_world_size;
    bool schedule, json;
    int64_t fit; /* most bytes that a rank may need; 0: not given */
} plan_config;

static const fsdp_option own[] = {
    {.name = "world-size",
     .aliases = "nproc,n",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(plan_config, world_size),
     .value = "1",
     .env = "WORLD_SIZE",
     .metavar = "N",
     .group = "the plan",
     .help = "ranks; with --interconnect also a list (8,64,512) or a range (8..4096, doubling)"},
    {.name = "local-world-size",
     .aliases = "nproc-per-node",
     .type = FSDP_OPTION_INT,
     .offset = offsetof(plan_config, local_world_size),
     .value = "0",
     .env = "LOCAL_WORLD_SIZE",
     .bounds = FSDP_BETWEEN(0, 1048576),
     .metavar = "L",
     .shown_default = "all, one host",
     .help = "number of ranks of one host; each of them counts 1/L of the memory that they share"},
    {.name = "interconnect",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(plan_config, scale.interconnect),
     .metavar = "RATE,LATENCY",
     .shown_default = "no estimate of time",
     .help = "also estimate the time of a step. RATE is what a host sends and receives at the same "
             "time, LATENCY that of a message, for example 100Gb,2us (bits) or 12.5GB,2us (bytes)"},
    {.name = "flops-per-rank",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(plan_config, scale.flops_per_rank),
     .metavar = "RATE",
     .shown_default = "measured: the fastest product of this machine",
     .help = "for the estimate: operations per second that a rank reaches in a step, for example "
             "10T; 'fsdp bench train' measures them (gflops times threads)"},
    {.name = "straggler",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(plan_config, scale.straggler),
     .value = "0",
     .metavar = "PART",
     .help = "for the estimate: by how much the compute time of a rank varies from step to step, "
             "for example 5% (a standard deviation)"},
    {.name = "fit",
     .type = FSDP_OPTION_SIZE,
     .offset = offsetof(plan_config, fit),
     .value = "0",
     .bounds = FSDP_AT_LEAST(0),
     .metavar = "SIZE",
     .shown_default = "none",
     .help =
         "propose flags with which a rank needs at most SIZE, for example 24GiB, and print what "
         "each of them saves"},
    {.name = "schedule",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(plan_config, schedule),
     .help = "also print the order of a step: which all-gather is in progress while which unit "
             "computes"},
    {.name = "json",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(plan_config, json),
     .help = "print one JSON object instead of tables"},
};

/* Options of `fsdp train` that do not affect a plan. */
static const char *const not_looked_at[] = {
    "from-config",
    "tokenizer",
    "data",
    "task-prefix",
    "text-column",
    "target-column",
    "chat-template",
    "chat-template-kwargs",
    "assistant-only-loss",
    "completion-only-loss",
    "wikihow-cleaning",
    "cleaning",
    "source-lang",
    "target-lang",
    "json-field",
    "text-pair-column",
    "label-column",
    "delimiter",
    "csv-quotes",
    "document-separator",
    "token-dtype",
    "max-train-samples",
    "max-validation-samples",
    "document-token",
    "epochs",
    "max-steps",
    "seed",
    "label-smoothing",
    "sampler",
    "shuffle",
    "drop-last",
    "num-workers",
    "output",
    "overwrite-output",
    "evaluation-steps",
    "eval-iters",
    "logging-steps",
    "track-memory",
    "metrics",
    "report-to",
    "with-tracking",
    "logging-dir",
    "tracker-command",
    "run-name",
    "project",
    "plot",
    "generate-examples",
    "lr-schedule",
    "schedule-unit",
    "gamma",
    "step-size",
    "warmup-steps",
    "warmup-ratio",
    "lr-power",
    "num-cycles",
    "devices",
    "eval-strategy",
    "logging-strategy",
    "min-lr",
    "lr",
    "profile",
    "profile-steps",
};

static bool is_looked_at(const char *name)
{
    for (size_t i = 0; i < FSDP_LENGTH(not_looked_at); i++)
        if (strcmp(not_looked_at[i], name) == 0)
            return false;
    return true;
}

/* Return a table with the options that only plan has, followed by those of train. Set *count to the
 * number of options. The caller owns the table. Returns NULL when out of memory. */
static fsdp_option *make_table(size_t *count)
{
    const fsdp_options_spec *train = fsdp_train_options();
    *count = FSDP_LENGTH(own) + train->count;
    fsdp_option *table = fsdp_calloc(*count, sizeof *table);
    if (!table)
        return NULL;
    memcpy(table, own, sizeof own);
    memcpy(table + FSDP_LENGTH(own), train->table, train->count * sizeof *table);
    for (size_t i = FSDP_LENGTH(own); i < *count; i++) {
        fsdp_option *o = &table[i];
        if (strcmp(o->name, "save-model") == 0)
            /* In train, --save-model is true by default, so train requires --output. In plan,
             * --save-model is false by default, so that plan does not require --output. */
            o->value = "false";
        if (is_looked_at(o->name))
            continue;
        o->required = false;
        o->no_effect = "a plan reads no data, computes nothing and writes nothing";
        if (strcmp(o->name, "data") == 0)
            o->value = "-";
    }
    return table;
}

/* Propose options with which a rank needs at most c->fit bytes. */
static fsdp_status print_fit(const plan_config *c, int world_size)
{
    fsdp_fit *fit;
    const int local = c->local_world_size ? c->local_world_size : world_size;
    FSDP_TRY(fsdp_fit_create(&c->train, world_size, local, c->fit, &fit));
    fsdp_status status = c->json ? fsdp_fit_print_json(fit, stdout) : fsdp_fit_print(fit, stdout);
    if (status == FSDP_OK)
        status = fsdp_fit_check(fit);
    fsdp_fit_destroy(fit);
    return status;
}

/* Print the plan for one number of ranks. If the user asked for an estimate, print it below the
 * plan. */
static fsdp_status print_plan(const plan_config *c, int world_size)
{
    fsdp_plan *made;
    const int local = c->local_world_size ? c->local_world_size : world_size;
    FSDP_TRY(fsdp_plan_create(&c->train, world_size, local, &made));
    fsdp_status status = c->json ? fsdp_plan_print_json(made, stdout, c->schedule)
                                 : fsdp_plan_print(made, stdout, c->schedule);
    if (status == FSDP_OK && c->scale.interconnect)
        status = fsdp_plan_scale_print(&c->train, &c->scale, made, c->json);
    fsdp_plan_destroy(made);
    return status == FSDP_OK ? fsdp_memory_limit_check(&c->train, world_size, local) : status;
}

static fsdp_status plan(const plan_config *c)
{
    int sizes[FSDP_SCALE_MAX_SIZES];
    size_t n;
    bool is_range;
    FSDP_TRY(fsdp_scale_parse_sizes(c->world_size, sizes, &n, &is_range));
    if (c->fit)
        return print_fit(c, sizes[0]);
    if (!is_range)
        return print_plan(c, sizes[0]);
    if (c->schedule)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "--schedule prints the order of one step: it needs a single --world-size, "
            "not '%s'",
            c->world_size);
    return fsdp_plan_scale_print_sizes(&c->train, &c->scale, sizes, n, c->local_world_size,
                                       c->json);
}

/* Return true if another rank prints the plan. All ranks have the same plan, so only rank 0 prints
 * it under `fsdp launch`. */
static bool is_printed_by_another_rank(void)
{
    const char *rank = getenv("RANK");
    return rank && atoi(rank) > 0;
}

/* If the user gives --world-size, ignore LOCAL_WORLD_SIZE in the environment, because it belongs to
 * a launch with another world size. */
static void derive(void *config, const fsdp_options *options)
{
    plan_config *c = config;
    if (fsdp_options_origin(options, "world-size") > FSDP_ORIGIN_ENV &&
        fsdp_options_origin(options, "local-world-size") == FSDP_ORIGIN_ENV)
        c->local_world_size = 0;
    fsdp_train_options()->derive(config, options);
    c->train.parsed_bytes = sizeof *c;
}

/* Check the options that only plan has, and then those of train. */
static fsdp_status check(void *config, const fsdp_options *options)
{
    plan_config *c = config;
    int sizes[FSDP_SCALE_MAX_SIZES];
    size_t n;
    bool is_range;
    FSDP_TRY(fsdp_scale_parse_sizes(c->world_size, sizes, &n, &is_range));
    FSDP_TRY(fsdp_plan_scale_check(&c->scale, options, is_range, c->local_world_size));
    if (!c->fit && fsdp_options_given(options, "fit"))
        return fsdp_error(FSDP_ERR_INVALID, "--fit 0: a rank needs some memory; give its size, "
                                            "such as 24GiB");
    if (c->fit && (is_range || c->scale.interconnect || c->schedule || c->train.memory_limit))
        return fsdp_error(
            FSDP_ERR_INVALID,
            "--fit looks for one set of flags: it needs a single --world-size, and has "
            "no --interconnect, --schedule and --memory-limit; give these to a second "
            "'fsdp plan' with the proposed flags");
    return fsdp_train_options()->check(config, options);
}

/* Return the reason why option `name` has no effect, or NULL if it has an effect.
 * --threads-per-rank and --isa have an effect only if the speed of this machine is measured. This
 * is the case if the user asked for an estimate and did not give --flops-per-rank. */
static const char *without_effect(const void *config, const fsdp_options *options, const char *name)
{
    const plan_config *c = config;
    const bool is_speed = strcmp(name, "threads-per-rank") == 0 || strcmp(name, "isa") == 0;
    if (is_speed)
        return c->scale.interconnect && !c->scale.flops_per_rank
                   ? NULL
                   : "a plan computes nothing, unless it measures the rate for an estimate";
    return fsdp_train_options()->without_effect
               ? fsdp_train_options()->without_effect(config, options, name)
               : NULL;
}

/* What plain --help shows (without a topic): the options that most runs use. */
static const char *const first_page[] = {
    "the plan: world-size local-world-size fit schedule json",
    "an estimate of time: interconnect flops-per-rank",
    "the run, with options of 'fsdp train': model task batch-size max-seq-length max-source-length "
    "gradient-accumulation-steps optimizer sharding-strategy activation-checkpointing cpu-offload "
    "lora-r bf16 device",
    NULL};

int fsdp_cmd_plan(int argc, char **argv)
{
    plan_config config = {0};
    fsdp_options *options;
    size_t count = 0;
    fsdp_option *table = make_table(&count);
    const fsdp_options_spec spec = {
        .program = "fsdp plan",
        .usage = "--model DIR --world-size N [options of fsdp train]",
        .summary =
            "What a run of 'fsdp train' with the same options would need: memory by purpose "
            "at each point of a step, number and bytes of collectives, and their order. Only "
            "the model's config.json is read, and nothing is computed.",
        .epilogue = "examples:\n"
                    "  fsdp plan --model t5-3b --world-size 8 --batch-size 4 --bf16 --schedule\n"
                    "  fsdp plan --model t5-11b --world-size 8..4096 --local-world-size 8 --bf16 "
                    "--interconnect 100Gb,2us --flops-per-rank 100T\n",
        .first_page = first_page,
        .table = table,
        .count = count,
        .compat = fsdp_train_options()->compat,
        .n_compat = fsdp_train_options()->n_compat,
        .derive = derive,
        .check = check,
        .without_effect = without_effect,
    };
    int code = table ? fsdp_cli_options(&spec, argc, argv, &config, &options)
                     : fsdp_cli_failed(spec.program);
    if (code == FSDP_CLI_RUN) {
        config.train.from_config = true;
        config.train.save_model |= !fsdp_options_given(options, "save-model");
        if (is_printed_by_another_rank())
            code = FSDP_EXIT_OK;
        else
            code = plan(&config) == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(spec.program);
        fsdp_options_destroy(options);
    }
    fsdp_free(table);
    return code;
}
