/* Pages of the manual and what shells complete, from a table with every type of option. */
#include <fsdp/options.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/options/completion.h"
#include "src/options/roff.h"
#include "tests/test.h"

static const char *const schedules[] = {"step", "linear|lin", NULL};
static const char *const devices[] = {"auto", "cpu", NULL};

#define NOWHERE .offset = FSDP_OPTION_NOWHERE
static const fsdp_option table[] = {
    {.name = "model",
     .aliases = "model-name,m",
     .type = FSDP_OPTION_STRING,
     NOWHERE,
     .metavar = "DIR",
     .required = true,
     .group = "the model",
     .env = "MODEL_FOLDER",
     .help = ".hidden folder of the user's model"},
    {.name = "batch-size",
     .type = FSDP_OPTION_INT,
     NOWHERE,
     .value = "4",
     .bounds = FSDP_BETWEEN(1, 99),
     .help = "rows"},
    {.name = "schedule",
     .type = FSDP_OPTION_CHOICE,
     NOWHERE,
     .value = "step",
     .choices = schedules,
     .group = "training",
     .help = "how it changes"},
    {.name = "dtype", .type = FSDP_OPTION_DTYPE, NOWHERE, .help = "of parameters"},
    {.name = "shuffle", .type = FSDP_OPTION_BOOL, NOWHERE, .value = "true", .help = "mix"},
    {.name = "no-cuda", .type = FSDP_OPTION_BOOL, NOWHERE, .help = "none"},
    {.name = "data", .type = FSDP_OPTION_LIST, NOWHERE, .metavar = "PATH,...", .help = "rows"},
    {.name = "device",
     .type = FSDP_OPTION_STRING,
     NOWHERE,
     .metavar = "KIND",
     .completions = devices,
     .help = "where"},
    {.name = "resume",
     .type = FSDP_OPTION_STRING,
     NOWHERE,
     .metavar = "[auto|DIR]",
     .bare = "auto",
     .help = "continue"},
    {.name = "rate", .type = FSDP_OPTION_DOUBLE, NOWHERE, .help = "1\\2 'x' ^ ~ `y`"},
    {.name = "old", .type = FSDP_OPTION_BOOL, NOWHERE, .no_effect = "it is always so"},
    {.name = "secret", .type = FSDP_OPTION_BOOL, NOWHERE, .hidden = true, .help = "hidden"},
};
static const fsdp_option compat[] = {
    {.name = "theirs", .type = FSDP_OPTION_INT, NOWHERE, .no_effect = "another program's"}};
static const fsdp_options_spec spec = {.program = "fsdp sample",
                                       .table = table,
                                       .count = FSDP_LENGTH(table),
                                       .compat = compat,
                                       .n_compat = FSDP_LENGTH(compat),
                                       .config_alias = "config-file",
                                       .positional = "RUN..."};

static char *page_of(const fsdp_options_spec *s)
{
    fsdp_str out = {0};
    fsdp_roff_options(&out, s);
    return fsdp_str_take(&out);
}

/* Each option is under its heading, with range, default, other names and variable. */
TEST(a_page_has_all_of_an_option)
{
    char *page = page_of(&spec);
    ASSERT(page);
    static const char *const parts[] = {
        ".SS The model\n.TP\n\\fB\\-m\\fR, \\fB\\-\\-model\\fR \\fIDIR\\fR\n"
        "\\&.hidden folder of the user\\(aqs model\n.br\nRequired\n.br\nAlso: \\-\\-model\\-name\n"
        ".br\nEnvironment: MODEL_FOLDER\n",
        "rows\n.br\nAllowed: an integer from 1 to 99\n.br\nDefault: 4\n",
        ".SS Training\n.TP\n\\fB\\-\\-schedule\\fR \\fIWORD\\fR\nhow it changes\n"
        ".br\nAllowed: step or linear\n.br\nDefault: step\n",
        "\\fB\\-\\-[no\\-]shuffle\\fR\nmix\n.br\nDefault: true\n",
        "\\fB\\-\\-no\\-cuda\\fR\nnone\n",
        "1\\e2 \\(aqx\\(aq \\(ha \\(ti \\(gay\\(ga\n",
        ".SS Accepted, without effect here\n.TP\n\\fB\\-\\-[no\\-]old\\fR\nit is always so\n"
        ".TP\n\\fB\\-\\-theirs\\fR \\fIN\\fR\nanother program\\(aqs\n",
        ".SS Always\n.TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR \\fI[WORD]\\fR\nthis text; WORD: ",
    };
    for (size_t i = 0; i < FSDP_LENGTH(parts); i++)
        if (!strstr(page, parts[i]))
            FAIL("no %s in %s", parts[i], page);
    ASSERT(!strstr(page, "secret"));
    fsdp_free(page);
}

/* No line of a text has more than 80 bytes, or begins with a dot or a quote. */
TEST(lines_are_short_and_protected)
{
    fsdp_str out = {0};
    fsdp_str_printf(&out, "a line that goes on: ");
    for (int i = 0; i < 30; i++)
        fsdp_roff_text(&out, ".gitignore 'quoted' some more words and a long-hyphenated-word\nnew");
    char *text = fsdp_str_take(&out);
    ASSERT(text);
    ASSERT(strncmp(text, "a line that goes on: .gitignore", 31) == 0);
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        if (strlen(line) > 80)
            FAIL("%zu bytes: %s", strlen(line), line);
        ASSERT(*line != '\'' && (*line != '.' || strcmp(line, ".br") == 0));
    }
    fsdp_free(text);
}

TEST(an_example_is_not_filled)
{
    fsdp_str out = {0};
    fsdp_roff_example(&out, "  fsdp train --lr 1\n.dot\n");
    char *text = fsdp_str_take(&out);
    ASSERT(text);
    ASSERT_STR(text, ".nf\n  fsdp train \\-\\-lr 1\n\\&.dot\n.fi\n");
    fsdp_free(text);
}

static const fsdp_option *find(const char *name)
{
    for (size_t i = 0; i < FSDP_LENGTH(table); i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

TEST(values_are_files_folders_words_or_texts)
{
    static const struct {
        const char *name;
        fsdp_value_kind kind;
        const char *words, *flags;
    } cases[] = {
        {"model", FSDP_VALUE_FOLDER, "", " --model --model-name -m"},
        {"batch-size", FSDP_VALUE_TEXT, "", " --batch-size"},
        {"schedule", FSDP_VALUE_WORDS, " step linear", " --schedule"},
        {"shuffle", FSDP_VALUE_NONE, " true false", " --shuffle --no-shuffle"},
        {"no-cuda", FSDP_VALUE_NONE, " true false", " --no-cuda"},
        {"data", FSDP_VALUE_FILE, "", " --data"},
        {"device", FSDP_VALUE_WORDS, " auto cpu", " --device"},
        {"resume", FSDP_VALUE_FOLDER, " auto", " --resume"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        const fsdp_option *option = find(cases[i].name);
        fsdp_str words = {0}, flags = {0};
        ASSERT(option);
        fsdp_option_words(option, &words);
        fsdp_option_flags(option, &flags);
        ASSERT(fsdp_option_value_kind(option) == cases[i].kind);
        ASSERT_STR(words.data ? words.data : "", cases[i].words);
        ASSERT_STR(flags.data, cases[i].flags);
        fsdp_str_fini(&words);
        fsdp_str_fini(&flags);
    }
    fsdp_str dtypes = {0};
    fsdp_option_words(find("dtype"), &dtypes);
    ASSERT(strstr(dtypes.data, " bfloat16") && !strstr(dtypes.data, "int32"));
    fsdp_str_fini(&dtypes);
}

static void append_name(const fsdp_option *option, void *arg)
{
    fsdp_str_printf(arg, "%s ", option->name);
}

/* All that --help shows, and the names that every program has. */
TEST(a_visit_has_what_help_shows)
{
    fsdp_str names = {0};
    fsdp_options_visit(&spec, append_name, &names);
    ASSERT_STR(names.data, "model batch-size schedule dtype shuffle no-cuda data device resume "
                           "rate old theirs help config print-config config-file ");
    fsdp_str_fini(&names);
    ASSERT(fsdp_positional_kind(&spec) == FSDP_VALUE_FILE);
    fsdp_options_spec other = spec;
    other.positional = "TEXT...";
    ASSERT(fsdp_positional_kind(&other) == FSDP_VALUE_TEXT);
    other.positional_words = devices;
    ASSERT(fsdp_positional_kind(&other) == FSDP_VALUE_WORDS);
    other.positional = NULL;
    other.positional_words = NULL;
    ASSERT(fsdp_positional_kind(&other) == FSDP_VALUE_NONE);
}

/* When memory runs out, there is no page, rather than half of one. */
TEST(without_memory_there_is_no_page)
{
    int failed = 0;
    for (long n = 1;; n++) {
        fsdp_alloc_fail_at(n);
        char *page = page_of(&spec);
        fsdp_alloc_fail_at(0);
        if (page) {
            ASSERT(strstr(page, "print\\-config"));
            fsdp_free(page);
            break;
        }
        failed++;
    }
    ASSERT(failed > 20);
}
