/* `fsdp classify`: prints the labels that a classifier gives to texts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/classify/classify.h"
#include "src/cli/common/cli.h"
#include "src/data/files/output_name.h"
#include "src/options/device_option.h"
#include "src/options/isa_option.h"
#include "src/train_config/config_paths.h"
#include "src/train_config/precision.h"

typedef struct classify_config {
    fsdp_classify_config run;
    const char *top_k;     /* NULL: not given */
    fsdp_options *options; /* the parsed options, which own all strings of this struct */
} classify_config;

#define PLACE(field) .offset = offsetof(classify_config, field)
/* clang-format off */
static const fsdp_option table[] = {
    {.name = "model", .aliases = "model-name,model-name-or-path", .type = FSDP_OPTION_STRING,
     PLACE(run.model), .required = true, .metavar = "DIR", .group = "model and texts",
     .help = "Hugging Face folder of a classifier, such as --output of 'fsdp train --task "
     "classification', or a name of the hub that is in the local cache"},
    {.name = "adapter", .type = FSDP_OPTION_STRING, PLACE(run.adapter), .metavar = "DIR",
     .help = "folder of a LoRA adapter for the model; --model may also name this folder alone"},
    {.name = "tokenizer", .aliases = "tokenizer-name", .type = FSDP_OPTION_STRING,
     PLACE(run.tokenizer), .metavar = "PATH", .shown_default = "the model's",
     .help = "tokenizer.json or vocab.txt, or a folder that holds it"},
    {.name = "pair", .aliases = "text-pair", .type = FSDP_OPTION_STRING, PLACE(run.pair),
     .metavar = "TEXT", .help = "one TEXT: the second text, for a model of pairs"},
    {.name = "input", .aliases = "i", .type = FSDP_OPTION_STRING, PLACE(run.input),
     .metavar = "FILE", .shown_default = "without TEXT: standard input",
     .help = "texts, one a line (an empty line is an empty text), or rows: .jsonl, .json, .csv, "
     ".tsv, a folder of datasets.save_to_disk(); .gz and .zst, too; -: standard input; a file without "
     "such an ending, and a pipe, has rows of JSON if it begins like one"},
    {.name = "text-column", .aliases = "text-column-name", .type = FSDP_OPTION_STRING,
     PLACE(run.text_column), .metavar = "NAME", .shown_default = "that of 'fsdp train'",
     .help = "rows: column or key with the text, or the first text of a pair"},
    {.name = "text-pair-column", .type = FSDP_OPTION_STRING, PLACE(run.text_pair_column),
     .metavar = "NAME", .help = "rows: column or key with the second text"},
    {.name = "json-field", .aliases = "field", .type = FSDP_OPTION_STRING,
     PLACE(run.form.json_field), .metavar = "KEY", .shown_default = "data, if the file has it",
     .help = "JSON files that are one object: the key of the array of rows"},
    {.name = "delimiter", .aliases = "sep", .type = FSDP_OPTION_STRING, PLACE(run.form.delimiter),
     .metavar = "CHAR", .shown_default = "found by the header",
     .help = "CSV: what separates fields: comma, tab, semicolon, bar or a character"},
    {.name = "csv-quotes", .type = FSDP_OPTION_BOOL, PLACE(run.form.csv_quotes), .value = "true",
     .takes_word = true,
     .help = "CSV: fields may be in quotes; with --no-csv-quotes, a quote is an ordinary "
             "character"},
    {.name = "max-seq-length", .aliases = "max-length", .type = FSDP_OPTION_INT64,
     PLACE(run.max_seq_length), .value = "0", .bounds = FSDP_BETWEEN(0, 1073741824),
     .metavar = "N", .shown_default = "0, as many as the model takes",
     .help = "tokens of a text or a pair; the rest is cut off"},

    {.name = "top-k", .type = FSDP_OPTION_STRING, PLACE(top_k), .metavar = "N|all",
     .shown_default = "the best label", .group = "output",
     .help = "a list of the N best labels, or of all"},
    {.name = "output", .aliases = "o", .type = FSDP_OPTION_STRING, PLACE(run.output),
     .metavar = "FILE", .shown_default = "print JSON lines",
     .help = "write the results to this file: .csv, or JSON lines"},

    {.name = "batch-size", .aliases = "eval-batch-size,per-device-eval-batch-size",
     .type = FSDP_OPTION_INT, PLACE(run.batch_size), .value = "8",
     .bounds = FSDP_BETWEEN(1, 100000), .metavar = "N", .group = "ranks",
     .help = "texts per rank at a time"},
    {.name = "param-dtype", .aliases = "param-type", .type = FSDP_OPTION_DTYPE,
     PLACE(run.param_dtype), .value = "float32", .metavar = "DTYPE",
     .help = "dtype of compute: float32, bfloat16 or float16"},
    FSDP_DEVICE_OPTION(offsetof(classify_config, run.device)),
    {.name = "threads-per-rank", .aliases = "num-cpu-threads-per-process",
     .type = FSDP_OPTION_INT, PLACE(run.threads_per_rank), .value = "0",
     .bounds = FSDP_BETWEEN(0, 1024), .env = FSDP_THREADS_ENV,
     .shown_default = FSDP_THREADS_DEFAULT,
     .help = "threads that compute"},
    {.name = "isa", .type = FSDP_OPTION_STRING, PLACE(run.isa), .metavar = "ISA",
     .shown_default = "the best that 'fsdp --version' lists",
     .help = FSDP_ISA_HELP},
};
/* clang-format on */

/* Check that the name of the output file has an ending for which results can be written. */
static fsdp_status check_output(const char *output)
{
    if (!output)
        return FSDP_OK;
    if (!*output)
        return fsdp_error(FSDP_ERR_INVALID, "--output is empty");
    return fsdp_check_output_name("--output", output, FSDP_OUTPUT_ROWS);
}

static fsdp_status parse_top_k(classify_config *config)
{
    const char *text = config->top_k;
    char *end;
    config->run.top_k = FSDP_CLASSIFY_BEST;
    if (!text)
        return FSDP_OK;
    config->run.top_k = FSDP_CLASSIFY_ALL;
    if (strcmp(text, "all") == 0)
        return FSDP_OK;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (end == text || *end || errno || n < 1)
        return fsdp_error(FSDP_ERR_INVALID, "--top-k '%s': expected a number from 1, or all", text);
    config->run.top_k = n;
    return FSDP_OK;
}

static fsdp_status check_texts(const classify_config *config, int n)
{
    const fsdp_classify_config *run = &config->run;
    if (run->pair && n != 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--pair is the second text of one TEXT, and there are %d; a file has "
                          "pairs in two columns: --text-column, --text-pair-column",
                          n);
    if (run->pair && run->input)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--pair is the second text of one TEXT; it does not go with --input");
    if (run->text_pair_column && !run->text_column)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--text-pair-column needs --text-column, the column of the first text");
    if (!run->input && n == 0 && isatty(STDIN_FILENO))
        return fsdp_error(FSDP_ERR_INVALID,
                          "there are no texts: give TEXT, --input FILE, or a pipe");
    if (run->input && !*run->input)
        return fsdp_error(FSDP_ERR_INVALID, "--input is empty");
    return check_output(run->output);
}

/* Return FSDP_ERR_INVALID if --output is the file from which the texts are read, because that file
 * would be replaced. This includes a file from which standard input is redirected. */
static fsdp_status check_same_file(const fsdp_classify_config *run)
{
    const bool is_stdin = run->input && strcmp(run->input, "-") == 0;
    const char *input = is_stdin ? "/dev/stdin" : run->input;
    if (!input || !run->output || !fsdp_train_is_same_file(input, run->output))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "%s%s and --output %s are the same file",
                      is_stdin ? "standard input" : "--input ", is_stdin ? "" : input, run->output);
}

static fsdp_status check_options(void *target, const fsdp_options *options)
{
    classify_config *config = target;
    fsdp_classify_config *run = &config->run;
    int n;
    fsdp_options_positional(options, &n);
    FSDP_TRY(check_texts(config, n));
    if (n == 0 && !run->input)
        run->input = "-";
    const char *rows_flag = run->text_column                 ? "text-column"
                            : run->form.delimiter            ? "delimiter"
                            : run->form.json_field           ? "json-field"
                            : run->form.asked_for.csv_quotes ? "csv-quotes"
                                                             : NULL;
    if (rows_flag && !run->input)
        return fsdp_error(FSDP_ERR_INVALID, "--%s is for rows of a file: it needs --input",
                          rows_flag);
    FSDP_TRY(check_same_file(run));
    FSDP_TRY(parse_top_k(config));
    FSDP_TRY(fsdp_form_options_check(&run->form));
    FSDP_TRY(fsdp_check_compute_dtype("--param-dtype", run->param_dtype));
    return fsdp_check_device_option(options, run->device, false);
}

static void derive(void *target, const fsdp_options *options)
{
    classify_config *config = target;
    config->run.form.asked_for.csv_quotes = fsdp_options_asked_for(options, "csv-quotes");
}

static const fsdp_options_spec spec = {
    .program = "fsdp classify",
    .usage = "--model DIR [TEXT...] [options]",
    .summary =
        "Classify texts, as transformers' pipeline(\"text-classification\") does. Prints a JSON "
        "object for each text: its row of the input, the label, and the score. The score is a "
        "probability (softmax; sigmoid if a text can have several labels, or if there is only one "
        "label) or, for regression, the predicted number. If rows have a label or a score of "
        "their own, the results are predicted_label and predicted_score. 'fsdp launch -n N "
        "classify ...' shards the model and the texts over N ranks.",
    .epilogue = "examples:\n"
                "  fsdp classify --model out 'A film that I will see again.'\n"
                "  fsdp classify --model mrpc 'It rains.' --pair 'The weather is wet.'\n"
                "  fsdp classify --model out --input reviews.csv --output labelled.csv\n"
                "  fsdp classify --model out --top-k all <reviews.txt\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "TEXT...",
    .derive = derive,
    .check = check_options,
};

static void print_note(const char *note)
{
    fprintf(stderr, "fsdp classify: note: %s\n", note);
}

static fsdp_status classify(fsdp_group *group, void *arg)
{
    classify_config *config = arg;
    int n;
    char **words = fsdp_options_positional(config->options, &n);
    config->run.texts = (const char *const *)words;
    config->run.n_texts = (size_t)n;
    return fsdp_classify_run(&config->run, group, stdout, print_note);
}

int fsdp_cmd_classify(int argc, char **argv)
{
    classify_config config = {0};
    int code = fsdp_cli_options(&spec, argc, argv, &config, &config.options);
    if (code != FSDP_CLI_RUN)
        return code;
    code = fsdp_cli_run_rank(spec.program, classify, &config);
    fsdp_options_destroy(config.options);
    return code;
}
