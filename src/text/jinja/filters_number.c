/* The filters of Jinja2 that work on numbers: abs, float, int and round. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/text/jinja/arithmetic.h"
#include "src/text/jinja/chars.h"
#include "src/text/jinja/filters.h"
#include "src/text/jinja/machine.h"
#include "src/text/jinja/print.h"
#include "src/text/jinja/strings.h"

enum {
    MAX_NUMBER = 400 /* a text of this many bytes or more is not accepted as a number */
};

/* Return the value of a digit in bases up to 36. If `c` is not a digit, return 36. */
static int64_t digit_of(char c)
{
    const unsigned char letter = (unsigned char)c;
    if (isdigit(letter))
        return c - '0';
    return isalpha(letter) ? tolower(letter) - 'a' + 10 : 36;
}

/* Return true if Python allows an underscore between the two characters of a number in `base`. In
 * base 10, both must be digits. In other bases, the first one may be the letter of a prefix. */
static bool may_separate(char before, char after, int64_t base)
{
    return digit_of(after) < base && digit_of(before) < (base == 10 ? 10 : 36);
}

/* Copy `text` to `out`. Leave out white space at both ends, and underscores where Python allows
 * them. Return false if the text cannot be a number in `base`. */
static bool clean_number(const jinja_string *text, int64_t base, char out[MAX_NUMBER])
{
    size_t begin = 0, end = text->bytes, used = 0;
    while (begin < end) {
        size_t next = begin;
        if (!fsdp_jinja_is_space(fsdp_jinja_next_char(text->data, end, &next)))
            break;
        begin = next;
    }
    while (end > begin) {
        size_t last = fsdp_jinja_char_before(text->data, end), next = last;
        if (!fsdp_jinja_is_space(fsdp_jinja_next_char(text->data, end, &next)))
            break;
        end = last;
    }
    if (end == begin || end - begin >= MAX_NUMBER)
        return false;
    for (size_t i = begin; i < end; i++) {
        const unsigned char c = (unsigned char)text->data[i];
        if (c == '_' && (i == begin || i + 1 == end ||
                         !may_separate(text->data[i - 1], text->data[i + 1], base)))
            return false;
        if (c == 0 || c >= 0x80)
            return false;
        if (c != '_')
            out[used++] = (char)c;
    }
    out[used] = 0;
    return true;
}

/* Set *out to Python's float(text). Return false if the text is not a number. */
static bool parse_real(const jinja_string *text, double *out)
{
    char number[MAX_NUMBER], *end;
    if (!clean_number(text, 10, number))
        return false;
    const char *digits = number + (*number == '+' || *number == '-');
    if (strpbrk(digits, "xX(") || isspace((unsigned char)*digits) || *digits == '+' ||
        *digits == '-')
        return false;
    *out = strtod(number, &end);
    return *end == 0;
}

/* Return the number without its sign and its prefix, such as 0x for base 16. */
static const char *skip_prefix(const char *number, int64_t base)
{
    const char *p = number + (*number == '+' || *number == '-');
    const char letter = (char)tolower((unsigned char)p[0] ? (unsigned char)p[1] : 0);
    const bool prefixed =
        p[0] == '0' && ((base == 16 && letter == 'x') || (base == 8 && letter == 'o') ||
                        (base == 2 && letter == 'b'));
    return p + (prefixed ? 2 : 0);
}

/* Read digits up to the end of the text. Set *overflows to true if the value does not fit. Return
 * false if there are no digits, or if another character follows. */
static bool read_digits(const char *digits, int64_t base, uint64_t *value, bool *overflows)
{
    *value = 0;
    *overflows = false;
    for (const char *p = digits; *p; p++) {
        if (digit_of(*p) >= base)
            return false;
        *overflows |= __builtin_mul_overflow(*value, (uint64_t)base, value);
        *overflows |= __builtin_add_overflow(*value, (uint64_t)digit_of(*p), value);
    }
    return *digits;
}

/* Set *out to Python's int(text, base). Set *parsed to false if the text is not an integer. */
static fsdp_status parse_integer(const jinja_string *text, int64_t base, bool *parsed, int64_t *out)
{
    char number[MAX_NUMBER];
    uint64_t value;
    bool overflows;
    *parsed = false;
    if (!clean_number(text, base, number) ||
        !read_digits(skip_prefix(number, base), base, &value, &overflows))
        return FSDP_OK;
    const bool negative = *number == '-';
    if (overflows || value > (uint64_t)INT64_MAX + negative)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "int: an integer that does not fit in 64 bits");
    *parsed = true;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return FSDP_OK;
}

static bool is_integer(jinja_value value)
{
    return value.kind == JINJA_INT || value.kind == JINJA_BOOL || value.kind == JINJA_BIG_INT;
}

static fsdp_status int_of_text(const jinja_string *text, int64_t base, jinja_value fallback,
                               jinja_value *out)
{
    bool parsed;
    int64_t number = 0;
    double real;
    FSDP_TRY(parse_integer(text, base, &parsed, &number));
    if (parsed) {
        *out = jinja_int(number);
        return FSDP_OK;
    }
    if (parse_real(text, &real) && isfinite(real))
        return fsdp_jinja_truncate(real, out);
    *out = fallback;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_int(jinja_machine *machine, jinja_value value, const jinja_args *args,
                                  jinja_value *out)
{
    jinja_value values[2];
    int64_t base;
    (void)machine;
    FSDP_TRY(fsdp_jinja_bind("int", "default,base", 0, args, values));
    FSDP_TRY(fsdp_jinja_arg_int("int", values[1], 10, &base));
    if (base < 2 || base > 36)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "int: base %lld; bases from 2 to 36 are supported",
                          (long long)base);
    const jinja_value fallback = values[0].kind == JINJA_MISSING ? jinja_int(0) : values[0];
    *out = fallback;
    if (value.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(value);
    if (value.kind == JINJA_STRING)
        return int_of_text(value.as.string, base, fallback, out);
    if (value.kind == JINJA_FLOAT && !isnan(value.as.real))
        return fsdp_jinja_truncate(value.as.real, out);
    if (is_integer(value))
        *out = value.kind == JINJA_BOOL ? jinja_int(value.as.boolean) : value;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_float(jinja_machine *machine, jinja_value value,
                                    const jinja_args *args, jinja_value *out)
{
    jinja_value fallback;
    double real = 0;
    (void)machine;
    FSDP_TRY(fsdp_jinja_bind("float", "default", 0, args, &fallback));
    if (value.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(value);
    *out = fallback.kind == JINJA_MISSING ? jinja_float(0.0) : fallback;
    if (value.kind == JINJA_FLOAT)
        *out = value;
    else if (value.kind == JINJA_INT || value.kind == JINJA_BOOL)
        *out = jinja_float(value.kind == JINJA_BOOL ? (double)value.as.boolean
                                                    : (double)value.as.integer);
    else if ((value.kind == JINJA_STRING || value.kind == JINJA_BIG_INT) &&
             parse_real(value.as.string, &real))
        *out = jinja_float(real);
    return FSDP_OK;
}

fsdp_status fsdp_jinja_filter_abs(jinja_machine *machine, jinja_value value, const jinja_args *args,
                                  jinja_value *out)
{
    (void)machine;
    FSDP_TRY(fsdp_jinja_bind("abs", "", 0, args, NULL));
    return fsdp_jinja_absolute(value, out);
}

/* Apply the filter `round` with the method "ceil" if `up` is true, and with the method "floor"
 * otherwise. */
static fsdp_status round_to_side(jinja_machine *machine, jinja_value value, int64_t precision,
                                 bool up, jinja_value *out)
{
    jinja_value unit, scaled;
    FSDP_TRY(fsdp_jinja_operate(machine, JINJA_POWER, jinja_int(10), jinja_int(precision), &unit));
    FSDP_TRY(fsdp_jinja_operate(machine, JINJA_MULTIPLY, value, unit, &scaled));
    if (scaled.kind == JINJA_FLOAT)
        FSDP_TRY(fsdp_jinja_truncate(up ? ceil(scaled.as.real) : floor(scaled.as.real), &scaled));
    return fsdp_jinja_operate(machine, JINJA_DIVIDE, scaled, unit, out);
}

fsdp_status fsdp_jinja_filter_round(jinja_machine *machine, jinja_value value,
                                    const jinja_args *args, jinja_value *out)
{
    static jinja_string common = {.data = "common", .bytes = 6, .chars = 6};
    jinja_value values[2];
    jinja_string *method;
    int64_t precision;
    FSDP_TRY(fsdp_jinja_bind("round", "precision,method", 0, args, values));
    FSDP_TRY(fsdp_jinja_arg_int("round", values[0], 0, &precision));
    FSDP_TRY(fsdp_jinja_arg_text("round", values[1], &common, &method));
    if (fsdp_jinja_string_is(method, "common"))
        return fsdp_jinja_round(value, precision, out);
    const bool up = fsdp_jinja_string_is(method, "ceil");
    if (!up && !fsdp_jinja_string_is(method, "floor"))
        return fsdp_error(FSDP_ERR_INVALID, "round: the method must be common, ceil or floor");
    return round_to_side(machine, value, precision, up, out);
}
