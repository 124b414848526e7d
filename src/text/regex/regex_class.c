/* Translates character classes. If PCRE2 allows all items of a class in one bracket [...], the
 * class becomes one bracket. Otherwise, each item that is not allowed becomes an expression of its
 * own, and the class becomes an alternation: [a\W] becomes (?:[a]|[^...]). The negation of an
 * alternation is (?:(?!...)(?s:.)). In an intersection (&&), all operands except the last become
 * lookaheads. */
#include "src/text/regex/regex_class.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/text/chars/utf8.h"

enum {
    CLASS_DEPTH_MAX = 16,
    NAME_MAX_BYTES = 64
};

fsdp_status fsdp_regex_error(fsdp_status status, const fsdp_regex_pattern *p, size_t at,
                             const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return fsdp_error(status, "the regular expression '%.400s': %s at byte %zu", p->text, what, at);
}

void fsdp_regex_append_literal(fsdp_str *out, uint32_t c)
{
    if (c < 0x80 && isalnum((int)c))
        fsdp_str_append(out, &(char){(char)c}, 1);
    else
        fsdp_str_printf(out, "\\x{%X}", (unsigned)c);
}

static char peek(const fsdp_regex_pattern *p)
{
    return p->text[p->at];
}

static bool accept(fsdp_regex_pattern *p, const char *text)
{
    const size_t n = strlen(text);
    if (strncmp(p->text + p->at, text, n) != 0)
        return false;
    p->at += n;
    return true;
}

/* ---- escapes ---- */

/* Read up to `most` hexadecimal digits, set *c to their value, and return their number. If there
 * are none, *c is unchanged. */
static size_t read_hex(fsdp_regex_pattern *p, size_t most, uint32_t *c)
{
    size_t n = 0;
    uint32_t value = 0;
    for (; n < most && isxdigit((unsigned char)peek(p)); n++, p->at++) {
        const char digit[2] = {peek(p), 0};
        value = value * 16 + (uint32_t)strtoul(digit, NULL, 16);
    }
    if (n)
        *c = value;
    return n;
}

static fsdp_status read_hex_escape(fsdp_regex_pattern *p, char kind, uint32_t *c)
{
    const size_t start = p->at - 2;
    if (kind == 'x' && accept(p, "{")) {
        if (!read_hex(p, 8, c) || !accept(p, "}") || *c > 0x10FFFF)
            return fsdp_regex_error(FSDP_ERR_FORMAT, p, start, "a broken \\x{...}");
        return FSDP_OK;
    }
    if (kind == 'u') {
        if (read_hex(p, 4, c) != 4)
            return fsdp_regex_error(FSDP_ERR_FORMAT, p, start, "a broken \\uHHHH");
        return FSDP_OK;
    }
    *c = 0;
    (void)read_hex(p, 2, c);
    if (*c >= 0x80)
        return fsdp_regex_error(FSDP_ERR_UNSUPPORTED, p, start,
                                "\\x%02X, a byte that is not a character, is not supported", *c);
    return FSDP_OK;
}

fsdp_status fsdp_regex_escaped_character(fsdp_regex_pattern *p, bool *is_character, uint32_t *c)
{
    static const char letters[] = "tnrfvae", values[] = "\t\n\r\f\v\a\x1B";
    const char kind = peek(p);
    const char *letter = kind ? strchr(letters, kind) : NULL;
    *is_character = true;
    if (letter) {
        *c = (unsigned char)values[letter - letters];
        p->at++;
    } else if (kind == 'x' || kind == 'u') {
        p->at++;
        return read_hex_escape(p, kind, c);
    } else if (kind == '0') {
        uint32_t value = 0;
        for (int n = 0; n < 3 && peek(p) >= '0' && peek(p) <= '7'; n++, p->at++)
            value = value * 8 + (uint32_t)(peek(p) - '0');
        *c = value;
    } else if (!kind) {
        return fsdp_regex_error(FSDP_ERR_FORMAT, p, p->at, "nothing after the backslash");
    } else if (!isalnum((unsigned char)kind)) {
        size_t length;
        *c = fsdp_utf8_decode(p->text + p->at, &length);
        p->at += length;
    } else {
        *is_character = false;
    }
    return FSDP_OK;
}

/* ---- properties ---- */

typedef struct property {
    const char *name; /* name of the property in lower case, without spaces, '-' and '_' */
    const char *items;
} property;

static const property properties[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}" FSDP_REGEX_NEWER_ALPHABETIC FSDP_REGEX_NEWER_ND},
    {"alpha", "\\p{Alphabetic}" FSDP_REGEX_NEWER_ALPHABETIC},
    {"ascii", "\\x{0}-\\x{7F}"},
    {"blank", "\\p{Zs}\\t" FSDP_REGEX_NEWER_ZS},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}" FSDP_REGEX_NEWER_ND},
    {"lower", "\\p{Lowercase}" FSDP_REGEX_NEWER_LOWERCASE},
    {"punct", "\\p{P}$+<=>^`|~" FSDP_REGEX_NEWER_P},
    {"space", FSDP_REGEX_SPACE},
    {"upper", "\\p{Uppercase}" FSDP_REGEX_NEWER_UPPERCASE},
    {"xdigit", FSDP_REGEX_HEX},
    {"word", FSDP_REGEX_WORD},
    {"any", "\\x{0}-\\x{10FFFF}"},
    {"letter", "\\p{L}" FSDP_REGEX_NEWER_L},
    {"uppercaseletter", "\\p{Lu}" FSDP_REGEX_NEWER_LU},
    {"lowercaseletter", "\\p{Ll}" FSDP_REGEX_NEWER_LL},
    {"titlecaseletter", "\\p{Lt}" FSDP_REGEX_NEWER_LT},
    {"casedletter",
     "\\p{Lu}\\p{Ll}\\p{Lt}" FSDP_REGEX_NEWER_LU FSDP_REGEX_NEWER_LL FSDP_REGEX_NEWER_LT},
    {"lc", "\\p{Lu}\\p{Ll}\\p{Lt}" FSDP_REGEX_NEWER_LU FSDP_REGEX_NEWER_LL FSDP_REGEX_NEWER_LT},
    {"modifierletter", "\\p{Lm}" FSDP_REGEX_NEWER_LM},
    {"otherletter", "\\p{Lo}" FSDP_REGEX_NEWER_LO},
    {"mark", "\\p{M}" FSDP_REGEX_NEWER_M},
    {"combiningmark", "\\p{M}" FSDP_REGEX_NEWER_M},
    {"nonspacingmark", "\\p{Mn}" FSDP_REGEX_NEWER_MN},
    {"spacingmark", "\\p{Mc}" FSDP_REGEX_NEWER_MC},
    {"enclosingmark", "\\p{Me}" FSDP_REGEX_NEWER_ME},
    {"number", "\\p{N}" FSDP_REGEX_NEWER_N},
    {"decimalnumber", "\\p{Nd}" FSDP_REGEX_NEWER_ND},
    {"letternumber", "\\p{Nl}" FSDP_REGEX_NEWER_NL},
    {"othernumber", "\\p{No}" FSDP_REGEX_NEWER_NO},
    {"punctuation", "\\p{P}" FSDP_REGEX_NEWER_P},
    {"connectorpunctuation", "\\p{Pc}" FSDP_REGEX_NEWER_PC},
    {"dashpunctuation", "\\p{Pd}" FSDP_REGEX_NEWER_PD},
    {"openpunctuation", "\\p{Ps}" FSDP_REGEX_NEWER_PS},
    {"closepunctuation", "\\p{Pe}" FSDP_REGEX_NEWER_PE},
    {"initialpunctuation", "\\p{Pi}" FSDP_REGEX_NEWER_PI},
    {"finalpunctuation", "\\p{Pf}" FSDP_REGEX_NEWER_PF},
    {"otherpunctuation", "\\p{Po}" FSDP_REGEX_NEWER_PO},
    {"symbol", "\\p{S}" FSDP_REGEX_NEWER_S},
    {"mathsymbol", "\\p{Sm}" FSDP_REGEX_NEWER_SM},
    {"currencysymbol", "\\p{Sc}" FSDP_REGEX_NEWER_SC},
    {"modifiersymbol", "\\p{Sk}" FSDP_REGEX_NEWER_SK},
    {"othersymbol", "\\p{So}" FSDP_REGEX_NEWER_SO},
    {"separator", "\\p{Z}" FSDP_REGEX_NEWER_Z},
    {"spaceseparator", "\\p{Zs}" FSDP_REGEX_NEWER_ZS},
    {"lineseparator", "\\p{Zl}"},
    {"paragraphseparator", "\\p{Zp}"},
    {"other", "\\p{C}"},
    {"control", "\\p{Cc}"},
    {"format", "\\p{Cf}" FSDP_REGEX_NEWER_CF},
    {"unassigned", "\\p{Cn}"},
    {"privateuse", "\\p{Co}"},
    {"surrogate", "\\p{Cs}"},
    {"alphabetic", "\\p{Alphabetic}" FSDP_REGEX_NEWER_ALPHABETIC},
    {"lowercase", "\\p{Lowercase}" FSDP_REGEX_NEWER_LOWERCASE},
    {"uppercase", "\\p{Uppercase}" FSDP_REGEX_NEWER_UPPERCASE},
    {"whitespace", FSDP_REGEX_SPACE},
    {"emoji", "\\p{Emoji}"},
    {"extendedpictographic", "\\p{ExtPict}"},
    {"ideographic", "\\p{Ideographic}"},
};

/* General categories, each with its characters that PCRE2's version of Unicode may lack. */
static const char *const categories[][2] = {
    {"L", FSDP_REGEX_NEWER_L},
    {"Lu", FSDP_REGEX_NEWER_LU},
    {"Ll", FSDP_REGEX_NEWER_LL},
    {"Lt", FSDP_REGEX_NEWER_LT},
    {"Lm", FSDP_REGEX_NEWER_LM},
    {"Lo", FSDP_REGEX_NEWER_LO},
    {"M", FSDP_REGEX_NEWER_M},
    {"Mn", FSDP_REGEX_NEWER_MN},
    {"Mc", FSDP_REGEX_NEWER_MC},
    {"Me", FSDP_REGEX_NEWER_ME},
    {"N", FSDP_REGEX_NEWER_N},
    {"Nd", FSDP_REGEX_NEWER_ND},
    {"Nl", FSDP_REGEX_NEWER_NL},
    {"No", FSDP_REGEX_NEWER_NO},
    {"P", FSDP_REGEX_NEWER_P},
    {"Pc", FSDP_REGEX_NEWER_PC},
    {"Pd", FSDP_REGEX_NEWER_PD},
    {"Ps", FSDP_REGEX_NEWER_PS},
    {"Pe", FSDP_REGEX_NEWER_PE},
    {"Pi", FSDP_REGEX_NEWER_PI},
    {"Pf", FSDP_REGEX_NEWER_PF},
    {"Po", FSDP_REGEX_NEWER_PO},
    {"S", FSDP_REGEX_NEWER_S},
    {"Sm", FSDP_REGEX_NEWER_SM},
    {"Sc", FSDP_REGEX_NEWER_SC},
    {"Sk", FSDP_REGEX_NEWER_SK},
    {"So", FSDP_REGEX_NEWER_SO},
    {"Z", FSDP_REGEX_NEWER_Z},
    {"Zs", FSDP_REGEX_NEWER_ZS},
    {"Zl", ""},
    {"Zp", ""},
    {"C", ""},
    {"Cc", ""},
    {"Cf", FSDP_REGEX_NEWER_CF},
    {"Cn", ""},
    {"Co", ""},
    {"Cs", ""},
};

static const char *find_property(const char *name)
{
    for (size_t i = 0; i < FSDP_LENGTH(properties); i++)
        if (strcmp(properties[i].name, name) == 0)
            return properties[i].items;
    return NULL;
}

/* Append the contents of a bracket for the property whose name is text [length]. */
static fsdp_status append_property(const fsdp_regex_pattern *p, size_t start, const char *text,
                                   size_t length, fsdp_str *out)
{
    char name[NAME_MAX_BYTES];
    size_t n = 0;
    for (size_t i = 0; i < length && n + 1 < sizeof name; i++)
        if (isalnum((unsigned char)text[i]))
            name[n++] = (char)tolower((unsigned char)text[i]);
        else if (!strchr(" -_", text[i]))
            return fsdp_regex_error(FSDP_ERR_UNSUPPORTED, p, start,
                                    "the property '%.*s' is not supported", (int)length, text);
    name[n] = 0;
    const char *items = find_property(name);
    if (items) {
        fsdp_str_append(out, items, strlen(items));
        return FSDP_OK;
    }
    for (size_t i = 0; i < FSDP_LENGTH(categories); i++)
        if (strcasecmp(categories[i][0], name) == 0) {
            fsdp_str_printf(out, "\\p{%s}%s", categories[i][0], categories[i][1]);
            return FSDP_OK;
        }
    /* Any other name must be that of a script. If there is no such script, PCRE2 reports an error.
     * Without "sc:", PCRE2 would also match characters that have the script only among their
     * Script_Extensions. */
    fsdp_str_printf(out, "\\p{sc:%s}", name);
    return FSDP_OK;
}

fsdp_status fsdp_regex_property(fsdp_regex_pattern *p, fsdp_str *out, bool *negated)
{
    const size_t start = p->at - 1;
    *negated = peek(p) == 'P';
    p->at++;
    const char *name = p->text + p->at;
    size_t length = 1;
    if (accept(p, "{")) {
        if (accept(p, "^"))
            *negated = !*negated;
        name = p->text + p->at;
        length = strcspn(name, "}");
        if (!name[length] || !length)
            return fsdp_regex_error(FSDP_ERR_FORMAT, p, start, "a property without its end");
        p->at += length + 1;
    } else {
        return fsdp_regex_error(FSDP_ERR_FORMAT, p, start, "a property without braces");
    }
    return append_property(p, start, name, length, out);
}

/* ---- classes ---- */

/* The translation of one operand of && in a class. */
typedef struct operand {
    fsdp_str items;   /* items that can be in one bracket, without the bracket */
    fsdp_str choices; /* expressions for the other items, each after '|' */
} operand;

static void operand_fini(operand *o)
{
    fsdp_str_fini(&o->items);
    fsdp_str_fini(&o->choices);
}

static void add_negated(operand *o, const char *items)
{
    fsdp_str_printf(&o->choices, "|[^%s]", items);
}

static fsdp_status add_property(fsdp_regex_pattern *p, operand *o)
{
    fsdp_str items = {0};
    bool negated;
    fsdp_status status = fsdp_regex_property(p, &items, &negated);
    if (status == FSDP_OK && items.data) {
        if (negated)
            add_negated(o, items.data);
        else
            fsdp_str_append(&o->items, items.data, items.len);
    }
    fsdp_str_fini(&items);
    return status;
}

/* Add an item of a class that is an escape for several characters, such as \d. The pattern's
 * position is after the backslash. */
static fsdp_status add_class_escape(fsdp_regex_pattern *p, operand *o)
{
    const char kind = peek(p);
    if (kind == 'p' || kind == 'P')
        return add_property(p, o);
    p->at++;
    switch (kind) {
    case 'd':
        fsdp_str_printf(&o->items, "%s", FSDP_REGEX_DIGIT);
        break;
    case 'D':
        add_negated(o, FSDP_REGEX_DIGIT);
        break;
    case 's':
        fsdp_str_printf(&o->items, "%s", FSDP_REGEX_SPACE);
        break;
    case 'S':
        fsdp_str_printf(&o->items, "%s", FSDP_REGEX_NOT_SPACE);
        break;
    case 'w':
        fsdp_str_printf(&o->items, "%s", FSDP_REGEX_WORD);
        break;
    case 'W':
        add_negated(o, FSDP_REGEX_WORD);
        break;
    case 'h':
        fsdp_str_printf(&o->items, "%s", FSDP_REGEX_HEX);
        break;
    case 'H':
        add_negated(o, FSDP_REGEX_HEX);
        break;
    case 'b':
        fsdp_regex_append_literal(&o->items, '\b');
        break;
    default:
        return fsdp_regex_error(FSDP_ERR_UNSUPPORTED, p, p->at - 2,
                                "the escape \\%c in a class is not supported", kind);
    }
    return FSDP_OK;
}

/* If a POSIX bracket [:name:] is at the pattern's position, add its items to `o`, move past it, and
 * set *added to true. Otherwise, set *added to false. */
static fsdp_status add_posix(fsdp_regex_pattern *p, operand *o, bool *added)
{
    const char *name = p->text + p->at + 2;
    const bool negated = *name == '^';
    name += negated;
    const size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz");
    *added = length > 0 && name[length] == ':' && name[length + 1] == ']';
    if (!*added)
        return FSDP_OK;
    char copy[NAME_MAX_BYTES];
    snprintf(copy, sizeof copy, "%.*s", (int)length, name);
    const char *items = find_property(copy);
    if (!items || length > 6)
        return fsdp_regex_error(FSDP_ERR_UNSUPPORTED, p, p->at, "[:%s:] is not supported", copy);
    p->at = (size_t)(name + length + 2 - p->text);
    if (negated)
        add_negated(o, items);
    else
        fsdp_str_append(&o->items, items, strlen(items));
    return FSDP_OK;
}

/* If a character, or an escape that means one character, is at the pattern's position, set *c to
 * the character, set *is_character to true, and move past it. Otherwise, set *is_character to
 * false. */
static fsdp_status read_member(fsdp_regex_pattern *p, bool *is_character, uint32_t *c)
{
    if (accept(p, "\\"))
        return fsdp_regex_escaped_character(p, is_character, c);
    size_t length;
    *is_character = true;
    *c = fsdp_utf8_decode(p->text + p->at, &length);
    p->at += length;
    return FSDP_OK;
}

/* Add the character c to `o`. If '-' and the last character of a range are at the pattern's
 * position, add the range from c to this character instead. */
static fsdp_status add_range(fsdp_regex_pattern *p, operand *o, uint32_t c)
{
    const size_t before = p->at;
    uint32_t last = c;
    if (peek(p) == '-' && p->text[p->at + 1] && !strchr("][", p->text[p->at + 1])) {
        bool is_character;
        p->at++;
        FSDP_TRY(read_member(p, &is_character, &last));
        if (!is_character) { /* no range follows: in [a-\d], the dash is a character */
            p->at = before;
            last = c;
        } else if (last < c) {
            return fsdp_regex_error(FSDP_ERR_FORMAT, p, before, "a range with a wrong order");
        }
    }
    fsdp_regex_append_literal(&o->items, c);
    if (last != c) {
        fsdp_str_append(&o->items, "-", 1);
        fsdp_regex_append_literal(&o->items, last);
    }
    return FSDP_OK;
}

static fsdp_status add_item(fsdp_regex_pattern *p, int depth, operand *o)
{
    uint32_t c = 0;
    bool is_character = true, added = false;
    if (peek(p) == '[') {
        if (p->text[p->at + 1] == ':')
            FSDP_TRY(add_posix(p, o, &added));
        if (added)
            return FSDP_OK;
        p->at++;
        fsdp_str_append(&o->choices, "|", 1);
        return fsdp_regex_class(p, depth + 1, &o->choices);
    }
    FSDP_TRY(read_member(p, &is_character, &c));
    return is_character ? add_range(p, o, c) : add_class_escape(p, o);
}

/* Append an expression that matches the characters of one operand. */
static void finish_operand(const operand *o, fsdp_str *out)
{
    if (!o->choices.len) {
        fsdp_str_printf(out, "[%s]", o->items.data ? o->items.data : "");
        return;
    }
    fsdp_str_printf(out, "(?:");
    if (o->items.len)
        fsdp_str_printf(out, "[%s]", o->items.data);
    fsdp_str_append(out, o->choices.data + (o->items.len ? 0 : 1),
                    o->choices.len - (o->items.len ? 0 : 1));
    fsdp_str_append(out, ")", 1);
}

/* Read an operand of the class, up to && or ], and append an expression for it. Set *last to true
 * if it ends with ], and to false if it ends with &&. Set *simple to false if the whole class
 * cannot be written as one bracket [...] in PCRE2. */
static fsdp_status read_operand(fsdp_regex_pattern *p, int depth, bool negated, fsdp_str *out,
                                bool *simple, bool *last)
{
    operand o = {0};
    fsdp_status status = FSDP_OK;
    bool first = true;
    while (status == FSDP_OK && peek(p) && (first || peek(p) != ']') &&
           strncmp(p->text + p->at, "&&", 2) != 0) {
        status = add_item(p, depth, &o);
        first = false;
    }
    if (status == FSDP_OK && !peek(p))
        status = fsdp_regex_error(FSDP_ERR_FORMAT, p, p->at, "a class without its ']'");
    if (status == FSDP_OK && first)
        status = fsdp_regex_error(FSDP_ERR_FORMAT, p, p->at, "an empty class");
    if (status == FSDP_OK) {
        *last = accept(p, "]");
        if (!*last)
            p->at += 2;
        *simple = *simple && *last && !o.choices.len;
        if (*simple && negated)
            fsdp_str_printf(out, "[^%s]", o.items.data ? o.items.data : "");
        else
            finish_operand(&o, out);
        out->failed |= o.items.failed || o.choices.failed;
    }
    operand_fini(&o);
    return status;
}

/* Append an expression for one character. The character must match the lookaheads `ahead` and the
 * expression `last` or, if `negated` is true, must not match all of them. */
static void join_operands(fsdp_str *out, const char *ahead, const char *last, bool negated)
{
    if (negated)
        fsdp_str_printf(out, "(?:(?!%s%s)(?s:.))", ahead, last);
    else if (*ahead)
        fsdp_str_printf(out, "(?:%s%s)", ahead, last);
    else
        fsdp_str_printf(out, "%s", last);
}

fsdp_status fsdp_regex_class(fsdp_regex_pattern *p, int depth, fsdp_str *out)
{
    if (depth > CLASS_DEPTH_MAX)
        return fsdp_regex_error(FSDP_ERR_UNSUPPORTED, p, p->at, "classes nested too deeply");
    const bool negated = accept(p, "^");
    bool simple = true, last = false;
    fsdp_str ahead = {0}, one = {0};
    fsdp_status status = read_operand(p, depth, negated, &one, &simple, &last);
    while (status == FSDP_OK && !last) {
        fsdp_str_printf(&ahead, "(?=%s)", one.data ? one.data : "");
        one.len = 0;
        simple = false;
        status = read_operand(p, depth, false, &one, &simple, &last);
    }
    if (status == FSDP_OK) {
        join_operands(out, ahead.data ? ahead.data : "", one.data ? one.data : "",
                      negated && !simple);
        out->failed |= ahead.failed || one.failed;
    }
    fsdp_str_fini(&ahead);
    fsdp_str_fini(&one);
    return status;
}
