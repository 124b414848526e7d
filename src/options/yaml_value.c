/* See yaml_value.h. */
#include "src/options/yaml_value.h"

#include <string.h>

/* Return the base of the digits at *text, and set *text to the first of them. A single 0 is
 * decimal. */
static int base_of(const char **text)
{
    const char *at = *text;
    if (at[0] != '0' || !at[1])
        return 10;
    *text = at + 1;
    if (at[1] != 'x' && at[1] != 'b')
        return 8;
    *text = at + 2;
    return at[1] == 'x' ? 16 : 2;
}

/* Return the value of a digit; 16 if it is none. */
static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
    return at ? (int)(at - digits) : 16;
}

bool fsdp_yaml_integer(const char *text, int64_t *value)
{
    const bool negative = *text == '-';
    const char *at = text + (*text == '-' || *text == '+');
    if (digit_of(*at) > 9)
        return false;
    const int base = base_of(&at);
    uint64_t sum = 0;
    bool any = base == 8; /* 0_ is 0 */
    for (; *at; at++) {
        const int digit = digit_of(*at);
        if (*at == '_')
            continue;
        if (digit >= base || sum > (INT64_MAX - (uint64_t)digit) / (uint64_t)base)
            return false;
        sum = sum * (uint64_t)base + (uint64_t)digit;
        any = true;
    }
    if (!any)
        return false;
    *value = negative ? -(int64_t)sum : (int64_t)sum;
    return true;
}

const char *fsdp_yaml_problem(const char *problem, char next)
{
    if (problem && next == '\t' && strstr(problem, "cannot start any token"))
        return "a tab is no indentation in YAML; indent by spaces";
    return problem ? problem : "not YAML";
}
