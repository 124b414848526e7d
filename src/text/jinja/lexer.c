/* See lexer.h. The rules, the order in which they are tried, and the removal of white space are the
 * same as in jinja2/lexer.py. */
#include "src/text/jinja/lexer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/jinja/chars.h"

enum {
    MAX_BRACKETS = 200 /* largest depth of nested brackets in an expression */
};

typedef struct lexer {
    jinja_machine *machine;
    jinja_tokens *tokens;
    const char *source; /* [bytes]: a copy of the template in which all line ends are \n */
    size_t bytes, at;
    int line; /* number of the line that contains `at` */
    /* true: the offset `at` is at the beginning of the template, or after a token that ended with a
     * line end */
    bool line_starting;
    char brackets[MAX_BRACKETS]; /* for each bracket that is open, the bracket that will close it */
    int n_brackets;
} lexer;

static fsdp_status syntax_error(int line, const char *what)
{
    return fsdp_error(FSDP_ERR_FORMAT, "line %d: %s", line, what);
}

static bool has_at(const lexer *lex, size_t at, const char *text)
{
    const size_t bytes = strlen(text);
    return at <= lex->bytes && bytes <= lex->bytes - at &&
           memcmp(lex->source + at, text, bytes) == 0;
}

static size_t skip_spaces(const lexer *lex, size_t at)
{
    while (at < lex->bytes) {
        size_t next = at;
        if (!fsdp_jinja_is_space(fsdp_jinja_next_char(lex->source, lex->bytes, &next)))
            break;
        at = next;
    }
    return at;
}

static void move_to(lexer *lex, size_t at)
{
    for (size_t i = lex->at; i < at; i++)
        lex->line += lex->source[i] == '\n';
    lex->line_starting = at > lex->at && lex->source[at - 1] == '\n';
    lex->at = at;
}

static fsdp_status add_token(lexer *lex, jinja_token token)
{
    jinja_tokens *tokens = lex->tokens;
    if (!FSDP_GROW(tokens->items, tokens->cap, tokens->n + 1))
        return FSDP_ERR_NOMEM;
    tokens->items[tokens->n++] = token;
    return FSDP_OK;
}

static fsdp_status add_text(lexer *lex, jinja_token_type type, int line, size_t begin, size_t end)
{
    return add_token(
        lex, (jinja_token){
                 .type = type,
                 .line = line,
                 .text = {.data = lex->source + begin, .bytes = end - begin, .chars = SIZE_MAX}});
}

/* ---- where tags end -------------------------------------------------------------------------- */

/* Check whether a tag ends at offset `at`: with `close`, which is "%}" or "#}", or with a sign ('-'
 * or '+') and `close`. If it does, return the offset after `close` and after the white space that
 * this kind of end removes. Otherwise, return 0. */
static size_t end_of_block(const lexer *lex, size_t at, const char *close)
{
    if (at < lex->bytes && lex->source[at] == '+' && has_at(lex, at + 1, close))
        return at + 3;
    if (at < lex->bytes && lex->source[at] == '-' && has_at(lex, at + 1, close))
        return skip_spaces(lex, at + 3);
    if (!has_at(lex, at, close))
        return 0;
    return at + 2 + has_at(lex, at + 2, "\n"); /* because of trim_blocks, also skip one line end */
}

static size_t end_of_variable(const lexer *lex, size_t at)
{
    if (has_at(lex, at, "-}}"))
        return skip_spaces(lex, at + 3);
    return has_at(lex, at, "}}") ? at + 2 : 0;
}

/* ---- text between tags ----------------------------------------------------------------------- */

/* Add the text [begin, end), which is followed by a tag. If the tag begins with the sign '-', all
 * white space before the tag is removed. If it has no sign, lstrip_blocks removes the white space
 * between the beginning of the line and the tag, unless the tag is {{ (is_variable) or there is
 * other text in the line before the tag. */
static fsdp_status add_data(lexer *lex, size_t begin, size_t end, char sign, bool is_variable)
{
    const int line = lex->line;
    if (sign == '-') {
        while (end > begin) {
            const size_t last = fsdp_jinja_char_before(lex->source, end);
            size_t next = last;
            if (!fsdp_jinja_is_space(fsdp_jinja_next_char(lex->source, end, &next)))
                break;
            end = last;
        }
    } else if (sign != '+' && !is_variable) {
        size_t start = end;
        while (start > begin && lex->source[start - 1] != '\n')
            start--;
        if ((start > begin || lex->line_starting) && skip_spaces(lex, start) >= end)
            end = start;
    }
    return end > begin ? add_text(lex, JINJA_TOKEN_DATA, line, begin, end) : FSDP_OK;
}

static char sign_at(const lexer *lex, size_t at)
{
    const char c = at < lex->bytes ? lex->source[at] : 0;
    return c == '-' || c == '+' ? c : 0;
}

/* If there is a tag {% raw %} at offset `at`, return the offset after it. Otherwise, return 0. */
static size_t end_of_raw_begin(const lexer *lex, size_t at)
{
    size_t p = at + 2;
    p = skip_spaces(lex, p + (sign_at(lex, p) != 0));
    if (!has_at(lex, at, "{%") || !has_at(lex, p, "raw"))
        return 0;
    p = skip_spaces(lex, p + 3);
    if (has_at(lex, p, "-%}"))
        return skip_spaces(lex, p + 3);
    return has_at(lex, p, "%}") ? p + 2 : 0;
}

/* Add the text up to {% endraw %}. Tags in it are not recognized. */
static fsdp_status lex_raw(lexer *lex, size_t begin)
{
    move_to(lex, begin);
    for (size_t at = begin; at < lex->bytes; at++) {
        if (!has_at(lex, at, "{%"))
            continue;
        const char sign = sign_at(lex, at + 2);
        size_t p = skip_spaces(lex, at + 2 + (sign != 0));
        if (!has_at(lex, p, "endraw"))
            continue;
        const size_t end = end_of_block(lex, skip_spaces(lex, p + 6), "%}");
        if (!end)
            continue;
        FSDP_TRY(add_data(lex, begin, at, sign, false));
        move_to(lex, end);
        return FSDP_OK;
    }
    return syntax_error(lex->line, "missing end of raw directive");
}

static fsdp_status lex_comment(lexer *lex, size_t begin)
{
    for (size_t at = begin; at < lex->bytes; at++) {
        const size_t end = end_of_block(lex, at, "#}");
        if (end) {
            move_to(lex, end);
            return FSDP_OK;
        }
    }
    return syntax_error(lex->line, "missing end of comment tag");
}

/* ---- literals -------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Set *c to the value of the `digits` hexadecimal digits at p. Return false if there are fewer
 * digits before `end`, or if the value is not a code point. */
static bool read_hex(const char *p, const char *end, int digits, uint32_t *c)
{
    *c = 0;
    for (int i = 0; i < digits; i++) {
        const int digit = p + i < end ? hex_digit(p[i]) : -1;
        if (digit < 0)
            return false;
        *c = *c << 4 | (uint32_t)digit;
    }
    return *c < 0xD800 || (*c >= 0xE000 && *c <= 0x10FFFF);
}

/* Read an escape sequence. *p is after its backslash. Append the character to `out`. Return false
 * if the escape is malformed or not supported. If the letter after the backslash has no meaning,
 * the backslash and the letter are appended, as in Python. */
static bool read_escape(const char **p, const char *end, char *out, size_t *used)
{
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = *(*p)++;
    const char *letter = c ? strchr(letters, c) : NULL;
    uint32_t code = 0;
    if (letter) {
        out[(*used)++] = values[letter - letters];
        return true;
    }
    if (c == '\n')
        return true;
    if (c >= '0' && c <= '7') {
        code = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *p < end && **p >= '0' && **p <= '7'; i++)
            code = code * 8 + (uint32_t)(*(*p)++ - '0');
        *used += fsdp_jinja_put_char(code, out + *used);
        return true;
    }
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits) {
        if (!read_hex(*p, end, digits, &code))
            return false;
        *p += digits;
        *used += fsdp_jinja_put_char(code, out + *used);
        return true;
    }
    out[(*used)++] = '\\';
    out[(*used)++] = c;
    return c != 'N' && (unsigned char)c < 0x80;
}

static fsdp_status lex_string(lexer *lex)
{
    const char quote = lex->source[lex->at];
    const size_t begin = lex->at + 1;
    size_t end = begin;
    while (end < lex->bytes && lex->source[end] != quote)
        end += lex->source[end] == '\\' ? 2 : 1;
    if (end >= lex->bytes)
        return syntax_error(lex->line, "a text in quotes has no end");
    char *text;
    size_t used = 0;
    FSDP_TRY(fsdp_jinja_alloc(lex->machine, end - begin + 4, &text));
    for (const char *p = lex->source + begin, *stop = lex->source + end; p < stop;) {
        if (*p != '\\') {
            text[used++] = *p++;
            continue;
        }
        p++;
        if (!read_escape(&p, stop, text, &used))
            return syntax_error(lex->line, "an escape in a text in quotes is not valid, or not "
                                           "supported");
    }
    FSDP_TRY(add_token(lex, (jinja_token){.type = JINJA_TOKEN_STRING,
                                          .line = lex->line,
                                          .text = {text, used, SIZE_MAX, NULL}}));
    move_to(lex, end + 1);
    return FSDP_OK;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Skip digits of base `base`, which may be separated by single underscores. Return the offset after
 * them, or `at` if there are none. */
static size_t skip_digits(const lexer *lex, size_t at, int base)
{
    size_t p = at;
    while (p < lex->bytes) {
        const size_t digit = p + (p > at && lex->source[p] == '_');
        const int value = digit < lex->bytes ? hex_digit(lex->source[digit]) : -1;
        if (value < 0 || value >= base)
            break;
        p = digit + 1;
    }
    return p;
}

/* If a float begins at offset `at`, return the offset after it. Otherwise, return `at`. */
static size_t skip_float(const lexer *lex, size_t at)
{
    size_t p = skip_digits(lex, at, 10), fraction = p, exponent;
    if (p == at || (at > 0 && lex->source[at - 1] == '.'))
        return at;
    if (has_at(lex, p, ".") && skip_digits(lex, p + 1, 10) > p + 1)
        fraction = skip_digits(lex, p + 1, 10);
    exponent = fraction;
    if (exponent < lex->bytes && (lex->source[exponent] | 0x20) == 'e') {
        size_t digits = exponent + 1;
        digits += digits < lex->bytes && (lex->source[digits] == '+' || lex->source[digits] == '-');
        if (skip_digits(lex, digits, 10) > digits)
            return skip_digits(lex, digits, 10);
    }
    return fraction > p ? fraction : at;
}

static size_t skip_integer(const lexer *lex, size_t at, int *base)
{
    static const struct {
        char letter;
        int base;
    } prefixes[] = {{'b', 2}, {'o', 8}, {'x', 16}};
    *base = 10;
    if (lex->source[at] != '0')
        return skip_digits(lex, at, 10);
    for (int i = 0; i < 3; i++) {
        if (at + 1 >= lex->bytes || (lex->source[at + 1] | 0x20) != prefixes[i].letter)
            continue;
        const size_t digits = at + 2 + has_at(lex, at + 2, "_");
        const size_t end = skip_digits(lex, digits, prefixes[i].base);
        if (end > digits) {
            *base = prefixes[i].base;
            return end;
        }
    }
    return skip_digits(lex, at, 1); /* an integer that begins with 0 may consist only of zeros */
}

static fsdp_status lex_number(lexer *lex)
{
    char text[400];
    size_t used = 0;
    int base = 10;
    size_t end = skip_float(lex, lex->at);
    const bool is_float = end > lex->at;
    if (!is_float)
        end = skip_integer(lex, lex->at, &base);
    for (size_t i = lex->at + (base == 10 ? 0 : 2); i < end && used < sizeof text - 1; i++)
        if (lex->source[i] != '_')
            text[used++] = lex->source[i];
    text[used] = 0;
    jinja_token token = {.type = JINJA_TOKEN_NUMBER, .line = lex->line};
    if (used == sizeof text - 1)
        return syntax_error(lex->line, "a number with more than 398 digits is not supported");
    if (is_float) {
        token.number = jinja_float(strtod(text, NULL));
    } else {
        errno = 0;
        token.number = jinja_int(strtoll(text, NULL, base));
        if (errno)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "line %d: the integer %.40s does not fit in 64 bits", lex->line,
                              text);
    }
    FSDP_TRY(add_token(lex, token));
    move_to(lex, end);
    return FSDP_OK;
}

/* ---- expressions ----------------------------------------------------------------------------- */

static size_t skip_name(const lexer *lex, size_t at)
{
    while (at < lex->bytes) {
        size_t next = at;
        if (!fsdp_jinja_is_identifier(fsdp_jinja_next_char(lex->source, lex->bytes, &next)))
            break;
        at = next;
    }
    return at;
}

static fsdp_status check_brackets(lexer *lex, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (lex->n_brackets == MAX_BRACKETS)
            return syntax_error(lex->line, "brackets are nested too deeply");
        lex->brackets[lex->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        return FSDP_OK;
    }
    if (c != ')' && c != ']' && c != '}')
        return FSDP_OK;
    if (!lex->n_brackets || lex->brackets[lex->n_brackets - 1] != c)
        return fsdp_error(FSDP_ERR_FORMAT, "line %d: unexpected '%c'", lex->line, c);
    lex->n_brackets--;
    return FSDP_OK;
}

static fsdp_status lex_operator(lexer *lex)
{
    static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    const char c = lex->source[lex->at];
    size_t bytes = c && strchr("+-/*%~[](){}><=.:|,;", c) ? 1 : 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (has_at(lex, lex->at, pairs[i]))
            bytes = 2;
    if (!bytes)
        return fsdp_error(FSDP_ERR_FORMAT, "line %d: unexpected character '%c'", lex->line,
                          (unsigned char)c < 0x80 ? c : '?');
    FSDP_TRY(check_brackets(lex, c));
    FSDP_TRY(add_text(lex, JINJA_TOKEN_OPERATOR, lex->line, lex->at, lex->at + bytes));
    move_to(lex, lex->at + bytes);
    return FSDP_OK;
}

static fsdp_status lex_expression_token(lexer *lex)
{
    const char c = lex->source[lex->at];
    const size_t spaces = skip_spaces(lex, lex->at);
    if (spaces > lex->at) {
        move_to(lex, spaces);
        return FSDP_OK;
    }
    if (is_digit(c))
        return lex_number(lex);
    const size_t name = skip_name(lex, lex->at);
    if (name > lex->at) {
        FSDP_TRY(add_text(lex, JINJA_TOKEN_NAME, lex->line, lex->at, name));
        move_to(lex, name);
        return FSDP_OK;
    }
    if (c == '\'' || c == '"')
        return lex_string(lex);
    return lex_operator(lex);
}

/* Split the inside of a tag, which begins at lex->at, into tokens. */
static fsdp_status lex_tag(lexer *lex, bool is_variable)
{
    lex->n_brackets = 0;
    while (lex->at < lex->bytes) {
        const size_t end = lex->n_brackets ? 0
                           : is_variable   ? end_of_variable(lex, lex->at)
                                           : end_of_block(lex, lex->at, "%}");
        if (end) {
            FSDP_TRY(add_text(lex, is_variable ? JINJA_TOKEN_VARIABLE_END : JINJA_TOKEN_BLOCK_END,
                              lex->line, lex->at, end));
            move_to(lex, end);
            return FSDP_OK;
        }
        FSDP_TRY(lex_expression_token(lex));
    }
    return FSDP_OK;
}

/* Return the offset of the next tag, or lex->bytes if there is none. */
static size_t find_tag(const lexer *lex)
{
    for (size_t at = lex->at; at + 1 < lex->bytes; at++) {
        const char next = lex->source[at + 1];
        if (lex->source[at] == '{' && (next == '%' || next == '{' || next == '#'))
            return at;
    }
    return lex->bytes;
}

/* Add the text before the next tag as a token, and then the tokens of the tag. */
static fsdp_status lex_root(lexer *lex)
{
    const size_t begin = lex->at, tag = find_tag(lex);
    if (tag == lex->bytes) {
        FSDP_TRY(add_text(lex, JINJA_TOKEN_DATA, lex->line, begin, tag));
        lex->at = tag;
        return FSDP_OK;
    }
    const char kind = lex->source[tag + 1], sign = sign_at(lex, tag + 2);
    const size_t raw = kind == '%' ? end_of_raw_begin(lex, tag) : 0;
    FSDP_TRY(add_data(lex, begin, tag, sign, kind == '{'));
    if (raw)
        return lex_raw(lex, raw);
    move_to(lex, tag + 2 + (sign != 0));
    if (kind == '#')
        return lex_comment(lex, lex->at);
    FSDP_TRY(add_text(lex, kind == '{' ? JINJA_TOKEN_VARIABLE_BEGIN : JINJA_TOKEN_BLOCK_BEGIN,
                      lex->line, tag, lex->at));
    return lex_tag(lex, kind == '{');
}

/* Set lex->source to a copy of the template in which every line end is \n. If the template ends
 * with a line end, this line end is left out. */
static fsdp_status normalize(lexer *lex, const char *source, size_t bytes)
{
    char *copy;
    size_t used = 0;
    FSDP_TRY(fsdp_jinja_alloc(lex->machine, bytes + 1, &copy));
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n')
            continue;
        copy[used++] = source[i] == '\r' ? '\n' : source[i];
    }
    lex->source = copy;
    lex->bytes = used && copy[used - 1] == '\n' ? used - 1 : used;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_tokenize(jinja_machine *machine, const char *source, size_t bytes,
                                jinja_tokens *tokens)
{
    lexer lex = {.machine = machine, .tokens = tokens, .line = 1, .line_starting = true};
    FSDP_TRY(normalize(&lex, source, bytes));
    while (lex.at < lex.bytes)
        FSDP_TRY(lex_root(&lex));
    return add_token(&lex, (jinja_token){.type = JINJA_TOKEN_END, .line = lex.line});
}
