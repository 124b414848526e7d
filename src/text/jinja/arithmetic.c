/* See arithmetic.h. */
#include "src/text/jinja/arithmetic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/text/jinja/machine.h"

static const char *const symbols[] = {"+", "-", "*", "/", "//", "%", "**"};

static fsdp_status too_large(void)
{
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "an integer that does not fit in 64 bits");
}

static bool is_integer(jinja_value value)
{
    return value.kind == JINJA_INT || value.kind == JINJA_BOOL;
}

static int64_t integer_of(jinja_value value)
{
    return value.kind == JINJA_BOOL ? value.as.boolean : value.as.integer;
}

static double real_of(jinja_value value)
{
    return value.kind == JINJA_FLOAT ? value.as.real : (double)integer_of(value);
}

static fsdp_status operand_error(jinja_operator op, jinja_value a, jinja_value b)
{
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(a.kind == JINJA_UNDEFINED ? a : b);
    if (a.kind == JINJA_BIG_INT || b.kind == JINJA_BIG_INT)
        return too_large();
    return fsdp_error(FSDP_ERR_INVALID, "unsupported operand types for %s: '%s' and '%s'",
                      symbols[op], fsdp_jinja_type_name(a), fsdp_jinja_type_name(b));
}

/* ---- integers -------------------------------------------------------------------------------- */

static fsdp_status divide_integers(jinja_operator op, int64_t a, int64_t b, jinja_value *out)
{
    if (b == 0)
        return fsdp_error(FSDP_ERR_INVALID, "division by zero");
    if (op == JINJA_DIVIDE) {
        *out = jinja_float((double)((long double)a / (long double)b));
        return FSDP_OK;
    }
    if (a == INT64_MIN && b == -1)
        return op == JINJA_MODULO ? (*out = jinja_int(0), FSDP_OK) : too_large();
    const int64_t rest = a % b;
    /* Python rounds the quotient down, C rounds it towards 0 */
    const bool adjust = rest != 0 && (rest < 0) != (b < 0);
    *out = jinja_int(op == JINJA_MODULO ? rest + (adjust ? b : 0) : a / b - adjust);
    return FSDP_OK;
}

static fsdp_status power_of_integers(int64_t a, int64_t b, jinja_value *out)
{
    if (b < 0) {
        if (a == 0)
            return fsdp_error(FSDP_ERR_INVALID, "0 cannot be raised to a negative power");
        *out = jinja_float(pow((double)a, (double)b));
        return FSDP_OK;
    }
    int64_t power = 1;
    for (int64_t base = a; b > 0; b >>= 1) {
        if (b & 1 && __builtin_mul_overflow(power, base, &power))
            return too_large();
        if (b > 1 && __builtin_mul_overflow(base, base, &base))
            return too_large();
    }
    *out = jinja_int(power);
    return FSDP_OK;
}

static fsdp_status operate_on_integers(jinja_operator op, int64_t a, int64_t b, jinja_value *out)
{
    int64_t result = 0;
    bool overflow = false;
    if (op == JINJA_POWER)
        return power_of_integers(a, b, out);
    if (op == JINJA_ADD)
        overflow = __builtin_add_overflow(a, b, &result);
    else if (op == JINJA_SUBTRACT)
        overflow = __builtin_sub_overflow(a, b, &result);
    else if (op == JINJA_MULTIPLY)
        overflow = __builtin_mul_overflow(a, b, &result);
    else
        return divide_integers(op, a, b, out);
    if (overflow)
        return too_large();
    *out = jinja_int(result);
    return FSDP_OK;
}

/* ---- floats ---------------------------------------------------------------------------------- */

static double modulo(double a, double b)
{
    double rest = fmod(a, b);
    if (rest == 0.0)
        return copysign(0.0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

/* Do the same as CPython's float_floor_div(). */
static double floor_divide(double a, double b)
{
    double rest = fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0.0 && (b < 0) != (rest < 0))
        quotient -= 1.0;
    if (quotient == 0.0)
        return copysign(0.0, a / b);
    const double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1.0 : whole;
}

static fsdp_status power_of_floats(double a, double b, jinja_value *out)
{
    if (a == 0.0 && b < 0.0)
        return fsdp_error(FSDP_ERR_INVALID, "0.0 cannot be raised to a negative power");
    const double power = pow(a, b);
    if (isnan(power) && !isnan(a) && !isnan(b))
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a complex number");
    if (isinf(power) && isfinite(a) && isfinite(b))
        return fsdp_error(FSDP_ERR_INVALID, "the result of ** is too large");
    *out = jinja_float(power);
    return FSDP_OK;
}

static fsdp_status operate_on_floats(jinja_operator op, double a, double b, jinja_value *out)
{
    if ((op == JINJA_DIVIDE || op == JINJA_FLOOR_DIVIDE || op == JINJA_MODULO) && b == 0.0)
        return fsdp_error(FSDP_ERR_INVALID, "division by zero");
    switch (op) {
    case JINJA_ADD:
        *out = jinja_float(a + b);
        return FSDP_OK;
    case JINJA_SUBTRACT:
        *out = jinja_float(a - b);
        return FSDP_OK;
    case JINJA_MULTIPLY:
        *out = jinja_float(a * b);
        return FSDP_OK;
    case JINJA_DIVIDE:
        *out = jinja_float(a / b);
        return FSDP_OK;
    case JINJA_FLOOR_DIVIDE:
        *out = jinja_float(floor_divide(a, b));
        return FSDP_OK;
    case JINJA_MODULO:
        *out = jinja_float(modulo(a, b));
        return FSDP_OK;
    case JINJA_POWER:
        break;
    }
    return power_of_floats(a, b, out);
}

/* ---- sequences ------------------------------------------------------------------------------- */

static fsdp_status add_lists(jinja_machine *machine, jinja_value a, jinja_value b, jinja_value *out)
{
    const jinja_list *x = a.as.list, *y = b.as.list;
    jinja_value sum;
    FSDP_TRY(fsdp_jinja_list(machine, x->n + y->n, &sum));
    FSDP_TRY(fsdp_jinja_charge(machine, x->n + y->n));
    if (x->n)
        memcpy(sum.as.list->items, x->items, x->n * sizeof *x->items);
    if (y->n)
        memcpy(sum.as.list->items + x->n, y->items, y->n * sizeof *y->items);
    sum.as.list->n = x->n + y->n;
    sum.kind = a.kind;
    *out = sum;
    return FSDP_OK;
}

static fsdp_status repeat_string(jinja_machine *machine, const jinja_string *text, int64_t times,
                                 jinja_value *out)
{
    char *all;
    if (times <= 0 || text->bytes == 0)
        return fsdp_jinja_substring(machine, "", 0, out);
    if (times > (int64_t)(JINJA_MAX_TEXT / text->bytes))
        return fsdp_error(FSDP_ERR_INVALID, "a text of more than %d MiB", JINJA_MAX_TEXT >> 20);
    const size_t bytes = text->bytes * (size_t)times;
    FSDP_TRY(fsdp_jinja_charge(machine, bytes / 16));
    FSDP_TRY(fsdp_jinja_alloc(machine, bytes, &all));
    for (size_t i = 0; i < bytes; i += text->bytes)
        memcpy(all + i, text->data, text->bytes);
    return fsdp_jinja_substring(machine, all, bytes, out);
}

static fsdp_status repeat_list(jinja_machine *machine, jinja_value list, int64_t times,
                               jinja_value *out)
{
    jinja_value all;
    FSDP_TRY(fsdp_jinja_list(machine, 0, &all));
    for (int64_t k = 0; list.as.list->n && k < times; k++)
        for (size_t i = 0; i < list.as.list->n; i++)
            FSDP_TRY(fsdp_jinja_list_add(machine, all.as.list, list.as.list->items[i]));
    all.kind = list.kind;
    *out = all;
    return FSDP_OK;
}

static bool is_sequence(jinja_value value)
{
    return value.kind == JINJA_STRING || value.kind == JINJA_LIST || value.kind == JINJA_TUPLE;
}

static fsdp_status operate_on_sequences(jinja_machine *machine, jinja_operator op, jinja_value a,
                                        jinja_value b, jinja_value *out)
{
    if ((a.kind == JINJA_STRING && a.safe) || (b.kind == JINJA_STRING && b.safe))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s with the result of the filter 'safe' or 'escape', which makes Jinja "
                          "escape the other text, is not supported",
                          symbols[op]);
    if (op == JINJA_MODULO && a.kind == JINJA_STRING)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "formatting a text with %% is not supported; join "
                                                "its parts with ~");
    if (op == JINJA_ADD && a.kind == JINJA_STRING && b.kind == JINJA_STRING)
        return fsdp_jinja_concat(machine, a.as.string, b.as.string, out);
    if (op == JINJA_ADD && a.kind == b.kind && is_sequence(a))
        return add_lists(machine, a, b, out);
    if (op == JINJA_MULTIPLY && is_integer(a) && is_sequence(b))
        return operate_on_sequences(machine, op, b, a, out);
    if (op == JINJA_MULTIPLY && is_sequence(a) && is_integer(b))
        return a.kind == JINJA_STRING ? repeat_string(machine, a.as.string, integer_of(b), out)
                                      : repeat_list(machine, a, integer_of(b), out);
    return operand_error(op, a, b);
}

fsdp_status fsdp_jinja_operate(jinja_machine *machine, jinja_operator op, jinja_value a,
                               jinja_value b, jinja_value *out)
{
    if (is_integer(a) && is_integer(b))
        return operate_on_integers(op, integer_of(a), integer_of(b), out);
    if ((is_integer(a) || a.kind == JINJA_FLOAT) && (is_integer(b) || b.kind == JINJA_FLOAT))
        return operate_on_floats(op, real_of(a), real_of(b), out);
    const bool formats = op == JINJA_MODULO && a.kind == JINJA_STRING;
    if (!formats && (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED))
        return operand_error(op, a, b);
    return operate_on_sequences(machine, op, a, b, out);
}

/* ---- functions of one number ----------------------------------------------------------------- */

fsdp_status fsdp_jinja_negate(jinja_value a, bool plus, jinja_value *out)
{
    if (a.kind == JINJA_FLOAT) {
        *out = jinja_float(plus ? a.as.real : -a.as.real);
        return FSDP_OK;
    }
    if (is_integer(a)) {
        if (!plus && integer_of(a) == INT64_MIN)
            return too_large();
        *out = jinja_int(plus ? integer_of(a) : -integer_of(a));
        return FSDP_OK;
    }
    if (a.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(a);
    if (a.kind == JINJA_BIG_INT)
        return too_large();
    return fsdp_error(FSDP_ERR_INVALID, "bad operand type for unary %s: '%s'", plus ? "+" : "-",
                      fsdp_jinja_type_name(a));
}

fsdp_status fsdp_jinja_absolute(jinja_value a, jinja_value *out)
{
    if (a.kind == JINJA_FLOAT) {
        *out = jinja_float(fabs(a.as.real));
        return FSDP_OK;
    }
    if (is_integer(a))
        return fsdp_jinja_negate(a, integer_of(a) >= 0, out);
    if (a.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(a);
    if (a.kind == JINJA_BIG_INT)
        return too_large();
    return fsdp_error(FSDP_ERR_INVALID, "bad operand type for abs(): '%s'",
                      fsdp_jinja_type_name(a));
}

/* Round `number` to `digits` decimal places by printing it. snprintf() rounds the exact value. If
 * this value is halfway between two results, snprintf() takes the one with the even digit, as
 * Python does. */
static double round_to_digits(double number, int64_t digits)
{
    char text[400];
    if (digits > 323 - (number != 0.0 ? (int64_t)floor(log10(fabs(number))) : 0) || digits > 380)
        return number;
    if (digits >= 0) {
        if (snprintf(text, sizeof text, "%.*f", (int)digits, number) >= (int)sizeof text)
            return number;
        return strtod(text, NULL);
    }
    if (digits < -308)
        return copysign(0.0, number);
    const double unit = pow(10.0, (double)-digits);
    return nearbyint(number / unit) * unit;
}

fsdp_status fsdp_jinja_round(jinja_value number, int64_t digits, jinja_value *out)
{
    if (number.kind == JINJA_FLOAT) {
        const double real = number.as.real;
        *out = jinja_float(isfinite(real) ? round_to_digits(real, digits) : real);
        return FSDP_OK;
    }
    if (number.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(number);
    if (number.kind == JINJA_BIG_INT && digits >= 0) {
        *out = number;
        return FSDP_OK;
    }
    if (!is_integer(number))
        return fsdp_error(FSDP_ERR_INVALID, "'%s' object cannot be rounded",
                          fsdp_jinja_type_name(number));
    if (digits < 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "rounding an integer to tens is not supported");
    *out = jinja_int(integer_of(number));
    return FSDP_OK;
}

fsdp_status fsdp_jinja_truncate(double real, jinja_value *out)
{
    if (!isfinite(real))
        return fsdp_error(FSDP_ERR_INVALID, "%s cannot be converted to an integer",
                          isnan(real) ? "nan" : "infinity");
    if (real >= 9223372036854775808.0 || real < -9223372036854775808.0)
        return too_large();
    *out = jinja_int((int64_t)real);
    return FSDP_OK;
}
