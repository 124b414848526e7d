/* `fsdp config explain FILE`: prints in words what a run with this configuration file does. With
 * --model, also prints the memory and the communication of a training step. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/accelerate/explain.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/cli/common/cli.h"
#include "src/cli/config.h"
#include "src/launch/accelerate.h"
#include "src/plan/plan.h"
#include "src/report/human.h"
#include "src/train_config/config.h"

enum {
    MAX_ARGUMENTS = 10
};

typedef struct explain_options {
    const char *config_file, *ranks, *model;
    int batch_size;
    int64_t length;
} explain_options;

static const fsdp_option table[] = {
    {.name = "config-file",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(explain_options, config_file),
     .metavar = "FILE",
     .shown_default = "Accelerate's default_config.yaml",
     .help = "the file, as accelerate launch names it"},
    {.name = "num-processes",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(explain_options, ranks),
     .metavar = "N",
     .shown_default = "the file's num_processes",
     .help = "number of ranks, as with 'fsdp launch --num_processes'"},
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

static fsdp_status check(void *target, const fsdp_options *options)
{
    const char *path;
    return fsdp_config_named_file(options, ((const explain_options *)target)->config_file, &path);
}

static const fsdp_options_spec spec = {
    .program = "fsdp config explain",
    .usage = "[FILE] [--model DIR]",
    .summary = "Say in words what 'fsdp launch --config_file FILE train' does: strategy and ZeRO "
               "stage, units, precision, memory and communication for each parameter, and which "
               "keys have no effect here. What the launcher refuses is refused with the same "
               "words.",
    .epilogue = "example:\n  fsdp config explain fsdp.yaml --model t5-base --batch-size 8\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "FILE",
    .max_positional = 1,
    .check = check,
};

/* ---- planning the training of a model ---- */

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

/* Make the command line of `fsdp train` for the plan. All options that are not in it come from
 * environment variables, as in ranks that `fsdp launch` starts. */
static void add_all(arguments *a, const explain_options *o)
{
    add(a, "fsdp train");
    add(a, "--model=%s", o->model);
    add(a, "--data=-");
    add(a, "--no-save-model");
    add(a, "--from-config");
    add(a, "--batch-size=%d", o->batch_size);
    if (o->length)
        add(a, "--max-seq-length=%lld", (long long)o->length);
}

static void print_plan(const fsdp_plan *p, long shards)
{
    uint64_t gathered = 0, reduced = 0, added = 0;
    for (size_t i = 0; i < p->n_units; i++) {
        gathered += p->units[i].all_gather_bytes;
        reduced += p->units[i].reduce_scatter_bytes;
        added += p->units[i].all_reduce_bytes;
    }
    const double part = (double)(shards - 1) / (double)shards;
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
    FSDP_TRY(fsdp_plan_create(config, (int)x->ranks, (int)(x->ranks / x->machines), &made));
    print_plan(made, x->shards);
    fsdp_plan_destroy(made);
    return FSDP_OK;
}

/* Plan a training run in which each rank has the environment variables that the launcher would set
 * because of the configuration file. */
static fsdp_status plan_model(const fsdp_launch_config *launch, const fsdp_options *launch_options,
                              const explain_options *o)
{
    arguments a = {0};
    fsdp_train_config config = {0};
    fsdp_options *options = NULL;
    const fsdp_explained explained = fsdp_explain(launch, launch_options);
    FSDP_TRY(fsdp_accelerate_set_environment(launch, launch_options));
    add_all(&a, o);
    fsdp_status status =
        a.failed ? fsdp_error_nomem()
                 : fsdp_options_parse(fsdp_train_options(), a.n, a.words, &config, &options);
    if (status == FSDP_OK)
        status = plan(&config, &explained);
    fsdp_options_destroy(options);
    for (int i = 0; i < a.n; i++)
        fsdp_free(a.words[i]);
    return status;
}

/* ---- the command ---- */

static fsdp_status explain(const char *path, const explain_options *o)
{
    fsdp_launch_config config = {0};
    fsdp_options *options = NULL;
    FSDP_TRY(fsdp_explain_read(path, o->ranks, &config, &options));
    fsdp_status status = fsdp_explain_print(&config, options, stdout);
    if (status == FSDP_OK && o->model)
        status = plan_model(&config, options, o);
    fsdp_options_destroy(options);
    return status;
}

/* Explain the file `path`, or Accelerate's default file if `path` is NULL. */
static fsdp_status explain_file(const char *path, const explain_options *o)
{
    char *found = NULL;
    if (!path)
        FSDP_TRY(fsdp_accelerate_default_config(&found));
    if (!path && !found)
        return fsdp_error(FSDP_ERR_INVALID, "the file is missing: FILE, or --config-file FILE; "
                                            "there is no default file either");
    if (found)
        printf("%s:\n", found);
    const fsdp_status status = explain(found ? found : path, o);
    fsdp_free(found);
    return status;
}

int fsdp_config_explain(int argc, char **argv)
{
    explain_options config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    const char *path;
    fsdp_status status = fsdp_config_named_file(options, config.config_file, &path);
    if (status == FSDP_OK)
        status = explain_file(path, &config);
    code = status == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(spec.program);
    fsdp_options_destroy(options);
    return code;
}
