/* The menus of `accelerate config`, as NULL-terminated lists of words. In Accelerate's files, the
 * value of a key with a menu is a word of the menu, or the number of the word, counted from 1. */
#pragma once
#include <stdbool.h>

extern const char *const fsdp_accelerate_strategies[];
extern const char *const fsdp_accelerate_wrap_policies[];
extern const char *const fsdp_accelerate_prefetches[];
extern const char *const fsdp_accelerate_state_dicts[]; /* the menu for FSDP1 */

/* Return the word of the menu `words` that `text` means, or NULL if it means none of them. `text`
 * may be the word in upper or lower case, the word after a dot ("ShardingStrategy.FULL_SHARD"), or
 * the number of the word. If `index` is not NULL, set *index to the index of the word in
 * `words`. */
const char *fsdp_accelerate_word(const char *text, const char *const *words, int *index);
