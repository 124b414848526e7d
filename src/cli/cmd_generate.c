/* `fsdp generate`: prints the texts that a model generates for prompts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/cli/common/cli.h"
#include "src/cli/generation_options.h"
#include "src/comm/agree.h"
#include "src/data/files/output_name.h"
#include "src/generate/generate_run.h"
#include "src/options/device_option.h"
#include "src/options/isa_option.h"
#include "src/train_config/config_paths.h"

typedef struct generate_config {
    fsdp_generate_config run;
    const char *prompt;
    int64_t seed;
    bool json, stream;
    const char *output;
    fsdp_atomic_file *file; /* writes `output`; NULL on ranks above 0, and without --output */
    fsdp_status status;     /* the first error of writing to `file` */
    fsdp_options *options;  /* the parsed options, which own all strings of this struct */
} generate_config;

#define PLACE(field) .offset = offsetof(generate_config, field)
/* clang-format off */
static const fsdp_option table[] = {
    {.name = "model", .aliases = "model-name,model-name-or-path", .type = FSDP_OPTION_STRING,
     PLACE(run.model), .required = true, .metavar = "DIR", .group = "model and prompts",
     .help = "Hugging Face folder, or a name of the hub that is in the local cache"},
    {.name = "adapter", .type = FSDP_OPTION_STRING, PLACE(run.adapter), .metavar = "DIR",
     .help = "folder of a LoRA adapter for the model; --model may also name this folder alone"},
    FSDP_QUANTIZE_OPTIONS(offsetof(generate_config, run.quantize)),
    {.name = "tokenizer", .type = FSDP_OPTION_STRING, PLACE(run.tokenizer), .metavar = "PATH",
     .help = "a tokenizer's file (tokenizer.json, spiece.model, ...), or a folder that holds one", .shown_default = "the model's"},
    {.name = "prompt", .aliases = "p", .type = FSDP_OPTION_STRING, PLACE(prompt),
     .metavar = "TEXT", .several = "several texts are given as words without an option",
     .help = "a text; the same as TEXT without an option"},
    {.name = "input", .aliases = "i", .type = FSDP_OPTION_STRING, PLACE(run.input),
     .several = "run the command once for each file",
     .metavar = "FILE", .help = "texts, one a line (an empty line is an empty text), or a column of "
     "rows: .jsonl, .json, .csv, .tsv, a folder of datasets.save_to_disk(); .gz and .zst, too; -: "
     "standard input; a file without such an ending, and a pipe, has rows of JSON if it begins like "
     "one"},
    {.name = "text-column", .aliases = "text-column-name", .type = FSDP_OPTION_STRING,
     PLACE(run.text_column), .metavar = "NAME",
     .shown_default = "prompt, text, source, input, article, ...",
     .help = "--input with rows: column or key with the text"},
    {.name = "input-ids", .type = FSDP_OPTION_STRING, PLACE(run.input_ids), .metavar = "FILE",
     .several = "run the command once for each file",
     .help = "token ids instead of texts: JSON [[1, 2], ...], or a row a line, "
             "[1, 2] or {\"input_ids\": [1, 2]}, \"attention_mask\" too; or an Arrow folder"},
    {.name = "task-prefix", .aliases = "source-prefix", .type = FSDP_OPTION_STRING,
     PLACE(run.task_prefix), .metavar = "TEXT",
     .shown_default = "prefix of the model's config.json, which 'fsdp train' writes for seq2seq; "
     "not before a text that begins with it",
     .help = "put before every text, e.g. 'summarize: '"},
    {.name = "max-source-length", .type = FSDP_OPTION_INT, PLACE(run.max_source_length),
     .optional = true, .shown_default = "texts of seq2seq: 512; else 0",
     .bounds = FSDP_AT_LEAST(0), .metavar = "N",
     .help = "tokens of a prompt, the rest is cut off; 0: all"},

    {.name = "chat", .type = FSDP_OPTION_BOOL, PLACE(run.chat), .group = "conversations",
     .help = "texts are messages, which the model's chat template writes; without texts, a "
     "conversation in the terminal: a line is a message, /exit, /clear and /system TEXT are "
     "commands"},
    {.name = "system", .type = FSDP_OPTION_STRING, PLACE(run.system), .metavar = "TEXT",
     .help = "message of the system, at the beginning"},
    {.name = "messages", .type = FSDP_OPTION_STRING, PLACE(run.messages), .metavar = "FILE",
     .several = "run the command once for each file",
     .help = "conversations to answer, rows of JSON or Arrow: {\"messages\": [{\"role\": \"user\", "
     "\"content\": ...}, ...]}; the result is the row with the answer added"},
    {.name = "continue-final-message", .type = FSDP_OPTION_BOOL, PLACE(run.continue_final_message),
     .help = "--messages: go on with the last message instead of answering it"},
    {.name = "chat-template", .aliases = "chat-template-path", .type = FSDP_OPTION_STRING,
     PLACE(run.chat_template), .metavar = "NAME|FILE",
     .shown_default = "the one in the model's folder",
     .help = "chatml, gemma, llama3, mistral, qwen2.5, zephyr, a template's name in the model's "
     "folder, or a file"},
    {.name = "chat-template-kwargs", .type = FSDP_OPTION_STRING, PLACE(run.chat_template_kwargs),
     .metavar = "JSON", .help = "more variables for the chat template: {\"enable_thinking\": false}"},

    FSDP_GENERATION_OPTIONS(offsetof(generate_config, run.generation),
                            "generation_config.json's, else 20; "
                            "conversations: 1024"),
    {.name = "negative-prompt", .type = FSDP_OPTION_STRING, PLACE(run.negative_prompt),
     .metavar = "TEXT", .help = "--negative-prompt-ids as a text"},
    {.name = "num-return-sequences", .type = FSDP_OPTION_INT64, PLACE(run.num_return_sequences),
     .optional = true, .shown_default = "generation_config.json's, else 1",
     .bounds = FSDP_BETWEEN(1, 10000), .metavar = "N",
     .help = "texts of each prompt: samples, or the best beams"},
    {.name = "seed", .type = FSDP_OPTION_INT64, PLACE(seed), .value = "1",
     .bounds = FSDP_AT_LEAST(0), .help = "of --do-sample"},
    {.name = "batch-size", .type = FSDP_OPTION_INT, PLACE(run.batch_size), .value = "8",
     .bounds = FSDP_BETWEEN(1, 100000), .metavar = "N", .help = "prompts per rank at a time"},
    {.name = "stream", .type = FSDP_OPTION_BOOL, PLACE(stream),
     .help = "one prompt: print the text while it is generated, with its line ends"},
    {.name = "output", .aliases = "o", .type = FSDP_OPTION_STRING, PLACE(output),
     .metavar = "FILE", .shown_default = "print the results",
     .help = "write JSON lines to this file: for a conversation, its row with the answer; "
             "otherwise what --json prints"},
    {.name = "json", .type = FSDP_OPTION_BOOL, PLACE(json),
     .help = "print a JSON object for each text: index, sequence, prompt, input_ids, ids, new_ids, "
             "score, text, and id, idx or guid of a row that has it"},

    {.name = "param-dtype", .type = FSDP_OPTION_DTYPE, PLACE(run.param_dtype), .value = "float32",
     .metavar = "DTYPE", .group = "ranks", .help = "dtype of compute: float32, bfloat16 or float16"},
    {.name = "reshard-after-forward", .type = FSDP_OPTION_BOOL, PLACE(run.reshard_each_step),
     .takes_word = true,
     .help = "gather units again for every token: less memory, more time"},
    FSDP_DEVICE_OPTION(offsetof(generate_config, run.device)),
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

static bool is_interactive(const generate_config *c, const fsdp_options *options)
{
    const fsdp_generate_config *run = &c->run;
    int n;
    fsdp_options_positional(options, &n);
    return run->chat && !c->prompt && n == 0 && !run->input && !run->input_ids && !run->messages;
}

/* Return the name of the first option that was given and that needs a conversation, or NULL if
 * there is none. */
static const char *option_of_chat(const fsdp_generate_config *run)
{
    return run->system                   ? "system"
           : run->chat_template          ? "chat-template"
           : run->chat_template_kwargs   ? "chat-template-kwargs"
           : run->continue_final_message ? "continue-final-message"
                                         : NULL;
}

static fsdp_status check_chat(const generate_config *c, const fsdp_options *options)
{
    const fsdp_generate_config *run = &c->run;
    if (!run->chat && option_of_chat(run))
        return fsdp_error(FSDP_ERR_INVALID, "--%s needs --chat or --messages", option_of_chat(run));
    if (!run->chat)
        return FSDP_OK;
    if (run->input_ids)
        return fsdp_error(FSDP_ERR_INVALID, "--chat is for texts, not for --input-ids");
    if (fsdp_options_given(options, "max-source-length"))
        return fsdp_error(FSDP_ERR_INVALID, "--max-source-length would cut a conversation within a "
                                            "message: it does not go with --chat and --messages");
    if (run->continue_final_message && !run->messages && !run->input)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--continue-final-message needs --messages, with conversations that end "
                          "with a message of the assistant");
    if (run->system && run->messages)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--system is for texts; the conversations of --messages "
                          "have their own messages of the system");
    return FSDP_OK;
}

/* Return FSDP_ERR_INVALID if --output is a file from which the run reads, or if its name has the
 * ending of another format than JSON lines. */
static fsdp_status check_output(const generate_config *config)
{
    const struct {
        const char *flag, *path;
    } inputs[] = {{"input", config->run.input},
                  {"messages", config->run.messages},
                  {"input-ids", config->run.input_ids}};
    if (config->output)
        FSDP_TRY(fsdp_check_output_name("--output", config->output, FSDP_OUTPUT_JSON_LINES));
    for (size_t i = 0; config->output && i < FSDP_LENGTH(inputs); i++)
        if (inputs[i].path &&
            fsdp_train_is_same_file(
                strcmp(inputs[i].path, "-") == 0 ? "/dev/stdin" : inputs[i].path, config->output))
            return fsdp_error(FSDP_ERR_INVALID, "--%s %s and --output %s are the same file",
                              inputs[i].flag, inputs[i].path, config->output);
    return FSDP_OK;
}

/* Check the options of an interactive conversation. */
static fsdp_status check_interactive(const generate_config *config)
{
    if (config->json || config->output)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--%s is for prompts; --chat without texts is a conversation in the "
                          "terminal",
                          config->json ? "json" : "output");
    if (config->run.task_prefix && *config->run.task_prefix)
        return fsdp_error(FSDP_ERR_INVALID, "--task-prefix is put before texts, not before what is "
                                            "written in a conversation");
    return FSDP_OK;
}

static fsdp_status check_options(void *target, const fsdp_options *options)
{
    generate_config *config = target;
    FSDP_TRY(check_output(config));
    FSDP_TRY(fsdp_generation_settings_parse(&config->run.generation));
    FSDP_TRY(check_chat(config, options));
    FSDP_TRY(fsdp_quantize_flags_check(&config->run.quantize, config->run.param_dtype));
    if (config->stream && (config->json || config->output))
        return fsdp_error(FSDP_ERR_INVALID, "--stream prints a text; it does not go with --%s",
                          config->json ? "json" : "output");
    if (is_interactive(config, options))
        FSDP_TRY(check_interactive(config));
    return fsdp_check_device_option(options, config->run.device, false);
}

static void derive(void *target, const fsdp_options *options)
{
    generate_config *config = target;
    config->run.chat |= config->run.messages != NULL;
    config->run.max_source_length_given = fsdp_options_given(options, "max_source_length");
    config->run.asks_for_seed = fsdp_options_asked_for(options, "seed");
    fsdp_generation_options_given(options, &config->run.generation);
}

/* What plain --help shows (without a topic): the options that most runs use. */
static const char *const first_page[] = {
    "model and prompts: model prompt input task-prefix max-source-length",
    "conversations: chat system messages",
    "generation: max-new-tokens num-beams do-sample temperature top-k top-p repetition-penalty "
    "num-return-sequences seed stream",
    "output and computing: output json batch-size param-dtype device", NULL};

static const fsdp_options_spec spec = {
    .program = "fsdp generate",
    .usage = "--model DIR [TEXT...] [options]",
    .summary = "Generate text: greedily, where each step takes the most likely token, by beam "
               "search (--num-beams), or by sampling (--do-sample). Prints one line for each "
               "text: the new text without the prompt, with spaces instead of line ends, or its "
               "token ids if there is no tokenizer.",
    .epilogue = "examples:\n"
                "  fsdp generate --model t5-small 'translate English to German: Good morning.'\n"
                "  fsdp launch -n 2 generate --model out --input articles.txt "
                "--task-prefix 'summarize: '\n"
                "  fsdp generate --model Qwen/Qwen2.5-0.5B-Instruct --chat --system 'Be brief.'\n"
                "  fsdp generate --model out --messages questions.jsonl --output answers.jsonl\n",
    .first_page = first_page,
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "TEXT...",
    .derive = derive,
    .check = check_options,
};

/* --- printing --- */

static void add_ids(fsdp_json_node root, const char *key, const int32_t *ids, size_t n)
{
    fsdp_json_node array = fsdp_json_set_array(root, key);
    for (size_t i = 0; i < n; i++)
        fsdp_json_append_i64(array, ids[i]);
}

/* Set *doc to the JSON object that --json prints for a result. */
static fsdp_status result_json(const fsdp_generate_result *r, fsdp_json **doc)
{
    FSDP_TRY(r->id ? fsdp_json_parse("id", 1, r->id, strlen(r->id), doc)
                   : fsdp_json_create("generate", doc));
    fsdp_json_node root = fsdp_json_root(*doc);
    fsdp_json_set_i64(root, "index", (int64_t)r->index);
    fsdp_json_set_i64(root, "sequence", (int64_t)r->sequence);
    if (r->prompt)
        fsdp_json_set_str(root, "prompt", r->prompt);
    add_ids(root, "input_ids", r->input_ids, r->n_input_ids);
    add_ids(root, "ids", r->ids, r->n_ids);
    add_ids(root, "new_ids", r->ids + r->prompt_length, r->n_ids - r->prompt_length);
    if (r->has_score)
        fsdp_json_set_f64(root, "score", r->score);
    if (r->text)
        fsdp_json_set_str(root, "text", r->text);
    return FSDP_OK;
}

/* Set *doc to the row of the conversation, with the answer added. */
static fsdp_status answered_json(const fsdp_generate_result *r, fsdp_json **doc)
{
    FSDP_TRY(fsdp_json_parse("conversation", 1, r->conversation, strlen(r->conversation), doc));
    const fsdp_status status =
        fsdp_conversation_answer(r->chat, fsdp_json_root(*doc), r->text ? r->text : "");
    if (status != FSDP_OK)
        fsdp_json_destroy(*doc);
    return status;
}

/* Print a document as a line of the output file or, if there is none, of stdout. */
static fsdp_status print_line(generate_config *config, const fsdp_json *doc)
{
    char *text;
    size_t bytes;
    FSDP_TRY(fsdp_json_print(doc, FSDP_JSON_LINE, &text, &bytes));
    fsdp_status status = FSDP_OK;
    if (!config->file)
        puts(text);
    else
        status = fsdp_atomic_file_append(config->file, text, bytes);
    if (config->file && status == FSDP_OK)
        status = fsdp_atomic_file_append(config->file, "\n", 1);
    fsdp_free(text);
    return status;
}

static fsdp_status print_json(generate_config *config, const fsdp_generate_result *r)
{
    fsdp_json *doc;
    FSDP_TRY(r->conversation && !config->json ? answered_json(r, &doc) : result_json(r, &doc));
    const fsdp_status status = print_line(config, doc);
    fsdp_json_destroy(doc);
    return status;
}

static void print_ids(const int32_t *ids, size_t n)
{
    putchar('[');
    for (size_t i = 0; i < n; i++)
        printf("%s%d", i ? ", " : "", (int)ids[i]);
    puts("]");
}

/* Print a text on one line. Line breaks in it become spaces, so that each line of the output is one
 * text. */
static void print_text(const char *text)
{
    for (; *text; text++)
        putchar(*text == '\n' || *text == '\r' ? ' ' : *text);
    putchar('\n');
}

static void print_result(const fsdp_generate_result *r, void *arg)
{
    generate_config *config = arg;
    if (config->stream)
        return; /* the text was printed while it was generated */
    if (config->json || config->file || (config->run.messages && r->conversation)) {
        const fsdp_status status = print_json(config, r);
        config->status = config->status != FSDP_OK ? config->status : status;
    } else if (r->text && config->run.chat) {
        puts(r->text);
    } else if (r->text) {
        print_text(r->text);
    } else {
        print_ids(r->ids + r->prompt_length, r->n_ids - r->prompt_length);
    }
    fflush(stdout);
}

static fsdp_status print_part(void *terminal, const char *text, size_t bytes)
{
    (void)terminal;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
    return FSDP_OK;
}

/* Read a line of stdin. If stdin is a terminal, show a prompt. */
static fsdp_status read_line(void *terminal, char **line)
{
    char *read = NULL;
    size_t cap = 0;
    (void)terminal;
    if (isatty(STDIN_FILENO)) {
        fputs("> ", stderr);
        fflush(stderr);
    }
    errno = 0;
    const ssize_t n = getline(&read, &cap, stdin);
    fsdp_status status = FSDP_OK;
    *line = NULL;
    if (n >= 0)
        *line = fsdp_strndup(read, (size_t)n - (n && read[n - 1] == '\n'));
    else if (ferror(stdin))
        status = fsdp_error(FSDP_ERR_IO, "stdin: %s", strerror(errno));
    if (n >= 0 && !*line)
        status = FSDP_ERR_NOMEM;
    free(read);
    return status;
}

/* Commit the output file, or discard it if `status` is not FSDP_OK. */
static fsdp_status close_output(generate_config *config, fsdp_status status)
{
    if (status == FSDP_OK)
        status = config->status;
    if (!config->file)
        return status;
    if (status == FSDP_OK)
        status = fsdp_atomic_file_commit(config->file);
    else
        fsdp_atomic_file_discard(config->file);
    config->file = NULL;
    return status;
}

static void print_note(const char *note, void *arg)
{
    (void)arg;
    fprintf(stderr, "fsdp generate: note: %s\n", note);
}

/* Return the number of texts on the command line if there are several and each of them is a single
 * word: the user has probably forgotten the quotes around a text. Otherwise return 0. */
static int count_lone_words(char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (!*words[i] || words[i][strcspn(words[i], " \t\r\n")])
            return 0;
    return n > 1 ? n : 0;
}

static void note_lone_words(const generate_config *config)
{
    int n;
    char **words = fsdp_options_positional(config->options, &n);
    char note[120];
    const int lone = count_lone_words(words, n);
    if (!lone)
        return;
    snprintf(note, sizeof note, "%d prompts; put a text in quotes to make it one", lone);
    print_note(note, NULL);
}

/* --- generating --- */

static fsdp_status generate(fsdp_group *group, void *arg)
{
    generate_config *config = arg;
    int n;
    char **words = fsdp_options_positional(config->options, &n);
    const char **texts = fsdp_calloc((size_t)n + 1, sizeof *texts);
    if (!texts)
        return FSDP_ERR_NOMEM;
    size_t count = 0;
    if (config->prompt)
        texts[count++] = config->prompt;
    for (int i = 0; i < n; i++)
        texts[count++] = words[i];
    config->run.texts = texts;
    config->run.n_texts = count;
    config->run.seed = (uint64_t)config->seed;
    config->run.keep_ids = config->json || config->output;
    fsdp_status status = FSDP_OK;
    if (is_interactive(config, config->options))
        config->run.read_line = read_line;
    else if (config->output && fsdp_group_rank(group) == 0)
        status = fsdp_atomic_file_begin(config->output, 0, &config->file);
    config->run.part = config->stream || config->run.read_line ? print_part : NULL;
    if (fsdp_group_rank(group) == 0)
        note_lone_words(config);
    status = fsdp_agree(group, status);
    if (status == FSDP_OK)
        status = fsdp_generate_run(&config->run, group, print_result, print_note, config);
    fsdp_free(texts);
    return fsdp_agree(group, close_output(config, status));
}

int fsdp_cmd_generate(int argc, char **argv)
{
    generate_config config = {0};
    int code = fsdp_cli_options(&spec, argc, argv, &config, &config.options);
    if (code != FSDP_CLI_RUN)
        return code;
    code = fsdp_cli_run_rank(spec.program, generate, &config);
    fsdp_options_destroy(config.options);
    return code;
}
