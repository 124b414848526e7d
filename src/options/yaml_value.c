/* See yaml_value.h. */
#include "src/options/yaml_value.h"

#include <string.h>
#ifdef FSDP_HAVE_YAML
#include <yaml.h>
#endif

/* Return the base that the prefix of the number *text means, and advance *text to the first digit
 * after the prefix. A single 0 has no prefix, so its base is 10. */
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

/* Return the value of a digit, or 16 if the character is not a digit. */
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
    /* the largest absolute value: that of INT64_MIN or of INT64_MAX */
    const uint64_t most = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    uint64_t sum = 0;
    /* The 0 that is the prefix of an octal number is a digit, too, so "0_" is the number 0. */
    bool any = base == 8;
    for (; *at; at++) {
        const int digit = digit_of(*at);
        if (*at == '_')
            continue;
        if (digit >= base || sum > (most - (uint64_t)digit) / (uint64_t)base)
            return false;
        sum = sum * (uint64_t)base + (uint64_t)digit;
        any = true;
    }
    if (!any)
        return false;
    *value = (int64_t)(negative ? 0 - sum : sum);
    return true;
}

const char *fsdp_yaml_problem(const char *problem, char next)
{
    if (problem && next == '\t' && strstr(problem, "cannot start any token"))
        return "a tab is no indentation in YAML; indent by spaces";
    return problem ? problem : "not YAML";
}

const char fsdp_yaml_merge_unsupported[] =
    "<<: keys of another map are not merged; write them here, where they have an effect";

#ifdef FSDP_HAVE_YAML
bool fsdp_yaml_is_merge_key(const yaml_node_t *key)
{
    return key && key->type == YAML_SCALAR_NODE &&
           key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           strcmp((const char *)key->data.scalar.value, "<<") == 0;
}
#endif
