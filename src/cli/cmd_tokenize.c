/* `fsdp tokenize`: makes token files or an Arrow folder from texts, or a tokenizer. */
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/shown_text.h"
#include "src/cli/common/cli.h"
#include "src/cli/common/interrupt.h"
#include "src/data/files/output_name.h"
#include "src/pretrained/text_prefix.h"
#include "src/tokenize/tokenize.h"

#define PLACE(field) .offset = offsetof(fsdp_tokenize_config, field)

static const char *const tasks[] = {"seq2seq", "causal-lm|clm", "classification", "masked-lm|mlm",
                                    NULL};
static const char *const formats[] = {"auto",     "nanogpt|bin", "llm.c|llmc",
                                      "megatron", "arrow",       NULL};
static const char *const words[] = {"gpt2", "llama3", "qwen2", NULL};

/* clang-format off */
static const fsdp_option table[] = {
    {.name = "tokenizer", .aliases = "tokenizer-name,tokenizer-name-or-path,model",
     .type = FSDP_OPTION_STRING, PLACE(tokenizer), .metavar = "DIR", .group = "input and output",
     .help = "Hugging Face folder with a tokenizer, or a file of one"},
    {.name = "data", .aliases = "input,train-data,train-file,dataset", .type = FSDP_OPTION_STRING,
     PLACE(data), .metavar = "PATH", .required = true,
     .several = "a folder or a pattern names several files",
     .help = "plain text, CSV, JSON lines, each also compressed with gzip or zstd, an Arrow folder "
             "of datasets.save_to_disk(), a folder of files, or a pattern"},
    {.name = "validation-data", .aliases = "validation-file,eval-data", .type = FSDP_OPTION_STRING,
     PLACE(validation_data), .metavar = "PATH",
     .shown_default = "what --data has for validation",
     .help = "files for the split 'validation' (or val.bin), in addition to --data"},
    {.name = "validation-fraction", .aliases = "val-fraction", .type = FSDP_OPTION_DOUBLE,
     PLACE(validation_fraction), .value = "0", .bounds = FSDP_FROM_TO_BELOW(0, 1), .metavar = "X",
     .help = "share of the rows that is for validation: a function of --seed and the row's number"},
    {.name = "seed", .type = FSDP_OPTION_INT64, PLACE(seed), .value = "1",
     .bounds = FSDP_AT_LEAST(0), .help = "of --validation-fraction"},
    {.name = "output", .aliases = "o,output-dir,output-prefix", .type = FSDP_OPTION_STRING,
     PLACE(output), .metavar = "OUT",
     .help = "a token file, if the name ends in .bin, else a folder: of Arrow files, or with "
             "--format of train.bin and val.bin"},
    {.name = "format", .type = FSDP_OPTION_CHOICE, PLACE(format), .value = "auto",
     .choices = formats, .metavar = "FORM", .shown_default = "nanogpt for .bin, else arrow",
     .help = "nanogpt: ids alone; llm.c: after its header; megatron: .bin and .idx; arrow: what "
             "datasets.load_from_disk() reads"},
    {.name = "overwrite", .type = FSDP_OPTION_BOOL, PLACE(overwrite),
     .help = "replace a token file, and begin again after an interrupted run"},
    {.name = "resume", .type = FSDP_OPTION_BOOL, PLACE(resume),
     .help = "go on with an interrupted run; the result is that of a run without interruption"},

    {.name = "task", .type = FSDP_OPTION_CHOICE, PLACE(task), .value = "causal-lm",
     .choices = tasks, .metavar = "TASK", .group = "rows",
     .help = "what the rows are for: seq2seq gives labels of targets, classification classes"},
    {.name = "problem-type", .type = FSDP_OPTION_CHOICE, PLACE(problem_type), .value = "auto",
     .choices = fsdp_problem_type_choices, .metavar = "TYPE", .shown_default = "what the labels are",
     .help = "classification: one class a row, numbers or several classes a row"},
    {.name = "task-prefix", .aliases = "source-prefix", .type = FSDP_OPTION_STRING,
     PLACE(task_prefix), .shown_default = "seq2seq: prefix of the config.json beside the tokenizer, "
     "else 'summarize: '; other tasks: none",
     .help = "text put before every source text or prompt"},
    {.name = "text-column", .aliases = "source-column,prompt-column,text-column-name,json-keys",
     .type = FSDP_OPTION_STRING, PLACE(text_column), .metavar = "NAME",
     .shown_default = "that of 'fsdp train'",
     .help = "column of CSV, or key of JSONL, with the source, the prompt or the whole text"},
    {.name = "target-column", .aliases = "summary-column,completion-column",
     .type = FSDP_OPTION_STRING, PLACE(target_column), .metavar = "NAME",
     .shown_default = "that of 'fsdp train'",
     .help = "column or key with the target, or with the text after the prompt"},
    FSDP_CHAT_ROW_OPTIONS(offsetof(fsdp_tokenize_config, chat)),
    {.name = "wikihow-cleaning", .type = FSDP_OPTION_BOOL, PLACE(wikihow_cleaning),
     .help = "the same as --cleaning wikihow"},
    FSDP_FORM_OPTIONS(offsetof(fsdp_tokenize_config, form)),
    {.name = "max-samples", .aliases = "max-train-samples", .type = FSDP_OPTION_INT64,
     PLACE(max_samples), .value = "0", .bounds = FSDP_AT_LEAST(0), .shown_default = "0, all",
     .help = "use only the first N rows of the training data"},

    {.name = "append-eos", .aliases = "eos,append-eod", .type = FSDP_OPTION_BOOL,
     PLACE(append_eos), .value = "true", .group = "tokens",
     .help = "causal-lm, masked-lm: end each document or text with the tokenizer's eos, as 'fsdp "
             "train' does"},
    {.name = "add-special-tokens", .type = FSDP_OPTION_BOOL, PLACE(add_special_tokens),
     .value = "true",
     .help = "causal-lm, masked-lm: add what the tokenizer adds to a text, such as <s> or [CLS]"},
    {.name = "max-seq-length", .aliases = "max-length,context-length", .type = FSDP_OPTION_INT64,
     PLACE(max_seq_length), .value = "0", .bounds = FSDP_BETWEEN(0, 1073741824),
     .shown_default = "0, no limit", .help = "tokens of a row; the rest is cut off"},
    {.name = "max-source-length", .aliases = "max-input-length", .type = FSDP_OPTION_INT,
     PLACE(max_source_length), .value = "512", .bounds = FSDP_BETWEEN(1, 1048576),
     .help = "seq2seq: most tokens of a source; the rest is cut off. Rows of ids are cut only if "
             "this is given"},
    {.name = "max-target-length", .aliases = "max-output-length", .type = FSDP_OPTION_INT,
     PLACE(max_target_length), .value = "150", .bounds = FSDP_BETWEEN(1, 1048576),
     .help = "seq2seq: most tokens of a target; the rest is cut off"},
    {.name = "block-size", .type = FSDP_OPTION_INT64, PLACE(block_size), .value = "0",
     .bounds = FSDP_BETWEEN(0, 16777216), .shown_default = "0, rows stay as they are",
     .help = "Arrow: join all rows and cut them into rows of N tokens, as run_clm does"},

    {.name = "check", .type = FSDP_OPTION_BOOL, PLACE(check), .group = "looking",
     .help = "write nothing, but show text, ids, pieces and offsets of the first rows, and whether "
             "decoding gives the text back"},
    {.name = "rows", .type = FSDP_OPTION_INT64, PLACE(rows), .value = "5",
     .bounds = FSDP_AT_LEAST(1), .help = "rows that --check shows"},

    {.name = "train-vocab", .aliases = "vocab-size", .type = FSDP_OPTION_INT64, PLACE(train_vocab),
     .value = "0", .bounds = FSDP_BETWEEN(0, 16777215), .group = "making a tokenizer",
     .shown_default = "0, no",
     .help = "learn a byte-level BPE vocabulary of N tokens, and write it to the folder OUT as "
             "tokenizer.json"},
    {.name = "special-tokens", .type = FSDP_OPTION_LIST, PLACE(special_tokens),
     .value = "<|endoftext|>", .metavar = "TEXT,...",
     .help = "they get the first ids; the first one is bos, eos and padding"},
    {.name = "min-frequency", .type = FSDP_OPTION_INT64, PLACE(min_frequency), .value = "2",
     .bounds = FSDP_AT_LEAST(0), .help = "how often a pair must occur to become a token"},
    {.name = "words", .type = FSDP_OPTION_CHOICE, PLACE(words), .value = "gpt2", .choices = words,
     .metavar = "MODEL", .help = "the model whose regular expression splits texts into words"},

    {.name = "threads", .aliases = "num-proc,workers,preprocessing-num-workers,num-workers",
     .type = FSDP_OPTION_INT, PLACE(threads), .value = "0", .bounds = FSDP_BETWEEN(0, 1024),
     .shown_default = "0, as many as there are processors", .group = "running",
     .help = "threads; the output is the same for any number"},
    {.name = "journal-bytes", .type = FSDP_OPTION_SIZE, PLACE(journal_bytes), .value = "128MiB",
     .bounds = FSDP_AT_LEAST(1), .metavar = "SIZE",
     .help = "output after which the run can be resumed, if the process is killed"},
    {.name = "progress", .type = FSDP_OPTION_BOOL, PLACE(progress), .value = "true",
     .help = "show a progress bar on stderr"},
};
/* clang-format on */

static void derive(void *target, const fsdp_options *options)
{
    fsdp_tokenize_config *c = target;
    fsdp_form_options_derive(&c->form, options);
    fsdp_chat_row_options_derive(&c->chat, options);
    if (c->wikihow_cleaning && !fsdp_options_given(options, "cleaning"))
        c->form.cleaning = FSDP_CLEANING_WIKIHOW;
    c->asked_for.append_eos = fsdp_options_asked_for(options, "append-eos");
    c->asked_for.add_special_tokens = fsdp_options_asked_for(options, "add-special-tokens");
    c->asked_for.task_prefix = fsdp_options_asked_for(options, "task-prefix");
    c->asked_for.text_column = fsdp_options_asked_for(options, "text-column");
    c->asked_for.target_column = fsdp_options_asked_for(options, "target-column");
    c->asked_for.max_source_length = fsdp_options_asked_for(options, "max-source-length");
    c->asked_for.max_target_length = fsdp_options_asked_for(options, "max-target-length");
    c->given.max_source_length =
        c->task == FSDP_TASK_SEQ2SEQ && fsdp_options_given(options, "max-source-length");
    c->given.max_target_length =
        c->task == FSDP_TASK_SEQ2SEQ && fsdp_options_given(options, "max-target-length");
    c->asked_for.max_seq_length = fsdp_options_asked_for(options, "max-seq-length");
    c->asked_for.seed = fsdp_options_asked_for(options, "seed");
    c->asked_for.rows = fsdp_options_asked_for(options, "rows");
    c->asked_for.min_frequency = fsdp_options_asked_for(options, "min-frequency");
    c->asked_for.special_tokens = fsdp_options_asked_for(options, "special-tokens");
    c->asked_for.words = fsdp_options_asked_for(options, "words");
    c->asked_for.journal_bytes = fsdp_options_asked_for(options, "journal-bytes");
}

/* Refuse options that belong to another kind of run or to another task. */
static fsdp_status check_effects(const fsdp_tokenize_config *c)
{
    const bool writes = !c->train_vocab; /* --check may be added to any command that writes */
    static const char for_tokens[] = "is for runs that write tokens; --train-vocab writes none";
    const bool seq2seq = c->task == FSDP_TASK_SEQ2SEQ;
    const bool classes = c->task == FSDP_TASK_CLASSIFICATION;
    const struct {
        bool asked_for, has_effect;
        const char *flag, *needs;
    } options[] = {
        {c->asked_for.rows, c->check, "rows", "needs --check"},
        {c->asked_for.min_frequency, c->train_vocab, "min-frequency", "needs --train-vocab"},
        {c->asked_for.special_tokens, c->train_vocab, "special-tokens", "needs --train-vocab"},
        {c->asked_for.words, c->train_vocab, "words", "needs --train-vocab"},
        {c->resume, writes, "resume", for_tokens},
        {c->overwrite, writes, "overwrite", for_tokens},
        {c->asked_for.journal_bytes, writes, "journal-bytes", for_tokens},
        {c->format, writes, "format", for_tokens},
        {c->form.asked_for.token_dtype, writes, "token-dtype", for_tokens},
        {c->block_size, writes, "block-size", for_tokens},
        {c->validation_data, writes, "validation-data", for_tokens},
        {c->validation_fraction > 0, writes, "validation-fraction", for_tokens},
        {c->asked_for.task_prefix, writes, "task-prefix", for_tokens},
        {c->asked_for.append_eos, writes, "append-eos", for_tokens},
        {c->asked_for.add_special_tokens, writes, "add-special-tokens", for_tokens},
        {c->asked_for.max_seq_length, writes, "max-seq-length", for_tokens},
        {c->form.cleaning || c->wikihow_cleaning, writes, "cleaning", for_tokens},
        {c->form.source_lang, writes, "source-lang", for_tokens},
        {c->chat.chat_template, writes, "chat-template", for_tokens},
        {c->chat.kwargs, writes, "chat-template-kwargs", for_tokens},
        {c->chat.assistant_only_loss, writes, "assistant-only-loss", for_tokens},
        {c->chat.asked_for.completion_only_loss, writes, "completion-only-loss", for_tokens},
        {c->validation_fraction > 0, !c->validation_data, "validation-fraction",
         "excludes --validation-data"},
        {c->asked_for.seed, c->validation_fraction > 0, "seed", "needs --validation-fraction"},
        {c->asked_for.max_source_length, seq2seq, "max-source-length", "needs --task seq2seq"},
        {c->asked_for.max_target_length, seq2seq, "max-target-length", "needs --task seq2seq"},
        {c->asked_for.max_seq_length, !seq2seq, "max-seq-length",
         "is not for --task seq2seq, which has --max-source-length and --max-target-length"},
        {c->asked_for.append_eos, !seq2seq && !classes, "append-eos",
         "is for --task causal-lm and masked-lm"},
        {c->asked_for.add_special_tokens, !seq2seq && !classes, "add-special-tokens",
         "is for --task causal-lm and masked-lm"},
        {c->block_size, !seq2seq && !classes, "block-size",
         "is for --task causal-lm and masked-lm"},
        {c->problem_type, classes, "problem-type", "is for --task classification"},
        {c->form.label_lists, classes, "label-lists", "is for --task classification"},
        {c->form.packing, false, "packing",
         "is done by 'fsdp train', on the rows as they are; --block-size joins and cuts them here"},
        {c->resume, !c->overwrite, "resume", "excludes --overwrite"},
        {c->train_vocab, c->task == FSDP_TASK_CAUSAL_LM, "train-vocab",
         "reads the texts of --task causal-lm; --text-column and --target-column name them"},
        {c->train_vocab, !c->tokenizer, "train-vocab",
         "makes a tokenizer; it does not take one (--tokenizer)"},
        {c->train_vocab, !c->check, "train-vocab", "excludes --check"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(options); i++)
        if (options[i].asked_for && !options[i].has_effect)
            return fsdp_error(FSDP_ERR_INVALID, "--%s %s", options[i].flag, options[i].needs);
    return FSDP_OK;
}

static fsdp_status check_options(void *target, const fsdp_options *options)
{
    fsdp_tokenize_config *c = target;
    (void)options;
    FSDP_TRY(fsdp_form_options_check(&c->form));
    FSDP_TRY(check_effects(c));
    if (!*c->data)
        return fsdp_error(FSDP_ERR_INVALID, "--data is empty");
    if (!c->tokenizer && !c->train_vocab)
        return fsdp_error(FSDP_ERR_INVALID, "--tokenizer is required; --train-vocab makes one");
    if ((!c->output || !*c->output) && !c->check)
        return fsdp_error(FSDP_ERR_INVALID, "--output is required, unless there is --check");
    return c->output && *c->output
               ? fsdp_check_output_name("--output", c->output, FSDP_OUTPUT_FOLDER)
               : FSDP_OK;
}

/* What plain --help shows (without a topic): the options that most runs use. */
static const char *const first_page[] = {
    "input and output: tokenizer data output validation-fraction overwrite resume check",
    "rows: task text-column target-column max-samples",
    "tokens: max-seq-length append-eos block-size",
    "making a tokenizer: train-vocab special-tokens",
    "running: threads",
    NULL};

static const fsdp_options_spec spec = {
    .program = "fsdp tokenize",
    .usage = "--tokenizer DIR --data PATH --output OUT [options]",
    .summary = "Tokenize texts once, for many runs of 'fsdp train': to a token file, or to a "
               "folder that datasets.load_from_disk() reads. A file is read as a stream, so it may "
               "be larger than memory. The output appears when it is complete.",
    .epilogue = "examples:\n"
                "  fsdp tokenize --tokenizer gpt2 --data corpus.txt --output corpus.bin\n"
                "  fsdp tokenize --tokenizer llama --data chat.jsonl.gz --output chat \\\n"
                "      --assistant-only-loss --validation-fraction 0.01\n"
                "  fsdp tokenize --tokenizer gpt2 --data corpus.txt --check --rows 2\n"
                "  fsdp tokenize --train-vocab 8000 --data corpus.txt --output my-tokenizer\n",
    .first_page = first_page,
    .table = table,
    .count = FSDP_LENGTH(table),
    .derive = derive,
    .check = check_options,
};

/* 'fsdp train' puts a prefix before each source text. If --task-prefix is not given, this is the
 * prefix in the model's config.json. So that both commands make the same ids, set c->task_prefix to
 * the prefix in the config.json beside the tokenizer, if that file has one. c->task_prefix then
 * points to *prefix, which the caller frees. */
static fsdp_status choose_prefix(fsdp_tokenize_config *c, char **prefix)
{
    *prefix = NULL;
    if (c->task != FSDP_TASK_SEQ2SEQ || c->train_vocab || c->task_prefix || !c->tokenizer)
        return FSDP_OK;
    char *folder = fsdp_path_is_directory(c->tokenizer) ? fsdp_strdup(c->tokenizer)
                                                        : fsdp_path_parent(c->tokenizer);
    char *path = folder ? fsdp_path_join(folder, "config.json") : NULL;
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (path && fsdp_path_is_file(path))
        status = fsdp_text_prefix_read(path, prefix);
    if (status == FSDP_OK && *prefix) {
        c->task_prefix = *prefix;
        if (**prefix)
            fprintf(stderr,
                    "fsdp tokenize: note: %s: '%s' is put before source texts; --task-prefix '' "
                    "puts nothing there\n",
                    path, fsdp_show_text(*prefix).text);
    }
    fsdp_free(path);
    fsdp_free(folder);
    return status;
}

int fsdp_cmd_tokenize(int argc, char **argv)
{
    fsdp_tokenize_config config = {0};
    fsdp_options *options;
    char *prefix;
    int code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    fsdp_interrupt *interrupt = config.check ? NULL : fsdp_cli_interrupt_begin(NULL, true);
    config.interrupted = fsdp_cli_interrupted(interrupt);
    fsdp_status status = choose_prefix(&config, &prefix);
    if (status == FSDP_OK)
        status = fsdp_tokenize_run(&config, stdout);
    code = status == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(spec.program);
    fflush(stdout);
    fsdp_free(prefix);
    fsdp_cli_interrupt_end(interrupt);
    fsdp_options_destroy(options);
    return code;
}
