/* The words that options for a sharding strategy or a backward prefetch accept. Each string has all
 * spellings of one enumerator, separated by '|': PyTorch's names, and Accelerate's words and
 * numbers. */
#include <fsdp/fsdp.h>

#include "src/fsdp/reshard_menu.h"

const char *const fsdp_sharding_strategy_choices[] = {"FULL_SHARD|1",
                                                      "SHARD_GRAD_OP|2",
                                                      "NO_SHARD|3",
                                                      "HYBRID_SHARD|_HYBRID_SHARD|4",
                                                      "HYBRID_SHARD_ZERO2|_HYBRID_SHARD_ZERO2|5",
                                                      NULL};
const char *const fsdp_backward_prefetch_choices[] = {"BACKWARD_PRE|pre|1", "BACKWARD_POST|post|2",
                                                      "NO_PREFETCH|3|none|0", NULL};

int fsdp_reshard_of_menu(const char *text, int value)
{
    return text && text[0] >= '1' && text[0] <= '5' && !text[1] ? -(text[0] - '0') : value;
}
