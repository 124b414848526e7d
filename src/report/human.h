/* Formats numbers for people, usually with four digits: "1.234 GiB", "12.34 s", "60.51 M". The text
 * is returned by value, so printf("%s", fsdp_human_bytes(n).text) needs no buffer. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

typedef struct fsdp_human {
    char text[32];
} fsdp_human;

/* Format a number of bytes in binary units: "0 B", "1023 B", "1.000 KiB", "12.34 MiB", "1023
 * GiB". */
fsdp_human fsdp_human_bytes(int64_t bytes);

/* Format a duration: "850.0 ns", "12.34 us", "123.4 ms", "12.34 s". Durations of a minute or more
 * have two units: "2 min 05 s", "3 h 07 min", "2 d 04 h". The text is "?" if `seconds` is too large
 * or not finite. */
fsdp_human fsdp_human_duration(double seconds);

/* Return the text for a value that is not finite: "NaN", "Infinity" or "-Infinity". The text of NaN
 * has no sign, although printf() may print one. */
const char *fsdp_human_not_finite(double value);
/* Return advice for a user whose model computed a value that is not finite. `dtype` is the dtype of
 * the model's forward. The text is static. */
const char *fsdp_human_not_finite_advice(fsdp_dtype dtype);

/* Format a count in decimal units: "0", "999", "1.234 k", "60.51 M", "1.100 G". A count below 1000
 * has decimals only if it is not a whole number: "7.213". The text is "?" if `count` is not
 * finite. */
fsdp_human fsdp_human_count(double count);
