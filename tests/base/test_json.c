/* JSON documents, their errors, and numbers printed as by Python. */
#include <locale.h>
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/repr.h"
#include "tests/test.h"

static fsdp_status parse(const char *text, fsdp_json **doc)
{
    return fsdp_json_parse("config.json", 1, text, strlen(text), doc);
}

/* Parse and print again; the caller frees the result. NULL if the text cannot be parsed. */
static char *reprint(const char *text, fsdp_json_style style)
{
    fsdp_json *doc;
    char *printed = NULL;
    if (parse(text, &doc) != FSDP_OK)
        return NULL;
    if (fsdp_json_print(doc, style, &printed, NULL) != FSDP_OK)
        printed = NULL;
    fsdp_json_destroy(doc);
    return printed;
}

/* The output of repr() in Python 3 for these doubles. */
TEST(floats_print_as_in_python)
{
    static const struct {
        double x;
        const char *repr;
    } cases[] = {
        {0.1, "0.1"},
        {1e-6, "1e-06"},
        {0.002, "0.002"},
        {10000.0, "10000.0"},
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {1e16, "1e+16"},
        {1e15, "1000000000000000.0"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {9007199254740993.0, "9007199254740992.0"},
        {0.0001, "0.0001"},
        {0.00001, "1e-05"},
        {1.0 / 3, "0.3333333333333333"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
        {0x1p-44, "5.684341886080802e-14"},
        {0x1p-1022 / 2, "1.1125369292536007e-308"},
        {1e22, "1e+22"},
        {1e23, "1e+23"},
        {-1.5e-7, "-1.5e-07"},
        {1e100, "1e+100"},
        {123.0, "123.0"},
        {100.25, "100.25"},
        {0.04419417382415922, "0.04419417382415922"},
        {HUGE_VAL, "inf"},
        {-HUGE_VAL, "-inf"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        char text[FSDP_REPR_BYTES];
        ASSERT_INT(fsdp_f64_repr(cases[i].x, text), strlen(cases[i].repr));
        ASSERT_STR(text, cases[i].repr);
    }
}

/* The decimal point does not follow the locale of the program. */
TEST(floats_do_not_depend_on_the_locale)
{
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8"))
        SKIP("no locale with a decimal comma is installed");
    char text[FSDP_REPR_BYTES];
    fsdp_f64_repr(0.5, text);
    char *printed = reprint("[1.25]", FSDP_JSON_COMPACT);
    setlocale(LC_NUMERIC, "C");
    ASSERT_STR(text, "0.5");
    ASSERT_STR(printed, "[1.25]");
    fsdp_free(printed);
}

TEST(values_are_read_by_type)
{
    fsdp_json *doc;
    ASSERT_OK(
        parse("{\"n\": 512, \"f\": 1e-6, \"i\": 3, \"b\": true, \"s\": \"t5\", \"none\": null,"
              " \"o\": {\"deep\": [1, 2]}, \"a\": [7, 8, -9]}",
              &doc));
    fsdp_json_node root = fsdp_json_root(doc), object, array;
    int64_t n = 0, *items = NULL;
    size_t count = 0;
    double f = 0;
    bool b = false;
    const char *s = NULL;
    ASSERT_OK(fsdp_json_get_i64(root, "n", 1, 4096, &n));
    ASSERT_INT(n, 512);
    ASSERT_OK(fsdp_json_opt_i64(root, "none", 1, 4096, 77, &n));
    ASSERT_INT(n, 77);
    ASSERT_OK(fsdp_json_opt_i64(root, "absent", 1, 4096, 78, &n));
    ASSERT_INT(n, 78);
    ASSERT_OK(fsdp_json_get_f64(root, "f", &f));
    ASSERT(f == 1e-6);
    ASSERT_OK(fsdp_json_get_f64(root, "i", &f));
    ASSERT(f == 3);
    ASSERT_OK(fsdp_json_get_bool(root, "b", &b));
    ASSERT(b);
    ASSERT_OK(fsdp_json_get_str(root, "s", &s));
    ASSERT_STR(s, "t5");
    ASSERT_OK(fsdp_json_get_object(root, "o", &object));
    ASSERT_OK(fsdp_json_get_array(object, "deep", &array));
    ASSERT_INT(fsdp_json_len(array), 2);
    ASSERT_OK(fsdp_json_get_i64(fsdp_json_at(array, 1), NULL, 0, 9, &n));
    ASSERT_INT(n, 2);
    ASSERT_INT(fsdp_json_kind_of(fsdp_json_at(array, 2)), FSDP_JSON_NONE);
    ASSERT_OK(fsdp_json_get_i64s(root, "a", -10, 10, &items, &count));
    ASSERT_INT(count, 3);
    ASSERT_INT(items[2], -9);
    fsdp_free(items);
    ASSERT(fsdp_json_has(root, "n") && !fsdp_json_has(root, "none"));
    size_t keys = 0;
    for (fsdp_json_node v = fsdp_json_first(root); v.value; v = fsdp_json_next(v))
        keys += fsdp_json_find(root, v.key).value == v.value;
    ASSERT_INT(keys, 8);
    fsdp_json_destroy(doc);
}

TEST(errors_name_file_key_expectation_and_value)
{
    fsdp_json *doc;
    ASSERT_OK(parse("{\"d_model\": \"abc\", \"n\": 0, \"big\": 3000000000, \"neg\": -1, \"r\": 1.5,"
                    " \"huge\": 1000000000000000019884624838656, \"nan\": NaN, \"none\": null,"
                    " \"w\": {\"list\": [{\"x\": 1}, {\"x\": {}}, null]}}",
                    &doc));
    fsdp_json_node root = fsdp_json_root(doc), list;
    int64_t n = -7, *items;
    size_t count;
    double f;
    bool b;
    const char *s;
    ASSERT_ERROR(fsdp_json_get_i64(root, "d_model", 1, INT32_MAX, &n), FSDP_ERR_FORMAT,
                 "config.json: d_model: expected a positive integer, found \"abc\"");
    ASSERT_ERROR(fsdp_json_get_i64(root, "n", 1, INT32_MAX, &n), FSDP_ERR_FORMAT,
                 "n: expected a positive integer, found 0");
    ASSERT_ERROR(fsdp_json_get_i64(root, "neg", 0, INT32_MAX, &n), FSDP_ERR_FORMAT,
                 "neg: expected an integer, 0 or more, found -1");
    ASSERT_ERROR(fsdp_json_get_i64(root, "big", 1, INT32_MAX, &n), FSDP_ERR_FORMAT,
                 "big: expected an integer from 1 to 2147483647, found 3000000000");
    ASSERT_ERROR(fsdp_json_get_i64(root, "huge", 1, INT32_MAX, &n), FSDP_ERR_FORMAT,
                 "found 1000000000000000019884624838656");
    ASSERT_ERROR(fsdp_json_get_i64(root, "huge", INT64_MIN, INT64_MAX, &n), FSDP_ERR_FORMAT,
                 "expected an integer of 64 bits");
    ASSERT_ERROR(fsdp_json_get_i64(root, "r", 1, 9, &n), FSDP_ERR_FORMAT, "found 1.5");
    ASSERT_ERROR(fsdp_json_get_i64(root, "d_ff", 1, 9, &n), FSDP_ERR_NOT_FOUND,
                 "config.json: d_ff: missing, expected a positive integer");
    ASSERT_INT(n, -7);
    ASSERT_ERROR(fsdp_json_get_f64(root, "nan", &f), FSDP_ERR_FORMAT,
                 "nan: expected a finite number, found NaN");
    ASSERT_ERROR(fsdp_json_get_bool(root, "n", &b), FSDP_ERR_FORMAT, "expected true or false");
    ASSERT_ERROR(fsdp_json_get_str(root, "huge", &s), FSDP_ERR_FORMAT, "expected a string");
    ASSERT_ERROR(fsdp_json_get_array(root, "w", &list), FSDP_ERR_FORMAT,
                 "w: expected a list, found an object");
    fsdp_json_node w = fsdp_json_find(root, "w");
    ASSERT_OK(fsdp_json_get_array(w, "list", &list));
    ASSERT_ERROR(fsdp_json_get_i64(fsdp_json_at(list, 1), "x", 0, 9, &n), FSDP_ERR_FORMAT,
                 "config.json: w.list[1].x: expected");
    ASSERT_ERROR(fsdp_json_get_i64(fsdp_json_at(list, 2), NULL, 0, 9, &n), FSDP_ERR_FORMAT,
                 "config.json: w.list[2]: expected an integer, 0 or more, found null");
    ASSERT_ERROR(fsdp_json_get_i64s(w, "list", 0, 9, &items, &count), FSDP_ERR_FORMAT,
                 "w.list[0]: expected");
    ASSERT_ERROR(fsdp_json_mismatch(root, "r", "a number in [%d, %d)", 0, 1), FSDP_ERR_FORMAT,
                 "config.json: r: expected a number in [0, 1), found 1.5");
    ASSERT_ERROR(fsdp_json_get_array(root, NULL, &list), FSDP_ERR_FORMAT,
                 "config.json: expected a list, found an object");
    fsdp_json_destroy(doc);
}

/* A string may have NULs. The large integer is stored in a way that begins with one, too. */
TEST(strings_may_have_nul_characters)
{
    static const char text[] = "[\"\\u0000\", \"\\u00007\", \"a\\u0000b\", \"\\u0000\\u0000\", "
                               "1000000000000000019884624838656, \"\"]";
    static const struct {
        const char *bytes;
        size_t length;
    } expected[] = {{"\0", 1},
                    {"\0"
                     "7",
                     2},
                    {"a\0b", 3},
                    {"\0\0", 2},
                    {NULL, 0},
                    {"", 0}};
    fsdp_json *doc, *copy;
    const char *found;
    char *printed;
    size_t length;
    ASSERT_OK(parse(text, &doc));
    ASSERT_OK(fsdp_json_create("copy", &copy));
    const fsdp_json_node list = fsdp_json_set_array(fsdp_json_root(copy), "list");
    for (size_t i = 0; i < 6; i++) {
        const fsdp_json_node node = fsdp_json_at(fsdp_json_root(doc), i);
        if (!expected[i].bytes) {
            ASSERT_INT(fsdp_json_kind_of(node), FSDP_JSON_INT);
            fsdp_json_append_shared(list, node);
            continue;
        }
        ASSERT_INT(fsdp_json_kind_of(node), FSDP_JSON_STRING);
        ASSERT_OK(fsdp_json_get_strn(node, NULL, &found, &length));
        ASSERT_INT(length, expected[i].length);
        ASSERT(memcmp(found, expected[i].bytes, length + 1) == 0);
        fsdp_json_append_strn(list, found, length);
    }
    ASSERT_ERROR(fsdp_json_get_str(fsdp_json_at(fsdp_json_root(doc), 2), NULL, &found),
                 FSDP_ERR_FORMAT,
                 "config.json: [2]: expected a string without \\u0000 (remove the escape), found "
                 "\"a\\u0000b\"");
    ASSERT_ERROR(fsdp_json_get_strn(fsdp_json_at(fsdp_json_root(doc), 4), NULL, &found, &length),
                 FSDP_ERR_FORMAT, "expected a string, found 1000000000000000019884624838656");
    ASSERT_OK(fsdp_json_print(copy, FSDP_JSON_LINE, &printed, NULL));
    ASSERT(strncmp(printed, "{\"list\": ", 9) == 0);
    ASSERT(strncmp(printed + 9, text, strlen(text)) == 0);
    fsdp_free(printed);
    fsdp_json_destroy(copy);
    fsdp_json_destroy(doc);
}

TEST(malformed_text_is_refused_with_its_place)
{
    fsdp_json *doc;
    ASSERT_ERROR(parse("", &doc), FSDP_ERR_FORMAT, "config.json: line 1, column 1");
    ASSERT_ERROR(parse("{\n  \"a\": 1,\n  \"b\": oops\n}", &doc), FSDP_ERR_FORMAT,
                 "config.json: line 3, column ");
    ASSERT_ERROR(parse("{\"a\": 1000000000000000019884624838656,\n\"b\" 2}", &doc), FSDP_ERR_FORMAT,
                 "config.json: line 2, column ");
    ASSERT_ERROR(fsdp_json_parse("rows.jsonl", 41, "{\"a\": [1, 2}", 12, &doc), FSDP_ERR_FORMAT,
                 "rows.jsonl: line 41, column 12");
    ASSERT_ERROR(parse("{\"a\": {\"b\\u0000\": 1}}", &doc), FSDP_ERR_FORMAT, "NUL");
    ASSERT_ERROR(parse("{\"a\":1, \"b\": [\"c\", \"x \\ud83d\\u0041\"]}", &doc), FSDP_ERR_FORMAT,
                 "config.json: line 1, column 23: b: \"\\ud83d\" is half of a surrogate pair");
    ASSERT_ERROR(parse("{\"a\": \"x \\ude00\\ud83d\"}", &doc), FSDP_ERR_FORMAT,
                 "config.json: line 1, column 10: a: \"\\ude00\" is half of a surrogate pair");
    ASSERT_ERROR(parse("[\"\\u0000\", 1000000000000000019884624838656, \"\\u0000\", oops]", &doc),
                 FSDP_ERR_FORMAT, "config.json: line 1, column 58");
    static const char *const bad[] = {
        "12",
        "\"text\"",
        "{\"a\":1} x",
        "{\"a\"}",
        "[1,]",
        "[01]",
        "[00000000000000000000001]",
        "[1.]",
        "[1e]",
        "[-]",
        "[--99999999999999999999]",
        "[Nan]",
        "[-NaN]",
        "[+1]",
        "[\"\xff\"]",
        "[\"a\nb\"]",
        "[\"abc",
        "[\"abc\\",
        "{\"a\":1",
        "[99999999999999999999x]",
        "[1 2]",
        "[NaNNaN]",
        "[Infinity1]",
        "{1:2}",
        "{99999999999999999999:2}",
        "[\"\\ud800\"]",
        "[1e999]",
        "\xef\xbb\xbf[]",
    };
    for (size_t i = 0; i < FSDP_LENGTH(bad); i++)
        if (parse(bad[i], &doc) == FSDP_OK)
            FAIL("%s was read", bad[i]);
    char nul[] = "[1]\0";
    ASSERT_ERROR(fsdp_json_parse("x", 1, nul, 4, &doc), FSDP_ERR_FORMAT, "x: line 1, column 4");
}

TEST(nesting_is_bounded)
{
    char text[2 * FSDP_JSON_MAX_DEPTH + 4];
    for (int depth = FSDP_JSON_MAX_DEPTH; depth <= FSDP_JSON_MAX_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        fsdp_json *doc;
        fsdp_status status = fsdp_json_parse("deep", 1, text, 2 * (size_t)depth, &doc);
        ASSERT_INT(status, depth <= FSDP_JSON_MAX_DEPTH ? FSDP_OK : FSDP_ERR_FORMAT);
        if (status == FSDP_OK)
            fsdp_json_destroy(doc);
    }
}

/* Unknown keys, integers beyond 64 bits, NaN and text are read, one key is changed, and the result
 * is printed like json.dumps(..., indent=2, sort_keys=True) + "\n". */
TEST(a_file_keeps_what_is_not_changed)
{
    const char *text = "{\"b\":[ ],\"a\":{},\"model_max_length\": 1000000000000000019884624838656,"
                       "\"eps\":1e-6,\"x\":-9223372036854775808,\"y\":9223372036854775808,"
                       "\"t\":\"\xc3\xa9\\u20ac\\ud83d\\ude00\\u007f\\t\\/\\\\\",\"nan\":NaN,"
                       "\"inf\":-Infinity,\"z\":[1,[2.50],null,false],\"d_model\":5,\"one\":1.0}";
    const char *expected = "{\n"
                           "  \"a\": {},\n"
                           "  \"b\": [],\n"
                           "  \"d_model\": 6,\n"
                           "  \"eps\": 1e-06,\n"
                           "  \"inf\": -Infinity,\n"
                           "  \"model_max_length\": 1000000000000000019884624838656,\n"
                           "  \"nan\": NaN,\n"
                           "  \"one\": 1.0,\n"
                           "  \"t\": \"\\u00e9\\u20ac\\ud83d\\ude00\\u007f\\t/\\\\\",\n"
                           "  \"x\": -9223372036854775808,\n"
                           "  \"y\": 9223372036854775808,\n"
                           "  \"z\": [\n"
                           "    1,\n"
                           "    [\n"
                           "      2.5\n"
                           "    ],\n"
                           "    null,\n"
                           "    false\n"
                           "  ]\n"
                           "}\n";
    fsdp_json *doc;
    char *printed;
    ASSERT_OK(parse(text, &doc));
    fsdp_json_set_i64(fsdp_json_root(doc), "d_model", 6);
    ASSERT_OK(fsdp_json_print(doc, FSDP_JSON_PRETTY, &printed, NULL));
    ASSERT_STR(printed, expected);
    fsdp_free(printed);
    fsdp_json_destroy(doc);
}

TEST(documents_are_built_and_printed)
{
    fsdp_json *doc;
    char *line, *compact;
    size_t bytes;
    ASSERT_OK(fsdp_json_create("metrics", &doc));
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_json_set_i64(root, "step", 3);
    fsdp_json_set_f64(root, "loss", 2.25);
    fsdp_json_set_f64(root, "norm", (double)NAN);
    fsdp_json_set_bool(root, "ok", true);
    fsdp_json_set_str(root, "text", "\xc3\xa9\"\x01");
    fsdp_json_set_str(root, "none", NULL);
    fsdp_json_node list = fsdp_json_set_array(root, "list");
    fsdp_json_append_i64(list, 1);
    fsdp_json_append_str(list, "a");
    fsdp_json_append_f64(list, 1e-6);
    fsdp_json_set_i64(fsdp_json_append_object(list), "k", 2);
    fsdp_json_append_array(list);
    fsdp_json_set_object(root, "gone");
    fsdp_json_remove(root, "gone");
    fsdp_json_set_i64(root, "step", 4);
    ASSERT_OK(fsdp_json_print(doc, FSDP_JSON_LINE, &line, &bytes));
    ASSERT_STR(line, "{\"step\": 4, \"loss\": 2.25, \"norm\": NaN, \"ok\": true, "
                     "\"text\": \"\\u00e9\\\"\\u0001\", \"none\": null, "
                     "\"list\": [1, \"a\", 1e-06, {\"k\": 2}, []]}");
    ASSERT_INT(bytes, strlen(line));
    ASSERT_OK(fsdp_json_print(doc, FSDP_JSON_COMPACT, &compact, NULL));
    ASSERT(strstr(compact, "\"text\":\"\xc3\xa9\\\"\\u0001\",") != NULL);
    fsdp_json *again;
    ASSERT_OK(parse(compact, &again));
    fsdp_json_destroy(again);
    fsdp_free(line);
    fsdp_free(compact);
    fsdp_json_set_str(root, "text", "\xff");
    ASSERT_ERROR(fsdp_json_print(doc, FSDP_JSON_LINE, &line, NULL), FSDP_ERR_INVALID, "UTF-8");
    fsdp_json_destroy(doc);
}

/* Values that need no NUL at their end, or belong to another document, which may be gone. */
TEST(values_of_buffers_and_of_other_documents_are_stored)
{
    fsdp_json *doc, *other;
    char *line;
    ASSERT_OK(fsdp_json_create("row", &doc));
    ASSERT_OK(parse("{\"a\": [1, 99999999999999999999]}", &other));
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_json_set_strn(root, "text", "abcdef", 3);
    fsdp_json_set_u64(root, "small", INT64_MAX);
    fsdp_json_set_u64(root, "large", UINT64_MAX);
    fsdp_json_set_shared(root, "shared", fsdp_json_find(fsdp_json_root(other), "a"));
    fsdp_json_node list = fsdp_json_set_array(root, "list");
    fsdp_json_append_i64s(list, (const int64_t[]){1, -2}, 2);
    fsdp_json_append_u64(list, (uint64_t)INT64_MAX + 1);
    fsdp_json_append_bool(list, true);
    fsdp_json_append_strn(list, "xy", 1);
    fsdp_json_append_shared(list, fsdp_json_root(other));
    fsdp_json_destroy(other);
    ASSERT_OK(fsdp_json_check_built(doc));
    ASSERT_OK(fsdp_json_print(doc, FSDP_JSON_COMPACT, &line, NULL));
    ASSERT_STR(line, "{\"text\":\"abc\",\"small\":9223372036854775807,"
                     "\"large\":18446744073709551615,\"shared\":[1,99999999999999999999],"
                     "\"list\":[1,-2,9223372036854775808,true,\"x\","
                     "{\"a\":[1,99999999999999999999]}]}");
    fsdp_free(line);
    int64_t number;
    ASSERT_ERROR(fsdp_json_get_i64(root, "large", 0, 9, &number), FSDP_ERR_FORMAT,
                 "found 18446744073709551615");
    fsdp_json_set_str(root, "\xff", "");
    ASSERT_ERROR(fsdp_json_check_built(doc), FSDP_ERR_INVALID, "UTF-8");
    fsdp_json_destroy(doc);
}

TEST(texts_of_any_encoding_are_stored)
{
    static const char *const rows[][2] = {
        {"plain", "\"plain\""},
        {"", "\"\""},
        {"caf\xc3\xa9", "\"caf\xc3\xa9\""},            /* UTF-8 */
        {"caf\xe9", "\"caf\\\\xE9\""},                 /* Latin-1 */
        {"\xc0\xaf", "\"\\\\xC0\\\\xAF\""},            /* too long a sequence */
        {"\xed\xa0\x80", "\"\\\\xED\\\\xA0\\\\x80\""}, /* a surrogate */
        {"\xf0\x9f\x98", "\"\\\\xF0\\\\x9F\\\\x98\""}, /* cut */
        {"\xf0\x9f\x98\x80!", "\"\xf0\x9f\x98\x80!\""},
    };
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        fsdp_json *doc;
        char *line, expected[100];
        ASSERT_OK(fsdp_json_create("row", &doc));
        fsdp_json_set_any_str(fsdp_json_root(doc), "a", rows[i][0]);
        ASSERT_OK(fsdp_json_print(doc, FSDP_JSON_COMPACT, &line, NULL));
        snprintf(expected, sizeof expected, "{\"a\":%s}", rows[i][1]);
        ASSERT_STR(line, expected);
        fsdp_free(line);
        fsdp_json_destroy(doc);
    }
}

TEST(files_are_read_and_written_whole)
{
    char *path = fsdp_path_join(fsdp_test_dir(t), "config.json");
    fsdp_json *doc;
    int64_t n = 0;
    ASSERT_ERROR(fsdp_json_read(path, &doc), FSDP_ERR_NOT_FOUND, path);
    ASSERT_OK(fsdp_json_create("new", &doc));
    fsdp_json_set_i64(fsdp_json_root(doc), "n", 12);
    ASSERT_OK(fsdp_json_write(doc, FSDP_JSON_PRETTY, path));
    fsdp_json_destroy(doc);
    ASSERT_OK(fsdp_json_read(path, &doc));
    ASSERT_STR(fsdp_json_name(doc), path);
    ASSERT_OK(fsdp_json_get_i64(fsdp_json_root(doc), "n", 0, 20, &n));
    ASSERT_INT(n, 12);
    fsdp_json_destroy(doc);
    fsdp_free(path);
}

/* Each of our allocations fails once; those of jansson do not. */
TEST(reading_survives_every_failed_allocation)
{
    for (long i = 1; i < 6; i++) {
        fsdp_json *doc;
        fsdp_alloc_fail_at(i);
        fsdp_status status = parse("[99999999999999999999, NaN]", &doc);
        fsdp_alloc_fail_at(0);
        if (status == FSDP_OK)
            fsdp_json_destroy(doc);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
        ASSERT(status == FSDP_OK || i <= 4);
    }
}
