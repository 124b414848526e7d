/* See scale_parse.h. */
#include "src/plan/scale_parse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/assert.h"

enum {
    MAX_RANKS = 1 << 20
};

/* --- numbers --- */

/* Read a decimal number at `text` that is finite and not negative. Return the text after the
 * number, or NULL if there is no such number. Words that strtod() also knows, such as "inf" and
 * hexadecimal numbers, are not numbers here. */
static const char *read_number(const char *text, double *value)
{
    char *end;
    if (*text < '0' || *text > '9' || (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')))
        return NULL;
    *value = strtod(text, &end);
    return end != text && isfinite(*value) ? end : NULL;
}

/* If `text` begins with a decimal prefix, multiply *value by it. Return the text after the
 * prefix. */
static const char *read_prefix(const char *text, double *value)
{
    static const char prefixes[] = "kMGTP";
    const char *at = *text ? strchr(prefixes, *text == 'K' ? 'k' : *text) : NULL;
    if (!at)
        return text;
    *value *= pow(1000.0, (double)(at - prefixes + 1));
    return text + 1;
}

static bool is_any(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    return false;
}

/* --- --world-size --- */

static fsdp_status wrong_sizes(const char *text, const char *why)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "--world-size '%.200s': %s; it takes a number of ranks from 1 to %d, a list "
                      "such as 8,64,512, or a range such as 8..4096, which doubles",
                      text, why, MAX_RANKS);
}

/* Read a rank count at *text, and advance *text past it. Return 0 if there is no number from 1 to
 * MAX_RANKS. */
static int read_ranks(const char **text)
{
    long ranks = 0;
    size_t digits = 0;
    for (; (*text)[digits] >= '0' && (*text)[digits] <= '9' && ranks <= MAX_RANKS; digits++)
        ranks = ranks * 10 + ((*text)[digits] - '0');
    *text += digits;
    return digits && ranks <= MAX_RANKS ? (int)ranks : 0;
}

static fsdp_status add_doubled(const char *text, int last, int sizes[FSDP_SCALE_MAX_SIZES],
                               size_t *n)
{
    int ranks = sizes[*n - 1];
    if (last < ranks)
        return wrong_sizes(text, "the range ends below its begin");
    while (ranks < last && *n < FSDP_SCALE_MAX_SIZES) {
        ranks = ranks <= last / 2 ? 2 * ranks : last;
        sizes[(*n)++] = ranks;
    }
    if (ranks < last)
        return wrong_sizes(text, "there are too many");
    return FSDP_OK;
}

fsdp_status fsdp_scale_parse_sizes(const char *text, int sizes[FSDP_SCALE_MAX_SIZES], size_t *n,
                                   bool *is_range)
{
    const char *at = text;
    *n = 0;
    for (;;) {
        if (*n == FSDP_SCALE_MAX_SIZES)
            return wrong_sizes(text, "there are too many");
        if ((sizes[*n] = read_ranks(&at)) == 0)
            return wrong_sizes(text, "a number is missing or out of range");
        (*n)++;
        if (strncmp(at, "..", 2) == 0) {
            at += 2;
            const int last = read_ranks(&at);
            if (!last)
                return wrong_sizes(text, "a number is missing or out of range");
            FSDP_TRY(add_doubled(text, last, sizes, n));
        }
        if (*at != ',')
            break;
        at++;
    }
    *is_range = strpbrk(text, ",.") != NULL;
    return *at ? wrong_sizes(text, "there is more text") : FSDP_OK;
}

/* --- --interconnect --- */

static fsdp_status wrong_interconnect(const char *text, const char *why)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "--interconnect '%.200s': %s; it takes the bandwidth of a host and the "
                      "latency of a message, such as 100Gb,2us (bits) or 12.5GB,2us (bytes)",
                      text, why);
}

/* Read a bandwidth that ends at a comma or at the end of the text. Return the text after it, or
 * NULL if it is not a bandwidth. */
static const char *read_bandwidth(const char *text, double *bytes_per_s)
{
    double value = 0.0;
    const char *at = read_number(text, &value);
    if (!at)
        return NULL;
    at = read_prefix(at, &value);
    const bool bytes = *at == 'B';
    if (strncmp(at, "bit", 3) == 0)
        at += 3;
    else if (*at == 'b' || *at == 'B')
        at++;
    else
        return NULL;
    if (strncmp(at, "/s", 2) == 0 || strncmp(at, "ps", 2) == 0)
        at += 2;
    *bytes_per_s = bytes ? value : value / 8.0;
    return *at && *at != ',' ? NULL : at;
}

static bool read_latency(const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}};
    const char *at = read_number(text, seconds);
    for (size_t i = 0; at && i < FSDP_LENGTH(units); i++)
        if (strcmp(at, units[i].name) == 0) {
            *seconds *= units[i].seconds;
            return true;
        }
    return false;
}

fsdp_status fsdp_scale_parse_interconnect(const char *text, fsdp_interconnect *net)
{
    fsdp_interconnect read = {0};
    const char *at = read_bandwidth(text, &read.bytes_per_s);
    if (!at)
        return wrong_interconnect(text, "the bandwidth is not a number with Mb, Gb, MB or GB");
    if (!(read.bytes_per_s > 0.0) || !isfinite(read.bytes_per_s))
        return wrong_interconnect(text, "the bandwidth must be above 0");
    if (*at != ',')
        return wrong_interconnect(text, "the latency is missing");
    if (!read_latency(at + 1, &read.latency_s))
        return wrong_interconnect(text, "the latency is not a number with ns, us, ms or s");
    *net = read;
    return FSDP_OK;
}

/* --- --flops-per-rank and --straggler --- */

fsdp_status fsdp_scale_parse_flops(const char *text, double *flops_per_s)
{
    static const char *const units[] = {"", "flops", "flop/s", "flop"};
    double value = 0.0;
    const char *at = read_number(text, &value);
    if (at)
        at = read_prefix(at, &value);
    if (!at || !is_any(at, units, FSDP_LENGTH(units)) || !(value > 0.0) || !isfinite(value))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--flops-per-rank '%.200s': it takes floating-point operations per "
                          "second above 0, such as 10T",
                          text);
    *flops_per_s = value;
    return FSDP_OK;
}

fsdp_status fsdp_scale_parse_straggler(const char *text, double *straggler)
{
    double value = 0.0;
    const char *at = read_number(text, &value);
    if (at && *at == '%') {
        value /= 100.0;
        at++;
    }
    if (!at || *at || value > 1.0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--straggler '%.200s': it takes the standard deviation of a rank's "
                          "compute time, from 0%% to 100%%, such as 5%% or 0.05",
                          text);
    *straggler = value;
    return FSDP_OK;
}
