/* Rows of JSON that are one text: what is found without a document is what the parser finds. */
#include "src/data/json_text.h"

#include <string.h>

#include "src/base/json.h"
#include "tests/test.h"

/* Append one of the pieces of which random rows are made: some are malformed, alone or after
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
                  {"\\ud83d", 6},
                  {"\\ude00", 6},
                  {"\\u0041", 6},
                  {"\\x", 2},
                  {"\xc3\xa9", 2},
                  {"\xe2\x82\xac", 3},
                  {"\xf0\x9f\x98\x80", 4},
                  {"\xc3", 1},
                  {"\xff", 1},
                  {"\xed\xa0\x80", 3},
                  {"\n", 1},
                  {"\t", 1},
                  {"\x7f", 1},
                  {"\\u0000", 6},
                  {"\\u00g0", 6},
                  {"\"", 1},
                  {"\0", 1},
                  {"/", 1},
                  {"\\ud83d\\ude00", 12},
                  {"\\u12", 4}};
    const unsigned n = sizeof pieces / sizeof *pieces;
    fsdp_str_append(row, pieces[kind % n].text, pieces[kind % n].length);
}

static unsigned next(unsigned *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 16;
}

/* Make a row, most of which are right but for their texts. */
static void make_row(fsdp_str *row, unsigned *x)
{
    static const char *const begins[] = {"{\"text\": \"",
                                         " {\t\"text\" :\"",
                                         "{\"text\":\"",
                                         "{\"text\":\r\n\"",
                                         "{\"texts\": \"",
                                         "{\"tex\\u0074\": \"",
                                         "{\"id\": 1, \"text\": \"",
                                         "[\"text\", \""};
    static const char *const ends[] = {
        "\"}", "\" } \r\n", "\"}", "\"", "\"}}", "\", \"text\": \"b\"}", "\", \"b\": 1}", "\"} x"};
    const unsigned begin = next(x) % 16, end = next(x) % 16, n = next(x) % 8;
    row->len = 0;
    fsdp_str_printf(row, "%s", begins[begin < 8 ? begin : 0]);
    for (unsigned i = 0; i < n; i++)
        append_piece(row, next(x));
    fsdp_str_printf(row, "%s", ends[end < 8 ? end : 0]);
}

/* The parser accepts what was found, and more. */
TEST(a_text_is_that_of_the_parser)
{
    unsigned x = 1;
    int found = 0, parsed = 0;
    fsdp_str row = {0}, text = {0};
    for (int i = 0; i < 50000; i++) {
        fsdp_json *doc = NULL;
        const char *expected = NULL;
        make_row(&row, &x);
        const bool is = fsdp_json_only_text(row.data, row.len, "text", &text);
        const bool accepted = fsdp_json_parse("row", 1, row.data, row.len, &doc) == FSDP_OK;
        parsed += accepted;
        found += is;
        if (is) {
            ASSERT(accepted);
            ASSERT_INT(fsdp_json_len(fsdp_json_root(doc)), 1);
            ASSERT_OK(fsdp_json_get_str(fsdp_json_root(doc), "text", &expected));
            ASSERT_STR(text.data, expected);
        }
        if (accepted)
            fsdp_json_destroy(doc);
    }
    ASSERT(parsed > found && found > 4000);
    fsdp_str_fini(&row);
    fsdp_str_fini(&text);
}

/* Rows that have nothing unusual are found, so that the parser is not needed for them. */
TEST(usual_rows_are_found)
{
    static const struct {
        const char *row, *text;
    } rows[] = {{"{\"text\": \"a \\\"b\\\"\\n\\t\\u00e9\"}", "a \"b\"\n\t\u00e9"},
                {"{\"text\":\"\"}", ""},
                {" {\"text\" : \"\\ud83d\\ude00 \u20ac\"} \r\n", "\U0001F600 \u20ac"}};
    static const char *const others[] = {"{\"text\": \"a\", \"id\": 1}",
                                         "{\"text\": 5}",
                                         "{\"text\": [\"a\"]}",
                                         "{\"body\": \"a\"}",
                                         "{\"text\": \"a\", \"text\": \"b\"}",
                                         "{\"text\": \"\\u0000\"}",
                                         "{}",
                                         "\"text\"",
                                         ""};
    fsdp_str text = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ASSERT(fsdp_json_only_text(rows[i].row, strlen(rows[i].row), "text", &text));
        ASSERT_STR(text.data, rows[i].text);
        for (size_t n = 0; n < strlen(rows[i].row) - 3; n++)
            ASSERT(!fsdp_json_only_text(rows[i].row, n, "text", &text) || n > 10);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ASSERT(!fsdp_json_only_text(others[i], strlen(others[i]), "text", &text));
    fsdp_str_fini(&text);
}
