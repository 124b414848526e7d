/* Reads plain values as PyYAML does. Accelerate and transformers read their files with PyYAML. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Return true if PyYAML reads `text`, without quotes, as an integer, and set *value to the integer.
 * It may have a sign, and it is octal after 0, hexadecimal after 0x, binary after 0b, and otherwise
 * decimal. There may be underscores between the digits, as in 1_000. Return false for an integer
 * that needs more than 64 bits. */
bool fsdp_yaml_integer(const char *text, int64_t *value);

/* Return the text that an error message contains instead of `problem`, the message of libyaml's
 * parser. If a tab is used as indentation, libyaml's message does not mention the tab, so return a
 * text that does. `next` is the character at which the parser failed. */
const char *fsdp_yaml_problem(const char *problem, char next);

/* The reason why the merge key of YAML, as in "<<: *other", is refused. */
extern const char fsdp_yaml_merge_unsupported[];
#ifdef FSDP_HAVE_YAML
struct yaml_node_s;
/* Return true if the key of a map is a merge key. */
bool fsdp_yaml_is_merge_key(const struct yaml_node_s *key);
#endif
