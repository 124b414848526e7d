/* Options: sources, their precedence, values, bounds, messages, output. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include <fsdp/options.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/nearest.h"
#include "src/base/str.h"
#include "src/options/yaml_value.h"
#include "tests/test.h"

typedef struct sample {
    bool shuffle, overwrite;
    int batch_size, schedule;
    int64_t max_steps, memory;
    double lr, beta;
    const char *model;
    fsdp_dtype dtype;
    fsdp_option_list files, stops;
} sample;

enum {
    SCHEDULE_STEP,
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE
};
static const char *const schedules[] = {"step", "linear", "cosine|cosine-with-min-lr", NULL};

#define PLACE(field) .offset = offsetof(sample, field)
static const fsdp_option table[] = {
    {.name = "model",
     .aliases = "model-name",
     .type = FSDP_OPTION_STRING,
     PLACE(model),
     .group = "model",
     .help = "a folder"},
    {.name = "batch-size",
     .aliases = "test-batch-size,b",
     .type = FSDP_OPTION_INT,
     PLACE(batch_size),
     .value = "4",
     .bounds = FSDP_AT_LEAST(1),
     .help = "rows of a batch"},
    {.name = "max-steps",
     .type = FSDP_OPTION_INT64,
     PLACE(max_steps),
     .value = "-1",
     .bounds = FSDP_BETWEEN(-1, 1e15),
     .group = "training",
     .help = "steps"},
    {.name = "lr",
     .aliases = "learning-rate",
     .type = FSDP_OPTION_DOUBLE,
     PLACE(lr),
     .value = "0.002",
     .bounds = FSDP_AT_LEAST(0),
     .help = "rate"},
    {.name = "beta1",
     .type = FSDP_OPTION_DOUBLE,
     PLACE(beta),
     .value = "0.9",
     .bounds = FSDP_FROM_TO_BELOW(0, 1),
     .help = "first moment"},
    {.name = "shuffle",
     .type = FSDP_OPTION_BOOL,
     PLACE(shuffle),
     .value = "true",
     .takes_word = true,
     .help = "order"},
    {.name = "overwrite",
     .aliases = "replace",
     .type = FSDP_OPTION_BOOL,
     PLACE(overwrite),
     .help = "replace"},
    {.name = "lr-schedule",
     .aliases = "scheduler",
     .type = FSDP_OPTION_CHOICE,
     PLACE(schedule),
     .value = "linear",
     .choices = schedules,
     .help = "schedule"},
    {.name = "param-dtype", .type = FSDP_OPTION_DTYPE, PLACE(dtype), .value = "bf16", .help = "d"},
    {.name = "memory-limit",
     .type = FSDP_OPTION_SIZE,
     PLACE(memory),
     .value = "1GiB",
     .bounds = FSDP_AT_LEAST(1024),
     .help = "bytes"},
    {.name = "data", .aliases = "files", .type = FSDP_OPTION_LIST, PLACE(files), .help = "files"},
    {.name = "stop",
     .aliases = "until",
     .type = FSDP_OPTION_LIST,
     PLACE(stops),
     .repeats = true,
     .help = "texts"},
    {.name = "no-cuda",
     .type = FSDP_OPTION_BOOL,
     .offset = FSDP_OPTION_NOWHERE,
     .no_effect = "there is no GPU"},
};
static const fsdp_options_spec spec = {.program = "fsdp sample",
                                       .summary = "For tests.",
                                       .table = table,
                                       .count = FSDP_LENGTH(table),
                                       .env_prefix = "FSDPTEST_",
                                       .positional = "FILE...",
                                       .max_positional = 3};

static fsdp_options *kept; /* from the last successful parse; owns the strings of its sample */

/* Parse a command line. Words are separated by spaces; '+' represents a space in a word. */
static fsdp_status parse_with(const fsdp_options_spec *s, sample *out, const char *line)
{
    static char words[2048];
    char *argv[64], *rest = words;
    int argc = 1;
    snprintf(words, sizeof words, "sample %s", line);
    argv[0] = strsep(&rest, " ");
    for (char *word; (word = strsep(&rest, " "));) {
        if (!*word)
            continue;
        for (char *c = word; *c; c++)
            *c = *c == '+' ? ' ' : *c;
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    memset(out, 0, sizeof *out);
    fsdp_options_destroy(kept);
    kept = NULL;
    return fsdp_options_parse(s, argc, argv, out, &kept);
}

static fsdp_status parse(sample *out, const char *line)
{
    return parse_with(&spec, out, line);
}

/* Write `text` to a file of the test's directory and return its path. */
static const char *yaml_file(fsdp_test *t, const char *text)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/run.yaml", fsdp_test_dir(t));
    FILE *file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0)
        fsdp_test_fail(t, __FILE__, __LINE__, "cannot write %s", path);
    return path;
}

static fsdp_status parse_yaml(fsdp_test *t, sample *out, const char *text, const char *flags)
{
    char line[1024];
    snprintf(line, sizeof line, "--config %s %s", yaml_file(t, text), flags);
    return parse(out, line);
}

TEST(defaults_come_from_the_table)
{
    sample s;
    ASSERT_OK(parse(&s, ""));
    ASSERT_INT(s.batch_size, 4);
    ASSERT_INT(s.max_steps, -1);
    ASSERT_F32(s.lr, 0.002);
    ASSERT_INT(s.schedule, SCHEDULE_LINEAR);
    ASSERT_INT(s.dtype, FSDP_DTYPE_BF16);
    ASSERT_INT(s.memory, 1 << 30);
    ASSERT(s.shuffle && !s.overwrite && !s.model && s.files.count == 0);
    ASSERT(!fsdp_options_given(kept, "batch-size"));
}

TEST(every_spelling_of_a_flag_is_read)
{
    sample s;
    ASSERT_OK(parse(&s, "--batch-size 8"));
    ASSERT_INT(s.batch_size, 8);
    ASSERT_OK(parse(&s, "--batch_size=9"));
    ASSERT_INT(s.batch_size, 9);
    ASSERT_OK(parse(&s, "--test_batch-size 10"));
    ASSERT_INT(s.batch_size, 10);
    ASSERT_OK(parse(&s, "-b 11"));
    ASSERT_INT(s.batch_size, 11);
    ASSERT_OK(parse(&s, "-b12"));
    ASSERT_INT(s.batch_size, 12);
    ASSERT_OK(parse(&s, "-b=13"));
    ASSERT_INT(s.batch_size, 13);
    ASSERT_OK(parse(&s, "--max-steps -1 --model=a=b --lr 1e-4"));
    ASSERT_INT(s.max_steps, -1);
    ASSERT_STR(s.model, "a=b");
    ASSERT_F32(s.lr, 1e-4);
    ASSERT(fsdp_options_given(kept, "lr"));
    ASSERT_OK(parse(&s, "--model="));
    ASSERT_STR(s.model, "");
}

/* As in argparse, a later flag replaces an earlier one with the same name. */
TEST(the_last_flag_of_a_name_counts)
{
    sample s;
    ASSERT_OK(parse(&s, "--batch-size 1 --batch_size=2 --batch-size 3"));
    ASSERT_INT(s.batch_size, 3);
    ASSERT_OK(parse(&s, "--shuffle --no-shuffle"));
    ASSERT(!s.shuffle);
    ASSERT_OK(parse(&s, "--no_overwrite --overwrite"));
    ASSERT(s.overwrite);
    ASSERT_OK(parse(&s, "--data a,b --data c"));
    ASSERT_INT(s.files.count, 1);
}

/* A flag that does not count is named, once, unless its value is the one that counts. */
TEST(a_value_that_a_later_flag_replaces_is_noted)
{
    sample s;
    ASSERT_OK(
        parse(&s, "--lr 0.1 --batch-size 2 --lr 0.2 --batch-size 02 --lr 0.20 --data a --data b"));
    char *notes = fsdp_options_notes(kept);
    ASSERT(notes);
    const bool says =
        strcmp(notes, "--lr 0.1: --lr 0.20 comes later, and the last value counts\n"
                      "--data a: --data b comes later, and the last value counts\n") == 0;
    fsdp_free(notes);
    ASSERT(says);
    char *printed = fsdp_options_print(kept, &s);
    const bool has_line = printed && strstr(printed, "#   --lr 0.1: --lr 0.20 comes later");
    fsdp_free(printed);
    ASSERT(has_line);
    ASSERT_OK(parse(&s, "--stop a --stop b --no-shuffle"));
    notes = fsdp_options_notes(kept);
    const bool is_silent = notes && !*notes;
    fsdp_free(notes);
    ASSERT(is_silent);
}

TEST(two_values_are_an_error_if_both_could_be_meant)
{
    fsdp_option own[FSDP_LENGTH(table)];
    memcpy(own, table, sizeof own);
    fsdp_options_spec other = spec;
    other.table = own;
    sample s;
    ASSERT_OK(parse(&s, "--model a --model b"));
    own[0].several = "--more DIR adds one";
    ASSERT_ERROR(parse_with(&other, &s, "--model a --lr 1 --model=b"), FSDP_ERR_INVALID,
                 "--model a and --model b: only one of the two would count; leave the other out; "
                 "--more DIR adds one");
    ASSERT_OK(parse_with(&other, &s, "--model a --model=a"));
    ASSERT_STR(s.model, "a");
}

TEST(names_of_one_option_with_different_values_are_an_error)
{
    static const struct {
        const char *line, *first, *second;
    } rows[] = {
        {"--batch-size 1 --test_batch_size 2", "--batch-size 1", "--test_batch_size 2"},
        {"--lr 0.1 -b3 --batch-size=4 --lr 0.2", "-b 3", "--batch-size 4"},
        {"-b 1 -b 2 --test-batch-size 1", "-b 2", "--test-batch-size 1"},
        {"--overwrite --replace=no", "--overwrite contradicts", "--replace no"},
        {"--no-overwrite --replace", "--no-overwrite contradicts", "--replace:"},
        {"--data a,b --files a,c", "--data a,b", "--files a,c"},
        {"--data a,b --files a", "--data a,b", "--files a"},
        {"--model a --model-name b", "--model a", "--model-name b"},
        {"--lr-schedule step --scheduler cosine", "--lr-schedule step", "--scheduler cosine"},
        {"--lr 0.1 --learning-rate 0.2", "--lr 0.1", "--learning-rate 0.2"},
    };
    sample s;
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        ASSERT_INT(parse(&s, rows[i].line), FSDP_ERR_INVALID);
        if (!strstr(fsdp_last_error(), rows[i].first) ||
            !strstr(fsdp_last_error(), rows[i].second) ||
            !strstr(fsdp_last_error(), "names of the option"))
            fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s", rows[i].line, fsdp_last_error());
    }
}

TEST(names_of_one_option_with_one_value_are_accepted)
{
    static const char *const lines[] = {
        "--batch-size 2 --test-batch-size 02 -b 2", /* numbers are compared, not their digits */
        "--batch-size 1 --test-batch-size 2 --batch-size 2",
        "--overwrite --replace yes",
        "--no-overwrite --replace=0",
        "--lr 0.10 --learning-rate 1e-1",
        "--data a,b --files a,+b",
        "--lr-schedule cosine --scheduler cosine_with_min_lr",
        "--stop a --until b",
    };
    sample s;
    for (size_t i = 0; i < FSDP_LENGTH(lines); i++)
        if (parse(&s, lines[i]) != FSDP_OK)
            fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s", lines[i], fsdp_last_error());
    ASSERT_INT(s.stops.count, 2);
    /* A value that is not allowed is reported as such, not as a contradiction. */
    ASSERT_ERROR(parse(&s, "--batch-size 2 --test-batch-size x"), FSDP_ERR_INVALID,
                 "--test-batch-size: 'x' is not allowed");
}

TEST(booleans_are_read_by_every_word)
{
    static const char *const on[] = {"", "=true", " yes", " 1", " ON", "=True"};
    static const char *const off[] = {"=false", " no", " 0", " off", "=FALSE"};
    sample s;
    fsdp_options_spec no_words = spec;
    no_words.positional = NULL;
    char line[64];
    for (size_t i = 0; i < FSDP_LENGTH(on); i++) {
        snprintf(line, sizeof line, "--overwrite%s", on[i]);
        ASSERT_OK(parse_with(&no_words, &s, line));
        ASSERT(s.overwrite);
        snprintf(line, sizeof line, "--no-shuffle%s", on[i]);
        ASSERT_OK(parse_with(&no_words, &s, line));
        ASSERT(!s.shuffle);
    }
    for (size_t i = 0; i < FSDP_LENGTH(off); i++) {
        snprintf(line, sizeof line, "--shuffle%s", off[i]);
        ASSERT_OK(parse_with(&no_words, &s, line));
        ASSERT(!s.shuffle);
        snprintf(line, sizeof line, "--no_overwrite%s", off[i]);
        ASSERT_OK(parse_with(&no_words, &s, line));
        ASSERT(s.overwrite);
    }
    /* A word that is not a boolean is left for the positional arguments. */
    ASSERT_OK(parse(&s, "--overwrite file"));
    int count;
    char **files = fsdp_options_positional(kept, &count);
    ASSERT_INT(count, 1);
    ASSERT_STR(files[0], "file");
    /* A word that is a boolean, too, unless the option takes a word. */
    ASSERT_OK(parse(&s, "--overwrite no --shuffle false yes --overwrite=true"));
    files = fsdp_options_positional(kept, &count);
    ASSERT_INT(count, 2);
    ASSERT_STR(files[0], "no");
    ASSERT_STR(files[1], "yes");
    ASSERT(s.overwrite && !s.shuffle);
    ASSERT_ERROR(parse(&s, "--shuffle=maybe"), FSDP_ERR_INVALID, "--shuffle: 'maybe'");
    ASSERT_ERROR(parse(&s, "--no-lr"), FSDP_ERR_INVALID, "unknown option '--no-lr'");
}

TEST(sizes_know_their_units)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {{"4096", 4096},      {"8GiB", 8LL << 30},  {"8G", 8LL << 30},
                 {"8gb", 8000000000}, {"512MB", 512000000}, {"1.5K", 1536},
                 {"2TiB", 2LL << 40}, {"64MiB", 64 << 20},  {"3000B", 3000}};
    sample s;
    char line[64];
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        snprintf(line, sizeof line, "--memory-limit %s", cases[i].text);
        ASSERT_OK(parse(&s, line));
        ASSERT_INT(s.memory, cases[i].bytes);
    }
    static const char *const wrong[] = {"", "GiB", "8XB", "-1G", "1e99T", "0x10", "8 G B", "100"};
    for (size_t i = 0; i < FSDP_LENGTH(wrong); i++) {
        snprintf(line, sizeof line, "--memory-limit=%s", wrong[i]);
        ASSERT_ERROR(parse(&s, line), FSDP_ERR_INVALID, "of at least 1KiB");
    }
}

TEST(choices_dtypes_and_lists_are_read)
{
    sample s;
    ASSERT_OK(parse(&s, "--lr-schedule COSINE_with_min_lr --param-dtype torch.float32"));
    ASSERT_INT(s.schedule, SCHEDULE_COSINE);
    ASSERT_INT(s.dtype, FSDP_DTYPE_F32);
    ASSERT_OK(parse(&s, "--data a.csv,b+c.csv"));
    ASSERT_INT(s.files.count, 2);
    ASSERT_STR(s.files.items[0], "a.csv");
    ASSERT_STR(s.files.items[1], "b c.csv");
    ASSERT_OK(parse(&s, "--data +a.csv+,+b+c.csv"));
    ASSERT_STR(s.files.items[0], "a.csv");
    ASSERT_STR(s.files.items[1], "b c.csv");
    ASSERT_ERROR(parse(&s, "--data a,+,b"), FSDP_ERR_INVALID, "--data: 'a, ,b' is not allowed");
    ASSERT_OK(parse(&s, "--data a --data="));
    ASSERT_INT(s.files.count, 0);
    ASSERT_ERROR(parse(&s, "--lr-schedule cos"), FSDP_ERR_INVALID,
                 "--lr-schedule: 'cos' is not allowed; it takes step, linear or cosine");
    ASSERT_ERROR(parse(&s, "--param-dtype fp7"), FSDP_ERR_INVALID, "fp7");
}

TEST(wrong_numbers_name_option_value_and_bounds)
{
    sample s;
    ASSERT_ERROR(parse(&s, "--batch_size abc"), FSDP_ERR_INVALID,
                 "--batch_size: 'abc' is not allowed; it takes an integer of at least 1");
    static const char *const wrong[] = {"--batch-size 0",
                                        "--batch-size -3",
                                        "--batch-size 1.5",
                                        "--batch-size=",
                                        "--batch-size 1x",
                                        "--batch-size=+4",
                                        "--batch-size 99999999999",
                                        "--lr nan",
                                        "--lr inf",
                                        "--lr -0.1",
                                        "--lr 0x1p3",
                                        "--lr 1e999",
                                        "--beta1 1",
                                        "--beta1 -0.001",
                                        "--max-steps 99999999999999999999",
                                        "--max-steps -2"};
    for (size_t i = 0; i < FSDP_LENGTH(wrong); i++)
        ASSERT_ERROR(parse(&s, wrong[i]), FSDP_ERR_INVALID, "is not allowed");
    ASSERT_ERROR(parse(&s, "--beta1 1"), FSDP_ERR_INVALID, "a number from 0 to below 1");
    ASSERT_ERROR(parse(&s, "--max-steps -2"), FSDP_ERR_INVALID,
                 "an integer from -1 to 1000000000000000");
    ASSERT_OK(parse(&s, "--beta1 0 --max-steps 1000000000000"));
    ASSERT_INT(s.max_steps, 1000000000000);
}

TEST(unknown_options_suggest_the_nearest_name)
{
    sample s;
    ASSERT_ERROR(parse(&s, "--batch-szie 3"), FSDP_ERR_INVALID,
                 "unknown option '--batch-szie'; did you mean '--batch-size'?");
    ASSERT_ERROR(parse(&s, "--learning_rte 3"), FSDP_ERR_INVALID, "'--learning-rate'?");
    ASSERT_ERROR(parse(&s, "--no-shufle"), FSDP_ERR_INVALID, "'--no-shuffle'?");
    ASSERT_ERROR(parse(&s, "--max"), FSDP_ERR_INVALID, "'--max-steps'?");
    ASSERT_ERROR(parse(&s, "--Batch-Size 3"), FSDP_ERR_INVALID, "'--batch-size'?");
    ASSERT_ERROR(parse(&s, "--steps 3"), FSDP_ERR_INVALID, "'--max-steps'?");
    ASSERT_ERROR(parse(&s, "-x"), FSDP_ERR_INVALID, "unknown option '-x'");
    ASSERT_ERROR(parse(&s, "--xyzzy"), FSDP_ERR_INVALID, "unknown option '--xyzzy'");
    ASSERT(!strstr(fsdp_last_error(), "did you mean"));
}

/* A wrong suggestion is worse than none. */
TEST(only_typing_errors_get_a_suggestion)
{
    static const char *const aliases[] = {"sep",
                                          "seed",
                                          "num-labels",
                                          "norm-type",
                                          "growth-interval",
                                          "eval-steps,evaluation-steps",
                                          "save-steps",
                                          "data-seed",
                                          "explicit-prefetching",
                                          "lr-scheduler,lr-scheduler-type"};
    static const struct {
        const char *typed, *suggested; /* NULL: nothing */
    } rows[] = {{"--sed", "'--seed'?"},
                {"--num-labls", "'--num-labels'?"},
                {"--num_layers", NULL}, /* two letters of one word: another word */
                {"--loss-type", NULL},
                {"--log-interval", NULL},
                {"--total_steps", NULL},
                {"--steps", NULL}, /* two options have it */
                {"--sav_steps", "'--save-steps'?"},
                {"--evaluation_setps", "'--evaluation-steps'?"},
                {"--explicit-prefetch", "'--explicit-prefetching'?"},
                {"--scheduler", "'--lr-scheduler'?"},
                {"--dataseed", "'--data-seed'? It is not supported: use --seed"},
                {"--normtype", "'--norm-type'?"}};
    fsdp_option rows_of[FSDP_LENGTH(aliases)];
    for (size_t i = 0; i < FSDP_LENGTH(aliases); i++)
        rows_of[i] = (fsdp_option){.name = i == 9   ? "lr-schedule"
                                           : i == 5 ? "eval"
                                                    : aliases[i],
                                   .aliases = i == 9 || i == 5 ? aliases[i] : NULL,
                                   .type = FSDP_OPTION_STRING,
                                   .offset = FSDP_OPTION_NOWHERE,
                                   .value = "none",
                                   .instead = i == 7 ? "use --seed" : NULL};
    const fsdp_options_spec own = {.table = rows_of, .count = FSDP_LENGTH(aliases)};
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        fsdp_options *options;
        char program[] = "p", typed[64];
        char *argv[] = {program, typed, NULL};
        snprintf(typed, sizeof typed, "%s", rows[i].typed);
        ASSERT_ERROR(fsdp_options_parse(&own, 2, argv, NULL, &options), FSDP_ERR_INVALID,
                     rows[i].suggested ? rows[i].suggested : rows[i].typed);
        if (!rows[i].suggested && strstr(fsdp_last_error(), "did you mean"))
            fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    }
}

TEST(a_missing_value_is_an_error)
{
    sample s;
    ASSERT_ERROR(parse(&s, "--lr"), FSDP_ERR_INVALID, "--lr needs a value: a number");
    ASSERT_ERROR(parse(&s, "--model --lr 1"), FSDP_ERR_INVALID, "--model needs a value");
    ASSERT_ERROR(parse(&s, "--config"), FSDP_ERR_INVALID, "--config needs a value");
    ASSERT_OK(parse(&s, "--model=--lr"));
    ASSERT_STR(s.model, "--lr");
}

TEST(positional_words_are_collected)
{
    sample s;
    int count;
    ASSERT_OK(parse(&s, "a --lr 1 -5 -- --lr"));
    char **words = fsdp_options_positional(kept, &count);
    ASSERT_INT(count, 3);
    ASSERT_STR(words[1], "-5");
    ASSERT_STR(words[2], "--lr");
    ASSERT(!words[3]);
    ASSERT_F32(s.lr, 1);
    ASSERT_ERROR(parse(&s, "a b c d"), FSDP_ERR_INVALID, "unexpected argument 'd'");
    fsdp_options_spec other = spec;
    other.positional = NULL;
    ASSERT_ERROR(parse_with(&other, &s, "a"), FSDP_ERR_INVALID, "unexpected argument 'a'");
    other.positional = "COMMAND";
    other.max_positional = 0;
    other.stop_at_positional = true;
    ASSERT_OK(parse_with(&other, &s, "--lr 2 run --lr 1 --unknown -- x"));
    words = fsdp_options_positional(kept, &count);
    ASSERT_INT(count, 6);
    ASSERT_STR(words[3], "--unknown");
    ASSERT_STR(words[4], "--");
    ASSERT_F32(s.lr, 2);
    other.min_positional = 1;
    ASSERT_ERROR(parse_with(&other, &s, ""), FSDP_ERR_INVALID, "missing: COMMAND");
}

TEST(required_options_and_checks_are_enforced)
{
    fsdp_option own[FSDP_LENGTH(table)];
    memcpy(own, table, sizeof own);
    own[0].required = true;
    fsdp_options_spec other = spec;
    other.table = own;
    sample s;
    ASSERT_ERROR(parse_with(&other, &s, ""), FSDP_ERR_INVALID, "--model is missing: a folder");
    ASSERT_OK(parse_with(&other, &s, "--model m"));
    ASSERT_OK(parse_with(&other, &s, "--print-config"));
    ASSERT_INT(fsdp_options_requested_action(kept), FSDP_OPTIONS_PRINT_CONFIG);
    ASSERT_ERROR(fsdp_options_check(kept, &s), FSDP_ERR_INVALID, "--model is missing");
    ASSERT_OK(parse_with(&other, &s, "--help --unknown"));
    ASSERT_INT(fsdp_options_requested_action(kept), FSDP_OPTIONS_HELP);
}

/* A check that names two options as the table does. */
static fsdp_status refuse_sizes(void *target, const fsdp_options *options)
{
    const sample *s = target;
    (void)options;
    return fsdp_error(FSDP_ERR_INVALID, "--batch-size %d contradicts --max-steps, not --lr-x",
                      s->batch_size);
}

TEST(errors_of_checks_say_how_the_options_were_given)
{
    fsdp_options_spec refusing = spec;
    sample s;
    char line[300];
    refusing.check = refuse_sizes;
    static const char *const plain[] = {"", "--batch_size 5 --lr 1",
                                        "--batch-size=5 --max-steps 3"};
    for (size_t i = 0; i < FSDP_LENGTH(plain); i++) {
        ASSERT_ERROR(parse_with(&refusing, &s, plain[i]), FSDP_ERR_INVALID, "not --lr-x");
        ASSERT(fsdp_ends_with(fsdp_last_error(), "--lr-x"));
    }
    ASSERT_ERROR(parse_with(&refusing, &s, "-b 5 --learning-rate 1"), FSDP_ERR_INVALID,
                 "not --lr-x (-b gives --batch-size)");
    setenv("FSDPTEST_MAX_STEPS", "3", 1);
    ASSERT_ERROR(parse_with(&refusing, &s, "--test_batch_size 5"), FSDP_ERR_INVALID,
                 "(--test_batch_size gives --batch-size, FSDPTEST_MAX_STEPS gives --max-steps)");
    unsetenv("FSDPTEST_MAX_STEPS");
    NEEDS_LIBYAML();
    snprintf(line, sizeof line, "--config %s", yaml_file(t, "lr: 1\ntest_batch_size: 5\n"));
    ASSERT_ERROR(parse_with(&refusing, &s, line), FSDP_ERR_INVALID,
                 "not --lr-x (test_batch_size in ");
    ASSERT(fsdp_ends_with(fsdp_last_error(), "run.yaml:2 gives --batch-size)"));
}

TEST(flags_win_over_files_over_environment_over_defaults)
{
    NEEDS_LIBYAML();
    sample s;
    setenv("FSDPTEST_BATCH_SIZE", "5", 1);
    setenv("FSDPTEST_LR", "0.5", 1);
    setenv("FSDPTEST_SHUFFLE", "false", 1);
    setenv("FSDPTEST_MODEL", "", 1); /* an empty variable counts as unset */
    ASSERT_OK(parse_yaml(t, &s, "batch_size: 6\nlr: 0.6\n", "--lr 0.7"));
    ASSERT_F32(s.lr, 0.7);
    ASSERT_INT(s.batch_size, 6);
    ASSERT(!s.shuffle && !s.model);
    ASSERT_INT(s.max_steps, -1);
    ASSERT_INT(fsdp_options_origin(kept, "lr"), FSDP_ORIGIN_FLAG);
    ASSERT_INT(fsdp_options_origin(kept, "test-batch-size"), FSDP_ORIGIN_FILE);
    ASSERT_INT(fsdp_options_origin(kept, "shuffle"), FSDP_ORIGIN_ENV);
    ASSERT_INT(fsdp_options_origin(kept, "max-steps"), FSDP_ORIGIN_DEFAULT);
    setenv("FSDPTEST_LR", "fast", 1);
    ASSERT_ERROR(parse(&s, ""), FSDP_ERR_INVALID, "FSDPTEST_LR: 'fast' is not allowed");
    unsetenv("FSDPTEST_BATCH_SIZE");
    unsetenv("FSDPTEST_LR");
    unsetenv("FSDPTEST_SHUFFLE");
    unsetenv("FSDPTEST_MODEL");
}

/* Options from the environment are not listed. */
TEST(options_without_effect_are_listed_by_reason)
{
    fsdp_option own[FSDP_LENGTH(table)];
    memcpy(own, table, sizeof own);
    for (size_t i = 0; i < FSDP_LENGTH(own); i++)
        if (strcmp(own[i].name, "shuffle") == 0 || strcmp(own[i].name, "overwrite") == 0)
            own[i].no_effect = "there is no order";
    fsdp_options_spec other = spec;
    other.table = own;
    sample s;
    setenv("FSDPTEST_OVERWRITE", "true", 1);
    ASSERT_OK(parse_with(&other, &s, "--no-cuda --no_shuffle --lr 1"));
    char *notes = fsdp_options_notes(kept);
    ASSERT_STR(notes, "--shuffle: there is no order\n--no-cuda: there is no GPU\n");
    fsdp_free(notes);
    unsetenv("FSDPTEST_OVERWRITE");
    ASSERT_OK(parse_with(&other, &s, "--shuffle --overwrite"));
    notes = fsdp_options_notes(kept);
    ASSERT_STR(notes, "--shuffle, --overwrite: there is no order\n");
    fsdp_free(notes);
    ASSERT_OK(parse(&s, ""));
    notes = fsdp_options_notes(kept);
    ASSERT_STR(notes, "");
    fsdp_free(notes);
}

#ifdef FSDP_HAVE_YAML
TEST(yaml_maps_are_headings)
{
    sample s;
    ASSERT_OK(parse_yaml(t, &s,
                         "# a comment\n"
                         "model: \"t5 small\"\n"
                         "train:\n  batch-size: 7\n  rates: {lr: 1e-3, beta1: 0.5}\n"
                         "no-shuffle: yes\n"
                         "overwrite: True\n"
                         "max-steps: null\n"
                         "memory-limit: 2 GiB\n"
                         "data: [a.csv, \"b,c.csv\"]\n",
                         ""));
    ASSERT_STR(s.model, "t5 small");
    ASSERT_INT(s.batch_size, 7);
    ASSERT_F32(s.lr, 1e-3);
    ASSERT_F32(s.beta, 0.5);
    ASSERT(!s.shuffle && s.overwrite);
    ASSERT_INT(s.max_steps, -1);
    ASSERT_INT(s.memory, 2LL << 30);
    ASSERT_INT(s.files.count, 2);
    ASSERT_STR(s.files.items[1], "b,c.csv");
    ASSERT_OK(parse_yaml(t, &s, "", ""));
    ASSERT_OK(parse_yaml(t, &s, "model: 'null'\n", ""));
    ASSERT_STR(s.model, "null");
}

/* The values are those of PyYAML's safe_load(). */
TEST(integers_of_yaml_are_those_of_pyyaml)
{
    static const struct {
        const char *text;
        bool is_integer;
        int64_t value;
    } rows[] = {{"1_000", true, 1000},
                {"-0x1F", true, -31},
                {"0x_2", true, 2},
                {"010", true, 8},
                {"00", true, 0},
                {"0_", true, 0},
                {"0b1_0", true, 2},
                {"+5", true, 5},
                {"0", true, 0},
                {"9223372036854775807", true, INT64_MAX},
                {"9223372036854775808", false, 0},
                {"-9223372036854775808", true, INT64_MIN},
                {"-0x8000000000000000", true, INT64_MIN},
                {"-9223372036854775809", false, 0},
                {"0xffffffffffffffffff", false, 0},
                {"", false, 0},
                {"-", false, 0},
                {"_1", false, 0},
                {"08", false, 0},
                {"0b2", false, 0},
                {"0o7", false, 0},
                {"0x", false, 0},
                {"1e3", false, 0},
                {"1.0", false, 0},
                {"a", false, 0}};
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        int64_t value = -1;
        ASSERT(fsdp_yaml_integer(rows[i].text, &value) == rows[i].is_integer);
        ASSERT_INT(value, rows[i].is_integer ? rows[i].value : -1);
    }
    NEEDS_LIBYAML();
    sample s;
    ASSERT_OK(
        parse_yaml(t, &s, "batch-size: 0x10\nmax_steps: 1_000\nlr: 0b11\nmodel: 2026_01\n", ""));
    ASSERT_INT(s.batch_size, 16);
    ASSERT_INT(s.max_steps, 1000);
    ASSERT_F32(s.lr, 3);
    ASSERT_STR(s.model, "2026_01");
    ASSERT_ERROR(parse_yaml(t, &s, "batch-size: '0x10'\n", ""), FSDP_ERR_INVALID, "'0x10'");
}

TEST(yaml_errors_name_file_and_line)
{
    static const struct {
        const char *text, *message;
        fsdp_status status;
    } cases[] = {
        {"lr: 1\nbatch-size: many\n", "run.yaml:2: batch-size: 'many'", FSDP_ERR_INVALID},
        {"lr: 1\nbatchsize: 2\n",
         "run.yaml:2: unknown option 'batchsize'; did you mean 'batch-size'", FSDP_ERR_INVALID},
        {"lr: 1\na:\n  learning_rate: 2\n", "run.yaml:3: learning_rate was already given on line 1",
         FSDP_ERR_INVALID},
        {"lr: [1, 2]\n", "run.yaml:1: lr: takes one value", FSDP_ERR_INVALID},
        {"model: [a]\n", "run.yaml:1: model: takes one value", FSDP_ERR_INVALID},
        {"overwrite: [false]\n", "run.yaml:1: overwrite: takes one value", FSDP_ERR_INVALID},
        {"data: [[1]]\n", "run.yaml:1: data: items", FSDP_ERR_INVALID},
        {"lr: 1\n  x: : 3\n", "run.yaml:2", FSDP_ERR_FORMAT},
        {"lr: 1\na:\n\tbatch-size: 2\n", "run.yaml:3: a tab is no indentation in YAML",
         FSDP_ERR_FORMAT},
        {"lr: 1\na: `x`\n", "run.yaml:2: found character that cannot start any token",
         FSDP_ERR_FORMAT},
        {"- lr\n", "run.yaml:1: expected 'option: value'", FSDP_ERR_FORMAT},
        {"lr\n", "run.yaml:1: expected 'option: value'", FSDP_ERR_FORMAT},
        {"lr: 1\n---\nlr: 2\n", "run.yaml:3: a second document", FSDP_ERR_FORMAT},
        {"lr: 1\n<<: {beta1: 0.5}\n", "run.yaml:2: <<: keys of another map are not merged",
         FSDP_ERR_UNSUPPORTED},
        {"model: \"a\\0b\"\n", "run.yaml:1: the value holds a NUL", FSDP_ERR_FORMAT},
        {"a: &x\n  b: *x\n", "nested more than", FSDP_ERR_FORMAT},
        {"a: &a {x: {}, y: {}, z: {}, w: {}}\nb: &b {x: *a, y: *a, z: *a, w: *a}\n"
         "c: &c {x: *b, y: *b, z: *b, w: *b}\nd: &d {x: *c, y: *c, z: *c, w: *c}\n"
         "e: &e {x: *d, y: *d, z: *d, w: *d}\nf: &f {x: *e, y: *e, z: *e, w: *e}\n"
         "g: &g {x: *f, y: *f, z: *f, w: *f}\n",
         "more than 10000 keys", FSDP_ERR_FORMAT},
        {"? [a]\n: 1\n", "run.yaml:1: a key is not a name", FSDP_ERR_FORMAT},
        {"model: \xff\xfe\n", "run.yaml", FSDP_ERR_FORMAT},
    };
    sample s;
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++)
        ASSERT_ERROR(parse_yaml(t, &s, cases[i].text, ""), cases[i].status, cases[i].message);
    ASSERT_ERROR(parse(&s, "--config /nonexistent/a.yaml"), FSDP_ERR_NOT_FOUND,
                 "/nonexistent/a.yaml");
    ASSERT_ERROR(parse(&s, "--config /"), FSDP_ERR_INVALID, "--config /: a directory");
    ASSERT_ERROR(
        parse_yaml(t, &s, "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ""),
        FSDP_ERR_FORMAT, "not YAML, but a Git LFS pointer");
    ASSERT_ERROR(parse_yaml(t, &s, "\x1f\x8b\x08", ""), FSDP_ERR_FORMAT, "gzip-compressed data");
}

/* The output of --print-config is a file from which --config reads the same values. */
TEST(printed_configuration_reads_back)
{
    sample first, second;
    ASSERT_OK(parse(&first,
                    "--model a\"b\\c+\xc3\xa9 --data x,y+z --lr 0.1 --beta1 0.30000000000000004 "
                    "--lr-schedule cosine_with_min_lr --memory-limit 1500 --no_shuffle "
                    "--param-dtype fp16 --no-cuda"));
    char *printed = fsdp_options_print(kept, &first);
    ASSERT(printed);
    ASSERT(strstr(printed, "lr: 0.1  ") && strstr(printed, "# flag --lr\n"));
    ASSERT(strstr(printed, "lr-schedule: cosine  "));
    ASSERT(strstr(printed, "\n# batch-size: 4  ") && strstr(printed, "# default\n"));
    ASSERT(strstr(printed, "#   no-cuda (flag --no-cuda): there is no GPU"));
    fsdp_status status = parse_yaml(t, &second, printed, "");
    fsdp_free(printed);
    ASSERT_OK(status);
    ASSERT_STR(second.model, "a\"b\\c \xc3\xa9");
    ASSERT_STR(second.files.items[1], "y z");
    ASSERT_F32(second.lr, 0.1);
    ASSERT_F32(second.beta, 0.30000000000000004);
    ASSERT_INT(second.schedule, SCHEDULE_COSINE);
    ASSERT_INT(second.memory, 1500);
    ASSERT_INT(second.dtype, FSDP_DTYPE_F16);
    ASSERT(!second.shuffle);
    ASSERT(fsdp_options_given(kept, "lr") && !fsdp_options_given(kept, "batch-size"));
    printed = fsdp_options_print(kept, &second);
    ASSERT(printed && strstr(printed, "run.yaml:"));
    fsdp_free(printed);
}
#endif

/* The words of a choice follow a short help text after a colon. A text that has a colon itself is
 * followed by "it takes". */
TEST(help_says_where_the_words_of_a_choice_begin)
{
    static const char *const words[] = {"full", "op", NULL};
    static const fsdp_option rows[] = {
        {.name = "kind",
         .type = FSDP_OPTION_CHOICE,
         .offset = 0,
         .value = "full",
         .choices = words,
         .help = "what is kept"},
        {.name = "other",
         .type = FSDP_OPTION_CHOICE,
         .offset = sizeof(int),
         .value = "full",
         .choices = words,
         .help = "op: every second layer"},
    };
    static const fsdp_options_spec two = {
        .program = "p", .usage = "", .summary = "", .table = rows, .count = FSDP_LENGTH(rows)};
    char *help = fsdp_options_help(&two, 200);
    ASSERT(help);
    ASSERT(strstr(help, "what is kept: full or op (default: full)"));
    ASSERT(strstr(help, "op: every second layer; it takes full or op (default: full)"));
    fsdp_free(help);
}

TEST(help_shows_every_option_and_stays_in_its_columns)
{
    char *help = fsdp_options_help(&spec, 80);
    ASSERT(help);
    for (size_t i = 0; i < FSDP_LENGTH(table); i++)
        ASSERT(strstr(help, table[i].name));
    ASSERT(strstr(help, "  -b, --batch-size N "));
    ASSERT(strstr(help, "--[no-]shuffle"));
    ASSERT(strstr(help, "(default: 0.002) [also --learning-rate]"));
    ASSERT(strstr(help, "schedule: step, linear or cosine"));
    ASSERT(strstr(help, "\ntraining:\n"));
    bool fits = true;
    for (const char *line = help; *line; line += strcspn(line, "\n") + 1)
        fits &= strcspn(line, "\n") <= 80;
    fsdp_free(help);
    ASSERT(fits);
}

static const char *const page[] = {"rows and model: model batch-size", "more: lr-schedule", NULL};

/* Parse a command line that asks for help, and return the text. */
static char *help_of(const char *line)
{
    fsdp_options_spec paged = spec;
    sample s;
    char *text = NULL;
    paged.first_page = page;
    if (parse_with(&paged, &s, line) == FSDP_OK)
        if (fsdp_options_requested_help(kept, 80, &text) != FSDP_OK)
            text = NULL;
    fsdp_options_destroy(kept);
    kept = NULL;
    return text;
}

/* `shown` and `not_shown` are words of the text, separated by "|". */
TEST(help_shows_a_first_page_or_what_the_word_after_it_selects)
{
    static const struct {
        const char *line, *shown, *not_shown;
    } rows[] = {
        {"--help",
         "\nrows and model:\n|--model TEXT|-b, --batch-size N|rows of a "
         "batch|\nmore:\n|--lr-schedule|"
         "step, linear or cosine|--help WORD|all 16 options|The headings are: model;|For "
         "tests.|FSDPTEST_",
         "--lr X|learning-rate|test-batch-size|no-cuda"},
        {"-h", "\nrows and model:\n", "--lr X"},
        {"--help all", "--lr X|[also --learning-rate]|\ntraining:\n|--no-cuda|--print-config",
         "rows and model"},
        {"--help=all", "--lr X", "rows and model"},
        {"--batch-size 3 --help training", "training:\n|--lr X|--[no-]shuffle|--stop",
         "--batch-size N|print-config|model"},
        {"--help rate", "training:\n|--lr X|[also --learning-rate]", "--lr-schedule|--model|usage"},
        {"--help learning_ra", "--lr X", "--model"},
        {"--help moMent", "--beta1 X", "--lr X"},
        {"--help gpu", "accepted, without effect here:\n|--no-cuda|there is no GPU", "--lr X"},
        {"--help --lr", "  --lr X|[also --learning-rate]", "--lr-schedule|training"},
        {"--help --no-shuffle", "--[no-]shuffle", "--lr"},
        {"--help -b", "--batch-size N", "--lr"},
        {"--help --print-config", "--print-config", "--lr"},
        {"--help --no-cuda", "there is no GPU", "--lr"},
        /* --help in the middle of a command line asks for the first page. */
        {"--help --lr 3", "\nrows and model:\n", "--lr X"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        char *text = help_of(rows[i].line), words[512], *rest = words;
        if (!text) {
            fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s", rows[i].line, fsdp_last_error());
            continue;
        }
        snprintf(words, sizeof words, "%s", rows[i].shown);
        for (char *word; (word = strsep(&rest, "|"));)
            if (!strstr(text, word) && !(text[0] != '\n' && word[0] == '\n' &&
                                         strncmp(text, word + 1, strlen(word) - 1) == 0))
                fsdp_test_fail(t, __FILE__, __LINE__, "%s: no '%s' in %s", rows[i].line, word,
                               text);
        snprintf(words, sizeof words, "%s", rows[i].not_shown);
        rest = words;
        for (char *word; (word = strsep(&rest, "|"));)
            if (strstr(text, word))
                fsdp_test_fail(t, __FILE__, __LINE__, "%s: '%s' in %s", rows[i].line, word, text);
        fsdp_free(text);
    }
}

TEST(help_about_a_word_that_selects_nothing_is_an_error)
{
    ASSERT(!help_of("--help schedulle"));
    ASSERT(strstr(fsdp_last_error(), "--help 'schedulle': no option has this word"));
    ASSERT(strstr(fsdp_last_error(), "did you mean '--scheduler'?"));
    ASSERT(strstr(fsdp_last_error(), "'fsdp sample --help all' shows all options"));
    ASSERT(!help_of("--help --shufle"));
    ASSERT(strstr(fsdp_last_error(), "unknown option '--shufle'; did you mean '--shuffle'?"));
}

/* They are parsed and checked like any other option, and shown below their own heading. */
TEST(options_without_effect_may_have_a_table_of_their_own)
{
    static const fsdp_option real[] = {{.name = "lr",
                                        .type = FSDP_OPTION_DOUBLE,
                                        PLACE(lr),
                                        .value = "0.5",
                                        .group = "training",
                                        .help = "the rate"}};
    static const fsdp_option compat[] = {
        {.name = "gpus",
         .aliases = "num-gpus",
         .type = FSDP_OPTION_INT,
         .offset = FSDP_OPTION_NOWHERE,
         .bounds = FSDP_AT_LEAST(1),
         .no_effect = "ranks compute on the CPU"},
        {.name = "tracker",
         .type = FSDP_OPTION_STRING,
         .offset = FSDP_OPTION_NOWHERE,
         .no_effect = "nothing is tracked"},
    };
    const fsdp_options_spec two = {.program = "two",
                                   .table = real,
                                   .count = FSDP_LENGTH(real),
                                   .compat = compat,
                                   .n_compat = FSDP_LENGTH(compat)};
    char *words[] = {"two", "--num_gpus", "4", "--lr", "2"}, *wrong[] = {"two", "--gpus", "0"},
         *unknown[] = {"two", "--trackers", "x"};
    sample s;
    fsdp_options *options = NULL;
    ASSERT_OK(fsdp_options_parse(&two, FSDP_LENGTH(words), words, &s, &options));
    const bool given =
        fsdp_options_given(options, "gpus") && !fsdp_options_given(options, "tracker");
    char *printed = fsdp_options_print(options, &s), *notes = fsdp_options_notes(options);
    const bool says = printed && notes && strstr(printed, "#   gpus \"4\" (flag --num_gpus)") &&
                      !strstr(printed, "tracker") &&
                      strcmp(notes, "--gpus: ranks compute on the CPU\n") == 0;
    fsdp_free(printed);
    fsdp_free(notes);
    fsdp_options_destroy(options);
    ASSERT(given && says && s.lr == 2.0);
    ASSERT_ERROR(fsdp_options_parse(&two, FSDP_LENGTH(wrong), wrong, &s, &options),
                 FSDP_ERR_INVALID, "--gpus: '0' is not allowed");
    ASSERT_ERROR(fsdp_options_parse(&two, FSDP_LENGTH(unknown), unknown, &s, &options),
                 FSDP_ERR_INVALID, "did you mean '--tracker'?");
    char *help = fsdp_options_help(&two, 80);
    const char *heading = help ? strstr(help, "\naccepted, without effect here:\n") : NULL;
    const bool is_below = heading && strstr(heading, "--gpus") && strstr(heading, "--tracker") &&
                          !strstr(heading, "--lr") && strstr(help, "--lr") < heading;
    fsdp_free(help);
    ASSERT(is_below);
    for (long n = 1;; n++) {
        fsdp_alloc_fail_at(n);
        const fsdp_status status =
            fsdp_options_parse(&two, FSDP_LENGTH(words), words, &s, &options);
        fsdp_alloc_fail_at(0);
        if (status == FSDP_OK)
            break;
        ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
    fsdp_options_destroy(options);
}

TEST(distance_counts_edits)
{
    ASSERT_INT(fsdp_edit_distance("lr", "lr"), 0);
    ASSERT_INT(fsdp_edit_distance("batch_size", "batch-size"), 0);
    ASSERT_INT(fsdp_edit_distance("", "abc"), 6);
    ASSERT_INT(fsdp_edit_distance("abcd", "acbd"), 2);
    ASSERT_INT(fsdp_edit_distance("kitten", "sitting"), 6);
    ASSERT_INT(fsdp_edit_distance("LR", "lr"), 2);
}

/* Every allocation fails once. The result is always an error, and nothing leaks (the leak checker
 * reports it). */
TEST(running_out_of_memory_is_an_error)
{
    sample s;
    ASSERT_OK(parse(&s, "--model m --data a,b x"));
    long n = 1;
    for (;; n++) {
        fsdp_alloc_fail_at(n);
        fsdp_status status = parse(&s, "--model m --data a,b x");
        if (status == FSDP_OK)
            break;
        ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
    fsdp_alloc_fail_at(0);
    ASSERT(n > 5);
    fsdp_options_destroy(kept);
    kept = NULL;
}

/* A list whose flags repeat: each value is an item as it is. A flag replaces the items of a file.
 */
TEST(flags_that_repeat_form_a_list)
{
    sample s;
    ASSERT_OK(parse(&s, "--stop a,b --stop + --stop=c"));
    ASSERT_INT(s.stops.count, 3);
    ASSERT_STR(s.stops.items[0], "a,b");
    ASSERT_STR(s.stops.items[1], " ");
    ASSERT_STR(s.stops.items[2], "c");
    ASSERT_OK(parse_yaml(t, &s, "stop: [x, 'y,z']\n", ""));
    ASSERT_INT(s.stops.count, 2);
    ASSERT_STR(s.stops.items[1], "y,z");
    ASSERT_OK(parse_yaml(t, &s, "stop: [x, y]\n", "--stop w"));
    ASSERT_INT(s.stops.count, 1);
    ASSERT_STR(s.stops.items[0], "w");
}
