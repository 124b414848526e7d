/* `fsdp config`: writes, converts and explains configuration files, which Accelerate can also read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/accelerate/questions.h"
#include "src/accelerate/to_fsdp2.h"
#include "src/accelerate/update.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/cli/common/cli.h"
#include "src/cli/config.h"
#include "src/launch/accelerate.h"
#include "src/report/terminal.h"

/* ---- files ---- */

/* Write JSON if the name ends with .json, as Accelerate does, else YAML. */
static fsdp_status write_config(fsdp_yaml *config, const char *path)
{
    const size_t n = strlen(path);
    const bool is_json = n > 5 && strcmp(path + n - 5, ".json") == 0;
    char *text = NULL, *folder = fsdp_path_parent(path);
    fsdp_status status = FSDP_OK;
    if (is_json)
        status = fsdp_yaml_print_json(config, &text);
    else
        text = fsdp_yaml_print(config);
    if (status == FSDP_OK)
        status = text && folder ? fsdp_directory_make(folder) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_file_write(path, text, strlen(text));
    fsdp_free(text);
    fsdp_free(folder);
    return status;
}

/* ---- writing ---- */

typedef struct write_options {
    const char *config_file;
    bool defaults, overwrite;
} write_options;

static const fsdp_option write_table[] = {
    {.name = "config-file",
     .aliases = "o",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(write_options, config_file),
     .metavar = "FILE",
     .shown_default = "accelerate/default_config.yaml in $HF_HOME or ~/.cache/huggingface",
     .help = "the file to write; '-': standard output"},
    {.name = "default",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(write_options, defaults),
     .help = "ask nothing: FSDP2 with the defaults of all questions, except those given"},
    {.name = "overwrite",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(write_options, overwrite),
     .help = "without questions: replace a file even if it has values that are not given again "
             "and would be lost"},
};

static const fsdp_options_spec write_spec = {
    .program = "fsdp config",
    .usage = "[--config_file FILE] [--default] [key=value...]\n"
             "fsdp config convert FILE\nfsdp config update FILE\nfsdp config explain FILE",
    .summary =
        "Write a configuration file for 'fsdp launch' and 'accelerate launch'. Asks what "
        "'accelerate config' asks about FSDP. With key=value, as in the file, nothing is asked: "
        "other keys have their defaults, and a choice may be given by its number. 'fsdp config "
        "convert' turns a file for FSDP1 into one for FSDP2, 'fsdp config update' adds the keys "
        "that an old file lacks, and 'fsdp config explain' says what a file does.",
    .epilogue = "examples:\n"
                "  fsdp config --config_file fsdp.yaml\n"
                "  fsdp config --config_file fsdp.yaml num_processes=4 mixed_precision=bf16\n"
                "  fsdp config -o - fsdp_version=1 sharding_strategy=2 num_processes=2\n",
    .table = write_table,
    .count = FSDP_LENGTH(write_table),
    .positional = "key=value...",
};

/* Set *config to the new configuration, which the caller owns. If the user gave neither --defaults
 * nor answers, ask the questions. Otherwise ask nothing, and use the answers `given` [n], and
 * defaults for the rest. In this case, without --overwrite, also check that no value of the file
 * `path` is lost. After a failure, set *misused if the answers on the command line are wrong. */
static fsdp_status answer(const write_options *o, const char *const *given, size_t n,
                          const char *path, fsdp_yaml *config, bool *misused)
{
    const bool to_stdout = strcmp(path, "-") == 0, asks = !o->defaults && n == 0;
    const fsdp_menu_io io = {.in = stdin,
                             .out = to_stdout ? stderr : stdout,
                             .keys =
                                 isatty(STDIN_FILENO) && fsdp_terminal_is(stdout) && !to_stdout};
    fsdp_yaml old = {.kind = FSDP_YAML_MAP};
    if (!to_stdout)
        FSDP_TRY(fsdp_config_read_replaced(path, &old));
    fsdp_status status = fsdp_accelerate_ask(given, n, asks ? &io : NULL, config);
    *misused = !asks && (status == FSDP_ERR_INVALID || status == FSDP_ERR_UNSUPPORTED);
    if (status == FSDP_OK && !asks && !o->overwrite) {
        status = fsdp_config_check_replaced(&old, config, path, given, n);
        if (status != FSDP_OK)
            fsdp_yaml_fini(config);
    }
    fsdp_yaml_fini(&old);
    return status;
}

static fsdp_status write_answers(const write_options *o, const char *const *given, size_t n,
                                 const char *path, bool *misused)
{
    fsdp_yaml config = {0};
    FSDP_TRY(answer(o, given, n, path, &config, misused));
    fsdp_status status = FSDP_OK;
    if (strcmp(path, "-") == 0) {
        char *text = fsdp_yaml_print(&config);
        status = text ? FSDP_OK : FSDP_ERR_NOMEM;
        if (text)
            fputs(text, stdout);
        fsdp_free(text);
    } else {
        status = write_config(&config, path);
        if (status == FSDP_OK)
            printf("configuration saved at %s\n", path);
    }
    fsdp_yaml_fini(&config);
    return status;
}

int fsdp_config_write(int argc, char **argv)
{
    write_options config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(&write_spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    int n;
    bool misused = false;
    char **given = fsdp_options_positional(options, &n);
    char *path = config.config_file ? fsdp_strdup(config.config_file) : NULL;
    fsdp_status status = FSDP_OK;
    if (!config.config_file)
        status = fsdp_accelerate_default_path(&path);
    else if (!path)
        status = fsdp_error_nomem();
    if (status == FSDP_OK)
        status = write_answers(&config, (const char *const *)given, (size_t)n, path, &misused);
    code = status == FSDP_OK ? FSDP_EXIT_OK
           : misused         ? fsdp_cli_misused(write_spec.program)
                             : fsdp_cli_failed(write_spec.program);
    fsdp_free(path);
    fsdp_options_destroy(options);
    return code;
}

/* ---- converting ---- */

typedef struct convert_options {
    const char *config_file, *output_file;
    bool overwrite;
} convert_options;

static const fsdp_option convert_table[] = {
    {.name = "config-file",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(convert_options, config_file),
     .metavar = "FILE",
     .help = "the file, as accelerate to-fsdp2 names it"},
    {.name = "output-file",
     .aliases = "o",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(convert_options, output_file),
     .metavar = "FILE",
     .help = "where to write the result; '-': standard output"},
    {.name = "overwrite",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(convert_options, overwrite),
     .help = "replace an existing --output-file, or without one FILE itself"},
};

static fsdp_status check_convert(void *target, const fsdp_options *options)
{
    const convert_options *o = target;
    const char *from;
    FSDP_TRY(fsdp_config_named_file(options, o->config_file, &from));
    if (!from)
        return fsdp_error(FSDP_ERR_INVALID, "the file is missing: FILE, or --config-file FILE");
    if (!o->output_file && !o->overwrite)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--output-file is missing: the file to write, or --overwrite, which "
                          "replaces %s",
                          from);
    return FSDP_OK;
}

static const fsdp_options_spec convert_spec = {
    .program = "fsdp config convert",
    .usage = "FILE --output_file FILE | FILE --overwrite",
    .summary = "Convert a configuration file of Accelerate from FSDP1 to FSDP2, as 'accelerate "
               "to-fsdp2' does. Menu numbers and old keys are known, HYBRID_SHARD becomes a mesh, "
               "and settings that FSDP2 does not have are reported.",
    .epilogue = "example:\n  fsdp config convert fsdp1.yaml --output_file fsdp2.yaml\n",
    .table = convert_table,
    .count = FSDP_LENGTH(convert_table),
    .positional = "FILE",
    .max_positional = 1,
    .check = check_convert,
};

static void say(void *context, const char *message)
{
    (void)context;
    fprintf(stderr, "%s\n", message);
}

static fsdp_status convert(const char *from, const convert_options *o)
{
    const char *to = o->output_file ? o->output_file : from;
    const bool to_stdout = strcmp(to, "-") == 0;
    fsdp_yaml config = {0};
    if (!to_stdout && !o->overwrite && fsdp_path_exists(to))
        return fsdp_error(FSDP_ERR_INVALID, "--output-file %s exists; --overwrite replaces it", to);
    FSDP_TRY(fsdp_yaml_read(from, &config));
    fsdp_status status = fsdp_to_fsdp2(&config, from, say, NULL);
    if (status == FSDP_OK && to_stdout) {
        char *text = fsdp_yaml_print(&config);
        status = text ? FSDP_OK : FSDP_ERR_NOMEM;
        if (text)
            fputs(text, stdout);
        fsdp_free(text);
    } else if (status == FSDP_OK) {
        status = write_config(&config, to);
    }
    fsdp_yaml_fini(&config);
    return status;
}

int fsdp_config_convert(int argc, char **argv)
{
    convert_options config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(&convert_spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    const char *from;
    fsdp_status status = fsdp_config_named_file(options, config.config_file, &from);
    if (status == FSDP_OK)
        status = convert(from, &config);
    code = status == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(convert_spec.program);
    fsdp_options_destroy(options);
    return code;
}

/* ---- updating ---- */

static const fsdp_option update_table[] = {
    {.name = "config-file",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(write_options, config_file),
     .metavar = "FILE",
     .shown_default = "accelerate/default_config.yaml in $HF_HOME or ~/.cache/huggingface",
     .help = "the file to bring up to date"},
};

static fsdp_status check_update(void *target, const fsdp_options *options)
{
    const char *path;
    return fsdp_config_named_file(options, ((const write_options *)target)->config_file, &path);
}

static const fsdp_options_spec update_spec = {
    .program = "fsdp config update",
    .usage = "[--config_file FILE]",
    .summary = "Bring a configuration file up to date, as 'accelerate config update' does: keys "
               "that new files have are added with their defaults, fp16 and dynamo_backend of old "
               "files are replaced, and the other values stay.",
    .epilogue = "example:\n  fsdp config update --config_file fsdp.yaml\n",
    .table = update_table,
    .count = FSDP_LENGTH(update_table),
    .positional = "FILE",
    .max_positional = 1,
    .check = check_update,
};

static fsdp_status update(const char *path)
{
    fsdp_yaml config = {0};
    FSDP_TRY(fsdp_yaml_read(path, &config));
    fsdp_status status = fsdp_accelerate_update(&config, path);
    if (status == FSDP_OK)
        status = write_config(&config, path);
    if (status == FSDP_OK)
        printf("configuration updated at %s\n", path);
    fsdp_yaml_fini(&config);
    return status;
}

static int run_update(int argc, char **argv)
{
    write_options config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(&update_spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    const char *path;
    char *found = NULL;
    fsdp_status status = fsdp_config_named_file(options, config.config_file, &path);
    if (status == FSDP_OK && !path)
        status = fsdp_accelerate_default_path(&found);
    if (status == FSDP_OK)
        status = update(path ? path : found);
    code = status == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(update_spec.program);
    fsdp_free(found);
    fsdp_options_destroy(options);
    return code;
}

/* ---- the command ---- */

static const fsdp_command subcommands[] = {
    {"convert", "make a file for FSDP2 from one for FSDP1", fsdp_config_convert},
    {"to-fsdp2", "the same, by the name of Accelerate's command", fsdp_config_convert},
    {"update", "add the keys of new files to an old one", run_update},
    {"explain", "say in words what a file does", fsdp_config_explain},
};

const fsdp_command_group fsdp_config_group = {
    .usage = NULL, .commands = subcommands, .count = FSDP_LENGTH(subcommands)};

int fsdp_cmd_config(int argc, char **argv)
{
    static char defaults[] = "--default";
    for (size_t i = 0; argc > 1 && i < FSDP_LENGTH(subcommands); i++)
        if (strcmp(argv[1], subcommands[i].name) == 0)
            return subcommands[i].run(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "default") == 0)
        argv[1] = defaults; /* `accelerate config default` */
    return fsdp_config_write(argc, argv);
}
