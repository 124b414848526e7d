/* Texts of others in messages: control characters are shown, and long texts are cut between
 * characters. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/shown_text.h"
#include "tests/test.h"

TEST(control_characters_are_shown)
{
    ASSERT_STR(fsdp_show_text("a\x1b[2J\n\t\x7f").text, "a\\x1b[2J\\n\\t\\x7f");
    ASSERT_STR(fsdp_show_text("\303\251\302\233\302\240").text, "\303\251\\x9b\302\240");
    char *lines = fsdp_show_lines("a\n\tb\x1b]0;title\a\302\233");
    ASSERT_STR(lines, "a\n\tb\\x1b]0;title\\a\\x9b");
    fsdp_free(lines);
    lines = fsdp_show_lines("");
    ASSERT_STR(lines, "");
    fsdp_free(lines);
}

TEST(a_text_is_cut_after_a_whole_character)
{
    char to[10];
    fsdp_copy_cut(to, sizeof to, "123456789");
    ASSERT_STR(to, "123456789");
    fsdp_copy_cut(to, sizeof to, "1234567890");
    ASSERT_STR(to, "123456...");
    fsdp_copy_cut(to, sizeof to, "12345\303\251890");
    ASSERT_STR(to, "12345...");
    fsdp_copy_cut(to, sizeof to, "1234\303\251\303\251\303\251");
    ASSERT_STR(to, "1234\303\251...");
    fsdp_copy_cut(to, 4, "\303\251\303\251");
    ASSERT_STR(to, "...");
}
