/* The values of keys in Accelerate's files that are a choice from a menu. A value may be a word or
 * its number in the menu, which counts from 1. All lists end with NULL. */
#pragma once
#include <stdbool.h>

extern const char *const fsdp_accelerate_strategies[];
extern const char *const fsdp_accelerate_wrap_policies[];
extern const char *const fsdp_accelerate_prefetches[];
extern const char *const fsdp_accelerate_state_dicts[]; /* FSDP1's order */

/* Find the word that `text` is, in any case, also behind a dot ("ShardingStrategy.FULL_SHARD"), or
 * whose number it is. Set *index to its index, unless `index` is NULL. Return NULL if there is
 * none.
 */
const char *fsdp_accelerate_word(const char *text, const char *const *words, int *index);
