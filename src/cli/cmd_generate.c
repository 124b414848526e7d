/* `fsdp generate`: prints the texts that a model generates for prompts. */
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/json.h"
#include "src/cli/cli.h"
#include "src/cli/generation_options.h"
#include "src/generate/generate_run.h"
#include "src/options/device_option.h"
#include "src/options/isa_option.h"

typedef struct generate_config {
    fsdp_generate_config run;
    const char *prompt;
    int64_t seed;
    bool json;
    fsdp_options *options; /* the parsed options, which own all strings of this struct */
} generate_config;

#define PLACE(field) .offset = offsetof(generate_config, field)
/* clang-format off */
static const fsdp_option table[] = {
    {.name = "model", .aliases = "model-name,model-name-or-path", .type = FSDP_OPTION_STRING,
     PLACE(run.model), .required = true, .metavar = "DIR", .group = "model and prompts",
     .help = "Hugging Face folder, or a name of the hub that is in the local cache"},
    {.name = "tokenizer", .type = FSDP_OPTION_STRING, PLACE(run.tokenizer), .metavar = "PATH",
     .help = "spiece.model, or a folder that holds it", .shown_default = "the model's"},
    {.name = "prompt", .aliases = "p", .type = FSDP_OPTION_STRING, PLACE(prompt),
     .metavar = "TEXT", .help = "a text, like those without an option"},
    {.name = "input", .aliases = "i", .type = FSDP_OPTION_STRING, PLACE(run.input),
     .metavar = "FILE", .help = "texts, one a line; an empty line is an empty text"},
    {.name = "input-ids", .type = FSDP_OPTION_STRING, PLACE(run.input_ids), .metavar = "FILE",
     .help = "token ids instead of texts: JSON [[1, 2], ...], or a row a line, "
             "[1, 2] or {\"input_ids\": [1, 2]}, \"attention_mask\" too; or an Arrow folder"},
    {.name = "task-prefix", .aliases = "source-prefix", .type = FSDP_OPTION_STRING,
     PLACE(run.task_prefix), .metavar = "TEXT", .value = "",
     .help = "put before every text, e.g. 'summarize: '"},
    {.name = "max-source-length", .type = FSDP_OPTION_INT, PLACE(run.max_source_length),
     .optional = true, .shown_default = "texts of seq2seq: 512; else 0",
     .bounds = FSDP_AT_LEAST(0), .metavar = "N",
     .help = "tokens of a prompt, the rest is cut off; 0: all"},

    FSDP_GENERATION_OPTIONS(offsetof(generate_config, run.generation),
                            "generation_config.json's, else 20"),
    {.name = "num-return-sequences", .type = FSDP_OPTION_INT64, PLACE(run.num_return_sequences),
     .optional = true, .shown_default = "generation_config.json's, else 1",
     .bounds = FSDP_BETWEEN(1, 10000), .metavar = "N",
     .help = "texts of each prompt: samples, or the best beams"},
    {.name = "seed", .type = FSDP_OPTION_INT64, PLACE(seed), .value = "1",
     .bounds = FSDP_AT_LEAST(0), .help = "of --do-sample"},
    {.name = "batch-size", .type = FSDP_OPTION_INT, PLACE(run.batch_size), .value = "8",
     .bounds = FSDP_BETWEEN(1, 100000), .metavar = "N", .help = "prompts per rank at a time"},
    {.name = "json", .type = FSDP_OPTION_BOOL, PLACE(json),
     .help = "print a JSON object for each text: index, sequence, prompt, input_ids, ids, new_ids, "
             "score, text"},

    {.name = "param-dtype", .type = FSDP_OPTION_DTYPE, PLACE(run.param_dtype), .value = "float32",
     .metavar = "DTYPE", .group = "ranks", .help = "dtype of compute: float32, bfloat16 or float16"},
    {.name = "reshard-after-forward", .type = FSDP_OPTION_BOOL, PLACE(run.reshard_each_step),
     .help = "gather units again for every token: less memory, more time"},
    FSDP_DEVICE_OPTION(offsetof(generate_config, run.device)),
    {.name = "threads-per-rank", .aliases = "num-cpu-threads-per-process",
     .type = FSDP_OPTION_INT, PLACE(run.threads_per_rank), .value = "0",
     .bounds = FSDP_BETWEEN(0, 1024), .shown_default = "0, cores / ranks",
     .help = "threads that compute"},
    {.name = "isa", .type = FSDP_OPTION_STRING, PLACE(run.isa), .metavar = "ISA",
     .shown_default = "the best that 'fsdp --version' lists",
     .help = FSDP_ISA_HELP},
};
/* clang-format on */

static fsdp_status check_options(void *target, const fsdp_options *options)
{
    const generate_config *config = target;
    return fsdp_check_device_option(options, config->run.device, false);
}

static const fsdp_options_spec spec = {
    .program = "fsdp generate",
    .usage = "--model DIR [TEXT...] [options]",
    .summary = "Generate text: greedily, where each step takes the most likely token, by beam "
               "search (--num-beams), or by sampling (--do-sample). Prints one line a text: "
               "what is new, without the prompt, its line ends as spaces; token ids if there is no "
               "tokenizer.",
    .epilogue = "examples:\n"
                "  fsdp generate --model t5-small 'translate English to German: Good morning.'\n"
                "  fsdp launch -n 2 generate --model out --input articles.txt "
                "--task-prefix 'summarize: '\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "TEXT...",
    .check = check_options,
};

/* --- printing --- */

static void add_ids(fsdp_json_node root, const char *key, const int32_t *ids, size_t n)
{
    fsdp_json_node array = fsdp_json_set_array(root, key);
    for (size_t i = 0; i < n; i++)
        fsdp_json_append_i64(array, ids[i]);
}

static void print_json(const fsdp_generate_result *r)
{
    fsdp_json *doc;
    char *text;
    if (fsdp_json_create("generate", &doc) != FSDP_OK)
        return;
    fsdp_json_node root = fsdp_json_root(doc);
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
    if (fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL) == FSDP_OK) {
        puts(text);
        fsdp_free(text);
    }
    fsdp_json_destroy(doc);
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
    const generate_config *config = arg;
    if (config->json)
        print_json(r);
    else if (r->text)
        print_text(r->text);
    else
        print_ids(r->ids + r->prompt_length, r->n_ids - r->prompt_length);
    fflush(stdout);
}

static void print_note(const char *note, void *arg)
{
    (void)arg;
    fprintf(stderr, "fsdp generate: note: %s\n", note);
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
    config->run.max_source_length_given = fsdp_options_given(config->options, "max_source_length");
    config->run.asks_for_seed = fsdp_options_asked_for(config->options, "seed");
    fsdp_generation_options_given(config->options, &config->run.generation);
    fsdp_status status = fsdp_generate_run(&config->run, group, print_result, print_note, config);
    fsdp_free(texts);
    return status;
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
