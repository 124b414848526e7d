/* Properties and case changes of characters, with the same results as in Python's str. ASCII
 * characters need no library. For other characters, utf8proc has the general categories and the
 * simple case changes. This file has tables for what utf8proc lacks: case changes of one character
 * to several (Unicode's SpecialCasing), and properties that do not follow from the general
 * category. */
#include "src/text/jinja/chars.h"

#include <string.h>

#ifdef FSDP_HAVE_UTF8PROC
#include <utf8proc.h>
#endif

#include "src/base/assert.h"
#include "src/text/jinja/machine.h"

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

uint32_t fsdp_jinja_next_char(const char *data, size_t bytes, size_t *at)
{
    const unsigned char *p = (const unsigned char *)data + *at;
    const size_t left = bytes - *at;
    const size_t length = p[0] < 0x80 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (length > left) {
        *at = bytes;
        return 0xFFFD;
    }
    *at += length;
    uint32_t c = length == 1 ? p[0] : p[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++)
        c = c << 6 | (p[i] & 0x3Fu);
    return c;
}

size_t fsdp_jinja_char_before(const char *data, size_t end)
{
    do
        end--;
    while (end > 0 && ((unsigned char)data[end] & 0xC0) == 0x80);
    return end;
}

size_t fsdp_jinja_put_char(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    const size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00u >> length & 0xF0) | c);
    return length;
}

/* ---- properties ------------------------------------------------------------------------------ */

typedef struct char_range {
    uint32_t first, last;
} char_range;

static bool is_in(uint32_t c, const char_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

bool fsdp_jinja_is_space(uint32_t c)
{
    static const char_range spaces[] = {{0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                        {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || is_in(c, spaces, FSDP_LENGTH(spaces));
}

bool fsdp_jinja_is_line_end(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

static bool is_ascii_letter(uint32_t c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static bool ascii_is(uint32_t c, jinja_char_class class)
{
    switch (class) {
    case JINJA_CHAR_ALPHA:
        return is_ascii_letter(c);
    case JINJA_CHAR_DECIMAL:
    case JINJA_CHAR_DIGIT:
    case JINJA_CHAR_NUMBER:
        return c >= '0' && c <= '9';
    case JINJA_CHAR_UPPER:
        return c >= 'A' && c <= 'Z';
    case JINJA_CHAR_LOWER:
        return c >= 'a' && c <= 'z';
    case JINJA_CHAR_TITLE:
        break;
    case JINJA_CHAR_PRINTABLE:
        return c >= 0x20 && c < 0x7F;
    }
    return false;
}

#ifdef FSDP_HAVE_UTF8PROC

/* Characters with the property Lowercase that are not in the category Ll. The next table,
 * other_upper, has the characters with the property Uppercase that are not in the category Lu. */
static const char_range other_lower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
static const char_range other_upper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
/* Digits, in the sense of str.isdigit(), that are not in the category Nd, such as superscripts. */
static const char_range other_digits[] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

static bool is_letter(utf8proc_category_t category)
{
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

static bool is_printable(utf8proc_category_t category)
{
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_SO;
}

static bool wide_is(uint32_t c, jinja_char_class class)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    switch (class) {
    case JINJA_CHAR_ALPHA:
        return is_letter(category);
    case JINJA_CHAR_DECIMAL:
        return category == UTF8PROC_CATEGORY_ND;
    case JINJA_CHAR_DIGIT:
        return category == UTF8PROC_CATEGORY_ND ||
               is_in(c, other_digits, FSDP_LENGTH(other_digits));
    case JINJA_CHAR_NUMBER:
        return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
    case JINJA_CHAR_UPPER:
        return category == UTF8PROC_CATEGORY_LU || is_in(c, other_upper, FSDP_LENGTH(other_upper));
    case JINJA_CHAR_LOWER:
        return category == UTF8PROC_CATEGORY_LL || is_in(c, other_lower, FSDP_LENGTH(other_lower));
    case JINJA_CHAR_TITLE:
        return category == UTF8PROC_CATEGORY_LT;
    case JINJA_CHAR_PRINTABLE:
        return is_printable(category);
    }
    return false;
}

fsdp_status fsdp_jinja_char_is(uint32_t c, jinja_char_class class, bool *is)
{
    *is = c < 0x80 ? ascii_is(c, class) : wide_is(c, class);
    return FSDP_OK;
}

bool fsdp_jinja_is_identifier(uint32_t c)
{
    if (c < 0x80)
        return is_ascii_letter(c) || (c >= '0' && c <= '9') || c == '_';
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return is_letter(category) || category == UTF8PROC_CATEGORY_MN ||
           category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ND ||
           category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC;
}

/* ---- changes of case ------------------------------------------------------------------------- */

typedef struct special_case {
    uint32_t c;
    uint32_t upper[3];
} special_case;

/* Characters whose uppercase is several characters. The table is sorted by character. */
static const special_case special_cases[] = {{0xDF, {0x53, 0x53}},
                                             {0x149, {0x2BC, 0x4E}},
                                             {0x1F0, {0x4A, 0x30C}},
                                             {0x390, {0x399, 0x308, 0x301}},
                                             {0x3B0, {0x3A5, 0x308, 0x301}},
                                             {0x587, {0x535, 0x552}},
                                             {0x1E96, {0x48, 0x331}},
                                             {0x1E97, {0x54, 0x308}},
                                             {0x1E98, {0x57, 0x30A}},
                                             {0x1E99, {0x59, 0x30A}},
                                             {0x1E9A, {0x41, 0x2BE}},
                                             {0x1F50, {0x3A5, 0x313}},
                                             {0x1F52, {0x3A5, 0x313, 0x300}},
                                             {0x1F54, {0x3A5, 0x313, 0x301}},
                                             {0x1F56, {0x3A5, 0x313, 0x342}},
                                             {0x1F80, {0x1F08, 0x399}},
                                             {0x1F81, {0x1F09, 0x399}},
                                             {0x1F82, {0x1F0A, 0x399}},
                                             {0x1F83, {0x1F0B, 0x399}},
                                             {0x1F84, {0x1F0C, 0x399}},
                                             {0x1F85, {0x1F0D, 0x399}},
                                             {0x1F86, {0x1F0E, 0x399}},
                                             {0x1F87, {0x1F0F, 0x399}},
                                             {0x1F88, {0x1F08, 0x399}},
                                             {0x1F89, {0x1F09, 0x399}},
                                             {0x1F8A, {0x1F0A, 0x399}},
                                             {0x1F8B, {0x1F0B, 0x399}},
                                             {0x1F8C, {0x1F0C, 0x399}},
                                             {0x1F8D, {0x1F0D, 0x399}},
                                             {0x1F8E, {0x1F0E, 0x399}},
                                             {0x1F8F, {0x1F0F, 0x399}},
                                             {0x1F90, {0x1F28, 0x399}},
                                             {0x1F91, {0x1F29, 0x399}},
                                             {0x1F92, {0x1F2A, 0x399}},
                                             {0x1F93, {0x1F2B, 0x399}},
                                             {0x1F94, {0x1F2C, 0x399}},
                                             {0x1F95, {0x1F2D, 0x399}},
                                             {0x1F96, {0x1F2E, 0x399}},
                                             {0x1F97, {0x1F2F, 0x399}},
                                             {0x1F98, {0x1F28, 0x399}},
                                             {0x1F99, {0x1F29, 0x399}},
                                             {0x1F9A, {0x1F2A, 0x399}},
                                             {0x1F9B, {0x1F2B, 0x399}},
                                             {0x1F9C, {0x1F2C, 0x399}},
                                             {0x1F9D, {0x1F2D, 0x399}},
                                             {0x1F9E, {0x1F2E, 0x399}},
                                             {0x1F9F, {0x1F2F, 0x399}},
                                             {0x1FA0, {0x1F68, 0x399}},
                                             {0x1FA1, {0x1F69, 0x399}},
                                             {0x1FA2, {0x1F6A, 0x399}},
                                             {0x1FA3, {0x1F6B, 0x399}},
                                             {0x1FA4, {0x1F6C, 0x399}},
                                             {0x1FA5, {0x1F6D, 0x399}},
                                             {0x1FA6, {0x1F6E, 0x399}},
                                             {0x1FA7, {0x1F6F, 0x399}},
                                             {0x1FA8, {0x1F68, 0x399}},
                                             {0x1FA9, {0x1F69, 0x399}},
                                             {0x1FAA, {0x1F6A, 0x399}},
                                             {0x1FAB, {0x1F6B, 0x399}},
                                             {0x1FAC, {0x1F6C, 0x399}},
                                             {0x1FAD, {0x1F6D, 0x399}},
                                             {0x1FAE, {0x1F6E, 0x399}},
                                             {0x1FAF, {0x1F6F, 0x399}},
                                             {0x1FB2, {0x1FBA, 0x399}},
                                             {0x1FB3, {0x391, 0x399}},
                                             {0x1FB4, {0x386, 0x399}},
                                             {0x1FB6, {0x391, 0x342}},
                                             {0x1FB7, {0x391, 0x342, 0x399}},
                                             {0x1FBC, {0x391, 0x399}},
                                             {0x1FC2, {0x1FCA, 0x399}},
                                             {0x1FC3, {0x397, 0x399}},
                                             {0x1FC4, {0x389, 0x399}},
                                             {0x1FC6, {0x397, 0x342}},
                                             {0x1FC7, {0x397, 0x342, 0x399}},
                                             {0x1FCC, {0x397, 0x399}},
                                             {0x1FD2, {0x399, 0x308, 0x300}},
                                             {0x1FD3, {0x399, 0x308, 0x301}},
                                             {0x1FD6, {0x399, 0x342}},
                                             {0x1FD7, {0x399, 0x308, 0x342}},
                                             {0x1FE2, {0x3A5, 0x308, 0x300}},
                                             {0x1FE3, {0x3A5, 0x308, 0x301}},
                                             {0x1FE4, {0x3A1, 0x313}},
                                             {0x1FE6, {0x3A5, 0x342}},
                                             {0x1FE7, {0x3A5, 0x308, 0x342}},
                                             {0x1FF2, {0x1FFA, 0x399}},
                                             {0x1FF3, {0x3A9, 0x399}},
                                             {0x1FF4, {0x38F, 0x399}},
                                             {0x1FF6, {0x3A9, 0x342}},
                                             {0x1FF7, {0x3A9, 0x342, 0x399}},
                                             {0x1FFC, {0x3A9, 0x399}},
                                             {0xFB00, {0x46, 0x46}},
                                             {0xFB01, {0x46, 0x49}},
                                             {0xFB02, {0x46, 0x4C}},
                                             {0xFB03, {0x46, 0x46, 0x49}},
                                             {0xFB04, {0x46, 0x46, 0x4C}},
                                             {0xFB05, {0x53, 0x54}},
                                             {0xFB06, {0x53, 0x54}},
                                             {0xFB13, {0x544, 0x546}},
                                             {0xFB14, {0x544, 0x535}},
                                             {0xFB15, {0x544, 0x53B}},
                                             {0xFB16, {0x54E, 0x546}},
                                             {0xFB17, {0x544, 0x53D}}};

static const special_case *find_special(uint32_t c)
{
    size_t low = 0, high = FSDP_LENGTH(special_cases);
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (special_cases[middle].c < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < FSDP_LENGTH(special_cases) && special_cases[low].c == c ? &special_cases[low]
                                                                         : NULL;
}

static size_t to_lower(uint32_t c, uint32_t out[3])
{
    /* I with a dot above; its lower case is i followed by a combining dot above */
    if (c == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}

static size_t to_upper(uint32_t c, uint32_t out[3])
{
    const special_case *special = c < 0x80 ? NULL : find_special(c);
    size_t n = 0;
    if (!special) {
        out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
        return 1;
    }
    while (n < 3 && special->upper[n]) {
        out[n] = special->upper[n];
        n++;
    }
    return n;
}

/* Write the titlecase of the character c to `out`, and return the number of characters. If the
 * uppercase of c is several characters, the titlecase is this uppercase with all characters except
 * the first in lower case. But for some Greek characters of this kind, the titlecase is a single
 * character. */
static size_t to_title(uint32_t c, uint32_t out[3])
{
    const special_case *special = c < 0x80 ? NULL : find_special(c);
    const uint32_t single = (uint32_t)utf8proc_totitle((utf8proc_int32_t)c);
    const bool greek = c >= 0x1F80 && c <= 0x1FFC;
    if (!special || (greek && (single != c || wide_is(c, JINJA_CHAR_TITLE)))) {
        out[0] = single;
        return 1;
    }
    const size_t n = to_upper(c, out);
    for (size_t i = 1; i < n && c != 0x149; i++)
        out[i] = out[i] == 0x399 ? 0x345 : (uint32_t)utf8proc_tolower((utf8proc_int32_t)out[i]);
    return n;
}

static bool is_cased(uint32_t c)
{
    bool lower, upper, title;
    return (fsdp_jinja_char_is(c, JINJA_CHAR_LOWER, &lower) == FSDP_OK && lower) ||
           (fsdp_jinja_char_is(c, JINJA_CHAR_UPPER, &upper) == FSDP_OK && upper) ||
           (fsdp_jinja_char_is(c, JINJA_CHAR_TITLE, &title) == FSDP_OK && title);
}

static bool is_case_ignorable(uint32_t c)
{
    static const uint32_t others[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                      0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                      0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
    for (size_t i = 0; i < FSDP_LENGTH(others); i++)
        if (others[i] == c)
            return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return false;
    }
}

/* Return true if the sigma text[at, after) is at the end of a word, so that its lower case is the
 * final sigma. This is so if there is a cased character before the sigma and none after it.
 * Case-ignorable characters between the sigma and these characters are skipped. */
static bool is_final_sigma(const jinja_string *text, size_t at, size_t after)
{
    uint32_t c = '.';
    while (at > 0 && is_case_ignorable(c)) {
        size_t next = at = fsdp_jinja_char_before(text->data, at);
        c = fsdp_jinja_next_char(text->data, text->bytes, &next);
    }
    if (is_case_ignorable(c) || !is_cased(c))
        return false;
    for (c = '.'; after < text->bytes && is_case_ignorable(c);)
        c = fsdp_jinja_next_char(text->data, text->bytes, &after);
    return is_case_ignorable(c) || !is_cased(c);
}

static fsdp_status map_char(const jinja_string *text, size_t at, size_t after, uint32_t c,
                            jinja_case how, uint32_t out[3], size_t *n)
{
    if (how == JINJA_CASE_UPPER)
        *n = to_upper(c, out);
    else if (how == JINJA_CASE_TITLE)
        *n = to_title(c, out);
    else if (c == 0x3A3) {
        out[0] = is_final_sigma(text, at, after) ? 0x3C2 : 0x3C3;
        *n = 1;
    } else
        *n = to_lower(c, out);
    return FSDP_OK;
}

#else

fsdp_status fsdp_jinja_char_is(uint32_t c, jinja_char_class class, bool *is)
{
    if (c >= 0x80)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "the class of the character U+%04X: this build has no utf8proc",
                          (unsigned)c);
    *is = ascii_is(c, class);
    return FSDP_OK;
}

bool fsdp_jinja_is_identifier(uint32_t c)
{
    return is_ascii_letter(c) || (c >= '0' && c <= '9') || c == '_';
}

static bool is_cased(uint32_t c)
{
    return is_ascii_letter(c);
}

static fsdp_status map_char(const jinja_string *text, size_t at, size_t after, uint32_t c,
                            jinja_case how, uint32_t out[3], size_t *n)
{
    (void)text;
    (void)at;
    (void)after;
    if (c >= 0x80)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "changing the case of the character U+%04X: this build has no utf8proc",
                          (unsigned)c);
    out[0] = c;
    if (is_ascii_letter(c))
        out[0] = how == JINJA_CASE_LOWER ? c | 0x20 : c & ~(uint32_t)0x20;
    *n = 1;
    return FSDP_OK;
}

#endif

/* Return the case to which one character is changed if the whole text is changed to `how`. `first`
 * is true for the first character of the text, and after_cased for a character after a cased
 * one. */
static jinja_case case_of_char(jinja_case how, bool first, bool after_cased)
{
    if (how == JINJA_CASE_CAPITALIZE)
        return first ? JINJA_CASE_TITLE : JINJA_CASE_LOWER;
    if (how == JINJA_CASE_TITLE)
        return after_cased ? JINJA_CASE_LOWER : JINJA_CASE_TITLE;
    return how;
}

fsdp_status fsdp_jinja_change_case(jinja_machine *machine, const jinja_string *text, jinja_case how,
                                   jinja_value *out)
{
    char *changed;
    size_t used = 0;
    bool after_cased = false;
    /* The case change that lengthens a text most turns two bytes into six, so three times the bytes
     * suffice. */
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes));
    FSDP_TRY(fsdp_jinja_alloc(machine, 3 * text->bytes + 4, &changed));
    for (size_t at = 0; at < text->bytes;) {
        size_t after = at, n = 0;
        uint32_t mapped[3];
        const uint32_t c = fsdp_jinja_next_char(text->data, text->bytes, &after);
        FSDP_TRY(map_char(text, at, after, c, case_of_char(how, at == 0, after_cased), mapped, &n));
        for (size_t i = 0; i < n; i++)
            used += fsdp_jinja_put_char(mapped[i], changed + used);
        after_cased = is_cased(c);
        at = after;
    }
    return fsdp_jinja_substring(machine, changed, used, out);
}
