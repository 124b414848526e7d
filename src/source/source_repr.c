/* Formats plain Python values as text. */
#include <inttypes.h>

#include "src/base/repr.h"
#include "src/source/source.h"

static void put_quoted(const fsdp_pickle_value *v, size_t max, fsdp_str *text)
{
    fsdp_str_printf(text, v->kind == FSDP_PICKLE_BYTES ? "b'" : "'");
    for (size_t i = 0; i < v->text.bytes && text->len <= max; i++) {
        unsigned char c = (unsigned char)v->text.data[i];
        if (c == '\'' || c == '\\')
            fsdp_str_printf(text, "\\%c", c);
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && v->kind == FSDP_PICKLE_BYTES))
            fsdp_str_printf(text, "\\x%02x", c);
        else
            fsdp_str_append(text, (const char *)&v->text.data[i], 1);
    }
    fsdp_str_append(text, "'", 1);
}

/* Divide the number `magnitude` by 10, and return the remainder as a digit. `magnitude` has n
 * bytes, the least significant byte first. */
static char take_digit(unsigned char *magnitude, size_t n)
{
    unsigned rest = 0;
    for (size_t i = n; i > 0; i--) {
        rest = rest << 8 | magnitude[i - 1];
        magnitude[i - 1] = (unsigned char)(rest / 10);
        rest %= 10;
    }
    return (char)('0' + rest);
}

/* Append the integer `v`, which is stored in two's complement. If the integer has more than
 * MAX_BYTES bytes, append a description of it instead of its digits. */
static void put_big_int(const fsdp_pickle_value *v, fsdp_str *text)
{
    enum {
        MAX_BYTES = 800,
        MAX_DIGITS = 5 * MAX_BYTES / 2
    };
    unsigned char magnitude[MAX_BYTES];
    char digits[MAX_DIGITS], name[64];
    size_t n = v->text.bytes, at = MAX_DIGITS;
    if (n > MAX_BYTES) {
        fsdp_str_printf(text, "%s", fsdp_pickle_describe(v, name, sizeof name));
        return;
    }
    const bool negative = v->text.data[n - 1] & 0x80;
    unsigned carry = negative;
    for (size_t i = 0; i < n; i++) {
        carry += (unsigned char)(negative ? ~v->text.data[i] : v->text.data[i]);
        magnitude[i] = (unsigned char)carry;
        carry >>= 8;
    }
    while (n > 0) {
        digits[--at] = take_digit(magnitude, n);
        while (n > 0 && magnitude[n - 1] == 0)
            n--;
    }
    fsdp_str_printf(text, "%s%.*s", negative ? "-" : "", (int)(MAX_DIGITS - at), digits + at);
}

/* Append a value as Python shows it. Stop when the text is longer than `max` bytes. Each call
 * appends at least one byte before it calls itself. So the limit ends the recursion early even if a
 * hostile file has an enormous number of paths to its values. */
static void put_repr(const fsdp_pickle_value *v, size_t max, fsdp_str *text)
{
    const bool is_dict = v->kind == FSDP_PICKLE_DICT, is_tuple = v->kind == FSDP_PICKLE_TUPLE;
    char buffer[128];
    if (text->len > max)
        return;
    switch (v->kind) {
    case FSDP_PICKLE_BOOL:
        fsdp_str_printf(text, "%s", v->boolean ? "True" : "False");
        return;
    case FSDP_PICKLE_INT:
        fsdp_str_printf(text, "%" PRId64, v->integer);
        return;
    case FSDP_PICKLE_FLOAT:
        fsdp_str_append(text, buffer, fsdp_f64_repr(v->number, buffer));
        return;
    case FSDP_PICKLE_STR:
    case FSDP_PICKLE_BYTES:
        put_quoted(v, max, text);
        return;
    case FSDP_PICKLE_BIG_INT:
        put_big_int(v, text);
        return;
    case FSDP_PICKLE_TUPLE:
    case FSDP_PICKLE_LIST:
    case FSDP_PICKLE_DICT:
        break;
    case FSDP_PICKLE_SET:
        if (v->list.n)
            break;
        fsdp_str_printf(text, "set()");
        return;
    case FSDP_PICKLE_OPAQUE:
        fsdp_str_printf(text, "<%s, not read>", fsdp_pickle_describe(v, buffer, sizeof buffer));
        return;
    default:
        fsdp_str_printf(text, "%s", fsdp_pickle_describe(v, buffer, sizeof buffer));
        return;
    }
    const bool is_set = v->kind == FSDP_PICKLE_SET, counts = is_dict && v->counts;
    fsdp_str_printf(text, "%s", counts ? "Counter(" : "");
    fsdp_str_append(text, is_dict || is_set ? "{" : is_tuple ? "(" : "[", 1);
    for (size_t i = 0; i < v->list.n && text->len <= max; i++) {
        fsdp_str_printf(text, "%s", !i ? "" : is_dict && i % 2 ? ": " : ", ");
        put_repr(v->list.items[i], max, text);
    }
    fsdp_str_printf(text, "%s%s%s", is_tuple && v->list.n == 1 ? "," : "",
                    is_dict || is_set ? "}"
                    : is_tuple        ? ")"
                                      : "]",
                    counts ? ")" : "");
}

/* If the text of the value is truncated, it is cut only between two UTF-8 characters. */
void fsdp_source_repr(const fsdp_pickle_value *value, size_t max, fsdp_str *text)
{
    size_t begin = text->len;
    put_repr(value, begin + max, text);
    if (text->failed || text->len <= begin + max)
        return;
    text->len = begin + max;
    while (text->len > begin && ((unsigned char)text->data[text->len] & 0xC0) == 0x80)
        text->len--;
    fsdp_str_append(text, "...", 3);
}
