/* Rows of JSON that have a text: what is found without a document is what the parser finds. */
#include "src/data/json/json_text.h"

#include <string.h>

#include "src/base/json.h"
#include "tests/test.h"

static unsigned next(unsigned *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 16;
}

/* Append one of the pieces of which random texts are made: some are malformed, alone or after
 * another one. */
static void append_piece(fsdp_str *row, unsigned kind)
{
    static const struct {
        const char *text;
        size_t length;
    } pieces[] = {{"a", 1},
                  {" ", 1},
                  {"\\n", 2},
                  {"\\\"", 2},
                  {"\\/", 2},
                  {"\\\\", 2},
                  {"\\u00e9", 6},
                  {"\\u20AC", 6},
                  {"\\u0041", 6},
                  {"\\u0000", 6},
                  {"\xc3\xa9", 2},
                  {"\xe2\x82\xac", 3},
                  {"\xf0\x9f\x98\x80", 4},
                  {"\x7f", 1},
                  {"/", 1},
                  {"\\ud83d\\ude00", 12},
                  /* malformed, some of them always */
                  {"\\ud83d", 6},
                  {"\\ude00", 6},
                  {"\\x", 2},
                  {"\xc3", 1},
                  {"\xff", 1},
                  {"\xed\xa0\x80", 3},
                  {"\n", 1},
                  {"\t", 1},
                  {"\\u00g0", 6},
                  {"\"", 1},
                  {"\0", 1},
                  {"\\u12", 4}};
    const unsigned n = sizeof pieces / sizeof *pieces, right = 16;
    kind = kind % 64 ? kind % right : right + kind / 64 % (n - right);
    fsdp_str_append(row, pieces[kind].text, pieces[kind].length);
}

static void append_string(fsdp_str *row, unsigned *x)
{
    fsdp_str_printf(row, "\"");
    for (unsigned n = next(x) % 6; n; n--)
        append_piece(row, next(x));
    fsdp_str_printf(row, "\"");
}

/* Append a value that is not a text, right in most cases. */
static void append_value(fsdp_str *row, unsigned *x)
{
    static const char *const values[] = {
        "0", "-1", "17", "-0", "2.5", "-0.0e+7", "1E-5", "12345678901234567890123", "null", "true",
        "false", "[]", "{}", "[1, [2, {\"a\": [] , \"a\":\"b\"}], \"\\u00e9\"]",
        "{\"a\": {\"b\": [1, 2]}, \"text\": \"no\"}", " [ { } ] ",
        /* unusual, or malformed */
        "NaN", "-Infinity", "1e400", "1e-400", "1e5555", "01", "-", "+1", "1.", ".5", "1e", "nul",
        "nullx", "True", "[1,]", "{\"a\":1,}", "{\"a\"}", "{1: 2}", "[1", "[}", "{\"a\\u0000\": 1}",
        "{\"a\\u0062\": 1}", "\"", ""};
    const unsigned n = sizeof values / sizeof *values, right = 16, kind = next(x);
    fsdp_str_printf(row, "%s",
                    values[kind % 16 ? kind / 16 % right : right + kind / 16 % (n - right)]);
}

static void append_entry(fsdp_str *row, unsigned *x)
{
    static const char *const keys[] = {"\"id\"",     "\"url\"",  "\"\"",         "\"\xc3\xa9\"",
                                       "\"text\"",   "\"a\"",    "\"texts\"",    "\"tex\\u0074\"",
                                       "\"a\\\"b\"", "\"\xff\"", "\"a\\u0000\"", "\"a\t\"",
                                       "a"};
    const unsigned kind = next(x), n = sizeof keys / sizeof *keys;
    fsdp_str_printf(row, "%s%s", keys[kind % 16 < 8 ? kind % 4 : kind / 16 % n],
                    kind % 3 ? ": " : " :");
    if (next(x) % 2)
        append_string(row, x);
    else
        append_value(row, x);
}

/* Make a row, most of which are right, with entries before and after the text. */
static void make_row(fsdp_str *row, unsigned *x)
{
    static const char *const begins[] = {"{", " {\t", "[", ""};
    static const char *const ends[] = {"}", " } \r\n", "", "}}", "} x", ",}", "]"};
    const unsigned begin = next(x) % 64, end = next(x) % 64;
    row->len = 0;
    fsdp_str_printf(row, "%s", begins[begin < 4 ? begin : 0]);
    for (unsigned n = next(x) % 3; n; n--) {
        append_entry(row, x);
        fsdp_str_printf(row, ", ");
    }
    fsdp_str_printf(row, "\"text\":");
    append_string(row, x);
    for (unsigned n = next(x) % 3; n; n--) {
        fsdp_str_printf(row, " ,");
        append_entry(row, x);
    }
    fsdp_str_printf(row, "%s", ends[end < 7 ? end : 0]);
}

/* Check that the parser has the keys of a row in their order, and the text. */
static void check_found(fsdp_test *t, const fsdp_json_text *found, fsdp_json *doc)
{
    const fsdp_json_node root = fsdp_json_root(doc);
    size_t i = 0, length;
    const char *expected;
    ASSERT_OK(fsdp_json_get_strn(root, "text", &expected, &length));
    ASSERT(length == found->text.len && memcmp(found->text.data, expected, length + 1) == 0);
    ASSERT_INT(fsdp_json_len(root), found->n_others + 1);
    for (fsdp_json_node v = fsdp_json_first(root); v.value; v = fsdp_json_next(v)) {
        if (strcmp(v.key, "text") == 0)
            continue;
        ASSERT_INT(strlen(v.key), found->others[i].bytes);
        ASSERT(memcmp(v.key, found->others[i].name, found->others[i].bytes) == 0);
        ASSERT((fsdp_json_kind_of(v) == FSDP_JSON_NULL) == found->others[i].is_null);
        i++;
    }
}

/* The parser accepts what was found, and more. Few of the rows that it accepts are left to it. */
TEST(a_text_is_that_of_the_parser)
{
    unsigned x = 1;
    int n_found = 0, n_parsed = 0, n_with_others = 0;
    fsdp_str row = {0};
    fsdp_json_text found = {0};
    for (int i = 0; i < 60000; i++) {
        fsdp_json *doc = NULL;
        make_row(&row, &x);
        const bool is = fsdp_json_find_text(row.data, row.len, "text", &found);
        const bool accepted = fsdp_json_parse("row", 1, row.data, row.len, &doc) == FSDP_OK;
        n_parsed += accepted;
        n_found += is;
        n_with_others += is && found.n_others;
        ASSERT(accepted || !is);
        if (is)
            check_found(t, &found, doc);
        CHECK_HERE();
        if (accepted)
            fsdp_json_destroy(doc);
    }
    ASSERT(n_parsed > n_found && n_with_others > 10000 && n_found > n_parsed / 2);
    fsdp_str_fini(&row);
    fsdp_json_text_fini(&found);
}

/* Rows that have nothing unusual are found, so that the parser is not needed for them. */
TEST(usual_rows_are_found)
{
    static const struct {
        const char *row, *text;
        size_t length;
    } rows[] = {
        {"{\"text\": \"a \\\"b\\\"\\n\\t\\u00e9\"}", "a \"b\"\n\t\u00e9", 9},
        {"{\"text\":\"\"}", "", 0},
        {"{\"text\":\"\\u0000a\\u0000\"}", "\0a\0", 3},
        {"{\"id\": 7, \"url\": \"\\u00e9\", \"meta\": {\"a\": [1.5e3, null]}, \"text\": \"b\", "
         "\"n\": null}",
         "b", 1},
        {" {\"text\" : \"\\ud83d\\ude00 \u20ac\"} \r\n", "\U0001F600 \u20ac", 8}};
    static const char *const others[] = {"{\"text\": 5}",
                                         "{\"text\": [\"a\"]}",
                                         "{\"body\": \"a\"}",
                                         "{\"text\": \"a\", \"text\": \"b\"}",
                                         "{\"id\": 1, \"text\": \"a\", \"id\": 2}",
                                         "{\"text\": \"\\ud83d\"}",
                                         "{\"text\": \"a\", \"b\": \"\\ud83d\"}",
                                         "{}",
                                         "\"text\"",
                                         ""};
    fsdp_json_text found = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ASSERT(fsdp_json_find_text(rows[i].row, strlen(rows[i].row), "text", &found));
        ASSERT_INT(found.text.len, rows[i].length);
        ASSERT(memcmp(found.text.data, rows[i].text, rows[i].length + 1) == 0);
        for (size_t n = 0; n < strlen(rows[i].row) - 3; n++)
            ASSERT(!fsdp_json_find_text(rows[i].row, n, "text", &found));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ASSERT(!fsdp_json_find_text(others[i], strlen(others[i]), "text", &found));
    fsdp_json_text_fini(&found);
}

/* An array that is nested too deeply, and more keys than are remembered, are left to the parser. */
TEST(deep_and_wide_rows_are_left_to_the_parser)
{
    for (int n = 1; n <= 64; n++) {
        fsdp_str deep = {0}, wide = {0};
        fsdp_json_text found = {0};
        fsdp_str_printf(&deep, "{\"a\": ");
        fsdp_str_printf(&wide, "{");
        for (int i = 0; i < n; i++) {
            fsdp_str_printf(&deep, "[");
            fsdp_str_printf(&wide, "\"%d\": %d, ", i, i);
        }
        for (int i = 0; i < n; i++)
            fsdp_str_printf(&deep, "]");
        fsdp_str_printf(&deep, ", \"text\": \"b\"}");
        fsdp_str_printf(&wide, "\"text\": \"b\"}");
        ASSERT(fsdp_json_find_text(deep.data, deep.len, "text", &found) == (n <= 32));
        ASSERT(fsdp_json_find_text(wide.data, wide.len, "text", &found) ==
               (n <= FSDP_JSON_TEXT_MAX_OTHERS));
        fsdp_json_text_fini(&found);
        fsdp_str_fini(&deep);
        fsdp_str_fini(&wide);
    }
}
