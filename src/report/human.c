/* Formats numbers for people. The number of decimals and the unit are chosen before snprintf()
 * rounds the number. Rounding may make the number one digit longer: with three decimals, 9.9996
 * would become "10.000". This happens to numbers of 9.9995 or more, so such numbers get only two
 * decimals: "10.00". The other limits are chosen in the same way. Durations of a minute or more are
 * rounded to whole seconds. */
#include <math.h>
#include <stdio.h>

#include "src/base/assert.h"
#include "src/report/human.h"

static int decimals_for(double value)
{
    return value < 9.9995 ? 3 : value < 99.995 ? 2 : value < 999.95 ? 1 : 0;
}

/* Format `value` with one of units [n], beginning with units[0]. While the absolute value is at
 * least `limit` and there is a next unit, the value is divided by `base` and the next unit is
 * taken. */
static fsdp_human with_unit(double value, double base, double limit, const char *const *units,
                            size_t n)
{
    fsdp_human out;
    size_t unit = 0;
    double magnitude = fabs(value);
    while (magnitude >= limit && unit + 1 < n) {
        magnitude /= base;
        unit++;
    }
    snprintf(out.text, sizeof out.text, "%s%.*f%s%s", value < 0 ? "-" : "", decimals_for(magnitude),
             magnitude, *units[unit] ? " " : "", units[unit]);
    return out;
}

const char *fsdp_human_not_finite(double value)
{
    return isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

const char *fsdp_human_not_finite_advice(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F16
               ? "float16's largest value is 65504, which values of the forward pass may exceed; "
                 "bfloat16 has float32's range"
               : "'fsdp checkpoint verify' reports whether the model's weights are finite";
}

fsdp_human fsdp_human_bytes(int64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    fsdp_human out;
    if (bytes > -1024 && bytes < 1024) {
        snprintf(out.text, sizeof out.text, "%d B", (int)bytes);
        return out;
    }
    return with_unit((double)bytes / 1024, 1024, 1023.5, units, FSDP_LENGTH(units));
}

static fsdp_human long_duration(int64_t seconds)
{
    fsdp_human out;
    long long s = seconds, minutes = s / 60, hours = s / 3600, days = s / 86400;
    if (days)
        snprintf(out.text, sizeof out.text, "%lld d %02lld h", days, hours % 24);
    else if (hours)
        snprintf(out.text, sizeof out.text, "%lld h %02lld min", hours, minutes % 60);
    else
        snprintf(out.text, sizeof out.text, "%lld min %02lld s", minutes, s % 60);
    return out;
}

fsdp_human fsdp_human_duration(double seconds)
{
    static const char *const units[] = {"ns", "us", "ms"};
    static const char *const second[] = {"s"};
    if (!isfinite(seconds) || fabs(seconds) > 1e15)
        return (fsdp_human){"?"};
    if (seconds == 0)
        return (fsdp_human){"0 s"};
    if (fabs(seconds) < 0.99995)
        return with_unit(seconds * 1e9, 1000, 999.95, units, FSDP_LENGTH(units));
    if (seconds < 59.995)
        return with_unit(seconds, 1000, 1e16, second, 1);
    return long_duration((int64_t)(seconds + 0.5));
}

fsdp_human fsdp_human_count(double count)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    fsdp_human out;
    if (!isfinite(count))
        return (fsdp_human){"?"};
    if (count == rint(count) && fabs(count) < 1000) {
        snprintf(out.text, sizeof out.text, "%d", (int)count);
        return out;
    }
    return with_unit(count, 1000, 999.95, units, FSDP_LENGTH(units));
}
