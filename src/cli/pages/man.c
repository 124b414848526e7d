/* Makes the pages of the manual. The parts of a page that describe its command are made from the
 * command's option table; the other parts are the same for all commands. The date of a page is that
 * of $SOURCE_DATE_EPOCH, so that a build can be reproduced, or else today. */
#include "src/cli/pages/man.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/options/roff.h"

enum {
    NAME_BYTES = 96
};

/* Set `name` to the name of a page: "fsdp", "fsdp-train", "fsdp-checkpoint-convert". */
static void page_name(const char *command, const char *subcommand, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "fsdp%s%s%s%s", command ? "-" : "", command ? command : "",
             subcommand ? "-" : "", subcommand ? subcommand : "");
}

static void append_title(fsdp_str *out, const char *name)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    const time_t now = epoch && *epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    struct tm day;
    char date[32] = "1970-01-01", title[NAME_BYTES];
    if (gmtime_r(&now, &day))
        strftime(date, sizeof date, "%Y-%m-%d", &day);
    snprintf(title, sizeof title, "%s", name);
    for (char *c = title; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    fsdp_str_printf(out, ".TH ");
    fsdp_roff_escape(out, title);
    fsdp_str_printf(out, " 1 %s \"fsdp %s\" \"fsdp manual\"\n", date, FSDP_VERSION);
}

static void append_name(fsdp_str *out, const char *name, const char *help)
{
    fsdp_roff_section(out, "NAME");
    fsdp_roff_escape(out, name);
    fsdp_str_printf(out, " \\- ");
    fsdp_roff_text(out, help);
}

/* Append the section SYNOPSIS: `program` and the first line of `usage`, and then the other lines of
 * `usage`, which already contain the name of a command. */
static void append_synopsis(fsdp_str *out, const char *program, const char *usage)
{
    fsdp_roff_section(out, "SYNOPSIS");
    fsdp_str_printf(out, "\\fB");
    fsdp_roff_escape(out, program);
    fsdp_str_printf(out, "\\fR\n");
    for (bool first = true; *usage; first = false) {
        const size_t length = strcspn(usage, "\n");
        char *line = fsdp_strndup(usage, length);
        if (!first)
            fsdp_str_printf(out, ".br\n");
        if (line)
            fsdp_roff_text(out, line + strspn(line, " "));
        out->failed |= !line;
        fsdp_free(line);
        usage += length + (usage[length] == '\n');
    }
}

/* Append `text` with its newlines replaced by spaces: its lines were broken only for terminals. */
static void append_flowing(fsdp_str *out, const char *text)
{
    char *copy = fsdp_strdup(text);
    for (char *c = copy; c && *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    if (copy)
        fsdp_roff_text(out, copy);
    out->failed |= !copy;
    fsdp_free(copy);
}

static void append_commands(fsdp_str *out, const fsdp_command *commands, size_t count)
{
    fsdp_roff_section(out, "COMMANDS");
    for (size_t i = 0; i < count; i++)
        fsdp_roff_item(out, commands[i].name, commands[i].help);
}

static bool has_option(const fsdp_options_spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->count; i++)
        if (strcmp(spec->table[i].name, name) == 0 && !spec->table[i].hidden)
            return true;
    return false;
}

/* A row of the section ENVIRONMENT or FILES. If `needs` is not NULL, the row is only on the pages
 * of commands that have the option `needs`. */
typedef struct note {
    const char *tag, *text, *needs;
} note;

static void append_notes(fsdp_str *out, const fsdp_options_spec *spec, const note *notes,
                         size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!notes[i].needs || (spec && has_option(spec, notes[i].needs)))
            fsdp_roff_item(out, notes[i].tag, notes[i].text);
}

static void append_environment(fsdp_str *out, const fsdp_options_spec *spec)
{
    static const note notes[] = {
        {"HF_HUB_CACHE, HF_HOME",
         "Where models are looked for that are given by their name on the hub.", "model"},
        {"CUDA_VISIBLE_DEVICES", "The cards that the command may use.", "device"},
        {"TMPDIR", "The folder of log files and of other temporary files.", "log-dir"},
        {"OMP_NUM_THREADS",
         "Threads of each rank, unless --threads-per-rank or FSDP_THREADS_PER_RANK says otherwise.",
         "threads-per-rank"},
        {"NO_COLOR", "If it is set and not empty, no colors are printed.", NULL},
    };
    fsdp_roff_section(out, "ENVIRONMENT");
    if (spec) {
        fsdp_str text = {0};
        fsdp_str_printf(&text,
                        "Each option can also come from the variable %s and its name in capitals, "
                        "with underscores for dashes, unless the option names another variable. "
                        "An option of the command line and one of a --config file win over it.",
                        spec->env_prefix ? spec->env_prefix : "FSDP_");
        fsdp_roff_text(out, text.failed ? "" : text.data);
        out->failed |= text.failed;
        fsdp_str_fini(&text);
    }
    append_notes(out, spec, notes, FSDP_LENGTH(notes));
}

static void append_files(fsdp_str *out, const fsdp_options_spec *spec)
{
    static const note notes[] = {
        {"~/.cache/huggingface/hub",
         "Models by their name on the hub, as Hugging Face's programs "
         "store them.",
         "model"},
        {"FILE.yaml", "Options by their names, given with --config.", NULL},
    };
    if (!spec)
        return;
    fsdp_roff_section(out, "FILES");
    if (spec->default_config || has_option(spec, "config-file"))
        fsdp_roff_item(out, "~/.cache/huggingface/accelerate/default_config.yaml",
                       "The configuration of 'accelerate config', if no other file is named. "
                       "HF_HOME moves it.");
    append_notes(out, spec, notes, FSDP_LENGTH(notes));
}

/* Return true if the command can end with status 75 after SIGUSR1. It can if it saves its work, or
 * if its ranks save theirs. This function lists the commands by name. The option --resume does not
 * identify them, because `fsdp plan` has all options of `fsdp train`, including --resume. */
static bool ends_to_go_on(const char *command)
{
    static const char *const commands[] = {"train", "launch", "tokenize"};
    for (size_t i = 0; i < FSDP_LENGTH(commands); i++)
        if (strcmp(command, commands[i]) == 0)
            return true;
    return false;
}

static void append_exit_status(fsdp_str *out, const char *command, const fsdp_options_spec *spec)
{
    fsdp_roff_section(out, "EXIT STATUS");
    fsdp_roff_item(out, "0", "Success.");
    fsdp_roff_item(out, "1",
                   "The work failed: for example, a file was missing, a rank died, or a "
                   "loss was not finite. One message on standard error says why.");
    fsdp_roff_item(out, "2",
                   "The command line or the configuration is wrong. Nothing was started.");
    if (spec && spec->stop_at_positional)
        fsdp_roff_item(out, "128 + N", "Signal N ended the command, and its ranks.");
    if (spec && ends_to_go_on(command))
        fsdp_roff_item(out, "75", "SIGUSR1 ended the work, which --resume continues.");
}

/* Append the section SEE ALSO: the page of fsdp, the pages of the subcommands and, on the page of a
 * subcommand, the page of its command. */
static void append_see_also(fsdp_str *out, const fsdp_command_page *page)
{
    char name[NAME_BYTES];
    fsdp_roff_section(out, "SEE ALSO");
    fsdp_str_printf(out, ".BR fsdp (1)");
    if (page->subcommand) {
        page_name(page->command, NULL, name);
        fsdp_str_printf(out, ",\n.BR ");
        fsdp_roff_escape(out, name);
        fsdp_str_printf(out, " (1)");
    }
    for (size_t i = 0; page->group && i < page->group->count; i++) {
        page_name(page->command, page->group->commands[i].name, name);
        fsdp_str_printf(out, ",\n.BR ");
        fsdp_roff_escape(out, name);
        fsdp_str_printf(out, " (1)");
    }
    fsdp_str_printf(out, "\n");
}

static void append_page(fsdp_str *out, const fsdp_command_page *page)
{
    const fsdp_options_spec *spec = page->spec;
    char name[NAME_BYTES], program[NAME_BYTES];
    page_name(page->command, page->subcommand, name);
    snprintf(program, sizeof program, "fsdp %s%s%s", page->command, page->subcommand ? " " : "",
             page->subcommand ? page->subcommand : "");
    append_title(out, name);
    append_name(out, name, page->help);
    append_synopsis(out, program,
                    !spec         ? page->group->usage
                    : spec->usage ? spec->usage
                                  : "[options]");
    fsdp_roff_section(out, "DESCRIPTION");
    append_flowing(out, spec ? spec->summary : page->group->summary);
    if (page->group)
        append_commands(out, page->group->commands, page->group->count);
    if (spec) {
        fsdp_roff_section(out, "OPTIONS");
        fsdp_roff_text(out, "A dash in a name equals an underscore.");
        fsdp_roff_options(out, spec);
    }
    append_exit_status(out, page->command, spec);
    append_environment(out, spec);
    append_files(out, spec);
    if (spec && spec->epilogue) {
        const char *text = strchr(spec->epilogue, '\n');
        fsdp_roff_section(out, "EXAMPLES");
        fsdp_roff_example(out, text ? text + 1 : spec->epilogue);
    }
    append_see_also(out, page);
}

/* Make the text of a page. The caller owns it. */
static fsdp_status make_page(const fsdp_command_page *page, char **text)
{
    fsdp_str out = {0};
    append_page(&out, page);
    *text = fsdp_str_take(&out);
    return *text ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Make the text of fsdp(1). The caller owns it. */
static fsdp_status make_main_page(char **text)
{
    size_t count;
    const fsdp_command *commands = fsdp_commands(&count);
    fsdp_str out = {0};
    append_title(&out, "fsdp");
    append_name(&out, "fsdp", "fully sharded data parallel training without Python");
    append_synopsis(&out, "fsdp", "COMMAND [options]");
    fsdp_roff_section(&out, "DESCRIPTION");
    fsdp_roff_text(&out,
                   "Trains, evaluates and runs language models with parameters, gradients and "
                   "optimizer state sharded over ranks. Reads and writes the files of "
                   "PyTorch, Accelerate and Hugging Face.");
    append_commands(&out, commands, count);
    fsdp_roff_section(&out, "OPTIONS");
    fsdp_roff_item(&out, "-h, --help", "The list of commands.");
    fsdp_roff_item(&out, "--version", "How this program was built.");
    append_exit_status(&out, "fsdp", NULL);
    append_environment(&out, NULL);
    fsdp_roff_section(&out, "SEE ALSO");
    for (size_t i = 0; i < count; i++)
        fsdp_str_printf(&out, ".BR fsdp\\-%s (1)%s\n", commands[i].name, i + 1 < count ? "," : "");
    *text = fsdp_str_take(&out);
    return *text ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status print_page(const fsdp_command_page *page, void *arg)
{
    (void)arg;
    char *text;
    FSDP_TRY(make_page(page, &text));
    fputs(text, stdout);
    fsdp_free(text);
    return FSDP_OK;
}

fsdp_status fsdp_man_print(const char *command, const char *subcommand)
{
    if (command)
        return fsdp_command_visit(command, subcommand, print_page, NULL);
    char *text;
    FSDP_TRY(make_main_page(&text));
    fputs(text, stdout);
    fsdp_free(text);
    return FSDP_OK;
}

static fsdp_status write_text(const char *dir, const char *name, const char *text)
{
    char *path = fsdp_strdup_printf("%s/%s.1", dir, name);
    const fsdp_status status =
        path ? fsdp_file_write(path, text, strlen(text)) : fsdp_error_nomem();
    fsdp_free(path);
    return status;
}

static fsdp_status write_page(const fsdp_command_page *page, void *arg)
{
    char *text, name[NAME_BYTES];
    page_name(page->command, page->subcommand, name);
    FSDP_TRY(make_page(page, &text));
    const fsdp_status status = write_text(arg, name, text);
    fsdp_free(text);
    return status;
}

fsdp_status fsdp_man_write_all(const char *dir)
{
    char *text, *folder = fsdp_strdup(dir);
    if (!folder)
        return fsdp_error_nomem();
    fsdp_status status = fsdp_directory_make(folder);
    if (status == FSDP_OK)
        status = make_main_page(&text);
    if (status == FSDP_OK) {
        status = write_text(folder, "fsdp", text);
        fsdp_free(text);
    }
    if (status == FSDP_OK)
        status = fsdp_command_visit_all(write_page, folder);
    fsdp_free(folder);
    return status;
}
