/* Translates a pattern from left to right. The position of the last atom (the expression to which a
 * quantifier applies) in the output is remembered. If PCRE2 would apply a quantifier differently
 * than Oniguruma, the atom is first put into a group of its own. */
#include "src/text/regex/regex_syntax.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/utf8.h"
#include "src/text/regex/regex_class.h"

enum {
    GROUP_DEPTH_MAX = 200,
    REPEAT_MAX = 65535 /* PCRE2's limit */
};
#define NO_ATOM SIZE_MAX

/* A group of the pattern that has been opened but not closed yet. */
typedef struct group {
    size_t begin; /* position in the output at which the translation of the group begins */
    /* The group was opened by an option without a colon, such as (?i). Such a group ends where the
     * group that contains it ends. */
    bool of_an_option;
} group;

typedef struct translation {
    fsdp_regex_pattern p;
    fsdp_str out;
    size_t atom;     /* position in the output at which the last atom begins, or NO_ATOM */
    bool quantified; /* the last atom has a quantifier */
    group groups[GROUP_DEPTH_MAX];
    int depth;
} translation;

static char peek(const translation *t)
{
    return t->p.text[t->p.at];
}

static bool accept(translation *t, const char *text)
{
    const size_t n = strlen(text);
    if (strncmp(t->p.text + t->p.at, text, n) != 0)
        return false;
    t->p.at += n;
    return true;
}

static void begin_atom(translation *t)
{
    t->atom = t->out.len;
    t->quantified = false;
}

/* ---- groups ---- */

static fsdp_status open_group(translation *t, bool of_an_option, const char *text, size_t length)
{
    if (t->depth == GROUP_DEPTH_MAX)
        return fsdp_regex_error(FSDP_ERR_UNSUPPORTED, &t->p, t->p.at, "groups nested too deeply");
    t->groups[t->depth++] = (group){t->out.len, of_an_option};
    fsdp_str_append(&t->out, text, length);
    t->atom = NO_ATOM;
    return FSDP_OK;
}

/* Read the letters of an option (?imx-imx) or (?imx-imx:, and open a group with the corresponding
 * letters of PCRE2. */
static fsdp_status open_options(translation *t, size_t start)
{
    char text[32] = "(?";
    size_t n = 2;
    for (; peek(t) && strchr("imx-", peek(t)) && n + 3 < sizeof text; t->p.at++) {
        if (peek(t) == 'x')
            return fsdp_regex_error(FSDP_ERR_UNSUPPORTED, &t->p, start,
                                    "the option x (extended) is not supported");
        text[n++] = peek(t) == 'm' ? 's' : peek(t);
    }
    const bool of_an_option = peek(t) == ')';
    if (!of_an_option && peek(t) != ':')
        return fsdp_regex_error(FSDP_ERR_UNSUPPORTED, &t->p, start,
                                "the group '%.8s' is not supported", t->p.text + start);
    t->p.at++;
    text[n++] = ':';
    return open_group(t, of_an_option, text, n);
}

/* Translate the beginning of a group. The pattern's position is after '('. */
static fsdp_status translate_group(translation *t)
{
    static const char *const same[] = {"?:", "?=", "?!", "?>", "?<=", "?<!"};
    const size_t start = t->p.at - 1;
    if (accept(t, "?#")) {
        t->p.at += strcspn(t->p.text + t->p.at, ")");
        if (!accept(t, ")"))
            return fsdp_regex_error(FSDP_ERR_FORMAT, &t->p, start, "a comment without its end");
        return FSDP_OK;
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (accept(t, same[i]))
            return open_group(t, false, t->p.text + start, t->p.at - start);
    if (peek(t) != '?')
        return open_group(t, false, "(", 1);
    const char *name = t->p.text + t->p.at + 2;
    if (t->p.text[t->p.at + 1] == '<' && (isalpha((unsigned char)*name) || *name == '_')) {
        t->p.at += strcspn(t->p.text + t->p.at, ">");
        if (!accept(t, ">"))
            return fsdp_regex_error(FSDP_ERR_FORMAT, &t->p, start, "a name without its end");
        return open_group(t, false, t->p.text + start, t->p.at - start);
    }
    t->p.at++;
    return open_options(t, start);
}

/* Close the innermost open groups as long as they were opened by options without a colon. */
static void close_options(translation *t)
{
    while (t->depth > 0 && t->groups[t->depth - 1].of_an_option) {
        fsdp_str_append(&t->out, ")", 1);
        t->depth--;
    }
}

static fsdp_status close_group(translation *t)
{
    close_options(t);
    if (t->depth == 0)
        return fsdp_regex_error(FSDP_ERR_FORMAT, &t->p, t->p.at - 1, "a ')' without its '('");
    fsdp_str_append(&t->out, ")", 1);
    t->atom = t->groups[--t->depth].begin;
    t->quantified = false;
    return FSDP_OK;
}

/* ---- quantifiers ---- */

/* Put a group around the last atom and its quantifier in the output. */
static void wrap_atom(translation *t)
{
    fsdp_str wrapped = {0};
    if (t->out.failed)
        return; /* nothing to do: fsdp_str_take() will report this failure */
    fsdp_str_append(&wrapped, t->out.data + t->atom, t->out.len - t->atom);
    t->out.len = t->atom;
    fsdp_str_printf(&t->out, "(?:%s)", wrapped.data ? wrapped.data : "");
    t->out.failed |= wrapped.failed;
    fsdp_str_fini(&wrapped);
}

/* Read an interval {n}, {n,}, {,m} or {n,m} at the pattern's position. Set *least and *most to its
 * numbers (*most is -1 for {n,}), move past it, and return true. Return false if there is no
 * interval. */
static bool read_interval(translation *t, long *least, long *most)
{
    const char *p = t->p.text + t->p.at + 1;
    char *end;
    const bool has_least = isdigit((unsigned char)*p);
    *least = has_least ? strtol(p, &end, 10) : 0;
    if (has_least)
        p = end;
    *most = *least;
    if (*p == ',') {
        p++;
        *most = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : -1;
        if (*most >= 0)
            p = end;
    } else if (!has_least) {
        return false;
    }
    if (*p != '}' || (!has_least && *most < 0))
        return false;
    t->p.at = (size_t)(p + 1 - t->p.text);
    return true;
}

static fsdp_status translate_interval(translation *t, size_t start, long least, long most)
{
    if (least > REPEAT_MAX || most > REPEAT_MAX)
        return fsdp_regex_error(FSDP_ERR_UNSUPPORTED, &t->p, start,
                                "a repetition of more than %d times", (int)REPEAT_MAX);
    if (most < 0)
        fsdp_str_printf(&t->out, "{%ld,}", least);
    else if (most < least) /* in Oniguruma, {5,2} means {2,5}+ */
        fsdp_str_printf(&t->out, "{%ld,%ld}+", most, least);
    else
        fsdp_str_printf(&t->out, "{%ld,%ld}", least, most);
    if (accept(t, "?")) {
        if (least != most) {
            fsdp_str_append(&t->out, "?", 1);
        } else { /* in Oniguruma, {n}? means (?:{n})? */
            wrap_atom(t);
            fsdp_str_append(&t->out, "?", 1);
        }
    }
    return FSDP_OK;
}

static fsdp_status translate_quantifier(translation *t, bool *is_quantifier)
{
    const size_t start = t->p.at;
    const char kind = peek(t);
    long least = 0, most = 0;
    *is_quantifier = kind != '{' || read_interval(t, &least, &most);
    if (!*is_quantifier)
        return FSDP_OK;
    if (t->atom == NO_ATOM)
        return fsdp_regex_error(FSDP_ERR_FORMAT, &t->p, start, "nothing that '%c' could repeat",
                                kind);
    if (t->quantified)
        wrap_atom(t);
    t->quantified = true;
    if (kind == '{')
        return translate_interval(t, start, least, most);
    t->p.at++;
    fsdp_str_append(&t->out, &kind, 1);
    if (peek(t) == '?' || peek(t) == '+')
        fsdp_str_append(&t->out, t->p.text + t->p.at++, 1);
    return FSDP_OK;
}

/* ---- escapes ---- */

/* Return the translation of the escape \<kind>, if the escape always has the same one. Otherwise,
 * return NULL. */
static const char *fixed_escape(char kind)
{
#define WORD "[" FSDP_REGEX_WORD "]"
    switch (kind) {
    case 'd':
        return "[" FSDP_REGEX_DIGIT "]";
    case 'D':
        return "[^" FSDP_REGEX_DIGIT "]";
    case 's':
        return "[" FSDP_REGEX_SPACE "]";
    case 'S':
        return "[^" FSDP_REGEX_SPACE "]";
    case 'w':
        return WORD;
    case 'W':
        return "[^" FSDP_REGEX_WORD "]";
    case 'h':
        return "[" FSDP_REGEX_HEX "]";
    case 'H':
        return "[^" FSDP_REGEX_HEX "]";
    case 'b':
        return "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))";
    case 'B':
        return "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))";
    case 'R':
        return "(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])";
    case 'N':
        return "[^\\n]";
    case 'O':
        return "(?s:.)";
    case 'A':
        return "\\A";
    case 'z':
        return "\\z";
    case 'Z':
        return "\\Z";
    case 'X':
        return "\\X";
    case 'K':
        return "\\K";
    default:
        return NULL;
    }
#undef WORD
}

static fsdp_status translate_property(translation *t)
{
    fsdp_str items = {0};
    bool negated;
    fsdp_status status = fsdp_regex_property(&t->p, &items, &negated);
    if (status == FSDP_OK)
        fsdp_str_printf(&t->out, "[%s%s]", negated ? "^" : "", items.data ? items.data : "");
    t->out.failed |= items.failed;
    fsdp_str_fini(&items);
    return status;
}

/* Translate \1 or \k<name>, a reference to a group. The pattern's position is after the
 * backslash. */
static fsdp_status translate_reference(translation *t)
{
    if (isdigit((unsigned char)peek(t))) {
        char *end;
        const long number = strtol(t->p.text + t->p.at, &end, 10);
        if (number > GROUP_DEPTH_MAX)
            return fsdp_regex_error(FSDP_ERR_UNSUPPORTED, &t->p, t->p.at,
                                    "a reference to group %ld is not supported", number);
        t->p.at = (size_t)(end - t->p.text);
        fsdp_str_printf(&t->out, "\\g{%ld}", number);
        return FSDP_OK;
    }
    const size_t length = strcspn(t->p.text + t->p.at, ">");
    if (t->p.text[t->p.at + 1] != '<' || !t->p.text[t->p.at + length])
        return fsdp_regex_error(FSDP_ERR_FORMAT, &t->p, t->p.at, "a broken reference");
    fsdp_str_printf(&t->out, "\\k{%.*s}", (int)length - 2, t->p.text + t->p.at + 2);
    t->p.at += length + 1;
    return FSDP_OK;
}

/* Translate an escape. The pattern's position is after the backslash. */
static fsdp_status translate_escape(translation *t)
{
    bool is_character;
    uint32_t c;
    begin_atom(t);
    const char kind = peek(t);
    if ((isdigit((unsigned char)kind) && kind != '0') || kind == 'k')
        return translate_reference(t);
    FSDP_TRY(fsdp_regex_escaped_character(&t->p, &is_character, &c));
    if (is_character) {
        fsdp_regex_append_literal(&t->out, c);
        return FSDP_OK;
    }
    if (kind == 'p' || kind == 'P')
        return translate_property(t);
    const char *text = fixed_escape(kind);
    if (!text)
        return fsdp_regex_error(FSDP_ERR_UNSUPPORTED, &t->p, t->p.at - 1,
                                "the escape \\%c is not supported", kind);
    fsdp_str_append(&t->out, text, strlen(text));
    t->p.at++;
    return FSDP_OK;
}

/* ---- the whole pattern ---- */

static void translate_literal(translation *t)
{
    size_t length;
    begin_atom(t);
    fsdp_regex_append_literal(&t->out, fsdp_utf8_decode(t->p.text + t->p.at, &length));
    t->p.at += length;
}

static fsdp_status translate_next(translation *t)
{
    bool is_quantifier;
    switch (peek(t)) {
    case '\\':
        t->p.at++;
        return translate_escape(t);
    case '[':
        t->p.at++;
        begin_atom(t);
        return fsdp_regex_class(&t->p, 0, &t->out);
    case '(':
        t->p.at++;
        return translate_group(t);
    case ')':
        t->p.at++;
        return close_group(t);
    case '|':
        t->p.at++;
        fsdp_str_append(&t->out, "|", 1);
        t->atom = NO_ATOM;
        return FSDP_OK;
    case '.':
    case '^':
    case '$':
        begin_atom(t);
        fsdp_str_append(&t->out, t->p.text + t->p.at++, 1);
        return FSDP_OK;
    case '*':
    case '+':
    case '?':
    case '{':
        FSDP_TRY(translate_quantifier(t, &is_quantifier));
        if (!is_quantifier)
            translate_literal(t);
        return FSDP_OK;
    default:
        translate_literal(t);
        return FSDP_OK;
    }
}

static fsdp_status translate(translation *t)
{
    while (peek(t))
        FSDP_TRY(translate_next(t));
    close_options(t);
    if (t->depth > 0)
        return fsdp_regex_error(FSDP_ERR_FORMAT, &t->p, t->p.at, "a '(' without its ')'");
    return FSDP_OK;
}

fsdp_status fsdp_regex_translate(const char *pattern, char **out)
{
    const size_t length = strlen(pattern), valid = fsdp_utf8_valid_length(pattern, length);
    if (valid < length)
        return fsdp_error(FSDP_ERR_FORMAT, "a regular expression is not UTF-8 at byte %zu", valid);
    translation *t = fsdp_calloc(1, sizeof *t);
    if (!t)
        return FSDP_ERR_NOMEM;
    t->p.text = pattern;
    t->atom = NO_ATOM;
    fsdp_status status = translate(t);
    char *text = NULL;
    if (status == FSDP_OK && !(text = fsdp_str_take(&t->out)))
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        *out = text;
    fsdp_str_fini(&t->out);
    fsdp_free(t);
    return status;
}
