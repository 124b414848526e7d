/* Finds the shortest decimal that reads back as the same double. 17 digits are always enough. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/repr.h"

enum {
    MAX_DIGITS = 17
};

/* Round `x` > 0 to `n` significant digits. Return the decimal exponent of the first digit. Only the
 * digits of printf's text are used, because its decimal point depends on the locale. */
static int rounded_digits(double x, int n, char digits[MAX_DIGITS + 1])
{
    char text[64];
    snprintf(text, sizeof text, "%.*e", n - 1, x);
    const char *e = strchr(text, 'e');
    int count = 0;
    for (const char *c = text; c < e; c++)
        if (*c >= '0' && *c <= '9' && count < n)
            digits[count++] = *c;
    digits[count] = 0;
    return (int)strtol(e + 1, NULL, 10);
}

static bool reads_back(double x, const char *digits, int exponent)
{
    char text[64];
    snprintf(text, sizeof text, "%se%d", digits, exponent - (int)strlen(digits) + 1);
    return strtod(text, NULL) == x;
}

/* Add one unit to the last digit, and return the exponent of the result. This is needed if x is a
 * power of two. The doubles just below x are closer together than those just above it. So the
 * n-digit decimal that is nearest to x may be a little less than x and may read back as the double
 * below x. In this case, the next larger n-digit decimal may read back as x. */
static int next_up(char *digits, int exponent)
{
    for (size_t i = strlen(digits); i-- > 0;) {
        if (digits[i] < '9') {
            digits[i]++;
            return exponent;
        }
        digits[i] = '0';
    }
    digits[0] = '1';
    return exponent + 1;
}

/* Set `digits` to the shortest digits that read back as x, and return the decimal exponent of the
 * first digit. If x is normal and some decimal with at most DBL_DIG digits reads back as x, this
 * decimal is x rounded to DBL_DIG digits. So fewer digits are tried only if x is subnormal. The
 * digits may end in zeros. */
static int shortest_digits(double x, char digits[MAX_DIGITS + 1])
{
    int fraction_exponent;
    bool power_of_two = frexp(x, &fraction_exponent) == 0.5;
    int exponent = 0;
    for (int n = x < DBL_MIN ? 1 : DBL_DIG; n <= MAX_DIGITS; n++) {
        exponent = rounded_digits(x, n, digits);
        if (reads_back(x, digits, exponent))
            break;
        if (!power_of_two)
            continue;
        int up = next_up(digits, exponent);
        if (reads_back(x, digits, up))
            return up;
    }
    return exponent;
}

size_t fsdp_f64_repr(double x, char out[FSDP_REPR_BYTES])
{
    const char *sign = signbit(x) ? "-" : "";
    if (isnan(x))
        return (size_t)snprintf(out, FSDP_REPR_BYTES, "nan");
    if (isinf(x))
        return (size_t)snprintf(out, FSDP_REPR_BYTES, "%sinf", sign);
    if (x == 0)
        return (size_t)snprintf(out, FSDP_REPR_BYTES, "%s0.0", sign);
    char digits[MAX_DIGITS + 1];
    int exponent = shortest_digits(fabs(x), digits);
    int n = (int)strlen(digits);
    while (n > 1 && digits[n - 1] == '0')
        digits[--n] = 0;
    if (exponent < -4 || exponent >= 16)
        return (size_t)snprintf(out, FSDP_REPR_BYTES, "%s%c%s%se%c%02d", sign, digits[0],
                                n > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+',
                                abs(exponent));
    if (exponent < 0)
        return (size_t)snprintf(out, FSDP_REPR_BYTES, "%s0.%.*s%s", sign, -exponent - 1, "000",
                                digits);
    if (n <= exponent + 1)
        return (size_t)snprintf(out, FSDP_REPR_BYTES, "%s%s%.*s.0", sign, digits, exponent + 1 - n,
                                "0000000000000000");
    return (size_t)snprintf(out, FSDP_REPR_BYTES, "%s%.*s.%s", sign, exponent + 1, digits,
                            digits + exponent + 1);
}
