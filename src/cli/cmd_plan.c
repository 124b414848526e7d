/* `fsdp plan`: prints the memory and the collectives that a run of `fsdp train` with the same
 * options would need. It has all options of `fsdp train`, even those that do not affect a plan, and
 * a few options of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/cli/cli.h"
#include "src/plan/memory_limit.h"
#include "src/plan/plan.h"

typedef struct plan_config {
    fsdp_train_config train; /* must be the first field: the offsets in train's table are relative
                                to it */
    int world_size, local_world_size;
    bool schedule, json;
} plan_config;

static const fsdp_option own[] = {
    {.name = "world-size",
     .aliases = "nproc,n",
     .type = FSDP_OPTION_INT,
     .offset = offsetof(plan_config, world_size),
     .value = "1",
     .env = "WORLD_SIZE",
     .bounds = FSDP_BETWEEN(1, 1048576),
     .metavar = "N",
     .group = "the plan",
     .help = "ranks"},
    {.name = "local-world-size",
     .aliases = "nproc-per-node",
     .type = FSDP_OPTION_INT,
     .offset = offsetof(plan_config, local_world_size),
     .value = "0",
     .env = "LOCAL_WORLD_SIZE",
     .bounds = FSDP_BETWEEN(0, 1048576),
     .metavar = "L",
     .shown_default = "all, one host",
     .help = "ranks of one host; memory that they share counts 1/L for each"},
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

/* Options of train that do not affect a plan, such as --data, --epochs and --output. */
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
    "threads-per-rank",
    "isa",
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

/* Return a table with the options that only plan has, followed by those of train. *count is set to
 * the number of options. The caller owns the table. Returns NULL when out of memory. */
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

static fsdp_status plan(const plan_config *c)
{
    fsdp_plan *made;
    const int local = c->local_world_size ? c->local_world_size : c->world_size;
    FSDP_TRY(fsdp_plan_create(&c->train, c->world_size, local, &made));
    fsdp_status status = c->json ? fsdp_plan_print_json(made, stdout, c->schedule)
                                 : fsdp_plan_print(made, stdout, c->schedule);
    fsdp_plan_destroy(made);
    return status == FSDP_OK ? fsdp_memory_limit_check(&c->train, c->world_size, local) : status;
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
}

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
        .epilogue = "example:\n"
                    "  fsdp plan --model t5-3b --world-size 8 --batch-size 4 --bf16 --schedule\n",
        .table = table,
        .count = count,
        .compat = fsdp_train_options()->compat,
        .n_compat = fsdp_train_options()->n_compat,
        .derive = derive,
        .check = fsdp_train_options()->check,
        .without_effect = fsdp_train_options()->without_effect,
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
