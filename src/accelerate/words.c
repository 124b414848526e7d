/* See words.h. */
#include "src/accelerate/words.h"

#include <string.h>
#include <strings.h>

const char *const fsdp_accelerate_strategies[] = {"FULL_SHARD",   "SHARD_GRAD_OP",      "NO_SHARD",
                                                  "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", NULL};
const char *const fsdp_accelerate_wrap_policies[] = {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP",
                                                     "NO_WRAP", NULL};
const char *const fsdp_accelerate_prefetches[] = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH",
                                                  NULL};
const char *const fsdp_accelerate_state_dicts[] = {"FULL_STATE_DICT", "LOCAL_STATE_DICT",
                                                   "SHARDED_STATE_DICT", NULL};

const char *fsdp_accelerate_word(const char *text, const char *const *words, int *index)
{
    const char *dot = strrchr(text, '.'), *name = dot ? dot + 1 : text;
    for (int i = 0; words[i]; i++) {
        const char number[2] = {(char)('1' + i), 0};
        if (strcasecmp(name, words[i]) != 0 && strcmp(text, number) != 0)
            continue;
        if (index)
            *index = i;
        return words[i];
    }
    return NULL;
}
