/* `fsdp evaluate`: measures models on held-out rows. It reports the loss and, depending on the
 * model's task, perplexity, ROUGE scores, or accuracy and F1. */
#include <string.h>
#include <stdio.h>

#include "src/base/assert.h"
#include "src/cli/common/cli.h"
#include "src/cli/generation_options.h"
#include "src/evaluate/evaluate.h"
#include "src/fsdp/named_sharding.h"
#include "src/generate/generate.h"
#include "src/options/device_option.h"
#include "src/options/isa_option.h"
#include "src/train_config/precision.h"

#define PLACE(field) .offset = offsetof(fsdp_evaluate_config, field)

/* clang-format off */
static const fsdp_option table[] = {
    {.name = "model", .aliases = "models,model-name,model-name-or-path", .type = FSDP_OPTION_LIST,
     PLACE(models), .metavar = "DIR,...", .required = true, .group = "models",
     .several = "a comma separates models that are compared",
     .help = "Hugging Face folders or hub names found in the local cache, to be compared"},
    {.name = "adapter", .type = FSDP_OPTION_STRING, PLACE(adapter), .metavar = "DIR",
     .help = "folder of a LoRA adapter for the model; --model may also name this folder alone"},
    FSDP_QUANTIZE_OPTIONS(offsetof(fsdp_evaluate_config, quantize)),
    {.name = "untrained", .type = FSDP_OPTION_BOOL, PLACE(untrained),
     .help = "first evaluate the first model's shape with random weights from the seed"},
    {.name = "from-config", .type = FSDP_OPTION_BOOL, PLACE(from_config),
     .help = "use random weights for all models: only config.json is read"},
    {.name = "seed", .type = FSDP_OPTION_INT64, PLACE(seed), .value = "1",
     .bounds = FSDP_AT_LEAST(0), .help = "seed of random weights, of --do-sample, and of the "
                                         "choice of tokens for masked-lm"},
    {.name = "mlm-probability", .type = FSDP_OPTION_DOUBLE, PLACE(mlm_probability),
     .value = "0.15", .bounds = {.set = true, .min = 0, .max = 1, .above = true},
     .help = "BertForMaskedLM: share of the tokens that are predicted"},
    {.name = "tokenizer", .aliases = "tokenizer-name", .type = FSDP_OPTION_STRING,
     PLACE(tokenizer), .metavar = "PATH", .shown_default = "each model's",
     .help = "a tokenizer's file (tokenizer.json, spiece.model, ...), or a folder that holds one"},

    {.name = "data", .aliases = "dataset,validation-data,validation-file,test-file,eval-data",
     .type = FSDP_OPTION_STRING, PLACE(data), .metavar = "PATH", .required = true,
     .several = "run the command once for each file",
     .group = "rows", .help = "what 'fsdp train --validation-data' takes for the model's task: a "
     "CSV or JSONL file, a folder of datasets.save_to_disk(), token files"},
    {.name = "baseline-data", .aliases = "train-data,train-file", .type = FSDP_OPTION_STRING,
     PLACE(baseline_data), .metavar = "PATH",
     .help = "the training rows: for comparison, show the score of the one summary that is best "
             "when it is used for every row"},
    {.name = "task-prefix", .aliases = "source-prefix", .type = FSDP_OPTION_STRING,
     PLACE(task_prefix), .shown_default = "seq2seq: prefix of the model's config.json, else "
     "'summarize: '; other tasks: none",
     .help = "put before every source text, or prompt"},
    {.name = "text-column", .aliases = "source-column,prompt-column", .type = FSDP_OPTION_STRING,
     PLACE(text_column), .metavar = "NAME", .shown_default = "that of 'fsdp train'",
     .help = "column of CSV, or key of JSONL, with the source, the prompt or the whole text"},
    {.name = "target-column", .aliases = "summary-column,completion-column",
     .type = FSDP_OPTION_STRING, PLACE(target_column), .metavar = "NAME",
     .shown_default = "that of 'fsdp train'",
     .help = "column or key with the target, or with the text after the prompt"},
    FSDP_CHAT_ROW_OPTIONS(offsetof(fsdp_evaluate_config, chat)),
    {.name = "wikihow-cleaning", .type = FSDP_OPTION_BOOL, PLACE(wikihow_cleaning),
     .help = "the same as --cleaning wikihow; references are cleaned too"},
    FSDP_FORM_OPTIONS(offsetof(fsdp_evaluate_config, form)),
    {.name = "max-samples", .aliases = "max-eval-samples,max-validation-samples",
     .type = FSDP_OPTION_INT64, PLACE(max_samples), .value = "0", .bounds = FSDP_AT_LEAST(0),
     .shown_default = "0, all", .help = "use only the first N rows"},
    {.name = "max-source-length", .aliases = "max-input-length", .type = FSDP_OPTION_INT,
     PLACE(max_source_length), .value = "512", .bounds = FSDP_BETWEEN(1, 1048576),
     .help = "seq2seq: most tokens of a source; the rest is cut off. Rows of ids are cut only if "
             "this is given"},
    {.name = "max-target-length", .aliases = "max-output-length", .type = FSDP_OPTION_INT,
     PLACE(max_target_length), .value = "150", .bounds = FSDP_BETWEEN(1, 1048576),
     .help = "seq2seq: most tokens of a target for the loss; the rest is cut off. ROUGE uses the "
             "whole text"},
    {.name = "max-seq-length", .aliases = "block-size,context-length,seq-length,sequence-length",
     .type = FSDP_OPTION_INT64, PLACE(max_seq_length), .value = "0",
     .bounds = FSDP_BETWEEN(0, 1073741824), .shown_default = "0, as many as the model takes; token "
     "files: 1024 if it takes them",
     .help = "causal-lm and classification: tokens of a row; the rest is cut off"},

    {.name = "generate", .aliases = "predict-with-generate", .type = FSDP_OPTION_BOOL,
     PLACE(generate), .value = "true", .group = "computing",
     .help = "seq2seq: generate texts and score them, besides the loss"},
    {.name = "batch-size", .aliases = "eval-batch-size,per-device-eval-batch-size,"
     "validation-batch-size", .type = FSDP_OPTION_INT, PLACE(batch_size), .value = "8",
     .bounds = FSDP_BETWEEN(1, 1048576), .help = "rows per rank at a time"},
    {.name = "param-dtype", .aliases = "param-type", .type = FSDP_OPTION_DTYPE,
     PLACE(param_dtype), .value = "float32", .help = "of weights and activations"},
    FSDP_DEVICE_OPTION(offsetof(fsdp_evaluate_config, device)),
    {.name = "threads-per-rank", .aliases = "num-cpu-threads-per-process",
     .type = FSDP_OPTION_INT, PLACE(threads_per_rank), .value = "0",
     .bounds = FSDP_BETWEEN(0, 1024), .env = FSDP_THREADS_ENV,
     .shown_default = FSDP_THREADS_DEFAULT,
     .help = "threads that compute"},
    {.name = "isa", .type = FSDP_OPTION_STRING, PLACE(isa), .metavar = "ISA",
     .shown_default = "the best that 'fsdp --version' lists",
     .help = FSDP_ISA_HELP},

    FSDP_GENERATION_OPTIONS(offsetof(fsdp_evaluate_config, generation), "--max-target-length"),

    {.name = "examples", .aliases = "generate-examples", .type = FSDP_OPTION_INT, PLACE(examples),
     .value = "0", .bounds = FSDP_BETWEEN(0, 10000), .group = "output",
     .help = "show N texts with their references"},
    {.name = "predictions", .type = FSDP_OPTION_STRING, PLACE(predictions), .metavar = "FILE",
     .help = "write the last model's texts, one line a row"},
    {.name = "prompts", .type = FSDP_OPTION_STRING, PLACE(prompts), .metavar = "FILE",
     .help = "write the source texts with the first model's prefix, one line a row: 'fsdp generate "
             "--input' reads them"},
    {.name = "json", .type = FSDP_OPTION_BOOL, PLACE(json),
     .help = "print one line of JSON instead of tables"},
};
/* clang-format on */

static void derive(void *target, const fsdp_options *options)
{
    fsdp_evaluate_config *c = target;
    fsdp_generation_options_given(options, &c->generation);
    fsdp_form_options_derive(&c->form, options);
    if (c->wikihow_cleaning && !fsdp_options_given(options, "cleaning"))
        c->form.cleaning = FSDP_CLEANING_WIKIHOW;
    c->wikihow_cleaning = c->form.cleaning == FSDP_CLEANING_WIKIHOW;
    c->cut_sources = fsdp_options_given(options, "max-source-length");
    c->cut_targets = fsdp_options_given(options, "max-target-length");
    c->asked_for.task_prefix = fsdp_options_asked_for(options, "task-prefix");
    c->asked_for.text_column = fsdp_options_asked_for(options, "text-column");
    c->asked_for.target_column = fsdp_options_asked_for(options, "target-column");
    fsdp_chat_row_options_derive(&c->chat, options);
    c->asked_for.max_source_length = fsdp_options_asked_for(options, "max-source-length");
    c->asked_for.max_target_length = fsdp_options_asked_for(options, "max-target-length");
    c->asked_for.seed = fsdp_options_asked_for(options, "seed");
    c->asked_for.mlm_probability = fsdp_options_asked_for(options, "mlm-probability");
    c->asked_for.generate =
        fsdp_options_origin(options, "generate") > FSDP_ORIGIN_ENV && c->generate;
}

static fsdp_status check_options(void *target, const fsdp_options *options)
{
    fsdp_evaluate_config *c = target;
    FSDP_TRY(fsdp_check_device_option(options, c->device, false));
    if (!c->models.count)
        return fsdp_error(FSDP_ERR_INVALID, "--model is empty");
    if (!*c->data)
        return fsdp_error(FSDP_ERR_INVALID, "--data is empty");
    FSDP_TRY(fsdp_form_options_check(&c->form));
    FSDP_TRY(fsdp_generation_settings_parse(&c->generation));
    if (!c->generate && (c->predictions || c->prompts || c->examples > 0 || c->baseline_data))
        return fsdp_error(FSDP_ERR_INVALID, "%s needs texts; --no-generate gives none",
                          c->predictions    ? "--predictions"
                          : c->prompts      ? "--prompts"
                          : c->examples > 0 ? "--examples"
                                            : "--baseline-data");
    const fsdp_setting_flag setting = fsdp_generation_settings_first(&c->generation);
    if (!c->generate && *setting.text)
        return fsdp_error(FSDP_ERR_INVALID, "%s needs texts; --no-generate gives none",
                          setting.text);
    FSDP_TRY(fsdp_check_compute_dtype("--param-dtype", c->param_dtype));
    FSDP_TRY(fsdp_quantize_flags_check(&c->quantize, c->param_dtype));
    return FSDP_OK;
}

static const char *refused_name(const char *name)
{
    if (strcmp(name, "devices") == 0)
        return "'fsdp launch -n N evaluate ...' evaluates on N ranks, and --device says where";
    return NULL;
}

/* What plain --help shows (without a topic): the options that most runs use. */
static const char *const first_page[] = {
    "models and rows: model data baseline-data text-column target-column task-prefix max-samples "
    "max-seq-length",
    "texts: generate max-new-tokens num-beams",
    "computing: batch-size param-dtype device threads-per-rank",
    "output: examples predictions json", NULL};

static const fsdp_options_spec spec = {
    .refused_name = refused_name,
    .program = "fsdp evaluate",
    .usage = "--model DIR[,DIR...] --data FILE [options]",
    .summary =
        "Measure models on rows that they were not trained on. The measures are loss and "
        "perplexity over the target tokens; for seq2seq models also ROUGE-1, -2 and -L of the "
        "texts that they generate; for classifiers loss, accuracy and F1. This command alone is "
        "one rank; 'fsdp launch -n N evaluate ...' shards the models and the rows over N ranks "
        "and gives the same numbers.",
    .epilogue = "example:\n"
                "  fsdp launch -n 2 evaluate --model t5-wikihow --data wikihowVal.csv \\\n"
                "      --baseline-data wikihowAll.csv --examples 5\n",
    .first_page = first_page,
    .table = table,
    .count = FSDP_LENGTH(table),
    .derive = derive,
    .check = check_options,
};

static fsdp_status evaluate(fsdp_group *group, void *config)
{
    return fsdp_evaluate_run(config, group, stdout);
}

int fsdp_cmd_evaluate(int argc, char **argv)
{
    fsdp_evaluate_config config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    code = fsdp_cli_run_rank(spec.program, evaluate, &config);
    fsdp_options_destroy(options);
    return code;
}
