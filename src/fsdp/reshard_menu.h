/* Translates the value of Accelerate's fsdp_reshard_after_forward. With fsdp_version 1, this value
 * is a sharding strategy. */
#pragma once

/* Return the value that an option with fsdp_sharding_strategy_choices has with fsdp_version 1. The
 * option stores a strategy's name as `-1 - strategy`, and the texts "1" to "5" as a number of
 * ranks. But with fsdp_version 1, "1" to "5" are the numbers of strategies in Accelerate's menu. If
 * `text`, the option's text, is one of these numbers, return `-1 - strategy`. Otherwise return
 * `value`, which the option has stored. `text` may be NULL. */
int fsdp_reshard_of_menu(const char *text, int value);
