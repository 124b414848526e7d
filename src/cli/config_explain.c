/* `fsdp config explain FILE`: says what a configuration file does; with a model also its memory and
 * bytes. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/accelerate/explain.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/cli/cli.h"
#include "src/cli/config.h"
#include "src/plan/plan.h"
#include "src/report/human.h"
#include "src/train_config/config.h"

enum {
    MAX_ARGUMENTS = 40
};

typedef struct explain_options {
    const char *config_file, *model;
    int batch_size;
    int64_t length;
} explain_options;

static const fsdp_option table[] = {
    {.name = "config-file",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(explain_options, config_file),
     .metavar = "FILE",
     .help = "the file, as accelerate launch names it"},
    {.name = "model",
     .aliases = "model-name-or-path",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(explain_options, model),
     .metavar = "DIR",
     .help = "also plan a step of this model: memory of a rank and bytes between ranks"},
    {.name = "batch-size",
     .aliases = "per-device-train-batch-size",
     .type = FSDP_OPTION_INT,
     .offset = offsetof(explain_options, batch_size),
     .value = "4",
     .bounds = FSDP_BETWEEN(1, 1048576),
     .help = "with --model: rows per rank"},
    {.name = "max-seq-length",
     .aliases = "max-length,block-size",
     .type = FSDP_OPTION_INT64,
     .offset = offsetof(explain_options, length),
     .value = "0",
     .bounds = FSDP_BETWEEN(0, 1048576),
     .shown_default = "0, the model's limit",
     .help = "with --model: tokens of a row"},
};

static const fsdp_options_spec spec = {
    .program = "fsdp config explain",
    .usage = "FILE [--model DIR]",
    .summary = "Say in words what a configuration file of Accelerate makes a training do: strategy "
               "and ZeRO stage, units, precision, memory and communication for each parameter, and "
               "which keys have no effect here. Unknown keys and contradictions are errors.",
    .epilogue = "example:\n  fsdp config explain fsdp.yaml --model t5-base --batch-size 8\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "FILE",
    .max_positional = 1,
};

/* ---- the plan of a model ---- */

typedef struct arguments {
    char *words[MAX_ARGUMENTS];
    int n;
    bool failed;
} arguments;

FSDP_PRINTF(2, 3) static void add(arguments *a, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *word = a->n < MAX_ARGUMENTS ? fsdp_strdup(text) : NULL;
    if (word)
        a->words[a->n++] = word;
    a->failed |= !word;
}

/* Make the command line of `fsdp train` that does what the file says. */
static void add_all(arguments *a, const fsdp_explained *x, const explain_options *o)
{
    add(a, "fsdp train");
    add(a, "--model=%s", o->model);
    add(a, "--data=-");
    add(a, "--no-save-model");
    add(a, "--from-config");
    add(a, "--batch-size=%d", o->batch_size);
    if (o->length)
        add(a, "--max-seq-length=%lld", (long long)o->length);
    add(a, "--sharding-strategy=%s", fsdp_explained_strategy_name(x->strategy));
    if (x->strategy >= FSDP_EXPLAINED_HYBRID_SHARD)
        add(a, "--shard-size=%ld", x->shards);
    add(a, "--mixed-precision=%s", x->precision);
    add(a, "--auto-wrap-policy=%s", x->wrap_policy);
    if (x->classes)
        add(a, "--transformer-layer-cls-to-wrap=%s", x->classes);
    if (x->min_num_params)
        add(a, "--min-num-params=%s", x->min_num_params);
    if (x->prefetch)
        add(a, "--backward-prefetch=%s", x->prefetch);
    if (x->forward_prefetch)
        add(a, "--forward-prefetch");
    if (x->checkpointing)
        add(a, "--activation-checkpointing");
}

static void print_plan(const fsdp_plan *p, const fsdp_explained *x)
{
    uint64_t gathered = 0, reduced = 0, added = 0;
    for (size_t i = 0; i < p->n_units; i++) {
        gathered += p->units[i].all_gather_bytes;
        reduced += p->units[i].reduce_scatter_bytes;
        added += p->units[i].all_reduce_bytes;
    }
    const double part = (double)(x->shards - 1) / (double)x->shards;
    printf("\nthe model     %s: %s parameters in %zu unit%s; a rank's batch is %lld rows of %lld "
           "tokens\n",
           p->class_name, fsdp_human_count((double)p->numel).text, p->n_units,
           p->n_units == 1 ? "" : "s", (long long)p->rows, (long long)p->source_length);
    printf(
        "memory        %s at the peak of a step: %s of weights, %s of gradients, %s of optimizer "
        "state, %s of activations, %s of buffers for communication\n",
        fsdp_human_bytes(p->peak.total).text, fsdp_human_bytes(p->peak.tag[FSDP_TAG_PARAM]).text,
        fsdp_human_bytes(p->peak.tag[FSDP_TAG_GRAD]).text,
        fsdp_human_bytes(p->peak.tag[FSDP_TAG_OPTIM]).text,
        fsdp_human_bytes(p->peak.tag[FSDP_TAG_ACTIVATION]).text,
        fsdp_human_bytes(p->peak.tag[FSDP_TAG_COMM]).text);
    printf("communication a rank receives in a step: %s of parameters, %s of gradients",
           fsdp_human_bytes((int64_t)((double)gathered * part)).text,
           fsdp_human_bytes((int64_t)((double)reduced * part)).text);
    if (added)
        printf(", and %s are added over the replicas", fsdp_human_bytes((int64_t)added).text);
    printf("\n'fsdp plan' with the same options has the whole plan\n");
}

static fsdp_status plan(const fsdp_train_config *config, const fsdp_explained *x)
{
    fsdp_plan *made;
    const int ranks = (int)x->ranks,
              local = x->ranks % x->machines ? ranks : (int)(x->ranks / x->machines);
    FSDP_TRY(fsdp_plan_create(config, ranks, local, &made));
    print_plan(made, x);
    fsdp_plan_destroy(made);
    return FSDP_OK;
}

static fsdp_status plan_model(const fsdp_explained *x, const explain_options *o)
{
    arguments a = {0};
    fsdp_train_config config = {0};
    fsdp_options *options = NULL;
    add_all(&a, x, o);
    fsdp_status status =
        a.failed ? fsdp_error_nomem()
                 : fsdp_options_parse(fsdp_train_options(), a.n, a.words, &config, &options);
    if (status == FSDP_OK)
        status = plan(&config, x);
    fsdp_options_destroy(options);
    for (int i = 0; i < a.n; i++)
        fsdp_free(a.words[i]);
    return status;
}

/* ---- the command ---- */

static fsdp_status explain(const char *path, const explain_options *o)
{
    fsdp_yaml config;
    fsdp_explained explained;
    FSDP_TRY(fsdp_yaml_read(path, &config));
    fsdp_status status = fsdp_explain_read(&config, path, &explained);
    if (status == FSDP_OK)
        status = fsdp_explain_print(&config, &explained, stdout);
    if (status == FSDP_OK && o->model)
        status = plan_model(&explained, o);
    fsdp_yaml_fini(&config);
    return status;
}

int fsdp_config_explain(int argc, char **argv)
{
    explain_options config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    int n;
    char **files = fsdp_options_positional(options, &n);
    const char *path = n ? files[0] : config.config_file;
    fsdp_status status =
        path ? explain(path, &config)
             : fsdp_error(FSDP_ERR_INVALID, "the file is missing: FILE, or --config-file FILE");
    code = status == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(spec.program);
    fsdp_options_destroy(options);
    return code;
}
