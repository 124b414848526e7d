/* The translation of Oniguruma's syntax, searches with PCRE2, and the splitters that are written by
 * hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/text/chars/utf8.h"
#include "src/text/parts/word_splitter.h"
#include "src/text/regex/regex.h"
#include "src/text/regex/regex_syntax.h"
#include "tests/test.h"

#ifdef FSDP_HAVE_PCRE2
#define NEEDS_PCRE2() ((void)0)
#else
#define NEEDS_PCRE2() SKIP("built without PCRE2")
#endif

/* What differs between the two syntaxes. */
TEST(oniguruma_is_translated_to_pcre2)
{
    static const char *const cases[][2] = {
        {"a{1,2}+b", "(?:a{1,2})+b"},
        {"a{,3}", "a{0,3}"},
        {"a{2}?", "(?:a{2,2})?"},
        {"a{3,1}", "a{1,3}+"},
        {"a++b*+", "a++b*+"},
        {"a{x}", "a\\x{7B}x\\x{7D}"},
        {"(?m:.)(?i)a|b", "(?s:.)(?i:a|b)"},
        {"\\h\\v", "[0-9a-fA-F]\\x{B}"},
        {"\\u00e9\\x{1F600}\\x41", "\\x{E9}\\x{1F600}A"},
        {"\\p{Han}\\p{^Zl}\\P{LineSeparator}\\p{zl}", "[\\p{sc:han}][^\\p{Zl}][^\\p{Zl}][\\p{Zl}]"},
        {"[a-c-]", "[a-c\\x{2D}]"},
        {"[]a]", "[\\x{5D}a]"},
        {"[^a[b-d]]", "(?:(?!(?:[a]|[b-d]))(?s:.))"},
        {"[a-z&&[^b]]", "(?:(?=[a-z])(?:[^b]))"},
        {"[[:xdigit:]]", "[0-9a-fA-F]"},
        {"(?<x>a)\\k<x>\\1", "(?<x>a)\\k{x}\\g{1}"},
        {"^a$|\\.", "^a$|\\x{2E}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out;
        ASSERT_OK(fsdp_regex_translate(cases[i][0], &out));
        const bool same = strcmp(out, cases[i][1]) == 0;
        if (!same)
            fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s instead of %s", cases[i][0], out,
                           cases[i][1]);
        fsdp_free(out);
    }
}

TEST(what_has_no_translation_is_named)
{
    static const char *const cases[][2] = {
        {"a(?~b)", "the group '(?~b)' is not supported at byte 1"},
        {"(?x: a)", "the option x"},
        {"\\g<1>", "the escape \\g is not supported"},
        {"\\xE3", "a byte that is not a character"},
        {"[a", "a class without its ']'"},
        {"(a", "a '(' without its ')'"},
        {"a)", "a ')' without its '('"},
        {"*a", "nothing that '*' could repeat"},
        {"a\\", "nothing after the backslash"},
        {"[b-a]", "a range with a wrong order"},
        {"\\p{L", "a property without its end"},
        {"a{99999}", "a repetition of more than"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out = NULL;
        ASSERT(fsdp_regex_translate(cases[i][0], &out) != FSDP_OK);
        ASSERT(!out);
        if (!strstr(fsdp_last_error(), cases[i][1]) || !strstr(fsdp_last_error(), cases[i][0]))
            FAIL("the message lacks '%s': %s", cases[i][1], fsdp_last_error());
    }
    char nested[1000];
    memset(nested, '(', sizeof nested - 1);
    nested[sizeof nested - 1] = 0;
    char *out = NULL;
    ASSERT_ERROR(fsdp_regex_translate(nested, &out), FSDP_ERR_UNSUPPORTED, "nested too deeply");
}

/* Write the matches as "begin-end ". */
static void find_all(fsdp_test *t, const char *pattern, const char *text, size_t length, char *out,
                     size_t size)
{
    fsdp_regex *regex = NULL;
    fsdp_regex_work *work = NULL;
    ASSERT_OK(fsdp_regex_compile(pattern, &regex));
    ASSERT_OK(fsdp_regex_work_create(&work));
    fsdp_regex_search s = {.regex = regex, .work = work, .text = text, .length = length};
    bool found = true;
    *out = 0;
    while (found) {
        size_t begin, end;
        ASSERT_OK(fsdp_regex_next(&s, &found, &begin, &end));
        if (found)
            snprintf(out + strlen(out), size - strlen(out), "%zu-%zu ", begin, end);
    }
    fsdp_regex_work_destroy(work);
    fsdp_regex_destroy(regex);
}

/* The expected matches are those of the tokenizers library. U+180E is no white space. */
TEST(searches_find_what_oniguruma_finds)
{
    NEEDS_PCRE2();
    static const char *const cases[][3] = {
        {"x*", "xxaxb", "0-2 3-4 5-5 "},
        {"(?=a)|b", "abaa", "0-0 1-2 3-3 "},
        {"\\s+", "a \u180e\u2003\xC2\x85", "1-2 5-10 "},
        {"\\bfoo\\b", "foo \u00e9foo foo\u0301 (foo)", "0-3 17-20 "},
        {"(?<=a)b", "abb ab", "1-2 5-6 "},
        {"(?i:'s|'ll)", "it'S '\u017f he'lL", "2-4 5-8 11-14 "},
        {"^.$", "a\nb\n\nc", "0-1 2-3 5-6 "},
        {"(?m:a.)", "a\na", "0-2 "},
        /* Characters of Unicode 15 and 16: a letter, a digit, a mark. */
        {"\\p{L}+|\\d|[^\\P{M}]", "a\uA7DAb\U00010D40\u0897", "0-5 5-9 9-12 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[256];
        find_all(t, cases[i][0], cases[i][1], strlen(cases[i][1]), out, sizeof out);
        CHECK_HERE();
        ASSERT_STR(out, cases[i][2]);
    }
}

/* A pattern that backtracks for ever ends with an error. */
TEST(a_search_has_an_end)
{
    NEEDS_PCRE2();
    fsdp_regex *regex;
    fsdp_regex_work *work;
    char text[200];
    bool found;
    size_t begin, end;
    memset(text, 'a', sizeof text);
    ASSERT_OK(fsdp_regex_compile("(?:(?:a|a)*b|(?:aa?)*c)$", &regex));
    ASSERT_OK(fsdp_regex_work_create(&work));
    fsdp_regex_search s = {.regex = regex, .work = work, .text = text, .length = sizeof text};
    ASSERT_ERROR(fsdp_regex_next(&s, &found, &begin, &end), FSDP_ERR_UNSUPPORTED,
                 "takes too many steps");
    fsdp_regex_work_destroy(work);
    fsdp_regex_destroy(regex);
    ASSERT_ERROR(fsdp_regex_compile("\\p{Klingon}", &regex), FSDP_ERR_FORMAT,
                 "'\\p{Klingon}' cannot be compiled");
}

/* ---- words ---- */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

/* Append a character that the versions of Unicode of all libraries know in the same way. */
static size_t append_character(uint32_t *state, char *out)
{
    static const char *const common[] = {
        "a",          "B",        "s",      "S",      "t",      "'",      " ",
        " ",          "\n",       "\r",     "\t",     "1",      "2",      "!",
        "-",          "re",       "LL",     "'d",     "\u017f", "\u00e9", "\u4e2d",
        "\u00bd",     "\u0663",   "\u3000", "\u00a0", "\u0301", "\u180e", "\u2028",
        "\U0001F600", "\xC2\x85", "\u212a", "\u00b2", "\u2160"};
    const char *text = common[next_random(state) % (sizeof common / sizeof *common)];
    memcpy(out, text, strlen(text));
    return strlen(text);
}

/* Random texts of few characters get every combination of neighbors. */
TEST(words_are_those_of_the_regular_expressions)
{
    NEEDS_PCRE2();
    fsdp_char_classes *classes;
    fsdp_regex_work *work;
    uint32_t state = 7;
    ASSERT_OK(fsdp_char_classes_create(&classes));
    ASSERT_OK(fsdp_regex_work_create(&work));
    for (int pattern = FSDP_WORDS_GPT2; pattern <= FSDP_WORDS_QWEN2 && !t->failed; pattern++) {
        const fsdp_word_pattern kind = (fsdp_word_pattern)pattern;
        fsdp_regex *regex;
        ASSERT_INT(fsdp_word_pattern_find(fsdp_word_pattern_text(kind)), kind);
        ASSERT_OK(fsdp_regex_compile(fsdp_word_pattern_text(kind), &regex));
        for (int round = 0; round < 4000 && !t->failed; round++) {
            char text[200];
            size_t length = 0, at = 0;
            for (uint32_t n = next_random(&state) % 20; n > 0; n--)
                length += append_character(&state, text + length);
            fsdp_regex_search s = {.regex = regex, .work = work, .text = text, .length = length};
            while (at < length && !t->failed) {
                size_t begin, end;
                bool found;
                ASSERT_OK(fsdp_regex_next(&s, &found, &begin, &end));
                const size_t word = fsdp_word_end(kind, classes, text, at, length);
                if (!found || begin != at || end != word)
                    FAIL("pattern %d: '%.*s': %zu-%zu instead of %zu-%zu", pattern, (int)length,
                         text, at, word, begin, end);
                at = word;
            }
        }
        fsdp_regex_destroy(regex);
    }
    ASSERT_INT(fsdp_word_pattern_find("a"), FSDP_WORDS_OTHER);
    fsdp_regex_work_destroy(work);
    fsdp_char_classes_destroy(classes);
}

static fsdp_status use_regex(void)
{
    fsdp_regex *regex = NULL;
    fsdp_status status = fsdp_regex_compile("[a&&[^b]]{1,2}+|(?i)x", &regex);
    fsdp_regex_destroy(regex);
    return status;
}

TEST(failing_allocations_are_reported)
{
    NEEDS_PCRE2();
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK && n < 100; n++) {
        fsdp_alloc_fail_at(n);
        status = use_regex();
        fsdp_alloc_fail_at(0);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
    }
    ASSERT_INT(status, FSDP_OK);
}
