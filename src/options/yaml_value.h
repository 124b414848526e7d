/* How PyYAML, with which Accelerate and transformers read their files, takes a plain value. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Return true if a value without quotes is an integer, and set *value: decimal, octal after a 0,
 * hexadecimal after 0x, binary after 0b, with a sign and with underscores between the digits, such
 * as 1_000. Integers beyond 64 bits are none here. */
bool fsdp_yaml_integer(const char *text, int64_t *value);

/* What the parser of libyaml says about a tab as indentation does not name the tab. Return what to
 * say instead of `problem`; `next` is the character that the parser could not take. */
const char *fsdp_yaml_problem(const char *problem, char next);
